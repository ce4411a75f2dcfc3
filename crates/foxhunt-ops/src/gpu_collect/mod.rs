//! The collector on the device: environments, decisions, n-step windows and statistics that never leave it.
//!
//! A vector step is the caller's network over [`GpuCollector::states`], [`GpuCollector::step`] with its Q-values, and an
//! insert of its rows ([`GpuCollector::insert_into`]), as many as [`GpuCollector::row_count`] says. Everything that changes, the vector step, epsilon and
//! the number of rows included, lives in device memory, so that a captured graph of these calls replays without the
//! host: they queue work and return.
//!
//! Numbers are those of [`crate::collect`], the CPU twin, to the bit: given the same Q-values, environments, rows and
//! statistics are equal. Two kernels a step. A state is {bar, three portfolio inputs} until the moment it is written
//! out, since its market features are those of its bar.
//!
//! Statistics are read once an epoch with [`GpuCollector::epoch_stats`]; [`GpuCollector::env_steps`] polls a pinned word.
//! Nothing here knows networks.

pub mod bench;
pub mod cuda;
mod state;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{CudaError, DeviceBuffer, KernelResources, Launch, MappedBuffer, Stream};
use foxhunt_market::Market;

use crate::collect::{CollectConfig, Collector, MAX_ENVS};
use crate::env_step::cuda::DeviceMarket;
use crate::error::OpError;
use crate::gpu_replay::{GpuPrioritizedReplay, GpuReplayError};
use crate::n_step::MAX_N;
use crate::noise::cuda::Clock;
use crate::ring::cuda::{DeviceCompactRows, DeviceRows, RowsRoom};
use cuda::{Buffers, CollectKernels};

/// Environments that act on the device.
#[derive(Debug)]
pub struct GpuCollector {
    config: CollectConfig,
    market: Arc<Market>,
    device_market: Arc<DeviceMarket>,
    kernels: CollectKernels,
    buffers: Buffers,
    programmatic: bool,
}

impl GpuCollector {
    /// Device bytes of `n_envs` environments with windows of `n_step` steps, the market not counted
    /// ([`DeviceMarket::bytes_for`]), to print before they are taken.
    #[must_use]
    pub fn bytes_for(n_envs: usize, n_step: usize, storage: ReplayStorage) -> u64 {
        Buffers::bytes(n_envs, n_step, storage)
    }

    /// Every environment at the start of its episode 0. Compiles its kernels, or takes them from `cache`, and takes all
    /// its memory.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`]; [`OpError::Length`] when the two markets differ in length;
    /// [`CudaError::OutOfMemory`] with bytes asked and free; [`CudaError::NoCompiler`].
    pub fn new(
        stream: &Stream,
        config: CollectConfig,
        market: Arc<Market>,
        device_market: Arc<DeviceMarket>,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuReplayError> {
        check(&config)?;
        crate::error::check_len("bars on the device", device_market.len(), market.len())?;
        let (bytes, (free, _)) =
            (Self::bytes_for(config.n_envs, config.n_step, config.storage), stream.device().memory()?);
        if bytes > free {
            return Err(CudaError::OutOfMemory { what: "the environments", bytes, free }.into());
        }
        let kernels = CollectKernels::new(stream, &config, cache)?;
        let buffers = Buffers::zeros(stream, &config)?;
        let first = Collector::new(config.clone(), Arc::clone(&market)).state();
        let mut collector = Self { config, market, device_market, kernels, buffers, programmatic: true };
        collector.load(stream, &first)?;
        Ok(collector)
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &CollectConfig {
        &self.config
    }

    /// Turns overlapping launches on or off from here on; results stay the same.
    pub fn set_programmatic(&mut self, on: bool) {
        self.programmatic = on;
    }

    /// The states to act in, f32 `[n_envs, 51]`, row-major.
    #[must_use]
    pub fn states(&self) -> &DeviceBuffer<f32> {
        &self.buffers.states
    }

    /// Adds what kernels that act are told: with the market, or those that come behind, without.
    pub(crate) fn told<'k>(&self, launch: Launch<'k>, market: bool) -> Launch<'k> {
        self.kernels.told(launch, market.then_some(&*self.device_market), &self.buffers)
    }

    /// Env steps since the start of training, the pinned word that kernels write.
    pub(crate) fn progress(&self) -> &MappedBuffer<u64> {
        &self.buffers.progress
    }

    /// The number of the next vector step, on the device.
    #[must_use]
    pub fn clock(&self) -> Clock<'_> {
        Clock::of_steps(&self.buffers.ledger)
    }

    /// Queues one vector step from the Q-values of [`GpuCollector::states`], f32 `[n_envs, n_outputs]`.
    ///
    /// # Errors
    /// [`CudaError::Length`] when `q` is shorter, and driver errors.
    pub fn step(&mut self, stream: &Stream, q: &DeviceBuffer<f32>) -> Result<(), CudaError> {
        self.kernels.step(stream, &self.device_market, &self.buffers, q, self.programmatic)
    }

    /// The rows of the last step, in order of environment, oldest first; as many as [`GpuCollector::row_count`] says. None
    /// when they leave compact.
    #[must_use]
    pub fn rows(&self) -> Option<&DeviceRows> {
        match &self.buffers.rows {
            RowsRoom::Whole(rows) => Some(rows),
            RowsRoom::Compact(_) => None,
        }
    }

    /// As [`GpuCollector::rows`], when they leave compact.
    #[must_use]
    pub fn compact_rows(&self) -> Option<&DeviceCompactRows> {
        match &self.buffers.rows {
            RowsRoom::Whole(_) => None,
            RowsRoom::Compact(rows) => Some(rows),
        }
    }

    /// Queues the insert of the rows of the last step into `replay`, which stores rows of the same form.
    ///
    /// # Errors
    /// Those of [`GpuPrioritizedReplay::insert_counted`].
    pub fn insert_into(
        &self,
        stream: &Stream,
        replay: &mut GpuPrioritizedReplay,
    ) -> Result<(), GpuReplayError> {
        replay.queue_insert(
            stream,
            self.buffers.rows.incoming(),
            self.max_rows(),
            Some(&self.buffers.row_count),
        )
    }

    /// u32 `[1]`: the number of rows of the last step.
    #[must_use]
    pub fn row_count(&self) -> &DeviceBuffer<u32> {
        &self.buffers.row_count
    }

    /// Most rows of one vector step.
    #[must_use]
    pub fn max_rows(&self) -> usize {
        self.config.max_rows()
    }

    /// Env steps done so far since the start of training: one read of a pinned word, no call to the driver.
    #[must_use]
    pub fn env_steps(&self) -> u64 {
        self.buffers.progress.read(0).unwrap_or(0)
    }

    /// What the kernels use.
    ///
    /// # Errors
    /// Driver errors.
    pub fn resources(&self) -> Result<Vec<(&'static str, KernelResources)>, CudaError> {
        self.kernels.resources()
    }
}

fn check(config: &CollectConfig) -> Result<(), OpError> {
    let refuse =
        |what, value: usize, rule| Err(OpError::InvalidArgument { what, value: value.to_string(), rule });
    if !(1..=MAX_ENVS).contains(&config.n_envs) {
        return refuse("n_envs", config.n_envs, "from 1 to 65,536");
    }
    if !(1..=MAX_N).contains(&config.n_step) {
        return refuse("n_step", config.n_step, "from 1 to 256");
    }
    Ok(())
}
