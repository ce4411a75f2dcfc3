//! The priority tree in device memory: levels, control block, and the launchers of its kernels.
//!
//! Kernels: `priority_tree.cu` over `tree.cuh`. Everything that changes between two replays of a captured graph, the
//! sample number, beta, the epoch, cursor and counters, lives in [`Control`].
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use std::sync::Arc;

use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, Module, PHILOX_CUH, Stream, shared_struct,
};

use super::{FAN_OUT, MAX_TOP, PriorityParams, mass_scale, stratum_width};
use crate::power::POWER_CUH;
use crate::ring::cuda::{Batch, DeviceBatch, DeviceRing, RING_CU, RING_CUH, Ring, Rows};

const PRIORITY_TREE_CU: &str = include_str!("priority_tree.cu");
/// Text of `tree.cuh`.
pub(crate) const TREE_CUH: &str = include_str!("tree.cuh");

/// Most levels: leaves and sums, enough for 2^32 slots.
pub(crate) const MAX_LEVELS: usize = 6;
/// Most sampling blocks that agree on a minimum within one launch.
const MAX_WORKERS: u32 = 128;
/// Above this many, one more block collects the minima.
const FEW_WORKERS: u32 = 32;
/// Shared memory that blocks of a large grid ask for and do not use: one block a multiprocessor, so that none shares
/// its memory pipes while others idle.
const SPREAD_BYTES: u32 = 116 * 1024;

shared_struct! {
    /// Device state that kernels advance. Words read together share 16 bytes; words written by different kernels or
    /// polled by other blocks have a line of their own.
    pub struct Control {
        /// Number of the running update; leaves it writes carry it.
        pub epoch: u32,
        /// Bits of the running maximum priority.
        pub max_priority: u32,
        /// Next slot written.
        pub cursor: u32,
        /// Rows stored.
        pub len: u32,
        /// Rows ever accepted.
        pub inserted: u64,
        /// `inserted / capacity`.
        pub turns: u64,
        /// Inserts done; tags the words that insert blocks publish.
        pub inserts: u32,
        pad0: [u32; 23],
        /// Samples that returned rows: the sample number and RNG step.
        pub step: u64,
        /// Beta at `step`.
        pub beta: f32,
        /// Smallest mass of a batch whose weights come later; +infinity otherwise.
        pub deferred_minimum: u32,
        pad1: [u64; 14],
        /// Blocks of the running update that are done.
        pub update_ticket: u32,
        pad2: [u32; 31],
        /// {rows refused, blocks that have looked at their rows}, for even and odd inserts.
        pub meetings: [u64; 2],
        pad3: [u64; 14],
        /// Entries refused for a non-finite TD error.
        pub refused: u64,
        /// Priorities stored as the cap.
        pub capped: u64,
        /// Entries whose slot was overwritten after it was drawn.
        pub stale: u64,
        /// Entries with a slot outside the rows stored.
        pub out_of_range: u64,
        /// Rows refused for a non-finite reward, terminated flag or discount.
        pub refused_rewards: u64,
        /// Rows refused for a non-finite state or next state.
        pub refused_states: u64,
        /// Samples that found no mass.
        pub empty_samples: u64,
        /// Repairs of the order that met more changes than they were made for.
        pub order_overflows: u64,
        pad4: [u64; 8],
        /// Leaves changed since the order was last right.
        pub changes: u32,
        /// Leaves with an older epoch have not changed since then.
        pub sorted_epoch: u32,
        /// Which of the two order buffers holds.
        pub order_parity: u32,
        /// Rows stored when the order was made.
        pub sorted_len: u32,
        /// Blocks of the running merge that are done.
        pub merge_ticket: u32,
        pad5: [u32; 27],
        /// {tag, smallest mass of the batch}.
        pub batch_minimum: u64,
        pad6: [u64; 15],
        /// {tag, smallest mass of the block}.
        pub sample_words: [u64; 128],
        /// {tag, rows accepted by the block}, of blocks that refused some.
        pub insert_words: [u64; 128],
    }
}

impl Control {
    /// The state of an empty memory.
    #[must_use]
    pub fn empty(beta_start: f32) -> Self {
        let zero: Self = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        Self {
            epoch: 1,
            max_priority: 1.0_f32.to_bits(),
            beta: beta_start,
            deferred_minimum: f32::INFINITY.to_bits(),
            ..zero
        }
    }
}

shared_struct! {
    /// The levels, as kernels take them.
    pub(crate) struct Tree {
        levels: [DevicePtr<u64>; 6],
        top_nodes: u32,
        capacity: u32,
        scale: f32,
        pad: u32,
    }
}

shared_struct! {
    /// How a batch is drawn.
    pub(crate) struct SampleParams {
        seed: u64,
        width: u64,
        beta_start: f64,
        beta_end: f64,
        beta_steps: u64,
        batch: u32,
        workers: u32,
        exchange: u32,
        pad: u32,
    }
}

shared_struct! {
    /// How TD errors become priorities.
    pub(crate) struct UpdateParams {
        alpha: f32,
        epsilon: f32,
        batch: u32,
        pad: u32,
    }
}

shared_struct! {
    /// The log of changed leaves; capacity 0 where nobody keeps an order.
    pub(crate) struct Changes {
        old_keys: DevicePtr<u64>,
        capacity: u32,
        pad: u32,
    }
}

/// Nodes of each level, leaves first: at least two levels, the last of at most [`MAX_TOP`] nodes.
#[must_use]
pub fn level_nodes(capacity: usize) -> Vec<usize> {
    let mut nodes = vec![capacity];
    loop {
        let above = nodes[nodes.len() - 1].div_ceil(FAN_OUT);
        nodes.push(above);
        if above <= MAX_TOP {
            return nodes;
        }
    }
}

/// Address of node `i` within its level; the twin of `place` in `tree.cuh`.
#[must_use]
pub const fn place(i: usize) -> usize {
    i & !63 | (i >> 1 & 3) << 4 | (i >> 3 & 7) << 1 | i & 1
}

/// The sums in device memory.
#[derive(Debug)]
pub struct DeviceTree {
    levels: Vec<DeviceBuffer<u64>>,
    nodes: Vec<usize>,
    scale: f32,
}

impl DeviceTree {
    /// A tree of zeros over `capacity` slots.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, capacity: usize) -> Result<Self, CudaError> {
        let nodes = level_nodes(capacity);
        let top = nodes.len() - 1;
        let room = |level: usize| if level == top { MAX_TOP } else { nodes[level].next_multiple_of(FAN_OUT) };
        let levels = (0..=top)
            .map(|level| stream.zeros("sums of priorities", room(level)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { levels, nodes, scale: mass_scale(capacity) })
    }

    /// Bytes of a tree over `capacity` slots.
    #[must_use]
    pub fn bytes_for(capacity: usize) -> u64 {
        level_nodes(capacity).iter().map(|&n| 8 * (n as u64 + MAX_TOP as u64)).sum()
    }

    /// Slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.nodes[0]
    }

    pub(crate) fn levels(&self) -> &[DeviceBuffer<u64>] {
        &self.levels
    }

    pub(crate) fn leaves_mut(&mut self) -> &mut DeviceBuffer<u64> {
        &mut self.levels[0]
    }

    pub(crate) fn view(&self) -> Tree {
        let mut levels = [DevicePtr::NULL; MAX_LEVELS];
        for (to, level) in levels.iter_mut().zip(&self.levels) {
            *to = level.ptr();
        }
        Tree {
            levels,
            top_nodes: self.nodes[self.nodes.len() - 1] as u32,
            capacity: self.capacity() as u32,
            scale: self.scale,
            pad: 0,
        }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        self.levels.iter().fold(launch, |launch, level| launch.keep(level))
    }
}

/// Room for the log of changed leaves; empty where nobody keeps an order.
#[derive(Debug)]
pub struct ChangeLog {
    old_keys: Option<DeviceBuffer<u64>>,
}

impl ChangeLog {
    /// No log.
    #[must_use]
    pub fn none() -> Self {
        Self { old_keys: None }
    }

    /// A log of up to `capacity` leaves.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, capacity: usize) -> Result<Self, CudaError> {
        Ok(Self { old_keys: Some(stream.zeros("changed leaves", capacity)?) })
    }

    pub(crate) fn view(&self) -> Changes {
        match &self.old_keys {
            Some(keys) => Changes { old_keys: keys.ptr(), capacity: keys.len() as u32, pad: 0 },
            None => Changes { old_keys: DevicePtr::NULL, capacity: 0, pad: 0 },
        }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        match &self.old_keys {
            Some(keys) => launch.keep(keys),
            None => launch,
        }
    }
}

/// Adds what every replay kernel includes: integers, Philox, powers, the shared structs, tree and rows.
fn with_headers(program: Program, state_dim: usize, levels: usize) -> Program {
    let structs = [
        Control::cuda_source(),
        Tree::cuda_source(),
        SampleParams::cuda_source(),
        UpdateParams::cuda_source(),
        Changes::cuda_source(),
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
        .header("ring.cuh", RING_CUH)
        .define("STATE_DIM", state_dim)
        .define("LEVELS", levels)
}

/// The programs of the replay memory for a state dimension and capacity, in the order tree, ring, rank.
#[must_use]
pub fn programs(state_dim: usize, capacity: usize) -> [Program; 3] {
    let levels = level_nodes(capacity).len();
    [
        Program::new("priority_tree.cu", PRIORITY_TREE_CU),
        Program::new("ring.cu", RING_CU),
        Program::new("rank_sampler.cu", crate::rank_sampler::cuda::RANK_SAMPLER_CU),
    ]
    .map(|program| with_headers(program, state_dim, levels))
}

/// Handles of the tree's kernels.
#[derive(Clone, Debug)]
pub struct TreeKernels {
    sample_proportional: Kernel,
    sample_rank: Kernel,
    finish_weights: Kernel,
    update_priorities: Kernel,
    rebuild_level: Kernel,
    check_level: Kernel,
    retag_leaves: Kernel,
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
            finish_weights: module.kernel("finish_weights")?,
            update_priorities: module.kernel("update_priorities")?,
            rebuild_level: module.kernel("rebuild_level")?,
            check_level: module.kernel("check_level")?,
            retag_leaves: module.kernel("retag_leaves")?,
            plain_prefix: module.kernel("plain_prefix")?,
            plain_draw: module.kernel("plain_draw")?,
            spread_bytes: 0,
        };
        // Kernels that overlap at their edges must agree on the L1 split, or the later one waits for an idle SM.
        for kernel in [
            &kernels.sample_proportional,
            &kernels.sample_rank,
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
        let launch = out.keep(tree.keep(launch)).keep(&ring.words);
        // SAFETY: sample_proportional(Tree, Ring, Batch, SampleParams, Control*), sample_rank with two orders more. Slots
        // are clamped to the tree's capacity, which ring and orders share; rows of `out` are tested against `batch`,
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
        launch = match update.gate {
            Some(gate) => {
                gate.holds(1)?;
                launch.buffer(gate)
            }
            None => launch.value(0_u64),
        };
        let launch = changes.keep(tree.keep(launch.value(changes.view())));
        // SAFETY: update_priorities(Tree, Control*, UpdateParams, u32*, float*, u64*, u32*, Changes). Entries are
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

    /// Starts the epochs again. The order, where there is one, must have been made new just before.
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
        unsafe { tree.keep(launch).launch(stream) }
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
    /// u32 [n], slots.
    pub indices: &'a DeviceBuffer<u32>,
    /// f32 [n].
    pub td_errors: &'a DeviceBuffer<f32>,
    /// u64 [n], generations of the slots when they were drawn; without them nothing is stale.
    pub generations: Option<&'a DeviceBuffer<u64>>,
    /// u32 [1]: not 0 refuses the whole update, as the guard does for a non-finite loss.
    pub gate: Option<&'a DeviceBuffer<u32>>,
}
