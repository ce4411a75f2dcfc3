//! What an engine tells the host: per-epoch statistics and the records of skipped updates.
//!
//! Engines fill these, the trainer drains them at epoch boundaries, and metrics, progress and report read them.
//! A mean over nothing is `None`, never NaN.

use serde::{Deserialize, Serialize};

use crate::action::{N_FACTORED, N_ORDER_TYPES, N_URGENCIES};

/// Why an update, a transition or a decision was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum FaultKind {
    /// The loss was NaN or infinite.
    NonFiniteLoss = 1,
    /// The global gradient norm was NaN or infinite.
    NonFiniteGradNorm = 2,
    /// A TD error was NaN or infinite, so its priority was not written.
    NonFiniteTdError = 3,
    /// A reward was NaN or infinite, so its transition was not stored.
    NonFiniteReward = 4,
    /// A state held a NaN or an infinity, so its transition was not stored.
    NonFiniteState = 5,
}

/// One refusal. The host receives every one of them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Update number (vector step number for rewards and states) at which it happened.
    pub step: u64,
    /// What was not finite.
    pub kind: FaultKind,
    /// How many values of that kind the step held.
    pub count: u32,
}

/// What happened in one epoch. Counts are of the epoch alone; `total_*` counts run from the start of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochStats {
    /// Env steps since the start of training.
    pub total_env_steps: u64,
    /// Applied updates since the start of training.
    pub total_updates: u64,
    /// Skipped updates since the start of training.
    pub total_skipped_updates: u64,
    /// Env steps of this epoch.
    pub env_steps: u64,
    /// Applied updates of this epoch.
    pub updates: u64,
    /// Skipped updates of this epoch.
    pub skipped_updates: u64,
    /// Mean loss over applied updates.
    pub loss: Option<f64>,
    /// Mean gradient norm before clipping, over applied updates.
    pub grad_norm: Option<f64>,
    /// Mean |TD error| over applied updates.
    pub td_error: Option<f64>,
    /// Mean over decisions of the largest Q-value (branching: mean over branches).
    pub max_q: Option<f64>,
    /// Decisions left out of `max_q` because their largest Q-value was not finite.
    #[serde(default)]
    pub non_finite_q_decisions: u64,
    /// Decisions that fell back, because a greedy choice had only NaN to choose from.
    #[serde(default)]
    pub fallback_decisions: u64,
    /// Smallest, mean and largest Q-value over the last decisions.
    pub q_min: Option<f64>,
    /// See `q_min`.
    pub q_mean: Option<f64>,
    /// See `q_min`.
    pub q_max: Option<f64>,
    /// Whether |Q| passed the divergence threshold.
    pub q_diverged: bool,
    /// Updates whose gradient norm was below the collapse threshold.
    pub collapsed_updates: u64,
    /// Updates whose loss was above the warning threshold.
    pub loss_clipped_updates: u64,
    /// Chance of a random action at the end of the epoch.
    pub epsilon: f64,
    /// Importance-weight power at the end of the epoch.
    pub beta: f64,
    /// Learning rate at the end of the epoch.
    pub learning_rate: f64,
    /// Rows stored in the replay memory.
    pub replay_len: u64,
    /// Rows the replay memory can hold.
    pub replay_capacity: u64,
    /// Episodes that ended.
    pub episodes: u64,
    /// Episodes that ended in ruin.
    pub ruined_episodes: u64,
    /// Mean log return of equity over the episodes that ended.
    pub episode_log_return: Option<f64>,
    /// Mean reward an env step.
    pub reward: Option<f64>,
    /// Decisions by factored action, 45 counts.
    pub actions: Vec<u64>,
    /// Orders sent, by order type then urgency, 9 counts.
    pub orders: Vec<u64>,
    /// Orders filled in whole or part, by order type then urgency, 9 counts.
    pub fills: Vec<u64>,
    /// Decisions that held the position.
    pub holds: u64,
    /// Every refusal of this epoch, in order.
    pub faults: Vec<Fault>,
    /// Refusals of this epoch beyond those a device had room to list.
    #[serde(default)]
    pub faults_lost: u64,
}

impl Default for EpochStats {
    fn default() -> Self {
        Self {
            total_env_steps: 0,
            total_updates: 0,
            total_skipped_updates: 0,
            env_steps: 0,
            updates: 0,
            skipped_updates: 0,
            loss: None,
            grad_norm: None,
            td_error: None,
            max_q: None,
            non_finite_q_decisions: 0,
            fallback_decisions: 0,
            q_min: None,
            q_mean: None,
            q_max: None,
            q_diverged: false,
            collapsed_updates: 0,
            loss_clipped_updates: 0,
            epsilon: 0.0,
            beta: 0.0,
            learning_rate: 0.0,
            replay_len: 0,
            replay_capacity: 0,
            episodes: 0,
            ruined_episodes: 0,
            episode_log_return: None,
            reward: None,
            actions: vec![0; N_FACTORED],
            orders: vec![0; N_ORDER_TYPES * N_URGENCIES],
            fills: vec![0; N_ORDER_TYPES * N_URGENCIES],
            holds: 0,
            faults: Vec::new(),
            faults_lost: 0,
        }
    }
}
