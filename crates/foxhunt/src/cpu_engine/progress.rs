//! The statistics of an epoch while it runs, and the counts that run from the start of training.
//!
//! Sums are f64 and everything here is part of a snapshot, so an epoch that was interrupted ends with the same
//! report as one that was not.

use foxhunt_core::record::{EpochStats, Fault, FaultKind};
use foxhunt_ops::env_step::EnvState;
use foxhunt_ops::guard::GuardSums;
use foxhunt_ops::q_monitor::{MaxQSums, QRange};

use super::arrays::{get_f64, get_u64, misfit, put_f64, put_u64};
use crate::MLError;
use crate::engine::{EngineStatus, Snapshot};
use crate::learner::{LearnerCounts, UpdateReport};

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// Counts from the start of training.
    pub(super) status: EngineStatus,
    /// The counting part of the epoch's report; its means are filled in by [`Progress::report`].
    stats: EpochStats,
    guard: GuardSums,
    td_error: f64,
    max_q: MaxQSums,
    /// Range of the last decisions' Q-values: min, mean, max; NaN where there was none.
    q_range: Option<[f64; 3]>,
    episode_log_return: f64,
    reward: f64,
    rewards: u64,
}

impl Progress {
    /// Q-values of one vector step's decisions, f32 `[n_envs, n_outputs]`.
    pub(super) fn decided(&mut self, q: &[f32], branches: &[usize], range: &QRange) {
        self.max_q.accumulate(q, branches);
        self.q_range = Some([range.min, range.mean, range.max].map(f64::from));
        self.stats.q_diverged |= range.diverged;
    }

    /// Decisions among them that had only NaN to choose from.
    pub(super) fn fell_back(&mut self, decisions: u32) {
        self.stats.fallback_decisions += u64::from(decisions);
    }

    /// One env step: its factored action and what became of it.
    pub(super) fn stepped(&mut self, action: u32, reward: f32, hold: bool, filled: bool) {
        self.status.env_steps += 1;
        self.stats.env_steps += 1;
        self.stats.actions[action as usize] += 1;
        let order = action as usize % self.stats.orders.len();
        if hold {
            self.stats.holds += 1;
        } else {
            self.stats.orders[order] += 1;
            self.stats.fills[order] += u64::from(filled);
        }
        if reward.is_finite() {
            self.reward += f64::from(reward);
            self.rewards += 1;
        }
    }

    /// The episode of `env` ended.
    pub(super) fn episode_ended(&mut self, env: &EnvState, start_equity: f64, floor: f64, ruined: bool) {
        self.stats.episodes += 1;
        self.stats.ruined_episodes += u64::from(ruined);
        self.episode_log_return += (env.equity.max(floor) / start_equity).ln();
    }

    /// Values of one kind were refused.
    pub(super) fn refused(&mut self, step: u64, kind: FaultKind, count: u32) {
        if count > 0 {
            self.stats.faults.push(Fault { step, kind, count });
        }
    }

    /// The learner's counts after an update.
    pub(super) fn counted(&mut self, counts: &LearnerCounts) {
        let status = &mut self.status;
        status.updates = counts.updates;
        status.skipped_updates = counts.skipped;
        status.longest_skipped_row = status.longest_skipped_row.max(counts.skipped_in_row);
        status.longest_collapsed_row = status.longest_collapsed_row.max(counts.collapsed_in_row);
    }

    /// One update was applied or skipped.
    pub(super) fn updated(&mut self, report: &UpdateReport<'_>) {
        let stats = &mut self.stats;
        stats.faults.extend_from_slice(report.faults);
        stats.collapsed_updates += u64::from(report.guard.halt_grad_collapse);
        stats.loss_clipped_updates += u64::from(report.guard.halt_loss_clip);
        if report.applied {
            stats.updates += 1;
            self.guard.add(report.loss, report.grad_norm);
            self.td_error += report.td_error;
        } else {
            stats.skipped_updates += 1;
        }
    }

    /// The report of the epoch so far, with the levels that `now` fills in; the next epoch starts from nothing.
    pub(super) fn report(&mut self, now: impl FnOnce(&mut EpochStats)) -> EpochStats {
        let (loss, grad_norm) = self.guard.means();
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64).filter(|m| m.is_finite());
        let quantile = |i: usize| self.q_range.map(|range| range[i]).filter(|q| q.is_finite());
        let mut stats = EpochStats {
            total_env_steps: self.status.env_steps,
            total_updates: self.status.updates,
            total_skipped_updates: self.status.skipped_updates,
            loss,
            grad_norm,
            td_error: mean(self.td_error, self.stats.updates),
            max_q: self.max_q.mean(),
            non_finite_q_decisions: self.max_q.non_finite_rows,
            q_min: quantile(0),
            q_mean: quantile(1),
            q_max: quantile(2),
            episode_log_return: mean(self.episode_log_return, self.stats.episodes),
            reward: mean(self.reward, self.rewards),
            ..std::mem::take(&mut self.stats)
        };
        now(&mut stats);
        *self = Self { status: self.status, ..Self::default() };
        stats
    }

    /// Arrays `progress.*`.
    pub(super) fn save(&self, snapshot: &mut Snapshot) {
        let Self { status, stats, guard, max_q, .. } = self;
        let counts = vec![
            status.env_steps,
            status.updates,
            status.skipped_updates,
            status.longest_skipped_row,
            status.longest_collapsed_row,
            stats.env_steps,
            stats.updates,
            stats.skipped_updates,
            stats.collapsed_updates,
            stats.loss_clipped_updates,
            stats.episodes,
            stats.ruined_episodes,
            stats.holds,
            u64::from(stats.q_diverged),
            guard.losses,
            guard.grad_norms,
            guard.non_finite,
            max_q.rows,
            max_q.non_finite_rows,
            self.rewards,
            u64::from(self.q_range.is_some()),
            stats.fallback_decisions,
        ];
        let [q_min, q_mean, q_max] = self.q_range.unwrap_or_default();
        let sums = vec![
            guard.loss,
            guard.grad_norm,
            max_q.sum,
            self.td_error,
            self.episode_log_return,
            self.reward,
            q_min,
            q_mean,
            q_max,
        ];
        put_u64(snapshot, "progress.counts", counts);
        put_f64(snapshot, "progress.sums", sums);
        put_u64(snapshot, "progress.actions", stats.actions.clone());
        put_u64(snapshot, "progress.orders", stats.orders.clone());
        put_u64(snapshot, "progress.fills", stats.fills.clone());
        let faults = stats.faults.iter();
        let faults = faults.flat_map(|f| [f.step, u64::from(f.kind as u32), u64::from(f.count)]).collect();
        put_u64(snapshot, "progress.faults", faults);
    }

    /// What [`Progress::save`] saved.
    pub(super) fn load(snapshot: &Snapshot) -> Result<Self, MLError> {
        let empty = EpochStats::default();
        let counts = get_u64(snapshot, "progress.counts", Some(22))?;
        let sums = get_f64(snapshot, "progress.sums", Some(9))?;
        let faults = get_u64(snapshot, "progress.faults", None)?.chunks(3).map(|words| match *words {
            [step, kind, count] => Ok(Fault { step, kind: fault_kind(kind)?, count: count as u32 }),
            _ => Err(misfit("progress.faults is cut off".to_owned())),
        });
        Ok(Self {
            status: EngineStatus {
                env_steps: counts[0],
                updates: counts[1],
                skipped_updates: counts[2],
                longest_skipped_row: counts[3],
                longest_collapsed_row: counts[4],
            },
            stats: EpochStats {
                env_steps: counts[5],
                updates: counts[6],
                skipped_updates: counts[7],
                collapsed_updates: counts[8],
                loss_clipped_updates: counts[9],
                episodes: counts[10],
                ruined_episodes: counts[11],
                holds: counts[12],
                q_diverged: counts[13] != 0,
                fallback_decisions: counts[21],
                actions: get_u64(snapshot, "progress.actions", Some(empty.actions.len()))?.to_vec(),
                orders: get_u64(snapshot, "progress.orders", Some(empty.orders.len()))?.to_vec(),
                fills: get_u64(snapshot, "progress.fills", Some(empty.fills.len()))?.to_vec(),
                faults: faults.collect::<Result<_, _>>()?,
                ..empty
            },
            guard: GuardSums {
                loss: sums[0],
                losses: counts[14],
                grad_norm: sums[1],
                grad_norms: counts[15],
                non_finite: counts[16],
            },
            max_q: MaxQSums { sum: sums[2], rows: counts[17], non_finite_rows: counts[18] },
            td_error: sums[3],
            episode_log_return: sums[4],
            reward: sums[5],
            rewards: counts[19],
            q_range: (counts[20] != 0).then(|| [sums[6], sums[7], sums[8]]),
        })
    }
}

fn fault_kind(word: u64) -> Result<FaultKind, MLError> {
    use FaultKind::{NonFiniteGradNorm, NonFiniteLoss, NonFiniteReward, NonFiniteState, NonFiniteTdError};
    [NonFiniteLoss, NonFiniteGradNorm, NonFiniteTdError, NonFiniteReward, NonFiniteState]
        .into_iter()
        .find(|kind| u64::from(*kind as u32) == word)
        .ok_or_else(|| misfit(format!("progress.faults has a kind {word}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxhunt_ops::guard::check;
    use foxhunt_ops::q_monitor::divergence;

    /// Every field differs from its default, so a field left out of save or load shows.
    #[test]
    fn progress_survives_a_snapshot_and_reports_the_same() {
        let mut progress = Progress::default();
        let q = [1.0, 2.0, 20_000.0];
        progress.decided(&q, &[3], &divergence(&q, 10_000.0));
        progress.decided(&[f32::NAN; 3], &[3], &divergence(&q, 10_000.0));
        progress.fell_back(1);
        progress.stepped(13, 0.5, false, true);
        progress.stepped(14, 0.25, false, false);
        progress.stepped(22, 0.0, true, false);
        progress.episode_ended(&EnvState { equity: 50.0, ..EnvState::default() }, 100.0, 1.0, true);
        progress.refused(3, FaultKind::NonFiniteReward, 2);
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
        let report = progress.report(|_| ());
        assert_eq!(back.report(|_| ()), report);
        assert_eq!(report.max_q, Some(20_000.0));
        assert_eq!((report.non_finite_q_decisions, report.fallback_decisions), (1, 1));
        assert_eq!((report.q_min, report.q_max, report.q_diverged), (Some(1.0), Some(20_000.0), true));
        assert_eq!((report.loss, report.td_error), (Some(2e6), Some(0.75)));
        assert_eq!((report.collapsed_updates, report.loss_clipped_updates), (2, 1));
        assert_eq!((report.updates, report.skipped_updates), (1, 1));
        assert_eq!((report.total_updates, report.total_skipped_updates), (7, 3));
        assert_eq!((progress.status.longest_skipped_row, progress.status.longest_collapsed_row), (1, 4));
        assert_eq!((report.holds, report.orders[4], report.fills[4], report.fills[5]), (1, 1, 1, 0));
        assert_eq!((report.reward, report.episode_log_return), (Some(0.25), Some(0.5_f64.ln())));
        assert_eq!(report.faults, [Fault { step: 3, kind: FaultKind::NonFiniteReward, count: 2 }, fault]);

        let next = progress.report(|_| ());
        assert_eq!((next.total_env_steps, next.env_steps, next.loss, next.max_q), (3, 0, None, None));
        assert!(next.faults.is_empty() && next.actions.iter().all(|count| *count == 0));
    }
}
