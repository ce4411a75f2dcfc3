//! One update of a learner: what goes in, what comes out, and the CPU twin.
//!
//! **Contract** of an update over sub-batches of rows:
//!
//! 1. Values that are not finite in states and next states, rewards and terminated flags are counted first, before a
//!    relu or an argmax can lose one (case C12).
//! 2. Two or three forward passes ([`crate::mlp`]; what the targets ask decides), targets and loss ([`crate::td_loss`]), the way back, and the gradient
//!    summed over the rows of every sub-batch. Loss and |TD error| are means over all rows.
//!    With noise ([`crate::noise`]) the weights of every pass are drawn first, and the gradient goes on to their scales.
//! 3. **The gate.** With any such value, a non-finite TD error, loss or gradient norm, nothing is applied: online and
//!    target parameters, moments and Adam's step count keep every bit, and priorities must not be written. Else the
//!    gradient is clipped, Adam steps, the target follows ([`crate::adam`]).
//! 4. The guard judges loss and norm ([`crate::guard`]), collapses and skips in a row are counted, and what was found
//!    is told as [`Fault`]s with the number of the update among all tried, 1 for the first, in this order: state,
//!    reward; or TD error, loss, gradient norm. With bad inputs nothing else is looked at, and loss, norm and mean TD
//!    error are NaN.
//!
//! Learning rate, warm-up and hard copies go by applied updates. The device twin is [`crate::gpu_learner`], equal to the
//! bit. Nothing here draws rows, chooses actions or decides what a run does about a skipped update.

mod block;
mod cpu;
mod progress;

pub use cpu::CpuUpdate;
pub use progress::{EpochSums, Progress};

use foxhunt_core::record::Fault;

use crate::guard::GuardWords;
use crate::ring::BatchBuffers;

/// Largest clip norm used, so that the square of a clipped gradient is a finite f32 whatever is configured.
pub(crate) const MAX_CLIP_NORM: f64 = 1e18;

/// A sub-batch of transitions as slices.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// f32 `[B, state_dim]`, row-major.
    pub states: &'a [f32],
    /// f32 `[B, state_dim]`, row-major.
    pub next_states: &'a [f32],
    /// u32 `[B]`: exposure indices for the exposure head, factored indices for the others.
    pub actions: &'a [u32],
    /// f32 `[B]`, n-step rewards.
    pub rewards: &'a [f32],
    /// f32 `[B]`, 0 or 1; 1 stops the bootstrap.
    pub terminated: &'a [f32],
    /// f32 `[B]`, gamma to the power of the window's length.
    pub discounts: &'a [f32],
    /// f32 `[B]`, importance weights.
    pub weights: &'a [f32],
}

impl<'a> From<&'a BatchBuffers> for Batch<'a> {
    fn from(rows: &'a BatchBuffers) -> Self {
        Self {
            states: &rows.states,
            next_states: &rows.next_states,
            actions: &rows.actions,
            rewards: &rows.rewards,
            terminated: &rows.terminated,
            discounts: &rows.discounts,
            weights: &rows.weights,
        }
    }
}

/// What an update did.
#[derive(Clone, Debug)]
pub struct UpdateReport<'a> {
    /// Whether it was applied. If not, nothing changed but the counts, and priorities must not be written.
    pub applied: bool,
    /// Loss, mean over the rows of every sub-batch.
    pub loss: f32,
    /// Global gradient norm before clipping.
    pub grad_norm: f32,
    /// Mean |TD error|.
    pub td_error: f64,
    /// Learning rate used.
    pub learning_rate: f64,
    /// The guard's judgement.
    pub guard: GuardWords,
    /// |TD error| of each row, sub-batches one after the other: the new priorities' input.
    pub td: &'a [f32],
    /// What was not finite, if anything.
    pub faults: &'a [Fault],
    /// Names of the parameters whose gradient was not finite.
    pub non_finite_parameters: Vec<String>,
}

/// Everything an update changes: the parameters with all that Adam and the target network keep beside them.
/// A copy of it is what a rollback goes back to.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnerState {
    /// Online parameters, f32 `[layout.len()]`.
    pub online: Vec<f32>,
    /// Target parameters, same layout, memory of their own.
    pub target: Vec<f32>,
    /// Adam's first moments, same layout.
    pub m: Vec<f32>,
    /// Adam's second moments, same layout.
    pub v: Vec<f32>,
    /// Steps that the moments hold.
    pub adam_t: u64,
}

/// Counts that only ever grow, or restart at every healthy update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnerCounts {
    /// Applied updates: what the learning rate and hard synchronisation go by.
    pub updates: u64,
    /// Skipped updates.
    pub skipped: u64,
    /// Updates skipped one after the other up to now.
    pub skipped_in_row: u64,
    /// Updates with a collapsed gradient one after the other up to now; a skipped one neither counts nor resets.
    pub collapsed_in_row: u64,
}
