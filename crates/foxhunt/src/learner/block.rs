//! One block of rows of a batch: forward three times, loss, and the way back to every layer.
//!
//! A block touches nothing outside itself, so blocks run in parallel; their size does not depend on the number of
//! threads, so neither does any result.

use foxhunt_ops::mlp::{Activations, Deltas, GradientPart, MlpLayout, PackedWeights, backward, forward};
use foxhunt_ops::td_loss::{TdLossInput, TdLossParams, TdLossSums, td_loss};

use super::update::Batch;

/// Rows a block holds.
pub(super) const ROWS: usize = 64;

/// Buffers and results of up to [`ROWS`] rows.
pub(super) struct Block {
    rows: usize,
    /// Online network on the states, then on the next states: one pass over its weights serves both.
    acts: Activations,
    target_acts: Activations,
    q: Vec<f32>,
    q_target: Vec<f32>,
    dq: Vec<f32>,
    deltas: Deltas,
    td: Vec<f32>,
    sums: TdLossSums,
}

impl Block {
    pub(super) fn new(layout: &MlpLayout) -> Self {
        let width = layout.n_outputs();
        Self {
            rows: 0,
            acts: Activations::new(layout, 2 * ROWS),
            target_acts: Activations::new(layout, ROWS),
            q: vec![0.0; 2 * ROWS * width],
            q_target: vec![0.0; ROWS * width],
            dq: vec![0.0; ROWS * width],
            deltas: Deltas::new(layout, ROWS),
            td: vec![0.0; ROWS],
            sums: TdLossSums::default(),
        }
    }

    /// Runs rows `first..first + ROWS` of `batch`, as far as there are any.
    pub(super) fn run(
        &mut self,
        layout: &MlpLayout,
        online: (&[f32], &PackedWeights),
        target: (&[f32], &PackedWeights),
        params: &TdLossParams,
        batch: &Batch<'_>,
        first: usize,
    ) {
        let rows = ROWS.min(batch.actions.len() - first);
        let (state_dim, width) = (layout.shape().state_dim, layout.n_outputs());
        self.rows = rows;
        let states = first * state_dim..(first + rows) * state_dim;
        let next_states = &batch.next_states[states.clone()];

        self.target_acts.set_states(0, next_states);
        forward(layout, target.0, target.1, rows, &mut self.target_acts);
        self.target_acts.q_values(layout, 0, &mut self.q_target[..rows * width]);
        self.acts.set_states(0, &batch.states[states]);
        self.acts.set_states(rows, next_states);
        let online_rows = if params.double { 2 * rows } else { rows };
        forward(layout, online.0, online.1, online_rows, &mut self.acts);
        self.acts.q_values(layout, 0, &mut self.q[..online_rows * width]);

        let (q, q_next) = self.q.split_at(rows * width);
        let of = first..first + rows;
        let input = TdLossInput {
            q,
            q_next_online: if params.double { &q_next[..rows * width] } else { &[] },
            q_next_target: &self.q_target[..rows * width],
            actions: &batch.actions[of.clone()],
            rewards: &batch.rewards[of.clone()],
            terminated: &batch.terminated[of.clone()],
            discounts: &batch.discounts[of.clone()],
            weights: &batch.weights[of],
        };
        let dq = &mut self.dq[..rows * width];
        self.sums = td_loss(params, &input, dq, &mut self.td[..rows]);
        self.deltas.set_q_gradient(layout, dq);
        backward(online.1, &self.acts, rows, &mut self.deltas);
    }

    pub(super) fn td(&self) -> &[f32] {
        &self.td[..self.rows]
    }

    pub(super) fn sums(&self) -> TdLossSums {
        self.sums
    }

    pub(super) fn gradient_part(&self) -> GradientPart<'_> {
        GradientPart { acts: &self.acts, deltas: &self.deltas, rows: self.rows }
    }
}
