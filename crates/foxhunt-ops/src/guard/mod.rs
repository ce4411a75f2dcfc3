//! The training guard: is this update finite, has the loss run away, have the gradients collapsed.
//!
//! **Contract** of `check(loss, norm, collapse_threshold, loss_threshold, warmup, step)`:
//!
//! | word | meaning |
//! |---|---|
//! | 0 `halt_nan` | loss or norm is NaN or infinite |
//! | 1 `halt_loss_clip` | loss > `loss_threshold`; an infinite loss counts, a NaN does not |
//! | 2 `halt_grad_collapse` | norm < `collapse_threshold` and not in warm-up; a NaN norm does not count |
//! | 3 `clipped_loss` | min(loss, `loss_threshold`); a NaN stays NaN |
//! | 4 `raw_loss` | as given |
//! | 5 `raw_grad_norm` | as given |
//! | 6, 7 `step` | u64 number of the step described, low word first |
//!
//! On a device the words go to pinned host memory, the step number last and behind a system fence; how a reader never
//! takes half of a record stands in `record.cuh`, whose host side is in [`mod@cuda`].
//!
//! `accumulate` adds loss and norm to f64 sums with a count. A value that is not finite is left out of its mean and
//! counted, since one would erase the epoch; [`CollapseCounter`] counts collapsed updates in a row, and a NaN
//! neither counts nor resets it. What to do about a flag is the caller's policy; this module only says what is so.

mod cpu;
pub mod cuda;
pub mod gate;
pub(crate) mod record;
#[cfg(test)]
mod tests;

pub use cpu::{CollapseCounter, GuardSums, check, count_non_finite};

/// The eight words of one check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardWords {
    /// Loss or norm is NaN or infinite.
    pub halt_nan: bool,
    /// Loss is above the threshold.
    pub halt_loss_clip: bool,
    /// Norm is below the collapse threshold, past warm-up.
    pub halt_grad_collapse: bool,
    /// Loss, at most the threshold.
    pub clipped_loss: f32,
    /// Loss as given.
    pub raw_loss: f32,
    /// Gradient norm as given, before clipping.
    pub raw_grad_norm: f32,
    /// The step described.
    pub step: u64,
}

impl GuardWords {
    /// The eight 32-bit words in the order of the table; flags are 0.0 or 1.0, the step is two raw words.
    #[must_use]
    pub fn to_words(&self) -> [u32; 8] {
        let flag = |on: bool| f32::from(u8::from(on)).to_bits();
        [
            flag(self.halt_nan),
            flag(self.halt_loss_clip),
            flag(self.halt_grad_collapse),
            self.clipped_loss.to_bits(),
            self.raw_loss.to_bits(),
            self.raw_grad_norm.to_bits(),
            self.step as u32,
            (self.step >> 32) as u32,
        ]
    }

    /// Reads what [`GuardWords::to_words`] wrote.
    #[must_use]
    pub fn from_words(words: [u32; 8]) -> Self {
        let flag = |word: u32| f32::from_bits(word) != 0.0;
        Self {
            halt_nan: flag(words[0]),
            halt_loss_clip: flag(words[1]),
            halt_grad_collapse: flag(words[2]),
            clipped_loss: f32::from_bits(words[3]),
            raw_loss: f32::from_bits(words[4]),
            raw_grad_norm: f32::from_bits(words[5]),
            step: u64::from(words[7]) << 32 | u64::from(words[6]),
        }
    }
}
