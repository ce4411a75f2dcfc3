//! Reads candle tensors that lie in host memory, and refuses the others by name.
//!
//! It copies: what comes through here is a batch of Q-values or a scalar, not a replay memory.

use candle_core::{DType, Device, Tensor, WithDType};

use crate::MLError;

/// Refuses a device other than the CPU.
pub(crate) fn require_cpu(what: &'static str, device: &Device) -> Result<(), MLError> {
    match device {
        Device::Cpu => Ok(()),
        other => Err(MLError::DeviceMismatch {
            what,
            got: format!("{:?}", other.location()),
            expected: "the CPU".into(),
        }),
    }
}

/// The elements of a tensor in row-major order.
pub(crate) fn values<T: WithDType>(what: &'static str, tensor: &Tensor) -> Result<Vec<T>, MLError> {
    require_cpu(what, tensor.device())?;
    if tensor.dtype() != T::DTYPE {
        let (got, expected) = (tensor.dtype().as_str().to_owned(), T::DTYPE.as_str());
        return Err(MLError::DType { what, got, expected });
    }
    Ok(tensor.flatten_all()?.to_vec1()?)
}

/// The elements of a tensor `[rows, width]`, and `rows`.
pub(crate) fn rows<T: WithDType>(
    what: &'static str,
    tensor: &Tensor,
    width: Option<usize>,
) -> Result<(Vec<T>, usize, usize), MLError> {
    match (tensor.dims(), width) {
        (&[rows, got], None) if got > 0 => Ok((values(what, tensor)?, rows, got)),
        (&[rows, got], Some(width)) if got == width => Ok((values(what, tensor)?, rows, width)),
        (dims, width) => Err(MLError::Shape {
            what,
            got: dims.to_vec(),
            expected: format!("[rows, {}]", width.map_or("width".into(), |w| w.to_string())),
        }),
    }
}

/// The only element of a scalar, or of a tensor of one element.
pub(crate) fn scalar(what: &'static str, tensor: &Tensor) -> Result<f32, MLError> {
    if tensor.elem_count() != 1 {
        let got = tensor.dims().to_vec();
        return Err(MLError::Shape { what, got, expected: "one element".into() });
    }
    let tensor = if tensor.dtype() == DType::F64 { &tensor.to_dtype(DType::F32)? } else { tensor };
    values(what, tensor).map(|v: Vec<f32>| v[0])
}
