//! The same network on candle: a plain forward whose gradients come from candle's autograd.
//!
//! It is the oracle that the hand-written backward is tested against, in f32 or f64, and a way for programs to
//! train the network with a loss of their own. It is not what training runs on.

use candle_core::{D, Result, Tensor};
use foxhunt_ops::mlp::MlpLayout;

/// Q-values `[B, n_outputs]` of `states`, `[B, state_dim]`, with the flat `parameters`, `[layout.len()]`. Both must
/// have one dtype, f32 or f64. With `parameters` a `Var`, the gradient comes out as one flat tensor.
///
/// # Errors
/// What candle says of a tensor that does not fit.
pub fn forward(layout: &MlpLayout, parameters: &Tensor, states: &Tensor) -> Result<Tensor> {
    let (head, hidden) = layout.layers().split_last().expect("a layout has a head");
    let linear = |layer: &foxhunt_ops::mlp::Layer, x: &Tensor| {
        let size = layer.n_out * layer.n_in;
        let weight = parameters.narrow(0, layer.weight, size)?.reshape((layer.n_out, layer.n_in))?;
        x.matmul(&weight.t()?)?.broadcast_add(&parameters.narrow(0, layer.bias, layer.n_out)?)
    };
    let mut h = states.clone();
    for layer in hidden {
        h = linear(layer, &h)?.relu()?;
    }
    let out = linear(head, &h)?;
    if !layout.shape().dueling {
        return Ok(out);
    }
    let value = out.narrow(D::Minus1, 0, 1)?;
    let mut q = Vec::new();
    let mut start = 1;
    for &len in layout.shape().head.branches() {
        let advantages = out.narrow(D::Minus1, start, len)?;
        let centred = advantages.broadcast_sub(&advantages.mean_keepdim(D::Minus1)?)?;
        q.push(centred.broadcast_add(&value)?);
        start += len;
    }
    Tensor::cat(&q, D::Minus1)
}
