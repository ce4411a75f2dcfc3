//! The Q-network as arithmetic: a multi-layer perceptron with plain or dueling heads, over one flat parameter array.
//!
//! **Contract.** `h_0 = s`, `h_l = relu(W_l h_{l-1} + b_l)` for each hidden layer, then the head layer:
//!
//! - plain: `Q = W h + b`, `n_outputs` values;
//! - dueling (arXiv 1511.06581, equation 9): a value `V` and `n_outputs` advantages `A` from the same `h`, and
//!   `Q_d[a] = V + A_d[a] - mean_a' A_d[a']` for each branch `d`: one value shared by all branches, each branch
//!   centred by its own mean (arXiv 1711.08946, equation 1), each row by itself;
//! - of distributions ([`crate::distribution`]): every output above is one for each atom, those of an action side by side, and
//!   dueling streams are combined atom by atom (arXiv 1710.02298, section 3).
//!
//! `relu(x) = 0 if x < 0 else x`, so a NaN passes through and is seen (on some devices `max(NaN, 0)` is 0).
//! Departure from the branching paper: the gradient that enters the trunk is not rescaled by 1/(D+1).
//!
//! **Layout.** All parameters lie in one f32 array, [`MlpLayout::parameters`] is its table of names, offsets and
//! shapes: `layer{l}.weight [out, in]`, `layer{l}.bias [out]` for each hidden layer, then `value.weight [1, in]`,
//! `advantage.weight [n_outputs, in]`, `value.bias [1]`, `advantage.bias [n_outputs]` (dueling) or `q.weight`,
//! `q.bias`. Heads of distributions have names of their own ([`head_names`]) and as many rows an action as there are atoms.
//! Weights are row-major, out by in, as in `torch.nn.Linear`. Value and advantage lie side by side so that the head is one
//! matrix, the value first. Checkpoints, Adam and every engine share this.
//!
//! **Initial values.** Uniform in `[-1/sqrt(in), 1/sqrt(in))` for weights and biases alike, the default of
//! `torch.nn.Linear` (He et al., arXiv 1502.01852, with a = sqrt 5); value `i` of parameter number `p` of the
//! table is `bound * (2 u - 1)` with `u` the `i`-th f32 of the Philox stream (Init, stream = p, step = 0).
//!
//! A layout with noise has a scale beside each parameter, behind all of them ([`crate::noise`]); products read the first half.
//!
//! This module holds no loss and no optimiser.

mod cpu;
pub mod cuda;
mod lanes;
mod layout;
mod network;
mod panels;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

pub use cpu::{
    Activations, Deltas, Forward, GradientPart, PackedWeights, SEGMENT, backward, forward, parameter_gradient,
};
pub use layout::{Layer, MlpLayout, MlpShape, Parameter, head_names};
pub use network::Network;
