//! What a training run leaves in the hands of its caller.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::early_stop::Best;
use crate::evaluation::Evaluation;
use crate::run_folder::RunPaths;

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The last epoch was done.
    Completed,
    /// Validation made no progress for `training.patience` validations.
    EarlyStop,
    /// Max-Q stood still for `monitor.average_q_stop.patience` epochs.
    AverageQ,
    /// A stop was requested; everything was saved first. Resuming goes on as if nothing had happened.
    Interrupted,
}

/// The end of a training run.
#[derive(Clone, Debug)]
pub struct TrainOutcome {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Epochs completed since the start of training.
    pub epochs: u64,
    /// Applied updates since the start of training.
    pub updates: u64,
    /// Env steps since the start of training.
    pub env_steps: u64,
    /// The best validation, whose policy is the one kept.
    pub best_validation: Option<Best>,
    /// The best policy and its baselines on every window. None when interrupted: the test split is looked at
    /// once, at the end.
    pub evaluation: Option<Evaluation>,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The files of the run.
    pub run: RunPaths,
}
