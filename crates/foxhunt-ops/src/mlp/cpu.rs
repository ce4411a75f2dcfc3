//! The CPU twin of the network: forward, and a backward written by hand.
//!
//! Everything works on blocks of rows that fit the caches of one core, so a caller runs one block a task. The
//! parameter gradient is divided by output units instead, each summed over the blocks in order: no result depends
//! on the number of threads.

use rayon::prelude::*;

use super::matmul::{View, matmul};
use super::{Layer, MlpLayout};

/// Rows a task of [`Forward`].
const ROWS: usize = 128;
/// Output units a task of [`parameter_gradient`].
const UNITS: usize = 64;

/// What a forward pass leaves for the backward pass, for up to `rows` rows.
#[derive(Clone, Debug)]
pub struct Activations {
    /// f32 `[rows, units]`, row-major, one a hidden layer, after relu.
    pub hidden: Vec<Vec<f32>>,
    /// f32 `[rows, head outputs]`: Q, or value then advantages.
    pub head: Vec<f32>,
}

impl Activations {
    /// Zeroed buffers for up to `rows` rows.
    #[must_use]
    pub fn new(layout: &MlpLayout, rows: usize) -> Self {
        Self {
            hidden: layout.shape().hidden.iter().map(|units| vec![0.0; rows * units]).collect(),
            head: vec![0.0; rows * layout.head().n_out],
        }
    }
}

/// Gradients of the loss with respect to each layer's outputs before relu, for up to `rows` rows.
pub type Deltas = Activations;

/// Runs the network on `rows` rows of `x`, f32 `[rows, state_dim]`, and fills the first `rows` rows of `acts`.
///
/// # Panics
/// When a slice does not fit.
pub fn forward(layout: &MlpLayout, parameters: &[f32], x: &[f32], rows: usize, acts: &mut Activations) {
    let (head, hidden) = layout.layers().split_last().expect("a layout has a head");
    for (l, layer) in hidden.iter().enumerate() {
        let (before, out) = acts.hidden.split_at_mut(l);
        let input = before.last().map_or(x, |h| h.as_slice());
        let out = &mut out[0][..rows * layer.n_out];
        linear(layer, parameters, input, rows, out);
        for value in out {
            *value = if *value < 0.0 { 0.0 } else { *value };
        }
    }
    let input = acts.hidden.last().map_or(x, |h| h.as_slice());
    linear(head, parameters, input, rows, &mut acts.head[..rows * head.n_out]);
}

/// `out = x W^T + b`.
fn linear(layer: &Layer, parameters: &[f32], x: &[f32], rows: usize, out: &mut [f32]) {
    let bias = layer.bias(parameters);
    for row in out.chunks_exact_mut(layer.n_out) {
        row.copy_from_slice(bias);
    }
    let x = View::row_major(x, rows, layer.n_in, layer.n_in);
    let w = View::row_major(layer.weight(parameters), layer.n_out, layer.n_in, layer.n_in);
    matmul(out, x, w.transposed(), true);
}

/// Q-values of the head layer's outputs: a copy, or the dueling combination.
///
/// `head`: f32 `[rows, head outputs]`. `q`: f32 `[rows, n_outputs]`.
///
/// # Panics
/// When `head` holds fewer rows than `q`.
pub fn q_from_head(layout: &MlpLayout, head: &[f32], q: &mut [f32]) {
    let width = layout.n_outputs();
    if !layout.shape().dueling {
        q.copy_from_slice(&head[..q.len()]);
        return;
    }
    for (q, head) in q.chunks_exact_mut(width).zip(head.chunks_exact(width + 1)) {
        let (value, advantages) = (head[0], &head[1..]);
        let mut start = 0;
        for &len in layout.shape().head.branches() {
            let branch = start..start + len;
            let mean = advantages[branch.clone()].iter().sum::<f32>() / len as f32;
            for (q, a) in q[branch.clone()].iter_mut().zip(&advantages[branch]) {
                *q = value + (a - mean);
            }
            start += len;
        }
    }
}

/// Gradient with respect to the head layer's outputs from that with respect to Q: a copy, or the dueling transpose
/// (value: the row's sum; advantages: each branch minus its mean).
///
/// # Panics
/// When `dhead` holds fewer rows than `dq`.
pub fn head_gradient(layout: &MlpLayout, dq: &[f32], dhead: &mut [f32]) {
    let width = layout.n_outputs();
    if !layout.shape().dueling {
        dhead[..dq.len()].copy_from_slice(dq);
        return;
    }
    for (dq, dhead) in dq.chunks_exact(width).zip(dhead.chunks_exact_mut(width + 1)) {
        let mut total = 0.0;
        let mut start = 0;
        for &len in layout.shape().head.branches() {
            let branch = start..start + len;
            let sum = dq[branch.clone()].iter().sum::<f32>();
            let mean = sum / len as f32;
            for (d, g) in dhead[1..][branch.clone()].iter_mut().zip(&dq[branch]) {
                *d = g - mean;
            }
            total += sum;
            start += len;
        }
        dhead[0] = total;
    }
}

/// Carries `deltas.head` back to every hidden layer: fills the first `rows` rows of `deltas.hidden`.
///
/// # Panics
/// When a buffer holds fewer rows.
pub fn backward(
    layout: &MlpLayout,
    parameters: &[f32],
    acts: &Activations,
    rows: usize,
    deltas: &mut Deltas,
) {
    for l in (0..layout.shape().hidden.len()).rev() {
        let above = &layout.layers()[l + 1];
        let (out, later) = deltas.hidden.split_at_mut(l + 1);
        let from = later.first().unwrap_or(&deltas.head);
        let out = &mut out[l][..rows * above.n_in];
        let dy = View::row_major(from, rows, above.n_out, above.n_out);
        let w = View::row_major(above.weight(parameters), above.n_out, above.n_in, above.n_in);
        matmul(out, dy, w, false);
        // The derivative of relu; an output of exactly 0 has none, as in PyTorch.
        for (d, &h) in out.iter_mut().zip(&acts.hidden[l]) {
            *d = if h <= 0.0 { 0.0 } else { *d };
        }
    }
}

/// One block of rows that contributes to a parameter gradient.
#[derive(Clone, Copy, Debug)]
pub struct GradientPart<'a> {
    /// f32 `[rows, state_dim]`.
    pub x: &'a [f32],
    /// What [`forward`] left.
    pub acts: &'a Activations,
    /// What [`backward`] left.
    pub deltas: &'a Deltas,
    /// Rows of the block.
    pub rows: usize,
}

/// Gradient with respect to the parameters, summed over the parts in order: written, or added when `accumulate`.
/// Runs on the current thread pool.
///
/// # Panics
/// When `gradient` is not of the layout's length.
pub fn parameter_gradient(
    layout: &MlpLayout,
    parts: &[GradientPart<'_>],
    gradient: &mut [f32],
    accumulate: bool,
) {
    assert_eq!(gradient.len(), layout.len(), "one gradient for each parameter");
    let mut slabs = Vec::with_capacity(layout.layers().iter().map(|l| l.n_out.div_ceil(UNITS)).sum());
    let mut rest = gradient;
    for (l, layer) in layout.layers().iter().enumerate() {
        let (weight, tail) = rest.split_at_mut(layer.n_out * layer.n_in);
        let (bias, tail) = tail.split_at_mut(layer.n_out);
        rest = tail;
        for (s, (weight, bias)) in
            weight.chunks_mut(UNITS * layer.n_in).zip(bias.chunks_mut(UNITS)).enumerate()
        {
            slabs.push(Slab { l, first: s * UNITS, weight, bias });
        }
    }
    slabs.par_iter_mut().with_max_len(1).for_each(|slab| slab.fill(layout, parts, accumulate));
}

/// The gradient of some output units of one layer.
struct Slab<'a> {
    l: usize,
    first: usize,
    weight: &'a mut [f32],
    bias: &'a mut [f32],
}

impl Slab<'_> {
    fn fill(&mut self, layout: &MlpLayout, parts: &[GradientPart<'_>], accumulate: bool) {
        let layer = layout.layers()[self.l];
        let units = self.bias.len();
        if !accumulate {
            self.bias.fill(0.0);
        }
        for (p, part) in parts.iter().enumerate() {
            let deltas = part.deltas.hidden.get(self.l).unwrap_or(&part.deltas.head);
            let input = if self.l == 0 { part.x } else { part.acts.hidden[self.l - 1].as_slice() };
            let dy = View::row_major(&deltas[self.first..], part.rows, units, layer.n_out);
            let x = View::row_major(input, part.rows, layer.n_in, layer.n_in);
            matmul(self.weight, dy.transposed(), x, accumulate || p > 0);
            for row in deltas[..part.rows * layer.n_out].chunks_exact(layer.n_out) {
                for (b, d) in self.bias.iter_mut().zip(&row[self.first..]) {
                    *b += d;
                }
            }
        }
    }
}

/// Forward passes without a graph, for acting and evaluation; keeps its buffers between calls.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    scratch: Vec<Activations>,
}

impl Forward {
    /// Q-values of `states`, f32 `[B, state_dim]`, into `q`, f32 `[B, n_outputs]`. Blocks of 128 rows run on the
    /// current thread pool; a smaller batch runs here.
    ///
    /// # Panics
    /// When the slices do not fit each other.
    pub fn q_values(&mut self, layout: &MlpLayout, parameters: &[f32], states: &[f32], q: &mut [f32]) {
        let (state_dim, width) = (layout.shape().state_dim, layout.n_outputs());
        let rows = q.len() / width;
        assert!(
            q.len() == rows * width && states.len() == rows * state_dim,
            "states and q must have one row each"
        );
        let blocks = rows.div_ceil(ROWS);
        while self.scratch.len() < blocks {
            self.scratch.push(Activations::new(layout, ROWS.min(rows)));
        }
        let fits = |acts: &Activations, rows: usize| acts.head.len() >= rows * layout.head().n_out;
        let run = |acts: &mut Activations, x: &[f32], q: &mut [f32]| {
            let rows = q.len() / width;
            if !fits(acts, rows) {
                *acts = Activations::new(layout, ROWS);
            }
            forward(layout, parameters, x, rows, acts);
            q_from_head(layout, &acts.head, q);
        };
        if blocks <= 1 {
            if let Some(acts) = self.scratch.first_mut() {
                run(acts, states, q);
            }
            return;
        }
        self.scratch
            .par_iter_mut()
            .zip(states.par_chunks(ROWS * state_dim))
            .zip(q.par_chunks_mut(ROWS * width))
            .for_each(|((acts, x), q)| run(acts, x, q));
    }
}
