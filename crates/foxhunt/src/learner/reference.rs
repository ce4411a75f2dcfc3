//! The same network on candle: a plain forward whose gradients come from candle's autograd.
//!
//! It is the oracle that the hand-written backward is tested against, in f32 or f64, and a way for programs to
//! train the network with a loss of their own. It is not what training runs on.

use candle_core::{D, Result, Tensor};
use foxhunt_core::ReturnModel;
use foxhunt_ops::mlp::MlpLayout;

/// Q-values `[B, n_outputs]` of `states`, `[B, state_dim]`, with the flat `parameters`, `[layout.len()]`. Both must
/// have one dtype, f32 or f64. With `parameters` a `Var`, the gradient comes out as one flat tensor.
///
/// # Errors
/// What candle says of a tensor that does not fit.
pub fn forward(layout: &MlpLayout, parameters: &Tensor, states: &Tensor) -> Result<Tensor> {
    let values = values(layout, parameters, states)?;
    let atoms = |x: &Tensor| x.reshape((x.dim(0)?, layout.n_outputs(), layout.shape().returns.atoms()));
    match layout.shape().returns {
        ReturnModel::Mean => Ok(values),
        ReturnModel::Categorical { atoms: n, v_min, v_max } => {
            let p = log_softmax(&atoms(&values)?)?.exp()?;
            let returns: Vec<f64> =
                (0..n).map(|j| v_min + j as f64 * (v_max - v_min) / (n - 1) as f64).collect();
            let returns = Tensor::new(returns, values.device())?.to_dtype(values.dtype())?;
            p.broadcast_mul(&returns)?.sum(D::Minus1)
        }
        ReturnModel::Quantiles { .. } => atoms(&values)?.mean(D::Minus1),
    }
}

/// What the head says, `[B, n_values]`: Q-values, or for distributions the atoms of each action. As [`forward`] otherwise.
///
/// # Errors
/// As [`forward`].
pub fn values(layout: &MlpLayout, parameters: &Tensor, states: &Tensor) -> Result<Tensor> {
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
    let (rows, atoms) = (out.dim(0)?, layout.shape().returns.atoms());
    let value = out.narrow(1, 0, atoms)?.unsqueeze(1)?;
    let mut values = Vec::new();
    let mut start = atoms;
    for &len in layout.shape().head.branches() {
        let advantages = out.narrow(1, start, len * atoms)?.reshape((rows, len, atoms))?;
        let centred = advantages.broadcast_sub(&advantages.mean_keepdim(1)?)?;
        values.push(centred.broadcast_add(&value)?.reshape((rows, len * atoms))?);
        start += len * atoms;
    }
    Tensor::cat(&values, 1)
}

/// Logarithms of the softmax over the last dimension.
///
/// # Errors
/// As [`forward`].
pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    x.broadcast_sub(&x.exp()?.sum_keepdim(D::Minus1)?.log()?)
}
