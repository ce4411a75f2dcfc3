//! Rank-based replay against the CPU twin.

use foxhunt_ops::gpu_replay::{GpuReplayConfig, GpuSampling, Resort};
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;
use foxhunt_ops::ring::cuda::DeviceBatch;

use crate::twin::{Pair, config, rows, slots, td_errors};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 4] = [
    ("rank_order_and_draws_equal_a_sort", orders),
    ("rank_ties_and_zero_priorities", ties),
    ("rank_cycle_does_not_hear_of_epochs_starting_again", epochs),
    ("rank_captured_repair_equals_sort_and_counts_overflow", captured),
];

fn ranked(capacity: usize, resort_every: u64) -> GpuReplayConfig {
    GpuReplayConfig { sampling: GpuSampling::RankBased { resort_every }, ..config(capacity, 2) }
}

/// Case A31: orders (full sorts and repairs), draws and weights equal the twin's while the memory fills and wraps, with
/// few changes, with more than a repair takes, and with fresh rows between two orderings.
fn orders(gpu: &Gpu) {
    let capacities: &[usize] =
        if gpu.small { &[1, 3, 1000] } else { &[1, 3, 1000, 5000, 1 << 17, (1 << 20) + 1] };
    for &capacity in capacities {
        for resort_every in [1, 3] {
            let mut pair = Pair::new(gpu, ranked(capacity, resort_every));
            let batch = |k: u64| [256, 33, 1000, if gpu.small { 700 } else { 8192 }, 1][k as usize % 5];
            pair.insert(&rows(capacity / 2 + 1, 2, 1, 0));
            for k in 0..12 {
                let (_, host) = pair.sample(batch(k));
                assert_eq!(
                    pair.gpu.rank_order(&gpu.stream).unwrap(),
                    pair.ranks.as_ref().unwrap().state().order,
                    "capacity {capacity}, round {k}"
                );
                pair.update(&host.indices, &td_errors(host.len(), k, k % 2 == 0));
                if k % 4 == 2 {
                    for extra in 0..5 {
                        // Together more than a repair takes.
                        let n = if gpu.small { 100 } else { 8192 };
                        let salt = 100 + 10 * k + extra;
                        pair.update(&slots(n, pair.ring.len(), salt), &td_errors(n, salt, false));
                    }
                }
                pair.insert(&rows(capacity.min(1 << 14) / 7 + 1, 2, 50 + k, 9));
            }
            pair.same_state();
        }
        println!("       capacity {capacity}: equal");
    }
}

/// Epochs that start again in the middle of a cycle of orderings, every few updates and inserts, change no draw, no order and
/// no sum: the twin knows nothing of epochs. What had changed since the order is still repaired.
fn epochs(gpu: &Gpu) {
    for (limit, resort_every) in [(1, 4), (2, 7), (3, 1), (5, 3)] {
        let mut pair = Pair::new(gpu, ranked(2000, resort_every));
        pair.gpu.set_epoch_limit(limit);
        pair.insert(&rows(1200, 2, 1, 0));
        pair.gpu.maintain(&gpu.stream).unwrap();
        for k in 0..30 {
            let (_, host) = pair.sample(64);
            assert_eq!(
                pair.gpu.rank_order(&gpu.stream).unwrap(),
                pair.ranks.as_ref().unwrap().state().order,
                "limit {limit}, resort every {resort_every}, round {k}"
            );
            pair.update(&host.indices, &td_errors(64, k, true));
            if k % 3 == 0 {
                pair.gpu.maintain(&gpu.stream).unwrap();
            }
            pair.insert(&rows(50, 2, 50 + k, 9));
            pair.gpu.maintain(&gpu.stream).unwrap();
        }
        pair.same_state();
    }
}

/// Equal priorities stand by slot, rows of priority 0 stay drawable and last, ahead of slots never written.
fn ties(gpu: &Gpu) {
    let mut pair = Pair::new(gpu, GpuReplayConfig { epsilon: 0.0, alpha: 1.0, ..ranked(100, 1) });
    pair.insert(&rows(80, 2, 1, 0));
    let every_second: Vec<u32> = (0..80).step_by(2).collect();
    pair.update(&every_second, &[0.0; 40]);
    pair.update(&[5, 6, 7], &[4.0; 3]);
    pair.sample(500);
    let order = pair.gpu.rank_order(&gpu.stream).unwrap();
    assert_eq!(&order[..4], [5, 6, 7, 1]);
    assert_eq!(order[79], 78);
    pair.update(&[5], &[0.0]);
    pair.sample(500);
    assert_eq!(pair.gpu.rank_order(&gpu.stream).unwrap()[..3], [6, 7, 1]);
}

/// A captured update + repair + draw keeps the order right over replays; one made for too few changes says so.
fn captured(gpu: &Gpu) {
    let s = &gpu.stream;
    for (most, overflows) in [(64, 0), (10, 20)] {
        let mut pair = Pair::new(gpu, ranked(3000, 1));
        pair.insert(&rows(3000, 2, 1, 0));
        let mut out = DeviceBatch::zeros(s, 64, 2).unwrap();
        pair.gpu.sample(s, &mut out).unwrap();
        // Distinct slots and other errors at each replay, because the draws move.
        let td = s.upload_new("td", &td_errors(64, 5, false)).unwrap();
        let replay = &mut pair.gpu;
        let mut graph = s
            .capture(|s| {
                let update =
                    DeviceUpdate { indices: &out.indices, td_errors: &td, generations: None, gate: None };
                replay.update(s, &update, 64)?;
                replay.sample_with(s, &mut out, Resort::Repair(most))
            })
            .unwrap();
        (0..20).for_each(|_| graph.launch(s).unwrap());
        let counters = pair.gpu.counters(s).unwrap();
        assert_eq!((counters.samples, counters.order_overflows), (21, overflows));
        let order = pair.gpu.rank_order(s).unwrap();
        let p = pair.gpu.priorities(s).unwrap();
        let mut want: Vec<u32> = (0..3000).collect();
        if overflows == 0 {
            want.sort_by(|&a, &b| p[b as usize].total_cmp(&p[a as usize]).then(a.cmp(&b)));
        }
        assert_eq!(order, want, "made for {most}");
    }
}
