//! The launchers of the tree's kernels. Kernels: `priority_tree.cu` over `tree.cuh`; buffers: [`super::device`].
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use std::sync::Arc;

use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{COMMON_CUH, CudaError, DeviceBuffer, Kernel, Launch, Module, PHILOX_CUH, Stream};

use super::device::{ChangeLog, Changes, Control, DeviceTree, SampleParams, Tree, UpdateParams, level_nodes};
use super::{PriorityParams, stratum_width};
use crate::guard::gate::{Findings, GATE_CUH, Gate, GateArgs};
use crate::power::POWER_CUH;
use crate::ring::cuda::{
    Batch, COMPACT_CUH, COMPLETE_CUH, DeviceBatch, DeviceRing, RING_CU, RING_CUH, Ring, Rows,
};
use crate::tree_sum::TREE_SUM_CUH;

const PRIORITY_TREE_CU: &str = include_str!("priority_tree.cu");
/// Text of `tree.cuh`.
pub(crate) const TREE_CUH: &str = include_str!("tree.cuh");

/// Most sampling blocks that agree on a minimum within one launch.
const MAX_WORKERS: u32 = 128;
/// Above this many, one more block collects the minima.
const FEW_WORKERS: u32 = 32;
/// Shared memory that blocks of a large grid ask for and do not use: one block a multiprocessor, so that none shares
/// its memory pipes while others idle.
const SPREAD_BYTES: u32 = 116 * 1024;

/// Adds what every replay kernel includes: integers, Philox, powers, the shared structs, tree and rows.
fn with_headers(program: Program, state_dim: usize, levels: usize, storage: ReplayStorage) -> Program {
    let structs = [
        Control::cuda_source(),
        Tree::cuda_source(),
        SampleParams::cuda_source(),
        UpdateParams::cuda_source(),
        Changes::cuda_source(),
        Findings::cuda_source(),
        GateArgs::cuda_source(),
        Ring::cuda_source(),
        Rows::cuda_source(),
        Batch::cuda_source(),
    ];
    program
        .header("common.cuh", COMMON_CUH)
        .header("philox.cuh", PHILOX_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{}", structs.concat()))
        .header("power.cuh", POWER_CUH)
        .header("tree.cuh", TREE_CUH)
        .header("tree_sum.cuh", TREE_SUM_CUH)
        .header("gate.cuh", GATE_CUH)
        .header("compact.cuh", COMPACT_CUH)
        .header("complete.cuh", COMPLETE_CUH)
        .header("ring.cuh", RING_CUH)
        .define("COMPACT", u32::from(storage == ReplayStorage::Compact))
        .define("STATE_DIM", state_dim)
        .define("LEVELS", levels)
}

/// The programs of the replay memory for a state dimension, capacity and form of rows, in the order tree, ring, rank.
#[must_use]
pub fn programs(state_dim: usize, capacity: usize, storage: ReplayStorage) -> [Program; 3] {
    let levels = level_nodes(capacity).len();
    [
        Program::new("priority_tree.cu", PRIORITY_TREE_CU),
        Program::new("ring.cu", RING_CU),
        Program::new("rank_sampler.cu", crate::rank_sampler::cuda::RANK_SAMPLER_CU),
    ]
    .map(|program| with_headers(program, state_dim, levels, storage))
}

/// Handles of the tree's kernels.
#[derive(Clone, Debug)]
pub struct TreeKernels {
    sample_proportional: Kernel,
    sample_rank: Kernel,
    sample_uniform: Kernel,
    advance_sample: Kernel,
    finish_weights: Kernel,
    update_priorities: Kernel,
    rebuild_level: Kernel,
    check_level: Kernel,
    retag_leaves: Kernel,
    restart_epoch: Kernel,
    plain_prefix: Kernel,
    plain_draw: Kernel,
    spread_bytes: u32,
}

/// How batches are drawn, on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DrawParams {
    pub(crate) seed: u64,
    pub(crate) beta_start: f64,
    pub(crate) beta_end: f64,
    pub(crate) beta_steps: u64,
}

impl DrawParams {
    fn for_batch(self, batch: u32, workers: u32, exchange: bool) -> SampleParams {
        SampleParams {
            seed: self.seed,
            width: stratum_width(batch),
            beta_start: self.beta_start,
            beta_end: self.beta_end,
            beta_steps: self.beta_steps,
            batch,
            workers,
            exchange: u32::from(exchange),
            pad: 0,
        }
    }
}

/// The order that a rank draw reads: two buffers of keys, of which the control block names one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders<'a>(pub(crate) &'a DeviceBuffer<u64>, pub(crate) &'a DeviceBuffer<u64>);

impl TreeKernels {
    /// Takes the handles out of the loaded `priority_tree.cu`.
    ///
    /// # Errors
    /// [`CudaError::Driver`] for a missing symbol.
    pub fn new(module: &Arc<Module>) -> Result<Self, CudaError> {
        let mut kernels = Self {
            sample_proportional: module.kernel("sample_proportional")?,
            sample_rank: module.kernel("sample_rank")?,
            sample_uniform: module.kernel("sample_uniform")?,
            advance_sample: module.kernel("advance_sample")?,
            finish_weights: module.kernel("finish_weights")?,
            update_priorities: module.kernel("update_priorities")?,
            rebuild_level: module.kernel("rebuild_level")?,
            check_level: module.kernel("check_level")?,
            retag_leaves: module.kernel("retag_leaves")?,
            restart_epoch: module.kernel("restart_epoch")?,
            plain_prefix: module.kernel("plain_prefix")?,
            plain_draw: module.kernel("plain_draw")?,
            spread_bytes: 0,
        };
        // Kernels that overlap at their edges must agree on the L1 split, or the later one waits for an idle SM.
        for kernel in [
            &kernels.sample_proportional,
            &kernels.sample_rank,
            &kernels.sample_uniform,
            &kernels.advance_sample,
            &kernels.finish_weights,
            &kernels.update_priorities,
        ] {
            kernel.prefer_carveout(crate::gpu_replay::CARVEOUT)?;
        }
        // Refused where a block cannot have that much; then it is not asked for either.
        let mut spread = 0;
        let both = [&kernels.sample_proportional, &kernels.sample_rank];
        if both.iter().all(|kernel| kernel.allow_shared(SPREAD_BYTES).is_ok()) {
            spread = SPREAD_BYTES;
        }
        kernels.spread_bytes = spread;
        Ok(kernels)
    }

    /// The kernels of the hot path, for resource reports.
    #[must_use]
    pub fn hot(&self) -> [&Kernel; 3] {
        [&self.sample_proportional, &self.sample_rank, &self.update_priorities]
    }

    /// Draws `batch` rows into `out`. With `orders`, `tree` is the tree of rank masses.
    #[allow(clippy::too_many_arguments)] // The parts of a replay memory, each with its own owner.
    pub(crate) fn sample(
        &self,
        stream: &Stream,
        tree: &DeviceTree,
        ring: &DeviceRing,
        control: &DeviceBuffer<Control>,
        draw: DrawParams,
        orders: Option<Orders<'_>>,
        out: &DeviceBatch,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let batch = out.len() as u32;
        if batch == 0 {
            return Ok(());
        }
        let warps = batch.div_ceil(4);
        // Small blocks spread a small batch over more multiprocessors; the rest keeps 128 blocks enough.
        let warps_a_block = if warps <= 64 {
            2
        } else if warps <= 256 {
            8
        } else {
            16
        };
        let workers = warps.div_ceil(warps_a_block);
        let resident = stream.device().info().multiprocessors.saturating_sub(1).min(MAX_WORKERS);
        let exchange = workers <= resident;
        let collector = u32::from(exchange && workers > FEW_WORKERS);
        let params = draw.for_batch(batch, workers, exchange);
        let kernel = if orders.is_some() { &self.sample_rank } else { &self.sample_proportional };
        let launch = Launch::new(kernel, workers + collector, warps_a_block * 32)
            .programmatic(programmatic)
            .shared(if collector == 1 { self.spread_bytes } else { 0 })
            .value(tree.view())
            .value(ring.view())
            .value(out.view())
            .value(params)
            .buffer(control);
        let launch = match orders {
            Some(Orders(a, b)) => launch.buffer(a).buffer(b),
            None => launch,
        };
        let launch = ring.keep(out.keep(tree.keep(launch)));
        // SAFETY: sample_proportional(Tree, Ring, Batch, SampleParams, Control*), sample_rank with two orders more. Slots
        // are clamped to the tree's capacity, which ring and orders share, bars of compact rows to the market's last; rows of `out` are tested against `batch`,
        // its length; with `exchange` no more blocks run than multiprocessors, so all are resident. All is kept.
        unsafe { launch.launch(stream)? };
        if exchange {
            return Ok(());
        }
        let launch = Launch::new(&self.finish_weights, 1, 512)
            .programmatic(programmatic)
            .value(out.view())
            .value(params)
            .buffer(control);
        // SAFETY: finish_weights(Batch, SampleParams, Control*); it reads and writes `batch` weights. All is kept.
        unsafe { out.keep(launch).launch(stream) }
    }

    /// Draws rows alike into `out`, with weights 1.
    pub(crate) fn sample_uniform(
        &self,
        stream: &Stream,
        ring: &DeviceRing,
        control: &DeviceBuffer<Control>,
        draw: DrawParams,
        out: &DeviceBatch,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        // A warp a row, or four compact ones.
        let rows_a_block: u32 = if ring.is_compact() { 32 } else { 8 };
        let batch = out.len() as u32;
        let params = draw.for_batch(batch.max(1), 0, false);
        let launch = Launch::new(&self.sample_uniform, batch.div_ceil(rows_a_block), 256)
            .programmatic(programmatic)
            .value(ring.view())
            .value(out.view())
            .value(params)
            .buffer(control);
        // SAFETY: sample_uniform(Ring, Batch, SampleParams, Control*). Slots are below the rows stored; rows of `out` are
        // tested against `batch`, its length. All is kept.
        unsafe { ring.keep(out.keep(launch)).launch(stream)? };
        let launch =
            Launch::new(&self.advance_sample, 1, 1).programmatic(programmatic).value(params).buffer(control);
        // SAFETY: advance_sample(SampleParams, Control*). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Sets priorities from the first `n` TD errors.
    #[allow(clippy::too_many_arguments)] // The parts of a replay memory, each with its own owner.
    pub(crate) fn update(
        &self,
        stream: &Stream,
        tree: &DeviceTree,
        control: &DeviceBuffer<Control>,
        params: PriorityParams,
        changes: &ChangeLog,
        update: &DeviceUpdate<'_>,
        n: usize,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        update.indices.holds(n)?;
        update.td_errors.holds(n)?;
        let batch = u32::try_from(n).map_err(|_| CudaError::Length {
            what: "td_errors",
            got: n,
            expected: u32::MAX as usize,
        })?;
        if batch == 0 {
            return Ok(());
        }
        const THREADS: u32 = 64;
        let params = UpdateParams { alpha: params.alpha, epsilon: params.epsilon, batch, pad: 0 };
        let mut launch = Launch::new(&self.update_priorities, batch.div_ceil(THREADS), THREADS)
            .programmatic(programmatic)
            .value(tree.view())
            .buffer(control)
            .value(params)
            .buffer(update.indices)
            .buffer(update.td_errors);
        launch = match update.generations {
            Some(generations) => {
                generations.holds(n)?;
                launch.buffer(generations)
            }
            None => launch.value(0_u64),
        };
        if let Some(Gate::Word(word)) = update.gate {
            word.holds(1)?;
        }
        launch = Gate::add_to(update.gate, launch);
        let launch = changes.keep(tree.keep(launch.value(changes.view())));
        // SAFETY: update_priorities(Tree, Control*, UpdateParams, u32*, float*, u64*, GateArgs, Changes). Entries are
        // tested against `batch`, which the buffers hold; slots are tested against the rows stored. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Makes every sum anew from the leaves.
    pub(crate) fn rebuild(&self, stream: &Stream, tree: &DeviceTree, raw: bool) -> Result<(), CudaError> {
        for level in 0..tree.levels.len() - 1 {
            let nodes = tree.nodes[level + 1] as u32;
            let launch = Launch::new(&self.rebuild_level, nodes.div_ceil(128), 128)
                .value(tree.view())
                .value(level as u32)
                .value(nodes)
                .value(u32::from(raw));
            // SAFETY: rebuild_level(Tree, u32, u32, u32); level + 1 exists and has `nodes` nodes. All is kept.
            unsafe { tree.keep(launch).launch(stream)? };
        }
        Ok(())
    }

    /// Sums that differ from the sum of their children; reads back, for tests.
    pub(crate) fn wrong_sums(&self, stream: &Stream, tree: &DeviceTree) -> Result<u64, CudaError> {
        let wrong = stream.zeros::<u64>("wrong sums", 1)?;
        for level in 0..tree.levels.len() - 1 {
            let nodes = tree.nodes[level + 1] as u32;
            let launch = Launch::new(&self.check_level, nodes.div_ceil(128), 128)
                .value(tree.view())
                .value(level as u32)
                .value(nodes)
                .buffer(&wrong);
            // SAFETY: check_level(Tree, u32, u32, u64*); level + 1 exists and has `nodes` nodes. All is kept.
            unsafe { tree.keep(launch).launch(stream)? };
        }
        Ok(stream.download(&wrong)?[0])
    }

    /// Starts the epochs again. What changed since the order was made, where there is one, stays known as changed.
    pub(crate) fn retag(
        &self,
        stream: &Stream,
        tree: &DeviceTree,
        control: &DeviceBuffer<Control>,
    ) -> Result<(), CudaError> {
        let leaves = tree.levels[0].len() as u32;
        let launch = Launch::new(&self.retag_leaves, leaves.div_ceil(256), 256)
            .value(tree.view())
            .buffer(control)
            .value(leaves);
        // SAFETY: retag_leaves(Tree, Control*, u32); `leaves` is the length of level 0. All is kept.
        unsafe { tree.keep(launch).launch(stream)? };
        let launch = Launch::new(&self.restart_epoch, 1, 1).buffer(control);
        // SAFETY: restart_epoch(Control*). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Second opinion: the slots of sample number `step`, by prefix sum and binary search.
    pub(crate) fn plain_slots(
        &self,
        stream: &Stream,
        tree: &DeviceTree,
        draw: DrawParams,
        batch: u32,
        step: u64,
    ) -> Result<Vec<u32>, CudaError> {
        let prefix = stream.zeros::<u64>("prefix sums", tree.capacity())?;
        let slots = stream.zeros::<u32>("plain slots", batch as usize)?;
        let launch = Launch::new(&self.plain_prefix, 1, 1024).value(tree.view()).buffer(&prefix);
        // SAFETY: plain_prefix(Tree, u64*); the prefix has `capacity` words. All is kept.
        unsafe { tree.keep(launch).launch(stream)? };
        let launch = Launch::new(&self.plain_draw, batch.div_ceil(128), 128)
            .value(tree.view())
            .buffer(&prefix)
            .value(draw.for_batch(batch, 0, false))
            .value(step)
            .buffer(&slots);
        // SAFETY: plain_draw(Tree, u64*, SampleParams, u64, u32*); threads are tested against `batch`. All is kept.
        unsafe { tree.keep(launch).launch(stream)? };
        stream.download(&slots)
    }
}

/// What an update is given.
#[derive(Clone, Copy, Debug)]
pub struct DeviceUpdate<'a> {
    /// u32 `[n]`, slots.
    pub indices: &'a DeviceBuffer<u32>,
    /// f32 `[n]`.
    pub td_errors: &'a DeviceBuffer<f32>,
    /// u64 `[n]`, generations of the slots when they were drawn; without them nothing is stale.
    pub generations: Option<&'a DeviceBuffer<u64>>,
    /// What refuses the whole update, as the guard does for a non-finite loss.
    pub gate: Option<Gate<'a>>,
}
