//! Other environments than a market: anything with states of numbers and a few actions, learned on the CPU.
//!
//! An [`Environment`] is two functions, `reset` and `step`. An [`Agent`] drives several of one kind with the parts that
//! the trading engine is made of: n-step windows, replay memory of any kind, double dueling Q-learning, guard. What it
//! does is therefore easy to check against what one knows: [`classic`] has CartPole, MountainCar and Acrobot, and
//!
//! ```text
//! cargo run --release -p foxhunt-tests --example classic_control
//! ```
//!
//! trains on them with five seeds each up to the scores at which they count as solved.
//!
//! Random numbers come from counters alone, so one seed gives the same run every time; an environment takes its own from the
//! stream that `reset` is handed. Checkpoints, reports and backtests belong to trading ([`crate::trainer`]) and are not here.

mod agent;
pub mod classic;
#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentEpoch};

use foxhunt_core::PhiloxStream;

/// What a step gave, beside the state after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Reward of the step.
    pub reward: f32,
    /// The episode ended for good: no value follows.
    pub terminated: bool,
    /// The episode was cut, by a time limit for example: the state after it still has a value.
    pub truncated: bool,
}

/// Something to act in, one episode after the other.
///
/// ```
/// use foxhunt::Settings;
/// use foxhunt::environment::{Agent, Environment, Outcome};
/// use foxhunt_core::PhiloxStream;
///
/// /// A number between -1 and 1 that actions move; being near 0 is good.
/// struct Balance(f32);
///
/// impl Environment for Balance {
///     fn state_dim(&self) -> usize {
///         1
///     }
///     fn n_actions(&self) -> usize {
///         2
///     }
///     fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
///         self.0 = 2.0 * random.next_f32() - 1.0;
///         state[0] = self.0;
///     }
///     fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
///         self.0 += if action == 0 { -0.1 } else { 0.1 };
///         next_state[0] = self.0;
///         Outcome { reward: -self.0.abs(), terminated: self.0.abs() > 1.0, truncated: false }
///     }
/// }
///
/// # fn main() -> Result<(), foxhunt::MLError> {
/// let mut settings = Settings::default();
/// settings.network.hidden = vec![16];
/// settings.training.warmup_env_steps = 256;
/// let mut agent = Agent::new(&settings, (0..8).map(|_| Balance(0.0)).collect())?;
/// let epoch = agent.epoch()?;
/// assert!(epoch.updates > 0 && epoch.loss.is_some());
/// # Ok(())
/// # }
/// ```
pub trait Environment {
    /// Values of a state, at least 1, always the same.
    fn state_dim(&self) -> usize;

    /// Actions, 0 to `n_actions - 1`, at least 1, always the same.
    fn n_actions(&self) -> usize;

    /// Begins an episode and writes its first state, f32 `[state_dim]`. Whatever is random comes from `random`.
    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]);

    /// Takes `action` and writes the state after it, f32 `[state_dim]`. Not called again before a reset once the episode has
    /// ended.
    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome;
}
