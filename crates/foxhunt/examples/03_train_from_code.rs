//! A training run from code: settings, bars, someone who watches, and what it leaves.
//!
//! `cargo run -p foxhunt --example 03_train_from_code`
//!
//! The market is a synthetic one that returns to its mean, small enough for a few seconds. A run of your own differs in
//! its bars alone: `foxhunt_market::load` reads them from a file.
#![allow(clippy::print_stdout)]

use std::path::Path;

use foxhunt::trainer::{EpochReport, TrainObserver, ValidationReport};
use foxhunt::{MLError, Policy, Settings, TrainOutcome, Trainer};
use foxhunt_market::synthetic::MeanReverting;

fn main() -> Result<(), MLError> {
    let outcome = train(Path::new("runs"))?;
    println!("{:?} after {} updates", outcome.stop_reason, outcome.updates);
    let Some(evaluation) = &outcome.evaluation else { return Ok(()) };
    for window in &evaluation.windows {
        println!("{:<11} net log return {:+.4}", window.name, window.agent.backtest.net_log_return());
    }
    let policy = Policy::load(outcome.run.folder())?;
    println!("{} parameters in {}", policy.parameters().len(), outcome.run.policy().display());
    Ok(())
}

fn train(runs: &Path) -> Result<TrainOutcome, MLError> {
    let mut settings = Settings::default();
    settings.run.dir = runs.to_path_buf();
    settings.network.hidden = vec![32, 32];
    settings.env.n_envs = 16;
    settings.training.epochs = 8;
    settings.training.updates_per_epoch = 32;
    settings.evaluation.random_policies = 2;
    let market = MeanReverting { n_bars: 3_000, seed: 1, phi: 0.9, volatility: 0.005, mean_price: 100.0 };
    Trainer::new(&settings, market.bars()?)?.observe(Print).run()
}

/// Prints what it sees. Observers only listen: nothing they do can change a result.
struct Print;

impl TrainObserver for Print {
    fn on_epoch(&mut self, epoch: &EpochReport) {
        println!("epoch {}/{}: loss {:?}", epoch.epoch, epoch.epochs, epoch.stats.loss);
    }

    fn on_validation(&mut self, validation: &ValidationReport) {
        println!("  validation: net log return {:?}, best {}", validation.net_log_return, validation.best);
    }
}

#[test]
fn a_run_trains_and_leaves_a_policy() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = train(folder.path()).unwrap();
    assert_eq!(outcome.updates, 8 * 32);
    assert_eq!(outcome.evaluation.as_ref().unwrap().windows.len(), 3);
    Policy::load(outcome.run.folder()).unwrap();
}
