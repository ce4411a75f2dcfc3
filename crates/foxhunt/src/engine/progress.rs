//! What an engine has learned since the last report, and the counts that run from the start of training.
//!
//! Sums are f64 and everything here is part of a snapshot, so an epoch that was interrupted ends with the same
//! report as one that was not. What environments counted is the collector's: [`CollectStats`].

use foxhunt_core::record::{EpochStats, Fault};
use foxhunt_ops::collect::CollectStats;
use foxhunt_ops::guard::GuardSums;
use foxhunt_ops::learner::EpochSums;

use super::arrays::{fault_words, faults_of, get_counts, get_f64, put_f64, put_u64};
use crate::MLError;
use crate::engine::{EngineStatus, Snapshot};
use crate::learner::{LearnerCounts, UpdateReport};

/// Most refusals of updates listed between two reports; those beyond are only counted.
pub(crate) const MAX_FAULTS: usize = 4096;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Counts from the start of training.
    pub(crate) status: EngineStatus,
    /// Updates since the last report.
    pub(crate) sums: EpochSums,
    /// What updates refused since the last report, in order.
    pub(crate) faults: Vec<Fault>,
    /// Refusals beyond those that could be listed.
    pub(crate) faults_lost: u64,
}

impl Progress {
    /// The learner's counts after an update.
    pub(crate) fn counted(&mut self, counts: &LearnerCounts) {
        let status = &mut self.status;
        status.updates = counts.updates;
        status.skipped_updates = counts.skipped;
        status.longest_skipped_row = status.longest_skipped_row.max(counts.skipped_in_row);
        status.longest_collapsed_row = status.longest_collapsed_row.max(counts.collapsed_in_row);
    }

    /// One update was applied or skipped.
    pub(crate) fn updated(&mut self, report: &UpdateReport<'_>) {
        let room = MAX_FAULTS.saturating_sub(self.faults.len()).min(report.faults.len());
        self.faults.extend_from_slice(&report.faults[..room]);
        self.faults_lost += (report.faults.len() - room) as u64;
        self.sums.add(report);
    }

    /// The report of the epoch so far, with what the collector counted and the levels that `now` fills in; the next
    /// epoch starts from nothing.
    pub(crate) fn report(
        &mut self,
        collected: CollectStats,
        now: impl FnOnce(&mut EpochStats),
    ) -> EpochStats {
        let Self { status, sums, faults, faults_lost } =
            std::mem::replace(self, Self { status: self.status, ..Self::default() });
        let (loss, grad_norm) = sums.guard.means();
        let td_error = (sums.updates > 0).then(|| sums.td_error / sums.updates as f64);
        let mut all_faults = collected.faults;
        all_faults.extend(faults);
        let mut stats = EpochStats {
            total_env_steps: status.env_steps,
            total_updates: status.updates,
            total_skipped_updates: status.skipped_updates,
            env_steps: collected.env_steps,
            updates: sums.updates,
            skipped_updates: sums.skipped,
            loss,
            grad_norm,
            td_error: td_error.filter(|mean| mean.is_finite()),
            max_q: collected.max_q,
            non_finite_q_decisions: collected.max_q_non_finite_rows,
            fallback_decisions: collected.fallbacks,
            q_min: collected.q_min,
            q_mean: collected.q_mean,
            q_max: collected.q_max,
            q_diverged: collected.q_diverged,
            collapsed_updates: sums.collapsed_updates,
            loss_clipped_updates: sums.loss_clipped_updates,
            episodes: collected.episodes,
            ruined_episodes: collected.ruined_episodes,
            episode_log_return: collected.episode_log_return,
            reward: collected.reward,
            actions: collected.actions,
            orders: collected.orders,
            fills: collected.fills,
            holds: collected.holds,
            faults: all_faults,
            faults_lost: collected.faults_lost + faults_lost,
            ..EpochStats::default()
        };
        now(&mut stats);
        stats
    }

    /// Arrays `progress.*`.
    pub(crate) fn save(&self, snapshot: &mut Snapshot) {
        let Self { status, sums, faults, faults_lost } = self;
        let guard = &sums.guard;
        let counts = vec![
            status.env_steps,
            status.updates,
            status.skipped_updates,
            status.longest_skipped_row,
            status.longest_collapsed_row,
            sums.updates,
            sums.skipped,
            sums.collapsed_updates,
            sums.loss_clipped_updates,
            guard.losses,
            guard.grad_norms,
            guard.non_finite,
            *faults_lost,
        ];
        put_u64(snapshot, "progress.counts", counts);
        put_f64(snapshot, "progress.sums", vec![guard.loss, guard.grad_norm, sums.td_error]);
        put_u64(snapshot, "progress.faults", fault_words(faults));
    }

    /// What [`Progress::save`] saved.
    pub(crate) fn load(snapshot: &Snapshot) -> Result<Self, MLError> {
        let counts = get_counts(snapshot, "progress.counts", Some(13))?;
        let sums = get_f64(snapshot, "progress.sums", Some(3))?;
        Ok(Self {
            status: EngineStatus {
                env_steps: counts[0],
                updates: counts[1],
                skipped_updates: counts[2],
                longest_skipped_row: counts[3],
                longest_collapsed_row: counts[4],
            },
            sums: EpochSums {
                updates: counts[5],
                skipped: counts[6],
                collapsed_updates: counts[7],
                loss_clipped_updates: counts[8],
                guard: GuardSums {
                    loss: sums[0],
                    losses: counts[9],
                    grad_norm: sums[1],
                    grad_norms: counts[10],
                    non_finite: counts[11],
                },
                td_error: sums[2],
            },
            faults: faults_of(snapshot, "progress.faults")?,
            faults_lost: counts[12],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxhunt_core::record::FaultKind;
    use foxhunt_ops::collect::{Tally, count};
    use foxhunt_ops::guard::check;

    /// Every field differs from its default, so a field left out of save or load shows.
    #[test]
    fn progress_survives_a_snapshot_and_reports_the_same() {
        let mut progress = Progress { faults_lost: 5, ..Progress::default() };
        progress.status.env_steps = 3;
        let report = |applied, loss, faults| UpdateReport {
            applied,
            loss,
            grad_norm: 1e-9,
            td_error: 0.75,
            learning_rate: 1e-3,
            guard: check(loss, 1e-9, 1e-6, 1e6, false, 1),
            td: &[],
            faults,
            non_finite_parameters: Vec::new(),
        };
        let mut counts = LearnerCounts { updates: 7, skipped: 2, skipped_in_row: 0, collapsed_in_row: 4 };
        progress.updated(&report(true, 2e6, &[]));
        progress.counted(&counts);
        counts = LearnerCounts { skipped: 3, skipped_in_row: 1, ..counts };
        let fault = Fault { step: 11, kind: FaultKind::NonFiniteLoss, count: 1 };
        progress.updated(&report(false, f32::NAN, &[fault]));
        progress.counted(&counts);

        let mut snapshot = Snapshot::default();
        progress.save(&mut snapshot);
        let mut back = Progress::load(&snapshot).unwrap();
        assert_eq!(back, progress);
        let mut tally = Tally::new(1);
        tally.env_steps = 3;
        tally.counts[count::HOLDS] = 1;
        tally.counts[count::FALLBACKS] = 2;
        tally.counts[count::Q_NON_FINITE_ROWS] = 4;
        let reward_fault = Fault { step: 3, kind: FaultKind::NonFiniteReward, count: 2 };
        tally.faults.push(reward_fault);
        tally.faults_lost = 1;
        let report = progress.report(tally.stats(), |_| ());
        assert_eq!(back.report(tally.stats(), |_| ()), report);
        assert_eq!((report.loss, report.td_error), (Some(2e6), Some(0.75)));
        assert_eq!((report.collapsed_updates, report.loss_clipped_updates), (2, 1));
        assert_eq!((report.updates, report.skipped_updates), (1, 1));
        assert_eq!((report.total_updates, report.total_skipped_updates), (7, 3));
        assert_eq!((progress.status.longest_skipped_row, progress.status.longest_collapsed_row), (1, 4));
        assert_eq!((report.env_steps, report.total_env_steps, report.holds), (3, 3, 1));
        assert_eq!((report.fallback_decisions, report.non_finite_q_decisions), (2, 4));
        assert_eq!((report.faults, report.faults_lost), (vec![reward_fault, fault], 6));

        let next = progress.report(Tally::new(1).stats(), |_| ());
        assert_eq!((next.total_env_steps, next.env_steps, next.loss, next.max_q), (3, 0, None, None));
        assert!(next.faults.is_empty() && next.actions.iter().all(|count| *count == 0));
    }
}
