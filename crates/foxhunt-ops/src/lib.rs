//! One folder per operation: contract, CPU twin, CUDA launcher, kernel and tests side by side.

pub mod power;
pub mod priority_tree;
pub mod rank_sampler;
pub mod ring;

mod error;

pub use error::OpError;
