//! Walk-forward with real engines: independent of threads, stopped and killed anywhere, done once, judged whole.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use foxhunt::checkpoint::settings_hash;
use foxhunt::engine_choice::build_engine;
use foxhunt::ledger::Ledger;
use foxhunt::trainer::{NeverStop, StopSignal};
use foxhunt::walk_forward::{Progress, WalkForward, WalkForwardOutcome};
use foxhunt::{MLError, Settings};

use crate::support::{bars, tiny};

fn settings(dir: &Path) -> Settings {
    let mut settings = tiny(dir);
    settings.training.epochs = 2;
    settings.walk_forward.folds = 2;
    settings.walk_forward.seeds = 2;
    settings.walk_forward.parallel = 1;
    settings
}

fn run(walk: WalkForward<'static>) -> (Result<WalkForwardOutcome, MLError>, Vec<bool>) {
    run_until(walk, &NeverStop)
}

/// The outcome, and for each run done whether it had been done before.
fn run_until(
    walk: WalkForward<'static>,
    stop: &dyn StopSignal,
) -> (Result<WalkForwardOutcome, MLError>, Vec<bool>) {
    let before = std::sync::Mutex::new(Vec::new());
    let told = |progress| {
        if let Progress::Done { before: was, .. } = progress {
            before.lock().unwrap().push(was);
        }
    };
    let outcome = walk.with(&|s, p| build_engine(s, p), stop, &told).run();
    (outcome, before.into_inner().unwrap())
}

fn new(settings: &Settings) -> WalkForward<'static> {
    WalkForward::new(settings, bars(1)).unwrap()
}

/// What must not depend on anything but bars and settings.
fn essence(outcome: &WalkForwardOutcome) -> String {
    format!(
        "{:?}",
        (
            &outcome.folds,
            &outcome.results,
            &outcome.seeds,
            &outcome.mean_equity,
            &outcome.scores,
            outcome.median
        )
    )
}

/// Asks to stop at the k-th look.
struct StopAt(AtomicU32);

impl StopSignal for StopAt {
    fn stop_requested(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn results_depend_on_bars_and_settings_alone() {
    let dir = tempfile::tempdir().unwrap();
    let base = settings(&dir.path().join("a"));
    let whole = run(new(&base)).0.unwrap();
    assert_eq!((whole.results.len(), whole.seeds.len()), (4, 2));
    assert!(whole.results.iter().all(|r| r.updates > 0 && r.epochs == 2));
    assert_ne!(whole.seeds[0].evaluation.agent.backtest, whole.seeds[1].evaluation.agent.backtest);
    // The stitched account is the fold's own result, compounded.
    for (i, seed) in whole.seeds.iter().enumerate() {
        let growth: f64 =
            [i, 2 + i].iter().map(|r| whole.results[*r].test.net_return.value().unwrap() + 1.0).product();
        let stitched = seed.evaluation.agent.metrics.net_return.value().unwrap() + 1.0;
        assert!((growth - stitched).abs() < 1e-12, "{growth} {stitched}");
    }
    let window = whole.folds[0].windows.test.start..900;
    assert_eq!(whole.seeds[0].evaluation.bars, window);
    assert_eq!(whole.mean_equity.len(), window.len());

    // More at a time, in folders of their own, give the same bits.
    let mut wide = settings(&dir.path().join("b"));
    wide.walk_forward.parallel = 4;
    let wide = run(new(&wide)).0.unwrap();
    assert_eq!(essence(&wide), essence(&whole));

    // Stopped early and often, then resumed: the same bits, and what was done is not done again.
    let stopped = settings(&dir.path().join("c"));
    let mut folder: Option<std::path::PathBuf> = None;
    let mut rounds = 0;
    let again = loop {
        let walk = match &folder {
            None => new(&stopped),
            Some(folder) => WalkForward::resume(folder, bars(1)).unwrap(),
        };
        folder = Some(walk.run_folder().paths().folder().to_path_buf());
        match run_until(walk, &StopAt(AtomicU32::new(2_000 << rounds))).0 {
            Err(MLError::Interrupted) if rounds < 16 => rounds += 1,
            other => break other.unwrap(),
        }
    };
    assert!(rounds > 2, "{rounds}");
    assert_eq!(essence(&again), essence(&whole));
    let folder = folder.unwrap();
    let (outcome, before) = run(WalkForward::resume(&folder, bars(1)).unwrap());
    assert_eq!((essence(&outcome.unwrap()), before), (essence(&whole), vec![true; 4]));

    // A fold whose note and checkpoints are gone is done again; one with other settings or bars is refused.
    let fold = folder.join("folds/fold_002_seed_1");
    std::fs::remove_file(fold.join("fold.json")).unwrap();
    std::fs::remove_dir_all(fold.join("checkpoints")).unwrap();
    let (outcome, mut before) = run(WalkForward::resume(&folder, bars(1)).unwrap());
    before.sort_unstable();
    assert_eq!((essence(&outcome.unwrap()), before), (essence(&whole), vec![false, true, true, true]));
    let other = WalkForward::resume(&folder, bars(2)).unwrap();
    assert!(matches!(run(other).0, Err(MLError::Checkpoint { .. })));
    let text = std::fs::read_to_string(folder.join("settings.toml")).unwrap();
    std::fs::write(folder.join("settings.toml"), text.replace("gamma = 0.97", "gamma = 0.5")).unwrap();
    let error = run(WalkForward::resume(&folder, bars(1)).unwrap()).0.unwrap_err().to_string();
    assert!(error.contains("learner.gamma is 0.97 in this run and was asked to be 0.5"), "{error}");
    assert!(!error.contains("run.") && !error.contains("checkpoint."), "only what matters: {error}");
}

/// A walk-forward run is one try, however many runs it is made of; a training run on the same bars is another.
#[test]
fn a_walk_forward_run_is_one_try() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.walk_forward.folds = 1;
    let first = run(new(&settings)).0.unwrap();
    assert_eq!((first.verdict.trials, first.verdict.dsr.clone()), (1, first.verdict.psr.clone()));
    settings.learner.gamma = 0.9;
    let trained = crate::support::run(&settings);
    let verdict = trained.evaluation.unwrap().verdict.unwrap();
    assert_eq!(verdict.trials, 2);
    assert!(verdict.dsr.value() < verdict.psr.value() || verdict.psr.value().is_none(), "{verdict:?}");
    // The same again is no new try.
    crate::support::run(&settings);
    let hash = bars(1).data_hash();
    let tried = Ledger::in_folder(dir.path()).tried(&hash, &settings).unwrap();
    assert_eq!((tried.trials.count, tried.unreadable_lines), (2, 0));
    assert!(settings_hash(&settings) != first.results[0].settings_hash);
}

/// Folds see no bar behind their training window: others behind it leave normaliser and policy as they are.
#[test]
fn a_fold_learns_nothing_of_later_bars() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    (settings.walk_forward.seeds, settings.training.epochs) = (1, 1);
    let first = run(new(&settings)).0.unwrap();
    let validated = first.folds[0].windows.validation.end;
    let mut arrays = crate::support::arrays(900, 1);
    for bar in validated..900 {
        for column in [&mut arrays.open, &mut arrays.high, &mut arrays.low, &mut arrays.close] {
            column[bar] *= 1.5;
        }
    }
    let other = foxhunt_market::BarSeries::from_arrays(None, arrays).unwrap();
    let second = run(WalkForward::new(&settings, other).unwrap()).0.unwrap();
    let policy = |outcome: &WalkForwardOutcome| {
        foxhunt::Policy::load(&outcome.run.folds().join("fold_001_seed_1")).unwrap()
    };
    assert_eq!(policy(&first).parameters(), policy(&second).parameters());
    assert_eq!(policy(&first).normaliser(), policy(&second).normaliser());
    assert_ne!(first.results[0].test, second.results[0].test);
}
