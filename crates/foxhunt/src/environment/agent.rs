//! A deep Q-learning agent over any environment: the loop of the papers, made of this crate's parts.

use foxhunt_core::{ActionSpace, Philox, Purpose, Settings};
use foxhunt_ops::n_step::{NStep, Step};
use foxhunt_ops::ring::RowBuffer;
use foxhunt_ops::select_actions::{Explore, argmax, select_actions};

use super::Environment;
use crate::MLError;
use crate::learner::{Batch, Learner, QNetwork};
use crate::replay::{BatchBuffers, ReplayMemory};

/// Streams of resets for evaluations, apart from those of training environments.
const EVALUATION: u32 = 1 << 31;

/// What an epoch was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentEpoch {
    /// Env steps since the start of training.
    pub env_steps: u64,
    /// Updates applied in this epoch.
    pub updates: u64,
    /// Updates refused in this epoch, because something was not finite; they changed nothing.
    pub skipped_updates: u64,
    /// Transitions refused in this epoch, because a reward or state was not finite; their episodes were left.
    pub refused_transitions: u64,
    /// Mean loss of the applied updates; none without one.
    pub loss: Option<f64>,
    /// Chance of a random action at the end.
    pub epsilon: f64,
    /// Undiscounted returns of the episodes that ended, in order.
    pub returns: Vec<f64>,
}

/// Several environments of one kind, and the network that learns to act in them.
pub struct Agent<E> {
    settings: Settings,
    environments: Vec<E>,
    learner: Learner,
    replay: ReplayMemory,
    n_step: NStep,
    philox: Philox,
    n_actions: usize,
    vector_step: u64,
    /// f32 `[n_envs, state_dim]`.
    states: Vec<f32>,
    /// f32 `[state_dim]`.
    next_state: Vec<f32>,
    /// f32 `[n_envs, n_actions]`.
    q: Vec<f32>,
    actions: Vec<u32>,
    /// Number of each environment's running episode.
    episodes: Vec<u64>,
    /// Return of each running episode up to now.
    returns: Vec<f64>,
    rows: RowBuffer,
    batches: Vec<BatchBuffers>,
    indices: Vec<u32>,
}

impl<E: Environment> Agent<E> {
    /// An agent in `environments`, each at the start of its first episode. Of `settings` it goes by `network` (its head
    /// aside), `learner`, `replay` (its storage aside: only bars are places), `exploration`, `guard`'s thresholds,
    /// `training.collect`, `training.updates_per_epoch`, `training.warmup_env_steps` and `run.seed`; the rest is about
    /// bars, money or devices.
    ///
    /// # Errors
    /// [`MLError::Settings`], [`MLError::InvalidArgument`] without environments or for sizes that are 0,
    /// [`MLError::Shape`] for environments that differ, [`MLError::HostMemory`] with the bytes that are missing.
    pub fn new(settings: &Settings, environments: Vec<E>) -> Result<Self, MLError> {
        settings.validate()?;
        let n_envs = environments.len();
        let (state_dim, n_actions) = environments.first().map_or((0, 0), |e| (e.state_dim(), e.n_actions()));
        for (what, value) in [("environments", n_envs), ("state_dim", state_dim), ("n_actions", n_actions)] {
            if value == 0 {
                return Err(MLError::InvalidArgument { what, value: "0".to_owned(), rule: "at least 1" });
            }
        }
        for other in &environments {
            let got = vec![other.state_dim(), other.n_actions()];
            if got != [state_dim, n_actions] {
                let expected = format!("[{state_dim}, {n_actions}], as the first has");
                return Err(MLError::Shape { what: "state_dim and n_actions", got, expected });
            }
        }
        let mut agent = Self {
            learner: Learner::for_actions(settings, state_dim, ActionSpace::discrete(n_actions)),
            replay: ReplayMemory::new(&settings.replay, state_dim, settings.run.seed)?,
            n_step: NStep::new(n_envs, state_dim, settings.learner.n_step, settings.learner.gamma),
            philox: Philox::new(settings.run.seed),
            environments,
            n_actions,
            vector_step: 0,
            states: vec![0.0; n_envs * state_dim],
            next_state: vec![0.0; state_dim],
            q: vec![0.0; n_envs * n_actions],
            actions: vec![0; n_envs],
            episodes: vec![0; n_envs],
            returns: vec![0.0; n_envs],
            rows: RowBuffer::default(),
            batches: (0..settings.learner.accumulation).map(|_| BatchBuffers::default()).collect(),
            indices: Vec::new(),
            settings: settings.clone(),
        };
        (0..n_envs).for_each(|env| agent.reset(env));
        Ok(agent)
    }

    /// Collects `training.collect` vector steps, then does `training.updates_per_epoch` updates; before the first one it
    /// collects what `training.warmup_env_steps` and a batch ask for.
    ///
    /// # Errors
    /// Those of [`ReplayMemory`] and [`Learner`], which an environment of fixed sizes does not bring about.
    pub fn epoch(&mut self) -> Result<AgentEpoch, MLError> {
        let mut epoch = AgentEpoch::default();
        let training = &self.settings.training;
        let (collect, updates, warm) =
            (training.collect, training.updates_per_epoch, training.warmup_env_steps);
        let mut steps = 0;
        while steps < collect || self.env_steps() < warm || self.replay.len() < self.settings.learner.batch {
            self.vector_step(&mut epoch)?;
            steps += 1;
        }
        let mut losses = 0.0;
        for _ in 0..updates {
            match self.update()? {
                Some(loss) => {
                    epoch.updates += 1;
                    losses += f64::from(loss);
                }
                None => epoch.skipped_updates += 1,
            }
        }
        epoch.env_steps = self.env_steps();
        epoch.epsilon = self.epsilon();
        epoch.loss = (epoch.updates > 0).then(|| losses / epoch.updates as f64);
        Ok(epoch)
    }

    /// The best action in `state`, f32 `[state_dim]`; the first one where no Q-value is a number.
    ///
    /// # Errors
    /// [`MLError::Shape`] for a state of another length.
    pub fn act(&mut self, state: &[f32]) -> Result<u32, MLError> {
        let q = &mut self.q[..self.n_actions];
        self.learner.network_mut().q_values(state, q)?;
        Ok(argmax(q, None).unwrap_or(0))
    }

    /// Undiscounted returns of `episodes` episodes of `environment`, acted in greedily; nothing is learned. Episode i begins
    /// the same way for every agent of the same seed.
    ///
    /// # Errors
    /// As [`Agent::act`].
    pub fn evaluate(&mut self, environment: &mut E, episodes: u32) -> Result<Vec<f64>, MLError> {
        let mut state = vec![0.0; self.next_state.len()];
        let mut next = state.clone();
        let mut returns = Vec::with_capacity(episodes as usize);
        for episode in 0..u64::from(episodes) {
            environment.reset(&mut self.philox.stream(Purpose::EnvReset, EVALUATION, episode), &mut state);
            let mut total = 0.0;
            loop {
                let outcome = environment.step(self.act(&state)?, &mut next);
                total += f64::from(outcome.reward);
                if outcome.terminated || outcome.truncated {
                    break;
                }
                std::mem::swap(&mut state, &mut next);
            }
            returns.push(total);
        }
        Ok(returns)
    }

    /// The online network.
    #[must_use]
    pub fn network(&self) -> &QNetwork {
        self.learner.network()
    }

    /// The replay memory, for reading.
    #[must_use]
    pub fn replay(&self) -> &ReplayMemory {
        &self.replay
    }

    /// Env steps since the start of training.
    #[must_use]
    pub fn env_steps(&self) -> u64 {
        self.vector_step * self.environments.len() as u64
    }

    /// Chance of a random action at the next vector step.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.settings.exploration.epsilon.at(self.env_steps())
    }

    /// Advances every environment by one step and stores what is complete.
    fn vector_step(&mut self, epoch: &mut AgentEpoch) -> Result<(), MLError> {
        self.learner.acting_q_values(self.vector_step, &self.states, &mut self.q)?;
        let epsilon = self.epsilon() as f32;
        let explore = Explore { philox: self.philox, vector_step: self.vector_step, first_env: 0, epsilon };
        select_actions(&self.q, self.n_actions, None, &explore, &mut self.actions);
        self.rows.clear();
        for env in 0..self.environments.len() {
            self.step(env, epoch);
        }
        self.vector_step += 1;
        let rows = self.rows.as_rows();
        if !rows.is_empty() {
            self.replay.insert(&rows)?;
        }
        Ok(())
    }

    fn step(&mut self, env: usize, epoch: &mut AgentEpoch) {
        let dim = self.next_state.len();
        let action = self.actions[env];
        let outcome = self.environments[env].step(action, &mut self.next_state);
        let state = &mut self.states[env * dim..(env + 1) * dim];
        let transition = Step {
            state,
            action,
            reward: outcome.reward,
            next_state: &self.next_state,
            terminated: outcome.terminated,
            truncated: outcome.truncated,
        };
        let rows = &mut self.rows;
        let pushed = self.n_step.push(env, &transition, |row| rows.push(&row));
        let refused = pushed.refused.is_some();
        epoch.refused_transitions += u64::from(refused);
        if !refused {
            self.returns[env] += f64::from(outcome.reward);
        }
        if outcome.terminated || outcome.truncated || refused {
            if !refused {
                epoch.returns.push(self.returns[env]);
            }
            self.episodes[env] += 1;
            self.reset(env);
        } else {
            state.copy_from_slice(&self.next_state);
        }
    }

    fn reset(&mut self, env: usize) {
        let dim = self.next_state.len();
        self.returns[env] = 0.0;
        let mut random = self.philox.stream(Purpose::EnvReset, env as u32, self.episodes[env]);
        self.environments[env].reset(&mut random, &mut self.states[env * dim..(env + 1) * dim]);
    }

    /// Sample, learn, priorities back. Gives the loss, or nothing when the update was refused.
    fn update(&mut self) -> Result<Option<f32>, MLError> {
        for rows in &mut self.batches {
            self.replay.sample(self.settings.learner.batch, rows)?;
        }
        let batches: Vec<_> = self.batches.iter().map(Batch::from).collect();
        let report = self.learner.update(&batches)?;
        if !report.applied {
            self.replay.note_skipped_update();
            return Ok(None);
        }
        // In one call, so that a row drawn by two sub-batches gets the larger of its priorities.
        self.indices.clear();
        self.batches.iter().for_each(|rows| self.indices.extend_from_slice(&rows.indices));
        self.replay.update_priorities(&self.indices, report.td)?;
        Ok(Some(report.loss))
    }
}
