//! Guard policies end to end: real updates made non-finite by an engine that wraps the real one.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use foxhunt::cpu_engine::CpuEngine;
use foxhunt::engine::{ArrayData, Engine, EngineStatus, Snapshot, WorkTimes};
use foxhunt::engine_choice::BuiltEngine;
use foxhunt::evaluation::Backtest;
use foxhunt::trainer::{EpochReport, StopSignal, TrainObserver, TrainOutcome, Warning};
use foxhunt::{MLError, Settings, Trainer};
use foxhunt_core::record::{EpochStats, FaultKind};
use foxhunt_core::settings::NanPolicy;
use foxhunt_market::Market;

use crate::support::{assert_same_bits, bars, newest, tiny};

/// Rewards that overflow the loss, though each is finite.
const POISON: f32 = 1e30;

/// What the wrapper saw after each attempted update, in order: number of the attempt and online parameters.
type Trace = Rc<RefCell<Vec<(u64, Snapshot)>>>;

/// Plants huge rewards in the replay memory for some attempted updates and takes them out again.
struct Poisoner {
    inner: CpuEngine,
    attempts: Range<u64>,
    trace: Trace,
    rolled_back: Rc<RefCell<Vec<Snapshot>>>,
    stop_at_skip: bool,
}

impl Poisoner {
    fn attempt(&self) -> u64 {
        let status = self.inner.status();
        status.updates + status.skipped_updates + 1
    }

    fn one_update(&mut self) -> Result<(), MLError> {
        let attempt = self.attempt();
        if self.attempts.contains(&attempt) {
            let clean = self.inner.snapshot()?;
            let mut poisoned = clean.clone();
            let rewards = &mut poisoned.arrays.get_mut("replay.reward").unwrap().data;
            let ArrayData::F32(rewards) = rewards else { panic!() };
            rewards.fill(POISON);
            let originals = clean.arrays["replay.reward"].clone();
            self.inner.restore(&poisoned)?;
            self.inner.update(1)?;
            let mut healed = self.inner.snapshot()?;
            healed.arrays.insert("replay.reward".into(), originals);
            self.inner.restore(&healed)?;
        } else {
            self.inner.update(1)?;
        }
        self.trace.borrow_mut().push((attempt, self.inner.parameters()?));
        Ok(())
    }
}

impl Engine for Poisoner {
    fn name(&self) -> &'static str {
        "poisoner"
    }
    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError> {
        self.inner.collect(vector_steps)
    }
    fn update(&mut self, updates: u32) -> Result<u32, MLError> {
        for done in 1..=updates {
            let skipped = self.inner.status().skipped_updates;
            self.one_update()?;
            if self.stop_at_skip && self.inner.status().skipped_updates > skipped {
                return Ok(done);
            }
        }
        Ok(updates)
    }
    fn take_work_times(&mut self) -> Result<WorkTimes, MLError> {
        self.inner.take_work_times()
    }
    fn status(&self) -> EngineStatus {
        self.inner.status()
    }
    fn keep_good_copy(&mut self) -> Result<(), MLError> {
        self.inner.keep_good_copy()
    }
    fn roll_back(&mut self) -> Result<(), MLError> {
        self.inner.roll_back()?;
        self.rolled_back.borrow_mut().push(self.inner.parameters()?);
        Ok(())
    }
    fn drain(&mut self) -> Result<EpochStats, MLError> {
        self.inner.drain()
    }
    fn evaluate(
        &mut self,
        market: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError> {
        self.inner.evaluate(market, window, stop)
    }
    fn snapshot(&mut self) -> Result<Snapshot, MLError> {
        self.inner.snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        self.inner.restore(snapshot)
    }
    fn parameters(&mut self) -> Result<Snapshot, MLError> {
        self.inner.parameters()
    }
}

#[derive(Default)]
struct Recorder {
    epochs: Vec<EpochReport>,
    warnings: Vec<Warning>,
}

impl TrainObserver for Recorder {
    fn on_epoch(&mut self, report: &EpochReport) {
        self.epochs.push(report.clone());
    }
    fn on_warning(&mut self, warning: &Warning) {
        self.warnings.push(warning.clone());
    }
}

struct Attempt {
    result: Result<TrainOutcome, MLError>,
    folder: foxhunt::run_folder::RunPaths,
    trace: Vec<(u64, Snapshot)>,
    rolled_back: Vec<Snapshot>,
    seen: Recorder,
}

fn settings(dir: &std::path::Path) -> Settings {
    let mut settings = tiny(dir);
    // Huber turns linear far beyond the poison, so its square overflows an f32.
    settings.learner.huber_delta = 1e35;
    settings.guard.max_skips_in_row = 4;
    // Rewards are planted by name.
    settings.replay.storage = foxhunt_core::settings::ReplayStorage::Rows;
    settings.checkpoint.every_epochs = 1;
    settings
}

fn attempt(settings: &Settings, attempts: Range<u64>) -> Attempt {
    let (trace, rolled_back) = (Trace::default(), Rc::new(RefCell::new(Vec::new())));
    let trainer = Trainer::with_engine(settings, bars(1), &|settings, prepared| {
        let inner = CpuEngine::new(settings, prepared.market.clone(), prepared.split.train.clone())?;
        let engine = Poisoner {
            inner,
            attempts: attempts.clone(),
            trace: trace.clone(),
            rolled_back: rolled_back.clone(),
            stop_at_skip: settings.guard.nan_policy != NanPolicy::Skip,
        };
        Ok(BuiltEngine { engine: Box::new(engine), notice: None })
    })
    .unwrap();
    let folder = trainer.run_folder().paths().clone();
    let mut seen = Recorder::default();
    let result = trainer.observe(&mut seen).run();
    Attempt { result, folder, trace: trace.take(), rolled_back: rolled_back.take(), seen }
}

fn after(attempt: &Attempt, update: u64) -> &Snapshot {
    &attempt.trace.iter().rev().find(|(number, _)| *number == update).unwrap().1
}

fn assert_finite(snapshot: &Snapshot) {
    for (name, array) in &snapshot.arrays {
        if let ArrayData::F32(values) = &array.data {
            assert!(values.iter().all(|v| v.is_finite()), "{name}");
        }
    }
}

/// Case C15: the loss becomes infinite at update k = 27: weights at the halt equal those after k - 1, nothing follows,
/// and the newest checkpoint holds finite values only.
#[test]
fn stop_halts_before_anything_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.guard.nan_policy = NanPolicy::Stop;
    let halted = attempt(&settings, 27..28);
    assert!(matches!(halted.result, Err(MLError::Halted { update: 26, .. })), "{:?}", halted.result.err());
    assert_eq!(halted.trace.last().unwrap().0, 27, "no update follows");
    assert_same_bits(after(&halted, 27), after(&halted, 26), "at the halt");
    assert_ne!(after(&halted, 26), after(&halted, 25));
    let checkpoint = newest(&halted.folder);
    assert_eq!(checkpoint.manifest.trainer.epoch, 1);
    assert_finite(&checkpoint.snapshot);
}

/// Skipped updates change nothing, are counted and told; too many in a row end the run.
#[test]
fn skip_goes_on_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let skipping = attempt(&settings, 27..30);
    let outcome = skipping.result.as_ref().unwrap();
    assert_eq!(outcome.updates, 80 - 3);
    for update in 27..30 {
        assert_same_bits(after(&skipping, update), after(&skipping, 26), "skipped");
    }
    assert_ne!(after(&skipping, 30), after(&skipping, 26));
    let epoch = &skipping.seen.epochs[1].stats;
    assert_eq!((epoch.updates, epoch.skipped_updates, epoch.total_skipped_updates), (17, 3, 3));
    let steps: Vec<_> =
        epoch.faults.iter().filter(|f| f.kind == FaultKind::NonFiniteLoss).map(|f| f.step).collect();
    assert_eq!(steps, [27, 28, 29], "the host misses none");
    assert!(skipping.seen.warnings.contains(&Warning::SkippedUpdates { epoch: 2, count: 3 }));

    let halted = attempt(&settings, 27..1000);
    assert!(matches!(halted.result, Err(MLError::Halted { .. })));
    assert_eq!(newest(&halted.folder).manifest.trainer.epoch, 1);
    assert_finite(&newest(&halted.folder).snapshot);
}

/// A rollback goes to the network at the end of the last epoch without a skip, and the run goes on from there.
#[test]
fn rollback_goes_to_the_last_good_copy() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.guard.nan_policy = NanPolicy::Rollback;
    let rolled = attempt(&settings, 30..31);
    rolled.result.as_ref().unwrap();
    assert_eq!(rolled.rolled_back.len(), 1);
    assert_same_bits(&rolled.rolled_back[0], after(&rolled, 20), "the end of the first epoch");
    assert_eq!(rolled.seen.epochs[1].rollbacks, 1);
    assert!(rolled.seen.warnings.contains(&Warning::RolledBack { epoch: 2, in_row: 1 }));

    // A fault in the first epoch goes back to the initial network.
    let early = attempt(&settings, 5..6);
    early.result.as_ref().unwrap();
    let initial = foxhunt::policy::network_layout(&settings).init(settings.run.seed);
    let ArrayData::F32(bias) = &early.rolled_back[0].arrays["layer0.bias"].data else { panic!() };
    let n = 12 * 51;
    assert_eq!(*bias, initial[n..n + 12]);

    let halted = attempt(&settings, 30..1000);
    assert!(matches!(halted.result, Err(MLError::Halted { .. })));
    assert_eq!(halted.rolled_back.len(), 4);
}
