//! One update: gradients of all sub-batches, the gate, Adam, the target network.

use foxhunt_core::action::ActionError;
use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_core::settings::{GuardSettings, LearnerSettings, Settings, TargetUpdate};
use foxhunt_ops::adam::{
    AdamParams, AdamScale, adam_step, clip_coefficient, global_norm, hard_sync, hard_sync_due, polyak,
};
use foxhunt_ops::guard::{CollapseCounter, GuardWords, check, count_non_finite};
use foxhunt_ops::mlp::{MlpLayout, parameter_gradient};
use foxhunt_ops::ring::BatchBuffers;
use foxhunt_ops::td_loss::TdLossParams;
use rayon::prelude::*;

use super::QNetwork;
use super::block::{Block, block_rows};
use super::state::{self, LearnerCounts, LearnerState};
use crate::MLError;
use crate::engine::Snapshot;

/// Largest clip norm used, so that the square of a clipped gradient is a finite f32 whatever is configured.
const MAX_CLIP_NORM: f64 = 1e18;

/// A sub-batch of transitions as slices.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// f32 `[B, state_dim]`, row-major.
    pub states: &'a [f32],
    /// f32 `[B, state_dim]`, row-major.
    pub next_states: &'a [f32],
    /// u32 `[B]`: exposure indices for the exposure head, factored indices for the others.
    pub actions: &'a [u32],
    /// f32 `[B]`, n-step rewards.
    pub rewards: &'a [f32],
    /// f32 `[B]`, 0 or 1; 1 stops the bootstrap.
    pub terminated: &'a [f32],
    /// f32 `[B]`, gamma to the power of the window's length.
    pub discounts: &'a [f32],
    /// f32 `[B]`, importance weights.
    pub weights: &'a [f32],
}

impl<'a> From<&'a BatchBuffers> for Batch<'a> {
    fn from(rows: &'a BatchBuffers) -> Self {
        Self {
            states: &rows.states,
            next_states: &rows.next_states,
            actions: &rows.actions,
            rewards: &rows.rewards,
            terminated: &rows.terminated,
            discounts: &rows.discounts,
            weights: &rows.weights,
        }
    }
}

/// What an update did.
#[derive(Clone, Debug)]
pub struct UpdateReport<'a> {
    /// Whether it was applied. If not, nothing changed but the counts, and priorities must not be written.
    pub applied: bool,
    /// Loss, mean over the rows of every sub-batch.
    pub loss: f32,
    /// Global gradient norm before clipping.
    pub grad_norm: f32,
    /// Mean |TD error|.
    pub td_error: f64,
    /// Learning rate used.
    pub learning_rate: f64,
    /// The guard's judgement.
    pub guard: GuardWords,
    /// |TD error| of each row, sub-batches one after the other: the new priorities' input.
    pub td: &'a [f32],
    /// What was not finite, if anything.
    pub faults: &'a [Fault],
    /// Names of the parameters whose gradient was not finite.
    pub non_finite_parameters: Vec<String>,
}

/// Online network, target network, optimiser, and the rules of an update.
pub struct Learner {
    network: QNetwork,
    target: QNetwork,
    m: Vec<f32>,
    v: Vec<f32>,
    adam_t: u64,
    counts: LearnerCounts,
    settings: LearnerSettings,
    guard: GuardSettings,
    gradient: Vec<f32>,
    blocks: Vec<Block>,
    td: Vec<f32>,
    faults: Vec<Fault>,
}

impl Learner {
    /// A learner with the initial network of `settings.run.seed`, for states of `state_dim` values.
    #[must_use]
    pub fn new(settings: &Settings, state_dim: usize) -> Self {
        let network = QNetwork::new(&settings.network, state_dim, settings.run.seed);
        let n = network.layout().len();
        Self {
            target: network.clone(),
            m: vec![0.0; n],
            v: vec![0.0; n],
            adam_t: 0,
            counts: LearnerCounts::default(),
            settings: settings.learner.clone(),
            guard: settings.guard.clone(),
            gradient: vec![0.0; n],
            blocks: Vec::new(),
            td: Vec::new(),
            faults: Vec::new(),
            network,
        }
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

    /// The target network's flat parameters.
    #[must_use]
    pub fn target(&self) -> &[f32] {
        self.target.parameters()
    }

    /// Counts of updates.
    #[must_use]
    pub fn counts(&self) -> LearnerCounts {
        self.counts
    }

    /// Learning rate of the next update.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.settings.learning_rate.at(self.counts.updates)
    }

    /// The gradient of the last update before clipping, f32 `[layout.len()]`; stale when its inputs were refused.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
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
        let rows_total = self.check_batches(batches)?;
        let step = self.counts.updates + self.counts.skipped + 1;
        self.find_bad_inputs(batches, step);
        let (loss, norm, td_error) = if self.faults.is_empty() {
            self.gradients(batches, rows_total, step)
        } else {
            (f64::NAN, f64::NAN, f64::NAN)
        };

        let learning_rate = self.learning_rate();
        let collapse_threshold = (learning_rate * self.guard.collapse_multiplier) as f32;
        let warmup = self.counts.updates < self.guard.collapse_warmup;
        let loss_threshold = self.guard.loss_threshold as f32;
        let words = check(loss as f32, norm as f32, collapse_threshold, loss_threshold, warmup, step);
        let mut collapse = CollapseCounter { in_row: self.counts.collapsed_in_row };
        collapse.observe(&words, self.guard.collapse_patience);
        self.counts.collapsed_in_row = collapse.in_row;

        let clip = clip_coefficient(norm, self.settings.clip_norm.min(MAX_CLIP_NORM));
        let mut non_finite_parameters = Vec::new();
        let applied = match clip {
            Some(clip) if !words.halt_nan && self.faults.is_empty() => {
                self.apply(learning_rate, clip);
                true
            }
            _ => {
                non_finite_parameters = self.note_skip(loss as f32, norm as f32, step);
                false
            }
        };
        Ok(UpdateReport {
            applied,
            loss: loss as f32,
            grad_norm: norm as f32,
            td_error,
            learning_rate,
            guard: words,
            td: &self.td,
            faults: &self.faults,
            non_finite_parameters,
        })
    }

    /// Everything an update changes, copied.
    #[must_use]
    pub fn state(&self) -> LearnerState {
        LearnerState {
            online: self.network.parameters().to_vec(),
            target: self.target.parameters().to_vec(),
            m: self.m.clone(),
            v: self.v.clone(),
            adam_t: self.adam_t,
        }
    }

    /// Goes back to a state that [`Learner::state`] gave; the counts stay.
    ///
    /// # Errors
    /// [`MLError::Shape`] when it is of another layout.
    pub fn set_state(&mut self, state: &LearnerState) -> Result<(), MLError> {
        let n = self.gradient.len();
        for values in [&state.online, &state.target, &state.m, &state.v] {
            if values.len() != n {
                let (got, expected) = (vec![values.len()], format!("[{n}]"));
                return Err(MLError::Shape { what: "learner state", got, expected });
            }
        }
        self.network.parameters_mut().copy_from_slice(&state.online);
        self.target.parameters_mut().copy_from_slice(&state.target);
        self.m.copy_from_slice(&state.m);
        self.v.copy_from_slice(&state.v);
        self.adam_t = state.adam_t;
        Ok(())
    }

    /// Adds everything needed to go on exactly here to `snapshot`.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        state::write(self.network.layout(), &self.state(), &self.counts, snapshot);
    }

    /// Takes up what [`Learner::snapshot`] wrote. Intervals and rates come from the settings, never from a snapshot.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] when an array is missing, has another shape or is not finite. Nothing changes then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        let (state, counts) = state::read(self.network.layout(), snapshot)?;
        self.set_state(&state)?;
        self.counts = counts;
        Ok(())
    }

    /// Refuses sub-batches whose slices do not belong together; gives the number of rows.
    fn check_batches(&self, batches: &[Batch<'_>]) -> Result<usize, MLError> {
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
        Ok(total)
    }

    /// Counts what is not finite before any of it can be lost in a relu or an argmax (case C12).
    fn find_bad_inputs(&mut self, batches: &[Batch<'_>], step: u64) {
        self.faults.clear();
        let (mut states, mut rewards) = (0, 0);
        for batch in batches {
            states += count_non_finite(batch.states) + count_non_finite(batch.next_states);
            rewards += count_non_finite(batch.rewards) + count_non_finite(batch.terminated);
        }
        for (kind, count) in [(FaultKind::NonFiniteState, states), (FaultKind::NonFiniteReward, rewards)] {
            if count > 0 {
                self.faults.push(Fault { step, kind, count });
            }
        }
        self.td.clear();
    }

    /// Fills gradient and TD errors; gives loss, gradient norm and mean |TD error|.
    fn gradients(&mut self, batches: &[Batch<'_>], rows_total: usize, step: u64) -> (f64, f64, f64) {
        rayon::join(|| self.network.pack(), || self.target.pack());
        let (layout, online, online_weights) = self.network.parts();
        let (_, target, target_weights) = self.target.parts();
        let params = TdLossParams {
            head: layout.shape().head,
            double: self.settings.double,
            huber_delta: self.settings.huber_delta as f32,
            rows_total,
        };
        let (mut loss, mut td_error, mut non_finite) = (0.0, 0.0, 0);
        let filled = batches.iter().filter(|batch| !batch.actions.is_empty());
        for (b, batch) in filled.enumerate() {
            let block_rows = block_rows(batch.actions.len());
            let n_blocks = batch.actions.len().div_ceil(block_rows);
            self.blocks.retain(|block| block.capacity() == block_rows);
            self.blocks.resize_with(n_blocks.max(self.blocks.len()), || Block::new(layout, block_rows));
            let blocks = &mut self.blocks[..n_blocks];
            blocks.par_iter_mut().with_max_len(1).enumerate().for_each(|(i, block)| {
                block.run(
                    layout,
                    (online, online_weights),
                    (target, target_weights),
                    &params,
                    batch,
                    i * block_rows,
                );
            });
            for block in &*blocks {
                self.td.extend_from_slice(block.td());
                for sums in block.sums() {
                    loss += sums.weighted_loss;
                    td_error += sums.td_error;
                    non_finite += sums.non_finite;
                }
            }
            let parts: Vec<_> = blocks.iter().map(Block::gradient_part).collect();
            parameter_gradient(layout, &parts, &mut self.gradient, b > 0);
        }
        if non_finite > 0 {
            self.faults.push(Fault { step, kind: FaultKind::NonFiniteTdError, count: non_finite });
        }
        let rows = rows_total as f64;
        (loss / rows, global_norm(&self.gradient), td_error / rows)
    }

    fn apply(&mut self, learning_rate: f64, clip: f64) {
        let s = &self.settings;
        let params = AdamParams { beta1: s.adam_beta1, beta2: s.adam_beta2, epsilon: s.adam_epsilon };
        self.adam_t += 1;
        let scale = AdamScale::new(&params, self.adam_t, learning_rate, clip);
        adam_step(&scale, self.network.parameters_mut(), &mut self.m, &mut self.v, &self.gradient);
        self.counts.updates += 1;
        self.counts.skipped_in_row = 0;
        if let TargetUpdate::Polyak { tau } = s.target {
            polyak(self.target.parameters_mut(), self.network.parameters(), tau as f32);
        } else if hard_sync_due(s.target, self.counts.updates) {
            hard_sync(self.target.parameters_mut(), self.network.parameters());
        }
    }

    /// Records a skipped update; names the parameters whose gradient is not finite.
    fn note_skip(&mut self, loss: f32, norm: f32, step: u64) -> Vec<String> {
        self.counts.skipped += 1;
        self.counts.skipped_in_row += 1;
        let inputs_were_bad = self
            .faults
            .iter()
            .any(|fault| matches!(fault.kind, FaultKind::NonFiniteState | FaultKind::NonFiniteReward));
        if inputs_were_bad {
            return Vec::new();
        }
        for (kind, value) in [(FaultKind::NonFiniteLoss, loss), (FaultKind::NonFiniteGradNorm, norm)] {
            if !value.is_finite() {
                self.faults.push(Fault { step, kind, count: 1 });
            }
        }
        let layout: &MlpLayout = self.network.layout();
        let bad = |range: std::ops::Range<usize>| count_non_finite(&self.gradient[range]) > 0;
        layout.parameters().iter().filter(|p| bad(p.range())).map(|p| p.name.clone()).collect()
    }
}
