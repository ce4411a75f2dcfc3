//! The Q monitor by itself on the device: sums and ranges of the CPU, to the bit.

use foxhunt_cuda::{DriverCalls, driver_calls};
use foxhunt_ops::q_monitor::cuda::DeviceQMonitor;
use foxhunt_ops::q_monitor::{MaxQSums, QRange, divergence};

use crate::learner::cache;
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 1] = [("q_monitor_equals_the_cpu", parity)];

fn value(i: u64, salt: u64) -> f32 {
    let h = foxhunt_core::Philox::new(salt).block(foxhunt_core::Purpose::Synthetic, 0, i, 0)[0];
    match h % 150 {
        0 => f32::NAN,
        1 => f32::NEG_INFINITY,
        2 => -0.0,
        _ => (h >> 8) as f32 / 1_048_576.0 - 8.0,
    }
}

fn words(range: QRange) -> ([u32; 3], u32, u32, bool) {
    let values = [range.min, range.max, range.mean].map(f32::to_bits);
    (values, range.finite, range.non_finite, range.diverged)
}

fn parity(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut monitor = DeviceQMonitor::new(s, Some(&cache())).unwrap();
    assert_eq!(monitor.range(), None);
    let (mut want, mut checks) = (MaxQSums::default(), 0);
    let sizes: &[usize] = if gpu.small { &[1, 33] } else { &[1, 31, 32, 33, 255, 256, 257, 8192, 100_003] };
    for branches in [&[1][..], &[5], &[45], &[5, 3, 3], &[2; 6]] {
        let width: usize = branches.iter().sum();
        for &rows in sizes {
            let n = rows * width;
            let q: Vec<f32> = (0..n as u64).map(|i| value(i, rows as u64)).collect();
            let device = s.upload_new("q", &q).unwrap();
            for (n, threshold) in [(n, 1e4), (n, 5.0), (1, 1e4), (0, 1.0)] {
                let before = driver_calls();
                monitor.divergence_check(s, &device, n, threshold).unwrap();
                assert_eq!(driver_calls() - before, DriverCalls { launches: 1, ..DriverCalls::default() });
                s.synchronise().unwrap();
                checks += 1;
                let (number, got) = monitor.range().unwrap();
                let want = divergence(&q[..n], threshold);
                assert_eq!((number, words(got)), (checks, words(want)), "{branches:?} x {rows}");
            }
            monitor.accumulate(s, &device, rows, branches).unwrap();
            want.accumulate(&q, branches);
            let got = monitor.sums(s).unwrap();
            assert_eq!(got.sum.to_bits(), want.sum.to_bits(), "{branches:?} x {rows}: {got:?} {want:?}");
            assert_eq!(got, want);
        }
    }
    let q = s.upload_new("q", &[1.0_f32; 8]).unwrap();
    assert!(monitor.accumulate(s, &q, 3, &[3]).is_err() && monitor.accumulate(s, &q, 1, &[1; 7]).is_err());
    assert!(monitor.divergence_check(s, &q, 9, 1.0).is_err());
    monitor.reset(s).unwrap();
    assert_eq!(monitor.sums(s).unwrap(), MaxQSums::default());
    monitor.divergence_check(s, &q, 8, 1.0).unwrap();
    s.synchronise().unwrap();
    assert_eq!(monitor.range().unwrap().0, checks + 1);
}
