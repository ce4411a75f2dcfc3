//! One fold with one seed: an ordinary training run in its own folder, and the note that it is done.

use std::path::{Path, PathBuf};

use foxhunt_core::Settings;
use serde::{Deserialize, Serialize};

use super::{Fold, WalkForward};
use crate::MLError;
use crate::checkpoint::{defining, settings_hash};
use crate::error::told_changes;
use crate::evaluation::Metrics;
use crate::policy::Policy;
use crate::run_folder::{RunPaths, read_settings, write_json};
use crate::trainer::{StopReason, StopSignal, Trainer};

/// The file that says a run of a fold is done, and what it gave.
const DONE: &str = "fold.json";

/// What one fold gave with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldResult {
    /// The fold.
    pub fold: Fold,
    /// The seed.
    pub seed: u64,
    /// Hash of the bars.
    pub data_hash: String,
    /// [`settings_hash`] of the run's settings.
    pub settings_hash: String,
    /// Which engine ran it.
    pub engine: String,
    /// Epochs trained.
    pub epochs: u64,
    /// Updates applied.
    pub updates: u64,
    /// Epoch of the policy that was kept; none where no validation gave a score.
    pub best_epoch: Option<u64>,
    /// The agent on the training bars.
    pub train: Metrics,
    /// The agent on the validation bars.
    pub validation: Metrics,
    /// The agent on the test bars.
    pub test: Metrics,
}

/// The settings of one run.
pub(super) fn settings(whole: &Settings, fold: &Fold, seed: u64) -> Settings {
    let mut settings = whole.clone();
    settings.split.windows = Some(fold.windows.windows());
    settings.run.seed = seed;
    settings
}

fn folder(walk: &WalkForward<'_>, fold: &Fold, seed: u64) -> PathBuf {
    walk.run.paths().folds().join(format!("fold_{:03}_seed_{seed}", fold.number))
}

/// Runs one fold with one seed, or goes on with it, or reads what it gave before; and whether the last was so.
pub(super) fn run(
    walk: &WalkForward<'_>,
    fold: &Fold,
    seed: u64,
    threads: usize,
    data_hash: &str,
    stop: &dyn StopSignal,
) -> Result<(FoldResult, bool), MLError> {
    let folder = folder(walk, fold, seed);
    let mut settings = settings(&walk.settings, fold, seed);
    let done = folder.join(DONE);
    if let Some(result) = read(&done) {
        let same = (result.data_hash == data_hash)
            && (result.settings_hash == settings_hash(&settings))
            && result.fold == *fold;
        return if same { Ok((result, true)) } else { Err(foreign(&folder, &settings)) };
    }
    settings.run.threads = threads;
    let build = |settings: &Settings, prepared: &crate::trainer::Prepared| (walk.build)(settings, prepared);
    let begin = || Trainer::in_folder(&folder, &settings, walk.bars.clone(), &build);
    let trainer = if folder.is_dir() {
        match Trainer::resume_with(&folder, walk.bars.clone(), None, &build) {
            // Killed before its start was saved: there is nothing in it.
            Err(MLError::RunNotBegun { .. }) => {
                std::fs::remove_dir_all(&folder).map_err(|source| MLError::Io {
                    action: "remove",
                    path: folder.clone(),
                    source,
                })?;
                begin()
            }
            other => other,
        }
    } else {
        begin()
    }?;
    if settings_hash(trainer.settings()) != settings_hash(&settings) {
        return Err(foreign(&folder, &settings));
    }
    let engine = trainer.engine_name().to_owned();
    let outcome = trainer.part_of_one_try().stop_on(stop).run()?;
    if outcome.stop_reason == StopReason::Interrupted {
        return Err(MLError::Interrupted);
    }
    let windows = outcome.evaluation.map(|evaluation| evaluation.windows).unwrap_or_default();
    let [train, validation, test] = match windows.try_into() {
        Ok(windows) => {
            let windows: [crate::evaluation::WindowEvaluation; 3] = windows;
            windows.map(|window| window.agent.metrics)
        }
        Err(_) => return Err(foreign(&folder, &settings)),
    };
    let result = FoldResult {
        fold: fold.clone(),
        seed,
        data_hash: data_hash.to_owned(),
        settings_hash: settings_hash(&settings),
        engine,
        epochs: outcome.epochs,
        updates: outcome.updates,
        best_epoch: outcome.best_validation.map(|best| best.epoch),
        train,
        validation,
        test,
    };
    write_json(&done, &result)?;
    Ok((result, false))
}

/// The kept policies of one seed, in the order of folds.
pub(super) fn policies(walk: &WalkForward<'_>, folds: &[Fold], seed: u64) -> Result<Vec<Policy>, MLError> {
    folds.iter().map(|fold| Policy::load(&folder(walk, fold, seed))).collect()
}

/// What a finished run left; a file that cannot be read is as good as none, because the run can be resumed.
fn read(path: &Path) -> Option<FoldResult> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Why the run in `folder` cannot be the one of `asked`: by the keys that differ, where its settings can be read.
fn foreign(folder: &Path, asked: &Settings) -> MLError {
    let begun = read_settings(&RunPaths::new(folder)).ok().flatten();
    let changes = begun.map(|begun| defining(&begun).differences(&defining(asked))).unwrap_or_default();
    let reason = match changes[..] {
        [] => "it was run on other bars, with other settings or for other windows".to_owned(),
        _ => told_changes(&changes),
    };
    MLError::Checkpoint { path: folder.to_path_buf(), reason }
}
