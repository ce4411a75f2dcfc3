//! The CPU twin of the training guard.

use super::GuardWords;

/// Judges one step; see the [module](super) for each word.
#[must_use]
pub fn check(
    loss: f32,
    grad_norm: f32,
    collapse_threshold: f32,
    loss_threshold: f32,
    warmup: bool,
    step: u64,
) -> GuardWords {
    GuardWords {
        halt_nan: !(loss.is_finite() && grad_norm.is_finite()),
        halt_loss_clip: loss > loss_threshold,
        halt_grad_collapse: !warmup && grad_norm < collapse_threshold,
        clipped_loss: if loss > loss_threshold { loss_threshold } else { loss },
        raw_loss: loss,
        raw_grad_norm: grad_norm,
        step,
    }
}

/// Number of values that are NaN or infinite.
#[must_use]
pub fn count_non_finite(values: &[f32]) -> u32 {
    values.iter().map(|v| u32::from(!v.is_finite())).sum()
}

/// Sums of loss and gradient norm between two epoch boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GuardSums {
    /// Sum of finite losses.
    pub loss: f64,
    /// Finite losses.
    pub losses: u64,
    /// Sum of finite norms.
    pub grad_norm: f64,
    /// Finite norms.
    pub grad_norms: u64,
    /// Losses and norms left out because they were not finite.
    pub non_finite: u64,
}

impl GuardSums {
    /// Adds one update.
    pub fn add(&mut self, loss: f32, grad_norm: f32) {
        let parts = [
            (loss, &mut self.loss, &mut self.losses),
            (grad_norm, &mut self.grad_norm, &mut self.grad_norms),
        ];
        for (value, sum, count) in parts {
            if value.is_finite() {
                *sum += f64::from(value);
                *count += 1;
            } else {
                self.non_finite += 1;
            }
        }
    }

    /// Mean loss and mean norm; `None` over nothing.
    #[must_use]
    pub fn means(&self) -> (Option<f64>, Option<f64>) {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        (mean(self.loss, self.losses), mean(self.grad_norm, self.grad_norms))
    }
}

/// Counts collapsed updates in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollapseCounter {
    /// Collapsed updates in a row so far.
    pub in_row: u64,
}

impl CollapseCounter {
    /// Takes one check into account and says whether `patience` collapsed updates in a row are reached.
    pub fn observe(&mut self, words: &GuardWords, patience: u64) -> bool {
        if words.halt_grad_collapse {
            self.in_row += 1;
        } else if !words.halt_nan {
            self.in_row = 0;
        }
        self.in_row >= patience
    }
}
