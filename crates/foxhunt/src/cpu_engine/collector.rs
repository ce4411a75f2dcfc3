//! The acting half of the engine: environments, decisions, n-step accumulators, rows for the replay memory.
//!
//! One vector step is, for all environments: observe, Q-values, epsilon-greedy, route, step in f64, n-step, store,
//! reset what ended. Rows leave in order of environment, oldest first. A state or reward that is not finite is
//! counted before anything can hide it (cases C11, C12), its transition is not stored, and its environment starts
//! a new episode.

use std::ops::Range;
use std::sync::Arc;

use foxhunt_core::record::FaultKind;
use foxhunt_core::{Head, LinearSchedule, Philox, Settings};
use foxhunt_market::{Market, STATE_DIM};
use foxhunt_ops::env_step::{EnvParams, EnvState, EnvWindow, observe, reset, step};
use foxhunt_ops::guard::count_non_finite;
use foxhunt_ops::n_step::{NStep, NStepState, Row, Step};
use foxhunt_ops::q_monitor::divergence;
use foxhunt_ops::select_actions::{Explore, select_actions, select_actions_branching};

use super::arrays::{get_f32, get_f64, get_u32, get_u64, misfit, put_f32, put_f64, put_u32, put_u64};
use super::progress::Progress;
use crate::MLError;
use crate::engine::Snapshot;
use crate::policy::complete;
use crate::replay::{ReplayMemory, Rows};

/// f64 and u32 words of an [`EnvState`] in a snapshot.
const ENV_F64: usize = 4;
const ENV_U32: usize = 6;

pub(super) struct Collector {
    market: Arc<Market>,
    pub(super) params: EnvParams,
    window: EnvWindow,
    philox: Philox,
    head: Head,
    epsilon: LinearSchedule,
    divergence_threshold: f32,

    /// One an environment.
    envs: Vec<EnvState>,
    n_step: NStep,
    /// Vector steps since the start of training.
    vector_step: u64,

    /// f32 `[n_envs, STATE_DIM]`.
    states: Vec<f32>,
    /// f32 `[STATE_DIM]`.
    next_state: Vec<f32>,
    /// f32 `[n_envs, n_outputs]`.
    q: Vec<f32>,
    /// u32 `[n_envs]`, as the replay stores them.
    actions: Vec<u32>,
    rows: RowBuffer,
}

impl Collector {
    pub(super) fn new(
        settings: &Settings,
        market: Arc<Market>,
        train: Range<usize>,
    ) -> Result<Self, MLError> {
        let n_envs = settings.env.n_envs;
        let params = EnvParams::new(settings);
        let window = EnvWindow::new(&market, train)?;
        let philox = Philox::new(settings.run.seed);
        // Settings allow at most 65,536 environments.
        let envs = (0..n_envs).map(|env| reset(&params, &philox, env as u32, 0, window)).collect();
        Ok(Self {
            market,
            params,
            window,
            philox,
            head: settings.network.head,
            epsilon: settings.exploration.epsilon,
            divergence_threshold: settings.monitor.divergence_threshold as f32,
            envs,
            n_step: NStep::new(n_envs, STATE_DIM, settings.learner.n_step, settings.learner.gamma),
            vector_step: 0,
            states: vec![0.0; n_envs * STATE_DIM],
            next_state: vec![0.0; STATE_DIM],
            q: vec![0.0; n_envs * settings.network.head.n_outputs()],
            actions: vec![0; n_envs],
            rows: RowBuffer::default(),
        })
    }

    /// Chance of a random action at the next vector step.
    pub(super) fn epsilon(&self) -> f64 {
        self.epsilon.at(self.vector_step * self.envs.len() as u64)
    }

    /// Advances every environment by one bar. `q_values` fills f32 `[n_envs, n_outputs]` from f32
    /// `[n_envs, STATE_DIM]`.
    pub(super) fn vector_step(
        &mut self,
        q_values: impl FnOnce(&[f32], &mut [f32]) -> Result<(), MLError>,
        replay: &mut ReplayMemory,
        progress: &mut Progress,
    ) -> Result<(), MLError> {
        for (env, state) in self.envs.iter().zip(self.states.chunks_exact_mut(STATE_DIM)) {
            observe(&self.market, &self.params, env, state);
        }
        progress.refused(self.vector_step, FaultKind::NonFiniteState, count_non_finite(&self.states));
        q_values(&self.states, &mut self.q)?;
        progress.decided(&self.q, self.head.branches(), &divergence(&self.q, self.divergence_threshold));

        let explore = Explore {
            philox: self.philox,
            vector_step: self.vector_step,
            first_env: 0,
            epsilon: self.epsilon() as f32,
        };
        let fallbacks = match self.head {
            Head::Branching => select_actions_branching(&self.q, None, &explore, &mut self.actions),
            head => select_actions(&self.q, head.n_actions(), None, &explore, &mut self.actions),
        };
        progress.fell_back(fallbacks);

        self.rows.clear();
        for env_idx in 0..self.envs.len() {
            self.step_env(env_idx, progress)?;
        }
        if !self.rows.actions.is_empty() {
            replay.insert(&self.rows.as_rows())?;
        }
        self.vector_step += 1;
        Ok(())
    }

    fn step_env(&mut self, env_idx: usize, progress: &mut Progress) -> Result<(), MLError> {
        let env = &mut self.envs[env_idx];
        let action = complete(self.head, self.actions[env_idx], &self.market, env.bar as usize)?;
        let outcome = step(&self.market, &self.params, env, action);
        // Before any reset: what the transition leads to (case B06).
        observe(&self.market, &self.params, env, &mut self.next_state);

        let state = &self.states[env_idx * STATE_DIM..(env_idx + 1) * STATE_DIM];
        let transition = Step {
            state,
            action: self.actions[env_idx],
            reward: outcome.reward,
            next_state: &self.next_state,
            terminated: outcome.terminated,
            truncated: outcome.truncated,
        };
        let rows = &mut self.rows;
        let pushed = self.n_step.push(env_idx, &transition, |row| rows.push(row));
        progress.stepped(action.index(), outcome.reward, outcome.hold, outcome.fill.is_some());
        match pushed.refused {
            Some(FaultKind::NonFiniteReward) => {
                progress.refused(self.vector_step, FaultKind::NonFiniteReward, 1);
            }
            // The state acted in was counted before the forward pass; the one it led to is counted here only
            // when nothing will act in it.
            Some(_) if outcome.terminated || outcome.truncated || count_non_finite(state) == 0 => {
                let count = count_non_finite(&self.next_state);
                progress.refused(self.vector_step, FaultKind::NonFiniteState, count);
            }
            _ => {}
        }

        let ended = outcome.terminated || outcome.truncated;
        if ended {
            let (start, floor) = (self.params.start_equity, self.params.equity_floor);
            progress.episode_ended(env, start, floor, outcome.terminated);
        }
        if ended || pushed.refused.is_some() {
            let episode = env.episode + 1;
            *env = reset(&self.params, &self.philox, env_idx as u32, episode, self.window);
        }
        Ok(())
    }

    /// Arrays `env.*` and `n_step.*`.
    pub(super) fn save(&self, snapshot: &mut Snapshot) {
        let floats = self.envs.iter().flat_map(|e| [e.cash, e.position, e.entry_price, e.equity]);
        put_f64(snapshot, "env.money", floats.collect());
        let words = self
            .envs
            .iter()
            .flat_map(|e| [e.bar, e.end_bar, e.bars_in_position, e.level, e.episode, e.start_bar]);
        put_u32(snapshot, "env.words", words.collect());
        put_u64(snapshot, "env.vector_step", vec![self.vector_step]);
        let NStepState { states, newest, actions, rewards, heads, lens } = self.n_step.state().clone();
        put_f32(snapshot, "n_step.states", states);
        put_f32(snapshot, "n_step.newest", newest);
        put_u32(snapshot, "n_step.actions", actions);
        put_f32(snapshot, "n_step.rewards", rewards);
        put_u32(snapshot, "n_step.heads", heads);
        put_u32(snapshot, "n_step.lens", lens);
    }

    /// Reads what [`Collector::save`] saved; the collector is unchanged until [`Collector::take_up`].
    pub(super) fn load(&self, snapshot: &Snapshot) -> Result<Loaded, MLError> {
        let n_envs = self.envs.len();
        let money = get_f64(snapshot, "env.money", Some(n_envs * ENV_F64))?;
        let words = get_u32(snapshot, "env.words", Some(n_envs * ENV_U32))?;
        let envs: Vec<EnvState> = money
            .chunks_exact(ENV_F64)
            .zip(words.chunks_exact(ENV_U32))
            .map(|(m, w)| EnvState {
                cash: m[0],
                position: m[1],
                entry_price: m[2],
                equity: m[3],
                bar: w[0],
                end_bar: w[1],
                bars_in_position: w[2],
                level: w[3],
                episode: w[4],
                start_bar: w[5],
            })
            .collect();
        let inside = self.window.first_bar()..=self.window.last_bar();
        if let Some(env) = envs.iter().find(|e| !inside.contains(&e.bar) || !inside.contains(&e.end_bar)) {
            return Err(misfit(format!("env.words has bar {} outside the training window", env.bar)));
        }
        let n_step = NStepState {
            states: get_f32(snapshot, "n_step.states", None)?.to_vec(),
            newest: get_f32(snapshot, "n_step.newest", None)?.to_vec(),
            actions: get_u32(snapshot, "n_step.actions", None)?.to_vec(),
            rewards: get_f32(snapshot, "n_step.rewards", None)?.to_vec(),
            heads: get_u32(snapshot, "n_step.heads", None)?.to_vec(),
            lens: get_u32(snapshot, "n_step.lens", None)?.to_vec(),
        };
        let mut accumulators = self.n_step.clone();
        if !accumulators.restore(&n_step) {
            return Err(misfit("n_step.* does not fit these settings".to_owned()));
        }
        let vector_step = get_u64(snapshot, "env.vector_step", Some(1))?[0];
        Ok(Loaded { envs, n_step: accumulators, vector_step })
    }

    pub(super) fn take_up(&mut self, loaded: Loaded) {
        self.envs = loaded.envs;
        self.n_step = loaded.n_step;
        self.vector_step = loaded.vector_step;
    }
}

/// A collector's state, read and checked.
pub(super) struct Loaded {
    envs: Vec<EnvState>,
    n_step: NStep,
    vector_step: u64,
}

/// Rows of one vector step, fields apart; keeps its memory.
#[derive(Default)]
struct RowBuffer {
    states: Vec<f32>,
    next_states: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
}

impl RowBuffer {
    fn clear(&mut self) {
        self.states.clear();
        self.next_states.clear();
        self.actions.clear();
        self.rewards.clear();
        self.terminated.clear();
        self.discounts.clear();
    }

    fn push(&mut self, row: Row<'_>) {
        self.states.extend_from_slice(row.state);
        self.next_states.extend_from_slice(row.next_state);
        self.actions.push(row.action);
        self.rewards.push(row.reward);
        self.terminated.push(f32::from(u8::from(row.terminated)));
        self.discounts.push(row.discount);
    }

    fn as_rows(&self) -> Rows<'_> {
        Rows {
            states: &self.states,
            next_states: &self.next_states,
            actions: &self.actions,
            rewards: &self.rewards,
            terminated: &self.terminated,
            discounts: &self.discounts,
        }
    }
}
