//! Epsilon-greedy action selection for the three heads, and the routing of exposures to factored actions.
//!
//! **Contract.** For decision `b` (environment `first_env + b`) at vector step `t`, one Philox block
//! `[w0, w1, _, _] = block(Explore, stream = env_idx, step = t, block = 0)` decides everything:
//! the action is random when `unit_f32(w0) < epsilon` (one coin a decision, all branches together), and then it is
//! number `below(w1, k)` of the `k` legal joint actions in index order. Otherwise it is greedy: the largest Q-value,
//! ties to the lowest index, one argmax a branch for the branching head.
//!
//! **Not a number.** A NaN never wins an argmax; infinities compare as usual. A branch whose legal Q-values are all
//! NaN, or that has no legal value, takes its *fallback*: exposure Flat, order type Market, urgency Normal, whatever
//! the mask says. Flat is what risks least without a decision. Each launch returns how many decisions fell back, so
//! that none is hidden. A random decision whose joint legal set is empty falls back as well.
//!
//! **Mask.** `u8 [B, n_outputs]`, row-major, 0 = forbidden. For the branching head it is a mask per branch value;
//! a joint action is legal when each of its parts is.
//!
//! Sources: Sutton and Barto, *Reinforcement Learning*, 2nd ed., section 2.2; Tavakoli et al., arXiv 1711.08946
//! (branching). This module does not fill orders, and does not know the present position.

mod cpu;
pub mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::{
    Router, argmax, batch_route_exposure_to_factored, select_actions, select_actions_branching,
    select_actions_routed,
};

use foxhunt_core::Philox;

/// What every decision of one vector step shares.
#[derive(Clone, Copy, Debug)]
pub struct Explore {
    /// The run's random family.
    pub philox: Philox,
    /// Vector step of the decisions, from the start of training.
    pub vector_step: u64,
    /// Environment of row 0; row `b` belongs to `first_env + b`.
    pub first_env: u32,
    /// Chance of a random action, in [0, 1]; 0 draws nothing.
    pub epsilon: f32,
}

impl Explore {
    /// No exploration: every decision is greedy.
    #[must_use]
    pub fn greedy() -> Self {
        Self { philox: Philox::new(0), vector_step: 0, first_env: 0, epsilon: 0.0 }
    }
}
