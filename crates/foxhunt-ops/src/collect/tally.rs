//! What a collector counts between two reports.

use foxhunt_core::action::N_FACTORED;
use foxhunt_core::record::Fault;
use foxhunt_cuda::shared_struct;

use super::GROUP;
use crate::q_monitor::from_order_key;

/// Places of the counts in [`Tally::counts`].
pub mod count {
    /// Decisions by factored action, 45 places.
    pub const ACTIONS: usize = 0;
    /// Orders sent, by order type then urgency, 9 places.
    pub const ORDERS: usize = 45;
    /// Orders filled in whole or part, 9 places.
    pub const FILLS: usize = 54;
    /// Decisions that held the position.
    pub const HOLDS: usize = 63;
    /// Rewards in the sum.
    pub const REWARDS: usize = 64;
    /// Episodes that ended.
    pub const EPISODES: usize = 65;
    /// Episodes that ended in ruin.
    pub const RUINED: usize = 66;
    /// Decisions in the sum of max-Q.
    pub const Q_ROWS: usize = 67;
    /// Decisions left out of it because their max-Q was not finite.
    pub const Q_NON_FINITE_ROWS: usize = 68;
    /// Decisions that fell back to Flat because no legal Q-value was a number.
    pub const FALLBACKS: usize = 69;
    /// Groups and steps whose Q-values passed the divergence threshold or were not finite.
    pub const DIVERGED: usize = 70;
    /// How many there are.
    pub const LEN: usize = 71;
}

shared_struct! {
    /// Sums of one group of environments. The first three are of the epoch, the rest of the last decisions.
    #[derive(PartialEq)]
    pub struct Group {
        /// Sum of finite rewards.
        pub reward: f64,
        /// Sum of log returns of equity over the episodes that ended.
        pub episode_log_return: f64,
        /// Sum of finite max-Q.
        pub max_q: f64,
        /// Sum of finite Q-values.
        pub q_sum: f64,
        /// Smallest finite Q-value as an [`order_key`](crate::q_monitor::order_key); `u32::MAX` without one.
        pub q_low: u32,
        /// Largest finite Q-value as an [`order_key`](crate::q_monitor::order_key); 0 without one.
        pub q_high: u32,
        /// Finite Q-values.
        pub q_finite: u32,
        /// Q-values that are NaN or infinite.
        pub q_non_finite: u32,
    }
}

impl Group {
    /// Sums of nothing.
    pub const EMPTY: Self = Self {
        reward: 0.0,
        episode_log_return: 0.0,
        max_q: 0.0,
        q_sum: 0.0,
        q_low: u32::MAX,
        q_high: 0,
        q_finite: 0,
        q_non_finite: 0,
    };
}

/// Sum of a group's values in a fixed tree: value i takes i + 16, then i + 8, down to i + 1.
#[must_use]
pub fn tree_sum(mut values: [f64; GROUP]) -> f64 {
    let mut half = GROUP / 2;
    while half > 0 {
        for i in 0..half {
            values[i] += values[i + half];
        }
        half /= 2;
    }
    values[0]
}

/// Counts and sums since the last report, in the form both engines keep them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// Env steps.
    pub env_steps: u64,
    /// u64 [[`count::LEN`]]; see [`count`].
    pub counts: Vec<u64>,
    /// One for each 32 environments.
    pub groups: Vec<Group>,
    /// Refusals in order.
    pub faults: Vec<Fault>,
    /// Refusals beyond the room a device has for them.
    pub faults_lost: u64,
}

impl Tally {
    /// Nothing counted yet, over `n_groups` groups.
    #[must_use]
    pub fn new(n_groups: usize) -> Self {
        Self {
            env_steps: 0,
            counts: vec![0; count::LEN],
            groups: vec![Group::EMPTY; n_groups],
            faults: Vec::new(),
            faults_lost: 0,
        }
    }

    /// The report.
    #[must_use]
    pub fn stats(&self) -> CollectStats {
        let sum = |of: fn(&Group) -> f64| self.groups.iter().fold(0.0, |sum, group| sum + of(group));
        let place = |at: usize| self.counts[at];
        let mean = |sum: f64, n: u64| (n > 0).then(|| sum / n as f64).filter(|mean| mean.is_finite());
        let finite: u64 = self.groups.iter().map(|g| u64::from(g.q_finite)).sum();
        let low = self.groups.iter().map(|g| g.q_low).min().unwrap_or(u32::MAX);
        let high = self.groups.iter().map(|g| g.q_high).max().unwrap_or(0);
        let known = self.env_steps > 0 && finite > 0;
        CollectStats {
            env_steps: self.env_steps,
            actions: self.counts[count::ACTIONS..][..N_FACTORED].to_vec(),
            orders: self.counts[count::ORDERS..count::FILLS].to_vec(),
            fills: self.counts[count::FILLS..count::HOLDS].to_vec(),
            holds: place(count::HOLDS),
            reward: mean(sum(|g| g.reward), place(count::REWARDS)),
            episodes: place(count::EPISODES),
            ruined_episodes: place(count::RUINED),
            episode_log_return: mean(sum(|g| g.episode_log_return), place(count::EPISODES)),
            max_q: mean(sum(|g| g.max_q), place(count::Q_ROWS)),
            max_q_non_finite_rows: place(count::Q_NON_FINITE_ROWS),
            q_min: known.then(|| f64::from(from_order_key(low))),
            q_mean: if known { mean(sum(|g| g.q_sum), finite) } else { None },
            q_max: known.then(|| f64::from(from_order_key(high))),
            q_diverged: place(count::DIVERGED) > 0,
            fallbacks: place(count::FALLBACKS),
            faults: self.faults.clone(),
            faults_lost: self.faults_lost,
        }
    }
}

/// What happened between two reports. A mean over nothing is `None`, never NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectStats {
    /// Env steps.
    pub env_steps: u64,
    /// Decisions by factored action, 45 counts.
    pub actions: Vec<u64>,
    /// Orders sent, by order type then urgency, 9 counts.
    pub orders: Vec<u64>,
    /// Orders filled in whole or part, by order type then urgency, 9 counts.
    pub fills: Vec<u64>,
    /// Decisions that held the position.
    pub holds: u64,
    /// Mean reward an env step.
    pub reward: Option<f64>,
    /// Episodes that ended.
    pub episodes: u64,
    /// Episodes that ended in ruin.
    pub ruined_episodes: u64,
    /// Mean log return of equity over the episodes that ended.
    pub episode_log_return: Option<f64>,
    /// Mean over decisions of the largest Q-value (branching: mean over branches).
    pub max_q: Option<f64>,
    /// Decisions left out of `max_q` because theirs was not finite.
    pub max_q_non_finite_rows: u64,
    /// Smallest finite Q-value of the last decisions.
    pub q_min: Option<f64>,
    /// Mean of the finite Q-values of the last decisions.
    pub q_mean: Option<f64>,
    /// Largest finite Q-value of the last decisions.
    pub q_max: Option<f64>,
    /// Whether some |Q| passed the divergence threshold or was not finite.
    pub q_diverged: bool,
    /// Decisions that fell back to Flat because no Q-value was a number.
    pub fallbacks: u64,
    /// Refusals in order.
    pub faults: Vec<Fault>,
    /// Refusals that found no room in the list.
    pub faults_lost: u64,
}
