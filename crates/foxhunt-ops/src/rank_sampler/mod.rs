//! Rank-based prioritised sampling with exact integer masses (arXiv 1511.05952, section 3.3).
//!
//! **Order.** Rows stand by priority descending, ties by lower slot. As one integer, ascending:
//! `key = (!bits(priority)) << 32 | slot` ([`sort_key`]); priorities are finite and not negative, so their bits rise
//! with them and no comparison can fail (A31).
//!
//! **Mass** of rank r = 1, 2, ...: `w_r = max(1, round_ties_even(r^-alpha * 2^F))`, in f64, where
//! `F = 62 - ceil(log2 capacity)` ([`rank_mass`]). It depends on alpha and capacity alone: the host builds the table
//! once, for both engines. With N rows stored P(rank r) = w_r / (w_1 + ... + w_N) exactly, and any total is below
//! 2^63. Ranks have mass whatever their priority, 0 included.
//!
//! **Draw and weight** are those of [`crate::priority_tree`] with `T = w_1 + ... + w_N` and rank masses in the place
//! of slot masses: same Philox words, same half-open intervals, now in rank order, same `(w_min / w_i)^beta`.
//!
//! **When the order is made new.** At the start of a sample call, before its draw, when either no order exists yet
//! or at least `resort_every` updates were done since the last sort. An *update* is one call with a batch of at least
//! one entry, refused or not; inserts never count. So it sorts at most once every `resort_every` updates, and with
//! `resort_every = 1` the draw sees every update.
//!
//! **Between sorts** N may grow and slots may be overwritten. With n the rows at the last sort and N those now:
//!
//! ```text
//! slot of rank index r (from 0) = n + r          for r < N - n      (rows stored into fresh slots: first,
//!                                                                   they carry the running maximum)
//!                               = order[r - (N - n)]   otherwise    (a slot keeps its place, also when its
//!                                                                   row was overwritten or its priority changed)
//! ```
//!
//! This module keeps no priorities; it is handed them when it sorts.

mod cpu;
pub mod cuda;

#[cfg(test)]
mod tests;

pub use cpu::{RankSampler, RankSamplerState};

use crate::priority_tree::ceil_log2;

/// Rows in order, as ascending keys: priority descending, then slot ascending.
#[inline]
#[must_use]
pub fn sort_key(priority: f32, slot: u32) -> u64 {
    u64::from(!priority.to_bits()) << 32 | u64::from(slot)
}

/// The mass of rank `rank` (from 1) for the given power and capacity.
#[must_use]
pub fn rank_mass(rank: u64, alpha: f64, capacity: usize) -> u64 {
    let scale = (1_u64 << (62 - ceil_log2(capacity))) as f64;
    let mass = ((rank as f64).powf(-alpha) * scale).round_ties_even();
    (mass as u64).max(1)
}

/// Slot at rank index `r` (from 0) when `len` rows are stored and `order` was made of the first `order.len()`.
#[inline]
#[must_use]
pub fn slot_at(order: &[u32], r: u32, len: usize) -> u32 {
    let fresh = len - order.len();
    if (r as usize) < fresh { order.len() as u32 + r } else { order[r as usize - fresh] }
}
