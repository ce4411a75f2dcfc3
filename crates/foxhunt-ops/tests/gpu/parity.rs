//! Proportional replay against the CPU twins, to the bit.

use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuSampling};
use foxhunt_ops::guard::gate::Gate;
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;

use crate::twin::{Pair, Upload, config, rows, slots, td_errors};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 7] = [
    ("parity_every_capacity_and_batch", capacities),
    ("parity_state_dimensions", state_dimensions),
    ("parity_uniform", uniform),
    ("parity_batch_larger_than_capacity", larger_than_capacity),
    ("parity_batches_whose_blocks_cannot_all_be_resident", large_batches),
    ("parity_published_cases", published),
    ("parity_a_million_updates_leave_exact_sums", million),
];

/// Cases A01, A04, A05, A07, A08, A28, A34, A37: indices, weights, rows, generations and priorities of a mixed life
/// (rows with values that are not finite, repeats, NaN, caps, wrap) equal the twins', at every capacity and batch.
/// The plain prefix sum agrees as well.
fn capacities(gpu: &Gpu) {
    let large: &[usize] =
        if gpu.small { &[1, 3, 1000] } else { &[1, 3, 1000, 1 << 17, 1 << 20, (1 << 20) + 1, (1 << 24) + 3] };
    for &capacity in large {
        let state_dim = if capacity > 1 << 20 { 4 } else { 51 };
        let mut pair = Pair::new(gpu, config(capacity, state_dim));
        let piece = if gpu.small { 700 } else { 20_000 };
        let mut salt = 0;
        // Half full, then full, then past the end.
        for part in [capacity / 2 + 1, capacity / 2 + 5, piece.min(capacity / 3 + 2)] {
            let mut left = part;
            while left > 0 {
                let n = left.min(1 << 18);
                salt += 1;
                pair.insert(&rows(n, state_dim, salt, if salt % 2 == 0 { 11 } else { 0 }));
                left -= n;
            }
            for (round, batch) in [1, 31, 32, 33, 256, 8192].into_iter().enumerate() {
                if gpu.small && batch > 256 {
                    continue;
                }
                let step = pair.step;
                let (_, host) = pair.sample(batch);
                if capacity <= 1 << 20 {
                    // Nothing changed since the draw, so the second opinion can be asked afterwards.
                    assert_eq!(pair.gpu.plain_slots(&gpu.stream, batch as u32, step).unwrap(), host.indices);
                }
                salt += 1;
                let td = td_errors(batch, salt, round % 2 == 1);
                if round % 3 == 0 {
                    pair.update(&host.indices, &td);
                } else {
                    pair.update(&slots(batch, pair.ring.len(), salt), &td);
                }
            }
            pair.same_state();
        }
        println!("       capacity {capacity}: {} samples equal", pair.step);
    }
}

/// Row lengths around the width of a warp and of a tile.
fn state_dimensions(gpu: &Gpu) {
    for state_dim in [1, 2, 13, 14, 15, 31, 62, 63, 130, 300] {
        let mut pair = Pair::new(gpu, config(100, state_dim));
        for salt in 0..4 {
            pair.insert(&rows(37, state_dim, salt, 6));
            let (_, host) = pair.sample(33);
            pair.update(&host.indices, &td_errors(33, salt, true));
        }
        pair.same_state();
    }
}

/// Rows drawn alike: slots, rows, generations and weights 1, past the end of the ring; priorities stay untouched.
fn uniform(gpu: &Gpu) {
    for (capacity, state_dim) in [(1, 3), (1000, 51), (1 << 17, 51)] {
        let config = GpuReplayConfig { sampling: GpuSampling::Uniform, ..config(capacity, state_dim) };
        let mut pair = Pair::new(gpu, config);
        for salt in 0..5 {
            pair.insert(&rows(capacity / 3 + 1, state_dim, salt, if salt == 0 { 0 } else { 9 }));
            for batch in [1, 31, 32, 33, 256, 8192] {
                let (_, host) = pair.sample(batch);
                pair.update(&host.indices, &td_errors(batch, salt, true));
            }
            pair.same_state();
        }
    }
}

/// Case A34: a batch larger than the ring keeps its last rows, in one launch and in several.
fn larger_than_capacity(gpu: &Gpu) {
    for (capacity, n) in [(1, 5), (4, 6), (100, 1024), (1000, 40_000)] {
        let mut pair = Pair::new(gpu, config(capacity, 3));
        pair.insert(&rows(2, 3, 1, 0));
        pair.insert(&rows(n, 3, 2, 7));
        pair.same_state();
        pair.sample(256);
        pair.insert(&rows(n, 3, 3, 0));
        pair.sample(256);
        pair.same_state();
    }
}

/// More than 8,192 samples cannot agree on their minimum in one launch: the two-launch path gives the same weights.
fn large_batches(gpu: &Gpu) {
    let capacity = if gpu.small { 500 } else { 50_000 };
    let mut pair = Pair::new(gpu, config(capacity, 7));
    pair.insert(&rows(capacity, 7, 1, 0));
    for batch in if gpu.small { vec![8200] } else { vec![8193, 20_000, 65_536, 256] } {
        let (_, host) = pair.sample(batch);
        pair.update(&host.indices, &td_errors(batch, batch as u64, true));
    }
    pair.same_state();
}

fn one(gpu: &Gpu, capacity: usize, alpha: f32, epsilon: f32) -> Pair<'_> {
    Pair::new(gpu, GpuReplayConfig { alpha, epsilon, beta_start: 1.0, ..config(capacity, 2) })
}

/// Cases A10, A13, A14, A16, A20, A22, A23, A25, A26: the published numbers, on the device.
fn published(gpu: &Gpu) {
    let s = &gpu.stream;
    let priorities = |pair: &Pair<'_>| pair.gpu.priorities(s).unwrap();
    // A10: one slot.
    let mut pair = one(gpu, 1, 0.6, 1e-6);
    pair.insert(&rows(1, 2, 1, 0));
    let (_, host) = pair.sample(4);
    assert_eq!((host.indices, host.weights), (vec![0; 4], vec![1.0; 4]));
    pair.insert(&rows(1, 2, 2, 0));
    pair.sample(4);
    // A13: alpha 0 hides nothing. A16: signs do not matter.
    let mut pair = one(gpu, 3, 0.0, 0.0);
    pair.insert(&rows(3, 2, 1, 0));
    pair.update(&[0, 1, 2], &[0.0, f32::NAN, 5.0]);
    assert_eq!(priorities(&pair), [1.0, 1.0, 1.0]);
    assert_eq!(pair.gpu.counters(s).unwrap().refused, 1);
    let mut pair = one(gpu, 4, 1.0, 0.0);
    pair.insert(&rows(4, 2, 1, 0));
    pair.update(&[0, 1], &[-2.0, 2.0]);
    assert_eq!(priorities(&pair)[..2], [2.0, 2.0]);
    // A14: huge and infinite errors neither overflow nor enter.
    pair.update(&[0, 1, 2], &[2e38, 2e38, f32::INFINITY]);
    let counters = pair.gpu.counters(s).unwrap();
    assert_eq!((counters.capped, counters.refused, counters.max_priority), (2, 1, 32_767.998));
    pair.sample(32);
    // A20, A22, A23: new rows get the running maximum as it is stored, for ever.
    let mut pair = one(gpu, 2, 0.5, 0.0);
    pair.insert(&rows(1, 2, 1, 0));
    assert_eq!(priorities(&pair), [1.0]);
    pair.update(&[0], &[4.0]);
    pair.insert(&rows(1, 2, 2, 0));
    assert_eq!(priorities(&pair), [2.0, 2.0]);
    pair.update(&[0, 1], &[1.0, 0.25]);
    pair.insert(&rows(1, 2, 3, 0));
    assert_eq!(priorities(&pair), [2.0, 0.5]);
    // A25: of repeats the largest, a thousand times the same.
    let mut pair = one(gpu, 4, 1.0, 0.0);
    pair.insert(&rows(4, 2, 1, 0));
    for _ in 0..1000 {
        pair.update(&[3, 3], &[5.0, 2.0]);
    }
    assert_eq!(priorities(&pair), [1.0, 1.0, 1.0, 5.0]);
    assert_eq!(pair.gpu.wrong_sums(s).unwrap(), 0);
    // A26: an error for a row that is gone does not land on the new one; slots outside and a closed gate do nothing.
    let mut pair = one(gpu, 2, 1.0, 0.0);
    pair.insert(&rows(2, 2, 1, 0));
    let (drawn, _) = pair.sample(8);
    pair.insert(&rows(2, 2, 2, 0));
    let nines = Upload::new(s, &[0, 1, 0, 1, 0, 1, 0, 7], &[9.0; 8]);
    let mut update = DeviceUpdate { generations: Some(&drawn.generations), ..nines.update() };
    pair.gpu.update(s, &update, 8).unwrap();
    assert_eq!(priorities(&pair), [1.0, 1.0]);
    let counters = pair.gpu.counters(s).unwrap();
    assert_eq!((counters.stale, counters.out_of_range), (7, 1));
    let closed = s.upload_new("gate", &[1_u32]).unwrap();
    update.generations = None;
    update.gate = Some(Gate::Word(&closed));
    pair.gpu.update(s, &update, 8).unwrap();
    assert_eq!(priorities(&pair), [1.0, 1.0]);
    let open = s.upload_new("gate", &[0_u32]).unwrap();
    update.gate = Some(Gate::Word(&open));
    pair.gpu.update(s, &update, 8).unwrap();
    assert_eq!(priorities(&pair), [9.0, 9.0]);
    // A11: empty is an error at once; nothing to draw is flagged on the device and takes no step.
    let mut empty =
        GpuPrioritizedReplay::new(s, GpuReplayConfig { epsilon: 0.0, ..config(4, 2) }, None).unwrap();
    let mut out = foxhunt_ops::ring::cuda::DeviceBatch::zeros(s, 300, 2).unwrap();
    assert!(empty.sample(s, &mut out).unwrap_err().to_string().contains("0 rows stored"));
    let mut bad = rows(3, 2, 1, 0);
    bad.rewards.fill(f32::NAN);
    let mut device = foxhunt_ops::ring::cuda::DeviceRows::zeros(s, 3, 2).unwrap();
    device.upload(s, &bad.view()).unwrap();
    empty.insert(s, &device, 3).unwrap();
    empty.sample(s, &mut out).unwrap();
    let counters = empty.counters(s).unwrap();
    assert_eq!(
        (counters.len, counters.empty_samples, counters.samples, counters.refused_rewards),
        (0, 1, 0, 3)
    );
    assert!(s.download(&out.indices).unwrap().iter().all(|&i| i == u32::MAX));
}

/// Case A01, long: after a million entries every sum equals its children, and the leaves are the twin's.
fn million(gpu: &Gpu) {
    let (capacity, batch, rounds) = if gpu.small { (1000, 256, 20) } else { (1 << 17, 8192, 123) };
    let mut pair = Pair::new(gpu, config(capacity, 1));
    pair.insert(&rows(capacity, 1, 1, 0));
    for salt in 0..rounds {
        pair.update(&slots(batch, capacity, salt), &td_errors(batch, salt, true));
        if salt % 10 == 0 {
            pair.insert(&rows(700, 1, salt + 100, 50));
        }
    }
    pair.same_state();
    pair.sample(batch);
    // Starting the epochs again changes no priority, sum or draw.
    pair.gpu.restart_epochs(&gpu.stream).unwrap();
    pair.same_state();
    pair.update(&slots(batch, capacity, 7), &td_errors(batch, 7, true));
    pair.insert(&rows(300, 1, 1000, 0));
    pair.sample(batch);
    pair.same_state();
}
