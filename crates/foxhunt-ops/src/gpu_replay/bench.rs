//! `foxhunt bench replay`: times the operations of a full memory inside captured graphs, after checking their results.
//!
//! A figure is device time an operation: a graph of many operations is replayed, timed with events, and the median of
//! the replays is divided by the operations. It compares with nothing; peers are run beside it.

use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::{CudaError, EventTimer, Stream};
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{Market, Normalise, STATE_DIM};
use serde::Serialize;

use super::{GpuPrioritizedReplay, GpuReplayConfig, GpuReplayError, GpuSampling, Resort};
use crate::env_step::cuda::DeviceMarket;
use crate::priority_tree::cuda::DeviceUpdate;
use crate::ring::cuda::{DeviceBatch, DeviceCompactRows, DeviceRows, DeviceSource, RowsRoom};
use crate::ring::{CompactRow, Transition};

/// Rows of one timed insert.
pub const INSERT: usize = 1024;
/// Sets of update arguments that a graph rotates through.
const SETS: usize = 20;
/// Timed replays of a graph.
pub(crate) const REPLAYS: usize = 15;

/// What to time.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Capacities.
    pub capacities: Vec<usize>,
    /// Batches.
    pub batches: Vec<usize>,
    /// Capacities for rank-based sampling.
    pub rank_capacities: Vec<usize>,
    /// Values in a state; 51 where rows are compact.
    pub state_dim: usize,
    /// How rows are stored.
    pub storage: ReplayStorage,
    /// Bars of the market that compact rows look features up in: more than the caches hold.
    pub n_bars: usize,
}

impl Default for BenchConfig {
    fn default() -> Self {
        Self {
            capacities: vec![1 << 17, 1 << 20, 1 << 22, 1 << 24],
            batches: vec![256, 1024, 8192],
            rank_capacities: vec![1 << 20, 1 << 22],
            state_dim: STATE_DIM,
            storage: ReplayStorage::Rows,
            n_bars: 500_000,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// Operation.
    pub op: &'static str,
    /// How rows are stored, where that matters.
    pub storage: ReplayStorage,
    /// Rows of the memory, all filled.
    pub capacity: usize,
    /// Rows of the batch.
    pub batch: usize,
    /// Whether launches overlap.
    pub programmatic: bool,
    /// Median microseconds an operation.
    pub us: f64,
    /// Quickest and slowest replay, microseconds an operation.
    pub us_range: [f64; 2],
    /// Bytes of rows read and written an operation, in GB/s at the median; 0 where it moves none.
    pub gb_per_s: f64,
}

/// Times everything; `report` hears each figure as it comes.
///
/// # Errors
/// Those of the operations; [`CudaError::Driver`] with the call `result check` when a result was wrong.
pub fn run(
    stream: &Stream,
    config: &BenchConfig,
    report: &mut dyn FnMut(&BenchRow),
) -> Result<Vec<BenchRow>, GpuReplayError> {
    let mut rows = Vec::new();
    let copy = copy_ceiling(stream)?;
    let mut add = |row: BenchRow| {
        report(&row);
        rows.push(row);
    };
    add(copy);
    let market = match config.storage {
        ReplayStorage::Rows => None,
        ReplayStorage::Compact => {
            let market = market(config.n_bars)?;
            Some(Arc::new(DeviceMarket::upload(stream, &market)?))
        }
    };
    for &capacity in &config.capacities {
        let mut bench = Bench::new(stream, capacity, config, market.as_ref(), GpuSampling::Proportional)?;
        for &batch in &config.batches {
            bench.prepare(batch)?;
            bench.check()?;
            for programmatic in [false, true] {
                bench.replay.set_programmatic(programmatic);
                bench.proportional(&mut add)?;
            }
            bench.check()?;
        }
    }
    for &capacity in &config.rank_capacities {
        let sampling = GpuSampling::RankBased { resort_every: 1 };
        let mut bench = Bench::new(stream, capacity, config, market.as_ref(), sampling)?;
        for &batch in &[256, 8192] {
            bench.prepare(batch)?;
            for programmatic in [false, true] {
                bench.replay.set_programmatic(programmatic);
                bench.rank(&mut add)?;
            }
        }
    }
    Ok(rows)
}

/// Device copy of 1 GiB, read and written: the bandwidth to hold figures against.
fn copy_ceiling(stream: &Stream) -> Result<BenchRow, GpuReplayError> {
    let n = 1 << 28;
    let source = stream.zeros::<u32>("copy source", n)?;
    let mut target = stream.zeros::<u32>("copy target", n)?;
    let mut timer = EventTimer::new(stream.device())?;
    let mut times = Vec::new();
    for _ in 0..REPLAYS {
        times.push(timer.time(stream, || stream.copy(&mut target, &source))?);
    }
    times.sort_by(f64::total_cmp);
    Ok(row("device copy", ReplayStorage::Rows, n, 0, false, times, 2 * source.bytes()))
}

struct Bench<'s> {
    stream: &'s Stream,
    replay: GpuPrioritizedReplay,
    out: DeviceBatch,
    new: RowsRoom,
    updates: Vec<(foxhunt_cuda::DeviceBuffer<u32>, foxhunt_cuda::DeviceBuffer<f32>)>,
}

impl<'s> Bench<'s> {
    /// A full memory whose priorities differ by a factor of some hundred.
    fn new(
        stream: &'s Stream,
        capacity: usize,
        config: &BenchConfig,
        market: Option<&Arc<DeviceMarket>>,
        sampling: GpuSampling,
    ) -> Result<Self, GpuReplayError> {
        let (state_dim, storage) = (config.state_dim, config.storage);
        let replay = GpuReplayConfig { sampling, storage, ..GpuReplayConfig::new(capacity, state_dim) };
        let (mut replay, new, at_once) = match market {
            Some(market) => {
                let source = DeviceSource::new(stream, Arc::clone(market), 0.99)?;
                let replay = GpuPrioritizedReplay::compact(stream, replay, source, None)?;
                (replay, compact_rows(stream, 1 << 20, market.len())?, 1 << 20)
            }
            None => {
                let replay = GpuPrioritizedReplay::new(stream, replay, None)?;
                (replay, whole_rows(stream, state_dim)?, INSERT)
            }
        };
        for _ in 0..capacity.div_ceil(at_once) {
            replay.queue_insert(stream, new.incoming(), at_once, None)?;
        }
        // The hottest 2^24 slots are enough: every so many of a larger memory.
        let (piece, every) = (1 << 16, (capacity >> 24).max(1));
        for first in (0..capacity).step_by(piece * every) {
            let end = capacity.min(first + piece * every);
            let slots: Vec<u32> = (first..end).step_by(every).map(|i| i as u32).collect();
            let td: Vec<f32> = slots.iter().map(|&i| td_error(u64::from(i))).collect();
            let (slots, td) = (stream.upload_new("slots", &slots)?, stream.upload_new("td errors", &td)?);
            replay.update(stream, &update(&slots, &td), td.len())?;
        }
        let out = DeviceBatch::zeros(stream, 1, state_dim)?;
        stream.synchronise()?;
        Ok(Self { stream, replay, out, new, updates: Vec::new() })
    }

    fn prepare(&mut self, batch: usize) -> Result<(), GpuReplayError> {
        self.out = DeviceBatch::zeros(self.stream, batch, self.replay.config().state_dim)?;
        let capacity = self.replay.capacity() as u64;
        self.updates.clear();
        for set in 0..SETS as u64 {
            let ids = || (0..batch as u64).map(move |b| mix(set << 40 | b | 1 << 60));
            let slots: Vec<u32> = ids().map(|h| (h % capacity) as u32).collect();
            let td: Vec<f32> = ids().map(|h| td_error(h >> 1)).collect();
            let stream = self.stream;
            self.updates.push((stream.upload_new("slots", &slots)?, stream.upload_new("td errors", &td)?));
        }
        Ok(())
    }

    /// One draw equals prefix sum and binary search, and every sum equals its children.
    fn check(&mut self) -> Result<(), GpuReplayError> {
        let step = self.replay.counters(self.stream)?.samples;
        self.replay.sample(self.stream, &mut self.out)?;
        let drawn = self.stream.download(&self.out.indices)?;
        let plain = self.replay.plain_slots(self.stream, drawn.len() as u32, step)?;
        let wrong = self.replay.wrong_sums(self.stream)?;
        if drawn == plain && wrong == 0 {
            return Ok(());
        }
        let name = format!("{wrong} sums are wrong, draws agree: {}", drawn == plain);
        Err(failed(name).into())
    }

    fn proportional(&mut self, add: &mut dyn FnMut(BenchRow)) -> Result<(), GpuReplayError> {
        let Self { stream, replay, out, new, updates } = self;
        let GpuReplayConfig { capacity, state_dim, storage, programmatic: on, .. } = *replay.config();
        let batch = out.len();
        // Read and written.
        let values = 4 * (2 * state_dim + 4) as u64;
        let (a_sample, an_insert) = match storage {
            ReplayStorage::Rows => (2 * values, 2 * values),
            ReplayStorage::Compact => (size_of::<CompactRow>() as u64 + 2 * 4 * 48 + values, 64),
        };
        let (sampled, inserted) = (batch as u64 * a_sample, INSERT as u64 * an_insert);
        let row = |op, times, bytes| row(op, storage, capacity, batch, on, times, bytes);
        let times = time(stream, 60, |s, _| replay.sample(s, out))?;
        add(row("sample + gather + weights", times, sampled));
        let times = time(stream, 60, |s, k| {
            let (slots, td) = &updates[k % SETS];
            replay.update(s, &update(slots, td), batch)
        })?;
        add(row("update", times, 0));
        let times = time(stream, 60, |s, _| replay.queue_insert(s, new.incoming(), INSERT, None))?;
        add(row("insert of 1024", times, inserted));
        let times = time(stream, 20, |s, k| {
            replay.sample(s, out)?;
            replay.update(s, &back(out, &updates[k % SETS].1), batch)
        })?;
        add(row("sample + update", times, sampled));
        let times = time(stream, 20, |s, k| {
            replay.sample(s, out)?;
            replay.update(s, &back(out, &updates[k % SETS].1), batch)?;
            replay.queue_insert(s, new.incoming(), INSERT, None)
        })?;
        add(row("sample + update + insert of 1024", times, sampled + inserted));
        Ok(())
    }

    fn rank(&mut self, add: &mut dyn FnMut(BenchRow)) -> Result<(), GpuReplayError> {
        let Self { stream, replay, out, updates, .. } = self;
        let GpuReplayConfig { capacity, storage, programmatic: on, .. } = *replay.config();
        let batch = out.len();
        let row = |op, times| row(op, storage, capacity, batch, on, times, 0);
        // An order, by a full sort the first time.
        replay.sample_with(stream, out, Resort::Always)?;
        let times = time(stream, 60, |s, _| replay.sample_with(s, out, Resort::Never))?;
        add(row("rank: draw, no new order", times));
        let pair = time(stream, 20, |s, k| {
            let (slots, td) = &updates[k % SETS];
            replay.update(s, &update(slots, td), batch)?;
            replay.sample_with(s, out, Resort::Repair(batch))
        })?;
        add(row("rank: update + repair + draw", pair));
        let alone = time(stream, 60, |s, k| {
            let (slots, td) = &updates[k % SETS];
            replay.update(s, &update(slots, td), batch)
        })?;
        add(row("rank: update alone", alone));
        // The changes just made are more than a repair takes, so this is a full sort and leaves all in order.
        let sort = time(stream, 1, |s, _| replay.sort_order(s))?;
        add(row("rank: full sort", sort));
        let order = replay.rank_order(stream)?;
        let p = replay.priorities(stream)?;
        let sorted = order.windows(2).all(|w| {
            let (a, b) = (p[w[0] as usize], p[w[1] as usize]);
            a > b || (a == b && w[0] < w[1])
        });
        if !sorted || order.len() != capacity {
            let name = "the order is wrong".to_owned();
            return Err(failed(name).into());
        }
        Ok(())
    }
}

/// Rows to insert: the same again and again.
fn whole_rows(stream: &Stream, state_dim: usize) -> Result<RowsRoom, GpuReplayError> {
    let mut new = DeviceRows::zeros(stream, INSERT, state_dim)?;
    let host = host_rows(INSERT, state_dim);
    stream.upload(&mut new.states, &host)?;
    stream.upload(&mut new.next_states, &host)?;
    stream.upload(&mut new.rewards, &host[..INSERT])?;
    Ok(RowsRoom::Whole(Box::new(new)))
}

/// Rows from bars all over a market of `n_bars`, so that their features are as far apart as in a long run.
fn compact_rows(stream: &Stream, n: usize, n_bars: usize) -> Result<RowsRoom, GpuReplayError> {
    let row = |i: u64| {
        let h = mix(i);
        let value = (h >> 40) as f32 * (1.0 / 16_777_216.0);
        let row = Transition {
            bar: (h % (n_bars as u64 - 4)) as u32,
            steps: 3,
            action: (h >> 32) as u32 % 45,
            terminated: h.is_multiple_of(100),
            inputs: [value, -value, 0.5],
            next_inputs: [value, value, 0.75],
            reward: value,
        };
        row.pack()
    };
    let rows = (0..n as u64).map(row).collect::<Result<Vec<_>, _>>()?;
    let mut new = DeviceCompactRows::zeros(stream, n)?;
    new.upload(stream, &rows)?;
    Ok(RowsRoom::Compact(new))
}

/// A random walk of `n_bars` bars.
pub(crate) fn market(n_bars: usize) -> Result<Arc<Market>, GpuReplayError> {
    let walk = RandomWalk { n_bars, seed: 1, volatility: 1e-3, start_price: 100.0 };
    let market = walk.bars().and_then(|bars| {
        let execution = Settings::default().execution;
        let all = foxhunt_market::features::first_bar(&execution)..bars.len();
        Market::prepare(bars, &execution, Normalise::FitOn(all))
    });
    Ok(Arc::new(market.map_err(|error| failed(error.to_string()))?))
}

/// A result that is not what it should be.
pub(crate) fn failed(name: String) -> CudaError {
    CudaError::Driver { call: "result check".to_owned(), name }
}

fn update<'a>(
    slots: &'a foxhunt_cuda::DeviceBuffer<u32>,
    td: &'a foxhunt_cuda::DeviceBuffer<f32>,
) -> DeviceUpdate<'a> {
    DeviceUpdate { indices: slots, td_errors: td, generations: None, gate: None }
}

fn back<'a>(out: &'a DeviceBatch, td: &'a foxhunt_cuda::DeviceBuffer<f32>) -> DeviceUpdate<'a> {
    DeviceUpdate { indices: &out.indices, td_errors: td, generations: Some(&out.generations), gate: None }
}

/// Microseconds an operation of each timed replay of a graph of `ops` operations, sorted.
pub(crate) fn time(
    stream: &Stream,
    ops: usize,
    mut op: impl FnMut(&Stream, usize) -> Result<(), GpuReplayError>,
) -> Result<Vec<f64>, GpuReplayError> {
    let mut graph = stream.capture(|s| (0..ops).try_for_each(|k| op(s, k)))?;
    let mut timer = EventTimer::new(stream.device())?;
    for _ in 0..3 {
        graph.launch(stream)?;
    }
    let mut times = Vec::with_capacity(REPLAYS);
    for _ in 0..REPLAYS {
        times.push(timer.time(stream, || graph.launch(stream))? / ops as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

pub(crate) fn row(
    op: &'static str,
    storage: ReplayStorage,
    capacity: usize,
    batch: usize,
    programmatic: bool,
    times: Vec<f64>,
    bytes: u64,
) -> BenchRow {
    let us = times[times.len() / 2];
    let us_range = [times[0], times[times.len() - 1]];
    BenchRow { op, storage, capacity, batch, programmatic, us, us_range, gb_per_s: bytes as f64 / us / 1e3 }
}

/// Bits that look random, the same every time.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

fn td_error(id: u64) -> f32 {
    ((mix(id) >> 40) as f32 * (8.0 / 16_777_216.0) - 6.0).exp2()
}

fn host_rows(n: usize, state_dim: usize) -> Vec<f32> {
    (0..(n * state_dim) as u64).map(|i| (mix(i) >> 40) as f32 * (1.0 / 16_777_216.0)).collect()
}
