//! The order of rows by priority in device memory: full sort, repair, and the tree of rank masses.
//!
//! Kernels: `rank_sampler.cu`. A *repair* moves only the leaves that changed since the order was last right; it gives the
//! same order as a sort and takes a fraction of the time, up to [`MAX_CHANGES`] changes.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use std::sync::Arc;

use foxhunt_cuda::{CudaError, DeviceBuffer, Kernel, Launch, Module, Stream};

use super::rank_mass;
use crate::priority_tree::cuda::{Orders, TreeKernels};
use crate::priority_tree::device::{ChangeLog, Control, DeviceTree, place};

/// Text of `rank_sampler.cu`.
pub(crate) const RANK_SAMPLER_CU: &str = include_str!("rank_sampler.cu");

/// Most leaves that a repair can move; beyond, the order is sorted anew.
pub const MAX_CHANGES: usize = 16_384;

const SORT_TILE: u32 = 4096;
const MERGE_TILE: u32 = 2048;
const SHORT_RUN: u32 = 256;
const LONG_RUN: u32 = 1024;

/// Handles of the rank kernels.
#[derive(Clone, Debug)]
pub struct RankKernels {
    sort_keys: Kernel,
    count_digits: Kernel,
    scan_counts: Kernel,
    scatter_keys: Kernel,
    compose_order: Kernel,
    finish_order: Kernel,
    sort_changes_256: Kernel,
    sort_changes_1024: Kernel,
    rank_changes: Kernel,
    merge_order: Kernel,
}

impl RankKernels {
    /// Takes the handles out of the loaded `rank_sampler.cu`.
    ///
    /// # Errors
    /// [`CudaError::Driver`] for a missing symbol.
    pub fn new(module: &Arc<Module>) -> Result<Self, CudaError> {
        let kernels = Self {
            sort_keys: module.kernel("sort_keys")?,
            count_digits: module.kernel("count_digits")?,
            scan_counts: module.kernel("scan_counts")?,
            scatter_keys: module.kernel("scatter_keys")?,
            compose_order: module.kernel("compose_order")?,
            finish_order: module.kernel("finish_order")?,
            sort_changes_256: module.kernel("sort_changes_256")?,
            sort_changes_1024: module.kernel("sort_changes_1024")?,
            rank_changes: module.kernel("rank_changes")?,
            merge_order: module.kernel("merge_order")?,
        };
        let repair = [
            &kernels.sort_changes_256,
            &kernels.sort_changes_1024,
            &kernels.rank_changes,
            &kernels.merge_order,
        ];
        for kernel in repair {
            kernel.prefer_carveout(crate::gpu_replay::CARVEOUT)?;
        }
        Ok(kernels)
    }
}

/// Orders, rank masses and the room a sort needs.
#[derive(Debug)]
pub struct DeviceRanks {
    masses: DeviceTree,
    order_a: DeviceBuffer<u64>,
    order_b: DeviceBuffer<u64>,
    keys: [DeviceBuffer<u32>; 2],
    slots: [DeviceBuffer<u32>; 2],
    counts: DeviceBuffer<u32>,
    runs: DeviceBuffer<u64>,
    sorted: DeviceBuffer<u64>,
}

impl DeviceRanks {
    /// The masses of ranks 1 ..= capacity and room for orders.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn new(stream: &Stream, tree: &TreeKernels, capacity: usize, alpha: f32) -> Result<Self, CudaError> {
        let mut masses = DeviceTree::zeros(stream, capacity)?;
        let mut leaves = vec![0; masses.levels()[0].len()];
        for rank in 0..capacity {
            leaves[place(rank)] = rank_mass(rank as u64 + 1, f64::from(alpha), capacity);
        }
        stream.upload(masses.leaves_mut(), &leaves)?;
        tree.rebuild(stream, &masses, true)?;
        let blocks = capacity.div_ceil(SORT_TILE as usize);
        Ok(Self {
            masses,
            order_a: stream.zeros("rank order", capacity)?,
            order_b: stream.zeros("rank order", capacity)?,
            keys: [stream.zeros("sort keys", capacity)?, stream.zeros("sort keys", capacity)?],
            slots: [stream.zeros("sort slots", capacity)?, stream.zeros("sort slots", capacity)?],
            counts: stream.zeros("digit counts", 256 * blocks)?,
            runs: stream.zeros("sorted runs", 2 * MAX_CHANGES)?,
            sorted: stream.zeros("sorted changes", 2 * MAX_CHANGES)?,
        })
    }

    /// Bytes for `capacity` rows.
    #[must_use]
    pub fn bytes_for(capacity: usize) -> u64 {
        DeviceTree::bytes_for(capacity)
            + 32 * capacity as u64
            + capacity.div_ceil(4) as u64
            + 32 * MAX_CHANGES as u64
    }

    /// The tree of rank masses.
    pub(crate) fn masses(&self) -> &DeviceTree {
        &self.masses
    }

    pub(crate) fn orders(&self) -> Orders<'_> {
        Orders(&self.order_a, &self.order_b)
    }

    /// Sorts all rows anew.
    pub(crate) fn sort(
        &self,
        stream: &Stream,
        kernels: &RankKernels,
        tree: &DeviceTree,
        control: &DeviceBuffer<Control>,
    ) -> Result<(), CudaError> {
        let n = tree.capacity() as u32;
        let blocks = n.div_ceil(SORT_TILE);
        let launch = Launch::new(&kernels.sort_keys, n.div_ceil(256), 256)
            .value(tree.view())
            .buffer(&self.keys[0])
            .buffer(&self.slots[0]);
        // SAFETY: sort_keys(Tree, u32*, u32*); both outputs have `capacity` words. All is kept.
        unsafe { tree.keep(launch).launch(stream)? };
        for pass in 0..4_u32 {
            let (from, to) = (pass as usize % 2, (pass as usize + 1) % 2);
            let shift = 8 * pass;
            let launch = Launch::new(&kernels.count_digits, blocks, 256)
                .buffer(&self.keys[from])
                .value(n)
                .value(shift)
                .buffer(&self.counts);
            // SAFETY: count_digits(u32*, u32, u32, u32*); `counts` has 256 words a block. All is kept.
            unsafe { launch.launch(stream)? };
            let launch = Launch::new(&kernels.scan_counts, 1, 1024).buffer(&self.counts).value(256 * blocks);
            // SAFETY: scan_counts(u32*, u32); `counts` has that many words. All is kept.
            unsafe { launch.launch(stream)? };
            let launch = Launch::new(&kernels.scatter_keys, blocks, 256)
                .buffer(&self.keys[from])
                .buffer(&self.slots[from])
                .buffer(&self.keys[to])
                .buffer(&self.slots[to])
                .value(n)
                .value(shift)
                .buffer(&self.counts);
            // SAFETY: scatter_keys(u32*, u32*, u32*, u32*, u32, u32, u32*); offsets are an exclusive scan over the
            // same n keys, so every target is below n. All is kept.
            unsafe { launch.launch(stream)? };
        }
        let launch = Launch::new(&kernels.compose_order, n.div_ceil(256), 256)
            .buffer(&self.keys[0])
            .buffer(&self.slots[0])
            .buffer(&self.order_a)
            .value(n);
        // SAFETY: compose_order(u32*, u32*, u64*, u32); all have `capacity` words. All is kept.
        unsafe { launch.launch(stream)? };
        let launch = Launch::new(&kernels.finish_order, 1, 1).buffer(control);
        // SAFETY: finish_order(Control*). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Makes the order right again after at most `most` changed leaves, itself at most [`MAX_CHANGES`].
    #[allow(clippy::too_many_arguments)] // The parts of a replay memory, each with its own owner.
    pub(crate) fn repair(
        &self,
        stream: &Stream,
        kernels: &RankKernels,
        tree: &DeviceTree,
        control: &DeviceBuffer<Control>,
        changes: &ChangeLog,
        most: usize,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let most = most.clamp(1, MAX_CHANGES) as u32;
        // One run is a sorted list already; short runs are quicker to sort, long ones quicker to rank.
        let (run, sort) = if most <= SHORT_RUN || (LONG_RUN < most && most <= 8 * SHORT_RUN) {
            (SHORT_RUN, &kernels.sort_changes_256)
        } else {
            (LONG_RUN, &kernels.sort_changes_1024)
        };
        let one_run = most <= run;
        let launch = Launch::new(sort, most.div_ceil(run), run)
            .rows(2)
            .programmatic(programmatic)
            .value(tree.view())
            .buffer(control)
            .value(changes.view())
            .buffer(if one_run { &self.sorted } else { &self.runs })
            .value(most);
        // SAFETY: sort_changes_*(Tree, Control*, Changes, u64*, u32); keys beyond the log's count are padding, and the output has
        // two lists of MAX_CHANGES words, a multiple of the run. All is kept.
        unsafe { changes.keep(tree.keep(launch)).launch(stream)? };
        if !one_run {
            let launch = Launch::new(&kernels.rank_changes, most.next_multiple_of(run) / 256, 256)
                .rows(2)
                .programmatic(programmatic)
                .buffer(control)
                .value(changes.view())
                .buffer(&self.runs)
                .buffer(&self.sorted)
                .value(run)
                .value(most);
            // SAFETY: rank_changes(Control*, Changes, u64*, u64*, u32, u32); ranks are below the count. All is kept.
            unsafe { changes.keep(launch).launch(stream)? };
        }
        let n = tree.capacity() as u32;
        let launch = Launch::new(&kernels.merge_order, n.div_ceil(MERGE_TILE), 256)
            .programmatic(programmatic)
            .buffer(control)
            .value(changes.view())
            .buffer(&self.sorted)
            .buffer(&self.order_a)
            .buffer(&self.order_b)
            .value(n)
            .value(most);
        // SAFETY: merge_order(Control*, Changes, u64*, u64*, u64*, u32, u32); as many keys enter as leave, so every target is
        // below n. All is kept.
        unsafe { changes.keep(launch).launch(stream) }
    }

    /// Takes up a saved order for draws; the next ordering must be a full sort, as the old priorities are not known.
    pub(crate) fn set_order(&mut self, stream: &Stream, order: &[u32]) -> Result<(), CudaError> {
        let keys: Vec<u64> = order.iter().map(|&slot| u64::from(slot)).collect();
        stream.upload(&mut self.order_a, &keys)
    }

    /// The slots by rank as the device has them; reads back, for tests.
    pub(crate) fn order(
        &self,
        stream: &Stream,
        control: &DeviceBuffer<Control>,
    ) -> Result<Vec<u32>, CudaError> {
        let state = stream.download(control)?[0];
        let keys = if state.order_parity & 1 == 1 { &self.order_b } else { &self.order_a };
        let keys = stream.download_range(keys, 0, state.sorted_len as usize)?;
        Ok(keys.into_iter().map(|key| key as u32).collect())
    }
}
