//! The CPU twin of the network: forward, and a backward written by hand.
//!
//! Forward and backward work on blocks of rows that fit the caches of one core, so a caller runs one block a task.
//! The parameter gradient is divided by output units instead, each summed over the rows in order: no result depends
//! on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::MlpLayout;
use super::panels::{Finish, Panels, WIDTH, outer, pack_rows, pack_transposed, product};
use crate::distribution::expectations;

/// Rows a task of [`Forward`].
const ROWS: usize = 64;
/// Rows of a sub-batch whose parameter gradient is one chain.
pub const SEGMENT: usize = 256;

/// The weights of a network in the order the products read them; made anew when the parameters have changed.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    /// `W^T`, `[in, out]`, one a layer: for the way forward.
    forward: Vec<Panels>,
    /// `W`, `[out, in]`, one a layer but the first: for the way back.
    backward: Vec<Panels>,
}

impl PackedWeights {
    /// Room for the weights of `layout`; with `backward`, for the way back as well.
    #[must_use]
    pub fn new(layout: &MlpLayout, backward: bool) -> Self {
        let layers = layout.layers();
        let back = if backward { &layers[1..] } else { &[] };
        Self {
            forward: layers.iter().map(|l| Panels::new(l.n_in, l.n_out)).collect(),
            backward: back.iter().map(|l| Panels::new(l.n_out, l.n_in)).collect(),
        }
    }

    /// Reads the weights out of the flat `parameters`, f32 `[n_weights]`, on the current thread pool.
    ///
    /// # Panics
    /// When `parameters` is not of the layout's length.
    pub fn pack(&mut self, layout: &MlpLayout, parameters: &[f32]) {
        assert_eq!(parameters.len(), layout.n_weights(), "parameters of this layout");
        let layers = layout.layers();
        let mut tasks = Vec::new();
        for (layer, panels) in layers.iter().zip(&mut self.forward) {
            tasks.extend(panels.panels_mut().map(|(p, panel)| (layer, false, p, panel)));
        }
        for (layer, panels) in layers[1..].iter().zip(&mut self.backward) {
            tasks.extend(panels.panels_mut().map(|(p, panel)| (layer, true, p, panel)));
        }
        tasks.par_iter_mut().for_each(|(layer, back, p, panel)| {
            let weight = layer.weight(parameters);
            if *back {
                pack_rows(panel, *p, weight, layer.n_in);
            } else {
                pack_transposed(panel, *p, weight, layer.n_in);
            }
        });
    }
}

/// What a forward pass leaves for the backward pass, for up to `rows` rows.
#[derive(Clone, Debug)]
pub struct Activations {
    /// `[rows, state_dim]`.
    x: Panels,
    /// `[rows, units]`, one a hidden layer, after relu.
    hidden: Vec<Panels>,
    /// `[rows, head outputs]`: Q, or value then advantages; with distributions the atoms of each.
    head: Panels,
}

impl Activations {
    /// Zeroed buffers for up to `rows` rows.
    #[must_use]
    pub fn new(layout: &MlpLayout, rows: usize) -> Self {
        Self {
            x: Panels::new(rows, layout.shape().state_dim),
            hidden: layout.shape().hidden.iter().map(|&units| Panels::new(rows, units)).collect(),
            head: Panels::new(rows, layout.head().n_out),
        }
    }

    /// Puts states, f32 `[n, state_dim]`, into rows `first..first + n`.
    ///
    /// # Panics
    /// When the rows are not there.
    pub fn set_states(&mut self, first: usize, states: &[f32]) {
        self.x.write_rows(first, states);
    }

    /// What the head says of rows `first..`, as many as `values`, f32 `[n, n_values]`, has room for: its outputs, or their
    /// dueling combination.
    ///
    /// # Panics
    /// When the rows are not there.
    pub fn values(&self, layout: &MlpLayout, first: usize, values: &mut [f32]) {
        let mut row = vec![0.0; layout.head().n_out];
        for (r, values) in values.chunks_exact_mut(layout.n_values()).enumerate() {
            self.head.read_row(first + r, &mut row);
            values_from_head(layout, &row, values);
        }
    }

    /// Q-values of rows `first..`, as many as `q`, f32 `[n, n_outputs]`, has room for.
    ///
    /// # Panics
    /// When the rows are not there.
    pub fn q_values(&self, layout: &MlpLayout, first: usize, q: &mut [f32]) {
        let returns = &layout.shape().returns;
        if returns.is_mean() {
            return self.values(layout, first, q);
        }
        let mut values = vec![0.0; layout.n_values()];
        for (r, q) in q.chunks_exact_mut(layout.n_outputs()).enumerate() {
            self.values(layout, first + r, &mut values);
            expectations(returns, &values, q);
        }
    }
}

/// Gradients of the loss with respect to each layer's outputs before relu, for up to `rows` rows.
#[derive(Clone, Debug)]
pub struct Deltas {
    hidden: Vec<Panels>,
    head: Panels,
}

impl Deltas {
    /// Zeroed buffers for up to `rows` rows.
    #[must_use]
    pub fn new(layout: &MlpLayout, rows: usize) -> Self {
        let Activations { hidden, head, .. } = Activations::new(layout, rows);
        Self { hidden, head }
    }

    /// Puts the gradient with respect to what the head says, f32 `[n, n_values]`, into the first `n` rows.
    ///
    /// # Panics
    /// When the rows are not there.
    pub fn set_gradient(&mut self, layout: &MlpLayout, dvalues: &[f32]) {
        let mut row = vec![0.0; layout.head().n_out];
        for (r, dvalues) in dvalues.chunks_exact(layout.n_values()).enumerate() {
            head_gradient(layout, dvalues, &mut row);
            self.head.write_rows(r, &row);
        }
    }
}

/// Runs the network on the first `rows` rows of the states in `acts`.
///
/// # Panics
/// When the buffers are of another layout or hold fewer rows.
pub fn forward(
    layout: &MlpLayout,
    parameters: &[f32],
    weights: &PackedWeights,
    rows: usize,
    acts: &mut Activations,
) {
    let last = layout.layers().len() - 1;
    for (l, layer) in layout.layers().iter().enumerate() {
        let (before, after) = acts.hidden.split_at_mut(l);
        let input = before.last().unwrap_or(&acts.x);
        let out = if l == last { &mut acts.head } else { &mut after[0] };
        let finish = if l == last { Finish::Keep } else { Finish::Relu };
        product(out, rows, input, &weights.forward[l], Some(layer.bias(parameters)), finish);
    }
}

/// Carries the head's gradient in `deltas` back to every hidden layer, over the first `rows` rows.
///
/// # Panics
/// When the buffers are of another layout, hold fewer rows, or the weights were packed without the way back.
pub fn backward(weights: &PackedWeights, acts: &Activations, rows: usize, deltas: &mut Deltas) {
    for l in (0..acts.hidden.len()).rev() {
        let (out, later) = deltas.hidden.split_at_mut(l + 1);
        let from = later.first().unwrap_or(&deltas.head);
        product(&mut out[l], rows, from, &weights.backward[l], None, Finish::Mask(&acts.hidden[l]));
    }
}

/// What one row of head outputs says, f32 `[n_values]`; atoms are combined one by one.
pub(super) fn values_from_head(layout: &MlpLayout, head: &[f32], values: &mut [f32]) {
    if !layout.shape().dueling {
        values.copy_from_slice(head);
        return;
    }
    let atoms = layout.shape().returns.atoms();
    let (value, advantages) = head.split_at(atoms);
    for_each_branch(layout, |branch, len| {
        for (atom, value) in value.iter().enumerate() {
            let of = || branch.clone().skip(atom).step_by(atoms);
            let mean = of().map(|i| advantages[i]).sum::<f32>() / len as f32;
            of().for_each(|i| values[i] = value + (advantages[i] - mean));
        }
    });
}

/// The transpose of [`values_from_head`]: value takes the sum over the row's actions, advantages each branch minus its mean.
fn head_gradient(layout: &MlpLayout, dvalues: &[f32], dhead: &mut [f32]) {
    if !layout.shape().dueling {
        dhead.copy_from_slice(dvalues);
        return;
    }
    let atoms = layout.shape().returns.atoms();
    let (total, advantages) = dhead.split_at_mut(atoms);
    total.fill(0.0);
    for_each_branch(layout, |branch, len| {
        for (atom, total) in total.iter_mut().enumerate() {
            let of = || branch.clone().skip(atom).step_by(atoms);
            let sum = of().map(|i| dvalues[i]).sum::<f32>();
            let mean = sum / len as f32;
            of().for_each(|i| advantages[i] = dvalues[i] - mean);
            *total += sum;
        }
    });
}

/// The values of each branch, and how many actions they are of.
fn for_each_branch(layout: &MlpLayout, mut run: impl FnMut(Range<usize>, usize)) {
    let atoms = layout.shape().returns.atoms();
    let mut start = 0;
    for &len in layout.shape().head.branches() {
        let end = start + len * atoms;
        run(start..end, len);
        start = end;
    }
}

/// One block of rows that contributes to a parameter gradient.
#[derive(Clone, Copy, Debug)]
pub struct GradientPart<'a> {
    /// What [`forward`] left.
    pub acts: &'a Activations,
    /// What [`backward`] left.
    pub deltas: &'a Deltas,
    /// Rows of the block.
    pub rows: usize,
}

/// Gradient with respect to the weights, f32 `[n_weights]`, over the rows of the parts, which are one sub-batch in order:
/// written, or added when `accumulate`. Runs on the current thread pool.
///
/// The rows are cut into segments of [`SEGMENT`]. A segment is one chain of fused multiply-adds from 0, over its rows in
/// order; segments are added to what was there one after the other.
///
/// # Panics
/// When `gradient` is not of the layout's length.
pub fn parameter_gradient(
    layout: &MlpLayout,
    parts: &[GradientPart<'_>],
    gradient: &mut [f32],
    accumulate: bool,
) {
    assert_eq!(gradient.len(), layout.n_weights(), "one gradient for each weight");
    let mut slabs = Vec::with_capacity(layout.layers().iter().map(|l| l.n_out.div_ceil(WIDTH)).sum());
    let mut rest = gradient;
    for (l, layer) in layout.layers().iter().enumerate() {
        let (weight, tail) = rest.split_at_mut(layer.n_out * layer.n_in);
        let (bias, tail) = tail.split_at_mut(layer.n_out);
        rest = tail;
        let units = weight.chunks_mut(WIDTH * layer.n_in).zip(bias.chunks_mut(WIDTH));
        slabs.extend(units.enumerate().map(|(p, (weight, bias))| Slab { l, p, weight, bias }));
    }
    slabs.par_iter_mut().for_each(|slab| slab.fill(parts, accumulate));
}

/// The gradient of sixteen output units of one layer.
struct Slab<'a> {
    l: usize,
    p: usize,
    weight: &'a mut [f32],
    bias: &'a mut [f32],
}

impl Slab<'_> {
    fn fill(&mut self, parts: &[GradientPart<'_>], accumulate: bool) {
        // The very first segment is summed where it belongs, the others apart.
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        let total: usize = parts.iter().map(|part| part.rows).sum();
        let mut row = 0;
        for part in parts {
            let mut from = 0;
            while from < part.rows {
                let first = row % SEGMENT == 0;
                let to = part.rows.min(from + SEGMENT - row % SEGMENT);
                if row < SEGMENT && !accumulate {
                    self.outer(part, from..to, first, None);
                } else {
                    weight.resize(self.weight.len(), 0.0);
                    bias.resize(self.bias.len(), 0.0);
                    self.outer(part, from..to, first, Some((&mut weight, &mut bias)));
                }
                row += to - from;
                from = to;
                let apart = row > SEGMENT || accumulate;
                if apart && (row % SEGMENT == 0 || row == total) {
                    self.weight.iter_mut().zip(&weight).for_each(|(sum, part)| *sum += part);
                    self.bias.iter_mut().zip(&bias).for_each(|(sum, part)| *sum += part);
                }
            }
        }
    }

    fn outer(
        &mut self,
        part: &GradientPart<'_>,
        rows: Range<usize>,
        first: bool,
        apart: Option<(&mut [f32], &mut [f32])>,
    ) {
        let d = part.deltas.hidden.get(self.l).unwrap_or(&part.deltas.head);
        let x = if self.l == 0 { &part.acts.x } else { &part.acts.hidden[self.l - 1] };
        let (weight, bias) = apart.unwrap_or((self.weight, self.bias));
        outer(weight, bias, self.p, d, x, rows, !first);
    }
}

/// Forward passes without a graph, for acting and evaluation; keeps its buffers between calls.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    blocks: Vec<Activations>,
}

impl Forward {
    /// Q-values of `states`, f32 `[B, state_dim]`, into `q`, f32 `[B, n_outputs]`. Blocks of 64 rows run on the
    /// current thread pool; a smaller batch runs here. A row's result does not depend on the batch around it.
    ///
    /// # Panics
    /// When the slices do not fit each other.
    pub fn q_values(
        &mut self,
        layout: &MlpLayout,
        parameters: &[f32],
        weights: &PackedWeights,
        states: &[f32],
        q: &mut [f32],
    ) {
        let (state_dim, width) = (layout.shape().state_dim, layout.n_outputs());
        let rows = q.len() / width;
        assert!(q.len() == rows * width && states.len() == rows * state_dim, "one row of q for each state");
        let n_blocks = rows.div_ceil(ROWS);
        self.blocks.resize_with(n_blocks.max(self.blocks.len()), || Activations::new(layout, 0));
        let run = |acts: &mut Activations, states: &[f32], q: &mut [f32]| {
            let rows = q.len() / width;
            if acts.head.rows() < rows {
                *acts = Activations::new(layout, rows);
            }
            acts.set_states(0, states);
            forward(layout, parameters, weights, rows, acts);
            acts.q_values(layout, 0, q);
        };
        match &mut self.blocks[..n_blocks] {
            [] => {}
            [block] => run(block, states, q),
            blocks => blocks
                .par_iter_mut()
                .with_max_len(1)
                .zip(states.par_chunks(ROWS * state_dim))
                .zip(q.par_chunks_mut(ROWS * width))
                .for_each(|((acts, states), q)| run(acts, states, q)),
        }
    }
}
