//! Times the whole loop of the engine: vector steps and updates as a training run queues them.

use std::sync::Arc;
use std::time::Instant;

use foxhunt_core::Settings;
use foxhunt_core::settings::{MemoryFallback, Precision, ReplayStorage};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{Device, driver_calls};
use foxhunt_market::features::first_bar;
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{Market, Normalise};
use serde::Serialize;

use super::memory::Plan;
use super::{CudaEngine, CudaOptions};
use crate::MLError;
use crate::engine::Engine;

/// What to time.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Environments.
    pub n_envs: Vec<usize>,
    /// Rows of an update; one update a vector step.
    pub batches: Vec<usize>,
    /// Rows of the replay memory.
    pub capacity: usize,
    /// How they are stored.
    pub storage: ReplayStorage,
    /// Bars of the market.
    pub n_bars: usize,
    /// Whether to time the same learner fed from host memory as well.
    pub fallback: bool,
    /// How matrices are multiplied.
    pub precision: Precision,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            n_envs: vec![1024, 16_384],
            batches: vec![256, 8192],
            capacity: 1 << 20,
            storage: Settings::default().replay.storage,
            n_bars: 500_000,
            fallback: false,
            precision: Precision::F32,
        }
    }
}

/// One figure: a vector step of all environments and one update.
#[derive(Clone, Debug, Serialize)]
pub struct LoopRow {
    /// Environments.
    pub n_envs: usize,
    /// Rows of an update.
    pub batch: usize,
    /// How rows are stored.
    pub storage: ReplayStorage,
    /// How matrices are multiplied.
    pub precision: Precision,
    /// Microseconds of a vector step, device time, mean of an epoch.
    pub collect_us: f64,
    /// Microseconds of an update, device time, mean of an epoch.
    pub update_us: f64,
    /// Env steps a second while both alternate.
    pub env_steps_per_s: f64,
    /// Updates a second while both alternate.
    pub updates_per_s: f64,
    /// Calls into the driver for one vector step and one update.
    pub host_calls_per_update: f64,
    /// Waits, copies to the host and allocations between two reports.
    pub costly_calls: u64,
    /// Wall-clock microseconds of a vector step and an update, the report of an epoch of 256 of each included.
    pub wall_us: f64,
    /// The same with the rows in host memory, as where a device cannot hold them; none when not asked for.
    pub fallback_wall_us: Option<f64>,
    /// How many times as long an epoch takes with the rows in host memory.
    pub fallback_ratio: Option<f64>,
}

/// Times everything; `report` hears each figure as it comes.
///
/// # Errors
/// Those of the engine; [`MLError::Halted`] when updates were skipped, so that the figure means nothing.
pub fn run_loop(
    device: &Arc<Device>,
    config: &LoopConfig,
    report: &mut dyn FnMut(&LoopRow),
) -> Result<Vec<LoopRow>, MLError> {
    let market = bench_market(config.n_bars)?;
    let mut rows = Vec::new();
    for &n_envs in &config.n_envs {
        for &batch in &config.batches {
            let mut settings = Settings::default();
            settings.env.n_envs = n_envs;
            settings.learner.batch = batch;
            settings.replay.capacity = config.capacity;
            settings.replay.storage = config.storage;
            settings.learner.precision = config.precision;
            let mut row = time(device, &market, &settings)?;
            if config.fallback {
                let us = time_fallback(device, &market, &settings)?;
                (row.fallback_wall_us, row.fallback_ratio) = (Some(us), Some(us / row.wall_us));
            }
            report(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// A random walk, larger than caches.
pub(super) fn bench_market(n_bars: usize) -> Result<Arc<Market>, MLError> {
    let walk = RandomWalk { n_bars, seed: 1, volatility: 1e-3, start_price: 100.0 };
    let execution = Settings::default().execution;
    let fit = Normalise::FitOn(first_bar(&execution)..n_bars);
    Ok(Arc::new(Market::prepare(walk.bars()?, &execution, fit)?))
}

/// An engine over all of `market`.
pub(super) fn bench_engine(
    device: &Arc<Device>,
    market: &Arc<Market>,
    settings: &Settings,
    memory_limit: Option<u64>,
) -> Result<CudaEngine, MLError> {
    let options = CudaOptions { cache: Cache::user(), memory_limit };
    let train = market.first_bar..market.len();
    Ok(CudaEngine::build(settings, Arc::clone(market), train, device, &options)?.engine)
}

/// One epoch, and its wall-clock microseconds a step.
fn epoch(engine: &mut CudaEngine, steps: u32) -> Result<f64, MLError> {
    let start = Instant::now();
    engine.collect(steps)?;
    engine.update(steps)?;
    let stats = engine.drain()?;
    if stats.updates != u64::from(steps) || !stats.loss.is_some_and(f64::is_finite) {
        let reason = format!("{} of {steps} updates were applied", stats.updates);
        return Err(MLError::Halted { update: stats.total_updates, reason });
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(steps))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn time(device: &Arc<Device>, market: &Arc<Market>, settings: &Settings) -> Result<LoopRow, MLError> {
    const STEPS: u32 = 256;
    const EPOCHS: usize = 5;
    let (n_envs, batch) = (settings.env.n_envs, settings.learner.batch);
    let mut engine = bench_engine(device, market, settings, None)?;
    // Fills the memory, and captures what is then replayed.
    let filling = (settings.replay.capacity / n_envs).clamp(STEPS as usize, 8 * STEPS as usize) as u32;
    engine.collect(filling)?;
    epoch(&mut engine, STEPS)?;
    let walls = (0..EPOCHS).map(|_| epoch(&mut engine, STEPS)).collect::<Result<Vec<_>, _>>()?;
    engine.take_work_times()?;
    let before = driver_calls();
    engine.collect(STEPS)?;
    engine.update(STEPS)?;
    let calls = driver_calls() - before;
    let stats = engine.drain()?;
    let times = engine.take_work_times()?;
    let each = |seconds: f64| seconds * 1e6 / f64::from(STEPS);
    let (collecting, updating) = (times.collecting.as_secs_f64(), times.updating.as_secs_f64());
    let both = collecting + updating;
    Ok(LoopRow {
        n_envs,
        batch,
        storage: settings.replay.storage,
        precision: settings.learner.precision,
        collect_us: each(collecting),
        update_us: each(updating),
        env_steps_per_s: stats.env_steps as f64 / both,
        updates_per_s: stats.updates as f64 / both,
        host_calls_per_update: (calls.launches + calls.graph_launches) as f64 / f64::from(STEPS),
        costly_calls: calls.synchronisations + calls.copies_to_host + calls.allocations,
        wall_us: median(walls),
        fallback_wall_us: None,
        fallback_ratio: None,
    })
}

/// Wall-clock microseconds of a vector step and an update whose rows are in host memory.
fn time_fallback(device: &Arc<Device>, market: &Arc<Market>, settings: &Settings) -> Result<f64, MLError> {
    const STEPS: u32 = 64;
    let mut settings = settings.clone();
    settings.replay.memory_fallback = MemoryFallback::Cpu;
    let limit = Plan::new(&settings, market.len()).fixed();
    let mut engine = bench_engine(device, market, &settings, Some(limit))?;
    engine.collect((settings.learner.batch / settings.env.n_envs + 8) as u32)?;
    epoch(&mut engine, STEPS)?;
    Ok(median((0..3).map(|_| epoch(&mut engine, STEPS)).collect::<Result<Vec<_>, _>>()?))
}
