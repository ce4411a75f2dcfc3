//! n-step returns: one accumulator an environment, between the environment and the replay ring.
//!
//! **Contract.** Each step `(s, a, r, s', terminated, truncated)` of environment `e` is pushed in time order. A row
//!
//! `R = r_0 + gamma (r_1 + gamma (... + gamma r_{k-1}))`, `discount = gamma^k`, `next_state = s_k`
//!
//! leaves for the oldest step once `k = n` steps are there. When the episode ends, every pending step leaves with
//! the `k <= n` steps it has: a truncated window **bootstraps with its own length**, a terminated one carries
//! `terminated = true` (its discount is still `gamma^k`; the target ignores it). No window holds steps of two
//! episodes, and since whole rows enter the ring, none can cross the ring's head. `s_k` is the state before any
//! automatic reset.
//!
//! **Arithmetic.** R and gamma^k in f64, R from the newest reward back in the order written above (one multiply,
//! one add, never fused), gamma^k by k - 1 successive products; both are rounded to f32 once.
//!
//! **Not finite.** A step whose reward or state is not finite is refused and counted, and the windows before it
//! leave as if truncated at its (finite) state: one bad tick costs one transition, not n.
//!
//! Source: Sutton and Barto, *Reinforcement Learning*, 2nd ed., equation 7.1; cut windows as in Pardo et al.,
//! arXiv 1712.00378. This module does not store rows and draws nothing.

mod cpu;
#[cfg(test)]
mod tests;

pub use cpu::NStep;

/// CUDA twin of the accumulator, for inclusion by kernels under the name `n_step.cuh`.
pub const N_STEP_CUH: &str = include_str!("n_step.cuh");

use foxhunt_core::record::FaultKind;

/// Longest window.
pub const MAX_N: usize = 256;

/// One step of one environment.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// State the action was taken in, f32 `[state_dim]`.
    pub state: &'a [f32],
    /// The action as the replay stores it.
    pub action: u32,
    /// Reward.
    pub reward: f32,
    /// State after the step and before any reset, f32 `[state_dim]`.
    pub next_state: &'a [f32],
    /// The episode ended for good: no value follows.
    pub terminated: bool,
    /// The episode was cut: the value of `next_state` still counts.
    pub truncated: bool,
}

/// One row for the replay ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// First state of the window, f32 `[state_dim]`.
    pub state: &'a [f32],
    /// State after the window, f32 `[state_dim]`.
    pub next_state: &'a [f32],
    /// Action taken in `state`.
    pub action: u32,
    /// Discounted sum of the window's rewards.
    pub reward: f32,
    /// Whether the window ends in a terminal state.
    pub terminated: bool,
    /// gamma to the power of the window's length.
    pub discount: f32,
    /// The window's length: steps from `state` to `next_state`.
    pub steps: u32,
}

/// What a push did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Rows that left.
    pub rows: u32,
    /// Why the step was refused, if it was.
    pub refused: Option<FaultKind>,
}

/// Everything an [`NStep`] holds, for a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NStepState {
    /// f32 `[n_envs, n, state_dim]`: states of the pending steps, a ring an environment.
    pub states: Vec<f32>,
    /// f32 `[n_envs, state_dim]`: state after the newest pending step.
    pub newest: Vec<f32>,
    /// u32 `[n_envs, n]`.
    pub actions: Vec<u32>,
    /// f32 `[n_envs, n]`.
    pub rewards: Vec<f32>,
    /// u32 `[n_envs]`: slot of the oldest pending step.
    pub heads: Vec<u32>,
    /// u32 `[n_envs]`: pending steps, below n between pushes.
    pub lens: Vec<u32>,
}

impl NStepState {
    /// The same with everything that is not pending set to zero, so that two equal futures compare equal.
    #[must_use]
    pub fn cleared(mut self) -> Self {
        let n_envs = self.lens.len();
        let n = self.actions.len() / n_envs.max(1);
        let state_dim = self.newest.len() / n_envs.max(1);
        for env in 0..n_envs {
            let (head, len) = (self.heads[env] as usize, self.lens[env] as usize);
            if len == 0 {
                self.newest[env * state_dim..][..state_dim].fill(0.0);
            }
            for k in len..n {
                let slot = env * n + (head + k) % n;
                self.states[slot * state_dim..][..state_dim].fill(0.0);
                self.actions[slot] = 0;
                self.rewards[slot] = 0.0;
            }
        }
        self
    }
}
