//! When a rank order is made new, and when the epochs of leaves start again.

use foxhunt_cuda::Stream;

use super::{GpuPrioritizedReplay, GpuReplayError, Resort};
use crate::error::OpError;
use crate::rank_sampler::cuda::MAX_CHANGES;

/// Half of what the 32 bits of a leaf's epoch can count, so that work captured before is never cut.
pub(super) const EPOCH_LIMIT: u64 = 1 << 31;

impl GpuPrioritizedReplay {
    /// Makes the rank order new if that is due, and says how many updates may follow before it is due again: what a
    /// graph of samples under [`Resort::Never`] may do. Without ranks there is no limit.
    ///
    /// # Errors
    /// [`OpError::NotEnoughRows`] when no row was ever offered, and driver errors.
    pub fn order_if_due(&mut self, stream: &Stream) -> Result<u64, GpuReplayError> {
        if self.offered == 0 {
            return Err(OpError::NotEnoughRows { have: 0, need: 1 }.into());
        }
        self.make_order(stream, Resort::WhenDue)?;
        Ok(match &self.ranks {
            Some(ranks) => ranks.resort_every.saturating_sub(ranks.updates_since.unwrap_or(0)).max(1),
            None => u64::MAX,
        })
    }

    /// Keeps epochs from running out. It queues something once in about 2^31 updates and orders; call it at least as often
    /// as that, between captured chains. It waits for nothing and changes no draw, no priority and no order.
    ///
    /// # Errors
    /// Driver errors.
    pub fn maintain(&mut self, stream: &Stream) -> Result<(), GpuReplayError> {
        if self.epochs >= self.epoch_limit {
            self.restart_epochs(stream)?;
        }
        Ok(())
    }

    /// Sets after how many updates and orders [`GpuPrioritizedReplay::maintain`] starts the epochs again, at most 2^31,
    /// which it is without this.
    pub fn set_epoch_limit(&mut self, limit: u64) {
        self.epoch_limit = limit.min(EPOCH_LIMIT);
    }

    /// Starts the epochs again now; priorities, sums, draws and the rank order stay as they are, and so does what is known
    /// to have changed since that was made.
    ///
    /// # Errors
    /// Driver errors.
    pub fn restart_epochs(&mut self, stream: &Stream) -> Result<(), GpuReplayError> {
        self.kernels.retag(stream, &self.tree, &self.control)?;
        self.epochs = 0;
        Ok(())
    }

    /// Makes the rank order new by a full sort now, whether due or not; for benches. Nothing without ranks.
    ///
    /// # Errors
    /// Driver errors.
    pub fn sort_order(&mut self, stream: &Stream) -> Result<(), GpuReplayError> {
        if let Some(ranks) = &mut self.ranks {
            ranks.device.sort(stream, &ranks.kernels, &self.tree, &self.control)?;
            ranks.changes_bound = 0;
        }
        Ok(())
    }

    pub(super) fn make_order(&mut self, stream: &Stream, resort: Resort) -> Result<(), GpuReplayError> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let due = match (resort, ranks.updates_since) {
            (_, None) | (Resort::Always | Resort::Repair(_), _) => true,
            (Resort::Never, _) => false,
            (Resort::WhenDue, Some(updates)) => updates >= ranks.resort_every,
        };
        if !due {
            return Ok(());
        }
        let bound = match resort {
            Resort::Repair(most) => most,
            _ if stream.is_capturing() => usize::MAX,
            _ => ranks.changes_bound,
        };
        if ranks.updates_since.is_none() || bound > MAX_CHANGES {
            ranks.device.sort(stream, &ranks.kernels, &self.tree, &self.control)?;
        } else {
            let programmatic = self.config.programmatic;
            let (kernels, changes) = (&ranks.kernels, &self.changes);
            ranks.device.repair(stream, kernels, &self.tree, &self.control, changes, bound, programmatic)?;
        }
        ranks.updates_since = Some(0);
        ranks.changes_bound = 0;
        ranks.sorts += 1;
        self.epochs = self.epochs.saturating_add(1);
        Ok(())
    }
}
