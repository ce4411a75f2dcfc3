//! How much is done between two looks at the stop signal and the guard.
//!
//! Chunks are sized by an estimate of their work, so that a large network answers as soon as a small one. They are a
//! function of settings and engine alone, never of the clock or the number of threads: where they end is where a rollback
//! begins, and a resumed run must cut itself in the same places.

use foxhunt_core::Settings;

use crate::policy::network_layout;

/// Multiply-adds of a chunk: some tens of milliseconds on two cores.
const CHUNK_WORK: u64 = 1 << 30;
/// Most calls of a chunk.
const MOST: u64 = 16;
/// Passes over the weights an update makes for each row: target, online twice, and twice for the gradient.
const PASSES: u64 = 5;
/// What an environment costs beside its forward pass, in multiply-adds.
const ENV_STEP_WORK: u64 = 10_000;

/// Sizes of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Vector steps between two looks.
    pub(super) vector_steps: u32,
    /// Updates between two looks.
    pub(super) updates: u32,
}

impl Chunks {
    /// For an engine that takes `scale` times the work at once ([`Engine::chunk_scale`](crate::engine::Engine)).
    pub(super) fn of(settings: &Settings, scale: u32) -> Self {
        let weights = network_layout(settings).len() as u64;
        let rows = settings.learner.batch as u64 * settings.learner.accumulation as u64;
        let scale = u64::from(scale);
        let calls = |work: u64| (CHUNK_WORK * scale / work.max(1)).clamp(1, MOST * scale) as u32;
        Self {
            vector_steps: calls((settings.env.n_envs as u64).saturating_mul(weights + ENV_STEP_WORK)),
            updates: calls(rows.saturating_mul(weights).saturating_mul(PASSES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_shrink_with_the_work() {
        let mut settings = Settings::default();
        assert_eq!(Chunks::of(&settings, 1), Chunks { vector_steps: 16, updates: 16 });
        settings.learner.batch = 1024;
        let Chunks { updates, vector_steps } = Chunks::of(&settings, 1);
        assert!((1..4).contains(&updates) && vector_steps == 16, "{updates}");
        settings.learner.accumulation = 1024;
        settings.env.n_envs = 65_536;
        assert_eq!(Chunks::of(&settings, 1), Chunks { vector_steps: 1, updates: 1 });
        assert_eq!(Chunks::of(&Settings::default(), 64), Chunks { vector_steps: 1024, updates: 1024 });
        settings.run.threads = 7;
        assert_eq!(Chunks::of(&settings, 1), Chunks { vector_steps: 1, updates: 1 });
    }
}
