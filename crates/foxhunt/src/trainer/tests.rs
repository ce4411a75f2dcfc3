//! The loop over a toy engine: order of calls, stopping, saving, going on. Learning is tested elsewhere.

mod toy;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use foxhunt_core::settings::{AverageQStop, NanPolicy, SaveFailure};
use foxhunt_core::{Philox, Purpose, Settings};
use foxhunt_market::{BarArrays, BarSeries};

use self::toy::{Log, Script, toy};
use super::*;
use crate::checkpoint::{Checkpoint, CheckpointFault, CheckpointStore};
use crate::policy::Policy;
use crate::run_folder::RunPaths;

fn bars(seed: u64) -> BarSeries {
    let mut noise = Philox::new(seed).stream(Purpose::Synthetic, 0, 0);
    let mut arrays = BarArrays::default();
    let mut price = 100.0_f64;
    for t in 0..900 {
        let close = price * (0.01 * noise.next_normal()).exp();
        arrays.time.push(t * 3_600_000_000_000);
        arrays.open.push(price);
        arrays.high.push(price.max(close) * 1.001);
        arrays.low.push(price.min(close) * 0.999);
        arrays.close.push(close);
        price = close;
    }
    BarSeries::from_arrays(None, arrays).unwrap()
}

fn settings(dir: &Path) -> Settings {
    let mut settings = Settings::from_toml(include_str!("../../../foxhunt-tests/tiny.toml")).unwrap();
    settings.run.dir = dir.to_path_buf();
    settings.network.hidden = vec![4];
    settings.env.n_envs = 2;
    settings.learner.batch = 4;
    settings.training.warmup_env_steps = 50;
    settings.training.collect = 20;
    settings.training.updates_per_epoch = 40;
    settings.training.validate_every = 1;
    settings.evaluation.random_policies = 1;
    settings
}

fn trainer(settings: &Settings, script: Script) -> Trainer<'static> {
    Trainer::with_engine(settings, bars(1), &toy(script, &Log::default())).unwrap()
}

fn resumed(folder: &Path, script: Script) -> Result<Trainer<'static>, MLError> {
    Trainer::resume_with(folder, bars(1), None, &toy(script, &Log::default()))
}

/// Asks to stop at the k-th look, from 0, and ever after.
struct StopAt(AtomicU32);

impl StopAt {
    fn new(k: u32) -> Self {
        Self(AtomicU32::new(k))
    }
}

impl StopSignal for StopAt {
    fn stop_requested(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[derive(Default)]
struct Recorder {
    epochs: Vec<EpochReport>,
    validations: Vec<ValidationReport>,
    checkpoints: Vec<PathBuf>,
    warnings: Vec<Warning>,
    evaluation: Vec<EvaluationReport>,
    finished: u32,
}

impl TrainObserver for Recorder {
    fn on_epoch(&mut self, report: &EpochReport) {
        self.epochs.push(report.clone());
    }
    fn on_validation(&mut self, report: &ValidationReport) {
        self.validations.push(report.clone());
    }
    fn on_checkpoint(&mut self, report: &CheckpointReport) {
        self.checkpoints.push(report.path.clone());
    }
    fn on_evaluation(&mut self, report: &EvaluationReport) {
        self.evaluation.push(*report);
    }
    fn on_warning(&mut self, warning: &Warning) {
        self.warnings.push(warning.clone());
    }
    fn on_finish(&mut self, _: &TrainOutcome) {
        self.finished += 1;
    }
}

fn newest(run: &RunPaths) -> Checkpoint {
    CheckpointStore::new(run.checkpoints(), 9).load_newest().unwrap().checkpoint
}

fn checkpoint_names(run: &RunPaths) -> Vec<String> {
    let entries = fs::read_dir(run.checkpoints()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Case D10: the readback happens once an epoch, however many updates that has. Warm-up comes first: 50 env steps
/// of 2 environments, in chunks.
#[test]
fn an_epoch_is_collect_update_and_one_readback() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::default();
    let script = Script::default();
    let trainer = Trainer::with_engine(&settings(dir.path()), bars(1), &toy(script, &log)).unwrap();
    let outcome = trainer.run().unwrap();
    let epoch = ["collect 16", "collect 4", "update 16", "update 16", "update 8", "drain", "evaluate"];
    let mut expected = vec!["snapshot", "collect 16", "collect 9"];
    for number in 1..=4 {
        expected.extend(epoch);
        if number % 2 == 0 {
            expected.push("snapshot");
        }
    }
    assert_eq!(*log.borrow(), expected);
    assert_eq!((outcome.stop_reason, outcome.epochs, outcome.updates), (StopReason::Completed, 4, 160));
    assert_eq!(outcome.env_steps, 50 + 4 * 40);
}

#[test]
fn the_best_validation_is_the_policy_that_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Recorder::default();
    let mut run = settings(dir.path());
    run.training.epochs = 3;
    let outcome = trainer(&run, Script::default()).observe(&mut seen).run().unwrap();
    let best = outcome.best_validation.unwrap();
    assert_eq!(best.epoch, 2);
    assert!((best.net_log_return - 0.3).abs() < 1e-12);
    assert_eq!(seen.validations.iter().map(|v| v.best).collect::<Vec<_>>(), [true, true, false]);
    let names: Vec<_> = outcome.evaluation.unwrap().windows.iter().map(|w| w.name.clone()).collect();
    assert_eq!(names, ["train", "validation", "test"]);
    let kept = Policy::load(outcome.run.folder()).unwrap();
    let checkpoint = newest(&outcome.run);
    let best_bias = &checkpoint.snapshot.arrays["best.layer0.bias"];
    assert_eq!(kept.arrays().arrays["layer0.bias"], *best_bias);
    assert_eq!(seen.finished, 1);
}

/// Case C14: a validation without a finite score is neither the best nor progress.
#[test]
fn a_nan_validation_is_never_the_best() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Recorder::default();
    let script = Script { scores: vec![-1.0, f64::NAN, -0.9], ..Script::default() };
    let mut run = settings(dir.path());
    run.training.epochs = 3;
    let outcome = trainer(&run, script).observe(&mut seen).run().unwrap();
    assert_eq!(outcome.best_validation.map(|best| best.epoch), Some(3));
    let marks: Vec<_> = seen.validations.iter().map(|v| (v.best, v.without_progress)).collect();
    assert_eq!(marks, [(true, 0), (false, 1), (true, 0)]);
    assert_eq!(seen.validations[1].net_log_return, None);
}

#[test]
fn patience_and_average_q_end_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    run.training.epochs = 50;
    run.training.patience = 2;
    let outcome = trainer(&run, Script::default()).run().unwrap();
    assert_eq!((outcome.stop_reason, outcome.epochs), (StopReason::EarlyStop, 4));

    run.training.patience = 0;
    run.training.validate_every = 50;
    run.monitor.average_q_stop = Some(AverageQStop { min_change: 0.5, patience: 3 });
    let mut seen = Recorder::default();
    let outcome = trainer(&run, Script::default()).observe(&mut seen).run().unwrap();
    assert_eq!((outcome.stop_reason, outcome.epochs), (StopReason::AverageQ, 4));
    assert_eq!(seen.validations.len(), 1, "validated once more before stopping");
    assert!(outcome.best_validation.is_some());
}

/// Cases E02, E09: stopped at any look at the signal, a run goes on to the same end: arrays, trainer state,
/// metrics. Also B07: nothing is reset in between.
#[test]
fn stopped_anywhere_a_run_goes_on_to_the_same_end() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    let script = || Script { skipped: 50..53, ..Script::default() };
    let whole = trainer(&run, script()).run().unwrap();
    let expected = newest(&whole.run);
    let metrics = epoch_lines(&whole.run);
    assert_eq!(metrics.len(), 4);

    // Two looks of warm-up, six an epoch with that of its validation, and then those of the last evaluation.
    for k in (0..26).chain([26, 100, 2000]) {
        let first = trainer(&run, script()).stop_on(StopAt::new(k)).run().unwrap();
        assert_eq!(first.stop_reason, StopReason::Interrupted, "look {k}");
        assert!(first.evaluation.is_none(), "only a whole evaluation is shown");
        let checkpoint = first.checkpoint.unwrap();
        assert_eq!(newest(&first.run).path, checkpoint);
        let second = resumed(first.run.folder(), script()).unwrap().run().unwrap();
        let got = newest(&second.run);
        assert_eq!(got.snapshot, expected.snapshot, "look {k}");
        assert_eq!(got.manifest.trainer, expected.manifest.trainer, "look {k}");
        assert_eq!(got.manifest.settings, expected.manifest.settings, "look {k}");
        assert_eq!(epoch_lines(&second.run), metrics, "look {k}");
        assert_eq!(second.evaluation, whole.evaluation, "look {k}");
        assert_eq!(second.updates, whole.updates);
    }
}

/// Metrics without what the wall clock decides.
fn epoch_lines(run: &RunPaths) -> Vec<EpochReport> {
    let lines = read_metrics(&run.metrics()).unwrap();
    let epochs = lines.into_iter().filter_map(|line| match line {
        MetricsLine::Epoch(report) => {
            Some(EpochReport { wall_s: 0.0, env_steps_per_s: None, updates_per_s: None, ..report })
        }
        _ => None,
    });
    epochs.collect()
}

/// Case E09: a stop at a point that was just saved by schedule leaves one checkpoint of it.
#[test]
fn no_point_is_saved_twice() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    // Two looks of warm-up and six an epoch come before the first look of the third epoch.
    let mut seen = Recorder::default();
    let stopped = trainer(&run, Script::default()).observe(&mut seen).stop_on(StopAt::new(14)).run().unwrap();
    assert_eq!(checkpoint_names(&stopped.run), ["epoch_0", "epoch_2"]);
    assert_eq!(seen.checkpoints.len(), 2);
    assert_eq!(stopped.checkpoint, Some(stopped.run.checkpoints().join("epoch_2")));
    // Going on and stopping at once saves nothing either.
    let mut seen = Recorder::default();
    let again = resumed(stopped.run.folder(), Script::default()).unwrap();
    again.observe(&mut seen).stop_on(StopAt::new(0)).run().unwrap();
    assert!(seen.checkpoints.is_empty());
}

/// A stop in the middle of a validation saves the epoch without it, before the checkpoint of the whole epoch; going on
/// does the validation and nothing else again.
#[test]
fn a_stop_in_a_validation_leaves_it_to_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    let stopped = trainer(&run, Script::default()).stop_on(StopAt::new(13)).run().unwrap();
    assert_eq!((stopped.stop_reason, stopped.epochs), (StopReason::Interrupted, 2));
    assert_eq!(checkpoint_names(&stopped.run), ["epoch_0", "epoch_1_60"]);
    let log = Log::default();
    let mut seen = Recorder::default();
    let again = Trainer::resume_with(stopped.run.folder(), bars(1), None, &toy(Script::default(), &log));
    again.unwrap().observe(&mut seen).stop_on(StopAt::new(1)).run().unwrap();
    assert_eq!(*log.borrow(), ["evaluate", "snapshot"]);
    assert!(seen.epochs.is_empty() && seen.validations.len() == 1);
    assert_eq!(checkpoint_names(&stopped.run), ["epoch_1_60", "epoch_2"]);
}

/// A run without a checkpoint was never begun, and says so.
#[test]
fn a_run_killed_before_its_start_was_saved_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let run = trainer(&settings(dir.path()), Script::default());
    let folder = run.run_folder().paths().folder().to_path_buf();
    drop(run);
    match resumed(&folder, Script::default()) {
        Err(MLError::RunNotBegun { path }) => assert_eq!(path, folder),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn nan_policies_stop_skip_and_roll_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    run.guard.max_skips_in_row = 5;
    let mut attempt = |policy, skipped| {
        run.guard.nan_policy = policy;
        let log = Log::default();
        let mut seen = Recorder::default();
        let script = Script { skipped, ..Script::default() };
        let trainer = Trainer::with_engine(&run, bars(1), &toy(script, &log)).unwrap();
        let result = trainer.observe(&mut seen).run();
        let rollbacks = log.borrow().iter().filter(|call| *call == "roll back").count();
        (result, seen, rollbacks)
    };
    let (result, _, _) = attempt(NanPolicy::Stop, 60..61);
    assert!(matches!(result, Err(MLError::Halted { .. })));

    let (result, seen, _) = attempt(NanPolicy::Skip, 60..64);
    assert_eq!(result.unwrap().updates, 160 - 4);
    assert!(seen.warnings.contains(&Warning::SkippedUpdates { epoch: 2, count: 4 }), "{:?}", seen.warnings);
    assert_eq!(seen.epochs[1].stats.skipped_updates, 4);
    let (result, _, _) = attempt(NanPolicy::Skip, 60..65);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("5 updates in a row"), "{error}");

    // One chunk of updates holds all three, so it is one rollback.
    let (result, seen, rollbacks) = attempt(NanPolicy::Rollback, 60..63);
    assert_eq!((result.unwrap().epochs, rollbacks, seen.epochs[1].rollbacks), (4, 1, 1));
    let (result, _, rollbacks) = attempt(NanPolicy::Rollback, 60..1000);
    assert!(matches!(result, Err(MLError::Halted { .. })));
    assert_eq!(rollbacks, 5);
}

#[test]
fn a_collapsed_gradient_runs_out_of_patience() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    run.guard.collapse_patience = 30;
    let script = |collapsed| Script { collapsed, ..Script::default() };
    assert!(trainer(&run, script(10..39)).run().is_ok());
    let error = trainer(&run, script(10..40)).run().unwrap_err();
    assert!(error.to_string().contains("30 updates in a row"), "{error}");
}

/// Case E08: a checkpoint that cannot be saved ends the run, or is a warning, as configured.
#[test]
fn a_failed_save_stops_or_warns_as_configured() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    // Sabotage after the start: a file where the temporary folder of epoch 2 would be.
    let attempt = |run: &Settings, seen: &mut Recorder| {
        let trainer = trainer(run, Script::default());
        let paths = trainer.run_folder().paths().clone();
        fs::write(paths.checkpoints().join("epoch_2.tmp"), "in the way").unwrap();
        (trainer.observe(seen).run(), paths)
    };
    let mut seen = Recorder::default();
    let (result, paths) = attempt(&run, &mut seen);
    assert!(matches!(result, Err(MLError::Io { .. } | MLError::WriteFailed { .. })));
    assert_eq!(newest(&paths).manifest.trainer.epoch, 0, "the previous one loads");

    run.checkpoint.on_failure = SaveFailure::Continue;
    let mut seen = Recorder::default();
    let (result, paths) = attempt(&run, &mut seen);
    assert_eq!(result.unwrap().epochs, 4);
    assert!(seen.warnings.iter().any(|w| matches!(w, Warning::CheckpointLost { .. })));
    assert_eq!(newest(&paths).manifest.trainer.epoch, 4);

    let stopped = trainer(&run, Script::default()).stop_on(StopAt::new(0));
    let checkpoints = stopped.run_folder().paths().checkpoints();
    fs::remove_dir_all(&checkpoints).and_then(|()| fs::write(&checkpoints, "in the way")).unwrap();
    assert!(stopped.run().is_err(), "a stop that could not be saved does not pass for one that was");
}

/// Case E03, E06: a torn newest checkpoint is passed over with a warning that reaches the observers.
#[test]
fn a_torn_checkpoint_is_a_warning_and_the_previous_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    let whole = trainer(&run, Script::default()).run().unwrap();
    let expected = newest(&whole.run);
    let torn = whole.run.checkpoints().join("epoch_4").join("state.safetensors");
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();

    let mut seen = Recorder::default();
    let again = resumed(whole.run.folder(), Script::default()).unwrap();
    assert_eq!(again.state().epoch, 2);
    let again = again.observe(&mut seen).run().unwrap();
    assert!(
        matches!(
            &seen.warnings[..],
            [Warning::CheckpointSkipped { fault: CheckpointFault::Torn { .. }, .. }]
        ),
        "{:?}",
        seen.warnings
    );
    assert_eq!(newest(&again.run).snapshot, expected.snapshot);
    let epochs: Vec<u64> = epoch_lines(&again.run).iter().map(|line| line.epoch).collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
}

#[test]
fn other_bars_and_other_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    let done = trainer(&run, Script::default()).run().unwrap();
    let build = toy(Script::default(), &Log::default());
    let attempt = |bars, changed: Option<&Settings>| {
        Trainer::resume_with(done.run.folder(), bars, changed, &build).map(|_| ()).unwrap_err()
    };
    let error = attempt(bars(2), None);
    assert!(
        matches!(error, MLError::CheckpointFile { fault: CheckpointFault::Foreign { .. }, .. }),
        "{error}"
    );
    // Every key that may not change is named with both values, and nothing is changed by the refusal.
    let mut changed = run.clone();
    (changed.learner.gamma, changed.network.hidden) = (0.5, vec![4, 3]);
    changed.training.epochs = 9;
    let written = fs::read_to_string(done.run.settings()).unwrap();
    let error = attempt(bars(1), Some(&changed)).to_string();
    for told in [
        "learner.gamma is 0.97 in this run and was asked to be 0.5",
        "network.hidden is [4] in this run and was asked to be [4, 3]",
        "may change only training.epochs",
    ] {
        assert!(error.contains(told), "{error}");
    }
    assert!(!error.contains("training.epochs is"), "{error}");
    assert_eq!(fs::read_to_string(done.run.settings()).unwrap(), written);
    // While it is open, nobody else gets it.
    let open = resumed(done.run.folder(), Script::default()).unwrap();
    assert!(matches!(attempt(bars(1), None), MLError::RunLocked { .. }));
    drop(open);
}

/// A run that ended only judges its policy again; with more epochs it goes on as if they had been asked for at once.
#[test]
fn a_finished_run_can_be_extended() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    run.training.epochs = 2;
    let short = trainer(&run, Script::default()).run().unwrap();
    let again = resumed(short.run.folder(), Script::default()).unwrap().run().unwrap();
    assert_eq!((again.epochs, again.evaluation), (2, short.evaluation));

    run.training.epochs = 4;
    let mut seen = Recorder::default();
    let build = toy(Script::default(), &Log::default());
    let longer = Trainer::resume_with(short.run.folder(), bars(1), Some(&run), &build).unwrap();
    let longer = longer.observe(&mut seen).run().unwrap();
    assert_eq!(longer.epochs, 4);
    assert_eq!(seen.warnings, [Warning::TestSeenBefore]);
    let whole = trainer(&run, Script::default()).run().unwrap();
    assert_eq!(newest(&longer.run).snapshot, newest(&whole.run).snapshot);
}

/// What a run goes by stands in its folder as soon as it goes on, so that one killed before its next checkpoint goes
/// the same way.
#[test]
fn the_folder_tells_what_a_resumed_run_goes_by() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = settings(dir.path());
    run.training.epochs = 2;
    let short = trainer(&run, Script::default()).run().unwrap();
    let written = || Settings::from_toml(&fs::read_to_string(short.run.settings()).unwrap()).unwrap();
    assert_eq!(written(), run);

    (run.training.epochs, run.run.threads) = (4, 2);
    let build = toy(Script::default(), &Log::default());
    drop(Trainer::resume_with(short.run.folder(), bars(1), Some(&run), &build).unwrap());
    assert_eq!(written(), run);
    assert_eq!(Policy::load(short.run.folder()).unwrap().settings(), &run);
    assert_eq!(newest(&short.run).manifest.settings.training.epochs, 2, "no checkpoint was saved since");
    let longer = resumed(short.run.folder(), Script::default()).unwrap().run().unwrap();
    assert_eq!((longer.epochs, newest(&longer.run).manifest.settings), (4, run.clone()));
    assert_eq!(written(), run);

    // What somebody wrote into the file counts as if it had been asked for.
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(short.run.settings()).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(short.run.settings(), text.replace(from, to)).unwrap();
    };
    edit("epochs = 4", "epochs = 5");
    assert_eq!(resumed(short.run.folder(), Script::default()).unwrap().run().unwrap().epochs, 5);
    edit("gamma = 0.97", "gamma = 0.5");
    let error = resumed(short.run.folder(), Script::default()).map(drop).unwrap_err();
    assert!(matches!(&error, MLError::SettingsChanged { changes, .. } if changes.len() == 1), "{error}");
    let error = Trainer::check_resume(short.run.folder(), &bars(1), None).unwrap_err();
    assert!(matches!(&error, MLError::SettingsChanged { changes, .. } if changes.len() == 1), "{error}");
}

/// The last evaluation tells of every decision, and how many there will be.
#[test]
fn the_last_evaluation_tells_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Recorder::default();
    trainer(&settings(dir.path()), Script::default()).observe(&mut seen).run().unwrap();
    let EvaluationReport { decisions, of } = *seen.evaluation.last().unwrap();
    assert!(of > 1_000 && decisions == of, "{decisions} of {of}");
    let counted = seen.evaluation.iter().zip(1..).all(|(report, n)| report.decisions == n && report.of == of);
    assert!(counted, "one by one, of the same number");
}

/// A policy folder that got lost is written again from the checkpoint.
#[test]
fn resuming_restores_the_policy_folder() {
    let dir = tempfile::tempdir().unwrap();
    let run = settings(dir.path());
    let done = trainer(&run, Script::default()).run().unwrap();
    let before = Policy::load(done.run.folder()).unwrap();
    fs::remove_dir_all(done.run.policy()).unwrap();
    drop(resumed(done.run.folder(), Script::default()).unwrap());
    assert_eq!(Policy::load(done.run.folder()).unwrap().parameters(), before.parameters());
}

#[test]
fn warm_up_fills_a_batch_whatever_is_asked() {
    let mut settings = Settings::default();
    settings.env.n_envs = 4;
    settings.learner.batch = 10;
    settings.learner.n_step = 3;
    settings.training.warmup_env_steps = 0;
    assert_eq!(warm_up_steps(&settings), 3 + 2);
    settings.training.warmup_env_steps = 81;
    assert_eq!(warm_up_steps(&settings), 21);
}
