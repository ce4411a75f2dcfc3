//! One vector step of all environments: the acting half of an engine.
//!
//! **Contract.** A step is, for all environments: observe, Q-values (the caller's network), epsilon-greedy, route, step
//! in f64, n-step, rows out, reset what ended. Rows leave in order of environment, oldest first. Epsilon is its schedule
//! at `vector_step * n_envs`, in f64, then f32.
//!
//! **Not finite.** A state or reward that is not finite is counted before anything can hide it (cases C11, C12), its
//! transition is not stored, and its environment starts a new episode. A vector step reports at most one fault a kind,
//! states first: the values that were not finite among all states acted in, plus those of states that were reached and
//! that nothing acts in; and the rewards that were not finite.
//!
//! **Statistics** ([`Tally`]) are integers, and f64 sums by *group* of 32 environments: each group adds the values of a
//! step in a fixed tree ([`tree_sum`]) to a sum of its own, and groups are added in order when the epoch is reported. So
//! the sums have the same bits on every engine, whatever the launch shape.
//!
//! [`Collector`] is the CPU twin; [`crate::gpu_collect`] does the same on a device. Nothing here knows networks or
//! replay memories.

mod cpu;
mod tally;

#[cfg(test)]
mod tests;

use std::ops::Range;

use foxhunt_core::settings::ReplayStorage;
use foxhunt_core::{Head, LinearSchedule, Settings};
use foxhunt_market::{Market, MarketError, N_MARKET_FEATURES, STATE_DIM};

pub use cpu::Collector;
pub use tally::{CollectStats, Group, Tally, count, tree_sum};

use crate::env_step::{EnvParams, EnvState, EnvWindow, observe};
use crate::error::{OpError, check_len};
use crate::n_step::NStepState;
use crate::ring::compact::{MAX_BARS, is_held};

/// Environments whose values are summed together.
pub const GROUP: usize = 32;
/// Most refusals listed between two reports; those beyond are only counted. A device has room for no more.
pub const MAX_FAULTS: usize = 1024;
/// Most environments.
pub const MAX_ENVS: usize = 1 << 16;

/// What a collector is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectConfig {
    /// Environments, from 1 to 65,536.
    pub n_envs: usize,
    /// Steps of a window, from 1 to 256.
    pub n_step: usize,
    /// Discount a step.
    pub gamma: f64,
    /// What the network decides.
    pub head: Head,
    /// Chance of a random action over env steps.
    pub epsilon: LinearSchedule,
    /// |Q| above which the values count as diverged.
    pub divergence_threshold: f32,
    /// Seed of actions and episode starts.
    pub seed: u64,
    /// Costs, sizes and ends.
    pub params: EnvParams,
    /// The bars environments use.
    pub window: EnvWindow,
    /// In which form rows leave.
    pub storage: ReplayStorage,
}

impl CollectConfig {
    /// What `settings` describe for environments that trade the bars `train`.
    ///
    /// # Errors
    /// [`MarketError`] for a window that does not fit, and for a market of more than 2^29 bars when rows are compact.
    pub fn new(settings: &Settings, market: &Market, train: Range<usize>) -> Result<Self, MarketError> {
        let storage = settings.replay.storage;
        if storage == ReplayStorage::Compact && market.len() > MAX_BARS {
            return Err(MarketError::InvalidArgument {
                what: "bars",
                value: market.len().to_string(),
                rule: "at most 2^29 with replay.storage = \"compact\"",
            });
        }
        Ok(Self {
            n_envs: settings.env.n_envs,
            n_step: settings.learner.n_step,
            gamma: settings.learner.gamma,
            head: settings.network.head,
            epsilon: settings.exploration.epsilon,
            divergence_threshold: settings.monitor.divergence_threshold as f32,
            seed: settings.run.seed,
            params: EnvParams::new(settings),
            window: EnvWindow::new(market, train)?,
            storage,
        })
    }

    /// Most rows that one vector step gives.
    #[must_use]
    pub fn max_rows(&self) -> usize {
        self.n_envs * self.n_step
    }

    /// Groups of 32 environments, the last one possibly smaller.
    #[must_use]
    pub fn n_groups(&self) -> usize {
        self.n_envs.div_ceil(GROUP)
    }
}

/// Everything that decides what a collector does next, and what it has not yet reported.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectState {
    /// One an environment.
    pub envs: Vec<EnvState>,
    /// Pending steps; whatever is not pending is zero.
    pub n_step: NStepState,
    /// Vector steps since the start of training.
    pub vector_step: u64,
    /// Statistics since the last report.
    pub tally: Tally,
}

impl CollectState {
    /// Refuses a state that does not belong to `config` and `market`.
    ///
    /// # Errors
    /// [`OpError::Length`], [`OpError::InvalidArgument`].
    pub fn check(&self, config: &CollectConfig, market: &Market) -> Result<(), OpError> {
        let (n_envs, n) = (config.n_envs, config.n_step);
        let pending = &self.n_step;
        check_len("environments", self.envs.len(), n_envs)?;
        check_len("pending states", pending.states.len(), n_envs * n * STATE_DIM)?;
        check_len("newest states", pending.newest.len(), n_envs * STATE_DIM)?;
        check_len("pending actions", pending.actions.len(), n_envs * n)?;
        check_len("pending rewards", pending.rewards.len(), n_envs * n)?;
        check_len("heads", pending.heads.len(), n_envs)?;
        check_len("lengths", pending.lens.len(), n_envs)?;
        check_len("counts", self.tally.counts.len(), count::LEN)?;
        check_len("groups", self.tally.groups.len(), config.n_groups())?;
        let refuse = |what, value: String, rule| Err(OpError::InvalidArgument { what, value, rule });
        let inside = config.window.first_bar()..=config.window.last_bar();
        for (env, state) in self.envs.iter().enumerate() {
            if !inside.contains(&state.bar) || !inside.contains(&state.end_bar) {
                return refuse("bar", state.bar.to_string(), "inside the training window");
            }
            let (head, len) = (pending.heads[env], pending.lens[env]);
            if head as usize >= n || len as usize >= n || len > state.bar - config.window.first_bar() {
                return refuse(
                    "pending steps",
                    format!("{len} from {head}"),
                    "fewer than n, since the window began",
                );
            }
            let mut newest = [0.0; STATE_DIM];
            observe(market, &config.params, state, &mut newest);
            if len > 0 && !same_bits(&pending.newest[env * STATE_DIM..], &newest) {
                return refuse("newest state", format!("of environment {env}"), "what the environment shows");
            }
            for k in 0..len {
                let slot = env * n + (head + k) as usize % n;
                let action = pending.actions[slot];
                if action as usize >= config.head.n_actions() {
                    return refuse("pending action", action.to_string(), "one of the head");
                }
                let (features, inputs) =
                    pending.states[slot * STATE_DIM..][..STATE_DIM].split_at(N_MARKET_FEATURES);
                let bar = (state.bar - len + k) as usize;
                if !same_bits(features, market.feature_row(bar)) || !is_held(inputs[2]) {
                    return refuse(
                        "pending state",
                        format!("{k} of environment {env}"),
                        "one of this market",
                    );
                }
            }
        }
        Ok(())
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}
