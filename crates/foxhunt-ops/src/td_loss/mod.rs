//! Targets of DQN, double DQN or Munchausen DQN, weighted Huber loss, its gradient with respect to Q, and |TD error|.
//!
//! **Contract.** For row `i` with branches `d = 1..D` (`D = 1` for the exposure and factored heads):
//!
//! - `a*_d = argmax Q_online(s')_d` (double) or `argmax Q_target(s')_d`, ties to the lowest index;
//! - `y = r` if terminated, else `r + discount * (1/D) sum_d Q_target(s')_d[a*_d]`;
//! - Munchausen instead: `y = r + alpha (1/D) sum_d clip(tau ln pi_d(a_d|s), l_0, 0)`, and unless terminated
//!   `+ discount * (1/D) sum_d V_d(s')`, each branch with the softmax policy and the soft value of its own
//!   ([`Munchausen`]);
//! - `delta_d = Q(s)_d[a_d] - y`, `td = (1/D) sum_d |delta_d|`;
//! - `L = (1/N) sum_i w_i (1/D) sum_d huber(delta_d)`, `huber(x) = x^2/2` for `|x| <= kappa`, else
//!   `kappa (|x| - kappa/2)`;
//! - `dL/dQ_d[a_d] = w_i clamp(delta_d, -kappa, kappa) / (D N)`, all other entries 0.
//!
//! `N` is given by the caller: the rows of **all** sub-batches of the update, so that unequal sub-batches still give
//! the mean over rows. Truncated rows bootstrap; only `terminated` stops it, and then `s'` is not looked at at all.
//!
//! **Not a number.** A NaN among the Q-values that choose `a*` of a row that bootstraps makes `y` NaN, so that it is
//! seen; it never just loses the argmax. Rows whose td is not finite are counted; their gradient and loss are what
//! the formulas give, and the caller must not apply the update.
//!
//! **n-step windows and Munchausen.** The bonus is that of the window's first action alone, whose log-policy the row's state
//! gives; the rewards inside the window stay as they were. So do the paper's authors in their Dopamine agent (google-research,
//! `munchausen_rl`), which adds it once to the replay's n-step reward.
//!
//! **Arithmetic.** f32 by row, a Munchausen target in f64 and rounded once, sums over branches in branch order; the rows' losses and TD errors of a sub-batch are
//! summed in f64 in the fixed tree of [`mod@crate::tree_sum`], and sub-batches are added in order.
//!
//! Sources: double DQN, arXiv 1509.06461; Huber as in the DQN paper (Nature 518, 2015); importance weights, arXiv
//! 1511.05952; branches, arXiv 1711.08946 equations 5 and 6, with Huber in place of the square; Munchausen DQN, arXiv
//! 2007.14430, with the mean over branches as there.
//! This module does not run a network and does not write priorities.

mod cpu;
pub mod cuda;
mod munchausen;
#[cfg(test)]
mod tests;

pub(crate) use cpu::{best_of, chosen_in_branch};
pub use cpu::{huber, huber_slope, td_loss};
pub use munchausen::Munchausen;

use foxhunt_core::ActionSpace;
use foxhunt_core::settings::LearnerSettings;

/// What a row's target is made of, beside its reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetRule {
    /// The target network's largest Q-value at the next state.
    Largest,
    /// The target network's Q-value at the online network's argmax (double DQN).
    Double,
    /// The target network's soft value, and a bonus for the action taken.
    Munchausen(Munchausen),
}

impl TargetRule {
    /// The rule of `settings`.
    #[must_use]
    pub fn of(settings: &LearnerSettings) -> Self {
        match settings {
            _ if settings.munchausen => Self::Munchausen(Munchausen::of(settings)),
            _ if settings.double => Self::Double,
            _ => Self::Largest,
        }
    }

    /// Whether the online network is asked about the next states.
    #[must_use]
    pub fn asks_online(self) -> bool {
        matches!(self, Self::Double)
    }

    /// Whether the target network is asked about the states.
    #[must_use]
    pub fn asks_target(self) -> bool {
        matches!(self, Self::Munchausen(_))
    }
}

/// What the loss is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TdLossParams {
    /// Which branches the Q-values have.
    pub head: ActionSpace,
    /// What targets are made of.
    pub rule: TargetRule,
    /// Where Huber turns linear (kappa), > 0.
    pub huber_delta: f32,
    /// Rows the loss is a mean over: those of every sub-batch of the update.
    pub rows_total: usize,
}

impl TdLossParams {
    /// What a row's loss counts in the mean: `1 / (D N)`.
    #[must_use]
    pub fn scale(&self) -> f32 {
        1.0 / (self.head.branches().len() as f32 * self.rows_total as f32)
    }
}

/// The inputs of a block of `B` rows. Each Q array is f32 `[B, n_outputs]`, row-major; the others are `[B]`. For
/// [`crate::distribution`] each Q-value is the atoms of an action.
#[derive(Clone, Copy, Debug)]
pub struct TdLossInput<'a> {
    /// Online network at the states.
    pub q: &'a [f32],
    /// Online network at the next states; read where [`TargetRule::asks_online`].
    pub q_next_online: &'a [f32],
    /// Target network at the states; read where [`TargetRule::asks_target`].
    pub q_target: &'a [f32],
    /// Target network at the next states.
    pub q_next_target: &'a [f32],
    /// Actions as stored: exposure indices for the exposure head, factored indices for the others.
    pub actions: &'a [u32],
    /// n-step rewards.
    pub rewards: &'a [f32],
    /// 1 where the window ends in a terminal state, else 0.
    pub terminated: &'a [f32],
    /// gamma to the power of the window's length.
    pub discounts: &'a [f32],
    /// Importance weights.
    pub weights: &'a [f32],
}

/// Sums over the rows of a sub-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TdLossSums {
    /// Sum over rows of weighted loss; divide by `rows_total` for the loss.
    pub weighted_loss: f64,
    /// Sum over rows of |TD error|.
    pub td_error: f64,
    /// Rows whose TD error is not finite.
    pub non_finite: u32,
}
