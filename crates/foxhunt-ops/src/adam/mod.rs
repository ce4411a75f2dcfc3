//! Global-norm clipping, Adam, and how the target network follows.
//!
//! **Contract**, over flat arrays of any length:
//!
//! - norm `= sqrt(sum g^2)`, summed in f64: blocks of 1,024 values and then their sums, each in the fixed tree of
//!   [`mod@crate::tree_sum`], so that no thread count changes a bit;
//! - clip coefficient `c = 1` if `norm <= max_norm`, else `max_norm / norm`. A norm that is not finite has no
//!   coefficient: the caller must not step. Zero norm and zero `max_norm` both give zero gradients, never 0/0;
//! - Adam at step `t` (1 for the first): `g = c g`, `m += (1 - b1)(g - m)`, `v = b2 v + (1 - b2) g^2`,
//!   `w -= (lr / (1 - b1^t)) m / (sqrt(v) / sqrt(1 - b2^t) + eps)`. `t` lives in the state beside m and v; the
//!   factors `lr / (1 - b1^t)` and `1 / sqrt(1 - b2^t)` are computed in f64 and used as f32, the powers by
//!   repeated squaring, which is the same bits on every engine;
//! - Polyak `target += tau (online - target)`; hard copy after applied update `N, 2N, ...`, never at 0.
//!
//! f32 throughout, one rounding an operation, never fused, so that elements are independent of vector width.
//!
//! Sources: Kingma and Ba, arXiv 1412.6980, algorithm 1, in the form of `torch.optim.Adam` (epsilon outside the
//! corrected root); clipping, Pascanu et al., arXiv 1211.5063, without the 1e-6 that PyTorch adds to the norm;
//! Polyak averaging, Lillicrap et al., arXiv 1509.02971. This module does not decide whether an update is applied.

mod cpu;
pub mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::{adam_step, clip_coefficient, global_norm, hard_sync, polyak, sum_of_squares};

use foxhunt_core::settings::TargetUpdate;

/// The constants of Adam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParams {
    /// First-moment decay, in [0, 1).
    pub beta1: f64,
    /// Second-moment decay, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment, > 0.
    pub epsilon: f64,
}

/// The factors of one step, as every element uses them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamScale {
    /// Clip coefficient.
    pub clip: f32,
    /// `1 - beta1`.
    pub one_minus_beta1: f32,
    /// `beta2`.
    pub beta2: f32,
    /// `1 - beta2`.
    pub one_minus_beta2: f32,
    /// `lr / (1 - beta1^t)`.
    pub step_size: f32,
    /// `1 / sqrt(1 - beta2^t)`.
    pub root_factor: f32,
    /// Epsilon.
    pub epsilon: f32,
}

impl AdamScale {
    /// The factors of step `t` (1 for the first) with learning rate `lr`.
    #[must_use]
    pub fn new(params: &AdamParams, t: u64, lr: f64, clip: f64) -> Self {
        Self {
            clip: clip as f32,
            one_minus_beta1: (1.0 - params.beta1) as f32,
            beta2: params.beta2 as f32,
            one_minus_beta2: (1.0 - params.beta2) as f32,
            step_size: (lr / (1.0 - power(params.beta1, t))) as f32,
            root_factor: (1.0 - power(params.beta2, t)).sqrt().recip() as f32,
            epsilon: params.epsilon as f32,
        }
    }
}

/// `base^exponent` by repeated squaring, from the lowest bit of the exponent up.
#[must_use]
pub fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    result
}

/// Whether the target network is copied after applied update number `update` (1 for the first).
#[must_use]
pub fn hard_sync_due(target: TargetUpdate, update: u64) -> bool {
    match target {
        TargetUpdate::Hard { every } => update > 0 && update.is_multiple_of(every),
        TargetUpdate::Polyak { .. } => false,
    }
}
