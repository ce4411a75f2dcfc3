//! The training guard in a loop of your own: an update whose loss or gradient is not finite is never applied.
//!
//! `cargo run -p foxhunt --example 02_guard_in_your_loop`
//!
//! A line is fitted by gradient descent on candle's autograd. One batch in twenty is poisoned with a NaN; without the
//! guard the first of them would be the end of every weight.
#![allow(clippy::print_stdout)]

use candle_core::{Device, Tensor, Var};
use foxhunt::MLError;
use foxhunt::guard::GpuTrainingGuard;

fn main() -> Result<(), MLError> {
    let fit = fit(400)?;
    println!("slope {:.3} (2 is right), offset {:.3} (-1 is right)", fit.slope, fit.offset);
    println!("{} poisoned updates skipped, mean loss of the others {:.4}", fit.skipped, fit.mean_loss);
    Ok(())
}

struct Fit {
    slope: f32,
    offset: f32,
    skipped: u64,
    mean_loss: f64,
}

fn fit(updates: usize) -> Result<Fit, MLError> {
    let device = Device::Cpu;
    let slope = Var::new(&[0.0_f32], &device)?;
    let offset = Var::new(&[0.0_f32], &device)?;
    let mut guard = GpuTrainingGuard::new(&device)?;
    let mut skipped = 0;
    for update in 0..updates {
        let mut x: Vec<f32> = (0..32).map(|i| ((update * 32 + i) % 41) as f32 / 20.0 - 1.0).collect();
        if update % 20 == 7 {
            x[3] = f32::NAN;
        }
        let x = Tensor::new(x, &device)?;
        let y = x.affine(2.0, -1.0)?;
        let error = (x.broadcast_mul(&slope)?.broadcast_add(&offset)? - y)?;
        let loss = error.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        let gradient = |var: &Var| gradients.get(var).cloned().map_or_else(|| var.zeros_like(), Ok);
        let (d_slope, d_offset) = (gradient(&slope)?, gradient(&offset)?);
        let norm = (d_slope.sqr()? + d_offset.sqr()?)?.sqrt()?;

        // Judged before it is applied. A threshold of 0 looks for no collapse.
        let judged = guard.check(&loss, &norm, 0.0, false)?;
        guard.accumulate(&loss, &norm)?;
        if judged.halt_nan {
            skipped += 1;
            continue;
        }
        slope.set(&(slope.as_tensor() - (d_slope * 0.3)?)?)?;
        offset.set(&(offset.as_tensor() - (d_offset * 0.3)?)?)?;
    }
    let (mean_loss, _) = guard.read_accumulators()?;
    let value = |var: &Var| -> Result<f32, MLError> { Ok(var.to_vec1::<f32>()?[0]) };
    Ok(Fit { slope: value(&slope)?, offset: value(&offset)?, skipped, mean_loss })
}

#[test]
fn poisoned_updates_change_nothing() {
    let fit = fit(400).unwrap();
    assert_eq!(fit.skipped, 20);
    assert!((fit.slope - 2.0).abs() < 1e-2 && (fit.offset + 1.0).abs() < 1e-2);
    assert!(fit.mean_loss.is_finite());
}
