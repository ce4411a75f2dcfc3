//! Many vector steps in one launch against as many single ones, to the bit.

use std::sync::Arc;

use foxhunt_core::settings::{Precision, ReplayStorage};
use foxhunt_core::{Head, LinearSchedule, ReturnModel};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DeviceBuffer, driver_calls};
use foxhunt_market::N_MARKET_FEATURES;
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_learner::{Ahead, GpuLearner, GpuLearnerConfig};
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuSampling};
use foxhunt_ops::learner::LearnerState;
use foxhunt_ops::mlp::MlpShape;
use foxhunt_ops::rollout::cuda::Rollout;

use crate::collect::{config, market};
use crate::compact::memory;
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 2] =
    [("rollout_equals_single_steps", life), ("rollout_serves_what_it_can", serves)];

const TENSOR: [Precision; 3] = [Precision::Tf32x3, Precision::Tf32, Precision::Bf16];

/// A collector with its memory.
struct Side {
    collector: GpuCollector,
    replay: GpuPrioritizedReplay,
}

struct Case {
    head: Head,
    hidden: Vec<usize>,
    dueling: bool,
    n_step: usize,
    n_envs: usize,
    capacity: usize,
}

fn learner(gpu: &Gpu, case: &Case, precision: Precision) -> GpuLearner {
    let (head, hidden) = (case.head.into(), case.hidden.clone());
    let shape = MlpShape { state_dim: 51, hidden, head, dueling: case.dueling, returns: ReturnModel::Mean };
    let mut config = GpuLearnerConfig::new(shape);
    (config.learner.batch, config.learner.precision) = (1, precision);
    config.acting_rows = case.n_envs;
    GpuLearner::new(&gpu.stream, &config, Cache::user().as_ref()).unwrap()
}

/// Parameters; with `spoiled`, one that makes Q-values NaN.
fn give(gpu: &Gpu, learner: &mut GpuLearner, seed: u64, spoiled: bool) {
    let (mut online, n) = (learner.layout().init(seed), learner.layout().len());
    if spoiled {
        *online.last_mut().unwrap() = f32::NAN;
    }
    let state = LearnerState { target: online.clone(), online, m: vec![0.0; n], v: vec![0.0; n], adam_t: 0 };
    learner.upload_state(&gpu.stream, &state).unwrap();
}

/// Environments, rows, states, statistics, faults and the memory behind them are equal after rollouts of every length, over a market whose features are not all
/// finite, with many episodes, ruin and Q-values that are NaN.
fn life(gpu: &Gpu) {
    if gpu.device.info().compute_capability != (9, 0) {
        println!("       not on this device: rollouts are for compute capability 9.0");
        return;
    }
    let stream = &gpu.stream;
    let mut dirty = market(2500);
    for bar in (dirty.first_bar..dirty.len()).step_by(61) {
        dirty.features[bar * N_MARKET_FEATURES + 9] = f32::INFINITY;
    }
    for bar in (dirty.first_bar..dirty.len()).step_by(97) {
        dirty.bars.close[bar] = [f64::INFINITY, f64::NAN][bar % 2];
    }
    let market = Arc::new(dirty);
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let case = |head, hidden: &[usize], dueling, n_step, n_envs, capacity| Case {
        head,
        hidden: hidden.to_vec(),
        dueling,
        n_step,
        n_envs,
        capacity,
    };
    let cases = if gpu.small {
        vec![
            case(Head::Factored, &[256, 256], true, 3, 300, 4000),
            case(Head::Exposure, &[64], true, 1, 33, 90),
            case(Head::Branching, &[128, 128], false, 5, 20, 500),
        ]
    } else {
        vec![
            case(Head::Factored, &[256, 256], true, 3, 1010, 100_000),
            case(Head::Exposure, &[64], true, 1, 33, 3000),
            case(Head::Branching, &[128, 128, 128], true, 5, 257, 100_000),
            case(Head::Factored, &[256], false, 4, 2500, 150_000),
            case(Head::Exposure, &[256, 256], true, 3, 4300, 150_000),
            case(Head::Exposure, &[128, 128], true, 2, 7, 30),
            case(Head::Branching, &[64, 64], true, 256, 40, 41_000),
            case(Head::Exposure, &[256, 256, 256], true, 3, 1, 200),
        ]
    };
    let (mut rollouts, mut met) = (0, [0; 4]);
    for case in cases {
        for precision in TENSOR {
            let mut learner = learner(gpu, &case, precision);
            let side = || {
                let mut config = config(&market, case.head, case.n_step, case.n_envs);
                config.storage = ReplayStorage::Compact;
                config.epsilon = LinearSchedule { start: 0.4, end: 0.1, steps: case.n_envs as u64 * 50 };
                let of = (market.clone(), on_device.clone());
                let collector =
                    GpuCollector::new(stream, config, of.0, of.1, Cache::user().as_ref()).unwrap();
                Side {
                    collector,
                    replay: memory(stream, &on_device, case.capacity, GpuSampling::Proportional),
                }
            };
            let (mut single, mut many) = (side(), side());
            let name =
                format!("{:?} {:?} {precision:?}, {} environments", case.head, case.hidden, case.n_envs);
            let Some(mut rollout) =
                Rollout::new(stream, &learner, &many.collector, case.capacity, Cache::user().as_ref())
                    .unwrap()
            else {
                assert_eq!(precision, Precision::Tf32x3, "{name}");
                continue;
            };
            rollouts += 1;
            let outputs = case.head.n_outputs();
            let mut q: DeviceBuffer<f32> = stream.zeros("q", [case.n_envs, outputs]).unwrap();
            let lengths: &[usize] = if gpu.small { &[1, 5, 2] } else { &[1, 64, 2, 37, 64, 64, 7] };
            for (round, length) in lengths.iter().enumerate() {
                give(gpu, &mut learner, round as u64, round + 2 == lengths.len());
                let steps = rollout.steps().min(*length);
                for _ in 0..steps {
                    learner.q_values(stream, single.collector.states(), case.n_envs, &mut q).unwrap();
                    single.collector.step(stream, &q).unwrap();
                    single.collector.insert_into(stream, &mut single.replay).unwrap();
                }
                let before = driver_calls();
                let Side { collector, replay } = &mut many;
                rollout.run(stream, &learner, collector, replay, steps, Ahead::Unknown).unwrap();
                let calls = driver_calls() - before;
                assert_eq!(
                    calls.synchronisations + calls.copies_to_host + calls.allocations,
                    0,
                    "{name}: {calls:?}"
                );
                let at = format!("{name}, round {round} of {steps} steps");
                let [a, b] = [&single, &many].map(|side| stream.download(side.collector.states()).unwrap());
                let differ = a.iter().zip(&b).position(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differ, None, "states, {at}");
                let [a, b] = [&single, &many].map(|side| side.collector.save(stream).unwrap());
                assert_eq!(b.vector_step, a.vector_step, "{at}");
                assert_eq!(b.tally.counts, a.tally.counts, "{at}");
                assert_eq!(b.tally.faults, a.tally.faults, "{at}");
                assert!(b.tally.groups == a.tally.groups, "sums, {at}");
                assert!(b == a, "environments, {at}");
                assert_eq!(many.collector.env_steps(), single.collector.env_steps(), "{at}");
                let [a, b] = [&single, &many].map(|side| side.replay.counters(stream).unwrap());
                assert_eq!(b, a, "{at}");
                let [a, b] = [&single, &many].map(|side| {
                    (side.replay.save(stream).unwrap(), side.replay.rows(stream, 0..a.len).unwrap())
                });
                assert!(b.0 == a.0, "priorities, {at}");
                assert!(b.1 == a.1, "rows, {at}");
            }
            let stats = many.collector.epoch_stats(stream).unwrap();
            assert_eq!(stats, single.collector.epoch_stats(stream).unwrap(), "{name}");
            let faults = stats.faults.len() as u64;
            let here =
                [stats.fallbacks, stats.ruined_episodes, stats.episodes - stats.ruined_episodes, faults];
            met = std::array::from_fn(|i| met[i] + here[i]);
            assert_eq!(many.replay.wrong_sums(stream).unwrap(), 0, "{name}");
        }
    }
    assert!(
        gpu.small || met.iter().all(|&n| n > 0),
        "fallbacks, ruin, episodes that end otherwise, faults: {met:?}"
    );
    assert!(rollouts >= if gpu.small { 9 } else { 19 }, "{rollouts} of them");
}

/// Where there are none: other precisions, forms of rows and returns, noise, and more rows than a memory holds.
fn serves(gpu: &Gpu) {
    let stream = &gpu.stream;
    let market = Arc::new(market(1500));
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let hopper = gpu.device.info().compute_capability == (9, 0);
    type Change = fn(&mut GpuLearnerConfig, &mut ReplayStorage, &mut usize);
    let cases: [(bool, Change); 7] = [
        (true, |_, _, _| ()),
        (false, |learner, _, _| learner.learner.precision = Precision::F32),
        (false, |_, storage, _| *storage = ReplayStorage::Rows),
        (false, |learner, _, _| learner.noise = Some(0.5)),
        (false, |learner, _, _| learner.shape.returns = ReturnModel::Quantiles { n: 5 }),
        (false, |learner, _, _| learner.shape.hidden = vec![256, 128]),
        (false, |_, _, capacity| *capacity = 50),
    ];
    for (number, (wanted, change)) in cases.into_iter().enumerate() {
        let shape = MlpShape {
            state_dim: 51,
            hidden: vec![64],
            head: Head::Exposure.into(),
            dueling: true,
            returns: ReturnModel::Mean,
        };
        let (mut of, mut storage, mut capacity) =
            (GpuLearnerConfig::new(shape), ReplayStorage::Compact, 1000);
        (of.learner.precision, of.acting_rows) = (Precision::Bf16, 17);
        change(&mut of, &mut storage, &mut capacity);
        let mut config = config(&market, Head::Exposure, 3, 17);
        config.storage = storage;
        if of.learner.precision != Precision::F32 && gpu.device.info().compute_capability.0 < 8 {
            continue;
        }
        let learner = GpuLearner::new(stream, &of, Cache::user().as_ref()).unwrap();
        let mut collector =
            GpuCollector::new(stream, config, market.clone(), on_device.clone(), Cache::user().as_ref())
                .unwrap();
        let rollout = Rollout::new(stream, &learner, &collector, capacity, Cache::user().as_ref()).unwrap();
        assert_eq!(rollout.is_some(), wanted && hopper, "case {number}");
        if let Some(mut rollout) = rollout {
            assert_eq!(rollout.steps(), 16, "51 rows a step of 1,000");
            let mut replay = memory(stream, &on_device, capacity, GpuSampling::Proportional);
            let mut small = memory(stream, &on_device, 100, GpuSampling::Proportional);
            let mut run = |learner: &GpuLearner, collector: &mut GpuCollector, replay: &mut _, steps| {
                rollout.run(stream, learner, collector, replay, steps, Ahead::Unknown).is_ok()
            };
            assert!(!run(&learner, &mut collector, &mut replay, 0));
            assert!(!run(&learner, &mut collector, &mut replay, 17));
            assert!(!run(&learner, &mut collector, &mut small, 2));
            let mut whole = GpuPrioritizedReplay::new(
                stream,
                crate::twin::config(capacity, foxhunt_market::STATE_DIM),
                Cache::user().as_ref(),
            )
            .unwrap();
            assert!(!run(&learner, &mut collector, &mut whole, 1));
            // Others than it was made for.
            of.learner.precision = Precision::Tf32;
            let other = GpuLearner::new(stream, &of, Cache::user().as_ref()).unwrap();
            assert!(!run(&other, &mut collector, &mut replay, 1));
            let with = |config| {
                GpuCollector::new(stream, config, market.clone(), on_device.clone(), Cache::user().as_ref())
                    .unwrap()
            };
            let mut longer = collector.config().clone();
            longer.n_step = 2;
            assert!(!run(&learner, &mut with(longer), &mut replay, 1));
            assert_eq!((collector.env_steps(), replay.counters(stream).unwrap().len), (0, 0));
            assert!(run(&learner, &mut collector, &mut replay, 16));
            stream.synchronise().unwrap();
            assert_eq!(collector.env_steps(), 16 * 17);
        }
    }
}
