//! The CPU twin of the ring: one allocation, rows aligned to cache lines.

use std::hint::black_box;

use super::{BatchBuffers, InsertReport, LINE_WORDS, RowLayout, Rows, row_offset};
use crate::error::{OpError, check_len};
use crate::pages::Pages;
use crate::priority_tree::MAX_CAPACITY;

/// Rows whose cache lines are asked for together when a batch is gathered.
const GATHER_BLOCK: usize = 16;

/// Rows in host memory. See [`crate::ring`] for order, refusals and generations.
#[derive(Debug)]
pub struct Ring {
    capacity: usize,
    layout: RowLayout,
    /// f32 `[capacity, stride]`, rows on whole cache lines; the word of an action holds its bits and is only moved.
    words: Pages<f32>,
    inserted: u64,
    refused_rewards: u64,
    refused_states: u64,
}

impl Ring {
    /// An empty ring with all its memory taken and touched.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a capacity outside 1..=2^31 or a state dimension of 0,
    /// [`OpError::HostMemory`] with the bytes asked for.
    pub fn new(capacity: usize, state_dim: usize) -> Result<Self, OpError> {
        check_capacity(capacity)?;
        let limit = 1 << 24;
        if !(1..=limit).contains(&state_dim) {
            let value = state_dim.to_string();
            return Err(OpError::InvalidArgument { what: "state_dim", value, rule: "from 1 to 2^24" });
        }
        let layout = RowLayout { state_dim };
        let what = "replay rows";
        let words = usize::try_from(row_offset(capacity as u64, layout.stride() as u64))
            .map_err(|_| OpError::HostMemory { what, bytes: layout.bytes(capacity) })?;
        let words = Pages::zeroed(words, what)?;
        Ok(Self { capacity, layout, words, inserted: 0, refused_rewards: 0, refused_states: 0 })
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How a row is laid out.
    #[must_use]
    pub fn layout(&self) -> RowLayout {
        self.layout
    }

    /// Rows stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inserted.min(self.capacity as u64) as usize
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inserted == 0
    }

    /// The next slot written.
    #[must_use]
    pub fn cursor(&self) -> usize {
        (self.inserted % self.capacity as u64) as usize
    }

    /// Rows ever accepted.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Rows ever refused for a non-finite reward, terminated or discount.
    #[must_use]
    pub fn refused_rewards(&self) -> u64 {
        self.refused_rewards
    }

    /// Rows ever refused for a non-finite state or next state.
    #[must_use]
    pub fn refused_states(&self) -> u64 {
        self.refused_states
    }

    /// How often the row in `slot` has replaced another; meaningful for written slots.
    #[must_use]
    pub fn generation(&self, slot: usize) -> u64 {
        let turns = self.inserted / self.capacity as u64;
        if slot < self.cursor() { turns } else { turns.saturating_sub(1) }
    }

    /// Stores rows.
    ///
    /// # Errors
    /// [`OpError::Length`] when the fields do not belong together; nothing is stored then.
    pub fn insert(&mut self, rows: &Rows<'_>) -> Result<InsertReport, OpError> {
        let s = self.layout.state_dim;
        rows.check(s)?;
        let mut report = InsertReport::default();
        // Only a batch larger than the ring has to know how many rows are accepted before it writes one.
        let accepted = if rows.len() > self.capacity {
            (0..rows.len()).filter(|&i| refusal(rows, s, i) == Refusal::None).count()
        } else {
            0
        };
        let skip = accepted.saturating_sub(self.capacity);
        let mut slot = ((self.inserted + skip as u64) % self.capacity as u64) as usize;
        report.first_slot = slot;
        for i in 0..rows.len() {
            match refusal(rows, s, i) {
                Refusal::Reward => report.refused_rewards += 1,
                Refusal::State => report.refused_states += 1,
                Refusal::None => {
                    report.accepted += 1;
                    if report.accepted > skip {
                        self.write(slot, rows, i);
                        slot = if slot + 1 == self.capacity { 0 } else { slot + 1 };
                    }
                }
            }
        }
        report.written = report.accepted - skip;
        self.inserted += report.accepted as u64;
        self.refused_rewards += report.refused_rewards as u64;
        self.refused_states += report.refused_states as u64;
        Ok(report)
    }

    /// Copies the rows of `out.indices` into the other fields of `out` (weights excepted).
    ///
    /// # Errors
    /// [`OpError::RowOutOfRange`] and [`OpError::Length`]; nothing is copied then.
    pub fn gather(&self, out: &mut BatchBuffers) -> Result<(), OpError> {
        let s = self.layout.state_dim;
        let batch = out.indices.len();
        check_len("states", out.states.len(), batch * s)?;
        check_len("next_states", out.next_states.len(), batch * s)?;
        check_len("actions", out.actions.len(), batch)?;
        check_len("rewards", out.rewards.len(), batch)?;
        check_len("terminated", out.terminated.len(), batch)?;
        check_len("discounts", out.discounts.len(), batch)?;
        check_len("generations", out.generations.len(), batch)?;
        let len = self.len();
        if let Some(&slot) = out.indices.iter().find(|&&slot| slot as usize >= len) {
            return Err(OpError::RowOutOfRange { index: slot as usize, len });
        }
        let (cursor, turns) = (self.cursor(), self.inserted / self.capacity as u64);
        let (used, words) = (self.layout.used(), &*self.words);
        let first_word = |slot: u32| row_offset(u64::from(slot), self.layout.stride() as u64) as usize;
        for from in (0..batch).step_by(GATHER_BLOCK) {
            let block = from..batch.min(from + GATHER_BLOCK);
            // Ask for every line of the block before copying any: the misses then overlap, where a copy would
            // wait for its own row.
            let mut lines = 0;
            for &slot in &out.indices[block.clone()] {
                let row = &words[first_word(slot)..][..used];
                for word in row.iter().step_by(LINE_WORDS) {
                    lines ^= word.to_bits();
                }
            }
            black_box(lines);
            for b in block {
                let slot = out.indices[b];
                let row = &words[first_word(slot)..][..used];
                out.states[b * s..][..s].copy_from_slice(&row[..s]);
                out.next_states[b * s..][..s].copy_from_slice(&row[s..2 * s]);
                let rest = &row[2 * s..];
                out.actions[b] = rest[0].to_bits();
                out.rewards[b] = rest[1];
                out.terminated[b] = rest[2];
                out.discounts[b] = rest[3];
                out.generations[b] = turns.saturating_sub(u64::from(slot as usize >= cursor));
            }
        }
        Ok(())
    }

    /// Copies every stored row out in slot order: indices 0, 1, ..., weights 1.
    #[must_use]
    pub fn save(&self) -> BatchBuffers {
        let mut out = BatchBuffers::new(self.len(), self.layout.state_dim);
        for (slot, index) in (0_u32..).zip(&mut out.indices) {
            *index = slot;
        }
        out.weights.fill(1.0);
        self.gather(&mut out).expect("buffers were sized for these indices");
        out
    }

    /// Whether [`Ring::restore`] would take these rows.
    ///
    /// # Errors
    /// [`OpError::Length`] when `rows` does not hold the `min(inserted, capacity)` rows of this state dimension,
    /// [`OpError::InvalidArgument`] when a value is not finite.
    pub fn check(&self, rows: &Rows<'_>, inserted: u64) -> Result<(), OpError> {
        let s = self.layout.state_dim;
        rows.check(s)?;
        check_len("rows", rows.len(), inserted.min(self.capacity as u64) as usize)?;
        match (0..rows.len()).find(|&i| refusal(rows, s, i) != Refusal::None) {
            Some(row) => {
                Err(OpError::InvalidArgument { what: "row", value: row.to_string(), rule: "finite" })
            }
            None => Ok(()),
        }
    }

    /// Becomes the ring that [`Ring::save`] was called on. On an error nothing changes.
    ///
    /// # Errors
    /// As [`Ring::check`].
    pub fn restore(&mut self, rows: &Rows<'_>, inserted: u64, refused: [u64; 2]) -> Result<(), OpError> {
        self.check(rows, inserted)?;
        for slot in 0..rows.len() {
            self.write(slot, rows, slot);
        }
        self.inserted = inserted;
        [self.refused_rewards, self.refused_states] = refused;
        Ok(())
    }

    fn write(&mut self, slot: usize, rows: &Rows<'_>, i: usize) {
        let s = self.layout.state_dim;
        let first = row_offset(slot as u64, self.layout.stride() as u64) as usize;
        let row = &mut self.words[first..first + self.layout.used()];
        row[..s].copy_from_slice(&rows.states[i * s..(i + 1) * s]);
        row[s..2 * s].copy_from_slice(&rows.next_states[i * s..(i + 1) * s]);
        let rest = &mut row[2 * s..2 * s + 4];
        rest[0] = f32::from_bits(rows.actions[i]);
        rest[1] = rows.rewards[i];
        rest[2] = rows.terminated[i];
        rest[3] = rows.discounts[i];
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
enum Refusal {
    None,
    Reward,
    State,
}

fn refusal(rows: &Rows<'_>, s: usize, i: usize) -> Refusal {
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

/// One pass without a branch a value: a value is not finite when its exponent bits are all set.
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7F80_0000;
    !values.iter().fold(false, |bad, x| bad | (x.to_bits() & EXPONENT == EXPONENT))
}
