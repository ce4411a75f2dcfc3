//! What the host does about updates that the guard skipped: stop, go on for a while, or roll back.
//!
//! A non-finite update was never applied, whatever is decided here; the engine is safe alone.

use foxhunt_core::record::EpochStats;
use foxhunt_core::settings::NanPolicy;

use super::{Trainer, Warning};
use crate::MLError;

impl Trainer<'_> {
    /// Compares the guard's counts with its limits, after each chunk of updates and after the readback.
    pub(super) fn answer_guard(&mut self) -> Result<(), MLError> {
        let guard = &self.settings.guard;
        let status = self.engine.status();
        let halt = |reason: String| Err(MLError::Halted { update: status.updates, reason });
        if status.longest_collapsed_row >= guard.collapse_patience {
            let row = status.longest_collapsed_row;
            return halt(format!(
                "the gradient norm was below the collapse threshold in {row} updates in a row"
            ));
        }

        let fresh = status.skipped_updates.saturating_sub(self.state.answered_skips);
        self.state.answered_skips = status.skipped_updates;
        match guard.nan_policy {
            _ if fresh == 0 => Ok(()),
            NanPolicy::Stop => halt(format!("non-finite loss or gradient in {fresh} updates, none applied")),
            NanPolicy::Skip if status.longest_skipped_row < guard.max_skips_in_row => Ok(()),
            NanPolicy::Skip => {
                let row = status.longest_skipped_row;
                halt(format!("non-finite loss or gradient in {row} updates in a row, none applied"))
            }
            NanPolicy::Rollback if self.state.rollbacks_in_row >= guard.max_skips_in_row => {
                let rollbacks = self.state.rollbacks_in_row;
                halt(format!("non-finite loss or gradient again after {rollbacks} rollbacks in a row"))
            }
            NanPolicy::Rollback => {
                self.engine.roll_back()?;
                self.state.rollbacks_in_row += 1;
                self.clock.rollbacks += 1;
                let (epoch, in_row) = (self.state.epoch + 1, self.state.rollbacks_in_row);
                self.warn(Warning::RolledBack { epoch, in_row });
                Ok(())
            }
        }
    }

    /// An epoch without a skipped update leaves a good network behind and ends a row of rollbacks.
    pub(super) fn keep_good_copy(&mut self, stats: &EpochStats) -> Result<(), MLError> {
        if self.settings.guard.nan_policy == NanPolicy::Rollback && stats.skipped_updates == 0 {
            self.state.rollbacks_in_row = 0;
            self.engine.keep_good_copy()?;
        }
        Ok(())
    }
}
