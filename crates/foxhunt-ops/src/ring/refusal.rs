//! Which rows a ring refuses, and whether saved rows can be those of a ring.

use super::Rows;
use super::compact::{CompactRow, StateSource, non_finite};
use crate::error::{OpError, check_len};
use crate::priority_tree::MAX_CAPACITY;

/// Whether whole rows are those of a ring of this capacity after so many inserts.
///
/// # Errors
/// [`OpError::Length`] and, for a value that is not finite, [`OpError::InvalidArgument`].
pub fn check_whole(rows: &Rows<'_>, state_dim: usize, capacity: usize, inserted: u64) -> Result<(), OpError> {
    rows.check(state_dim)?;
    check_stored(rows.len(), capacity, inserted, |i| refusal(rows, state_dim, i))
}

/// Whether compact rows are those of a ring of this capacity after so many inserts.
///
/// # Errors
/// [`OpError::Length`] and, for a value that is not finite or a bar behind the last one, [`OpError::InvalidArgument`].
pub fn check_compact(
    rows: &[CompactRow],
    source: &StateSource,
    capacity: usize,
    inserted: u64,
) -> Result<(), OpError> {
    source.check_bars(rows)?;
    check_stored(rows.len(), capacity, inserted, |i| refusal_of_compact(&rows[i]))
}

fn check_stored(
    n: usize,
    capacity: usize,
    inserted: u64,
    refusal: impl Fn(usize) -> Refusal,
) -> Result<(), OpError> {
    check_len("rows", n, inserted.min(capacity as u64) as usize)?;
    match (0..n).find(|&i| refusal(i) != Refusal::None) {
        Some(row) => Err(OpError::InvalidArgument { what: "row", value: row.to_string(), rule: "finite" }),
        None => Ok(()),
    }
}

/// Refuses a capacity that slots of 32 bits and the mass arithmetic do not cover.
pub(crate) fn check_capacity(capacity: usize) -> Result<(), OpError> {
    if (1..=MAX_CAPACITY).contains(&capacity) {
        return Ok(());
    }
    Err(OpError::InvalidArgument { what: "capacity", value: capacity.to_string(), rule: "from 1 to 2^31" })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    None,
    Reward,
    State,
}

pub(super) fn refusal(rows: &Rows<'_>, s: usize, i: usize) -> Refusal {
    if !(rows.rewards[i].is_finite() && rows.terminated[i].is_finite() && rows.discounts[i].is_finite()) {
        return Refusal::Reward;
    }
    let row = i * s..(i + 1) * s;
    if all_finite(&rows.states[row.clone()]) && all_finite(&rows.next_states[row]) {
        Refusal::None
    } else {
        Refusal::State
    }
}

pub(super) fn refusal_of_compact(row: &CompactRow) -> Refusal {
    match non_finite(row) {
        [true, _] => Refusal::Reward,
        [false, true] => Refusal::State,
        [false, false] => Refusal::None,
    }
}

/// One pass without a branch a value: a value is not finite when its exponent bits are all set.
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7F80_0000;
    !values.iter().fold(false, |bad, x| bad | (x.to_bits() & EXPONENT == EXPONENT))
}
