//! Deep Q-learning for trading: replay, guard, engines, trainer, evaluation and checkpoints.
//!
//! This is the crate that programs import, and the only one that names the tensor library.

pub mod actions;
pub mod checkpoint;
pub mod cpu_engine;
pub mod engine;
pub mod engine_choice;
mod error;
pub mod evaluation;
pub mod guard;
mod host_values;
pub mod learner;
pub mod monitor;
pub mod policy;
pub mod replay;
pub mod run_folder;
pub mod trainer;

pub use error::MLError;
pub use policy::Policy;
pub use trainer::{TrainObserver, TrainOutcome, Trainer};
