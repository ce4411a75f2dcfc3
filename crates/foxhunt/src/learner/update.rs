//! The learner that programs use: checked inputs, two networks, snapshots.

use foxhunt_core::ActionSpace;
use foxhunt_core::action::ActionError;
use foxhunt_core::settings::Settings;
use foxhunt_ops::learner::{Batch, CpuUpdate, LearnerCounts, LearnerState, UpdateReport};
use foxhunt_ops::noise::{NoiseSource, Pass};

use super::{QNetwork, state};
use crate::MLError;
use crate::engine::Snapshot;

/// Online network, target network, optimiser, and the rules of an update.
pub struct Learner {
    network: QNetwork,
    target: QNetwork,
    update: CpuUpdate,
    acting: Option<Acting>,
}

/// The online network with noise in its weights, to act with.
struct Acting {
    noise: NoiseSource,
    drawn: QNetwork,
}

impl Learner {
    /// A learner with the initial network of `settings.run.seed`, for states of `state_dim` values.
    #[must_use]
    pub fn new(settings: &Settings, state_dim: usize) -> Self {
        Self::for_actions(settings, state_dim, settings.network.head.into())
    }

    /// The same for another action space than that of `settings.network`.
    #[must_use]
    pub fn for_actions(settings: &Settings, state_dim: usize, head: ActionSpace) -> Self {
        let network = QNetwork::for_actions(&settings.network, state_dim, head, settings.run.seed);
        let (layout, seed) = (network.layout(), settings.run.seed);
        let update = CpuUpdate::new(layout, &settings.learner, &settings.guard, seed);
        let acting = layout.is_noisy().then(|| Acting {
            noise: NoiseSource::new(layout, seed),
            drawn: QNetwork::zeros(layout.means()),
        });
        Self { target: network.clone(), network, update, acting }
    }

    /// The online network.
    #[must_use]
    pub fn network(&self) -> &QNetwork {
        &self.network
    }

    /// The online network, for its forward passes.
    pub fn network_mut(&mut self) -> &mut QNetwork {
        &mut self.network
    }

    /// Q-values to act by in vector step `vector_step`, as [`QNetwork::q_values`]: of noisy layers with weights drawn for that
    /// step, the same for all rows.
    ///
    /// # Errors
    /// As [`QNetwork::q_values`].
    pub fn acting_q_values(
        &mut self,
        vector_step: u64,
        states: &[f32],
        q: &mut [f32],
    ) -> Result<(), MLError> {
        let Some(Acting { noise, drawn }) = &mut self.acting else { return self.network.q_values(states, q) };
        let weights = drawn.core_mut().parameters_mut();
        noise.weights(Pass::Acting, vector_step, self.network.parameters(), weights);
        drawn.q_values(states, q)
    }

    /// The target network's flat parameters.
    #[must_use]
    pub fn target(&self) -> &[f32] {
        self.target.parameters()
    }

    /// Counts of updates.
    #[must_use]
    pub fn counts(&self) -> LearnerCounts {
        self.update.counts()
    }

    /// Learning rate of the next update.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.update.learning_rate()
    }

    /// The gradient of the last update before clipping, f32 `[layout.len()]`; stale when its inputs were refused.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        self.update.gradient()
    }

    /// One update from one or more sub-batches, whose gradients are averaged over all their rows alike. With
    /// anything not finite in inputs, loss or gradient it is skipped whole: see the [module](super).
    ///
    /// Faults carry the number of the update among all tried, applied or not, 1 for the first.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] without rows, [`MLError::Shape`] when slices do not fit each other,
    /// [`MLError::Action`] for an action outside the head. Nothing changes then.
    pub fn update(&mut self, batches: &[Batch<'_>]) -> Result<UpdateReport<'_>, MLError> {
        self.check_batches(batches)?;
        Ok(self.update.run(self.network.core_mut(), self.target.core_mut(), batches))
    }

    /// Everything an update changes, copied.
    #[must_use]
    pub fn state(&self) -> LearnerState {
        self.update.state(self.network.core(), self.target.core())
    }

    /// Goes back to a state that [`Learner::state`] gave; the counts stay.
    ///
    /// # Errors
    /// [`MLError::Shape`] when it is of another layout.
    pub fn set_state(&mut self, state: &LearnerState) -> Result<(), MLError> {
        let n = self.network.layout().len();
        for values in [&state.online, &state.target, &state.m, &state.v] {
            if values.len() != n {
                let (got, expected) = (vec![values.len()], format!("[{n}]"));
                return Err(MLError::Shape { what: "learner state", got, expected });
            }
        }
        self.update.set_state(state, self.network.core_mut(), self.target.core_mut());
        Ok(())
    }

    /// Adds everything needed to go on exactly here to `snapshot`.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        state::write(self.network.layout(), &self.state(), &self.counts(), snapshot);
    }

    /// Takes up what [`Learner::snapshot`] wrote. Intervals and rates come from the settings, never from a snapshot.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] when an array is missing, has another shape or is not finite. Nothing changes then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        let (state, counts) = state::read(self.network.layout(), snapshot)?;
        self.set_state(&state)?;
        self.update.set_counts(counts);
        Ok(())
    }

    /// Refuses sub-batches whose slices do not belong together.
    fn check_batches(&self, batches: &[Batch<'_>]) -> Result<(), MLError> {
        let layout = self.network.layout();
        let (state_dim, n_actions) = (layout.shape().state_dim, layout.shape().head.n_actions() as u32);
        let mut total = 0;
        for batch in batches {
            let rows = batch.actions.len();
            let lens = [
                ("states", batch.states.len(), rows * state_dim),
                ("next_states", batch.next_states.len(), rows * state_dim),
                ("rewards", batch.rewards.len(), rows),
                ("terminated", batch.terminated.len(), rows),
                ("discounts", batch.discounts.len(), rows),
                ("weights", batch.weights.len(), rows),
            ];
            for (what, got, expected) in lens {
                if got != expected {
                    return Err(MLError::Shape {
                        what,
                        got: vec![got],
                        expected: format!("{expected} values"),
                    });
                }
            }
            if let Some(&index) = batch.actions.iter().find(|&&action| action >= n_actions) {
                return Err(ActionError { what: "stored action", index, len: n_actions }.into());
            }
            total += rows;
        }
        if total == 0 {
            return Err(MLError::NotEnoughData { have: 0, need: 1 });
        }
        Ok(())
    }
}
