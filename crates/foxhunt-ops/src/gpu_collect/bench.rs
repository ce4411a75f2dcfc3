//! Times vector steps inside captured graphs, without a network, alone and with the insert of their rows.

use std::sync::Arc;

use foxhunt_core::settings::ReplayStorage;
use foxhunt_core::{Head, Settings};
use foxhunt_cuda::Stream;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_market::STATE_DIM;

use super::GpuCollector;
use crate::collect::CollectConfig;
use crate::env_step::cuda::DeviceMarket;
use crate::gpu_replay::bench::{BenchRow, failed, market, row, time};
use crate::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuReplayError};
use crate::ring::cuda::DeviceSource;

/// What to time.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Environments.
    pub n_envs: Vec<usize>,
    /// Heads and steps of a window.
    pub shapes: Vec<(Head, usize)>,
    /// Bars of the market, far more than the caches hold.
    pub n_bars: usize,
    /// Rows of the memory inserted into.
    pub capacity: usize,
    /// In which form they leave and are stored.
    pub storage: ReplayStorage,
}

impl Default for BenchConfig {
    fn default() -> Self {
        Self {
            n_envs: vec![1024, 4096, 16_384, 65_536],
            shapes: vec![(Head::Exposure, 1), (Head::Exposure, 3), (Head::Factored, 3), (Head::Branching, 3)],
            n_bars: 500_000,
            capacity: 1 << 20,
            storage: ReplayStorage::Rows,
        }
    }
}

/// Vector steps of one graph.
const STEPS: usize = 40;

/// Times everything; `report` hears each figure as it comes. `batch` of a figure is the number of environments.
///
/// # Errors
/// Those of the operations; [`foxhunt_cuda::CudaError::Driver`] with the call `result check` when the counts are wrong.
pub fn run(
    stream: &Stream,
    config: &BenchConfig,
    report: &mut dyn FnMut(&BenchRow),
) -> Result<Vec<BenchRow>, GpuReplayError> {
    let market = market(config.n_bars)?;
    let device_market = Arc::new(DeviceMarket::upload(stream, &market)?);
    let cache = Cache::user();
    let mut rows = Vec::new();
    for &(head, n_step) in &config.shapes {
        for &n_envs in &config.n_envs {
            let mut settings = Settings::default();
            settings.env.n_envs = n_envs;
            settings.network.head = head;
            settings.learner.n_step = n_step;
            settings.replay.storage = config.storage;
            let storage = config.storage;
            let collect = CollectConfig::new(&settings, &market, market.first_bar..market.len())
                .map_err(|error| failed(error.to_string()))?;
            let mut collector = GpuCollector::new(
                stream,
                collect,
                Arc::clone(&market),
                Arc::clone(&device_market),
                cache.as_ref(),
            )?;
            let replay = GpuReplayConfig { storage, ..GpuReplayConfig::new(config.capacity, STATE_DIM) };
            let mut replay = match storage {
                ReplayStorage::Rows => GpuPrioritizedReplay::new(stream, replay, cache.as_ref())?,
                ReplayStorage::Compact => {
                    let source = DeviceSource::new(stream, Arc::clone(&device_market), 0.99)?;
                    GpuPrioritizedReplay::compact(stream, replay, source, cache.as_ref())?
                }
            };
            let values: Vec<f32> = (0..n_envs * head.n_outputs()).map(|i| (i % 97) as f32 * 0.01).collect();
            let q = stream.upload_new("q", &values)?;
            for programmatic in [false, true] {
                collector.set_programmatic(programmatic);
                replay.set_programmatic(programmatic);
                // What a step reads and writes, features of two bars and three states foremost.
                let (moved, inserted) = match storage {
                    ReplayStorage::Rows => (3 * 204 + 384, 848),
                    ReplayStorage::Compact => (204 + 32 + 192, 64),
                };
                let bytes = n_envs as u64 * (moved + 128 + 2 * 112 + 4 * head.n_outputs() as u64);
                let name = |insert: bool| match (head, n_step, insert) {
                    (Head::Exposure, 1, false) => "collect, exposure, n 1",
                    (Head::Exposure, 1, true) => "collect + insert, exposure, n 1",
                    (Head::Exposure, _, false) => "collect, exposure, n 3",
                    (Head::Exposure, _, true) => "collect + insert, exposure, n 3",
                    (Head::Factored, _, false) => "collect, factored",
                    (Head::Factored, _, true) => "collect + insert, factored",
                    (Head::Branching, _, false) => "collect, branching",
                    (Head::Branching, _, true) => "collect + insert, branching",
                };
                let mut add = |row: BenchRow| {
                    report(&row);
                    rows.push(row);
                };
                let times = time(stream, STEPS, |s, _| Ok(collector.step(s, &q)?))?;
                add(row(name(false), storage, config.capacity, n_envs, programmatic, times, bytes));
                let times = time(stream, STEPS, |s, _| {
                    collector.step(s, &q)?;
                    collector.insert_into(s, &mut replay)
                })?;
                add(row(
                    name(true),
                    storage,
                    config.capacity,
                    n_envs,
                    programmatic,
                    times,
                    bytes + n_envs as u64 * inserted,
                ));
            }
            let stats = collector.epoch_stats(stream)?;
            let counted: u64 = stats.actions.iter().sum();
            if counted != stats.env_steps || counted != collector.env_steps() || !stats.faults.is_empty() {
                return Err(failed(format!("{counted} actions of {} env steps", stats.env_steps)).into());
            }
        }
    }
    Ok(rows)
}
