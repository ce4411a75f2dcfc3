//! Where a training loop stands: the part of a run that is neither in the engine nor in the settings.

use serde::{Deserialize, Serialize};

use super::early_stop::{AverageQ, EarlyStop};
use super::outcome::StopReason;
use crate::checkpoint::CheckpointNumber;

/// Everything the loop needs to go on in the middle of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Vector steps collected before the first epoch.
    pub warmed_up: u64,
    /// Epochs completed.
    pub epoch: u64,
    /// Vector steps of the current epoch.
    pub collected: u32,
    /// Updates, applied or skipped, of the current epoch.
    pub updated: u32,
    /// Whether the last epoch was counted and its validation, if one is due, has not been done.
    #[serde(default)]
    pub validating: bool,
    /// Early stop by validation, with the best so far.
    pub early_stop: EarlyStop,
    /// Early stop by the average of max-Q.
    pub average_q: AverageQ,
    /// Skipped updates that the guard policy has answered.
    pub answered_skips: u64,
    /// Rollbacks since the last epoch without a skipped update.
    pub rollbacks_in_row: u64,
    /// Why training ended, once it has.
    pub stopped: Option<StopReason>,
}

impl TrainerState {
    /// The number a checkpoint taken now gets. An epoch is completed by its validation, so one that still waits for it
    /// has the number of its last step.
    #[must_use]
    pub fn number(&self) -> CheckpointNumber {
        // A manifest can hold any counts; sums with them stop at the largest number.
        let epoch = self.epoch.saturating_sub(u64::from(self.validating));
        // Warm-up precedes the first epoch, so its steps number the checkpoints of epoch 0 alone.
        let warm_up = if epoch == 0 { self.warmed_up } else { 0 };
        CheckpointNumber {
            epoch,
            step: warm_up.saturating_add(u64::from(self.collected) + u64::from(self.updated)),
        }
    }

    /// The validation of the last epoch was done, or none was due.
    pub(super) fn end_epoch(&mut self) {
        (self.collected, self.updated, self.validating) = (0, 0, false);
    }
}
