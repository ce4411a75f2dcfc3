//! The CPU twin of the ring: one allocation, rows aligned to cache lines.

use std::hint::black_box;

use foxhunt_market::STATE_DIM;

use super::compact::{COMPACT_WORDS, CompactRow, StateSource, Transition};
use super::refusal::{Refusal, check_capacity, check_compact, check_whole, refusal, refusal_of_compact};
use super::{BatchBuffers, InsertReport, LINE_WORDS, RowLayout, Rows, row_offset};
use crate::error::{OpError, check_len};
use crate::pages::Pages;

/// Rows whose cache lines are asked for together when a batch is gathered.
const GATHER_BLOCK: usize = 16;

/// Rows in host memory, whole or compact. See [`crate::ring`] for order, refusals and generations.
#[derive(Debug)]
pub struct Ring {
    capacity: usize,
    layout: RowLayout,
    /// Where compact rows find the rest of a state; none when rows are whole.
    source: Option<StateSource>,
    /// u32 `[capacity, stride]`, rows on whole cache lines or, compact, on half of one; floats as their bits.
    words: Pages<u32>,
    inserted: u64,
    refused_rewards: u64,
    refused_states: u64,
}

impl Ring {
    /// An empty ring of whole rows with all its memory taken and touched.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a capacity outside 1..=2^31 or a state dimension of 0,
    /// [`OpError::HostMemory`] with the bytes asked for.
    pub fn new(capacity: usize, state_dim: usize) -> Result<Self, OpError> {
        let limit = 1 << 24;
        if !(1..=limit).contains(&state_dim) {
            let value = state_dim.to_string();
            return Err(OpError::InvalidArgument { what: "state_dim", value, rule: "from 1 to 2^24" });
        }
        let layout = RowLayout { state_dim };
        Self::build(capacity, layout, layout.stride(), None)
    }

    /// An empty ring of compact rows whose states `source` completes.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn compact(capacity: usize, source: StateSource) -> Result<Self, OpError> {
        Self::build(capacity, RowLayout { state_dim: STATE_DIM }, COMPACT_WORDS, Some(source))
    }

    fn build(
        capacity: usize,
        layout: RowLayout,
        stride: usize,
        source: Option<StateSource>,
    ) -> Result<Self, OpError> {
        check_capacity(capacity)?;
        let what = "replay rows";
        let words = usize::try_from(row_offset(capacity as u64, stride as u64))
            .map_err(|_| OpError::HostMemory { what, bytes: layout.bytes(capacity) })?;
        let words = Pages::zeroed(words, what)?;
        Ok(Self { capacity, layout, source, words, inserted: 0, refused_rewards: 0, refused_states: 0 })
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How a whole row is laid out.
    #[must_use]
    pub fn layout(&self) -> RowLayout {
        self.layout
    }

    /// Where compact rows find the rest of a state; none when rows are whole.
    #[must_use]
    pub fn source(&self) -> Option<&StateSource> {
        self.source.as_ref()
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

    /// Stores whole rows.
    ///
    /// # Errors
    /// [`OpError::Length`] when the fields do not belong together, [`OpError::InvalidArgument`] for a ring of compact
    /// rows; nothing is stored then.
    pub fn insert(&mut self, rows: &Rows<'_>) -> Result<InsertReport, OpError> {
        self.whole()?;
        let s = self.layout.state_dim;
        rows.check(s)?;
        Ok(self.insert_each(rows.len(), |i| refusal(rows, s, i), |ring, slot, i| ring.write(slot, rows, i)))
    }

    /// Stores compact rows.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a ring of whole rows and for a row that ends behind the last bar; nothing is
    /// stored then.
    pub fn insert_compact(&mut self, rows: &[CompactRow]) -> Result<InsertReport, OpError> {
        self.completed()?.check_bars(rows)?;
        Ok(self.insert_each(
            rows.len(),
            |i| refusal_of_compact(&rows[i]),
            |ring, slot, i| {
                ring.words[slot * COMPACT_WORDS..][..COMPACT_WORDS].copy_from_slice(&rows[i]);
            },
        ))
    }

    fn insert_each(
        &mut self,
        n: usize,
        refusal: impl Fn(usize) -> Refusal,
        write: impl Fn(&mut Self, usize, usize),
    ) -> InsertReport {
        let mut report = InsertReport::default();
        // Only a batch larger than the ring has to know how many rows are accepted before it writes one.
        let accepted =
            if n > self.capacity { (0..n).filter(|&i| refusal(i) == Refusal::None).count() } else { 0 };
        let skip = accepted.saturating_sub(self.capacity);
        let mut slot = ((self.inserted + skip as u64) % self.capacity as u64) as usize;
        report.first_slot = slot;
        for i in 0..n {
            match refusal(i) {
                Refusal::Reward => report.refused_rewards += 1,
                Refusal::State => report.refused_states += 1,
                Refusal::None => {
                    report.accepted += 1;
                    if report.accepted > skip {
                        write(self, slot, i);
                        slot = if slot + 1 == self.capacity { 0 } else { slot + 1 };
                    }
                }
            }
        }
        report.written = report.accepted - skip;
        self.inserted += report.accepted as u64;
        self.refused_rewards += report.refused_rewards as u64;
        self.refused_states += report.refused_states as u64;
        report
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
        match &self.source {
            Some(source) => self.gather_compact(source, out),
            None => self.gather_whole(out),
        }
        let (cursor, turns) = (self.cursor(), self.inserted / self.capacity as u64);
        for (generation, &slot) in out.generations.iter_mut().zip(&out.indices) {
            *generation = turns.saturating_sub(u64::from(slot as usize >= cursor));
        }
        Ok(())
    }

    fn gather_whole(&self, out: &mut BatchBuffers) {
        let batch = out.indices.len();
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
                    lines ^= word;
                }
            }
            black_box(lines);
            for b in block {
                self.layout.unpack(&words[first_word(out.indices[b])..][..used], b, out);
            }
        }
    }

    fn gather_compact(&self, source: &StateSource, out: &mut BatchBuffers) {
        let (s, batch) = (STATE_DIM, out.indices.len());
        let rows = self.compact_rows();
        for from in (0..batch).step_by(GATHER_BLOCK) {
            let block = from..batch.min(from + GATHER_BLOCK);
            // Rows first, so that their misses overlap; then the lines of both states.
            let mut lines = 0.0;
            let drawn: [Transition; GATHER_BLOCK] = std::array::from_fn(|k| {
                let b = (from + k).min(batch - 1);
                Transition::unpack(&rows[out.indices[b] as usize])
            });
            for row in &drawn[..block.len()] {
                for bar in [row.bar, row.next_bar()] {
                    for value in source.market().feature_row(bar as usize).iter().step_by(LINE_WORDS) {
                        lines += value;
                    }
                }
            }
            black_box(lines);
            for (b, row) in block.zip(&drawn) {
                source.write_state(row.bar, &row.inputs, &mut out.states[b * s..][..s]);
                source.write_state(row.next_bar(), &row.next_inputs, &mut out.next_states[b * s..][..s]);
                out.actions[b] = row.action;
                out.rewards[b] = row.reward;
                out.terminated[b] = f32::from(u8::from(row.terminated));
                out.discounts[b] = source.discount(row.steps);
            }
        }
    }

    /// The slots of compact rows, written or not; none when rows are whole.
    fn compact_rows(&self) -> &[CompactRow] {
        if self.source.is_some() { bytemuck::cast_slice(&self.words) } else { &[] }
    }

    /// The compact rows stored, in slot order; none when rows are whole.
    #[must_use]
    pub fn save_compact(&self) -> &[CompactRow] {
        let rows = self.compact_rows();
        &rows[..self.len().min(rows.len())]
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
    /// [`OpError::InvalidArgument`] when a value is not finite, and for a ring of compact rows.
    pub fn check(&self, rows: &Rows<'_>, inserted: u64) -> Result<(), OpError> {
        self.whole()?;
        check_whole(rows, self.layout.state_dim, self.capacity, inserted)
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
        self.set_counts(inserted, refused);
        Ok(())
    }

    /// Whether [`Ring::restore_compact`] would take these rows.
    ///
    /// # Errors
    /// As [`check_compact`], and [`OpError::InvalidArgument`] for a ring of whole rows.
    pub fn check_compact(&self, rows: &[CompactRow], inserted: u64) -> Result<(), OpError> {
        check_compact(rows, self.completed()?, self.capacity, inserted)
    }

    /// Becomes the ring that [`Ring::save_compact`] was called on. On an error nothing changes.
    ///
    /// # Errors
    /// As [`Ring::check_compact`].
    pub fn restore_compact(
        &mut self,
        rows: &[CompactRow],
        inserted: u64,
        refused: [u64; 2],
    ) -> Result<(), OpError> {
        self.check_compact(rows, inserted)?;
        let words: &[u32] = bytemuck::cast_slice(rows);
        self.words[..words.len()].copy_from_slice(words);
        self.set_counts(inserted, refused);
        Ok(())
    }

    fn set_counts(&mut self, inserted: u64, refused: [u64; 2]) {
        self.inserted = inserted;
        [self.refused_rewards, self.refused_states] = refused;
    }

    fn whole(&self) -> Result<(), OpError> {
        match self.source {
            None => Ok(()),
            Some(_) => Err(wrong_storage("whole", "compact, as this memory stores them")),
        }
    }

    fn completed(&self) -> Result<&StateSource, OpError> {
        self.source.as_ref().ok_or_else(|| wrong_storage("compact", "whole, as this memory stores them"))
    }

    fn write(&mut self, slot: usize, rows: &Rows<'_>, i: usize) {
        let first = row_offset(slot as u64, self.layout.stride() as u64) as usize;
        self.layout.pack(rows, i, &mut self.words[first..][..self.layout.used()]);
    }
}

fn wrong_storage(value: &str, rule: &'static str) -> OpError {
    OpError::InvalidArgument { what: "rows", value: value.to_owned(), rule }
}
