//! The launchers of the network's kernels. Kernels: `mlp.cu` over `tiles.cuh`, and `q_from_head.cu`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::settings::Precision;
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DeviceInfo, DevicePtr, Kernel, Launch, Stream, shared_struct,
};
use rayon::prelude::*;

use super::tiles::{Product, Tile, best, tiles};
use super::{Layer, MlpLayout};
use crate::gpu_learner::state::{STEP_CUH, StepBuffers, StepState, SumArgs};
use crate::gpu_learner::{CARVEOUT, Loader};
use crate::guard::gate::Findings;
use crate::ring::cuda::DeviceBatch;

const MLP_CU: &str = include_str!("mlp.cu");
/// Text of `copies.cuh`.
pub(crate) const COPIES_CUH: &str = include_str!("copies.cuh");
const FEED_CUH: &str = include_str!("feed.cuh");
const TILES_CUH: &str = include_str!("tiles.cuh");
const TENSOR_CUH: &str = include_str!("tensor.cuh");
const MMA_CUH: &str = include_str!("mma.cuh");
const Q_FROM_HEAD_CU: &str = include_str!("q_from_head.cu");
/// Text of `q_from_head.cuh`.
pub(crate) const Q_FROM_HEAD_CUH: &str = include_str!("q_from_head.cuh");

/// Bytes of shared memory that a multiprocessor keeps for itself of each block's, and that a kernel has beside what is asked for at launch.
const RESERVED: u32 = 2048;
/// Values a thread looks at for those that are not finite; in one go, as it waits for all of them together.
const INSPECTED: usize = 16;

shared_struct! {
    /// Dueling heads to Q-values.
    pub(crate) struct HeadArgs {
        head: DevicePtr<f32>,
        q: DevicePtr<f32>,
        start: [u32; 4],
        len: [u32; 4],
        rows: u32,
        head_stride: u32,
        n_outputs: u32,
        n_branches: u32,
    }
}

shared_struct! {
    /// Up to three forward products that share a shape.
    pub(crate) struct ForwardArgs {
        x: [DevicePtr<f32>; 3],
        parameters: [DevicePtr<f32>; 3],
        out: [DevicePtr<f32>; 3],
        next_states: DevicePtr<f32>,
        rewards: DevicePtr<f32>,
        terminated: DevicePtr<f32>,
        state: DevicePtr<StepState>,
        head: HeadArgs,
        rows: [u32; 3],
        first_block: [u32; 3],
        weight: u32,
        bias: u32,
        n_in: u32,
        n_out: u32,
        x_stride: u32,
        out_stride: u32,
        n_tiles: u32,
        tiles: u32,
        inspectors: u32,
        relu: u32,
        ahead: u32,
        lonely: u32,
    }
}

shared_struct! {
    /// The way back through one layer.
    pub(crate) struct BackwardArgs {
        d: DevicePtr<f32>,
        w: DevicePtr<f32>,
        x: DevicePtr<f32>,
        before: DevicePtr<f32>,
        gradient: DevicePtr<f32>,
        split_stride: u64,
        weight: u32,
        bias: u32,
        rows: u32,
        n_in: u32,
        n_out: u32,
        d_stride: u32,
        x_stride: u32,
        before_stride: u32,
        segment: u32,
        splits: u32,
        add: u32,
        n_tiles: u32,
        weight_tiles: u32,
        bias_tiles: u32,
        before_tiles: u32,
        lonely: u32,
        early: u32,
        pad: u32,
    }
}

shared_struct! {
    /// The way back through up to three layers, whose outputs' gradients are there already.
    pub(crate) struct BackwardLayers {
        of: [BackwardArgs; 3],
        first_block: [u32; 3],
        pad: u32,
    }
}

/// First outputs and lengths of the head's branches, in arrays of four.
pub(crate) fn branches(layout: &MlpLayout) -> ([u32; 4], [u32; 4], u32) {
    let (mut start, mut len, mut at) = ([0; 4], [0; 4], 0);
    let branches = layout.shape().head.branches();
    for (d, &n) in branches.iter().enumerate().take(4) {
        (start[d], len[d]) = (at, n as u32);
        at += n as u32;
    }
    (start, len, branches.len() as u32)
}

pub(crate) fn head_args(
    layout: &MlpLayout,
    rows: usize,
    head: DevicePtr<f32>,
    q: &DeviceBuffer<f32>,
) -> Result<HeadArgs, CudaError> {
    let n_outputs = layout.n_outputs();
    q.holds(rows * n_outputs)?;
    let (start, len, n_branches) = branches(layout);
    Ok(HeadArgs {
        head,
        q: q.ptr(),
        start,
        len,
        rows: rows as u32,
        head_stride: stride(layout.head().n_out) as u32,
        n_outputs: n_outputs as u32,
        n_branches,
    })
}

/// Values from row to row of a buffer of `cols` columns: rows begin at 16-byte boundaries.
pub(crate) fn stride(cols: usize) -> usize {
    cols.next_multiple_of(4)
}

/// The programs of the network, one a tile and one for heads. Those of a mode other than f32 are for compute capability 8.0
/// and up.
#[must_use]
pub fn programs(precision: Precision) -> Vec<Program> {
    let structs = [
        StepState::cuda_source(),
        Findings::cuda_source(),
        SumArgs::cuda_source(),
        HeadArgs::cuda_source(),
        ForwardArgs::cuda_source(),
        BackwardArgs::cuda_source(),
        BackwardLayers::cuda_source(),
    ]
    .concat();
    let structs = format!("#pragma once\n{structs}");
    let tiles = tiles(precision).iter().map(|tile| {
        let program = tile.define(
            Program::new("mlp.cu", MLP_CU)
                .header("common.cuh", COMMON_CUH)
                .header("shared_structs.cuh", &structs)
                .header("copies.cuh", COPIES_CUH)
                .header("feed.cuh", FEED_CUH)
                .header("q_from_head.cuh", Q_FROM_HEAD_CUH)
                .header("step.cuh", STEP_CUH),
        );
        let program = program
            .define("AHEAD_LEAVES_PARAMETERS", Ahead::LeavesParameters as u32)
            .define("AHEAD_LEAVES_ALL", Ahead::LeavesAll as u32);
        let number = match precision {
            Precision::F32 => return program.header("tiles.cuh", TILES_CUH),
            Precision::Tf32x3 => 1,
            Precision::Tf32 => 2,
            Precision::Bf16 => 3,
        };
        let program = program.header("mma.cuh", MMA_CUH).header("tensor.cuh", TENSOR_CUH);
        program.define("PRECISION", number)
    });
    let head = Program::new("q_from_head.cu", Q_FROM_HEAD_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &structs)
        .header("q_from_head.cuh", Q_FROM_HEAD_CUH);
    tiles.chain([head]).collect()
}

/// Handles of the network's kernels.
#[derive(Clone, Debug)]
pub(crate) struct MlpKernels {
    tiles: Vec<Tile>,
    /// Forward and way back of each.
    kernels: Vec<[Kernel; 2]>,
    q_from_head: Kernel,
    processors: u32,
    /// Shared memory of a block of `backward_layer` at most.
    shared_bytes: u32,
}

/// One forward product of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// f32 `[rows, x_stride]`.
    pub(crate) x: &'a DeviceBuffer<f32>,
    /// The flat parameters.
    pub(crate) parameters: &'a DeviceBuffer<f32>,
    /// f32 `[rows, out_stride]`.
    pub(crate) out: &'a DeviceBuffer<f32>,
}

/// What the kernel queued just ahead of a pass leaves alone, so that the pass may begin before that one is done. That kernel lets others start only
/// when everything ahead of it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing is known of it.
    #[default]
    Unknown,
    /// Parameters, and images of them, are as they were when it began.
    LeavesParameters,
    /// So are the states, and it neither reads nor writes what the pass writes.
    LeavesAll,
}

/// What a forward launch has in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward<'a> {
    pub(crate) layer: Layer,
    pub(crate) rows: usize,
    pub(crate) x_stride: usize,
    pub(crate) out_stride: usize,
    pub(crate) relu: bool,
    pub(crate) ahead: Ahead,
    /// Whether the kernel behind it has no more blocks than there are multiprocessors, so that it may come early.
    pub(crate) few_behind: bool,
    /// A batch whose values are looked at for those that are not finite, and where they are counted.
    pub(crate) inspect: Option<(&'a DeviceBatch, &'a DeviceBuffer<StepState>)>,
    /// Where the Q-values of a dueling head go, f32 `[rows, n_outputs]`, when this launch can make them.
    pub(crate) q: Option<(&'a MlpLayout, &'a DeviceBuffer<f32>)>,
}

/// The way back through a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backward<'a> {
    pub(crate) layer: Layer,
    pub(crate) rows: usize,
    /// Gradient of the layer's outputs, f32 `[rows, d_stride]`.
    pub(crate) d: &'a DeviceBuffer<f32>,
    pub(crate) d_stride: usize,
    /// The layer's inputs, f32 `[rows, x_stride]`.
    pub(crate) x: &'a DeviceBuffer<f32>,
    pub(crate) x_stride: usize,
    /// Whether those inputs are older than the kernel queued just ahead.
    pub(crate) early: bool,
    pub(crate) parameters: &'a DeviceBuffer<f32>,
    /// Gradient of the units before, f32 `[rows, stride(n_in)]`; none for the first layer.
    pub(crate) before: Option<&'a DeviceBuffer<f32>>,
    /// Flat gradient, or one for each segment of rows.
    pub(crate) gradient: &'a DeviceBuffer<f32>,
    /// Rows of a segment.
    pub(crate) segment: usize,
    /// Gradients in it.
    pub(crate) splits: usize,
    /// Values from gradient to gradient.
    pub(crate) split_stride: usize,
    /// Whether to add to what is there.
    pub(crate) add: bool,
}

impl Backward<'_> {
    /// Its products, in the order of the blocks.
    fn work(&self) -> impl Iterator<Item = Product> {
        let Layer { n_in, n_out, .. } = self.layer;
        let weights = Product { times: self.splits, rows: n_out, cols: n_in, k: self.rows / self.splits };
        let biases = Product { cols: 0, ..weights };
        let before = Product { times: 1, rows: self.rows, cols: n_in, k: n_out };
        [weights, biases].into_iter().chain(self.before.map(|_| before))
    }

    /// Blocks of weights and of biases in a split, and of the units before.
    fn counts(&self, tile: Tile) -> [u32; 3] {
        let Layer { n_in, n_out, .. } = self.layer;
        let [m_tiles, n_tiles] = tile.count(n_out, n_in);
        let before = self.before.map_or(0, |_| tile.count(self.rows, n_in)[0] * n_tiles);
        [m_tiles * n_tiles, m_tiles, before]
    }

    fn blocks(&self, tile: Tile) -> u32 {
        let [weights, biases, before] = self.counts(tile);
        (weights + biases) * self.splits as u32 + before
    }

    /// The arguments, after a look at all lengths.
    fn args(&self, tile: Tile) -> Result<BackwardArgs, CudaError> {
        let Layer { n_in, n_out, weight, bias } = self.layer;
        self.d.holds(self.rows * self.d_stride)?;
        self.x.holds(self.rows * self.x_stride)?;
        self.gradient.holds((self.splits - 1) * self.split_stride + bias + n_out)?;
        if let Some(before) = self.before {
            before.holds(self.rows * stride(n_in))?;
        }
        let [weight_tiles, bias_tiles, before_tiles] = self.counts(tile);
        Ok(BackwardArgs {
            d: self.d.ptr(),
            w: self.parameters.ptr().offset(weight),
            x: self.x.ptr(),
            before: self.before.map_or(DevicePtr::NULL, DeviceBuffer::ptr),
            gradient: self.gradient.ptr(),
            split_stride: self.split_stride as u64,
            weight: weight as u32,
            bias: bias as u32,
            rows: self.rows as u32,
            n_in: n_in as u32,
            n_out: n_out as u32,
            d_stride: self.d_stride as u32,
            x_stride: self.x_stride as u32,
            before_stride: stride(n_in) as u32,
            segment: self.segment as u32,
            splits: self.splits as u32,
            add: u32::from(self.add),
            n_tiles: tile.count(n_out, n_in)[1],
            weight_tiles,
            bias_tiles,
            before_tiles,
            lonely: 0,
            early: u32::from(self.early),
            pad: 0,
        })
    }
}

impl MlpKernels {
    /// Of the tiles those that a block of this device has shared memory for.
    pub(crate) fn new(
        loader: &Loader<'_>,
        precision: Precision,
        device: &DeviceInfo,
    ) -> Result<Self, CudaError> {
        let (processors, shared_bytes) =
            (device.multiprocessors, device.shared_bytes.saturating_sub(RESERVED));
        let mut programs = programs(precision);
        let head = programs.pop().unwrap_or_default();
        let fit = programs.iter().zip(tiles(precision).iter().copied());
        let (programs, tiles): (Vec<_>, Vec<_>) =
            fit.filter(|(_, tile)| tile.shared_bytes() <= device.shared_bytes).unzip();
        // Seconds each, on every core there is.
        let images = programs.par_iter().map(|program| loader.compile(program)).collect::<Vec<_>>();
        let mut kernels = Vec::new();
        for (image, tile) in images.into_iter().zip(&tiles) {
            let module = loader.load_image(&image?)?;
            let both = [module.kernel("forward_layer")?, module.kernel("backward_layer")?];
            for (kernel, most) in
                both.iter().zip([tile.shared_bytes(), tile.shared_bytes().max(shared_bytes)])
            {
                kernel.prefer_carveout(CARVEOUT)?;
                kernel.allow_shared(most)?;
            }
            kernels.push(both);
        }
        let q_from_head = loader.load(&head)?.kernel("q_from_head")?;
        q_from_head.prefer_carveout(CARVEOUT)?;
        Ok(Self { tiles, kernels, q_from_head, processors, shared_bytes })
    }

    /// All kernels with the name of their tile, for resource reports.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, &Kernel)> {
        self.kernels.iter().zip(&self.tiles).flat_map(|(kernels, tile)| {
            kernels.iter().map(move |k| (format!("{} {}x{}", k.symbol(), tile.m, tile.n), k))
        })
    }

    /// Shared memory with which a multiprocessor has room for no more than its share of the blocks, or a tile's where that is more.
    fn share_of_each(&self, blocks: u32, tile: Tile) -> u32 {
        let each = blocks.div_ceil(self.processors.max(1)).max(1);
        let room = (self.shared_bytes / each).saturating_sub(RESERVED);
        (room & !127).max(tile.shared_bytes())
    }

    fn best(&self, work: &[Product]) -> (usize, Tile) {
        let number = best(&self.tiles, work, self.processors);
        (number, self.tiles[number])
    }

    /// Queues up to three forward products. Gives whether it made Q-values.
    pub(crate) fn forward(
        &self,
        stream: &Stream,
        f: &Forward<'_>,
        jobs: &[Job<'_>],
        programmatic: bool,
    ) -> Result<bool, CudaError> {
        let Layer { n_in, n_out, weight, bias } = f.layer;
        let work = [Product { times: jobs.len(), rows: f.rows, cols: n_out, k: n_in }];
        let (number, tile) = self.best(&work);
        let [m_tiles, n_tiles] = tile.count(f.rows, n_out);
        let tiles = m_tiles * n_tiles * jobs.len() as u32;
        let pick = |get: fn(&Job<'_>) -> DevicePtr<f32>| {
            std::array::from_fn(|i| jobs.get(i).map_or(DevicePtr::NULL, get))
        };
        let null = DevicePtr::NULL;
        let (mut args_inspect, mut inspectors) = ([null; 3], 0);
        let mut state = DevicePtr::NULL;
        if let Some((batch, to)) = f.inspect {
            args_inspect = [batch.next_states.ptr(), batch.rewards.ptr(), batch.terminated.ptr()];
            state = to.ptr();
            let a_block = INSPECTED * tile.threads() as usize;
            inspectors = (2 * f.rows * n_in).div_ceil(a_block).min(8 * self.processors as usize) as u32;
        }
        let [next_states, rewards, terminated] = args_inspect;
        // Only a block that has whole rows can centre them.
        let q = f.q.filter(|_| n_tiles == 1);
        let head: HeadArgs = match q {
            Some((layout, q)) => head_args(layout, f.rows, DevicePtr::NULL, q)?,
            None => foxhunt_cuda::bytemuck::Zeroable::zeroed(),
        };
        let args = ForwardArgs {
            x: pick(|job| job.x.ptr()),
            parameters: pick(|job| job.parameters.ptr()),
            out: pick(|job| job.out.ptr()),
            next_states,
            rewards,
            terminated,
            state,
            head,
            rows: [f.rows as u32; 3],
            first_block: std::array::from_fn(|i| {
                if i < jobs.len() { i as u32 * m_tiles * n_tiles } else { u32::MAX }
            }),
            weight: weight as u32,
            bias: bias as u32,
            n_in: n_in as u32,
            n_out: n_out as u32,
            x_stride: f.x_stride as u32,
            out_stride: f.out_stride as u32,
            n_tiles,
            tiles,
            inspectors,
            relu: u32::from(f.relu),
            ahead: f.ahead as u32,
            lonely: u32::from(f.few_behind || tiles + inspectors <= self.processors),
        };
        let mut launch = Launch::new(&self.kernels[number][0], tiles + inspectors, tile.threads())
            .shared(tile.shared_bytes())
            .programmatic(programmatic)
            .value(args);
        for job in jobs {
            job.x.holds(f.rows * f.x_stride)?;
            job.out.holds(f.rows * f.out_stride)?;
            launch = launch.keep(job.x).keep(job.parameters).keep(job.out);
        }
        if let Some((batch, to)) = f.inspect {
            launch = batch.keep(launch).keep(to);
        }
        if let Some((_, q)) = q {
            launch = launch.keep(q);
        }
        // SAFETY: forward_layer(ForwardArgs). Rows and columns are tested against the counts given, which the buffers
        // hold (checked above and in `head_args`; parameters and batch by their owner); all is kept.
        unsafe { launch.launch(stream) }?;
        Ok(q.is_some())
    }

    /// Queues the way back through up to three layers, each of which has the gradients of its outputs; with `sums` one more block sums
    /// up the losses.
    pub(crate) fn backward(
        &self,
        stream: &Stream,
        layers: &[Backward<'_>],
        sums: Option<SumArgs>,
        keep_for_sums: &[&DeviceBuffer<f32>],
        step: &StepBuffers,
        adam_t: &DeviceBuffer<u64>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let mut args: BackwardLayers = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        if layers.len() > args.of.len() {
            return Err(CudaError::Length { what: "layers", got: layers.len(), expected: args.of.len() });
        }
        let work: Vec<_> = layers.iter().flat_map(Backward::work).collect();
        let (number, tile) = self.best(&work);
        let blocks = layers.iter().map(|b| b.blocks(tile)).sum::<u32>() + u32::from(sums.is_some());
        let lonely = u32::from(blocks <= self.processors);
        args.first_block = [u32::MAX; 3];
        let mut first_block = 0;
        for (i, b) in layers.iter().enumerate() {
            args.of[i] = BackwardArgs { lonely, ..b.args(tile)? };
            args.first_block[i] = first_block;
            first_block += b.blocks(tile);
        }
        let none: SumArgs = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        // A kernel that fills most multiprocessors is done nearly everywhere at once: blocks are not to pile up where it left room before.
        let apart = layers.iter().any(|b| !b.early);
        let shared = if apart { self.share_of_each(blocks, tile) } else { tile.shared_bytes() };
        let mut launch = Launch::new(&self.kernels[number][1], blocks, tile.threads())
            .shared(shared)
            .programmatic(programmatic)
            .value(args)
            .value(sums.unwrap_or(none))
            .keep(&step.state)
            .keep(&step.findings)
            .keep(adam_t);
        for b in layers {
            launch = launch.keep(b.d).keep(b.x).keep(b.parameters).keep(b.gradient);
            if let Some(before) = b.before {
                launch = launch.keep(before);
            }
        }
        for buffer in keep_for_sums {
            launch = launch.keep(*buffer);
        }
        // SAFETY: backward_layer(BackwardLayers, SumArgs). Rows, inputs and outputs are tested against the counts given, which
        // the buffers hold (checked in `args`); a split writes its own gradient, a layer its own part of it; `sums` names
        // rows that its owner made for this batch. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Queues Q-values `[rows, n_outputs]` from dueling head outputs `[rows, stride]`.
    pub(crate) fn q_from_head(
        &self,
        stream: &Stream,
        layout: &MlpLayout,
        rows: usize,
        head: &DeviceBuffer<f32>,
        q: &DeviceBuffer<f32>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        head.holds(rows * stride(layout.head().n_out))?;
        let args = head_args(layout, rows, head.ptr(), q)?;
        let launch = Launch::new(&self.q_from_head, rows.div_ceil(8) as u32, 64)
            .programmatic(programmatic)
            .value(args)
            .keep(head)
            .keep(q);
        // SAFETY: q_from_head(HeadArgs). Rows are tested against `rows`, which both buffers hold; heads have at most 46
        // outputs, as its shared memory does. All is kept.
        unsafe { launch.launch(stream) }
    }
}
