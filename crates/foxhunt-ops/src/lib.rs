//! One folder per operation: contract, CPU twin, CUDA launcher, kernel and tests side by side.

pub mod acting_pass;
pub mod adam;
pub mod cluster_pass;
pub mod collect;
pub mod distribution;
pub mod env_step;
pub mod gpu_collect;
pub mod gpu_learner;
pub mod gpu_replay;
pub mod guard;
pub mod head_pass;
pub mod learner;
pub mod mlp;
pub mod n_step;
pub mod network_pass;
pub mod noise;
pub mod power;
pub mod priority_tree;
pub mod q_monitor;
pub mod rank_sampler;
pub mod ring;
pub mod rollout;
pub mod select_actions;
pub mod td_loss;
pub mod tree_sum;

mod error;
mod pages;

pub use error::OpError;
