//! The CPU engine: the reference the GPU engine is checked against, and what runs without one.
//!
//! It puts the parts together and adds none of its own: [`ReplayMemory`] keeps rows, [`Learner`] learns, the
//! environments and accumulators of [`foxhunt_ops`] make transitions. The network is f32, money f64. Batches and rows
//! are worked on in blocks of fixed size, so the number of threads changes no bit; `run.threads` = 0 uses rayon's
//! global pool (every core, or `RAYON_NUM_THREADS`), any other number a pool of its own.

mod collector;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use foxhunt_core::Settings;
use foxhunt_core::record::EpochStats;
use foxhunt_core::settings::{GuardSettings, NanPolicy};
use foxhunt_market::{Market, STATE_DIM};
use rayon::{ThreadPool, ThreadPoolBuilder};

use self::collector::Collector;
use crate::MLError;
use crate::engine::progress::Progress;
use crate::engine::{Engine, EngineStatus, Snapshot, WorkTimes};
use crate::evaluation::{Backtest, backtest};
use crate::learner::{Batch, Learner, LearnerState, state};
use crate::policy::{greedy, named};
use crate::replay::{BatchBuffers, ReplayMemory, StateSource, check_actions};
use crate::trainer::StopSignal;

/// An engine on this machine's processor cores.
pub struct CpuEngine {
    pool: Option<ThreadPool>,
    core: Core,
    times: WorkTimes,
}

/// Everything but the threads it runs on.
struct Core {
    settings: Settings,
    collector: Collector,
    replay: ReplayMemory,
    /// What completes compact rows.
    source: StateSource,
    learner: Learner,
    progress: Progress,
    /// f32 `[n_envs, n_outputs]`, the last decisions'.
    q: Vec<f32>,
    /// Where a rollback goes; kept under that policy alone.
    good: Option<LearnerState>,
    /// One a sub-batch.
    batches: Vec<BatchBuffers>,
    /// Rows of all sub-batches of one update.
    indices: Vec<u32>,
}

impl CpuEngine {
    /// An engine whose environments trade the bars `train` of `market`.
    ///
    /// # Errors
    /// [`MLError::Settings`] for a precision other than f32, [`MLError::HostMemory`] with the bytes that are missing,
    /// [`MLError::Market`] for a window that does not fit.
    pub fn new(settings: &Settings, market: Arc<Market>, train: Range<usize>) -> Result<Self, MLError> {
        settings.validate_for_cpu()?;
        let pool = match settings.run.threads {
            0 => None,
            threads => Some(ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| {
                MLError::DeviceUnavailable { device: "cpu", reason: format!("no thread pool: {error}") }
            })?),
        };
        let learner = Learner::new(settings, STATE_DIM);
        let rolls_back = settings.guard.nan_policy == NanPolicy::Rollback;
        let source = StateSource::new(Arc::clone(&market), settings.learner.gamma);
        let core = Core {
            settings: settings.clone(),
            collector: Collector::new(settings, market, train)?,
            replay: ReplayMemory::of_market(&settings.replay, &source, settings.run.seed)?,
            source,
            good: rolls_back.then(|| learner.state()),
            learner,
            progress: Progress::default(),
            q: Vec::new(),
            batches: (0..settings.learner.accumulation).map(|_| BatchBuffers::default()).collect(),
            indices: Vec::new(),
        };
        Ok(Self { pool, core, times: WorkTimes::default() })
    }

    /// Threads it works with.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, ThreadPool::current_num_threads)
    }

    fn on_pool<T: Send>(&mut self, work: impl FnOnce(&mut Core) -> T + Send) -> T {
        let Self { pool, core, .. } = self;
        match pool {
            Some(pool) => pool.install(|| work(core)),
            None => work(core),
        }
    }
}

impl Core {
    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError> {
        let Self { collector, replay, learner, progress, q, .. } = self;
        for _ in 0..vector_steps {
            let step = collector.vector_steps();
            collector.vector_step(q, |states, q| learner.acting_q_values(step, states, q), replay)?;
            progress.status.env_steps = collector.env_steps();
        }
        Ok(())
    }

    /// Gives the updates it did.
    fn update(&mut self, updates: u32) -> Result<u32, MLError> {
        for done in 1..=updates {
            self.update_once()?;
            if self.guard_limit_reached() {
                return Ok(done);
            }
        }
        Ok(updates)
    }

    /// Sample, learn, priorities back; a gated update leaves the priorities alone.
    fn update_once(&mut self) -> Result<(), MLError> {
        let Self { settings, replay, learner, progress, batches, indices, .. } = self;
        let batch = settings.learner.batch;
        if replay.len() < batch {
            return Err(MLError::NotEnoughData { have: replay.len(), need: batch });
        }
        for rows in &mut *batches {
            replay.sample(batch, rows)?;
        }
        let report = match &batches[..] {
            [rows] => learner.update(&[Batch::from(rows)]),
            many => learner.update(&many.iter().map(Batch::from).collect::<Vec<_>>()),
        }?;
        if report.applied {
            // In one call, so that a row drawn by two sub-batches gets the larger of its priorities.
            indices.clear();
            batches.iter().for_each(|rows| indices.extend_from_slice(&rows.indices));
            replay.update_priorities(indices, report.td)?;
        } else {
            replay.note_skipped_update();
        }
        progress.updated(&report);
        progress.counted(&learner.counts());
        Ok(())
    }

    /// Whether the trainer will act on what just happened, so that no further update may follow it (case C15).
    fn guard_limit_reached(&self) -> bool {
        let GuardSettings { nan_policy, max_skips_in_row, collapse_patience, .. } = self.settings.guard;
        let counts = self.learner.counts();
        let skipped = match nan_policy {
            NanPolicy::Stop | NanPolicy::Rollback => counts.skipped_in_row > 0,
            NanPolicy::Skip => counts.skipped_in_row >= max_skips_in_row,
        };
        skipped || counts.collapsed_in_row >= collapse_patience
    }

    fn drain(&mut self) -> EpochStats {
        let Self { collector, replay, learner, progress, .. } = self;
        progress.report(collector.take_stats(), |stats| {
            stats.epsilon = collector.epsilon();
            stats.beta = replay.beta();
            stats.learning_rate = learner.learning_rate();
            stats.replay_len = replay.len() as u64;
            stats.replay_capacity = replay.capacity() as u64;
        })
    }

    fn evaluate(
        &mut self,
        market: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError> {
        let head = self.settings.network.head;
        let mut q = vec![0.0; head.n_outputs()];
        let network = self.learner.network_mut();
        backtest(market, window, self.collector.params(), stop, &mut |state, bar| {
            network.q_values(state, &mut q)?;
            greedy(head, &q, market, bar)
        })
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.replay.snapshot();
        self.learner.snapshot(&mut snapshot);
        self.collector.save(&mut snapshot);
        self.progress.save(&mut snapshot);
        if let Some(good) = &self.good {
            state::write_good(self.learner.network().layout(), good, &mut snapshot);
        }
        snapshot
    }

    /// Everything that can refuse comes before the first change.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        check_actions(snapshot, self.settings.network.head.n_actions())?;
        let loaded = self.collector.load(snapshot)?;
        let progress = Progress::load(snapshot)?;
        let good = match &self.good {
            Some(_) => Some(state::read_good(self.learner.network().layout(), snapshot)?),
            None => None,
        };
        let mut learner = Learner::new(&self.settings, STATE_DIM);
        learner.restore(snapshot)?;
        self.replay.restore_from(snapshot, &self.source)?;
        self.learner = learner;
        self.collector.take_up(loaded);
        self.progress = progress;
        self.good = good;
        Ok(())
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError> {
        let start = Instant::now();
        let result = self.on_pool(|core| core.collect(vector_steps));
        self.times.collecting += start.elapsed();
        result
    }

    fn update(&mut self, updates: u32) -> Result<u32, MLError> {
        let start = Instant::now();
        let result = self.on_pool(|core| core.update(updates));
        self.times.updating += start.elapsed();
        result
    }

    fn take_work_times(&mut self) -> Result<WorkTimes, MLError> {
        Ok(std::mem::take(&mut self.times))
    }

    fn status(&self) -> EngineStatus {
        self.core.progress.status
    }

    fn keep_good_copy(&mut self) -> Result<(), MLError> {
        self.core.good = Some(self.core.learner.state());
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), MLError> {
        let Core { learner, good, settings, .. } = &mut self.core;
        let good = good.get_or_insert_with(|| Learner::new(settings, STATE_DIM).state());
        learner.set_state(good)
    }

    fn drain(&mut self) -> Result<EpochStats, MLError> {
        Ok(self.core.drain())
    }

    fn evaluate(
        &mut self,
        market: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError> {
        self.on_pool(|core| core.evaluate(market, window, stop))
    }

    fn snapshot(&mut self) -> Result<Snapshot, MLError> {
        Ok(self.core.snapshot())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        self.core.restore(snapshot)
    }

    fn parameters(&mut self) -> Result<Snapshot, MLError> {
        let network = self.core.learner.network();
        Ok(named(&network.layout().means(), network.parameters()))
    }
}
