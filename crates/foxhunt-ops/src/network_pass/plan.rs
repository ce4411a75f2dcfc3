//! Which networks the passes serve, how large everything is, and who does which rows.

use foxhunt_core::settings::Precision;

use crate::acting_pass::cuda::may_serve;
use crate::gpu_learner::GpuLearnerConfig;
use crate::mlp::MlpLayout;

/// Batches and rows to act on from which on it is quicker than layer by layer, as measured on an H200. What a learner acts with does not
/// depend on the rows of a call, so that their values do not either.
fn pays_from(precision: Precision) -> (usize, usize) {
    if precision == Precision::Tf32x3 { (4096, 3072) } else { (1024, 1) }
}

/// Most layers, the head among them; as long as the arrays the kernels take.
pub(crate) const LAYERS: usize = 9;
/// Rows of a warpgroup.
pub(crate) const TILE: usize = 64;
/// Threads of a block: two warpgroups that multiply, one that fills stages.
pub(crate) const THREADS: u32 = 384;
/// Warpgroups that multiply.
const WORKERS: usize = 2;
/// Bytes of a line of an image.
const LINE_BYTES: usize = 128;
/// Outputs of a product at most.
const MOST_LINES: usize = 256;
/// Lines of a right operand whose products are summed apart at once, where they are split.
const SPLIT_PIECE: usize = 128;
/// Inputs of a weight gradient that a block has at most.
const MOST_INPUTS: usize = 128;
/// Most shared memory of a block on compute capability 9.0.
pub(crate) const SHARED_BYTES: usize = 227 * 1024;
/// Stages of weights at least and at most.
const STAGES: std::ops::RangeInclusive<usize> = 2..=4;

/// Lines of a matrix in an image of weights or inputs.
pub(crate) fn lines(rows: usize) -> usize {
    rows.next_multiple_of(16)
}

/// Lines of gradients of `outputs` in an image.
pub(crate) fn gradient_lines(outputs: usize) -> usize {
    outputs.next_multiple_of(TILE)
}

/// Words of the mask of a tile's units that each of a warpgroup's threads has.
pub(crate) fn mask_words(units: usize) -> usize {
    (lines(units) / 2).div_ceil(32)
}

/// A chain of products, forward or back: values of a row at the beginning and behind each product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) widths: Vec<usize>,
    pub(crate) stages: usize,
    /// Bytes of shared memory that a warpgroup has for units, and those of a block in all.
    pub(crate) units_bytes: usize,
    pub(crate) shared: usize,
}

impl Chain {
    /// As many stages as find room; none where fewer than two do. Units are at least `least` bytes.
    fn new(widths: Vec<usize>, precision: Precision, least: usize) -> Option<Self> {
        let slabs = widths[..widths.len() - 1].iter().map(|width| width.div_ceil(line(precision))).max()?;
        let stage = widths[1..].iter().map(|&width| lines(width)).max()? * LINE_BYTES;
        let units_bytes = (slabs * TILE * LINE_BYTES).max(least.next_multiple_of(1024));
        // Behind the stages a barrier for each worker.
        let shared = |stages: usize| WORKERS * units_bytes + stages * (stage + 16) + WORKERS * 8;
        let stages = STAGES.rev().find(|&stages| shared(stages) <= SHARED_BYTES)?;
        Some(Self { shared: shared(stages), widths, stages, units_bytes })
    }

    /// Bytes of its weights as an image.
    pub(crate) fn image_bytes(&self, precision: Precision) -> usize {
        self.products().map(|(k, rows)| weight_bytes(precision, k, rows)).sum()
    }

    /// Values of k and lines of each product.
    pub(crate) fn products(&self) -> impl Iterator<Item = (usize, usize)> {
        self.widths.windows(2).map(|pair| (pair[0], pair[1]))
    }
}

/// Everything that follows from a network and a precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) precision: Precision,
    pub(crate) forward: Chain,
    pub(crate) back: Chain,
    /// Whether an update of the configuration's batch is done here, and acting.
    pub(crate) updates: bool,
    pub(crate) acts: bool,
    /// Whether rows to act on may be few enough for clusters ([`crate::acting_pass`]).
    pub(crate) acts_on_few: bool,
}

impl Plan {
    /// The plan of a learner; none where its network, precision or noise asks for other kernels.
    pub(crate) fn of(config: &GpuLearnerConfig, layout: &MlpLayout) -> Option<Self> {
        let precision = config.learner.precision;
        let (batch, rows) = pays_from(precision);
        let (updates, acts) = (config.learner.batch >= batch, config.acting_rows >= rows);
        let acts_on_few = may_serve(layout, precision, config.acting_rows);
        let serves = precision != Precision::F32 && config.noise.is_none();
        if !serves || !(updates || acts || acts_on_few) {
            return None;
        }
        Self::of_network(layout, precision).map(|plan| Self { updates, acts, acts_on_few, ..plan })
    }

    /// The plan of a network that both acts and learns.
    pub(crate) fn of_network(layout: &MlpLayout, precision: Precision) -> Option<Self> {
        let layers = layout.layers();
        let mut widths = vec![layers[0].n_in];
        widths.extend(layers.iter().map(|layer| layer.n_out));
        let fits =
            (2..=LAYERS).contains(&layers.len()) && widths[1..].iter().all(|&width| width <= MOST_LINES);
        if !fits {
            return None;
        }
        let back: Vec<_> = widths[1..].iter().rev().copied().collect();
        // The head's outputs, and means of up to four branches, take the place of units.
        let head = 4 * TILE * (lines(back[0]) + 1 + 4);
        let forward = Chain::new(widths, precision, head)?;
        let back = Chain::new(back, precision, 0)?;
        Some(Self { precision, forward, back, updates: true, acts: true, acts_on_few: true })
    }

    /// Where each parameter goes in the image for one way, as `images.cuh` says.
    pub(crate) fn map(&self, layout: &MlpLayout, back: bool) -> Vec<u32> {
        let mut map = vec![u32::MAX; layout.n_weights()];
        let layers = layout.layers();
        let (mut order, mut begin): (Vec<_>, usize) = (layers.iter().collect(), 0);
        if back {
            order = layers[1..].iter().rev().collect();
        }
        for layer in order {
            let (k, rows) = if back { (layer.n_out, layer.n_in) } else { (layer.n_in, layer.n_out) };
            for (o, i) in (0..layer.n_out).flat_map(|o| (0..layer.n_in).map(move |i| (o, i))) {
                let (of_row, of_k) = if back { (i, o) } else { (o, i) };
                let at = begin + right_place(self.precision, lines(rows), of_row, of_k);
                map[layer.weight + o * layer.n_in + i] = (at | (lines(rows) / 16 - 1) << 28) as u32;
            }
            begin += weight_bytes(self.precision, k, rows);
        }
        map
    }

    /// Bytes of the inputs of a layer for a batch of `rows` rows as an image, and of the gradients of its outputs.
    pub(crate) fn images_of_rows(&self, rows: usize, inputs: usize, outputs: usize) -> [usize; 2] {
        let rows = rows.next_multiple_of(TILE) * LINE_BYTES;
        let right = rows / right_line(self.precision) * lines(inputs);
        [right, rows / line(self.precision) * gradient_lines(outputs)]
    }

    /// Widths of operands that products are compiled for; where sums are split, in pieces.
    pub(crate) fn product_shapes(&self) -> Vec<usize> {
        let all = self.forward.widths.iter().map(|&width| lines(width));
        let mut shapes: Vec<usize> = all.clone().chain(all.map(inputs_of_block)).collect();
        if self.precision == Precision::Tf32x3 {
            shapes = shapes.iter().map(|n| n % SPLIT_PIECE).chain([SPLIT_PIECE]).collect();
        }
        shapes.retain(|&n| n > 0 && n <= MOST_LINES);
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// Blocks that a segment's weight gradients take.
    pub(crate) fn gradient_blocks(&self) -> usize {
        let of = |(inputs, outputs): (usize, usize)| {
            lines(inputs).div_ceil(MOST_INPUTS) * gradient_lines(outputs).div_ceil(WORKERS * TILE)
        };
        self.forward.products().map(of).sum()
    }

    /// Device bytes of a learner's images, maps and masks.
    pub(crate) fn bytes(&self, batch: usize) -> u64 {
        let (precision, forward) = (self.precision, &self.forward);
        // And where each parameter goes in an image.
        let map: usize = forward.products().map(|(inputs, outputs)| 4 * (inputs + 1) * outputs).sum();
        let mut bytes = forward.image_bytes(precision) + map;
        if self.updates {
            bytes += map + forward.image_bytes(precision) + self.back.image_bytes(precision);
            for (inputs, outputs) in forward.products() {
                bytes += self.images_of_rows(batch, inputs, outputs).iter().sum::<usize>();
            }
            for &units in &forward.widths[1..forward.widths.len() - 1] {
                bytes += 4 * mask_len(batch, units);
            }
        }
        bytes as u64
    }
}

/// Words of the masks of a batch.
pub(crate) fn mask_len(batch: usize, units: usize) -> usize {
    batch.div_ceil(TILE) * 128 * mask_words(units)
}

/// Parts of a value of a right operand.
pub(crate) fn parts(precision: Precision) -> usize {
    if precision == Precision::Tf32x3 { 2 } else { 1 }
}

/// Values of k in a line of a left operand.
pub(crate) fn line(precision: Precision) -> usize {
    LINE_BYTES / if precision == Precision::Bf16 { 2 } else { 4 }
}

/// The same of a right operand.
fn right_line(precision: Precision) -> usize {
    line(precision) / parts(precision)
}

/// Bytes from the beginning of an image of `lines` lines to a value, or to its high part.
fn right_place(precision: Precision, lines: usize, row: usize, k: usize) -> usize {
    let (line, parts) = (right_line(precision), parts(precision));
    let (slab, k) = (k / line, k % line);
    let byte = k * LINE_BYTES / parts / line;
    let turn = if parts == 1 { row % 8 } else { row / 2 % 4 };
    slab * lines * LINE_BYTES + row * (LINE_BYTES / parts) + (((byte / 16) ^ turn) << 4) + byte % 16
}

/// Bytes of a matrix of weights as an image.
pub(crate) fn weight_bytes(precision: Precision, k: usize, rows: usize) -> usize {
    k.div_ceil(right_line(precision)) * lines(rows) * LINE_BYTES
}

/// Stages of a weight gradient, as many as find room, and shared memory of a block: operands of both kinds and their barriers.
pub(crate) fn gradient_stages(precision: Precision) -> (usize, usize) {
    let stage = WORKERS * TILE * LINE_BYTES + parts(precision) * MOST_INPUTS * LINE_BYTES + 16;
    let stages = (SHARED_BYTES / stage).min(6);
    (stages, stages * stage)
}

/// Of so many lines of inputs those that a block of a weight gradient has.
fn inputs_of_block(lines: usize) -> usize {
    (lines / lines.div_ceil(MOST_INPUTS)).next_multiple_of(8)
}

/// How tiles are dealt to blocks, in rounds: two a block as long as more tiles than blocks are left, then one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deal {
    pub(crate) tiles_of_job: usize,
    pub(crate) tiles: usize,
    pub(crate) double_rounds: usize,
    pub(crate) blocks: usize,
}

impl Deal {
    /// `rows` of each of `jobs`, one block a processor at most. Two tiles of a block are of one job, so where a round has two
    /// a block, a job has an even number.
    pub(crate) fn new(rows: usize, jobs: usize, processors: usize) -> Self {
        let single = rows.div_ceil(TILE);
        let pairs = single * jobs > processors;
        let tiles_of_job = if pairs { single.next_multiple_of(2) } else { single };
        let tiles = tiles_of_job * jobs;
        let blocks = if pairs { (tiles / 2).min(processors) } else { tiles };
        let (mut left, mut double_rounds) = (tiles, 0);
        while left > blocks {
            double_rounds += 1;
            left = left.saturating_sub(2 * blocks);
        }
        Self { tiles_of_job, tiles, double_rounds, blocks }
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::{Head, ReturnModel};

    use super::*;
    use crate::mlp::MlpShape;

    fn layout(state_dim: usize, hidden: &[usize]) -> MlpLayout {
        let head = Head::Factored.into();
        let hidden = hidden.to_vec();
        MlpLayout::new(MlpShape { state_dim, hidden, head, dueling: true, returns: ReturnModel::Mean })
    }

    #[test]
    fn the_default_network_is_served_and_others_only_where_they_find_room() {
        let plan = Plan::of_network(&layout(51, &[256, 256]), Precision::Tf32).unwrap();
        assert_eq!((plan.forward.stages, plan.forward.shared), (3, 229_440));
        assert_eq!(plan.back.widths, [46, 256, 256]);
        assert_eq!(plan.forward.image_bytes(Precision::Tf32), 128 * (2 * 256 + 8 * 256 + 8 * 48));
        assert_eq!(plan.product_shapes(), [48, 64, 128, 256]);
        assert_eq!(plan.gradient_blocks(), 2 + 4 + 2);
        let acts_alone = Plan { updates: false, ..plan.clone() };
        let map = 4 * layout(51, &[256, 256]).n_weights();
        assert_eq!(acts_alone.bytes(64) as usize, plan.forward.image_bytes(Precision::Tf32) + map);
        let split = Plan::of_network(&layout(51, &[256, 256]), Precision::Tf32x3).unwrap();
        assert_eq!(split.forward.image_bytes(Precision::Tf32x3), 128 * (4 * 256 + 16 * 256 + 16 * 48));
        assert_eq!((split.product_shapes(), split.forward.stages), (vec![48, 64, 128], 3));
        assert!(
            Precision::ALL.map(gradient_stages).iter().all(|&(n, bytes)| n >= 4 && bytes <= SHARED_BYTES)
        );
        let served = |state_dim, hidden: &[usize], precision| {
            Plan::of_network(&layout(state_dim, hidden), precision).is_some()
        };
        assert!(served(130, &[72, 200, 96], Precision::Tf32) && served(3, &[1], Precision::Bf16));
        assert!(!served(51, &[], Precision::Tf32), "no hidden layer");
        assert!(!served(51, &[257], Precision::Tf32), "more outputs than a product has");
        assert!(!served(900, &[256], Precision::Tf32), "states that find no room");
        assert!(!served(51, &[8; 9], Precision::Tf32), "more layers than the arrays have");
    }

    #[test]
    fn every_weight_has_a_place_of_its_own_in_an_image() {
        for precision in [Precision::Tf32x3, Precision::Tf32, Precision::Bf16] {
            let layout = layout(51, &[72, 40]);
            let plan = Plan::of_network(&layout, precision).unwrap();
            for (back, chain) in [(false, &plan.forward), (true, &plan.back)] {
                let map = plan.map(&layout, back);
                let (mut taken, mut nowhere) = (vec![false; chain.image_bytes(precision)], 0);
                let size = if precision == Precision::Bf16 { 2 } else { 4 };
                for word in map {
                    if word == u32::MAX {
                        nowhere += 1;
                        continue;
                    }
                    let (at, lines) = ((word & 0x0fff_ffff) as usize, (word >> 28) as usize * 16 + 16);
                    let low = (precision == Precision::Tf32x3).then_some(at + lines * 64);
                    for byte in [Some(at), low].into_iter().flatten().flat_map(|at| at..at + size) {
                        assert!(!std::mem::replace(&mut taken[byte], true), "{precision:?} {back} {byte}");
                    }
                }
                let biases = 72 + 40 + 46;
                assert_eq!(nowhere, if back { biases + 51 * 72 } else { biases });
            }
        }
        // Line 9, k 37 of 256 lines of tf32: slab 1, k 5 in sixteen bytes number 1, which line 9 has at place 0.
        assert_eq!(right_place(Precision::Tf32, 256, 9, 37), 256 * 128 + 9 * 128 + 4);
        // Of tf32x3: slab 2, likewise number 1, which a line of the fourth pair of lines has at place 1 ^ 0.
        assert_eq!(right_place(Precision::Tf32x3, 256, 9, 37), 2 * 256 * 128 + 9 * 64 + 16 + 4);
    }

    #[test]
    fn every_tile_is_dealt_once_and_pairs_are_of_one_job() {
        for (rows, jobs, processors) in [
            (1, 1, 132),
            (64, 3, 132),
            (1024, 3, 132),
            (8192, 3, 132),
            (8200, 3, 132),
            (65_536, 1, 132),
            (4500, 3, 7),
            (130, 2, 1),
        ] {
            let deal = Deal::new(rows, jobs, processors);
            let mut times = vec![0; deal.tiles];
            for round in 0.. {
                let (two, paired) = (round < deal.double_rounds, deal.double_rounds * 2 * deal.blocks);
                let first = |block| {
                    if two {
                        (round * deal.blocks + block) * 2
                    } else {
                        paired + block + (round - deal.double_rounds) * deal.blocks
                    }
                };
                if first(0) >= deal.tiles {
                    break;
                }
                for number in (0..deal.blocks).map(first).filter(|&number| number < deal.tiles) {
                    times[number] += 1;
                    if two {
                        times[number + 1] += 1;
                        assert_eq!(number / deal.tiles_of_job, (number + 1) / deal.tiles_of_job, "{deal:?}");
                    }
                }
            }
            assert!(times.iter().all(|&n| n == 1), "{rows} {jobs} {processors}: {deal:?}");
            assert!(deal.tiles_of_job * TILE >= rows && deal.blocks <= processors);
        }
        assert_eq!(
            Deal::new(8192, 3, 132),
            Deal { tiles_of_job: 128, tiles: 384, double_rounds: 1, blocks: 132 }
        );
    }
}
