//! One block of rows of a batch: forward two or three times, loss, and the way back to every layer.
//!
//! A block touches nothing outside itself, so blocks run in parallel. They are as large as the number of threads
//! allows, because every block reads all the weights once; no result depends on where a batch is cut.

use super::Batch;
use crate::distribution::distribution_loss;
use crate::mlp::{Activations, Deltas, GradientPart, MlpLayout, PackedWeights, backward, forward};
use crate::td_loss::{TargetRule, TdLossInput, TdLossParams, td_loss};

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
    /// Online network on the states, then for double DQN on the next states: one pass over its weights serves both.
    acts: Activations,
    /// Target network on the next states, then for Munchausen on the states.
    target_acts: Activations,
    /// What is asked beside, where noise makes it a pass of its own.
    beside_acts: Option<Activations>,
    values: Vec<f32>,
    target_values: Vec<f32>,
    beside_values: Vec<f32>,
    dvalues: Vec<f32>,
    deltas: Deltas,
    losses: Vec<f32>,
    td: Vec<f32>,
}

impl Block {
    pub(super) fn new(layout: &MlpLayout, capacity: usize, rule: TargetRule) -> Self {
        let width = layout.n_values();
        let [online, target] = asked(layout, rule).map(|times| times * capacity);
        let apart = layout.is_noisy() && (rule.asks_online() || rule.asks_target());
        Self {
            capacity,
            rows: 0,
            acts: Activations::new(layout, online),
            target_acts: Activations::new(layout, target),
            beside_acts: apart.then(|| Activations::new(layout, capacity)),
            values: vec![0.0; capacity * width],
            target_values: vec![0.0; capacity * width],
            beside_values: vec![0.0; capacity * width],
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
        nets: &Nets<'_>,
        params: &TdLossParams,
        batch: &Batch<'_>,
        first: usize,
    ) {
        let rows = self.capacity.min(batch.actions.len() - first);
        let (state_dim, width) = (layout.shape().state_dim, layout.n_values());
        self.rows = rows;
        let states = first * state_dim..(first + rows) * state_dim;
        let next_states = &batch.next_states[states.clone()];
        let states = &batch.states[states];
        let [online_times, target_times] = asked(layout, params.rule);

        self.target_acts.set_states(0, next_states);
        if target_times > 1 {
            self.target_acts.set_states(rows, states);
        }
        let (parameters, weights) = nets.target;
        forward(layout, parameters, weights, target_times * rows, &mut self.target_acts);
        self.target_acts.values(layout, 0, &mut self.target_values[..rows * width]);
        self.acts.set_states(0, states);
        if online_times > 1 {
            self.acts.set_states(rows, next_states);
        }
        let (parameters, weights) = nets.online;
        forward(layout, parameters, weights, online_times * rows, &mut self.acts);
        self.acts.values(layout, 0, &mut self.values[..rows * width]);
        let beside = &mut self.beside_values[..rows * width];
        match &mut self.beside_acts {
            Some(acts) => {
                acts.set_states(0, if params.rule.asks_target() { states } else { next_states });
                let (parameters, weights) = nets.beside;
                forward(layout, parameters, weights, rows, acts);
                acts.values(layout, 0, beside);
            }
            None if online_times > 1 => self.acts.values(layout, rows, beside),
            None if target_times > 1 => self.target_acts.values(layout, rows, beside),
            None => {}
        }

        let of = first..first + rows;
        let input = TdLossInput {
            q: &self.values[..rows * width],
            q_next_online: &self.beside_values[..rows * width],
            q_target: &self.beside_values[..rows * width],
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
        backward(nets.online.1, &self.acts, rows, &mut self.deltas);
    }

    /// |TD error| of each row.
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

/// Weights of the three passes, flat and packed; those beside are read where noise sets them apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nets<'a> {
    pub(super) online: (&'a [f32], &'a PackedWeights),
    pub(super) beside: (&'a [f32], &'a PackedWeights),
    pub(super) target: (&'a [f32], &'a PackedWeights),
}

/// How often the online and the target network look at a row with the same weights.
fn asked(layout: &MlpLayout, rule: TargetRule) -> [usize; 2] {
    [rule.asks_online(), rule.asks_target()].map(|asked| 1 + usize::from(asked && !layout.is_noisy()))
}
