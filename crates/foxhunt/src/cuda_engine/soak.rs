//! Runs the loop of the engine for a long time and looks at what must not move: device memory, the process's own, the sums of
//! the priority tree, and the guard's counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foxhunt_core::Settings;
use foxhunt_cuda::Device;
use serde::Serialize;

use super::CudaEngine;
use super::bench::{bench_engine, bench_market};
use super::store::Store;
use crate::engine::Engine;
use crate::{MLError, host_memory};

/// How far the process may grow while it soaks: allocators keep and return pages as they like.
const GROWTH: u64 = 8 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct SoakConfig {
    /// How long.
    pub time: Duration,
    /// Time between two rows.
    pub every: Duration,
    /// What the engine is made from; `env`, `learner` and `replay` matter.
    pub settings: Settings,
    /// Bars of the market.
    pub n_bars: usize,
}

/// What was seen at the end of an interval.
#[derive(Clone, Debug, Serialize)]
pub struct SoakRow {
    /// Seconds since the start.
    pub seconds: f64,
    /// Epochs so far: 256 vector steps, 256 updates, a report and a snapshot of the parameters.
    pub epochs: u64,
    /// Env steps so far.
    pub env_steps: u64,
    /// Updates applied so far.
    pub updates: u64,
    /// Updates skipped so far.
    pub skipped_updates: u64,
    /// Non-finite values and refusals reported so far.
    pub faults: u64,
    /// Mean loss of the last epoch.
    pub loss: Option<f64>,
    /// Rows stored.
    pub replay_len: u64,
    /// Sums of the priority tree, its root among them, that differ from the sum of their children.
    pub wrong_sums: u64,
    /// Device bytes that are free.
    pub device_free_bytes: u64,
    /// Host bytes of this process, where that is known.
    pub host_bytes: Option<u64>,
    /// Env steps a second since the row before.
    pub env_steps_per_s: f64,
    /// Updates a second since the row before.
    pub updates_per_s: f64,
}

/// Runs, and checks every row against the first; `report` hears each as it comes.
///
/// # Errors
/// Those of the engine; [`MLError::Halted`] naming what moved.
pub fn run_soak(
    device: &Arc<Device>,
    config: &SoakConfig,
    report: &mut dyn FnMut(&SoakRow),
) -> Result<Vec<SoakRow>, MLError> {
    let market = bench_market(config.n_bars)?;
    let mut engine = bench_engine(device, &market, &config.settings, None)?;
    let mut rows: Vec<SoakRow> = Vec::new();
    let (start, mut seen) = (Instant::now(), Seen::default());
    while start.elapsed() < config.time || rows.len() < 2 {
        // The last look is at the end of the time.
        let left = config.time.saturating_sub(start.elapsed());
        let interval = if left.is_zero() { config.every } else { config.every.min(left) };
        let begun = Instant::now();
        let before = (seen.env_steps, seen.updates);
        while begun.elapsed() < interval {
            seen.epoch(&mut engine)?;
        }
        let took = begun.elapsed().as_secs_f64();
        let row = SoakRow {
            seconds: start.elapsed().as_secs_f64(),
            epochs: seen.epochs,
            env_steps: seen.env_steps,
            updates: seen.updates,
            skipped_updates: seen.skipped,
            faults: seen.faults,
            loss: seen.loss,
            replay_len: seen.replay_len,
            wrong_sums: wrong_sums(&engine)?,
            device_free_bytes: device.memory()?.0,
            host_bytes: host_memory::resident(),
            env_steps_per_s: (seen.env_steps - before.0) as f64 / took,
            updates_per_s: (seen.updates - before.1) as f64 / took,
        };
        report(&row);
        check(rows.first(), &row)?;
        rows.push(row);
    }
    Ok(rows)
}

#[derive(Default)]
struct Seen {
    epochs: u64,
    env_steps: u64,
    updates: u64,
    skipped: u64,
    faults: u64,
    loss: Option<f64>,
    replay_len: u64,
}

impl Seen {
    fn epoch(&mut self, engine: &mut CudaEngine) -> Result<(), MLError> {
        const STEPS: u32 = 256;
        engine.collect(STEPS)?;
        engine.update(STEPS)?;
        let stats = engine.drain()?;
        engine.take_work_times()?;
        engine.parameters()?;
        self.epochs += 1;
        self.env_steps += stats.env_steps;
        self.updates += stats.updates;
        self.skipped += stats.skipped_updates;
        self.faults += stats.faults.len() as u64 + stats.faults_lost;
        self.loss = stats.loss;
        self.replay_len = stats.replay_len;
        Ok(())
    }
}

fn wrong_sums(engine: &CudaEngine) -> Result<u64, MLError> {
    match &engine.store {
        Store::Device(replay) => Ok(replay.wrong_sums(&engine.stream)?),
        Store::Host(_) => Ok(0),
    }
}

/// Refuses a row in which something moved since the first.
fn check(first: Option<&SoakRow>, row: &SoakRow) -> Result<(), MLError> {
    let halt = |reason: String| Err(MLError::Halted { update: row.updates, reason });
    if row.wrong_sums > 0 {
        return halt(format!("{} sums of the priority tree are wrong", row.wrong_sums));
    }
    if row.skipped_updates > 0 || row.faults > 0 {
        return halt(format!("{} updates skipped, {} faults", row.skipped_updates, row.faults));
    }
    if !row.loss.is_some_and(f64::is_finite) {
        return halt("the loss is not finite".to_owned());
    }
    let Some(first) = first else { return Ok(()) };
    // More of it is another process's doing.
    if row.device_free_bytes < first.device_free_bytes {
        let (now, then) = (row.device_free_bytes, first.device_free_bytes);
        return halt(format!("{now} bytes of the device are free, {then} were after the first interval"));
    }
    match (row.host_bytes, first.host_bytes) {
        (Some(now), Some(then)) if now > then + GROWTH => {
            halt(format!("the process takes {now} bytes, {then} after the first interval"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> SoakRow {
        SoakRow {
            seconds: 1.0,
            epochs: 1,
            env_steps: 2,
            updates: 3,
            skipped_updates: 0,
            faults: 0,
            loss: Some(0.5),
            replay_len: 4,
            wrong_sums: 0,
            device_free_bytes: 1 << 30,
            host_bytes: Some(1 << 20),
            env_steps_per_s: 5.0,
            updates_per_s: 6.0,
        }
    }

    /// Each thing that must not move ends the soak when it does, and is named.
    #[test]
    fn whatever_moves_is_named() {
        check(None, &row()).unwrap();
        check(Some(&row()), &SoakRow { host_bytes: Some((1 << 20) + GROWTH), ..row() }).unwrap();
        for (moved, name) in [
            (SoakRow { wrong_sums: 1, ..row() }, "sums"),
            (SoakRow { skipped_updates: 1, ..row() }, "skipped"),
            (SoakRow { faults: 2, ..row() }, "2 faults"),
            (SoakRow { loss: None, ..row() }, "loss"),
            (SoakRow { device_free_bytes: (1 << 30) - 1, ..row() }, "device"),
            (SoakRow { host_bytes: Some((1 << 20) + GROWTH + 1), ..row() }, "process"),
        ] {
            let error = check(Some(&row()), &moved).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
