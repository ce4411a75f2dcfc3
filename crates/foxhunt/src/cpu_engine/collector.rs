//! The acting half of the engine: [`foxhunt_ops::collect`] between a network and a replay memory.

use std::ops::Range;
use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_market::Market;
use foxhunt_ops::collect::{self, CollectConfig, CollectStats};
use foxhunt_ops::env_step::EnvParams;

use crate::MLError;
use crate::engine::arrays::misfit;
use crate::engine::{Snapshot, collect_arrays};
use crate::replay::ReplayMemory;

pub(super) struct Collector(collect::Collector);

impl Collector {
    pub(super) fn new(
        settings: &Settings,
        market: Arc<Market>,
        train: Range<usize>,
    ) -> Result<Self, MLError> {
        let config = CollectConfig::new(settings, &market, train)?;
        Ok(Self(collect::Collector::new(config, market)))
    }

    pub(super) fn params(&self) -> &EnvParams {
        &self.0.config().params
    }

    /// Chance of a random action at the next vector step.
    pub(super) fn epsilon(&self) -> f64 {
        self.0.epsilon()
    }

    /// Env steps since the start of training.
    pub(super) fn env_steps(&self) -> u64 {
        self.0.env_steps()
    }

    /// Vector steps since the start of training.
    pub(super) fn vector_steps(&self) -> u64 {
        self.0.vector_steps()
    }

    /// What it counted since the last call.
    pub(super) fn take_stats(&mut self) -> CollectStats {
        self.0.take_tally().stats()
    }

    /// Advances every environment by one bar. `q_values` fills f32 `[n_envs, n_outputs]` from f32
    /// `[n_envs, STATE_DIM]`.
    pub(super) fn vector_step(
        &mut self,
        q: &mut Vec<f32>,
        q_values: impl FnOnce(&[f32], &mut [f32]) -> Result<(), MLError>,
        replay: &mut ReplayMemory,
    ) -> Result<(), MLError> {
        let CollectConfig { n_envs, head, storage, .. } = *self.0.config();
        q.resize(n_envs * head.n_outputs(), 0.0);
        q_values(self.0.observe(), q)?;
        let rows = self.0.act(q);
        match storage {
            ReplayStorage::Rows => replay.insert(&rows)?,
            ReplayStorage::Compact => replay.insert_compact(self.0.compact_rows())?,
        };
        Ok(())
    }

    /// Arrays `env.*`, `n_step.*` and `collect.*`.
    pub(super) fn save(&self, snapshot: &mut Snapshot) {
        collect_arrays::save(self.0.state(), snapshot);
    }

    /// Reads what [`Collector::save`] saved; the collector is unchanged until [`Collector::take_up`].
    pub(super) fn load(&self, snapshot: &Snapshot) -> Result<Loaded, MLError> {
        let state = collect_arrays::load(self.0.config(), snapshot)?;
        let mut collector = self.0.clone();
        collector.restore(&state).map_err(|error| misfit(error.to_string()))?;
        Ok(Loaded(collector))
    }

    pub(super) fn take_up(&mut self, loaded: Loaded) {
        self.0 = loaded.0;
    }
}

/// A collector's state, read and checked.
pub(super) struct Loaded(collect::Collector);
