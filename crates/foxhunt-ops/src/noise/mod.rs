//! Factorised Gaussian noise on the weights of every linear layer: NoisyNet, arXiv 1706.10295.
//!
//! **Contract.** A noisy network has two values for each parameter, its mean `mu` and its scale `sigma`; its flat array is
//! all means, then all scales in the same order ([`MlpLayout::with_noise`](crate::mlp::MlpLayout::with_noise)). What products
//! read are the *drawn* weights of a pass:
//!
//! - `w[o, i] = mu[o, i] + sigma[o, i] * (g[o] f[i])` and `b[o] = mu[o] + sigma[o] * g[o]`, with `f` of the layer's inputs and
//!   `g` of its outputs both `sgn(x) sqrt(|x|)` of independent standard normal numbers (equations 9 to 11 of the paper);
//! - the way back gives `dmu = dw`, and `dsigma = dw * (g f)`, `db * g` for the biases.
//!
//! Value and advantage streams are two layers with noise of their own. As in the paper's NoisyNet-DQN every linear layer of
//! the network is noisy, because here there are no others.
//!
//! **What is drawn when.** An update draws online(s), the pass beside it (online(s') of double DQN, target(s) of Munchausen)
//! and target(s') apart, once for all its sub-batches; the paper asks for independent noise in all of them (section 3.1). A
//! vector step draws once for all environments. Evaluation and exported policies read the means alone.
//!
//! **Addresses.** Factor `i` of one side of layer `k` is made from word `i % 4` of Philox block (purpose Noise, stream
//! `k | side << 8 | pass << 16`, step, block `i / 4`), side 0 for inputs and 1 for outputs, `k` in order of the weights
//! in the flat array. The step is the number of updates tried before, or of vector steps: a snapshot needs nothing beside the
//! counts it has.
//!
//! **Arithmetic.** f32, each operation rounded on its own; factors as in [`normal`]. Nothing is summed. This module runs no
//! network and knows no schedule.

mod cpu;
pub mod cuda;
pub mod normal;
#[cfg(test)]
mod tests;

pub use cpu::NoiseSource;

use crate::mlp::{Layer, MlpLayout};

/// A forward pass that has noise of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pass {
    /// Online network on the states.
    Online = 0,
    /// What the targets ask for beside: online network on the next states, or target network on the states.
    Beside = 1,
    /// Target network on the next states.
    Target = 2,
    /// Online network on the states acted in.
    Acting = 3,
}

/// The linear layers that have noise of their own, in order of their weights in the flat array.
#[must_use]
pub fn linears(layout: &MlpLayout) -> Vec<Layer> {
    let means = || layout.parameters().iter().filter(|p| p.offset < layout.n_weights());
    means()
        .filter_map(|weight| {
            let name = weight.name.strip_suffix(".weight")?;
            let bias = means().find(|p| p.name.strip_suffix(".bias") == Some(name))?;
            let (n_in, n_out) = (weight.fan_in, bias.len());
            Some(Layer { n_in, n_out, weight: weight.offset, bias: bias.offset })
        })
        .collect()
}
