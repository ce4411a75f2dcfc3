//! Times the whole loop of the engine: vector steps and updates as a training run queues them.

use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{Device, driver_calls};
use foxhunt_market::features::first_bar;
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{Market, Normalise};
use serde::Serialize;

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
    /// Bars of the market.
    pub n_bars: usize,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self { n_envs: vec![1024, 16_384], batches: vec![256, 8192], capacity: 1 << 20, n_bars: 500_000 }
    }
}

/// One figure: a vector step of all environments and one update.
#[derive(Clone, Debug, Serialize)]
pub struct LoopRow {
    /// Environments.
    pub n_envs: usize,
    /// Rows of an update.
    pub batch: usize,
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
    let walk = RandomWalk { n_bars: config.n_bars, seed: 1, volatility: 1e-3, start_price: 100.0 };
    let execution = Settings::default().execution;
    let fit = Normalise::FitOn(first_bar(&execution)..config.n_bars);
    let market = Arc::new(Market::prepare(walk.bars()?, &execution, fit)?);
    let mut rows = Vec::new();
    for &n_envs in &config.n_envs {
        for &batch in &config.batches {
            let row = time(device, &market, config.capacity, n_envs, batch)?;
            report(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn time(
    device: &Arc<Device>,
    market: &Arc<Market>,
    capacity: usize,
    n_envs: usize,
    batch: usize,
) -> Result<LoopRow, MLError> {
    const STEPS: u32 = 256;
    let mut settings = Settings::default();
    settings.env.n_envs = n_envs;
    settings.learner.batch = batch;
    settings.replay.capacity = capacity;
    let options = CudaOptions { cache: Cache::user(), ..CudaOptions::default() };
    let train = market.first_bar..market.len();
    let mut engine = CudaEngine::build(&settings, Arc::clone(market), train, device, &options)?.engine;
    // Fills the memory, and captures what is then replayed.
    let filling = (capacity / n_envs).clamp(STEPS as usize, 8 * STEPS as usize) as u32;
    for (steps, updates) in [(filling, STEPS), (STEPS, STEPS)] {
        engine.collect(steps)?;
        engine.update(updates)?;
        engine.drain()?;
        engine.take_work_times()?;
    }
    let before = driver_calls();
    engine.collect(STEPS)?;
    engine.update(STEPS)?;
    let calls = driver_calls() - before;
    let stats = engine.drain()?;
    let times = engine.take_work_times()?;
    if stats.updates != u64::from(STEPS) || !stats.loss.is_some_and(f64::is_finite) {
        let reason = format!("{} of {STEPS} updates were applied", stats.updates);
        return Err(MLError::Halted { update: stats.total_updates, reason });
    }
    let each = |seconds: f64| seconds * 1e6 / f64::from(STEPS);
    let (collecting, updating) = (times.collecting.as_secs_f64(), times.updating.as_secs_f64());
    let both = collecting + updating;
    Ok(LoopRow {
        n_envs,
        batch,
        collect_us: each(collecting),
        update_us: each(updating),
        env_steps_per_s: stats.env_steps as f64 / both,
        updates_per_s: stats.updates as f64 / both,
        host_calls_per_update: (calls.launches + calls.graph_launches) as f64 / f64::from(STEPS),
        costly_calls: calls.synchronisations + calls.copies_to_host + calls.allocations,
    })
}
