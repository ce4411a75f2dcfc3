//! The readback of an epoch, and what a checkpoint needs.

use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_cuda::{CudaError, Stream};
use foxhunt_market::{N_MARKET_FEATURES, STATE_DIM};

use super::GpuCollector;
use super::cuda::{Ledger, MAX_FAULTS};
use crate::collect::{CollectState, CollectStats, Group, Tally, count};
use crate::env_step::observe;
use crate::error::OpError;
use crate::gpu_replay::GpuReplayError;
use crate::n_step::NStepState;

impl GpuCollector {
    /// Reads what was counted since the last call, and starts anew: for epoch boundaries.
    ///
    /// # Errors
    /// Driver errors.
    pub fn epoch_stats(&mut self, stream: &Stream) -> Result<CollectStats, CudaError> {
        let (ledger, tally) = self.read_tally(stream)?;
        let empty = Tally::new(self.config.n_groups());
        self.write_tally(stream, ledger.vector_step, &empty)?;
        Ok(tally.stats())
    }

    /// Reads everything back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn save(&self, stream: &Stream) -> Result<CollectState, CudaError> {
        let (n_envs, n) = (self.config.n_envs, self.config.n_step);
        let (ledger, tally) = self.read_tally(stream)?;
        let envs = stream.download(&self.buffers.envs)?;
        let places = stream.download(&self.buffers.places)?;
        let pending = stream.download(&self.buffers.pending)?;
        let rewards = stream.download(&self.buffers.rewards)?;
        let mut n_step = NStepState {
            states: vec![0.0; n_envs * n * STATE_DIM],
            newest: vec![0.0; n_envs * STATE_DIM],
            actions: vec![0; n_envs * n],
            rewards: vec![0.0; n_envs * n],
            heads: places.chunks_exact(2).map(|place| place[0]).collect(),
            lens: places.chunks_exact(2).map(|place| place[1]).collect(),
        };
        for (env, state) in envs.iter().enumerate() {
            let (head, len) = (n_step.heads[env], n_step.lens[env]);
            if len > 0 {
                let newest = &mut n_step.newest[env * STATE_DIM..][..STATE_DIM];
                observe(&self.market, &self.config.params, state, newest);
            }
            for k in 0..len {
                let slot = (head + k) as usize % n;
                let (to, from) = (env * n + slot, slot * n_envs + env);
                let row = &mut n_step.states[to * STATE_DIM..][..STATE_DIM];
                row[..N_MARKET_FEATURES]
                    .copy_from_slice(self.market.feature_row((state.bar - len + k) as usize));
                row[N_MARKET_FEATURES..]
                    .copy_from_slice(&pending[4 * from..][..STATE_DIM - N_MARKET_FEATURES]);
                n_step.actions[to] = pending[4 * from + 3].to_bits();
                n_step.rewards[to] = rewards[from];
            }
        }
        Ok(CollectState { envs, n_step, vector_step: ledger.vector_step, tally })
    }

    /// Becomes the collector that was saved, on either engine, from the same configuration and market. On a wrong
    /// argument nothing changes.
    ///
    /// # Errors
    /// [`OpError`] for a state that does not belong here, and driver errors.
    pub fn load(&mut self, stream: &Stream, state: &CollectState) -> Result<(), GpuReplayError> {
        state.check(&self.config, &self.market)?;
        if state.tally.faults.len() > MAX_FAULTS {
            let (value, rule) = (state.tally.faults.len().to_string(), "at most 1,024 unread faults");
            return Err(OpError::InvalidArgument { what: "faults", value, rule }.into());
        }
        let (n_envs, n) = (self.config.n_envs, self.config.n_step);
        let mut states = vec![0.0; n_envs * STATE_DIM];
        let mut shown = vec![0.0; n_envs * 4];
        let mut pending = vec![0.0; n * n_envs * 4];
        let mut rewards = vec![0.0; n * n_envs];
        let mut places = Vec::with_capacity(n_envs * 2);
        for (env, of) in state.envs.iter().enumerate() {
            let seen = &mut states[env * STATE_DIM..][..STATE_DIM];
            observe(&self.market, &self.config.params, of, seen);
            shown[4 * env..][..3].copy_from_slice(&seen[N_MARKET_FEATURES..]);
            shown[4 * env + 3] = f32::from_bits(of.bar);
            let (head, len) = (state.n_step.heads[env], state.n_step.lens[env]);
            places.extend([head, len]);
            for k in 0..len {
                let slot = (head + k) as usize % n;
                let (from, to) = (env * n + slot, slot * n_envs + env);
                let row = &state.n_step.states[from * STATE_DIM..][..STATE_DIM];
                pending[4 * to..][..3].copy_from_slice(&row[N_MARKET_FEATURES..]);
                pending[4 * to + 3] = f32::from_bits(state.n_step.actions[from]);
                rewards[to] = state.n_step.rewards[from];
            }
        }
        stream.upload(&mut self.buffers.envs, &state.envs)?;
        stream.upload(&mut self.buffers.states, &states)?;
        stream.upload(&mut self.buffers.shown, &shown)?;
        stream.upload(&mut self.buffers.places, &places)?;
        stream.upload(&mut self.buffers.pending, &pending)?;
        stream.upload(&mut self.buffers.rewards, &rewards)?;
        stream.upload(&mut self.buffers.row_count, &[0])?;
        self.write_tally(stream, state.vector_step, &state.tally)?;
        self.buffers.progress.write(0, state.vector_step * n_envs as u64);
        Ok(())
    }

    fn read_tally(&self, stream: &Stream) -> Result<(Ledger, Tally), CudaError> {
        let ledger = stream.download(&self.buffers.ledger)?[0];
        let groups: Vec<Group> = stream.download(&self.buffers.groups)?;
        let kind = |word: u32| {
            if word == FaultKind::NonFiniteReward as u32 {
                FaultKind::NonFiniteReward
            } else {
                FaultKind::NonFiniteState
            }
        };
        let listed = ledger.faults.chunks_exact(2).take(ledger.fault_count as usize);
        let faults = listed
            .map(|words| Fault {
                step: words[0],
                kind: kind(words[1] as u32),
                count: (words[1] >> 32) as u32,
            })
            .collect();
        let tally = Tally {
            env_steps: ledger.env_steps,
            counts: ledger.counts.to_vec(),
            groups,
            faults,
            faults_lost: ledger.faults_lost,
        };
        Ok((ledger, tally))
    }

    fn write_tally(&mut self, stream: &Stream, vector_step: u64, tally: &Tally) -> Result<(), CudaError> {
        let mut ledger: Ledger = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        ledger.vector_step = vector_step;
        ledger.env_steps = tally.env_steps;
        ledger.epsilon = self.config.epsilon.at(vector_step * self.config.n_envs as u64) as f32;
        ledger.fault_count = tally.faults.len() as u32;
        ledger.faults_lost = tally.faults_lost;
        ledger.counts.copy_from_slice(&tally.counts[..count::LEN]);
        for (words, fault) in ledger.faults.chunks_exact_mut(2).zip(&tally.faults) {
            words.copy_from_slice(&[fault.step, u64::from(fault.kind as u32) | u64::from(fault.count) << 32]);
        }
        stream.upload(&mut self.buffers.ledger, &[ledger])?;
        stream.upload(&mut self.buffers.groups, &tally.groups)
    }
}
