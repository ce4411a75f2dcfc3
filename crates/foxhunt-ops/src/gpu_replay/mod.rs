//! Replay memory that never leaves the device: ring, priorities, sampling, weights, beta and counters.
//!
//! One kernel an operation. `insert` copies rows and gives them the running maximum priority; `sample` draws, gathers
//! and weighs; `update` writes priorities back. Each advances its own state in the [`Control`] block (cursor, sample
//! number, beta, epoch), so a captured graph of them replays without the host: the calls below queue work and return.
//!
//! Numbers are those of [`crate::ring`], [`crate::priority_tree`] and [`crate::rank_sampler`]: given the same rows and
//! TD errors, indices, weights and priorities equal the CPU twins' to the bit.
//!
//! The host knows how many rows it offered, not how many were accepted: counters are read at epoch boundaries with
//! [`GpuPrioritizedReplay::counters`]. Nothing here knows networks or losses.

pub mod bench;
mod config;
mod order;
mod state;

#[cfg(test)]
mod tests;

pub use config::{GpuReplayConfig, GpuSampling};
pub use foxhunt_cuda::CudaError;
pub use state::{BLOCK_ROWS, GpuReplayState, ReplayCounters};

use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DeviceBuffer, Kernel, KernelResources, Stream};

use crate::error::OpError;
use crate::gpu_learner::Loader;
use crate::priority_tree::PriorityParams;
use crate::priority_tree::cuda::{DeviceUpdate, TreeKernels, programs};
use crate::priority_tree::device::{ChangeLog, Control, DeviceTree};
use crate::rank_sampler::cuda::{DeviceRanks, MAX_CHANGES, RankKernels};
use crate::ring::cuda::{
    DeviceBatch, DeviceCompactRows, DeviceRing, DeviceRows, DeviceSource, Incoming, insert,
};

/// Share of L1 that all kernels of the loop ask to be shared memory, in per cent. It must be one share for all: a
/// multiprocessor changes its split only when idle, which would undo overlapping launches. The largest there is holds three
/// blocks of a learner's largest tiles.
pub(crate) const CARVEOUT: u32 = 100;

/// What can go wrong in a replay memory on the device.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GpuReplayError {
    /// The device, the driver or the compiler.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The arguments or the state.
    #[error(transparent)]
    Op(#[from] OpError),
}

/// Whether a rank-based sample makes the order new first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resort {
    /// When `resort_every` updates were done, as the contract says.
    #[default]
    WhenDue,
    /// Always. While a graph is captured this is a full sort, because nobody knows what a replay will have changed.
    Always,
    /// Always, after at most this many changed leaves (update entries plus rows inserted) since the order was last
    /// made; for capturing a graph. A replay that meets more keeps the old order and counts `order_overflows`.
    Repair(usize),
    /// Never, while an order exists; for capturing the samples in between.
    Never,
}

#[derive(Debug)]
struct Ranks {
    device: DeviceRanks,
    kernels: RankKernels,
    resort_every: u64,
    /// Updates since the order was last made; `None` before the first time.
    updates_since: Option<u64>,
    /// Leaves that may have changed since then.
    changes_bound: usize,
    /// Orders made since the start.
    sorts: u64,
}

impl Ranks {
    fn new(
        stream: &Stream,
        tree: &TreeKernels,
        config: &GpuReplayConfig,
        resort_every: u64,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuReplayError> {
        let [_, _, code] = programs(config.state_dim, config.capacity, config.storage);
        let kernels = RankKernels::new(&Loader::new(stream, cache).load(&code)?)?;
        let device = DeviceRanks::new(stream, tree, config.capacity, config.alpha)?;
        Ok(Self { device, kernels, resort_every, updates_since: None, changes_bound: 0, sorts: 0 })
    }
}

/// Prioritised replay on the device.
#[derive(Debug)]
pub struct GpuPrioritizedReplay {
    config: GpuReplayConfig,
    ring: DeviceRing,
    tree: DeviceTree,
    control: DeviceBuffer<Control>,
    changes: ChangeLog,
    kernels: TreeKernels,
    insert_rows: Kernel,
    ranks: Option<Ranks>,
    offered: u64,
    /// Epochs used up since the leaves' epochs last started again: one an update, one an order.
    epochs: u64,
    /// Epochs after which they start again.
    epoch_limit: u64,
}

impl GpuPrioritizedReplay {
    /// A memory of whole rows. Compiles its kernels (or takes them from `cache`) and takes all its memory.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`], also for a configuration of compact rows; [`CudaError::OutOfMemory`] with bytes
    /// asked and free; [`CudaError::NoCompiler`].
    pub fn new(
        stream: &Stream,
        config: GpuReplayConfig,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuReplayError> {
        Self::build(stream, config, None, cache)
    }

    /// As [`GpuPrioritizedReplay::new`], for compact rows whose states `source` completes.
    ///
    /// # Errors
    /// As there, and for a configuration of whole rows.
    pub fn compact(
        stream: &Stream,
        config: GpuReplayConfig,
        source: DeviceSource,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuReplayError> {
        Self::build(stream, config, Some(source), cache)
    }

    fn build(
        stream: &Stream,
        config: GpuReplayConfig,
        source: Option<DeviceSource>,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuReplayError> {
        config.check()?;
        if (config.storage == ReplayStorage::Compact) != source.is_some() {
            let value = format!("{:?}", config.storage).to_lowercase();
            let rule = "compact with a source of states, and only then";
            return Err(OpError::InvalidArgument { what: "storage", value, rule }.into());
        }
        let (bytes, (free, _)) = (config.bytes(), stream.device().memory()?);
        if bytes > free {
            return Err(CudaError::OutOfMemory { what: "the replay memory", bytes, free }.into());
        }
        let [tree_code, ring_code, _] = programs(config.state_dim, config.capacity, config.storage);
        let loader = Loader::new(stream, cache);
        let kernels = TreeKernels::new(&loader.load(&tree_code)?)?;
        let insert_rows = loader.load(&ring_code)?.kernel("insert_rows")?;
        insert_rows.prefer_carveout(CARVEOUT)?;
        let (ranks, changes) = match config.sampling {
            GpuSampling::Uniform | GpuSampling::Proportional => (None, ChangeLog::none()),
            GpuSampling::RankBased { resort_every } => {
                let ranks = Ranks::new(stream, &kernels, &config, resort_every, cache)?;
                (Some(ranks), ChangeLog::zeros(stream, MAX_CHANGES)?)
            }
        };
        Ok(Self {
            ring: DeviceRing::zeros(stream, config.capacity, config.state_dim, source)?,
            tree: DeviceTree::zeros(stream, config.capacity)?,
            control: stream
                .upload_new("replay control block", &[Control::empty(config.beta_start as f32)])?,
            config,
            changes,
            kernels,
            insert_rows,
            ranks,
            offered: 0,
            epochs: 0,
            epoch_limit: order::EPOCH_LIMIT,
        })
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &GpuReplayConfig {
        &self.config
    }

    /// Turns overlapping launches on or off from here on; results stay the same.
    pub fn set_programmatic(&mut self, on: bool) {
        self.config.programmatic = on;
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.config.capacity
    }

    /// Rows ever offered to [`GpuPrioritizedReplay::insert`], refused ones included.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Queues the insert of the first `n` of `rows`.
    ///
    /// # Errors
    /// [`CudaError::Length`] when `rows` is shorter, [`OpError::InvalidArgument`] where rows are compact, and driver
    /// errors.
    pub fn insert(&mut self, stream: &Stream, rows: &DeviceRows, n: usize) -> Result<(), GpuReplayError> {
        self.queue_insert(stream, Incoming::Whole(rows), n, None)
    }

    /// As [`GpuPrioritizedReplay::insert`], for compact rows. A row that ends behind the last bar is drawn as if it ended
    /// there.
    ///
    /// # Errors
    /// As there, and where rows are whole.
    pub fn insert_compact(
        &mut self,
        stream: &Stream,
        rows: &DeviceCompactRows,
        n: usize,
    ) -> Result<(), GpuReplayError> {
        self.queue_insert(stream, Incoming::Compact(rows), n, None)
    }

    /// Queues the insert of as many of `rows` as `row_count`, u32 `[1]` in device memory, says when the work is done: at
    /// most `most`, often none. Slots are those of an insert of just these rows.
    ///
    /// A device takes about 130,000 rows a launch, so `most` decides how many launches this is; those that find
    /// nothing left do nothing. `most` is what [`GpuPrioritizedReplay::offered`] counts.
    ///
    /// # Errors
    /// As [`GpuPrioritizedReplay::insert`].
    pub fn insert_counted(
        &mut self,
        stream: &Stream,
        rows: &DeviceRows,
        row_count: &DeviceBuffer<u32>,
        most: usize,
    ) -> Result<(), GpuReplayError> {
        self.queue_insert(stream, Incoming::Whole(rows), most, Some(row_count))
    }

    /// As [`GpuPrioritizedReplay::insert_counted`], for compact rows.
    ///
    /// # Errors
    /// As [`GpuPrioritizedReplay::insert_compact`].
    pub fn insert_compact_counted(
        &mut self,
        stream: &Stream,
        rows: &DeviceCompactRows,
        row_count: &DeviceBuffer<u32>,
        most: usize,
    ) -> Result<(), GpuReplayError> {
        self.queue_insert(stream, Incoming::Compact(rows), most, Some(row_count))
    }

    pub(crate) fn queue_insert(
        &mut self,
        stream: &Stream,
        rows: Incoming<'_>,
        most: usize,
        counted: Option<&DeviceBuffer<u32>>,
    ) -> Result<(), GpuReplayError> {
        if matches!(rows, Incoming::Compact(_)) != self.ring.is_compact() {
            let rule = "of the form this memory stores";
            let value = format!("not {:?}", self.config.storage).to_lowercase();
            return Err(OpError::InvalidArgument { what: "rows", value, rule }.into());
        }
        insert(
            stream,
            &self.insert_rows,
            &self.tree,
            &self.ring,
            &self.control,
            &self.changes,
            rows,
            most,
            counted,
            self.config.programmatic,
        )?;
        if !stream.is_capturing() {
            self.replayed_inserts(1, most);
        }
        Ok(())
    }

    /// Queues a sample of `out.len()` rows.
    ///
    /// # Errors
    /// [`OpError::NotEnoughRows`] at once when no row was ever offered, and driver errors. Where all priorities are 0,
    /// or every offered row was refused, the device sets indices to `u32::MAX` and counts `empty_samples`.
    pub fn sample(&mut self, stream: &Stream, out: &mut DeviceBatch) -> Result<(), GpuReplayError> {
        self.sample_with(stream, out, Resort::WhenDue)
    }

    /// As [`GpuPrioritizedReplay::sample`], saying when a rank order is made new; proportional sampling has none.
    ///
    /// # Errors
    /// As [`GpuPrioritizedReplay::sample`].
    pub fn sample_with(
        &mut self,
        stream: &Stream,
        out: &mut DeviceBatch,
        resort: Resort,
    ) -> Result<(), GpuReplayError> {
        self.sample_as(stream, self.config.sampling, out, resort)
    }

    /// Makes draws by rank possible in a memory made for proportional ones: compiles and takes what they need. Nothing
    /// changes where they are possible already. What was captured before it does not note its changes.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a memory without priorities or a `resort_every` of 0; as
    /// [`GpuPrioritizedReplay::new`].
    pub fn allow_ranks(
        &mut self,
        stream: &Stream,
        resort_every: u64,
        cache: Option<&Cache>,
    ) -> Result<(), GpuReplayError> {
        if self.ranks.is_some() {
            return Ok(());
        }
        if self.config.sampling == GpuSampling::Uniform {
            return Err(without("priorities").into());
        }
        GpuReplayConfig { sampling: GpuSampling::RankBased { resort_every }, ..self.config }.check()?;
        self.ranks = Some(Ranks::new(stream, &self.kernels, &self.config, resort_every, cache)?);
        self.changes = ChangeLog::zeros(stream, MAX_CHANGES)?;
        Ok(())
    }

    /// As [`GpuPrioritizedReplay::sample_with`], drawn in a way of its own; by rank only where
    /// [`GpuPrioritizedReplay::allow_ranks`] or the configuration made that possible, whose `resort_every` counts.
    ///
    /// # Errors
    /// As [`GpuPrioritizedReplay::sample`], and [`OpError::InvalidArgument`] for a way that is not possible.
    pub fn sample_as(
        &mut self,
        stream: &Stream,
        sampling: GpuSampling,
        out: &mut DeviceBatch,
        resort: Resort,
    ) -> Result<(), GpuReplayError> {
        if out.is_empty() {
            return Ok(());
        }
        if self.offered == 0 {
            return Err(OpError::NotEnoughRows { have: 0, need: 1 }.into());
        }
        if sampling == GpuSampling::Uniform {
            let (draw, programmatic) = (self.config.draw(), self.config.programmatic);
            self.kernels.sample_uniform(stream, &self.ring, &self.control, draw, out, programmatic)?;
            return Ok(());
        }
        if self.config.sampling == GpuSampling::Uniform {
            return Err(without("priorities").into());
        }
        let by_rank = matches!(sampling, GpuSampling::RankBased { .. });
        if by_rank {
            self.make_order(stream, resort)?;
        }
        let (tree, orders) = match &self.ranks {
            Some(ranks) if by_rank => (ranks.device.masses(), Some(ranks.device.orders())),
            None if by_rank => return Err(without("rank orders").into()),
            _ => (&self.tree, None),
        };
        let draw = self.config.draw();
        let programmatic = self.config.programmatic;
        self.kernels.sample(stream, tree, &self.ring, &self.control, draw, orders, out, programmatic)?;
        Ok(())
    }

    /// Queues priority updates from the first `n` entries; nothing where rows are drawn alike.
    ///
    /// # Errors
    /// [`CudaError::Length`] when a buffer is shorter, and driver errors.
    pub fn update(
        &mut self,
        stream: &Stream,
        update: &DeviceUpdate<'_>,
        n: usize,
    ) -> Result<(), GpuReplayError> {
        if n == 0 || self.config.sampling == GpuSampling::Uniform {
            return Ok(());
        }
        let params = PriorityParams { alpha: self.config.alpha, epsilon: self.config.epsilon };
        let programmatic = self.config.programmatic;
        self.kernels.update(
            stream,
            &self.tree,
            &self.control,
            params,
            &self.changes,
            update,
            n,
            programmatic,
        )?;
        if !stream.is_capturing() {
            self.replayed_updates(1, n);
        }
        Ok(())
    }

    /// Tells the memory that a graph did `updates` updates of `entries` entries each. What is captured counts when it
    /// is replayed, and only its owner knows when that is.
    pub fn replayed_updates(&mut self, updates: u64, entries: usize) {
        self.epochs = self.epochs.saturating_add(updates);
        self.touched(usize::try_from(updates).unwrap_or(usize::MAX).saturating_mul(entries));
        if let Some(ranks) = &mut self.ranks
            && let Some(since) = &mut ranks.updates_since
        {
            *since = since.saturating_add(updates);
        }
    }

    /// Tells the memory that a graph did `inserts` inserts of at most `most` rows each.
    pub fn replayed_inserts(&mut self, inserts: u64, most: usize) {
        let rows = inserts.saturating_mul(most as u64);
        self.offered = self.offered.saturating_add(rows);
        self.touched(usize::try_from(rows).unwrap_or(usize::MAX));
    }

    /// Sums that differ from the sum of their children: 0, always. Reads back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn wrong_sums(&self, stream: &Stream) -> Result<u64, GpuReplayError> {
        Ok(self.kernels.wrong_sums(stream, &self.tree)?)
    }

    /// Second opinion on a proportional draw: the slots of sample number `step` for the present masses. Reads back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn plain_slots(&self, stream: &Stream, batch: u32, step: u64) -> Result<Vec<u32>, GpuReplayError> {
        Ok(self.kernels.plain_slots(stream, &self.tree, self.config.draw(), batch, step)?)
    }

    /// The slots by rank as last ordered; empty for proportional sampling. Reads back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn rank_order(&self, stream: &Stream) -> Result<Vec<u32>, GpuReplayError> {
        match &self.ranks {
            Some(ranks) => Ok(ranks.device.order(stream, &self.control)?),
            None => Ok(Vec::new()),
        }
    }

    /// What the kernels of the hot path use.
    ///
    /// # Errors
    /// Driver errors.
    pub fn resources(&self) -> Result<Vec<(&'static str, KernelResources)>, GpuReplayError> {
        let kernels = self.kernels.hot().into_iter().chain([&self.insert_rows]);
        kernels.map(|k| Ok((k.symbol(), k.resources()?))).collect()
    }

    fn touched(&mut self, n: usize) {
        if let Some(ranks) = &mut self.ranks {
            ranks.changes_bound = ranks.changes_bound.saturating_add(n);
        }
    }
}

fn without(what: &str) -> OpError {
    let value = format!("by something that a memory without {what} does not have");
    OpError::InvalidArgument { what: "sampling", value, rule: "possible in this memory" }
}
