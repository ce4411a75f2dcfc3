//! The host side of a record that a kernel writes to pinned memory again and again.
//!
//! How it is written, and why a reader never takes half of one, stands in `record.cuh`. What its words mean is the business
//! of the kernel that writes them: the guard, the Q monitor.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use foxhunt_cuda::{CudaError, Device, MappedBuffer};

/// Text of `record.cuh`.
pub(crate) const RECORD_CUH: &str = include_str!("record.cuh");

/// Counts behind the words of a record.
pub(crate) const COUNTS: usize = 6;

const NOT_A_STEP: u64 = u64::MAX;
const SLOTS: usize = 3;
const RECORD_WORDS: usize = 16;

/// The newest record in pinned memory.
#[derive(Debug)]
pub(crate) struct Record(pub(crate) MappedBuffer<u64>);

/// One whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// What it says.
    pub(crate) words: [u64; 3],
    /// Number of the step it describes.
    pub(crate) number: u64,
    /// Counts behind it.
    pub(crate) counts: [u64; COUNTS],
}

impl Record {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let mut record = Self(MappedBuffer::zeros(device, "a record", SLOTS * RECORD_WORDS)?);
        record.clear();
        Ok(record)
    }

    /// Forgets the record. Nothing may be writing it.
    pub(crate) fn clear(&mut self) {
        for i in 0..SLOTS * RECORD_WORDS {
            self.0.write(i, if i % RECORD_WORDS == 3 { NOT_A_STEP } else { 0 });
        }
    }

    /// The newest whole record; `None` before the first, or when the writer was quicker through a thousand tries.
    pub(crate) fn read_words(&self) -> Option<Whole> {
        for _ in 0..1000 {
            let step = |slot: usize| self.word(slot, 3).filter(|&step| step != NOT_A_STEP);
            let newest = (0..SLOTS).filter_map(|slot| Some((step(slot)?, slot))).max();
            let Some((number, slot)) = newest else {
                if self.never_written() {
                    return None;
                }
                continue;
            };
            fence(Ordering::Acquire);
            let words = std::array::from_fn(|i| self.word(slot, i).unwrap_or(0));
            let counts = std::array::from_fn(|i| self.word(slot, 4 + i).unwrap_or(0));
            fence(Ordering::Acquire);
            if self.word(slot, 3) == Some(number) {
                return Some(Whole { words, number, counts });
            }
        }
        None
    }

    fn word(&self, slot: usize, i: usize) -> Option<u64> {
        self.0.read(slot * RECORD_WORDS + i)
    }

    /// A slow reader may meet three marks in a row too; before the first record no word stands anywhere.
    fn never_written(&self) -> bool {
        (0..SLOTS).all(|slot| (0..3).all(|i| self.word(slot, i) == Some(0)))
    }
}
