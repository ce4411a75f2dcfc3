//! `foxhunt bench`: times parts of the program on the GPU, after checking that their results are right.

use std::sync::Arc;
use std::time::Duration;

use foxhunt::MLError;
use foxhunt::cuda_engine::bench::{LoopConfig, LoopRow, run_loop};
use foxhunt::cuda_engine::soak::{SoakConfig, SoakRow, run_soak};
use foxhunt::engine_choice::open_device;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{Device, DeviceInfo};
use foxhunt_ops::{gpu_collect, gpu_learner, gpu_replay};
use serde::Serialize;

use crate::args::{BenchArgs, BenchCommand};
use crate::{console, exit, resolve};

/// What a bench prints with `--json`.
#[derive(Serialize)]
struct Report<R> {
    program: &'static str,
    device: DeviceRow,
    rows: Vec<R>,
}

/// The device that was timed.
#[derive(Serialize)]
struct DeviceRow {
    name: String,
    compute_capability: String,
    multiprocessors: u32,
    memory_bytes: u64,
    driver_cuda_version: u32,
}

impl From<&DeviceInfo> for DeviceRow {
    fn from(info: &DeviceInfo) -> Self {
        let (major, minor) = info.compute_capability;
        Self {
            name: info.name.clone(),
            compute_capability: format!("{major}.{minor}"),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.total_bytes,
            driver_cuda_version: info.driver_version,
        }
    }
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<u8> {
    let device = open_device()
        .map_err(|error| MLError::DeviceUnavailable { device: "cuda", reason: error.to_string() })?;
    let stream = device.stream()?;
    let table = Table { json: args.json };
    table.line(&format!("{}; device time, median of the replays of a graph", device.info().name));
    match &args.command {
        BenchCommand::Replay(what) => {
            let default = gpu_replay::bench::BenchConfig::default();
            let config = gpu_replay::bench::BenchConfig {
                capacities: named(&what.capacity, default.capacities),
                batches: named(&what.batch, default.batches),
                rank_capacities: named(&what.rank_capacity, default.rank_capacities),
                storage: what.storage.map_or(default.storage, Into::into),
                ..default
            };
            table.replay_header("capacity", "batch");
            let rows = gpu_replay::bench::run(&stream, &config, &mut |row| {
                table.line(&replay_row(row, row.capacity, row.batch));
            })?;
            table.finish(&device, rows)
        }
        BenchCommand::Collect(what) => {
            let default = gpu_collect::bench::BenchConfig::default();
            let config = gpu_collect::bench::BenchConfig {
                n_envs: named(&what.sizes.envs, default.n_envs),
                storage: what.storage.map_or(default.storage, Into::into),
                ..default
            };
            table.replay_header("capacity", "envs");
            let rows = gpu_collect::bench::run(&stream, &config, &mut |row| {
                table.line(&replay_row(row, row.capacity, row.batch));
            })?;
            table.finish(&device, rows)
        }
        BenchCommand::Update(what) => {
            let default = gpu_learner::bench::BenchConfig::default();
            let config = gpu_learner::bench::BenchConfig {
                batches: named(&what.sizes.batch, default.batches),
                acting: named(&what.sizes.envs, default.acting),
                precision: what.precision,
                ..default
            };
            table.line(&format!(
                "{:<24} {:>7} {:>9} {:>11} {:>9} {:>19} {:>8}",
                "operation", "rows", "precision", "overlapping", "us", "range", "TFLOP/s"
            ));
            let cache = Cache::user();
            let rows = gpu_learner::bench::run(&stream, &config, cache.as_ref(), &mut |row| {
                let [low, high] = row.us_range;
                table.line(&format!(
                    "{:<24} {:>7} {:>9} {:>11} {:>9.2} {low:>9.2} {high:>9.2} {:>8.1}",
                    row.op,
                    row.rows,
                    row.precision.name(),
                    yes(row.programmatic),
                    row.us,
                    row.tflops
                ));
            })?;
            table.finish(&device, rows)
        }
        BenchCommand::Loop(what) => {
            let default = LoopConfig::default();
            let config = LoopConfig {
                n_envs: named(&what.network.sizes.envs, default.n_envs),
                batches: named(&what.network.sizes.batch, default.batches),
                storage: what.storage.map_or(default.storage, Into::into),
                fallback: what.fallback,
                precision: what.network.precision,
                ..default
            };
            table.line(&format!(
                "{:>7} {:>6} {:>9} {:>11} {:>10} {:>14} {:>10} {:>11} {:>7} {:>9} {:>12} {:>7}",
                "envs",
                "batch",
                "precision",
                "collect us",
                "update us",
                "env steps/s",
                "updates/s",
                "calls/update",
                "costly",
                "wall us",
                "fallback us",
                "ratio"
            ));
            let rows = run_loop(&device, &config, &mut |row| table.line(&loop_row(row)))?;
            table.finish(&device, rows)
        }
        BenchCommand::Soak(what) => {
            let config = SoakConfig {
                time: Duration::from_secs(what.seconds),
                every: Duration::from_secs(what.every.max(1)),
                settings: resolve::settings(&what.settings)?,
                n_bars: 500_000,
            };
            run_soak(&device, &config, &mut |row| match args.json {
                true => console::line(&serde_json::to_string(row).unwrap_or_default()),
                false => console::line(&soak_row(row)),
            })?;
            Ok(exit::OK)
        }
    }
}

fn soak_row(row: &SoakRow) -> String {
    format!(
        "{:>6.0} s  {} updates, {} env steps, loss {:.5}; {} wrong sums, {} skipped, {} faults; free on the device {}, host {}",
        row.seconds,
        row.updates,
        row.env_steps,
        row.loss.unwrap_or(f64::NAN),
        row.wrong_sums,
        row.skipped_updates,
        row.faults,
        row.device_free_bytes,
        row.host_bytes.map_or_else(|| "not known".to_owned(), |bytes| bytes.to_string())
    )
}

/// The sizes that were named, or the usual ones.
fn named(values: &[usize], default: Vec<usize>) -> Vec<usize> {
    if values.is_empty() { default } else { values.to_vec() }
}

fn yes(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}

fn replay_row(row: &gpu_replay::bench::BenchRow, capacity: usize, rows: usize) -> String {
    let [low, high] = row.us_range;
    format!(
        "{:<36} {capacity:>9} {rows:>6} {:>11} {:>9.2} {low:>8.2} {high:>8.2} {:>6.0}",
        row.op,
        yes(row.programmatic),
        row.us,
        row.gb_per_s
    )
}

fn loop_row(row: &LoopRow) -> String {
    format!(
        "{:>7} {:>6} {:>9} {:>11.2} {:>10.2} {:>14.0} {:>10.0} {:>12.4} {:>7} {:>9.2} {:>12} {:>7}",
        row.n_envs,
        row.batch,
        row.precision.name(),
        row.collect_us,
        row.update_us,
        row.env_steps_per_s,
        row.updates_per_s,
        row.host_calls_per_update,
        row.costly_calls,
        row.wall_us,
        figure(row.fallback_wall_us),
        figure(row.fallback_ratio)
    )
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

/// Rows appear as they are measured: with `--json` on standard error, since JSON comes whole at the end.
struct Table {
    json: bool,
}

impl Table {
    fn line(&self, line: &str) {
        if self.json { console::notice(line) } else { console::line(line) }
    }

    fn replay_header(&self, capacity: &str, rows: &str) {
        self.line(&format!(
            "{:<36} {capacity:>9} {rows:>6} {:>11} {:>9} {:>17} {:>6}",
            "operation", "overlapping", "us", "range", "GB/s"
        ));
    }

    fn finish<R: Serialize>(&self, device: &Arc<Device>, rows: Vec<R>) -> anyhow::Result<u8> {
        if self.json {
            let program = concat!("foxhunt ", env!("CARGO_PKG_VERSION"));
            let report = Report { program, device: device.info().into(), rows };
            console::line(&serde_json::to_string_pretty(&report)?);
        }
        Ok(exit::OK)
    }
}
