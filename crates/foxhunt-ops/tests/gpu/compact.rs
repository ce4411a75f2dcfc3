//! Rows of 32 bytes on the device against whole ones and against the CPU twin, to the bit.

use std::sync::Arc;

use foxhunt_core::Head;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::Stream;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_market::{Market, N_MARKET_FEATURES, STATE_DIM};
use foxhunt_ops::collect::Collector;
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuSampling};
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceCompactRows, DeviceRows, DeviceSource};
use foxhunt_ops::ring::{CompactRow, Ring, StateSource, Transition};

use crate::collect::{config, market, q_values};
use crate::twin::{config as replay_config, td_errors};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 4] = [
    ("compact_life_equals_whole_rows", life),
    ("compact_batches_of_every_size", batches),
    ("compact_rows_that_are_not_finite_are_refused", refusals),
    ("compact_memory_of_two_billion_rows", large),
];

const GAMMA: f64 = 0.97;

fn compact_config(capacity: usize, sampling: GpuSampling) -> GpuReplayConfig {
    let storage = ReplayStorage::Compact;
    GpuReplayConfig { storage, sampling, ..replay_config(capacity, STATE_DIM) }
}

pub(crate) fn memory(
    stream: &Stream,
    market: &Arc<DeviceMarket>,
    capacity: usize,
    sampling: GpuSampling,
) -> GpuPrioritizedReplay {
    let source = DeviceSource::new(stream, Arc::clone(market), GAMMA).unwrap();
    let config = compact_config(capacity, sampling);
    GpuPrioritizedReplay::compact(stream, config, source, Cache::user().as_ref()).unwrap()
}

/// One life of environments, twice on the device, whole and compact, and once on the host: rows, refusals, draws, weights,
/// and every field of every batch are the same while rings fill and wrap. Some features are not finite.
fn life(gpu: &Gpu) {
    let stream = &gpu.stream;
    let mut dirty = market(2500);
    for bar in (dirty.first_bar..dirty.len()).step_by(61) {
        dirty.features[bar * N_MARKET_FEATURES + 9] = f32::INFINITY;
    }
    let market: Arc<Market> = Arc::new(dirty);
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let ranked = |resort_every| GpuSampling::RankBased { resort_every };
    for (head, n_step, n_envs, capacity, sampling) in [
        (Head::Exposure, 1, 1, 7, GpuSampling::Proportional),
        (Head::Exposure, 3, 257, 5000, GpuSampling::Proportional),
        (Head::Factored, 256, 33, 3000, GpuSampling::Proportional),
        (Head::Branching, 3, 65, 1000, GpuSampling::Uniform),
        (Head::Factored, 5, 40, 2000, ranked(3)),
    ] {
        let mut whole_config = config(&market, head, n_step, n_envs);
        whole_config.gamma = GAMMA;
        let mut packed_config = whole_config.clone();
        packed_config.storage = ReplayStorage::Compact;
        let collector = |config| {
            GpuCollector::new(stream, config, market.clone(), on_device.clone(), Cache::user().as_ref())
                .unwrap()
        };
        let (mut whole, mut packed) = (collector(whole_config), collector(packed_config.clone()));
        let mut twin = Collector::new(packed_config, market.clone());
        let whole_rows = GpuReplayConfig { sampling, ..replay_config(capacity, STATE_DIM) };
        let mut a = GpuPrioritizedReplay::new(stream, whole_rows, Cache::user().as_ref()).unwrap();
        let mut b = memory(stream, &on_device, capacity, sampling);
        let mut ring = Ring::compact(capacity, StateSource::new(market.clone(), GAMMA)).unwrap();
        let [mut out_a, mut out_b] = [(); 2].map(|()| DeviceBatch::zeros(stream, 100, STATE_DIM).unwrap());
        let width = head.n_outputs();
        let steps = match (gpu.small, n_step) {
            (true, 256) => 40,
            (true, _) => 25,
            (false, 256) => 400,
            (false, _) => 200,
        };
        for step in 0..steps {
            let at = format!("{head:?}, n {n_step}, {n_envs} environments, step {step}");
            let values = q_values(step, n_envs, width);
            let q = stream.upload_new("q", &values).unwrap();
            whole.step(stream, &q).unwrap();
            packed.step(stream, &q).unwrap();
            whole.insert_into(stream, &mut a).unwrap();
            packed.insert_into(stream, &mut b).unwrap();
            twin.observe();
            twin.act(&values);
            ring.insert_compact(twin.compact_rows()).unwrap();
            if step % 6 != 5 && step + 1 != steps {
                continue;
            }
            let n = stream.download(packed.row_count()).unwrap()[0] as usize;
            let rows = packed.compact_rows().unwrap().download(stream, n).unwrap();
            assert!(rows == twin.compact_rows(), "rows, {at}");
            assert_eq!(b.rows(stream, 0..ring.len()).unwrap(), ring.save_compact().as_flattened(), "{at}");
            assert_eq!(b.counters(stream).unwrap(), a.counters(stream).unwrap(), "{at}");
            if ring.is_empty() {
                continue;
            }
            for out in [&mut out_a, &mut out_b] {
                for field in [&mut out.states, &mut out.next_states, &mut out.rewards, &mut out.discounts] {
                    stream.fill(field, 0xA5).unwrap(); // so that an element nobody writes shows
                }
            }
            a.sample(stream, &mut out_a).unwrap();
            b.sample(stream, &mut out_b).unwrap();
            let want = out_a.download(stream).unwrap();
            assert!(out_b.download(stream).unwrap() == want, "batch, {at}");
            let td = stream.upload_new("td", &td_errors(100, step, true)).unwrap();
            for (replay, out) in [(&mut a, &out_a), (&mut b, &out_b)] {
                let (indices, generations) = (&out.indices, Some(&out.generations));
                let update = DeviceUpdate { indices, td_errors: &td, generations, gate: None };
                replay.update(stream, &update, 100).unwrap();
            }
            assert!(b.save(stream).unwrap() == a.save(stream).unwrap(), "state, {at}");
        }
        assert!(gpu.small || ring.inserted() > capacity as u64, "the ring has wrapped");
        assert_eq!(b.wrong_sums(stream).unwrap(), 0);
    }
}

/// Rows that tell their number, over all windows and actions.
fn numbered(n: usize, bars: u32, salt: u32) -> Vec<CompactRow> {
    let row = |i: u32| {
        let h = (i ^ salt.wrapping_mul(40_503)).wrapping_mul(2_654_435_761);
        let steps = h % 256 + 1;
        let held = |n: u32| (f64::from(n) / (f64::from(n) + 16.0)) as f32;
        let row = Transition {
            bar: (h >> 3) % (bars - 256),
            steps,
            action: h % 45,
            terminated: h.is_multiple_of(7),
            inputs: [i as f32, -(h as f32), held(h % 5000)],
            next_inputs: [-0.0, h as f32 * 1e-9, held(i % 300)],
            reward: i as f32 * 0.5,
        };
        row.pack().unwrap()
    };
    (0..n as u32).map(row).collect()
}

/// Every field of batches around the widths of a warp, a block and a launch, by every way to draw.
fn batches(gpu: &Gpu) {
    let stream = &gpu.stream;
    let market = Arc::new(market(1500));
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let rows = numbered(3000, market.len() as u32, 1);
    let mut device_rows = DeviceCompactRows::zeros(stream, rows.len()).unwrap();
    device_rows.upload(stream, &rows).unwrap();
    let sizes: &[usize] =
        if gpu.small { &[1, 33, 257] } else { &[1, 3, 4, 31, 32, 33, 255, 257, 1000, 8192, 8193, 65_536] };
    for sampling in
        [GpuSampling::Proportional, GpuSampling::Uniform, GpuSampling::RankBased { resort_every: 2 }]
    {
        for capacity in [1, 1000, 4001] {
            let mut replay = memory(stream, &on_device, capacity, sampling);
            replay.insert_compact(stream, &device_rows, rows.len()).unwrap();
            let mut ring = Ring::compact(capacity, StateSource::new(market.clone(), GAMMA)).unwrap();
            ring.insert_compact(&rows).unwrap();
            for &batch in sizes {
                let mut out = DeviceBatch::zeros(stream, batch, STATE_DIM).unwrap();
                replay.sample(stream, &mut out).unwrap();
                let got = out.download(stream).unwrap();
                let mut want = got.clone();
                want.states.fill(f32::NAN);
                want.next_states.fill(f32::NAN);
                want.generations.fill(99);
                ring.gather(&mut want).unwrap();
                assert!(got == want, "{sampling:?}, capacity {capacity}, batch {batch}");
                if sampling == GpuSampling::Proportional {
                    let step = replay.counters(stream).unwrap().samples - 1;
                    assert_eq!(replay.plain_slots(stream, batch as u32, step).unwrap(), got.indices);
                }
            }
        }
    }
}

/// Rows with a reward or input that is not finite take no slot, as on the twin; rows of the other form do not enter; a bar
/// behind the last one is drawn as the last one.
fn refusals(gpu: &Gpu) {
    let stream = &gpu.stream;
    let market = Arc::new(market(1500));
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let mut replay = memory(stream, &on_device, 500, GpuSampling::Proportional);
    let mut ring = Ring::compact(500, StateSource::new(market.clone(), GAMMA)).unwrap();
    for salt in 0..4 {
        let mut rows = numbered(330, market.len() as u32, salt);
        for (i, row) in rows.iter_mut().enumerate().filter(|(i, _)| i % 5 == 2) {
            row[3 + i % 5 + (i / 5) % 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3].to_bits();
        }
        let mut device_rows = DeviceCompactRows::zeros(stream, rows.len()).unwrap();
        device_rows.upload(stream, &rows).unwrap();
        replay.insert_compact(stream, &device_rows, rows.len()).unwrap();
        ring.insert_compact(&rows).unwrap();
        let counters = replay.counters(stream).unwrap();
        assert_eq!(
            (counters.len, counters.inserted, counters.refused_rewards, counters.refused_states),
            (ring.len(), ring.inserted(), ring.refused_rewards(), ring.refused_states())
        );
        assert!(counters.refused_rewards > 0 && counters.refused_states > 0);
        assert_eq!(replay.rows(stream, 0..ring.len()).unwrap(), ring.save_compact().as_flattened());
    }
    let whole = DeviceRows::zeros(stream, 3, STATE_DIM).unwrap();
    assert!(replay.insert(stream, &whole, 3).is_err());
    let mut other = GpuPrioritizedReplay::new(stream, replay_config(9, STATE_DIM), None).unwrap();
    let beyond = Transition { bar: market.len() as u32 + 77, ..Transition::unpack(&[0; 8]) };
    let mut device_rows = DeviceCompactRows::zeros(stream, 1).unwrap();
    device_rows.upload(stream, &[beyond.pack().unwrap()]).unwrap();
    assert!(other.insert_compact(stream, &device_rows, 1).is_err());
    assert!(GpuPrioritizedReplay::new(stream, compact_config(9, GpuSampling::Uniform), None).is_err());
    let mut alone = memory(stream, &on_device, 1, GpuSampling::Uniform);
    alone.insert_compact(stream, &device_rows, 1).unwrap();
    let mut out = DeviceBatch::zeros(stream, 5, STATE_DIM).unwrap();
    alone.sample(stream, &mut out).unwrap();
    let last = market.feature_row(market.len() - 1);
    assert_eq!(stream.download(&out.next_states).unwrap()[..N_MARKET_FEATURES], *last);
}

/// The largest memory there is, or the largest power of two of rows that the device holds: filled past its end and drawn
/// from, and every sum is right.
fn large(gpu: &Gpu) {
    let stream = &gpu.stream;
    if gpu.small {
        return;
    }
    let market = Arc::new(market(1500));
    let on_device = Arc::new(DeviceMarket::upload(stream, &market).unwrap());
    let (free, _) = gpu.device.memory().unwrap();
    let fits = |rows: &usize| compact_config(*rows, GpuSampling::Proportional).bytes() < free - (1 << 30);
    let capacity = (20..=31).rev().map(|log| 1_usize << log).find(fits).unwrap();
    let mut replay = memory(stream, &on_device, capacity, GpuSampling::Proportional);
    let piece = 1 << 17;
    let rows = numbered(piece, market.len() as u32, 5);
    let mut device_rows = DeviceCompactRows::zeros(stream, piece).unwrap();
    device_rows.upload(stream, &rows).unwrap();
    for _ in 0..capacity / piece {
        replay.insert_compact(stream, &device_rows, piece).unwrap();
    }
    replay.insert_compact(stream, &device_rows, 1000).unwrap();
    let source = StateSource::new(market, GAMMA);
    let mut ring = Ring::compact(piece, source).unwrap();
    ring.insert_compact(&rows).unwrap();
    let mut out = DeviceBatch::zeros(stream, 8192, STATE_DIM).unwrap();
    for round in 0..3 {
        replay.sample(stream, &mut out).unwrap();
        let got = out.download(stream).unwrap();
        let mut want = got.clone();
        want.indices.iter_mut().for_each(|slot| *slot %= piece as u32);
        ring.gather(&mut want).unwrap();
        want.indices.clone_from(&got.indices);
        want.generations = got.indices.iter().map(|&slot| u64::from(slot < 1000)).collect();
        assert!(got == want, "round {round}");
        assert!(got.indices.iter().any(|&slot| slot as usize > capacity / 16 * 15));
        let td = stream.upload_new("td", &td_errors(8192, round, true)).unwrap();
        let (indices, generations) = (&out.indices, Some(&out.generations));
        replay
            .update(stream, &DeviceUpdate { indices, td_errors: &td, generations, gate: None }, 8192)
            .unwrap();
    }
    let counters = replay.counters(stream).unwrap();
    assert_eq!((counters.len, counters.inserted), (capacity, capacity as u64 + 1000));
    assert_eq!(replay.wrong_sums(stream).unwrap(), 0);
    println!("       {capacity} rows in {} MiB", replay.config().bytes() >> 20);
}
