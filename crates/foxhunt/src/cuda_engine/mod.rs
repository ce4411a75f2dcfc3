//! The CUDA engine: everything between two epoch boundaries happens on the device.
//!
//! It joins what [`foxhunt_ops`] keeps in device memory: environments ([`GpuCollector`]), replay memory, learner with
//! its guard. A vector step is network, act, insert, or many of them are a rollout and one insert; an update is sample, learn, priorities. Chains of
//! them are captured once and replayed (`graphs.rs`), so that the host makes one call for up to 256 steps, waits for
//! nothing it has just queued and reads nothing but pinned words until [`Engine::drain`]. It is never more than two calls of
//! the trainer ahead of the device ([`Pace`]), so that whoever stops it waits for tens of milliseconds of work.
//!
//! Numbers are those of [`crate::cpu_engine`], to the bit: the same seed gives the same rows, draws, weights and
//! statistics, and either engine goes on from a snapshot of the other. Two things differ by nature: this engine learns
//! late that a limit of the guard was reached, so it finishes the updates it was asked for, and its counts lag. Under
//! the rollback policy, where that would decide what is learned, it waits for each update instead.
//!
//! Evaluation runs the greedy policy on the host: one environment, one bar after the other, is no work for a device.

pub mod bench;
mod graphs;
mod memory;
pub mod soak;
mod state;
mod store;

use std::ops::Range;
use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_core::record::{EpochStats, Fault};
use foxhunt_core::settings::NanPolicy;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{Device, DeviceBuffer, EventSpans, Pace, Stream};
use foxhunt_market::{Market, STATE_DIM};
use foxhunt_ops::collect::CollectConfig;
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_learner::{Ahead, GpuLearner};
use foxhunt_ops::gpu_replay::Resort;
use foxhunt_ops::learner::{EpochSums, Progress as LearnerProgress};
use foxhunt_ops::ring::cuda::DeviceBatch;
use foxhunt_ops::rollout::cuda::Rollout;

use self::graphs::Chain;
use self::memory::{Placed, Plan, usable};
use self::store::Store;
use crate::MLError;
use crate::engine::progress::{MAX_FAULTS, Progress};
use crate::engine::{Engine, EngineStatus, Snapshot, WorkTimes};
use crate::evaluation::{Backtest, backtest};
use crate::learner::{Learner, QNetwork};
use crate::memory_plan::MemoryPart;
use crate::policy::{greedy, named};
use crate::replay::StateSource;
use crate::trainer::StopSignal;

/// What an engine on a device may use and where it keeps its kernels.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Most device bytes it may take; everything that is free without it.
    pub memory_limit: Option<u64>,
    /// Where compiled kernels are kept; compiled anew without it.
    pub cache: Option<Cache>,
}

/// An engine on a device, and what it had to put up with.
pub struct BuiltCudaEngine {
    /// The engine.
    pub engine: CudaEngine,
    /// One line for the user when the replay memory is not where or as large as asked for.
    pub notice: Option<String>,
}

/// Environments, replay memory and learner on one device.
pub struct CudaEngine {
    settings: Settings,
    market: Arc<Market>,
    stream: Stream,
    collector: GpuCollector,
    learner: GpuLearner,
    store: Store,
    /// Vector steps where many can be one launch.
    rollout: Option<Rollout>,
    /// What completes compact rows in host memory.
    source: StateSource,
    /// f32 `[n_envs, n_outputs]`, the last decisions' unless a rollout made them.
    q: DeviceBuffer<f32>,
    /// One a sub-batch.
    batches: Vec<DeviceBatch>,
    collecting: Chain,
    updating: Chain,
    /// What the learner had done when it was last waited for; its pinned record is newer once it did more.
    known: LearnerProgress,
    /// Drained from pinned memory and not yet reported.
    faults: Vec<Fault>,
    faults_lost: u64,
    /// Whether the replay memory was seen to hold a batch.
    filled: bool,
    bytes: u64,
    /// Device time of collecting and of updating.
    collect_time: EventSpans,
    update_time: EventSpans,
    /// Keeps the host from queueing more than two calls ahead.
    pace: Pace,
}

impl CudaEngine {
    /// An engine on `device` whose environments trade the bars `train` of `market`. Where the device cannot hold the
    /// replay memory, `settings.replay.memory_fallback` decides, and the notice says so: by the plan, and again where
    /// memory runs out all the same, because the driver needs more than was set aside for it or somebody else took some.
    ///
    /// # Errors
    /// [`MLError::GpuMemoryError`] with bytes asked and free when the rest does not fit, or the replay memory under
    /// `memory_fallback = "error"`; [`MLError::HostMemory`]; [`MLError::Market`] for a window that does not fit;
    /// [`MLError::Gpu`] for what driver and compiler report.
    pub fn build(
        settings: &Settings,
        market: Arc<Market>,
        train: Range<usize>,
        device: &Arc<Device>,
        options: &CudaOptions,
    ) -> Result<BuiltCudaEngine, MLError> {
        let collect = CollectConfig::new(settings, &market, train)?;
        let plan = Plan::new(settings, market.len());
        let (free, _) = device.memory()?;
        let free = options.memory_limit.map_or_else(|| usable(free), |limit| limit.min(free));
        let mut placed = plan.place_replay(settings, free)?;
        loop {
            let cache = options.cache.as_ref();
            match Self::assemble(settings, &market, collect.clone(), device, &plan, &placed, cache) {
                Ok(engine) => return Ok(BuiltCudaEngine { engine, notice: placed.notice }),
                Err(error) => placed = placed.after(settings, error)?,
            }
        }
    }

    /// Takes everything, with the replay memory where it was placed.
    fn assemble(
        settings: &Settings,
        market: &Arc<Market>,
        collect: CollectConfig,
        device: &Arc<Device>,
        plan: &Plan,
        placed: &Placed,
        cache: Option<&Cache>,
    ) -> Result<Self, MLError> {
        let stream = device.stream()?;
        let market = Arc::clone(market);
        let on_device = Arc::new(DeviceMarket::upload(&stream, &market)?);
        let of_collector = Arc::clone(&on_device);
        let collector = GpuCollector::new(&stream, collect, Arc::clone(&market), of_collector, cache)?;
        let mut learner = GpuLearner::new(&stream, &plan.learner, cache)?;
        learner.upload_state(&stream, &Learner::new(settings, STATE_DIM).state())?;
        if settings.guard.nan_policy == NanPolicy::Rollback {
            learner.keep_good_copy(&stream)?;
        }
        let (n_envs, n_outputs) = (settings.env.n_envs, settings.network.head.n_outputs());
        let layers = settings.network.hidden.len() + 1;
        // Launches that noise adds: draws, and behind the way back at most a join and the scales.
        let [draws, noise] = [1, 3].map(|launches| if settings.network.noisy { launches } else { 0 });
        let batches = (0..settings.learner.accumulation)
            .map(|_| DeviceBatch::zeros(&stream, settings.learner.batch, STATE_DIM))
            .collect::<Result<_, _>>()?;
        let source = StateSource::new(Arc::clone(&market), settings.learner.gamma);
        let store = Store::new(&stream, settings, placed, &on_device, &source, cache)?;
        let rollout = match placed.on_device {
            true => Rollout::new(&stream, &learner, &collector, placed.capacity, cache)?,
            false => None,
        };
        Ok(Self {
            settings: settings.clone(),
            market,
            collector,
            learner,
            store,
            rollout,
            source,
            q: stream.zeros("Q-values", [n_envs, n_outputs])?,
            batches,
            collecting: Chain::new(layers + 4 + draws),
            updating: Chain::new(settings.learner.accumulation * (2 * layers + 4) + 3 + noise),
            known: LearnerProgress::default(),
            faults: Vec::new(),
            faults_lost: 0,
            filled: false,
            collect_time: EventSpans::new(device),
            update_time: EventSpans::new(device),
            pace: Pace::new(device)?,
            bytes: plan.parts(settings, placed).iter().map(|part| part.bytes).sum(),
            stream,
        })
    }

    /// The device memory that an engine with these settings takes over `n_bars` bars when `free` bytes can be had, and
    /// whether the replay memory is among it.
    ///
    /// # Errors
    /// [`MLError::GpuMemoryError`] as from [`CudaEngine::build`].
    pub fn memory(settings: &Settings, n_bars: usize, free: u64) -> Result<(Vec<MemoryPart>, bool), MLError> {
        let plan = Plan::new(settings, n_bars);
        let placed = plan.place_replay(settings, usable(free))?;
        Ok((plan.parts(settings, &placed), placed.on_device))
    }

    /// Device bytes it has planned and taken.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the replay memory is on the device.
    #[must_use]
    pub fn replay_on_device(&self) -> bool {
        matches!(self.store, Store::Device(_))
    }

    /// Rows of an update.
    fn rows(&self) -> usize {
        self.settings.learner.batch * self.settings.learner.accumulation
    }

    /// The first update waits once to see that there is a batch to draw.
    fn check_filled(&mut self) -> Result<(), MLError> {
        let need = self.settings.learner.batch;
        if !self.filled {
            let have = self.store.len(&self.stream)?;
            if have < need {
                return Err(MLError::NotEnoughData { have, need });
            }
            self.filled = true;
        }
        Ok(())
    }

    /// Queues updates: sample, learn, priorities.
    fn queue_updates(&mut self, updates: u32) -> Result<(), MLError> {
        let rows = self.rows();
        let Self { stream, learner, store, batches, updating, update_time, pace, .. } = self;
        pace.begin()?;
        update_time.begin(stream)?;
        match store {
            Store::Device(replay) => {
                let mut left = updates;
                while left > 0 {
                    replay.maintain(stream)?;
                    let until_order = replay.order_if_due(stream)?;
                    let n = u32::try_from(until_order).map_or(left, |until| left.min(until));
                    updating.run(stream, n, &mut |s, n| {
                        for _ in 0..n {
                            for batch in &mut *batches {
                                replay.sample_with(s, batch, Resort::Never)?;
                            }
                            // A draw waits for the update ahead before it lets this one begin.
                            learner.update_behind(s, batches, Ahead::LeavesParameters)?;
                            replay.update(s, &learner.priorities(), rows)?;
                        }
                        Ok(())
                    })?;
                    replay.replayed_updates(updating.take_replayed(), rows);
                    left -= n;
                }
            }
            Store::Host(host) => {
                for _ in 0..updates {
                    host.update(stream, learner, batches)?;
                }
            }
        }
        update_time.end(stream)?;
        pace.end(stream)?;
        self.take_faults();
        Ok(())
    }

    /// Takes what the device published since the last look.
    fn take_faults(&mut self) {
        let drained = self.learner.drain_faults();
        let room = MAX_FAULTS.saturating_sub(self.faults.len()).min(drained.faults.len());
        self.faults_lost += drained.lost + (drained.faults.len() - room) as u64;
        self.faults.extend_from_slice(&drained.faults[..room]);
    }

    /// Statistics of the learner's part of the epoch. Waits.
    fn progress(&mut self) -> Result<Progress, MLError> {
        let (progress, sums) = self.learner.progress(&self.stream)?;
        self.known = progress;
        self.take_faults();
        let (faults, faults_lost) = (self.faults.clone(), self.faults_lost);
        Ok(Progress { status: self.status(), sums, faults, faults_lost })
    }

    /// The online network, in host memory.
    fn network(&self) -> Result<QNetwork, MLError> {
        let parameters = self.stream.download(self.learner.online())?;
        QNetwork::with_parameters(self.learner.layout().clone(), parameters)
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError> {
        let Self { stream, collector, learner, store, q, rollout, collecting, collect_time, pace, .. } = self;
        pace.begin()?;
        collect_time.begin(stream)?;
        let n_envs = collector.config().n_envs;
        let mut act = |s: &Stream, learner: &mut GpuLearner, collector: &mut GpuCollector, ahead: Ahead| {
            learner.acting_q_values(s, collector.clock(), collector.states(), n_envs, q, ahead)?;
            collector.step(s, q).map_err(MLError::from)
        };
        match store {
            Store::Device(replay) => {
                let most = collector.max_rows();
                collecting.run(stream, vector_steps, &mut |s, n| {
                    if let Some(rollout) = rollout {
                        let (mut left, mut ahead) = (n as usize, Ahead::Unknown);
                        while left > 0 {
                            let steps = left.min(rollout.steps());
                            rollout.run(s, learner, collector, replay, steps, ahead)?;
                            (left, ahead) = (left - steps, Ahead::LeavesParameters);
                        }
                        return Ok(());
                    }
                    for i in 0..n {
                        // The insert of the step ahead waits for that step before it lets this one begin.
                        let ahead = if i > 0 { Ahead::LeavesAll } else { Ahead::Unknown };
                        act(s, learner, collector, ahead)?;
                        collector.insert_into(s, replay)?;
                    }
                    Ok(())
                })?;
                replay.replayed_inserts(collecting.take_replayed(), most);
            }
            Store::Host(host) => {
                for _ in 0..vector_steps {
                    act(stream, learner, collector, Ahead::Unknown)?;
                    host.insert(stream, collector)?;
                }
            }
        }
        collect_time.end(stream)?;
        Ok(pace.end(stream)?)
    }

    fn update(&mut self, updates: u32) -> Result<u32, MLError> {
        self.check_filled()?;
        if self.settings.guard.nan_policy != NanPolicy::Rollback {
            self.queue_updates(updates)?;
            return Ok(updates);
        }
        // Where a rollback begins decides what is learned, so under this policy each update is waited for.
        for done in 1..=updates {
            let skipped = self.known.counts.skipped;
            self.queue_updates(1)?;
            self.known = self.learner.progress(&self.stream)?.0;
            if self.known.counts.skipped > skipped {
                return Ok(done);
            }
        }
        Ok(updates)
    }

    fn chunk_scale(&self) -> u32 {
        64
    }

    fn take_work_times(&mut self) -> Result<WorkTimes, MLError> {
        Ok(WorkTimes { collecting: self.collect_time.take()?, updating: self.update_time.take()? })
    }

    fn status(&self) -> EngineStatus {
        let progress = self.learner.live().map_or(self.known, |live| live.progress);
        EngineStatus {
            env_steps: self.collector.env_steps(),
            updates: progress.counts.updates,
            skipped_updates: progress.counts.skipped,
            longest_skipped_row: progress.longest_skipped_row,
            longest_collapsed_row: progress.longest_collapsed_row,
        }
    }

    fn keep_good_copy(&mut self) -> Result<(), MLError> {
        Ok(self.learner.keep_good_copy(&self.stream)?)
    }

    fn roll_back(&mut self) -> Result<(), MLError> {
        if !self.learner.roll_back(&self.stream)? {
            self.learner.upload_state(&self.stream, &Learner::new(&self.settings, STATE_DIM).state())?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<EpochStats, MLError> {
        let collected = self.collector.epoch_stats(&self.stream)?;
        let mut progress = self.progress()?;
        self.learner.set_progress(&self.stream, &self.known, &EpochSums::default())?;
        self.faults.clear();
        self.faults_lost = 0;
        self.store.check_draws(&self.stream)?;
        let replay = self.store.levels(&self.stream, &self.settings.replay)?;
        let settings = &self.settings;
        Ok(progress.report(collected, |stats| {
            stats.epsilon = settings.exploration.epsilon.at(stats.total_env_steps);
            stats.learning_rate = settings.learner.learning_rate.at(stats.total_updates);
            stats.beta = replay.beta;
            stats.replay_len = replay.len;
            stats.replay_capacity = replay.capacity;
        }))
    }

    fn evaluate(
        &mut self,
        market: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError> {
        let mut network = self.network()?;
        let head = self.settings.network.head;
        let mut q = vec![0.0; head.n_outputs()];
        backtest(market, window, &self.collector.config().params, stop, &mut |state, bar| {
            network.q_values(state, &mut q)?;
            greedy(head, &q, market, bar)
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, MLError> {
        self.save()
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        self.load(snapshot)
    }

    fn parameters(&mut self) -> Result<Snapshot, MLError> {
        let parameters = self.stream.download(self.learner.online())?;
        Ok(named(&self.learner.layout().means(), &parameters))
    }
}
