//! Proportional prioritised sampling with exact integer masses (arXiv 1511.05952, section 3.3).
//!
//! **Priority** of a TD error: `p = min(|td|^alpha + epsilon, PRIORITY_CAP)` in f32 ([`priority`]), the power by
//! [`crate::power::pow_portable`], so that both engines store the same bits (0^0 is 1). A non-finite TD
//! error is refused before the power is taken, because NaN^0 is 1; the slot keeps its old priority and `refused`
//! counts it (A13). A priority above the cap is stored as the cap and `capped` counts it (A14).
//!
//! **Running maximum.** `max_priority` starts at 1 and is the largest priority ever stored by an update, as stored:
//! after power, epsilon and cap. A new row gets it as it stands, so alpha is not applied twice (A20), and it never
//! falls (historical maximum, A22 and A23).
//!
//! **Mass** of a priority: `w = max(1, round_ties_even(p * 2^F))` for p > 0 and 0 for p = 0, where
//! `F = 48 - ceil(log2 capacity)` ([`mass_exponent`]). The product with a power of two is exact in f32. Every mass is
//! below 2^(15 + F), so any total is below 2^63; sums of u64 are exact in any order, nothing drifts, and the root
//! equals the sum of the leaves for ever (A01, A02, A32). A slot never written has mass 0.
//!
//! **Draw** of a batch of B from total mass T at sample number `step` ([`stratum_width`], [`fraction`], [`target`]):
//!
//! ```text
//! inv      = floor(2^64 / B)            for B >= 2;  2^64 - 1 for B = 1
//! word     = philox.block(Purpose::Replay, stream = b, step, block 0);  x = word[0] << 32 | word[1]
//! frac_b   = b * inv + floor(x * inv / 2^64)
//! target_b = floor(frac_b * T / 2^64)
//! slot_b   = the slot i with sum(w[0..i]) <= target_b < sum(w[0..=i])
//! ```
//!
//! Every target is below T and targets rise with b; intervals are half-open and follow slot order (A05, A28).
//! A slot of mass 0 has an empty interval and is never drawn.
//!
//! **Importance weight** over the batch maximum ([`weight`]): `(w_min / w_i)^beta`, where w_min is the smallest mass
//! in the batch; in `(N * P(i))^-beta / max` the row count and the total cancel. Masses are first rounded to f32
//! (nearest, ties to even), then [`crate::power::weight_portable`] takes `2^(beta * (log2 w_min - log2 w_i))`: the same
//! bits on both engines, and exactly 1 for a row of the smallest mass. Beta moves linearly from beta_start at sample
//! number 0 to beta_max at sample number `beta_annealing_steps`, then stays ([`foxhunt_core::LinearSchedule::at`] in
//! f64, then rounded to f32; A29). A *sample number* counts sample calls that returned at least one row; it is the RNG step
//! too and is part of a snapshot (E02).
//!
//! **Update.** Entries with the same slot leave the largest of their new priorities, the old one does not count
//! (A25). Refused entries leave no trace but the counter. A slot outside the rows stored is a fault of the caller:
//! the CPU twin refuses the whole call and changes nothing; a kernel, which cannot answer, skips the entry and
//! counts it.
//!
//! Update and sample cost O(B log N). The shape of the tree is no part of the contract: results depend on the
//! masses in slot order alone. Both engines use fan-out 64 and stop at the first level of at most 256 nodes.
//!
//! This module stores no rows and does not know what a slot holds.

mod cpu;
pub mod cuda;
pub mod device;
mod sum_tree;

#[cfg(test)]
mod tests;

pub use cpu::{PriorityTree, PriorityTreeState};
pub(crate) use cpu::{draw_targets, write_weights};
pub use sum_tree::SumTree;

use foxhunt_core::{Philox, Purpose};

use crate::power::{pow_portable, weight_portable};

/// Children of a node.
pub const FAN_OUT: usize = 64;
/// Most nodes of the top level.
pub const MAX_TOP: usize = 256;
/// Most slots.
pub const MAX_CAPACITY: usize = 1 << 31;
/// Largest priority stored: the largest f32 below 2^15.
pub const PRIORITY_CAP: f32 = 32_767.998;

/// How TD errors become priorities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriorityParams {
    /// Power, in [0, 1].
    pub alpha: f32,
    /// Added after the power, >= 0.
    pub epsilon: f32,
}

/// What an update did, in entries of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateReport {
    /// Entries with a finite TD error and a live slot.
    pub applied: usize,
    /// Entries refused for a non-finite TD error.
    pub refused: usize,
    /// Entries applied with the capped priority.
    pub capped: usize,
    /// Entries whose slot was overwritten after it was drawn (only where generations are given).
    pub stale: usize,
}

/// `ceil(log2 capacity)`; 0 for a capacity of 1.
#[must_use]
pub const fn ceil_log2(capacity: usize) -> u32 {
    capacity.next_power_of_two().trailing_zeros()
}

/// F: a mass counts units of 2^-F of priority. `capacity` is from 1 to [`MAX_CAPACITY`].
#[must_use]
pub const fn mass_exponent(capacity: usize) -> u32 {
    48 - ceil_log2(capacity)
}

/// 2^F as an exact f32.
#[must_use]
pub fn mass_scale(capacity: usize) -> f32 {
    // A power of two up to 2^48 is exact in f32.
    (1_u64 << mass_exponent(capacity)) as f32
}

/// The mass of a stored priority (finite, in [0, [`PRIORITY_CAP`]]).
#[inline]
#[must_use]
pub fn mass(priority: f32, scale: f32) -> u64 {
    const INTEGERS: f32 = 8_388_608.0; // 2^23: from here on every f32 is an integer
    let x = priority * scale;
    // Adding and taking away 2^23 rounds to an integer in the current mode: nearest, ties to even.
    let rounded = if x < INTEGERS { (x + INTEGERS) - INTEGERS } else { x };
    (rounded as u64).max(u64::from(priority > 0.0))
}

/// The priority to store for a TD error and whether it was capped; `None` for a non-finite TD error.
#[inline]
#[must_use]
pub fn priority(td_error: f32, params: &PriorityParams) -> Option<(f32, bool)> {
    if !td_error.is_finite() {
        return None;
    }
    let p = pow_portable(td_error.abs(), params.alpha) + params.epsilon;
    Some((p.min(PRIORITY_CAP), p > PRIORITY_CAP))
}

/// `x` of the draw: the 64 random bits of batch position `b` at sample number `step`.
#[inline]
#[must_use]
pub fn random_bits(philox: &Philox, step: u64, b: u32) -> u64 {
    let words = philox.block(Purpose::Replay, b, step, 0);
    u64::from(words[0]) << 32 | u64::from(words[1])
}

/// `inv` of the draw: the width of a stratum as a 64-bit fraction of the total. `batch` is at least 1.
#[must_use]
pub const fn stratum_width(batch: u32) -> u64 {
    if batch == 1 { u64::MAX } else { ((1_u128 << 64) / batch as u128) as u64 }
}

/// `frac_b` of the draw, from the 64 random bits `x`.
#[inline]
#[must_use]
pub const fn fraction(b: u32, x: u64, inv: u64) -> u64 {
    b as u64 * inv + mul_high(x, inv)
}

/// `target_b` of the draw; below `total` whenever `total` is positive.
#[inline]
#[must_use]
pub const fn target(fraction: u64, total: u64) -> u64 {
    mul_high(fraction, total)
}

/// Importance weight of a row of mass `mass` in a batch whose smallest mass is `min_mass`; both positive.
#[inline]
#[must_use]
pub fn weight(min_mass: u64, mass: u64, beta: f32) -> f32 {
    weight_portable(min_mass as f32, mass as f32, beta)
}

/// Upper 64 bits of the product.
#[inline]
#[must_use]
pub const fn mul_high(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}
