//! Deep Q-learning for trading: replay, guard, engines, trainer, evaluation and checkpoints.
//!
//! This is the crate that programs import, and the only one that names the tensor library.

mod error;
pub mod evaluation;

pub use error::MLError;
