//! Which tile a product runs on: the tiles there are, and the host's estimate of their time.
//!
//! In f32 the tile never shows in a result; on tensor cores bits depend on how many warps share elements, so there too the
//! choice goes by sizes and device alone. The estimate only has to rank. It is made of three measured figures a tile (one
//! H200, every tile on 42 products of 64 to 65,536 rows): with them the f32 tile chosen took 2.7 % longer than the quickest
//! of 48 that were tried, on average, and 14 % at worst; on tensor cores 1 % (`tf32x3`) to 4 % (`tf32`) than the quickest of 38,
//! and 28 % at worst. Blocks on their own are slower than what a multiprocessor full of them does on average, because a lone
//! warp waits for every latency.

use foxhunt_core::settings::Precision;
use foxhunt_cuda::nvrtc::Program;

use super::SEGMENT;

/// How the threads of a block share its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    /// Elements a thread, of `tiles.cuh`.
    Thread([u32; 2]),
    /// Warps along m and n, and those that share elements, of `mma.cuh`.
    Warps([u32; 3]),
}

/// A tile: `m` by `n` elements a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) m: u32,
    pub(crate) n: u32,
    share: Share,
    /// Values of k a slab.
    pub(crate) slab: u32,
    /// Slabs in flight.
    pub(crate) stages: u32,
    /// Measured cycles for a value of k of a block alone, of one among many, and a block's cycles beside its products.
    cost: [f64; 3],
}

const fn tile(m: u32, n: u32, thread: [u32; 2], slab: u32, stages: u32, cost: [f64; 3]) -> Tile {
    Tile { m, n, share: Share::Thread(thread), slab, stages, cost }
}

const fn warps(m: u32, n: u32, warps: [u32; 3], slab: u32, stages: u32, cost: [f64; 3]) -> Tile {
    Tile { m, n, share: Share::Warps(warps), slab, stages, cost }
}

/// The tiles of a mode, from the smallest to the largest.
pub(crate) fn tiles(precision: Precision) -> &'static [Tile] {
    match precision {
        Precision::F32 => &F32,
        Precision::Tf32x3 => &TF32X3,
        Precision::Tf32 => &TF32,
        Precision::Bf16 => &BF16,
    }
}

const F32: [Tile; 8] = [
    tile(16, 16, [1, 2], 64, 3, [7.6, 5.5, 587.0]),
    tile(16, 16, [2, 2], 64, 3, [10.6, 5.1, 659.0]),
    tile(16, 32, [2, 2], 64, 3, [11.9, 9.0, 850.0]),
    tile(16, 32, [2, 2], 128, 2, [9.5, 8.3, 1502.0]),
    tile(48, 32, [3, 4], 64, 2, [28.7, 22.4, 1181.0]),
    tile(64, 32, [4, 4], 64, 2, [32.9, 29.8, 1806.0]),
    tile(48, 64, [6, 4], 64, 2, [47.2, 44.8, 1936.0]),
    tile(64, 64, [8, 4], 32, 2, [63.8, 44.5, 2087.0]),
];

const TF32X3: [Tile; 8] = [
    warps(16, 16, [1, 2, 2], 128, 2, [8.1, 4.9, 943.3]),
    warps(16, 32, [1, 2, 2], 128, 2, [12.2, 4.8, 1417.1]),
    warps(32, 16, [2, 1, 2], 128, 2, [11.2, 5.5, 1692.9]),
    warps(16, 32, [1, 4, 1], 64, 3, [15.9, 8.1, 739.0]),
    warps(32, 32, [2, 2, 1], 64, 2, [22.5, 9.5, 1036.6]),
    warps(32, 32, [1, 1, 4], 128, 2, [21.8, 8.6, 2896.1]),
    warps(64, 32, [2, 2, 1], 64, 2, [44.7, 16.7, 1247.5]),
    warps(64, 64, [2, 2, 1], 64, 2, [60.8, 31.5, 2478.5]),
];

const TF32: [Tile; 8] = [
    warps(32, 16, [2, 1, 2], 128, 2, [9.7, 4.6, 1341.0]),
    warps(16, 32, [1, 4, 1], 64, 3, [12.6, 6.8, 665.9]),
    warps(32, 32, [2, 2, 1], 64, 2, [18.6, 8.7, 715.9]),
    warps(32, 32, [2, 2, 2], 128, 2, [14.8, 7.6, 1808.7]),
    warps(64, 32, [2, 2, 1], 64, 2, [25.1, 16.0, 1014.0]),
    warps(64, 64, [2, 2, 1], 64, 2, [38.7, 22.1, 2436.3]),
    warps(128, 64, [4, 2, 1], 64, 2, [48.7, 41.3, 3585.0]),
    warps(128, 64, [2, 2, 1], 32, 2, [70.6, 35.9, 5065.3]),
];

const BF16: [Tile; 8] = [
    warps(16, 32, [1, 2, 2], 128, 2, [10.4, 3.8, 1367.6]),
    warps(32, 16, [2, 1, 2], 128, 2, [9.7, 4.4, 1341.0]),
    warps(16, 32, [1, 4, 1], 64, 3, [12.6, 6.7, 630.9]),
    warps(32, 32, [2, 2, 1], 64, 2, [16.7, 9.0, 656.2]),
    warps(32, 32, [1, 1, 4], 128, 2, [16.2, 7.2, 2561.9]),
    warps(64, 32, [2, 2, 1], 64, 2, [24.3, 15.9, 1031.8]),
    warps(128, 64, [4, 2, 1], 32, 2, [56.2, 41.3, 3585.0]),
    warps(64, 128, [2, 2, 1], 32, 2, [61.3, 26.7, 4552.9]),
];

/// Rows whose gradients are summed apart from the others'. In f32 the contract's; on tensor cores more of them in large
/// batches, where joining segments takes longer than the products that more segments make even.
pub(crate) fn segment(precision: Precision, batch: usize) -> usize {
    if precision == Precision::F32 || batch <= 2048 { SEGMENT } else { 2 * SEGMENT }
}

/// Above this many blocks, the time is the work divided by the multiprocessors.
const MANY: u64 = 20_000;

impl Tile {
    pub(crate) fn threads(self) -> u32 {
        match self.share {
            Share::Thread([m, n]) => self.m / m * (self.n / n),
            Share::Warps([m, n, k]) => 32 * m * n * k,
        }
    }

    /// Shared memory of a block, for the largest of the layouts of its operands.
    pub(crate) fn shared_bytes(self) -> u32 {
        let Self { m, n, slab, stages, .. } = self;
        let padding = match self.share {
            Share::Thread(_) => 4 * (m + n),
            Share::Warps(_) => (4 * (m + n)).max(16 * slab).max(4 * m + 8 * slab),
        };
        4 * stages * ((m + n) * slab + padding)
    }

    /// Tells a program which tile it is for.
    pub(crate) fn define(self, program: Program) -> Program {
        let program = program.define("TILE_M", self.m).define("TILE_N", self.n);
        let program = match self.share {
            Share::Thread([m, n]) => program.define("THREAD_M", m).define("THREAD_N", n),
            Share::Warps([m, n, k]) => program.define("WARPS_M", m).define("WARPS_N", n).define("WARPS_K", k),
        };
        let program = program.define("SLAB", self.slab).define("STAGES", self.stages);
        program.define("SHARED_BYTES", self.shared_bytes())
    }

    /// Tiles over `[rows, cols]`.
    pub(crate) fn count(self, rows: usize, cols: usize) -> [u32; 2] {
        [rows.div_ceil(self.m as usize) as u32, cols.div_ceil(self.n as usize) as u32]
    }

    /// Estimated cycles of a launch on `processors` multiprocessors.
    fn cycles(self, work: &[Product], processors: u32) -> f64 {
        let [alone, busy, fixed] = self.cost;
        let (mut blocks, mut total, mut longest) = (Vec::new(), 0.0, 0.0_f64);
        for product in work {
            let [a, b] = self.count(product.rows, product.cols);
            let (k, count) = (product.k as f64, product.times as u64 * u64::from(a) * u64::from(b.max(1)));
            let mut cycles = k * busy + fixed;
            if product.cols == 0 {
                cycles = k * busy.min(8.0) + fixed.min(800.0);
            } else {
                longest = longest.max(k * alone + 800.0);
            }
            total += count as f64 * cycles;
            blocks.push((cycles, count));
        }
        let even = total / f64::from(processors);
        if blocks.iter().map(|(_, count)| count).sum::<u64>() > MANY {
            return even.max(longest);
        }
        even.max(longest).max(makespan(&blocks, processors))
    }
}

/// A product of a launch: `times` of `[rows, cols]` elements over `k`. Without columns: sums over `k`, one a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) times: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) k: usize,
}

/// The number of the tile of `tiles` with the shortest estimate.
pub(crate) fn best(tiles: &[Tile], work: &[Product], processors: u32) -> usize {
    let time = |i: usize| tiles[i].cycles(work, processors.max(1));
    (0..tiles.len()).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(0)
}

/// When blocks of these lengths are done: in turn on the multiprocessors while all find room at once, then each on the
/// one with the least work.
fn makespan(blocks: &[(f64, u64)], processors: u32) -> f64 {
    let mut load = vec![0.0_f64; processors as usize];
    let all_at_once = blocks.iter().map(|(_, count)| count).sum::<u64>() <= 2 * u64::from(processors);
    let mut next = 0;
    for &(cycles, count) in blocks {
        if all_at_once {
            for _ in 0..count {
                load[next % processors as usize] += cycles;
                next += 1;
            }
            continue;
        }
        // The even part first, then the rest one by one.
        let each = count / u64::from(processors);
        load.iter_mut().for_each(|l| *l += each as f64 * cycles);
        load.sort_by(f64::total_cmp);
        load.iter_mut().take((count % u64::from(processors)) as usize).for_each(|l| *l += cycles);
    }
    load.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_whole_warps_and_fit_shared_memory() {
        for tile in Precision::ALL.into_iter().flat_map(tiles) {
            assert!(tile.threads().is_multiple_of(32) && (64..=256).contains(&tile.threads()), "{tile:?}");
            let [m, n] = match tile.share {
                Share::Thread(thread) => thread,
                Share::Warps([m, n, _]) => [16 * m, 8 * n],
            };
            assert!(tile.m.is_multiple_of(m) && tile.n.is_multiple_of(n), "{tile:?}");
            // What the largest multiprocessors there are give to a block.
            assert!(tile.shared_bytes() <= 227 * 1024, "{tile:?}");
        }
        // What every device of 7.5 and up gives to f32, and every one of 8.0 and up to the other modes.
        for precision in Precision::ALL {
            let limit = if precision == Precision::F32 { 64 * 1024 } else { 99 * 1024 };
            let fit = tiles(precision).iter().filter(|tile| tile.shared_bytes() <= limit).count();
            assert!(fit >= 7, "{precision:?}: {fit}");
        }
    }

    #[test]
    fn small_products_take_small_tiles_and_large_ones_large() {
        for precision in Precision::ALL {
            let one = |rows, cols, k| {
                tiles(precision)[best(tiles(precision), &[Product { times: 3, rows, cols, k }], 132)]
            };
            let (small, large) = (one(64, 46, 256), one(65_536, 256, 256));
            assert!(small.m * small.n <= 512, "{precision:?}: {small:?}");
            assert!(large.m * large.n >= 4096, "{precision:?}: {large:?}");
        }
        assert_eq!(makespan(&[(10.0, 5)], 4), 20.0);
        assert_eq!(makespan(&[(10.0, 4), (3.0, 1)], 4), 13.0);
        assert_eq!(makespan(&[(10.0, 9)], 4), 30.0);
        assert_eq!(makespan(&[(10.0, 6), (3.0, 6)], 4), 23.0);
    }
}
