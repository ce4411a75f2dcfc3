//! The CPU twin of clipping, Adam and the target update.
//!
//! The loops over elements are compiled once more for AVX2, which halves their time; no operation is fused, so the
//! bits are the same.

use rayon::prelude::*;

use super::AdamScale;
use crate::tree_sum::{TreeSum, tree_sum};

/// Values a task.
const BLOCK: usize = 4096;
/// Values whose squares are summed together.
pub(crate) const SQUARES: usize = 1024;

/// Sum of squares in f64: blocks of 1,024 values and then the blocks' sums, each by [`mod@crate::tree_sum`].
#[must_use]
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let mut blocks = TreeSum::default();
    for block in values.chunks(SQUARES) {
        blocks.add(tree_sum(block, |x| x * x));
    }
    blocks.total()
}

/// Global norm of a gradient; NaN or infinite when a value is.
#[must_use]
pub fn global_norm(gradient: &[f32]) -> f64 {
    sum_of_squares(gradient).sqrt()
}

/// What every gradient is multiplied by so that its norm is at most `max_norm`; `None` when `norm` is not finite.
#[must_use]
pub fn clip_coefficient(norm: f64, max_norm: f64) -> Option<f64> {
    if !norm.is_finite() {
        None
    } else if norm <= max_norm {
        Some(1.0)
    } else {
        Some(max_norm / norm)
    }
}

/// One Adam step on every element; see the [module](super) for the formula.
///
/// All slices are f32 of one length: `w` parameters, `m` and `v` moments (all three updated), `g` the gradient
/// before clipping.
///
/// # Panics
/// When the lengths differ.
pub fn adam_step(scale: &AdamScale, w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    assert!(w.len() == g.len() && m.len() == g.len() && v.len() == g.len(), "one length for w, m, v and g");
    w.par_chunks_mut(BLOCK)
        .zip(m.par_chunks_mut(BLOCK))
        .zip(v.par_chunks_mut(BLOCK))
        .zip(g.par_chunks(BLOCK))
        .for_each(|(((w, m), v), g)| adam_block(scale, w, m, v, g));
}

/// Runs a loop over elements as compiled for AVX2 where the processor has it.
macro_rules! widest {
    ($body:ident ( $($arg:ident),* )) => {{
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = pulp::x86::V3::try_new() {
            return wide.vectorize(
                #[inline(always)]
                || $body($($arg),*),
            );
        }
        $body($($arg),*);
    }};
}

fn adam_block(scale: &AdamScale, w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    widest!(adam_body(scale, w, m, v, g));
}

#[inline(always)]
fn adam_body(scale: &AdamScale, w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    let n = w.len();
    let (m, v, g) = (&mut m[..n], &mut v[..n], &g[..n]);
    for i in 0..n {
        let g = scale.clip * g[i];
        let first = m[i] + scale.one_minus_beta1 * (g - m[i]);
        let second = scale.beta2 * v[i] + scale.one_minus_beta2 * (g * g);
        m[i] = first;
        v[i] = second;
        w[i] -= scale.step_size * (first / (second.sqrt() * scale.root_factor + scale.epsilon));
    }
}

/// `target += tau (online - target)`, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn polyak(target: &mut [f32], online: &[f32], tau: f32) {
    assert_eq!(target.len(), online.len(), "one length for both networks");
    target.par_chunks_mut(BLOCK).zip(online.par_chunks(BLOCK)).for_each(|(target, online)| {
        polyak_block(target, online, tau);
    });
}

fn polyak_block(target: &mut [f32], online: &[f32], tau: f32) {
    widest!(polyak_body(target, online, tau));
}

#[inline(always)]
fn polyak_body(target: &mut [f32], online: &[f32], tau: f32) {
    for (t, &o) in target.iter_mut().zip(online) {
        *t += tau * (o - *t);
    }
}

/// Copies the online parameters into the target's own memory.
///
/// # Panics
/// When the lengths differ.
pub fn hard_sync(target: &mut [f32], online: &[f32]) {
    target.copy_from_slice(online);
}
