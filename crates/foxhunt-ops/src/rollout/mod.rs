//! Many vector steps in one launch, for few environments: what passes between a network and them does not leave the multiprocessors that they belong to.
//!
//! Weights do not change while experience is collected, so nothing passes between environments from one vector step to the next. A cluster of blocks
//! keeps some of them, and of the network's weights what finds room, for all steps of a rollout ([`cuda::Rollout`]); a second launch then does what concerns all
//! environments together: rows in their order, statistics, faults. Rows and statistics are those of as many single steps
//! ([`crate::gpu_collect`]) with the same Q-values ([`crate::acting_pass`]), to the bit.

pub mod cuda;

/// Most rows of a rollout, which a log has room for.
const MOST_ROWS: usize = 1 << 18;
/// Most steps, of which more would gain nothing.
const MOST_STEPS: usize = 64;

/// Steps of a rollout of `n_envs` environments with windows of `n_step` steps, a power of two, so that its rows fit into a replay memory of `capacity`
/// rows; 0 where no step does.
#[must_use]
pub fn steps(n_envs: usize, n_step: usize, capacity: usize) -> usize {
    let most = MOST_ROWS.min(capacity) / (n_envs * n_step).max(1);
    most.min(MOST_STEPS).checked_ilog2().map_or(0, |log| 1 << log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_rollout_fit_into_the_memory() {
        assert_eq!([1, 64, 1024, 2880].map(|n| steps(n, 3, 1 << 20)), [64, 64, 64, 16]);
        assert_eq!([1000, 191, 192, 0].map(|capacity| steps(64, 3, capacity)), [4, 0, 1, 0]);
        assert_eq!(steps(65_536, 256, usize::MAX), 0);
    }
}
