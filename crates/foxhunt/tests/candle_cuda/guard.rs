//! The guard: judgements and sums of the CPU, polled and never waited for.

use candle_core::{Device, Tensor};
use foxhunt::MLError;
use foxhunt::guard::{GpuTrainingGuard, GuardResult};

use crate::{cuda, only_launches};

const VALUES: [f32; 11] =
    [0.0, 1.0, 1e-8, 1e6, 1.1e6, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40];

fn same(got: GuardResult, want: GuardResult) {
    let words = |r: GuardResult| {
        let values = [r.clipped_loss, r.raw_grad_norm].map(|v| if v.is_nan() { 0 } else { v.to_bits() });
        (r.halt_nan, r.halt_loss_clip, r.halt_grad_collapse, values, r.step)
    };
    assert_eq!(words(got), words(want));
}

#[test]
fn guard_equals_the_cpu() {
    let Some(device) = cuda() else { return };
    let (mut here, mut there) =
        (GpuTrainingGuard::new(&Device::Cpu).unwrap(), GpuTrainingGuard::new(&device).unwrap());
    assert_eq!(there.latest(), None);
    assert!(matches!(there.read_accumulators(), Err(MLError::NotEnoughData { .. })));
    for loss in VALUES {
        for norm in VALUES {
            for warmup in [false, true] {
                let tensors = |device| [loss, norm].map(|v| Tensor::new(v, device).unwrap());
                let ([loss, norm], [far_loss, far_norm]) = (tensors(&Device::Cpu), tensors(&device));
                let want = here.check(&loss, &norm, 1e-7, warmup).unwrap();
                here.accumulate(&loss, &norm).unwrap();
                device.synchronize().unwrap();
                let step = want.step;
                only_launches("check and accumulate", 2, || {
                    // What comes back at once is of this check or an earlier one.
                    let early = there.check(&far_loss, &far_norm, 1e-7, warmup).unwrap();
                    assert!(early.step + 1 >= step && early.step <= step, "{early:?} at check {step}");
                    there.accumulate(&far_loss, &far_norm).unwrap();
                });
                device.synchronize().unwrap();
                only_launches("a look", 0, || same(there.latest().unwrap(), want));
            }
        }
    }
    assert_eq!(there.read_accumulators().unwrap(), here.read_accumulators().unwrap());
    assert_eq!(there.non_finite().unwrap(), here.non_finite().unwrap());
    there.reset_accumulators().unwrap();
    assert!(there.read_accumulators().is_err());
    // A loss as an f64, as a vector of one, and as part of a longer one.
    let step = there.latest().unwrap().step;
    let wide = Tensor::new(&[1.5_f64, 2.5], &device).unwrap();
    let norm = Tensor::new(&[4.0_f32, 8.0], &device).unwrap().narrow(0, 1, 1).unwrap();
    there.check(&wide.narrow(0, 1, 1).unwrap(), &norm, 0.0, false).unwrap();
    device.synchronize().unwrap();
    let seen = there.latest().unwrap();
    assert_eq!((seen.clipped_loss, seen.raw_grad_norm, seen.step), (2.5, 8.0, step + 1));
    assert!(matches!(there.accumulate(&wide, &norm), Err(MLError::Shape { what: "loss", .. })));
}

/// The loss of a candle graph, straight from the operation that makes it, with nothing in between.
#[test]
fn a_loss_that_candle_has_just_queued() {
    let Some(device) = cuda() else { return };
    let mut guard = GpuTrainingGuard::new(&device).unwrap();
    let x = Tensor::arange(0_f32, 1000.0, &device).unwrap();
    for k in 1..=50_u64 {
        let loss = (x.sum_all().unwrap() * k as f64).unwrap();
        guard.check(&loss, &loss.sqrt().unwrap(), 0.0, false).unwrap();
        guard.accumulate(&loss, &loss).unwrap();
    }
    device.synchronize().unwrap();
    let seen = guard.latest().unwrap();
    assert_eq!((seen.step, seen.halt_loss_clip), (50, true));
    let mean = 499_500.0 * 51.0 / 2.0;
    assert_eq!(guard.read_accumulators().unwrap(), (mean, mean));
}

/// A per-thread queue is refused elsewhere; a device with a stream of its own serves all threads.
#[test]
fn threads() {
    let Some(device) = cuda() else { return };
    let guard = GpuTrainingGuard::new(&device).unwrap();
    let refused = std::thread::scope(|scope| scope.spawn(|| guard.read_accumulators()).join().unwrap());
    assert!(refused.unwrap_err().to_string().contains("new_cuda_with_stream"));
    let shared = Device::new_cuda_with_stream(0).unwrap();
    let mut guard = GpuTrainingGuard::new(&shared).unwrap();
    let one = Tensor::new(1.0_f32, &shared).unwrap();
    for _ in 0..3 {
        std::thread::scope(|scope| scope.spawn(|| guard.accumulate(&one, &one).unwrap()).join().unwrap());
    }
    assert_eq!(guard.read_accumulators().unwrap(), (1.0, 1.0));
    let mixed = guard.accumulate(&Tensor::new(1.0_f32, &device).unwrap(), &one);
    assert!(matches!(mixed, Err(MLError::DeviceMismatch { what: "loss", .. })));
}
