//! The CPU twin of a collector.

use std::sync::Arc;

use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_core::settings::ReplayStorage;
use foxhunt_core::{Exposure, FactoredAction, Head, Philox};
use foxhunt_market::{Market, N_MARKET_FEATURES, STATE_DIM};

use super::{CollectConfig, CollectState, GROUP, Group, MAX_FAULTS, Tally, count, tree_sum};
use crate::env_step::{EnvState, StepOutcome, observe, reset, step};
use crate::error::OpError;
use crate::guard::count_non_finite;
use crate::n_step::{NStep, Step};
use crate::power::ln_portable;
use crate::q_monitor::{from_order_key, max_q, row_range};
use crate::ring::{CompactRow, RowBuffer, Rows, Transition};
use crate::select_actions::{Explore, select_actions, select_actions_branching};

/// Environments, accumulators and statistics. See the [module](super) for the contract.
#[derive(Clone, Debug)]
pub struct Collector {
    config: CollectConfig,
    market: Arc<Market>,
    philox: Philox,
    /// One an environment.
    envs: Vec<EnvState>,
    n_step: NStep,
    /// Vector steps since the start of training.
    vector_step: u64,
    tally: Tally,
    /// f32 `[n_envs, STATE_DIM]`.
    states: Vec<f32>,
    /// f32 `[STATE_DIM]`.
    next_state: Vec<f32>,
    /// u32 `[n_envs]`, as the replay stores them.
    actions: Vec<u32>,
    rows: RowBuffer,
    /// The same rows, when they leave compact.
    compact: Vec<CompactRow>,
}

impl Collector {
    /// Every environment at the start of its episode 0.
    #[must_use]
    pub fn new(config: CollectConfig, market: Arc<Market>) -> Self {
        let n_envs = config.n_envs;
        let philox = Philox::new(config.seed);
        let first = |env| reset(&config.params, &philox, env as u32, 0, config.window);
        Self {
            envs: (0..n_envs).map(first).collect(),
            n_step: NStep::new(n_envs, STATE_DIM, config.n_step, config.gamma),
            vector_step: 0,
            tally: Tally::new(config.n_groups()),
            states: vec![0.0; n_envs * STATE_DIM],
            next_state: vec![0.0; STATE_DIM],
            actions: vec![0; n_envs],
            rows: RowBuffer::default(),
            compact: Vec::new(),
            config,
            market,
            philox,
        }
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &CollectConfig {
        &self.config
    }

    /// Chance of a random action at the next vector step.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.config.epsilon.at(self.vector_step * self.envs.len() as u64)
    }

    /// Env steps since the start of training.
    #[must_use]
    pub fn env_steps(&self) -> u64 {
        self.vector_step * self.envs.len() as u64
    }

    /// Vector steps since the start of training.
    #[must_use]
    pub fn vector_steps(&self) -> u64 {
        self.vector_step
    }

    /// The states to act in, f32 `[n_envs, STATE_DIM]`, row-major.
    pub fn observe(&mut self) -> &[f32] {
        for (env, state) in self.envs.iter().zip(self.states.chunks_exact_mut(STATE_DIM)) {
            observe(&self.market, &self.config.params, env, state);
        }
        &self.states
    }

    /// Advances every environment by one bar from the states that [`Collector::observe`] gave, f32
    /// `[n_envs, n_outputs]` in. Returns the rows for the replay memory.
    ///
    /// # Panics
    /// When `q` has another length.
    pub fn act(&mut self, q: &[f32]) -> Rows<'_> {
        let (n_envs, head) = (self.envs.len(), self.config.head);
        assert_eq!(q.len(), n_envs * head.n_outputs(), "q must be [n_envs, n_outputs]");
        let explore = Explore {
            philox: self.philox,
            vector_step: self.vector_step,
            first_env: 0,
            epsilon: self.epsilon() as f32,
        };
        let fell_back = match head {
            Head::Branching => select_actions_branching(q, None, &explore, &mut self.actions),
            head => select_actions(q, head.n_actions(), None, &explore, &mut self.actions),
        };
        self.tally.counts[count::FALLBACKS] += u64::from(fell_back);

        self.rows.clear();
        self.compact.clear();
        let mut refused = Refused { states: count_non_finite(&self.states), rewards: 0 };
        for group in 0..self.config.n_groups() {
            let envs = group * GROUP..n_envs.min((group + 1) * GROUP);
            self.decided(group, &q[envs.start * head.n_outputs()..envs.end * head.n_outputs()]);
            let (mut rewards, mut log_returns) = ([0.0; GROUP], [0.0; GROUP]);
            for env in envs {
                let place = env % GROUP;
                (rewards[place], log_returns[place]) = self.step_env(env, &mut refused);
            }
            let sums = &mut self.tally.groups[group];
            sums.reward += tree_sum(rewards);
            sums.episode_log_return += tree_sum(log_returns);
        }
        for (kind, count) in
            [(FaultKind::NonFiniteState, refused.states), (FaultKind::NonFiniteReward, refused.rewards)]
        {
            if count > 0 {
                if self.tally.faults.len() < MAX_FAULTS {
                    self.tally.faults.push(Fault { step: self.vector_step, kind, count });
                } else {
                    self.tally.faults_lost += 1;
                }
            }
        }
        self.tally.env_steps += n_envs as u64;
        self.vector_step += 1;
        self.rows.as_rows()
    }

    /// The rows of the last [`Collector::act`] in the form a compact memory stores; none when rows leave whole.
    #[must_use]
    pub fn compact_rows(&self) -> &[CompactRow] {
        &self.compact
    }

    /// What it counted since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::replace(&mut self.tally, Tally::new(self.config.n_groups()))
    }

    /// Refusals since the last report.
    #[cfg(test)]
    pub(super) fn tally_faults(&self) -> &[Fault] {
        &self.tally.faults
    }

    /// Everything it holds.
    #[must_use]
    pub fn state(&self) -> CollectState {
        CollectState {
            envs: self.envs.clone(),
            n_step: self.n_step.state().clone().cleared(),
            vector_step: self.vector_step,
            tally: self.tally.clone(),
        }
    }

    /// Becomes what [`Collector::state`] saved; unchanged on an error.
    ///
    /// # Errors
    /// [`OpError`] for a state that does not belong to this configuration and market.
    pub fn restore(&mut self, state: &CollectState) -> Result<(), OpError> {
        state.check(&self.config, &self.market)?;
        let restored = self.n_step.restore(&state.n_step);
        debug_assert!(restored, "the check covers what the accumulators ask for");
        self.envs.clone_from(&state.envs);
        self.vector_step = state.vector_step;
        self.tally = state.tally.clone();
        Ok(())
    }

    /// Statistics of one group's Q-values.
    fn decided(&mut self, group: usize, q: &[f32]) {
        let head = self.config.head;
        let (mut tops, mut values) = ([0.0; GROUP], [0.0; GROUP]);
        let counts = &mut self.tally.counts;
        let mut last = Group::EMPTY;
        for (place, row) in q.chunks_exact(head.n_outputs()).enumerate() {
            let top = max_q(row, head.branches());
            if top.is_finite() {
                tops[place] = top;
                counts[count::Q_ROWS] += 1;
            } else {
                counts[count::Q_NON_FINITE_ROWS] += 1;
            }
            let range = row_range(row);
            values[place] = range.sum;
            last.q_low = last.q_low.min(range.low);
            last.q_high = last.q_high.max(range.high);
            last.q_finite += range.finite;
            last.q_non_finite += range.non_finite;
        }
        let threshold = self.config.divergence_threshold;
        let beyond = last.q_finite > 0
            && (from_order_key(last.q_high) > threshold || from_order_key(last.q_low) < -threshold);
        counts[count::DIVERGED] += u64::from(last.q_non_finite > 0 || beyond);
        let sums = &mut self.tally.groups[group];
        let (reward, episode_log_return) = (sums.reward, sums.episode_log_return);
        *sums = Group {
            reward,
            episode_log_return,
            max_q: sums.max_q + tree_sum(tops),
            q_sum: tree_sum(values),
            ..last
        };
    }

    /// Returns what the step adds to the sums of its group: the reward, and the log return of an episode that ended.
    fn step_env(&mut self, env_idx: usize, refused: &mut Refused) -> (f64, f64) {
        let config = &self.config;
        let env = &mut self.envs[env_idx];
        let from_bar = env.bar;
        let chosen = self.actions[env_idx];
        let action = match config.head {
            Head::Exposure => self.market.route(env.bar as usize, Exposure::ALL[chosen as usize]),
            Head::Factored | Head::Branching => {
                FactoredAction::from_index(chosen).expect("the head has 45 joint actions")
            }
        };
        let outcome = step(&self.market, &config.params, env, action);
        // Before any reset: what the transition leads to (case B06).
        observe(&self.market, &config.params, env, &mut self.next_state);

        let state = &self.states[env_idx * STATE_DIM..(env_idx + 1) * STATE_DIM];
        let transition = Step {
            state,
            action: chosen,
            reward: outcome.reward,
            next_state: &self.next_state,
            terminated: outcome.terminated,
            truncated: outcome.truncated,
        };
        let before = self.rows.len();
        let rows = &mut self.rows;
        let pushed = self.n_step.push(env_idx, &transition, |row| rows.push(&row));
        if config.storage == ReplayStorage::Compact {
            // A refused step ends the windows before it at the state acted in.
            let reached = if pushed.refused.is_some() { from_bar } else { env.bar };
            self.compact.extend((before..rows.len()).map(|i| packed(rows, i, reached)));
        }
        let ended = outcome.terminated || outcome.truncated;
        match pushed.refused {
            Some(FaultKind::NonFiniteReward) => refused.rewards += 1,
            // The state acted in was counted before the forward pass; the one it led to is counted here only
            // when nothing will act in it.
            Some(_) if ended || count_non_finite(state) == 0 => {
                refused.states += count_non_finite(&self.next_state);
            }
            _ => {}
        }

        let counts = &mut self.tally.counts;
        stepped(counts, action.index() as usize, &outcome);
        let reward = if outcome.reward.is_finite() { f64::from(outcome.reward) } else { 0.0 };
        let mut log_return = 0.0;
        if ended {
            let params = &config.params;
            let equity = if env.equity > params.equity_floor { env.equity } else { params.equity_floor };
            log_return = ln_portable(equity / params.start_equity);
            counts[count::EPISODES] += 1;
            counts[count::RUINED] += u64::from(outcome.terminated);
        }
        if ended || pushed.refused.is_some() {
            let episode = env.episode + 1;
            *env = reset(&config.params, &self.philox, env_idx as u32, episode, config.window);
        }
        (reward, log_return)
    }
}

/// Counts one env step.
fn stepped(counts: &mut [u64], action: usize, outcome: &StepOutcome) {
    let order = action % (count::FILLS - count::ORDERS);
    counts[count::ACTIONS + action] += 1;
    if outcome.hold {
        counts[count::HOLDS] += 1;
    } else {
        counts[count::ORDERS + order] += 1;
        counts[count::FILLS + order] += u64::from(outcome.fill.is_some());
    }
    counts[count::REWARDS] += u64::from(outcome.reward.is_finite());
}

/// Values of one vector step that were not finite.
struct Refused {
    states: u32,
    rewards: u32,
}

/// Row `i` compact; its window ends at the bar `reached`.
fn packed(rows: &RowBuffer, i: usize, reached: u32) -> CompactRow {
    let (steps, rows) = (rows.steps()[i], rows.as_rows());
    let inputs = |states: &[f32]| std::array::from_fn(|k| states[i * STATE_DIM + N_MARKET_FEATURES + k]);
    let row = Transition {
        bar: reached - steps,
        steps,
        action: rows.actions[i],
        terminated: rows.terminated[i] > 0.0,
        inputs: inputs(rows.states),
        next_inputs: inputs(rows.next_states),
        reward: rows.rewards[i],
    };
    row.pack().expect("bars, windows, actions and inputs are in range by configuration")
}
