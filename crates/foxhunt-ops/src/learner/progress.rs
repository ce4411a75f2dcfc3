//! What a learner counts: since the start, and since the last report.

use super::{LearnerCounts, UpdateReport};
use crate::guard::GuardSums;

/// What an epoch of updates came to, beside the counts that run on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochSums {
    /// Loss and gradient norm of applied updates.
    pub guard: GuardSums,
    /// Sum of the mean |TD error| of applied updates.
    pub td_error: f64,
    /// Applied updates.
    pub updates: u64,
    /// Skipped updates.
    pub skipped: u64,
    /// Updates whose gradient norm was below the collapse threshold.
    pub collapsed_updates: u64,
    /// Updates whose loss was above the warning threshold.
    pub loss_clipped_updates: u64,
}

/// Counts and longest rows since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Counts of updates.
    pub counts: LearnerCounts,
    /// Most updates skipped one after the other.
    pub longest_skipped_row: u64,
    /// Most updates with a collapsed gradient one after the other.
    pub longest_collapsed_row: u64,
}

impl Progress {
    /// From the six counts in the order in which a device keeps them.
    pub(crate) fn from_words(words: [u64; 6]) -> Self {
        let [updates, skipped, skipped_in_row, collapsed_in_row, longest_skipped_row, longest_collapsed_row] =
            words;
        let counts = LearnerCounts { updates, skipped, skipped_in_row, collapsed_in_row };
        Self { counts, longest_skipped_row, longest_collapsed_row }
    }
}

impl EpochSums {
    /// Adds one update.
    pub fn add(&mut self, report: &UpdateReport<'_>) {
        self.collapsed_updates += u64::from(report.guard.halt_grad_collapse);
        self.loss_clipped_updates += u64::from(report.guard.halt_loss_clip);
        if report.applied {
            self.updates += 1;
            self.guard.add(report.loss, report.grad_norm);
            self.td_error += report.td_error;
        } else {
            self.skipped += 1;
        }
    }
}
