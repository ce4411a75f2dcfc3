//! The CPU twin of the n-step accumulator.

use foxhunt_core::record::FaultKind;

use super::{MAX_N, NStepState, Pushed, Row, Step};

/// n-step accumulators of `n_envs` environments. See the [module](super) for the contract.
#[derive(Clone, Debug)]
pub struct NStep {
    n_envs: usize,
    state_dim: usize,
    n: usize,
    gamma: f64,
    state: NStepState,
}

impl NStep {
    /// Empty accumulators; `n` is brought into 1 to 256, the range settings allow.
    #[must_use]
    pub fn new(n_envs: usize, state_dim: usize, n: usize, gamma: f64) -> Self {
        let n = n.clamp(1, MAX_N);
        let state = NStepState {
            states: vec![0.0; n_envs * n * state_dim],
            newest: vec![0.0; n_envs * state_dim],
            actions: vec![0; n_envs * n],
            rewards: vec![0.0; n_envs * n],
            heads: vec![0; n_envs],
            lens: vec![0; n_envs],
        };
        Self { n_envs, state_dim, n, gamma, state }
    }

    /// Steps pending over all environments.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.state.lens.iter().map(|&len| u64::from(len)).sum()
    }

    /// Adds one step of `env_idx` and hands every row that is now complete to `emit`, oldest first.
    ///
    /// # Panics
    /// When `env_idx` or a state's length is out of range.
    pub fn push(&mut self, env_idx: usize, step: &Step<'_>, mut emit: impl FnMut(Row<'_>)) -> Pushed {
        assert_eq!(step.next_state.len(), self.state_dim, "next_state must be [state_dim]");
        let finite = |values: &[f32]| values.iter().all(|v| v.is_finite());
        let refused = if !step.reward.is_finite() {
            Some(FaultKind::NonFiniteReward)
        } else if !finite(step.state) || !finite(step.next_state) {
            Some(FaultKind::NonFiniteState)
        } else {
            None
        };
        if refused.is_some() {
            return Pushed { rows: self.cut(env_idx, emit), refused };
        }

        let len = self.state.lens[env_idx] as usize;
        let slot = self.slot(env_idx, len);
        self.state.states[slot * self.state_dim..(slot + 1) * self.state_dim].copy_from_slice(step.state);
        self.state.actions[slot] = step.action;
        self.state.rewards[slot] = step.reward;
        let newest = env_idx * self.state_dim..(env_idx + 1) * self.state_dim;
        self.state.newest[newest].copy_from_slice(step.next_state);
        self.state.lens[env_idx] += 1;

        let rows = if step.terminated || step.truncated {
            self.flush(env_idx, step.terminated, &mut emit)
        } else if len + 1 == self.n {
            self.emit_oldest(env_idx, false, &mut emit);
            1
        } else {
            0
        };
        Pushed { rows, refused: None }
    }

    /// Ends the pending windows of `env_idx` as truncated at the newest state: for a reset from outside, and for
    /// the end of a collection whose environments will not go on. Returns the number of rows handed to `emit`.
    ///
    /// # Panics
    /// When `env_idx` is out of range.
    pub fn cut(&mut self, env_idx: usize, mut emit: impl FnMut(Row<'_>)) -> u32 {
        self.flush(env_idx, false, &mut emit)
    }

    /// Everything held, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> &NStepState {
        &self.state
    }

    /// Takes up a state of the same shape; returns false, unchanged, when the shape differs or a count is out of
    /// range.
    #[must_use]
    pub fn restore(&mut self, state: &NStepState) -> bool {
        let fits = state.states.len() == self.state.states.len()
            && state.newest.len() == self.state.newest.len()
            && state.actions.len() == self.state.actions.len()
            && state.rewards.len() == self.state.rewards.len()
            && state.heads.len() == self.n_envs
            && state.lens.len() == self.n_envs
            && state.heads.iter().all(|&head| (head as usize) < self.n)
            && state.lens.iter().all(|&len| (len as usize) < self.n);
        if fits {
            self.state = state.clone();
        }
        fits
    }

    /// Flat slot of the `k`-th pending step of an environment.
    fn slot(&self, env_idx: usize, k: usize) -> usize {
        env_idx * self.n + (self.state.heads[env_idx] as usize + k) % self.n
    }

    fn flush(&mut self, env_idx: usize, terminated: bool, emit: &mut impl FnMut(Row<'_>)) -> u32 {
        let len = self.state.lens[env_idx];
        for _ in 0..len {
            self.emit_oldest(env_idx, terminated, emit);
        }
        self.state.heads[env_idx] = 0;
        len
    }

    /// Hands out the oldest pending step with all that follows it, and drops it.
    fn emit_oldest(&mut self, env_idx: usize, terminated: bool, emit: &mut impl FnMut(Row<'_>)) {
        let len = self.state.lens[env_idx] as usize;
        let mut reward = f64::from(self.state.rewards[self.slot(env_idx, len - 1)]);
        let mut discount = self.gamma;
        for k in (0..len - 1).rev() {
            reward = f64::from(self.state.rewards[self.slot(env_idx, k)]) + self.gamma * reward;
            discount *= self.gamma;
        }
        let oldest = self.slot(env_idx, 0);
        emit(Row {
            state: &self.state.states[oldest * self.state_dim..(oldest + 1) * self.state_dim],
            next_state: &self.state.newest[env_idx * self.state_dim..(env_idx + 1) * self.state_dim],
            action: self.state.actions[oldest],
            reward: reward as f32,
            terminated,
            discount: discount as f32,
            steps: len as u32,
        });
        self.state.heads[env_idx] = (self.state.heads[env_idx] + 1) % self.n as u32;
        self.state.lens[env_idx] -= 1;
    }
}
