//! The collector against its CPU twin, to the bit, and the loop around it.

use std::sync::Arc;

use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_core::{Head, LinearSchedule, Settings};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DeviceBuffer, DriverCalls, Stream, driver_calls};
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{BarArrays, BarSeries, Market, Normalise, STATE_DIM};
use foxhunt_ops::collect::{CollectConfig, CollectState, Collector};
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_collect::cuda::MAX_FAULTS;
use foxhunt_ops::gpu_replay::GpuReplayError;
use foxhunt_ops::ring::Rows;
use foxhunt_ops::ring::cuda::DeviceRows;

use crate::twin::{Pair, config as replay_config, rows, same_rows};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 8] = [
    ("collect_parity_every_head_window_and_size", parity),
    ("collect_parity_many_environments", many),
    ("collect_faults_are_those_of_the_twin", faults),
    ("collect_faults_beyond_the_room_are_counted", overflow),
    ("collect_save_and_continue_equals_never_stopping", save_continue),
    ("collect_graph_equals_eager_and_makes_no_costly_call", graph),
    ("collect_counted_insert_equals_the_plain_one", counted_insert),
    ("collect_refuses_what_does_not_fit", refusals),
];

const HEADS: [Head; 3] = [Head::Exposure, Head::Factored, Head::Branching];

/// Bars with room above and below, a spread and a volume that varies, so that every way to be filled occurs.
pub(crate) fn market(n_bars: usize) -> Market {
    let walk = RandomWalk { n_bars, seed: 11, volatility: 0.02, start_price: 40.0 }.bars().unwrap();
    let wave = |i: usize, k: u64| ((i as u64 * 2_654_435_761 + k * 40_503) >> 5 & 1023) as f64 / 1023.0;
    let reach = |i: usize, k: u64| walk.close[i] * 0.01 * wave(i, k);
    let arrays = BarArrays {
        time: walk.time.clone(),
        open: walk.open.clone(),
        high: (0..n_bars).map(|i| walk.high[i] + reach(i, 1)).collect(),
        low: (0..n_bars).map(|i| walk.low[i] - reach(i, 2)).collect(),
        close: walk.close.clone(),
        volume: Some((0..n_bars).map(|i| 20_000.0 * wave(i, 3)).collect()),
        spread: Some((0..n_bars).map(|i| walk.close[i] * 0.004 * wave(i, 4)).collect()),
    };
    let execution = Settings::default().execution;
    let first = foxhunt_market::features::first_bar(&execution);
    let mut bars = BarSeries::from_arrays(None, arrays).unwrap();
    // Some bars were made to fill a gap: nothing fills in them.
    bars.made = (0..n_bars).map(|bar| bar % 41 == 7).collect();
    Market::prepare(bars, &execution, Normalise::FitOn(first..n_bars)).unwrap()
}

/// Short episodes, high leverage and all costs.
pub(crate) fn config(market: &Market, head: Head, n_step: usize, n_envs: usize) -> CollectConfig {
    let mut settings = Settings::default();
    settings.run.seed = 0x5eed_0000_1234;
    settings.env.n_envs = n_envs;
    settings.env.episode_bars = 37;
    settings.env.max_leverage = 12.0;
    settings.learner.n_step = n_step;
    settings.network.head = head;
    settings.replay.storage = ReplayStorage::Rows;
    settings.execution.limit_to_volume = true;
    settings.execution.impact_bps = 3.0;
    settings.execution.taker_fee_bps = 2.5;
    settings.execution.maker_fee_bps = -0.5;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.1, steps: n_envs as u64 * 700 };
    settings.monitor.divergence_threshold = 90.0;
    CollectConfig::new(&settings, market, market.first_bar..market.len()).unwrap()
}

fn hash(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// Q-values with ties; about one in 300 is not a number or infinite, and some whole rows are NaN.
pub(crate) fn q_values(step: u64, n_envs: usize, width: usize) -> Vec<f32> {
    (0..(n_envs * width) as u64)
        .map(|i| {
            let h = hash(step << 32 | i);
            if hash(step << 32 | (i / width as u64) | 1 << 63).is_multiple_of(97) {
                return f32::NAN;
            }
            match h % 600 {
                0 => f32::NAN,
                1 => [f32::INFINITY, f32::NEG_INFINITY][(h >> 40) as usize % 2],
                2 => -0.0,
                3 => 0.0,
                _ => ((h >> 20) % 401) as f32 * 0.5 - 100.0,
            }
        })
        .collect()
}

struct Two<'g> {
    stream: &'g Stream,
    gpu: GpuCollector,
    cpu: Collector,
    q: DeviceBuffer<f32>,
    step: u64,
}

impl<'g> Two<'g> {
    fn new(gpu: &'g Gpu, market: &Arc<Market>, config: CollectConfig) -> Self {
        let stream = &gpu.stream;
        let device = Arc::new(DeviceMarket::upload(stream, market).unwrap());
        let q = stream.zeros("q", config.n_envs * config.head.n_outputs()).unwrap();
        let cpu = Collector::new(config.clone(), Arc::clone(market));
        let gpu =
            GpuCollector::new(stream, config, Arc::clone(market), device, Cache::user().as_ref()).unwrap();
        Self { stream, gpu, cpu, q, step: 0 }
    }

    /// Queues a step on the device and makes it on the host; returns the host's rows.
    fn step(&mut self) -> Rows<'_> {
        let config = self.cpu.config();
        let q = q_values(self.step, config.n_envs, config.head.n_outputs());
        self.stream.upload(&mut self.q, &q).unwrap();
        self.gpu.step(self.stream, &self.q).unwrap();
        self.step += 1;
        self.cpu.observe();
        self.cpu.act(&q)
    }

    fn same_states(&mut self) {
        let got = self.stream.download(self.gpu.states()).unwrap();
        for (i, (a, b)) in got.iter().zip(self.cpu.observe()).enumerate() {
            let (env, column) = (i / STATE_DIM, i % STATE_DIM);
            assert!(
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                "env {env} column {column}: {a} not {b}"
            );
        }
    }

    fn same_everything(&self, at: &str) {
        let (got, want) = (self.gpu.save(self.stream).unwrap(), self.cpu.state());
        for (env, (a, b)) in got.envs.iter().zip(&want.envs).enumerate() {
            assert_eq!(a, b, "{at}, environment {env}");
            for (x, y) in [(a.cash, b.cash), (a.position, b.position), (a.equity, b.equity)] {
                assert_eq!(x.to_bits(), y.to_bits(), "{at}, environment {env}");
            }
        }
        assert!(got.n_step == want.n_step, "{at}: pending steps differ");
        assert_eq!(got.tally.faults, want.tally.faults, "{at}");
        assert_eq!(got.tally.counts, want.tally.counts, "{at}");
        for (group, (a, b)) in got.tally.groups.iter().zip(&want.tally.groups).enumerate() {
            assert_eq!(a, b, "{at}, group {group}");
        }
        assert!(got == want, "{at}");
        assert_eq!(self.gpu.env_steps(), self.cpu.env_steps());
    }
}

/// Environments, rows, states, statistics and the replay memory behind them are equal after every step of a life with
/// many episodes, ruin, partial fills, rebates and Q-values that are not finite.
fn parity(gpu: &Gpu) {
    let market = Arc::new(market(2500));
    for head in HEADS {
        for n_step in [1, 3] {
            for n_envs in [1, 33, 257] {
                let steps = if gpu.small { 45 } else { 1000 };
                let mut two = Two::new(gpu, &market, config(&market, head, n_step, n_envs));
                let mut pair = Pair::new(gpu, replay_config(5000, STATE_DIM));
                for step in 0..steps {
                    let stream = two.stream;
                    let rows = two.step();
                    let report = pair.ring.insert(&rows).unwrap();
                    pair.tree.insert(report.first_slot, report.written);
                    let n = rows.len();
                    if step % 7 == 0 || step + 1 == steps {
                        let host = (rows.rewards.to_vec(), rows.discounts.to_vec(), rows.terminated.to_vec());
                        assert_eq!(stream.download(two.gpu.row_count()).unwrap(), [n as u32]);
                        let at = format!("{head:?} n {n_step} envs {n_envs} step {step}");
                        let device = two.gpu.rows().unwrap();
                        let field = |buffer: &DeviceBuffer<f32>| stream.download_range(buffer, 0, n).unwrap();
                        assert_eq!(field(&device.rewards), host.0, "rewards, {at}");
                        assert_eq!(field(&device.discounts), host.1, "discounts, {at}");
                        assert_eq!(field(&device.terminated), host.2, "terminated, {at}");
                        two.same_states();
                        two.same_everything(&at);
                    }
                    two.gpu.insert_into(stream, &mut pair.gpu).unwrap();
                }
                pair.same_state();
                let (device, _) = pair.sample(64);
                drop(device);
                let slots: Vec<u32> = (0..pair.ring.len() as u32).collect();
                same_rows(&pair, &slots);
                let stats = two.gpu.epoch_stats(&gpu.stream).unwrap();
                assert_eq!(stats, two.cpu.take_tally().stats());
                if n_envs > 1 && !gpu.small {
                    assert!(stats.ruined_episodes > 0 && stats.episodes > stats.ruined_episodes);
                    assert!(stats.fills.iter().all(|&n| n > 0) || head == Head::Exposure);
                    assert!(stats.fallbacks > 0 && stats.q_diverged && stats.max_q_non_finite_rows > 0);
                }
                assert_eq!(two.gpu.epoch_stats(&gpu.stream).unwrap().env_steps, 0);
                two.cpu.take_tally();
                two.step();
                two.same_everything("after the report");
            }
        }
    }
}

/// Many blocks of both kernels: row offsets over all of them.
fn many(gpu: &Gpu) {
    let market = Arc::new(market(2500));
    let sizes: &[(usize, usize, usize)] = if gpu.small {
        &[(1100, 3, 3)]
    } else {
        &[(4096, 1, 300), (4096, 3, 1000), (5000, 256, 300), (65_536, 3, 12)]
    };
    for &(n_envs, n_step, steps) in sizes {
        for head in if n_envs == 4096 { &HEADS[..] } else { &HEADS[..1] } {
            let mut two = Two::new(gpu, &market, config(&market, *head, n_step, n_envs));
            let steps = if *head == Head::Exposure { steps } else { steps / 4 };
            for step in 0..steps {
                let rows = two.step();
                if step % 25 != 0 && step + 1 != steps {
                    continue;
                }
                let n = rows.len();
                let (next, rewards) = (rows.next_states.to_vec(), rows.rewards.to_vec());
                assert_eq!(two.stream.download(two.gpu.row_count()).unwrap(), [n as u32]);
                let device = two.gpu.rows().unwrap();
                let got = two.stream.download_range(&device.rewards, 0, n).unwrap();
                assert!(got == rewards, "rewards at step {step} of {n_envs} environments, n {n_step}");
                let got = two.stream.download_range(&device.next_states, 0, n * STATE_DIM).unwrap();
                assert!(got == next, "next states at step {step} of {n_envs} environments, n {n_step}");
                two.same_states();
            }
            two.same_everything(&format!("{head:?}, {n_envs} environments, n {n_step}"));
        }
    }
}

/// Features that are NaN and closes that are infinite: what was refused, counted, cut and reset is the same.
fn faults(gpu: &Gpu) {
    let mut dirty = market(2500);
    let (first, n) = (dirty.first_bar, dirty.len());
    for bar in (first..n).step_by(23) {
        dirty.features[bar * 48 + 7] = f32::NAN;
        dirty.features[bar * 48 + 20] = f32::NEG_INFINITY;
    }
    for bar in (first..n).step_by(31) {
        dirty.bars.close[bar] = [f64::INFINITY, f64::NAN][bar % 2];
    }
    let dirty = Arc::new(dirty);
    for n_step in [1, 3] {
        for n_envs in [1, 70] {
            let mut two = Two::new(gpu, &dirty, config(&dirty, Head::Factored, n_step, n_envs));
            for step in 0..if gpu.small { 40 } else { 400 } {
                let rows = two.step();
                let (n, states) = (rows.len(), rows.states.to_vec());
                assert!(states.iter().chain(rows.rewards).all(|v| v.is_finite()));
                assert_eq!(two.stream.download(two.gpu.row_count()).unwrap(), [n as u32], "step {step}");
                let got =
                    two.stream.download_range(&two.gpu.rows().unwrap().states, 0, n * STATE_DIM).unwrap();
                assert!(got == states, "states at step {step}");
                two.same_states();
                two.same_everything(&format!("n {n_step}, {n_envs} environments, step {step}"));
            }
            let stats = two.gpu.epoch_stats(&gpu.stream).unwrap();
            let kinds = |kind| stats.faults.iter().filter(|f| f.kind == kind).count();
            assert!(
                gpu.small || kinds(FaultKind::NonFiniteReward) > 0 && kinds(FaultKind::NonFiniteState) > 0
            );
        }
    }
}

/// More faults than there is room for: the first are listed, the rest counted.
fn overflow(gpu: &Gpu) {
    let mut dead = market(400);
    dead.features.fill(f32::NAN);
    let dead = Arc::new(dead);
    let mut two = Two::new(gpu, &dead, config(&dead, Head::Exposure, 1, 2));
    for _ in 0..MAX_FAULTS + 40 {
        two.step();
    }
    let (got, want) = (two.gpu.epoch_stats(&gpu.stream).unwrap(), two.cpu.take_tally().stats());
    assert_eq!((got.faults.len(), got.faults_lost), (MAX_FAULTS, 40));
    assert_eq!((&got.faults, got.faults_lost), (&want.faults, want.faults_lost));
    assert_eq!(two.gpu.epoch_stats(&gpu.stream).unwrap().faults_lost, 0);
}

/// Case E02: saved on either engine, taken up on the other, and continued: the same bits as never stopped.
fn save_continue(gpu: &Gpu) {
    let market = Arc::new(market(2500));
    for n_step in [1, 3] {
        let config = config(&market, Head::Branching, n_step, 65);
        let mut whole = Two::new(gpu, &market, config.clone());
        for _ in 0..50 {
            whole.step();
        }
        let saved: CollectState = whole.gpu.save(&gpu.stream).unwrap();
        let mut other = Two::new(gpu, &market, config);
        for _ in 0..3 {
            other.step();
        }
        other.cpu.restore(&saved).unwrap();
        other.gpu.load(&gpu.stream, &whole.cpu.state()).unwrap();
        other.step = whole.step;
        other.same_everything("taken up");
        for _ in 0..60 {
            whole.step();
            other.step();
        }
        whole.same_everything("never stopped");
        other.same_everything("continued");
        assert!(whole.gpu.save(&gpu.stream).unwrap() == other.gpu.save(&gpu.stream).unwrap());
        let mut torn = saved.clone();
        torn.n_step.lens[3] = 9;
        assert!(other.gpu.load(&gpu.stream, &torn).is_err());
        other.same_everything("after a state that was refused");
    }
}

/// Case D10: a step with its insert, eager or replayed, waits for nothing, copies nothing and allocates nothing; a graph
/// replays what the calls one by one do, epsilon and random numbers included, with and without overlapping launches.
fn graph(gpu: &Gpu) {
    let s = &gpu.stream;
    let market = Arc::new(market(2500));
    let run = |captured: bool, programmatic: bool| {
        let mut two = Two::new(gpu, &market, config(&market, Head::Factored, 3, 300));
        let mut pair = Pair::new(gpu, replay_config(5000, STATE_DIM));
        two.gpu.set_programmatic(programmatic);
        s.upload(&mut two.q, &q_values(1, 300, 45)).unwrap();
        let (collector, q, replay) = (&mut two.gpu, &two.q, &mut pair.gpu);
        replay.set_programmatic(programmatic);
        let mut work = |s: &Stream| -> Result<(), GpuReplayError> {
            for _ in 0..2 {
                collector.step(s, q)?;
                collector.insert_into(s, replay)?;
            }
            Ok(())
        };
        let before = driver_calls();
        if captured {
            let mut graph = s.capture(&mut work).unwrap();
            let before = driver_calls();
            (0..40).for_each(|_| graph.launch(s).unwrap());
            assert_eq!(driver_calls() - before, DriverCalls { graph_launches: 40, ..DriverCalls::default() });
        } else {
            (0..40).for_each(|_| work(s).unwrap());
            assert_eq!(driver_calls() - before, DriverCalls { launches: 240, ..DriverCalls::default() });
        }
        s.synchronise().unwrap();
        assert_eq!(two.gpu.env_steps(), 24_000);
        (two.gpu.save(s).unwrap(), pair.gpu.save(s).unwrap())
    };
    let want = run(false, false);
    for (captured, programmatic) in [(true, false), (true, true), (false, true)] {
        assert!(run(captured, programmatic) == want, "captured {captured}, overlapping {programmatic}");
    }
}

/// Any count in device memory, none and one of several launches included: slots, priorities and counters are those of an
/// insert of just these rows.
fn counted_insert(gpu: &Gpu) {
    let s = &gpu.stream;
    let cases: &[(usize, usize)] =
        if gpu.small { &[(100, 90)] } else { &[(100, 90), (1000, 4000), (1 << 18, 300_000)] };
    for &(capacity, most) in cases {
        let mut pair = Pair::new(gpu, replay_config(capacity, 3));
        let mut device = DeviceRows::zeros(s, most, 3).unwrap();
        for (salt, n) in [0, 1, 7, most / 2, 0, most, 33, most - 1].into_iter().enumerate() {
            let all = rows(most, 3, salt as u64, if salt % 2 == 0 { 9 } else { 0 });
            device.upload(s, &all.view()).unwrap();
            let count = s.upload_new("row count", &[n as u32]).unwrap();
            pair.gpu.insert_counted(s, &device, &count, most).unwrap();
            if n == 0 {
                continue;
            }
            let view = all.view();
            let some = Rows {
                states: &view.states[..3 * n],
                next_states: &view.next_states[..3 * n],
                actions: &view.actions[..n],
                rewards: &view.rewards[..n],
                terminated: &view.terminated[..n],
                discounts: &view.discounts[..n],
            };
            let report = pair.ring.insert(&some).unwrap();
            pair.tree.insert(report.first_slot, report.written);
            pair.same_state();
            if !pair.ring.is_empty() {
                drop(pair.sample(33));
            }
        }
        let slots: Vec<u32> = (0..pair.ring.len() as u32).collect();
        same_rows(&pair, &slots);
        let count = s.upload_new("row count", &[0_u32]).unwrap();
        assert!(pair.gpu.insert_counted(s, &device, &count, most + 1).is_err());
    }
}

fn refusals(gpu: &Gpu) {
    let s = &gpu.stream;
    let market = Arc::new(market(400));
    let device = Arc::new(DeviceMarket::upload(s, &market).unwrap());
    assert_eq!(device.bytes(), DeviceMarket::bytes_for(market.len()));
    let make = |config| GpuCollector::new(s, config, Arc::clone(&market), Arc::clone(&device), None);
    for (n_envs, n_step) in [(0, 1), (65_537, 1), (4, 0), (4, 257)] {
        let mut config = config(&market, Head::Exposure, 1, 4);
        (config.n_envs, config.n_step) = (n_envs, n_step);
        assert!(make(config).is_err(), "{n_envs} environments, n {n_step}");
    }
    let mut collector = make(config(&market, Head::Factored, 1, 4)).unwrap();
    let q = s.zeros::<f32>("q", 4 * 45 - 1).unwrap();
    assert!(collector.step(s, &q).is_err(), "too few Q-values");
    let other = Arc::new(crate::collect::market(401));
    let config = config(&other, Head::Exposure, 1, 4);
    assert!(GpuCollector::new(s, config, other, device.clone(), None).is_err(), "a market of another length");
}
