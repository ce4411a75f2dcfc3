//! What a replay memory on the device is made from, and what it will take.

use foxhunt_core::settings::ReplayStorage;
use foxhunt_market::STATE_DIM;

use crate::error::OpError;
use crate::priority_tree::PRIORITY_CAP;
use crate::priority_tree::cuda::DrawParams;
use crate::priority_tree::device::DeviceTree;
use crate::rank_sampler::cuda::{DeviceRanks, MAX_CHANGES};
use crate::ring::{COMPACT_WORDS, RowLayout, check_capacity};

/// How rows are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSampling {
    /// Every row alike; priorities are neither set nor read.
    Uniform,
    /// By priority.
    Proportional,
    /// By rank of priority; the order is made new at most once every so many updates (at least 1).
    RankBased {
        /// Updates between two orderings.
        resort_every: u64,
    },
}

/// What a replay memory is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuReplayConfig {
    /// Rows, from 1 to 2^31.
    pub capacity: usize,
    /// Values in a state, >= 1; 51 where rows are compact.
    pub state_dim: usize,
    /// How rows are stored.
    pub storage: ReplayStorage,
    /// Power of the priority, in [0, 1].
    pub alpha: f32,
    /// Added after the power, >= 0.
    pub epsilon: f32,
    /// Beta at the first sample.
    pub beta_start: f64,
    /// Beta from sample `beta_steps` on.
    pub beta_end: f64,
    /// Samples over which beta moves.
    pub beta_steps: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// How rows are drawn.
    pub sampling: GpuSampling,
    /// Lets a kernel begin while the one before ends (compute capability 9.0 and up). Same results.
    pub programmatic: bool,
}

impl GpuReplayConfig {
    /// Defaults of `ReplaySettings` for this capacity and state dimension, with whole rows.
    #[must_use]
    pub fn new(capacity: usize, state_dim: usize) -> Self {
        Self {
            capacity,
            state_dim,
            storage: ReplayStorage::Rows,
            alpha: 0.6,
            epsilon: 1e-6,
            beta_start: 0.4,
            beta_end: 1.0,
            beta_steps: 20_000,
            seed: 0,
            sampling: GpuSampling::Proportional,
            programmatic: true,
        }
    }

    /// Device bytes it will take, to print before they are taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let rows = (self.capacity as u64).saturating_mul(4 * self.row_words() as u64);
        let ranks = match self.sampling {
            GpuSampling::Uniform | GpuSampling::Proportional => 0,
            GpuSampling::RankBased { .. } => DeviceRanks::bytes_for(self.capacity) + 8 * MAX_CHANGES as u64,
        };
        rows.saturating_add(DeviceTree::bytes_for(self.capacity)).saturating_add(ranks)
    }

    /// Words of a stored row.
    #[must_use]
    pub fn row_words(&self) -> usize {
        match self.storage {
            ReplayStorage::Rows => RowLayout { state_dim: self.state_dim }.stride(),
            ReplayStorage::Compact => COMPACT_WORDS,
        }
    }

    pub(super) fn check(&self) -> Result<(), OpError> {
        check_capacity(self.capacity)?;
        let refuse = |what, value: String, rule| Err(OpError::InvalidArgument { what, value, rule });
        if !(1..=1 << 12).contains(&self.state_dim) {
            return refuse("state_dim", self.state_dim.to_string(), "from 1 to 4096 on a GPU");
        }
        if self.storage == ReplayStorage::Compact && self.state_dim != STATE_DIM {
            return refuse("state_dim", self.state_dim.to_string(), "51 where rows are compact");
        }
        if !(0.0..=1.0).contains(&self.alpha) {
            return refuse("alpha", self.alpha.to_string(), "in [0, 1]");
        }
        if !(0.0..=PRIORITY_CAP).contains(&self.epsilon) {
            return refuse("epsilon", self.epsilon.to_string(), "in [0, 32767.998]");
        }
        for (what, beta) in [("beta_start", self.beta_start), ("beta_end", self.beta_end)] {
            if !(0.0..=1.0).contains(&beta) {
                return refuse(what, beta.to_string(), "in [0, 1]");
            }
        }
        if self.sampling == (GpuSampling::RankBased { resort_every: 0 }) {
            return refuse("resort_every", "0".to_owned(), "at least 1");
        }
        Ok(())
    }

    pub(super) fn draw(&self) -> DrawParams {
        DrawParams {
            seed: self.seed,
            beta_start: self.beta_start,
            beta_end: self.beta_end,
            beta_steps: self.beta_steps,
        }
    }
}
