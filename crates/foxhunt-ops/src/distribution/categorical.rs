//! C51 on one action's logits.

use super::cpu::{BranchLoss, sum, sums};
use crate::power::{exp_portable, ln_portable};

/// The returns that probability is spread over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Support {
    pub(crate) atoms: usize,
    pub(crate) v_min: f64,
    pub(crate) v_max: f64,
    /// From return to return.
    pub(crate) step: f64,
}

impl Support {
    pub(crate) fn new(atoms: usize, v_min: f64, v_max: f64) -> Self {
        Self { atoms, v_min, v_max, step: (v_max - v_min) / (atoms - 1) as f64 }
    }

    fn value(&self, j: usize) -> f64 {
        self.v_min + j as f64 * self.step
    }

    /// Adds probability `p` of the return `value` to the two nearest returns; a value that is NaN leaves NaN behind.
    fn share(&self, value: f64, p: f64, into: &mut [f64]) {
        let position = (clamp(value, self.v_min, self.v_max) - self.v_min) / self.step;
        let position = clamp(position, 0.0, (self.atoms - 1) as f64);
        let low = position as usize;
        let above = position - low as f64;
        into[low] += p * (1.0 - above);
        if low + 1 < self.atoms {
            into[low + 1] += p * above;
        }
    }
}

/// Within `[low, high]`; NaN stays NaN.
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// What softmax subtracts and divides by.
#[derive(Clone, Copy)]
struct Scale {
    largest: f64,
    total: f64,
}

impl Scale {
    fn of(logits: &[f32]) -> Self {
        let largest = largest(logits);
        Self { largest, total: sum(logits.len(), |j| exp_portable(f64::from(logits[j]) - largest)) }
    }

    fn probability(&self, logit: f32) -> f64 {
        exp_portable(f64::from(logit) - self.largest) / self.total
    }
}

/// The largest logit; a NaN is none.
fn largest(logits: &[f32]) -> f64 {
    f64::from(logits.iter().fold(f32::NEG_INFINITY, |best, &x| if x > best { x } else { best }))
}

/// The mean of the distribution.
pub(super) fn expectation(support: &Support, logits: &[f32]) -> f32 {
    let largest = largest(logits);
    let [total, weighted] = sums(logits.len(), |j| {
        let power = exp_portable(f64::from(logits[j]) - largest);
        [power, power * support.value(j)]
    });
    (weighted / total) as f32
}

/// The target `m`, from the target network's logits of each branch's best action.
pub(super) fn project(support: &Support, best: &[&[f32]], reward: f32, discount: f32, m: &mut [f64]) {
    let (reward, discount) = (f64::from(reward), f64::from(discount));
    let scales: Vec<Scale> = best.iter().map(|logits| Scale::of(logits)).collect();
    m.fill(0.0);
    for j in 0..support.atoms {
        let p = best.iter().zip(&scales).fold(0.0, |p, (logits, scale)| p + scale.probability(logits[j]));
        support.share(reward + discount * support.value(j), p / best.len() as f64, m);
    }
}

/// The target of a row that ends: `reward` for certain.
pub(super) fn certain(support: &Support, reward: f32, m: &mut [f64]) {
    m.fill(0.0);
    support.share(f64::from(reward), 1.0, m);
}

/// Cross-entropy and divergence of the action taken from `m`; `gradient` takes that of the loss.
pub(super) fn loss(logits: &[f32], m: &[f64], gradient: &mut [f32]) -> BranchLoss {
    let scale = Scale::of(logits);
    let log_total = ln_portable(scale.total);
    let log_p = |j: usize| (f64::from(logits[j]) - scale.largest) - log_total;
    let entropy = -sum(m.len(), |j| m[j] * log_p(j));
    let divergence = sum(m.len(), |j| if m[j] == 0.0 { 0.0 } else { m[j] * (ln_portable(m[j]) - log_p(j)) });
    for ((gradient, &logit), &m) in gradient.iter_mut().zip(logits).zip(m) {
        *gradient = (scale.probability(logit) - m) as f32;
    }
    // Rounding can leave a hair below 0; a NaN stays.
    BranchLoss { loss: entropy as f32, td: if divergence < 0.0 { 0.0 } else { divergence as f32 } }
}
