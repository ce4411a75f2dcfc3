//! Munchausen targets: the target network's softmax policy judges the next state, and its log-policy pays a bonus.
//!
//! `V(s) = tau ln sum_a exp(Q_target(s)[a] / tau)`, which is `sum_a pi(a|s) (Q_target(s)[a] - tau ln pi(a|s))` for
//! `pi = softmax(Q_target / tau)`, and `tau ln pi(a|s) = Q_target(s)[a] - V(s)`: one logarithm a row and state, and nothing
//! to lose where a probability is 0. Twin: `munchausen.cuh`.

use foxhunt_core::settings::LearnerSettings;

use crate::power::{exp_portable, ln_portable};

/// The three numbers of arXiv 2007.14430.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Munchausen {
    /// Share of the log-policy that is paid.
    pub alpha: f64,
    /// Temperature of the policy, in units of Q.
    pub tau: f64,
    /// Least bonus before `alpha`, `l_0` of the paper, at most 0.
    pub floor: f64,
}

impl Munchausen {
    pub(super) fn of(settings: &LearnerSettings) -> Self {
        Self {
            alpha: settings.munchausen_alpha,
            tau: settings.munchausen_tau,
            floor: settings.munchausen_floor,
        }
    }

    /// `tau ln sum exp(q / tau)` over the actions of a branch; NaN with a NaN among them.
    ///
    /// The sum runs in eight lanes, value `i` in lane `i % 8`, which are folded 4, 2, 1 apart.
    #[must_use]
    pub fn soft_value(&self, q: &[f32]) -> f64 {
        let mut most = f32::NEG_INFINITY;
        for &q in q {
            if q > most {
                most = q;
            }
        }
        let most = f64::from(most);
        let mut lanes = [0.0; 8];
        for (i, &q) in q.iter().enumerate() {
            lanes[i % 8] += exp_portable((f64::from(q) - most) / self.tau);
        }
        for half in [4, 2, 1] {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
        }
        most + self.tau * ln_portable(lanes[0])
    }

    /// `tau ln pi(action|s)` between the floor and 0; NaN stays NaN.
    #[must_use]
    pub fn bonus(&self, q: &[f32], action: usize) -> f64 {
        let log_policy = f64::from(q[action]) - self.soft_value(q);
        if log_policy < self.floor {
            self.floor
        } else if log_policy > 0.0 {
            0.0
        } else {
            log_policy
        }
    }
}
