//! The Q monitor: sums and ranges of the CPU, to the bit.

use candle_core::{Device, Tensor};
use foxhunt::MLError;
use foxhunt::monitor::QValueMonitor;
use foxhunt_core::Head;

use crate::{cuda, hash, only_launches, small};

fn value(i: u64, salt: u64) -> f32 {
    let h = hash(i | salt << 40);
    match h % 200 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => -0.0,
        _ => (h >> 40) as f32 / 1_048_576.0 - 8.0,
    }
}

#[test]
fn monitor_equals_the_cpu() {
    let Some(device) = cuda() else { return };
    for head in [None, Some(Head::Exposure), Some(Head::Factored), Some(Head::Branching)] {
        let width = head.map_or(7, Head::n_outputs);
        let new = |device: &Device| match head {
            Some(head) => QValueMonitor::for_head(device, head).unwrap(),
            None => QValueMonitor::new(device).unwrap(),
        };
        let (mut here, mut there) = (new(&Device::Cpu), new(&device));
        assert!(matches!(there.read_average(), Err(MLError::NotEnoughData { .. })));
        assert_eq!(there.latest(), None);
        let sizes = if small() { vec![1, 33, 300] } else { vec![1, 31, 255, 256, 257, 1024, 70_001] };
        for (turn, rows) in sizes.into_iter().enumerate() {
            let salt = turn as u64 + 1;
            let values: Vec<f32> = (0..(rows * width) as u64).map(|i| value(i, salt)).collect();
            let q = Tensor::from_vec(values.clone(), (rows, width), &Device::Cpu).unwrap();
            let far = Tensor::from_vec(values, (rows, width), &device).unwrap();
            for threshold in [10_000.0, 3.0] {
                here.accumulate(&q).unwrap();
                here.check_divergence(&q, threshold).unwrap();
                device.synchronize().unwrap();
                only_launches("accumulate and check", 2, || {
                    there.accumulate(&far).unwrap();
                    there.check_divergence(&far, threshold).unwrap();
                });
                device.synchronize().unwrap();
                let (got, want) = (there.latest().unwrap(), here.latest().unwrap());
                let words = |(n, s): (u64, foxhunt::monitor::QStats)| {
                    (n, [s.min, s.max, s.mean].map(f32::to_bits), s.diverged)
                };
                assert_eq!(words(got), words(want), "{head:?}, {rows} rows");
            }
            if let Ok(want) = here.read_average() {
                let got = there.read_average().unwrap();
                assert_eq!(got.to_bits(), want.to_bits(), "{head:?}, {rows} rows: {got} {want}");
            }
        }
        there.reset().unwrap();
        assert!(there.read_average().is_err());
    }
    let mut monitor = QValueMonitor::for_head(&device, Head::Branching).unwrap();
    let wrong = Tensor::zeros((3, 5), candle_core::DType::F32, &device).unwrap();
    assert!(matches!(monitor.accumulate(&wrong), Err(MLError::Shape { what: "q", .. })));
}
