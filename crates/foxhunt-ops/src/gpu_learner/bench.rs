//! Times whole updates inside captured graphs, by growing prefixes, and forward passes for acting.
//!
//! An update is a proportional sample of a full memory, learning, and the new priorities. A figure is device time of one
//! of many in a graph, replayed and timed with events, median of the replays; a phase is the difference of two prefixes,
//! what the guard costs that of updates with and without it.
//! It compares with nothing; peers are run beside it.

use foxhunt_core::settings::Precision;
use foxhunt_core::{Head, ReturnModel};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{CudaError, DeviceBuffer, EventTimer, Stream};
use serde::Serialize;

use super::{GpuLearner, GpuLearnerConfig, GpuLearnerError};
use crate::gpu_replay::bench::{REPLAYS, mix, time};
use crate::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig};
use crate::guard::cuda::DeviceGuard;
use crate::learner::LearnerState;
use crate::mlp::MlpShape;
use crate::ring::cuda::{DeviceBatch, DeviceRows};

const UPDATES: usize = 20;

/// What to time.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The network.
    pub shape: MlpShape,
    /// Rows of the replay memory.
    pub capacity: usize,
    /// Batches of an update.
    pub batches: Vec<usize>,
    /// Rows of a forward pass for acting.
    pub acting: Vec<usize>,
    /// How matrices are multiplied.
    pub precision: Precision,
}

impl Default for BenchConfig {
    fn default() -> Self {
        let hidden = vec![256, 256];
        Self {
            shape: MlpShape {
                state_dim: 51,
                hidden,
                head: Head::Factored.into(),
                dueling: true,
                returns: ReturnModel::Mean,
            },
            capacity: 1 << 20,
            batches: vec![64, 256, 1024, 8192],
            acting: vec![1024, 4096, 16_384, 65_536],
            precision: Precision::F32,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// Which work, for example `update` or `+ loss`.
    pub op: String,
    /// Rows of the batch.
    pub rows: usize,
    /// How matrices are multiplied.
    pub precision: Precision,
    /// Whether launches overlap.
    pub programmatic: bool,
    /// Median microseconds; of a phase, the difference of two medians.
    pub us: f64,
    /// Quickest and slowest replay; of a phase, of its prefix.
    pub us_range: [f64; 2],
    /// Multiply-adds times two a second, 1e12, at the median; 0 where it makes none.
    pub tflops: f64,
}

/// Times everything; `report` hears each figure as it comes.
///
/// # Errors
/// Those of the operations; [`CudaError::Driver`] with the call `result check` when an update was skipped.
pub fn run(
    stream: &Stream,
    config: &BenchConfig,
    cache: Option<&Cache>,
    report: &mut dyn FnMut(&BenchRow),
) -> Result<Vec<BenchRow>, GpuLearnerError> {
    let mut rows = Vec::new();
    let mut add = |row: BenchRow| {
        report(&row);
        rows.push(row);
    };
    let mut replay = full_memory(stream, config)?;
    for &batch in &config.batches {
        for programmatic in [false, true] {
            update(stream, config, cache, &mut replay, batch, programmatic, &mut add)?;
        }
    }
    for &batch in &config.batches {
        guard(stream, config, cache, &mut replay, batch, &mut add)?;
    }
    for &rows in &config.acting {
        for programmatic in [false, true] {
            acting(stream, config, cache, rows, programmatic, &mut add)?;
        }
    }
    Ok(rows)
}

/// Times only what the guard costs, for each batch: inside an update, and as two launches behind it.
///
/// # Errors
/// As [`run`].
pub fn guard_cost(
    stream: &Stream,
    config: &BenchConfig,
    cache: Option<&Cache>,
    report: &mut dyn FnMut(BenchRow),
) -> Result<(), GpuLearnerError> {
    let mut replay = full_memory(stream, config)?;
    config.batches.iter().try_for_each(|&batch| guard(stream, config, cache, &mut replay, batch, report))
}

fn full_memory(stream: &Stream, config: &BenchConfig) -> Result<GpuPrioritizedReplay, GpuLearnerError> {
    let state_dim = config.shape.state_dim;
    let mut replay =
        GpuPrioritizedReplay::new(stream, GpuReplayConfig::new(config.capacity, state_dim), None)?;
    let piece = 1 << 14;
    let mut rows = DeviceRows::zeros(stream, piece, state_dim)?;
    for first in (0..config.capacity).step_by(piece) {
        let value = |i: usize| (mix((first * state_dim + i) as u64) >> 40) as f32 / 8_388_608.0 - 1.0;
        let states: Vec<f32> = (0..piece * state_dim).map(value).collect();
        stream.upload(&mut rows.states, &states)?;
        stream.upload(&mut rows.next_states, &states)?;
        stream.upload(&mut rows.rewards, &states[..piece])?;
        let actions: Vec<u32> = (0..piece as u32).map(|i| i % config.shape.head.n_actions() as u32).collect();
        stream.upload(&mut rows.actions, &actions)?;
        stream.upload(&mut rows.discounts, &vec![0.97; piece])?;
        replay.insert(stream, &rows, piece)?;
    }
    stream.synchronise()?;
    Ok(replay)
}

fn learner(
    stream: &Stream,
    config: &GpuLearnerConfig,
    cache: Option<&Cache>,
) -> Result<GpuLearner, GpuLearnerError> {
    let mut learner = GpuLearner::new(stream, config, cache)?;
    let (online, n) = (learner.layout().init(1), learner.layout().len());
    let state = LearnerState { target: online.clone(), online, m: vec![0.0; n], v: vec![0.0; n], adam_t: 0 };
    learner.upload_state(stream, &state)?;
    Ok(learner)
}

/// Prefixes of an update: what has been queued when each ends.
const PHASES: [&str; 6] = ["sample", "+ forward", "+ loss", "+ backward", "+ step", "+ priorities = update"];

fn update(
    stream: &Stream,
    config: &BenchConfig,
    cache: Option<&Cache>,
    replay: &mut GpuPrioritizedReplay,
    batch: usize,
    programmatic: bool,
    add: &mut dyn FnMut(BenchRow),
) -> Result<(), GpuLearnerError> {
    let mut of = GpuLearnerConfig::new(config.shape.clone());
    of.learner.batch = batch;
    of.learner.precision = config.precision;
    of.programmatic = programmatic;
    let mut learner = learner(stream, &of, cache)?;
    replay.set_programmatic(programmatic);
    let mut out = DeviceBatch::zeros(stream, batch, config.shape.state_dim)?;
    let macs: usize = learner.layout().layers().iter().map(|l| l.n_in * l.n_out).sum();
    let first = learner.layout().layers()[0];
    let flop = 2.0 * batch as f64 * (5 * macs - first.n_in * first.n_out) as f64;
    let mut before = 0.0;
    for (phase, name) in PHASES.iter().enumerate() {
        let name = match (phase, learner.has_clusters()) {
            (1, true) => continue,
            (2, true) => "+ forward, loss, units back",
            (3, true) => "+ weights back",
            _ => name,
        };
        let times = time(stream, UPDATES, |s, _| {
            replay.sample(s, &mut out)?;
            learner.prefix(s, &out, phase)?;
            if phase == 5 { replay.update(s, &learner.priorities(), batch) } else { Ok(()) }
        })?;
        let us = times[REPLAYS / 2];
        let whole = phase == 5;
        add(BenchRow {
            op: name.to_owned(),
            rows: batch,
            precision: config.precision,
            programmatic,
            us: if whole { us } else { us - before },
            us_range: [times[0], times[REPLAYS - 1]],
            tflops: if whole { flop / us / 1e6 } else { 0.0 },
        });
        before = us;
    }
    let (progress, sums) = learner.progress(stream)?;
    if progress.counts.skipped > 0 || sums.updates == 0 || !sums.guard.loss.is_finite() {
        let name = format!("{progress:?}, {sums:?}");
        return Err(CudaError::Driver { call: "result check".to_owned(), name }.into());
    }
    Ok(())
}

/// Rounds of replays when graphs are compared that differ by little.
const ROUNDS: usize = 201;

/// What the guard costs inside a captured update: judgement, sums and record, beside the gate. Three graphs are replayed in
/// turn, so that all meet the same clocks; a figure is the median difference of a round, its range the middle half.
fn guard(
    stream: &Stream,
    config: &BenchConfig,
    cache: Option<&Cache>,
    replay: &mut GpuPrioritizedReplay,
    batch: usize,
    add: &mut dyn FnMut(BenchRow),
) -> Result<(), GpuLearnerError> {
    let mut of = GpuLearnerConfig::new(config.shape.clone());
    of.learner.batch = batch;
    of.learner.precision = config.precision;
    let mut with = learner(stream, &of, cache)?;
    let mut without = learner(stream, &of, cache)?;
    without.leave_out_guard(stream, cache)?;
    let mut out = DeviceBatch::zeros(stream, batch, config.shape.state_dim)?;
    let mut alone = DeviceGuard::new(stream, cache)?;
    let one = stream.upload_new("a loss", &[1.0_f32])?;
    let mut updates = |learner: &mut GpuLearner, beside: bool| {
        stream.capture(|s| {
            for _ in 0..UPDATES {
                replay.sample(s, &mut out)?;
                learner.prefix(s, &out, 4)?;
                replay.update(s, &learner.priorities(), batch)?;
                if beside {
                    alone.check(s, &one, &one, 0.0, 1e6, false)?;
                    alone.accumulate(s, &one, &one)?;
                }
            }
            Ok::<(), GpuLearnerError>(())
        })
    };
    let mut graphs = [updates(&mut without, false)?, updates(&mut with, false)?, updates(&mut with, true)?];
    let mut timer = EventTimer::new(stream.device())?;
    let mut differences = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS + 5 {
        let mut us = [0.0; 3];
        for (us, graph) in us.iter_mut().zip(&mut graphs) {
            *us = timer.time(stream, || graph.launch(stream))? / UPDATES as f64;
        }
        if round >= 5 {
            differences[0].push(us[1] - us[0]);
            differences[1].push(us[2] - us[1]);
        }
    }
    for (op, mut us) in ["guard inside the update", "guard behind it, two launches"].iter().zip(differences) {
        us.sort_by(f64::total_cmp);
        add(BenchRow {
            op: (*op).to_owned(),
            rows: batch,
            precision: config.precision,
            programmatic: true,
            us: us[ROUNDS / 2],
            us_range: [us[ROUNDS / 4], us[ROUNDS * 3 / 4]],
            tflops: 0.0,
        });
    }
    Ok(())
}

fn acting(
    stream: &Stream,
    config: &BenchConfig,
    cache: Option<&Cache>,
    rows: usize,
    programmatic: bool,
    add: &mut dyn FnMut(BenchRow),
) -> Result<(), GpuLearnerError> {
    let mut of = GpuLearnerConfig::new(config.shape.clone());
    of.learner.batch = 1;
    of.learner.precision = config.precision;
    of.acting_rows = rows;
    of.programmatic = programmatic;
    let mut learner = learner(stream, &of, cache)?;
    let state_dim = config.shape.state_dim;
    let values: Vec<f32> =
        (0..rows * state_dim).map(|i| (mix(i as u64) >> 40) as f32 / 8_388_608.0 - 1.0).collect();
    let states = stream.upload_new("states", &values)?;
    let mut q: DeviceBuffer<f32> = stream.zeros("q", [rows, learner.layout().n_outputs()])?;
    let times = time(stream, UPDATES, |s, _| learner.q_values(s, &states, rows, &mut q))?;
    let macs: usize = learner.layout().layers().iter().map(|l| l.n_in * l.n_out).sum();
    let us = times[REPLAYS / 2];
    let tflops = 2.0 * (rows * macs) as f64 / us / 1e6;
    let us_range = [times[0], times[REPLAYS - 1]];
    let (op, precision) = ("q_values".to_owned(), config.precision);
    add(BenchRow { op, rows, precision, programmatic, us, us_range, tflops });
    Ok(())
}
