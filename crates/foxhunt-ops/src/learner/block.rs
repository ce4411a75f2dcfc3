//! One block of rows of a batch: forward three times, loss, and the way back to every layer.
//!
//! A block touches nothing outside itself, so blocks run in parallel. They are as large as the number of threads
//! allows, because every block reads all the weights once; no result depends on where a batch is cut.

use super::Batch;
use crate::distribution::distribution_loss;
use crate::mlp::{Activations, Deltas, GradientPart, MlpLayout, PackedWeights, backward, forward};
use crate::td_loss::{TdLossInput, TdLossParams, td_loss};

/// Most rows of a block: its activations and one layer's weights fit the second-level cache of a core.
const MAX_ROWS: usize = 128;

/// Rows a block for a batch on the current thread pool.
pub(super) fn block_rows(batch: usize) -> usize {
    batch.div_ceil(rayon::current_num_threads()).next_multiple_of(16).min(MAX_ROWS)
}

/// Buffers and results of up to `capacity` rows.
#[derive(Debug)]
pub(super) struct Block {
    capacity: usize,
    rows: usize,
    /// Online network on the states, then on the next states: one pass over its weights serves both.
    acts: Activations,
    target_acts: Activations,
    values: Vec<f32>,
    target_values: Vec<f32>,
    dvalues: Vec<f32>,
    deltas: Deltas,
    losses: Vec<f32>,
    td: Vec<f32>,
}

impl Block {
    pub(super) fn new(layout: &MlpLayout, capacity: usize) -> Self {
        let width = layout.n_values();
        Self {
            capacity,
            rows: 0,
            acts: Activations::new(layout, 2 * capacity),
            target_acts: Activations::new(layout, capacity),
            values: vec![0.0; 2 * capacity * width],
            target_values: vec![0.0; capacity * width],
            dvalues: vec![0.0; capacity * width],
            deltas: Deltas::new(layout, capacity),
            losses: vec![0.0; capacity],
            td: vec![0.0; capacity],
        }
    }

    /// Rows it has room for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Runs the rows of `batch` from `first` on, as many as there is room for.
    pub(super) fn run(
        &mut self,
        layout: &MlpLayout,
        online: (&[f32], &PackedWeights),
        target: (&[f32], &PackedWeights),
        params: &TdLossParams,
        batch: &Batch<'_>,
        first: usize,
    ) {
        let rows = self.capacity.min(batch.actions.len() - first);
        let (state_dim, width) = (layout.shape().state_dim, layout.n_values());
        self.rows = rows;
        let states = first * state_dim..(first + rows) * state_dim;
        let next_states = &batch.next_states[states.clone()];

        self.target_acts.set_states(0, next_states);
        forward(layout, target.0, target.1, rows, &mut self.target_acts);
        self.target_acts.values(layout, 0, &mut self.target_values[..rows * width]);
        self.acts.set_states(0, &batch.states[states]);
        self.acts.set_states(rows, next_states);
        let online_rows = if params.double { 2 * rows } else { rows };
        forward(layout, online.0, online.1, online_rows, &mut self.acts);
        self.acts.values(layout, 0, &mut self.values[..online_rows * width]);

        let of = first..first + rows;
        let next = if params.double { rows * width..2 * rows * width } else { 0..0 };
        let input = TdLossInput {
            q: &self.values[..rows * width],
            q_next_online: &self.values[next],
            q_next_target: &self.target_values[..rows * width],
            actions: &batch.actions[of.clone()],
            rewards: &batch.rewards[of.clone()],
            terminated: &batch.terminated[of.clone()],
            discounts: &batch.discounts[of.clone()],
            weights: &batch.weights[of],
        };
        let (dvalues, losses) = (&mut self.dvalues[..rows * width], &mut self.losses[..rows]);
        let (returns, td) = (&layout.shape().returns, &mut self.td[..rows]);
        if returns.is_mean() {
            td_loss(params, &input, dvalues, losses, td);
        } else {
            distribution_loss(returns, params, &input, dvalues, losses, td);
        }
        self.deltas.set_gradient(layout, &self.dvalues[..rows * width]);
        backward(online.1, &self.acts, rows, &mut self.deltas);
    }

    pub(super) fn td(&self) -> &[f32] {
        &self.td[..self.rows]
    }

    pub(super) fn losses(&self) -> &[f32] {
        &self.losses[..self.rows]
    }

    pub(super) fn gradient_part(&self) -> GradientPart<'_> {
        GradientPart { acts: &self.acts, deltas: &self.deltas, rows: self.rows }
    }
}
