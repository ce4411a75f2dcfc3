//! The guard by itself on the device: its judgement, its sums, and a reader that polls while records are written.

use std::sync::atomic::{AtomicBool, Ordering};

use foxhunt_ops::gpu_learner::bench::{BenchConfig, guard_cost};
use foxhunt_ops::guard::cuda::DeviceGuard;
use foxhunt_ops::guard::{GuardSums, GuardWords, check};

use crate::learner::cache;
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 3] = [
    ("guard_equals_the_cpu", judgement),
    ("guard_is_never_seen_torn", torn),
    ("guard_costs_less_than_a_microsecond", cost),
];

fn judgement(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut guard = DeviceGuard::new(s, Some(&cache())).unwrap();
    assert_eq!(guard.record(), None);
    let values =
        [0.0, 1.0, 1e-8, 1e6, 1.1e6, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40];
    let mut sums = GuardSums::default();
    let mut step = 0;
    for loss in values {
        for norm in values {
            for warmup in [false, true] {
                step += 1;
                let device = [loss, norm].map(|v| s.upload_new("value", &[v]).unwrap());
                guard.check(s, &device[0], &device[1], 1e-7, 1e6, warmup).unwrap();
                guard.accumulate(s, &device[0], &device[1]).unwrap();
                s.synchronise().unwrap();
                sums.add(loss, norm);
                let (got, want) = (guard.record().unwrap(), check(loss, norm, 1e-7, 1e6, warmup, step));
                assert_eq!(got.to_words(), want.to_words(), "loss {loss} norm {norm} warm-up {warmup}");
            }
        }
    }
    assert_eq!(guard.sums(s).unwrap(), sums);
    guard.reset(s).unwrap();
    assert_eq!(guard.sums(s).unwrap(), GuardSums::default());
    let one = s.upload_new("value", &[1.0_f32]).unwrap();
    guard.check(s, &one, &one, 0.0, 1e6, false).unwrap();
    s.synchronise().unwrap();
    assert_eq!(guard.record().unwrap().step, step + 1);
}

/// While the device judges one pair after the other, every record that is read belongs together and none is older than
/// the one before. Loss and norm of check number n are both drawn from the same of sixteen pairs.
fn torn(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut guard = DeviceGuard::new(s, Some(&cache())).unwrap();
    let pairs: Vec<_> = (0..16)
        .map(|i| [i as f32 + 0.5, i as f32 + 100.25].map(|v| s.upload_new("value", &[v]).unwrap()))
        .collect();
    let (batch, rounds) = (1600, if gpu.small { 1 } else { 625 });
    let mut graph = s
        .capture(|s| {
            (0..batch).try_for_each(|n| {
                let [loss, norm] = &pairs[n % 16];
                guard.check(s, loss, norm, 1e-7, 8.0, n % 2 == 0)
            })
        })
        .unwrap();
    let done = AtomicBool::new(false);
    let (guard, done) = (&guard, &done);
    let (reads, different) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut last, mut reads, mut different) = (0, 0_u64, 0_u64);
            let look = |words: GuardWords, last: &mut u64| {
                assert!(words.step >= *last, "step {} after {last}", words.step);
                let i = ((words.step - 1) % 16) as f32;
                let want = check(i + 0.5, i + 100.25, 1e-7, 8.0, false, words.step);
                assert_eq!(words, want, "a torn record");
                let new = words.step != *last;
                *last = words.step;
                new
            };
            while !done.load(Ordering::Acquire) {
                if let Some(words) = guard.record() {
                    reads += 1;
                    different += u64::from(look(words, &mut last));
                }
            }
            (reads, different)
        });
        (0..rounds).for_each(|_| graph.launch(s).unwrap());
        s.synchronise().unwrap();
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    let checks = batch as u64 * rounds;
    assert!(gpu.small || checks == 1_000_000);
    assert_eq!(guard.record().unwrap().step, checks);
    println!("       {checks} checks, {reads} whole reads of {different} different records");
    assert!(gpu.small || different > 100);
}

/// What judgement, sums and record add to a captured update, as a difference of two graphs. Under a sanitizer no time is
/// true, so there it is only run.
fn cost(gpu: &Gpu) {
    let batches = if gpu.small { vec![32] } else { vec![64, 256, 1024] };
    let config = BenchConfig { capacity: 1 << 17, batches, ..BenchConfig::default() };
    let mut inside = Vec::new();
    guard_cost(&gpu.stream, &config, Some(&cache()), &mut |row| {
        println!("       batch {}: {} {:.3} us {:.3?}", row.rows, row.op, row.us, row.us_range);
        if row.op.contains("inside") {
            inside.push(row.us);
        }
    })
    .unwrap();
    assert!(gpu.small || inside.iter().all(|&us| us < 1.0), "{inside:?}");
}
