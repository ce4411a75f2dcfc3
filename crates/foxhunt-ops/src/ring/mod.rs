//! The replay ring: transitions stored whole, one contiguous block a row, or compact ([`compact`], 32 bytes).
//!
//! **Row.** `2 * state_dim + 4` words of 32 bits, padded to a multiple of 16 words (64 bytes), in this order:
//! state f32 `[S]`, next_state f32 `[S]`, action u32 (its bits), reward f32, terminated f32 (0 or 1), discount f32
//! (gamma^n_eff), zeros. State dimension 51 gives 106 words in a block of 112 (448 bytes). A row carries its own
//! next state and its own discount, so nothing is ever read across the write head (cases A37, B03). A compact row has the
//! same meaning: what it looks up never changes, and whatever is drawn from it has the same bits.
//!
//! **Place.** The ring counts `inserted`, the rows ever stored (u64); everything else follows from it:
//! `cursor = inserted mod capacity` is the next slot written, `len = min(inserted, capacity)`, and the
//! *generation* of a written slot, the times it was overwritten, is `floor(inserted / capacity)` for a slot below
//! the cursor and one less for the others. A full ring with cursor 0 is therefore no special case (A35).
//!
//! **Insert.** Rows go to `cursor, cursor + 1, ...`, wrapping at the capacity. A row with a non-finite reward,
//! terminated or discount is refused and counted as a reward; otherwise one with a non-finite value in state or
//! next_state is refused and counted as a state (C11). Refused rows take no slot: the accepted ones keep their
//! order and close the gap. Of more than `capacity` accepted rows only the last `capacity` are written, each to
//! the slot it would have had if all had been (A34); `inserted` counts all accepted rows.
//!
//! **Offsets** are 64-bit words from the start of the store: `slot * stride` (D11).
//!
//! **Uniform draw** ([`uniform_slot`]): `slot_b = floor(x_b * len / 2^64)` with the same 64 random bits x_b as the
//! draw of [`crate::priority_tree`]; independent, with replacement, every weight 1.
//!
//! This module keeps no priorities.

pub mod compact;
mod cpu;
pub mod cuda;
mod device;
mod refusal;
mod row_buffer;

#[cfg(test)]
mod tests;

pub use compact::{COMPACT_WORDS, CompactRow, StateSource, Transition};
pub use cpu::Ring;
pub(crate) use refusal::check_capacity;
pub use refusal::{check_compact, check_whole};
pub use row_buffer::RowBuffer;

use crate::error::{OpError, check_len};
use crate::priority_tree::mul_high;

/// Words in one cache line, the unit rows are padded to.
pub const LINE_WORDS: usize = 16;

/// Where the fields of a row lie, in words from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Values in a state, >= 1.
    pub state_dim: usize,
}

impl RowLayout {
    /// First word of the next state; the state starts at word 0.
    #[must_use]
    pub const fn next_state(self) -> usize {
        self.state_dim
    }

    /// Word of the action; reward, terminated and discount follow it in that order.
    #[must_use]
    pub const fn action(self) -> usize {
        2 * self.state_dim
    }

    /// Words that carry data.
    #[must_use]
    pub const fn used(self) -> usize {
        2 * self.state_dim + 4
    }

    /// Words from one row to the next.
    #[must_use]
    pub const fn stride(self) -> usize {
        self.used().next_multiple_of(LINE_WORDS)
    }

    /// Writes row `i` of `rows` to the [`RowLayout::used`] first words of `row`.
    ///
    /// # Panics
    /// When `row` is shorter, or `i` is not among the rows.
    pub fn pack(self, rows: &Rows<'_>, i: usize, row: &mut [u32]) {
        let s = self.state_dim;
        row[..s].copy_from_slice(bytemuck::cast_slice(&rows.states[i * s..(i + 1) * s]));
        row[s..2 * s].copy_from_slice(bytemuck::cast_slice(&rows.next_states[i * s..(i + 1) * s]));
        row[2 * s] = rows.actions[i];
        for (word, field) in row[2 * s + 1..].iter_mut().zip([rows.rewards, rows.terminated, rows.discounts])
        {
            *word = field[i].to_bits();
        }
    }

    /// Writes to row `i` of `rows` what [`RowLayout::pack`] packed.
    ///
    /// # Panics
    /// When `row` is shorter than [`RowLayout::used`], or `rows` has no row `i`.
    pub fn unpack(self, row: &[u32], i: usize, rows: &mut BatchBuffers) {
        let s = self.state_dim;
        let floats: &[f32] = bytemuck::cast_slice(row);
        rows.states[i * s..(i + 1) * s].copy_from_slice(&floats[..s]);
        rows.next_states[i * s..(i + 1) * s].copy_from_slice(&floats[s..2 * s]);
        rows.actions[i] = row[2 * s];
        rows.rewards[i] = floats[2 * s + 1];
        rows.terminated[i] = floats[2 * s + 2];
        rows.discounts[i] = floats[2 * s + 3];
    }

    /// Bytes of a ring of `capacity` rows; `u64::MAX` when the number does not fit.
    #[must_use]
    pub fn bytes(self, capacity: usize) -> u64 {
        let bytes = self.stride() as u128 * 4 * capacity as u128;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// First word of row `slot` in a store of `stride` words a row.
#[must_use]
pub const fn row_offset(slot: u64, stride: u64) -> u64 {
    slot * stride
}

/// The slot that 64 random bits name among the first `len`, `len` at least 1.
#[inline]
#[must_use]
pub const fn uniform_slot(x: u64, len: usize) -> u32 {
    mul_high(x, len as u64) as u32
}

/// Rows to insert, each field apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// f32 `[n, state_dim]`, row-major.
    pub states: &'a [f32],
    /// f32 `[n, state_dim]`, row-major; the state before any reset.
    pub next_states: &'a [f32],
    /// u32 `[n]`.
    pub actions: &'a [u32],
    /// f32 `[n]`, n-step rewards.
    pub rewards: &'a [f32],
    /// f32 `[n]`, 1 for a terminated row, else 0. A truncated row is not terminated.
    pub terminated: &'a [f32],
    /// f32 `[n]`, gamma^n_eff.
    pub discounts: &'a [f32],
}

impl Rows<'_> {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Refuses fields whose lengths do not belong together.
    ///
    /// # Errors
    /// [`OpError::Length`].
    pub fn check(&self, state_dim: usize) -> Result<(), OpError> {
        let n = self.len();
        let values = n.checked_mul(state_dim).ok_or(OpError::Length {
            what: "states",
            got: self.states.len(),
            expected: usize::MAX,
        })?;
        check_len("states", self.states.len(), values)?;
        check_len("next_states", self.next_states.len(), values)?;
        check_len("rewards", self.rewards.len(), n)?;
        check_len("terminated", self.terminated.len(), n)?;
        check_len("discounts", self.discounts.len(), n)
    }
}

/// A sampled batch, each field apart. Made once and filled again and again without allocating.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchBuffers {
    /// f32 `[batch, state_dim]`, row-major.
    pub states: Vec<f32>,
    /// f32 `[batch, state_dim]`, row-major.
    pub next_states: Vec<f32>,
    /// u32 `[batch]`.
    pub actions: Vec<u32>,
    /// f32 `[batch]`.
    pub rewards: Vec<f32>,
    /// f32 `[batch]`, 0 or 1.
    pub terminated: Vec<f32>,
    /// f32 `[batch]`, gamma^n_eff.
    pub discounts: Vec<f32>,
    /// f32 `[batch]`, importance weights over the batch maximum; 1 for uniform draws.
    pub weights: Vec<f32>,
    /// u32 `[batch]`, slots.
    pub indices: Vec<u32>,
    /// u64 `[batch]`, generation of each slot when it was drawn.
    pub generations: Vec<u64>,
}

impl BatchBuffers {
    /// Buffers of `batch` rows.
    #[must_use]
    pub fn new(batch: usize, state_dim: usize) -> Self {
        let mut buffers = Self::default();
        buffers.resize(batch, state_dim);
        buffers
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Gives every field the length that `batch` rows need; allocates only to grow.
    pub fn resize(&mut self, batch: usize, state_dim: usize) {
        self.states.resize(batch * state_dim, 0.0);
        self.next_states.resize(batch * state_dim, 0.0);
        self.actions.resize(batch, 0);
        self.generations.resize(batch, 0);
        self.indices.resize(batch, 0);
        for field in [&mut self.rewards, &mut self.terminated, &mut self.discounts, &mut self.weights] {
            field.resize(batch, 0.0);
        }
    }
}

/// What an insert did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertReport {
    /// First slot written.
    pub first_slot: usize,
    /// Rows written, from `first_slot` on, wrapping at the capacity; at most `capacity`.
    pub written: usize,
    /// Rows accepted; more than `written` only when a batch was larger than the ring.
    pub accepted: usize,
    /// Rows refused for a non-finite reward, terminated or discount.
    pub refused_rewards: usize,
    /// Rows refused for a non-finite state or next state.
    pub refused_states: usize,
}
