//! The replay memory of an engine on a device: beside it, or in host memory when it does not fit.

use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_core::settings::{ReplaySettings, ReplayStorage};
use foxhunt_cuda::Stream;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_market::STATE_DIM;
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_learner::GpuLearner;
use foxhunt_ops::gpu_replay::GpuPrioritizedReplay;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceSource};

use super::memory::{Placed, replay_config};
use crate::MLError;
use crate::replay::{BatchBuffers, ReplayMemory, Rows, StateSource, beta_schedule};

/// Where the rows are.
pub(super) enum Store {
    /// In device memory.
    Device(Box<GpuPrioritizedReplay>),
    /// In host memory: every vector step and update waits for copies.
    Host(Box<HostStore>),
}

/// What a report tells of a replay memory.
pub(super) struct Levels {
    /// Importance-weight power of the next sample.
    pub(super) beta: f64,
    /// Rows stored.
    pub(super) len: u64,
    /// Rows it can hold.
    pub(super) capacity: u64,
}

impl Store {
    pub(super) fn new(
        stream: &Stream,
        settings: &Settings,
        placed: &Placed,
        market: &Arc<DeviceMarket>,
        source: &StateSource,
        cache: Option<&Cache>,
    ) -> Result<Self, MLError> {
        if placed.on_device {
            let config = replay_config(settings, placed.capacity);
            let replay = match config.storage {
                ReplayStorage::Rows => GpuPrioritizedReplay::new(stream, config, cache)?,
                ReplayStorage::Compact => {
                    let source = DeviceSource::new(stream, Arc::clone(market), settings.learner.gamma)?;
                    GpuPrioritizedReplay::compact(stream, config, source, cache)?
                }
            };
            return Ok(Self::Device(Box::new(replay)));
        }
        let memory = ReplayMemory::of_market(&settings.replay, source, settings.run.seed)?;
        Ok(Self::Host(Box::new(HostStore { memory, batch: BatchBuffers::default(), drawn: Vec::new() })))
    }

    /// Rows stored. Waits.
    pub(super) fn len(&self, stream: &Stream) -> Result<usize, MLError> {
        match self {
            Self::Device(replay) => Ok(replay.counters(stream)?.len),
            Self::Host(host) => Ok(host.memory.len()),
        }
    }

    /// Looks whether every update of the epoch had rows. Waits.
    ///
    /// # Errors
    /// [`MLError::NoMass`] when an update found nothing to draw.
    pub(super) fn check_draws(&self, stream: &Stream) -> Result<(), MLError> {
        if let Self::Device(replay) = self {
            let counters = replay.counters(stream)?;
            if counters.empty_samples > 0 {
                return Err(MLError::NoMass { rows: counters.len });
            }
        }
        Ok(())
    }

    /// What a report tells. Waits.
    pub(super) fn levels(&self, stream: &Stream, settings: &ReplaySettings) -> Result<Levels, MLError> {
        match self {
            Self::Device(replay) => {
                let counters = replay.counters(stream)?;
                Ok(Levels {
                    beta: beta_schedule(settings).at(counters.samples),
                    len: counters.len as u64,
                    capacity: replay.capacity() as u64,
                })
            }
            Self::Host(host) => Ok(Levels {
                beta: host.memory.beta(),
                len: host.memory.len() as u64,
                capacity: host.memory.capacity() as u64,
            }),
        }
    }
}

/// The fallback: rows in host memory, batches copied to the device.
pub(super) struct HostStore {
    pub(super) memory: ReplayMemory,
    batch: BatchBuffers,
    /// Slots of all sub-batches of one update.
    drawn: Vec<u32>,
}

impl HostStore {
    /// Stores the rows of the collector's last step.
    pub(super) fn insert(&mut self, stream: &Stream, collector: &GpuCollector) -> Result<(), MLError> {
        let n = stream.download(collector.row_count())?[0] as usize;
        if n == 0 {
            return Ok(());
        }
        let Some(rows) = collector.rows() else {
            if let Some(rows) = collector.compact_rows() {
                self.memory.insert_compact(&rows.download(stream, n)?)?;
            }
            return Ok(());
        };
        let states = stream.download_range(&rows.states, 0, n * STATE_DIM)?;
        let next_states = stream.download_range(&rows.next_states, 0, n * STATE_DIM)?;
        let actions = stream.download_range(&rows.actions, 0, n)?;
        let rewards = stream.download_range(&rows.rewards, 0, n)?;
        let terminated = stream.download_range(&rows.terminated, 0, n)?;
        let discounts = stream.download_range(&rows.discounts, 0, n)?;
        self.memory.insert(&Rows {
            states: &states,
            next_states: &next_states,
            actions: &actions,
            rewards: &rewards,
            terminated: &terminated,
            discounts: &discounts,
        })?;
        Ok(())
    }

    /// One update: sample here, learn there, priorities back here.
    pub(super) fn update(
        &mut self,
        stream: &Stream,
        learner: &mut GpuLearner,
        batches: &mut [DeviceBatch],
    ) -> Result<(), MLError> {
        self.drawn.clear();
        for batch in &mut *batches {
            self.memory.sample(batch.len(), &mut self.batch)?;
            batch.upload(stream, &self.batch)?;
            self.drawn.extend_from_slice(&self.batch.indices);
        }
        learner.update(stream, batches)?;
        if stream.download(learner.gate())?[0] == 0 {
            let td = stream.download(learner.td_errors())?;
            self.memory.update_priorities(&self.drawn, &td)?;
        } else {
            self.memory.note_skipped_update();
        }
        Ok(())
    }
}
