//! The middle of an update in one launch: three heads, the loss, and the way back to the units before the head.
//!
//! **Contract.** For each row of a sub-batch, from the last hidden units of the online network at `s`, of the online network at
//! `s'` (double DQN) and of the target network at `s'`: the head's outputs as [`mod@crate::mlp`] makes them, then
//! everything that [`mod@crate::td_loss`] gives, then the gradient of the units of the online network at `s`. Each is
//! the same chain of operations as there, so the results have the same bits; there is no CPU twin apart from theirs.
//!
//! Three launches of a few microseconds each become one, which needs both heads' weights in the shared memory of a block:
//! `HeadPass::new` gives nothing where they do not fit, and the learner takes the three launches instead.
//!
//! It does not make the gradients of the head's weights, and it sums up nothing.

pub mod cuda;
