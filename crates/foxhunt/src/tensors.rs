//! Candle tensors as slices, with the checks that belong to them: rank, shape, dtype and device.
//!
//! Nothing is copied unless a tensor is not contiguous or flags come as bytes.

use std::borrow::Cow;

use candle_core::{CpuStorage, Device, Layout, Storage, Tensor};

use crate::MLError;

/// Refuses a tensor of another shape. `None` in `shape` stands for any size.
pub(crate) fn check_shape(
    what: &'static str,
    tensor: &Tensor,
    shape: &[Option<usize>],
) -> Result<(), MLError> {
    let got = tensor.dims();
    if got.len() == shape.len() && got.iter().zip(shape).all(|(g, want)| want.is_none_or(|w| w == *g)) {
        return Ok(());
    }
    let sizes: Vec<String> = shape.iter().map(|s| s.map_or("n".into(), |s| s.to_string())).collect();
    Err(MLError::Shape { what, got: got.to_vec(), expected: format!("[{}]", sizes.join(", ")) })
}

/// Refuses a tensor that is not in host memory (case D08).
pub(crate) fn check_device(what: &'static str, tensor: &Tensor) -> Result<(), MLError> {
    match tensor.device() {
        Device::Cpu => Ok(()),
        other => {
            Err(MLError::DeviceMismatch { what, got: device_name(other).into(), expected: "the CPU".into() })
        }
    }
}

/// A short name for a device.
pub(crate) fn device_name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    }
}

/// The values of a contiguous f32 tensor in host memory.
pub(crate) fn f32s<'a>(
    what: &'static str,
    storage: &'a Storage,
    layout: &Layout,
) -> Result<&'a [f32], MLError> {
    match storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(window(values, layout)),
        other => Err(dtype(what, other, "f32")),
    }
}

/// The values of a contiguous u32 tensor in host memory.
pub(crate) fn u32s<'a>(
    what: &'static str,
    storage: &'a Storage,
    layout: &Layout,
) -> Result<&'a [u32], MLError> {
    match storage {
        Storage::Cpu(CpuStorage::U32(values)) => Ok(window(values, layout)),
        other => Err(dtype(what, other, "u32")),
    }
}

/// Flags given as f32, or as u8 where anything but 0 is 1.
pub(crate) fn flags<'a>(
    what: &'static str,
    storage: &'a Storage,
    layout: &Layout,
) -> Result<Cow<'a, [f32]>, MLError> {
    match storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(Cow::Borrowed(window(values, layout))),
        Storage::Cpu(CpuStorage::U8(values)) => {
            Ok(window(values, layout).iter().map(|&flag| f32::from(u8::from(flag != 0))).collect())
        }
        other => Err(dtype(what, other, "f32 or u8")),
    }
}

fn window<'a, T>(values: &'a [T], layout: &Layout) -> &'a [T] {
    let (start, end) = layout.contiguous_offsets().expect("callers make their tensors contiguous");
    &values[start..end]
}

fn dtype(what: &'static str, storage: &Storage, expected: &'static str) -> MLError {
    MLError::DType { what, got: storage.dtype().as_str().into(), expected }
}
