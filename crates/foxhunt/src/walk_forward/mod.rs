//! Walk-forward: train on the past, test on what comes next, move on; several folds, several seeds, one verdict.
//!
//! The bars behind the first `walk_forward.first_share` are cut into folds, and the test windows follow each other to the
//! last bar. Each fold trains and validates before its test window, with `split.purge_bars` left out between training and
//! validation, and `split.purge_bars` and `walk_forward.embargo_bars` before the test window, so that no n-step target
//! reaches into what is judged. Normaliser and tick size are fitted on each fold's training bars alone. Every fold is
//! run with every seed, as an ordinary training run in a folder of its own; a fold that is done is not done again, one
//! that was stopped goes on from its checkpoint. Runs go on several threads at a time. Each is a function of its bars,
//! settings and seed alone, so how many go at a time, and in which order they end, changes no result.
//!
//! The test windows of one seed are then stitched into one account, and the mean of the seeds' accounts is judged: a
//! verdict on every seed, without a choice among them.

mod fold;
mod plan;
mod pool;
mod scores;
mod stitch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use foxhunt_core::Settings;
use foxhunt_core::settings::RunSettings;
use foxhunt_market::BarSeries;
use foxhunt_market::features::first_bar;
use foxhunt_ops::env_step::EnvParams;
use serde::{Deserialize, Serialize};

use crate::MLError;
use crate::engine_choice::{BuiltEngine, build_engine, memory_plan};
use crate::evaluation::{Verdict, WindowEvaluation, estimate, evaluate_window};
use crate::ledger::{Entry, Ledger};
use crate::run_folder::{RunFolder, RunPaths};
use crate::trainer::{NeverStop, Prepared, StopSignal};

pub use fold::FoldResult;
pub use plan::{Fold, plan};
pub use scores::{Score, Scores};
pub use stitch::stitch;

/// What the stitched test windows are called.
pub const WINDOW_NAME: &str = "walk-forward";

/// Makes the engine of a run on the thread that runs it.
pub type SharedBuilder<'b> =
    dyn Fn(&Settings, &Prepared) -> Result<BuiltEngine<'static>, MLError> + Sync + 'b;

/// What happens while folds run. Told from several threads.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// About to run.
    Starting {
        /// Folder of the whole.
        folder: PathBuf,
        /// Folds times seeds.
        runs: usize,
        /// Runs at a time.
        parallel: usize,
    },
    /// A run of one fold and seed is done, now or before.
    Done {
        /// Runs done so far.
        done: usize,
        /// Runs in all.
        runs: usize,
        /// What it gave.
        result: Box<FoldResult>,
        /// Whether it had been done before this process began.
        before: bool,
    },
    /// All runs are done, and the stitched accounts are judged.
    Judging,
}

/// A walk-forward run about to start or go on.
pub struct WalkForward<'a> {
    settings: Settings,
    bars: BarSeries,
    run: RunFolder,
    resumed: bool,
    build: &'a SharedBuilder<'a>,
    stop: &'a dyn StopSignal,
    progress: &'a (dyn Fn(Progress) + Sync),
}

/// One seed over all folds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// Agent and baselines over the stitched test windows. The cost ladder and the random policies are of the stitched
    /// account, too.
    pub evaluation: WindowEvaluation,
}

/// The end of a walk-forward run.
#[derive(Clone, Debug, PartialEq)]
pub struct WalkForwardOutcome {
    /// Where everything is.
    pub run: RunPaths,
    /// Hash of the bars.
    pub data_hash: String,
    /// The folds.
    pub folds: Vec<Fold>,
    /// One a fold and seed, folds first.
    pub results: Vec<FoldResult>,
    /// One a seed.
    pub seeds: Vec<SeedResult>,
    /// Place in `seeds` of the one with the median final equity (the lower of two), which stands for all where one
    /// account must be shown.
    pub median: usize,
    /// Mean over seeds of the stitched equity, f64 `[bars of all test windows]`.
    pub mean_equity: Vec<f64>,
    /// Interquartile means over folds and seeds.
    pub scores: Scores,
    /// The verdict on `mean_equity`.
    pub verdict: Verdict,
}

static NEVER: NeverStop = NeverStop;

impl WalkForward<'static> {
    /// Checks settings and folds, builds an engine to see that there can be one, and makes the run folder.
    ///
    /// # Errors
    /// [`MLError::Settings`], [`MLError::Market`] when there are too few bars for the folds, [`MLError::HostMemory`], what
    /// [`build_engine`] reports, and [`MLError::Io`] and [`MLError::WriteFailed`] when the folder cannot be written.
    pub fn new(settings: &Settings, bars: BarSeries) -> Result<Self, MLError> {
        settings.validate()?;
        let folds = plan(bars.len(), first_bar(&settings.execution), settings)?;
        memory_plan(settings, bars.len()).check()?;
        check_first(settings, &bars, &folds)?;
        let run = RunFolder::create(settings)?;
        Ok(Self::assemble(settings.clone(), bars, run, false))
    }

    /// Goes on with the walk-forward run in `folder`, on the same bars.
    ///
    /// # Errors
    /// As [`WalkForward::new`], [`MLError::RunLocked`], and [`MLError::Settings`] when the folder's settings cannot be
    /// read. Other bars are refused by the first fold that has begun.
    pub fn resume(folder: &Path, bars: BarSeries) -> Result<Self, MLError> {
        let run = RunFolder::open(folder)?;
        let path = run.paths().settings();
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| MLError::Io { action: "read", path, source })?;
        let settings = Settings::from_toml(&text)?;
        settings.validate()?;
        plan(bars.len(), first_bar(&settings.execution), &settings)?;
        Ok(Self::assemble(settings, bars, run, true))
    }

    fn assemble(settings: Settings, bars: BarSeries, run: RunFolder, resumed: bool) -> Self {
        Self {
            settings,
            bars,
            run,
            resumed,
            build: &|s, p| build_engine(s, p),
            stop: &NEVER,
            progress: &|_| {},
        }
    }
}

impl<'a> WalkForward<'a> {
    /// Whether `folder` is that of a walk-forward run.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        RunPaths::new(folder).folds().is_dir()
    }

    /// Sets who makes engines, who can ask to stop and who is told.
    #[must_use]
    pub fn with<'b>(
        self,
        build: &'b SharedBuilder<'b>,
        stop: &'b dyn StopSignal,
        progress: &'b (dyn Fn(Progress) + Sync),
    ) -> WalkForward<'b> {
        let Self { settings, bars, run, resumed, .. } = self;
        WalkForward { settings, bars, run, resumed, build, stop, progress }
    }

    /// The folder of the run.
    #[must_use]
    pub fn run_folder(&self) -> &RunFolder {
        &self.run
    }

    /// The settings of the run.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs every fold with every seed that is not done yet, and judges the whole.
    ///
    /// # Errors
    /// [`MLError::Interrupted`] when a stop was asked for, with every run saved; otherwise the first error of a run.
    pub fn run(&self) -> Result<WalkForwardOutcome, MLError> {
        let data_hash = self.bars.data_hash();
        let folds = plan(self.bars.len(), first_bar(&self.settings.execution), &self.settings)?;
        let paths = self.run.paths();
        std::fs::create_dir_all(paths.folds()).map_err(|source| MLError::Io {
            action: "create",
            path: paths.folds(),
            source,
        })?;
        let ledger = Ledger::in_folder(&self.settings.run.dir);
        if !self.resumed {
            ledger.append(&Entry::now(WINDOW_NAME, &data_hash, &self.settings, None))?;
        }
        let results = self.run_folds(&folds, &data_hash)?;
        (self.progress)(Progress::Judging);
        self.judge(&folds, results, data_hash, &ledger)
    }

    /// The seeds, from `run.seed` upwards.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.settings.run.seed;
        (0..self.settings.walk_forward.seeds as u64).map(move |i| first.wrapping_add(i) & (u64::MAX >> 1))
    }

    fn run_folds(&self, folds: &[Fold], data_hash: &str) -> Result<Vec<FoldResult>, MLError> {
        let jobs: Vec<(&Fold, u64)> =
            folds.iter().flat_map(|fold| self.seeds().map(move |seed| (fold, seed))).collect();
        let (parallel, threads) = concurrency(&self.settings, self.bars.len(), jobs.len());
        let folder = self.run.paths().folder().to_path_buf();
        (self.progress)(Progress::Starting { folder, runs: jobs.len(), parallel });
        let done = AtomicUsize::new(0);
        pool::run(jobs.len(), parallel, self.stop, &|job, stop| {
            let (fold, seed) = jobs[job];
            let (result, before) = fold::run(self, fold, seed, threads, data_hash, stop)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            (self.progress)(Progress::Done {
                done,
                runs: jobs.len(),
                result: Box::new(result.clone()),
                before,
            });
            Ok(result)
        })
    }

    fn judge(
        &self,
        folds: &[Fold],
        results: Vec<FoldResult>,
        data_hash: String,
        ledger: &Ledger,
    ) -> Result<WalkForwardOutcome, MLError> {
        let settings = &self.settings;
        let markets: Vec<Prepared> = folds
            .iter()
            .map(|fold| Prepared::fit(self.bars.clone(), &fold::settings(settings, fold, settings.run.seed)))
            .collect::<Result<_, _>>()?;
        let mut seeds = Vec::new();
        for seed in self.seeds() {
            let mut policies = fold::policies(self, folds, seed)?;
            let mut agent = |params: &EnvParams| stitch(&markets, &mut policies, params, self.stop);
            let evaluation = evaluate_window(
                &markets[0].market,
                WINDOW_NAME,
                &EnvParams::new(settings),
                &settings.evaluation,
                seed,
                self.stop,
                &mut agent,
            )?;
            seeds.push(SeedResult { seed, evaluation });
        }
        let mean_equity = mean_equity(&seeds);
        let window = folds[0].windows.test.start..folds[folds.len() - 1].windows.test.end;
        let time = &self.bars.time[window];
        let risk_free = settings.evaluation.risk_free_rate;
        let ratio = estimate(&mean_equity, time, risk_free).ok();
        ledger.append(&Entry::now(WINDOW_NAME, &data_hash, settings, ratio))?;
        let tried = ledger.tried(&data_hash, settings)?;
        let what = format!("test windows of {} folds, mean of {} seeds", folds.len(), seeds.len());
        let verdict = Verdict::of(&what, &mean_equity, time, risk_free, &tried);
        Ok(WalkForwardOutcome {
            run: self.run.paths().clone(),
            data_hash,
            folds: folds.to_vec(),
            scores: Scores::of(&results, settings.walk_forward.seeds, settings.run.seed),
            median: median(&seeds),
            results,
            seeds,
            mean_equity,
            verdict,
        })
    }
}

/// Prepares the first run as it will be and lets it go, so that what cannot run leaves no folder, and no line in the
/// ledger that would count as a try. It stands for all: runs share bars, device and sizes, and no fold trains on fewer
/// bars than the first.
fn check_first(settings: &Settings, bars: &BarSeries, folds: &[Fold]) -> Result<(), MLError> {
    let jobs = folds.len() * settings.walk_forward.seeds;
    let mut first = fold::settings(settings, &folds[0], settings.run.seed);
    first.run.threads = concurrency(settings, bars.len(), jobs).1;
    let prepared = Prepared::fit(bars.clone(), &first)?;
    build_engine(&first, &prepared).map(drop)
}

/// Runs at a time and engine threads of each. On the processor as many as there are cores, with one thread each, which
/// wastes nothing on waiting; fewer where memory does not hold as many. On a device one, unless asked for more: its
/// engine fills the device by itself.
#[must_use]
pub fn concurrency(settings: &Settings, n_bars: usize, jobs: usize) -> (usize, usize) {
    let cores = match settings.run.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let run = RunSettings { threads: 1, ..settings.run.clone() };
    let plan = memory_plan(&Settings { run, ..settings.clone() }, n_bars);
    let wanted = match settings.walk_forward.parallel {
        0 if plan.device.is_empty() => cores,
        0 => 1,
        parallel => parallel,
    };
    let fit = plan.fitting().unwrap_or(usize::MAX);
    let parallel = wanted.min(jobs).min(fit).max(1);
    (parallel, (cores / parallel).max(1))
}

fn mean_equity(seeds: &[SeedResult]) -> Vec<f64> {
    let share = 1.0 / seeds.len() as f64;
    let mut mean = vec![0.0; seeds[0].evaluation.agent.backtest.equity.len()];
    for seed in seeds {
        for (mean, equity) in mean.iter_mut().zip(&seed.evaluation.agent.backtest.equity) {
            *mean += share * equity;
        }
    }
    mean
}

fn median(seeds: &[SeedResult]) -> usize {
    let mut order: Vec<usize> = (0..seeds.len()).collect();
    let end = |i: &usize| seeds[*i].evaluation.agent.metrics.final_equity;
    order.sort_by(|a, b| end(a).total_cmp(&end(b)));
    order[(order.len() - 1) / 2]
}
