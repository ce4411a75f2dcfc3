//! What the trainer tells while it runs. Progress bars, metrics files and gauges hang on here.
//!
//! An observer only listens: it cannot fail, and nothing it does can change a result.

use std::fmt;
use std::path::PathBuf;

use foxhunt_core::record::EpochStats;
use serde::{Deserialize, Serialize};

use super::outcome::TrainOutcome;
use crate::checkpoint::CheckpointFault;
use crate::engine::EngineStatus;
use crate::run_folder::RunPaths;

/// Listens to a training run. Every method does nothing unless written.
pub trait TrainObserver {
    /// The run begins, or goes on.
    fn on_start(&mut self, _start: &StartReport) {}
    /// An epoch is complete.
    fn on_epoch(&mut self, _epoch: &EpochReport) {}
    /// A validation is done.
    fn on_validation(&mut self, _validation: &ValidationReport) {}
    /// A checkpoint is on the disk.
    fn on_checkpoint(&mut self, _checkpoint: &CheckpointReport) {}
    /// The last evaluation made a decision. Called very often where the network is small.
    fn on_evaluation(&mut self, _evaluation: &EvaluationReport) {}
    /// Something that does not end the run but should be seen.
    fn on_warning(&mut self, _warning: &Warning) {}
    /// The run ended without an error.
    fn on_finish(&mut self, _outcome: &TrainOutcome) {}
}

impl<T: TrainObserver + ?Sized> TrainObserver for &mut T {
    fn on_start(&mut self, start: &StartReport) {
        (**self).on_start(start);
    }
    fn on_epoch(&mut self, epoch: &EpochReport) {
        (**self).on_epoch(epoch);
    }
    fn on_validation(&mut self, validation: &ValidationReport) {
        (**self).on_validation(validation);
    }
    fn on_checkpoint(&mut self, checkpoint: &CheckpointReport) {
        (**self).on_checkpoint(checkpoint);
    }
    fn on_evaluation(&mut self, evaluation: &EvaluationReport) {
        (**self).on_evaluation(evaluation);
    }
    fn on_warning(&mut self, warning: &Warning) {
        (**self).on_warning(warning);
    }
    fn on_finish(&mut self, outcome: &TrainOutcome) {
        (**self).on_finish(outcome);
    }
}

/// The beginning of a run.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// Name of the engine.
    pub engine: &'static str,
    /// Epochs completed before: above 0, or mid-epoch, when resumed.
    pub epoch: u64,
    /// Whether a checkpoint was loaded.
    pub resumed: bool,
    /// Env steps and updates done before.
    pub done: EngineStatus,
    /// Epochs the run will have at most.
    pub epochs: u64,
    /// The files of the run.
    pub run: RunPaths,
}

/// One completed epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Epochs the run will have at most.
    pub epochs: u64,
    /// Wall-clock seconds since the start of training in this process.
    pub wall_s: f64,
    /// Rate of env steps by the time the engine worked on them ([`WorkTimes`](crate::engine::WorkTimes)); none when nothing was collected in this process.
    pub env_steps_per_s: Option<f64>,
    /// Rate of updates, applied or skipped, by the time the engine worked on them; none when there were none.
    pub updates_per_s: Option<f64>,
    /// Rollbacks to the last good copy in this epoch.
    pub rollbacks: u64,
    /// What the engine counted.
    #[serde(flatten)]
    pub stats: EpochStats,
}

/// One validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationReport {
    /// Epoch it followed.
    pub epoch: u64,
    /// `ln(final equity / start equity)` on the validation split, after costs; none when it is not finite.
    pub net_log_return: Option<f64>,
    /// Turnover, in multiples of equity.
    pub turnover: Option<f64>,
    /// Fills of the greedy policy.
    pub fills: u64,
    /// Whether it is the best so far.
    pub best: bool,
    /// Validations since the best.
    pub without_progress: u32,
}

/// One saved checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Epochs completed.
    pub epoch: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of its arrays.
    pub bytes: u64,
    /// Wall-clock seconds it took to take and save.
    pub wall_s: f64,
}

/// How far the last evaluation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationReport {
    /// Decisions made.
    pub decisions: u64,
    /// Decisions there will be, fewer where an account is ruined.
    pub of: u64,
}

/// Something that does not end the run but should be seen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The engine asked for is not there and another one runs.
    EngineFallback {
        /// Why.
        reason: String,
    },
    /// A newer checkpoint was passed over.
    CheckpointSkipped {
        /// Its folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: CheckpointFault,
    },
    /// The process that held this run before did not end properly.
    StaleLock {
        /// What it wrote about itself.
        pid: String,
    },
    /// Updates were skipped for a non-finite loss or gradient.
    SkippedUpdates {
        /// In which epoch.
        epoch: u64,
        /// How many.
        count: u64,
    },
    /// The guard went back to the last good copy.
    RolledBack {
        /// In which epoch.
        epoch: u64,
        /// Which in a row.
        in_row: u64,
    },
    /// Transitions were refused for a non-finite reward or state.
    RefusedTransitions {
        /// In which epoch.
        epoch: u64,
        /// How many values.
        count: u64,
    },
    /// Losses were above `guard.loss_threshold`. Told at most once in ten epochs.
    LargeLoss {
        /// In which epoch.
        epoch: u64,
        /// In how many updates.
        updates: u64,
    },
    /// A Q-value passed `monitor.divergence_threshold`. Told at most once in ten epochs.
    Diverged {
        /// In which epoch.
        epoch: u64,
    },
    /// Decisions fell back, because every Q-value to choose by was NaN.
    Fallbacks {
        /// In which epoch.
        epoch: u64,
        /// How many decisions.
        decisions: u64,
    },
    /// A checkpoint could not be saved, and the run goes on because it was told to.
    CheckpointLost {
        /// Why.
        reason: String,
    },
    /// Lines of the metrics file were lost.
    MetricsLost {
        /// Why.
        reason: String,
    },
    /// The test split had been looked at before this run was extended.
    TestSeenBefore,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EngineFallback { reason } => write!(f, "{reason}"),
            Self::CheckpointSkipped { path, fault } => {
                write!(f, "checkpoint {} was passed over: {fault}", path.display())
            }
            Self::StaleLock { pid } => {
                write!(f, "process {pid}, which held this run before, did not end properly")
            }
            Self::SkippedUpdates { epoch, count } => {
                write!(f, "epoch {epoch}: {count} updates skipped for a non-finite loss or gradient")
            }
            Self::RolledBack { epoch, in_row } => {
                write!(f, "epoch {epoch}: went back to the last good network (rollback {in_row} in a row)")
            }
            Self::RefusedTransitions { epoch, count } => {
                write!(f, "epoch {epoch}: {count} non-finite rewards or states refused")
            }
            Self::LargeLoss { epoch, updates } => {
                write!(f, "epoch {epoch}: the loss of {updates} updates was above the threshold")
            }
            Self::Diverged { epoch } => write!(f, "epoch {epoch}: Q-values passed the divergence threshold"),
            Self::Fallbacks { epoch, decisions } => {
                write!(f, "epoch {epoch}: {decisions} decisions fell back to flat, their Q-values were NaN")
            }
            Self::CheckpointLost { reason } => write!(f, "a checkpoint could not be saved: {reason}"),
            Self::MetricsLost { reason } => write!(f, "metrics were lost: {reason}"),
            Self::TestSeenBefore => {
                write!(f, "the test split was already looked at before this run was extended")
            }
        }
    }
}
