//! The learner: a Q-network, its target, and one update at a time.
//!
//! [`Learner::update`] is that of [`foxhunt_ops::learner`]: double DQN with importance weights: targets and loss of
//! [`foxhunt_ops::td_loss`], or of [`foxhunt_ops::distribution`] for C51 and QR-DQN, gradients of [`foxhunt_ops::mlp`],
//! clipping, Adam and target update of [`foxhunt_ops::adam`]. Between the gradient and Adam stands **the gate**: when the
//! loss or the global gradient norm is not finite (or an input was not), nothing is applied: weights, moments, Adam's
//! step count and target keep every bit, the caller is told not to write priorities, and a
//! [`Fault`](foxhunt_core::record::Fault) says what was found.
//!
//! The backward pass is written by hand, because it must keep up with PyTorch on the same cores (docs/performance.md
//! has the numbers); [`mod@reference`] is the same network on candle with its autograd, the oracle of the tests and an
//! entry for programs that build their own losses.
//!
//! All parameters lie in one flat f32 array, described by [`MlpLayout`]: what Adam, checkpoints and other engines
//! work on. The learner draws no replay rows and chooses no actions.

mod network;
pub mod reference;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod update;

pub use foxhunt_ops::learner::{Batch, LearnerCounts, LearnerState, UpdateReport};
pub use foxhunt_ops::mlp::{MlpLayout, MlpShape};
pub use network::QNetwork;
pub use update::Learner;
