//! The middle of a small update in one launch, on clusters (compute capability 9.0 and up): forward passes, loss, and gradients of all hidden units.
//!
//! Small updates wait: for launches, for trips to memory, for instructions that run once. Layer by layer that is a launch each, all weights
//! fetched anew and all units through memory. Here the blocks of a cluster keep their shares of both networks in shared memory, where they
//! arrive while the batch is still drawn, and hand units to one another. Elements are the same chains as in f32 layer by layer ([`crate::mlp`],
//! [`crate::head_pass`]), so the bits are those, and the CPU's.
//!
//! It serves two hidden layers of 64, 128 or 256 units before a head of Q-values, without noise or Munchausen targets, in batches for
//! which all clusters find multiprocessors at once (270 on an H200). So few rows are as quick in f32 as on tensor cores, so it serves every
//! precision; gradients of weights are then made in the one that is set.
//!
//! **Contract.** For each row of a sub-batch: everything that [`mod@crate::td_loss`] gives from the head outputs of all forward passes; the
//! hidden units of the online network at `s`; the gradients of both layers' units. It makes no gradients of weights, and sums up nothing but
//! what is not finite.

pub mod cuda;
