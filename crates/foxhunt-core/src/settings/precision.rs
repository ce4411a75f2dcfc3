//! How the network is computed on a GPU.

use serde::{Deserialize, Serialize};

/// How the CUDA engine multiplies the network's matrices; sums are f32 in every mode, and so are loss, guard and Adam.
///
/// A mode other than `f32` needs compute capability 8.0. It gives other bits than the CPU engine, the same from run to run on
/// one kind of device. A value above 3.39e38 overflows when it is rounded and is reported like any that is not finite.
/// Errors are relative and against f64: of the loss and of the whole gradient in the 2-norm, at worst over the three heads,
/// dueling or not, and batches of 64 to 8,192 (one H200, networks of up to 51 -> 256 -> 256). Most of a coarse mode's gradient
/// error comes from units so near 0 that rounding switches them on or off, and from next actions that are as good as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Fused multiply-adds in the order of the CPU engine, whose bits they give. Loss 5e-8, gradient 3e-7.
    #[default]
    F32,
    /// Each value as the sum of two tf32 values, three products on tensor cores: as accurate as f32. Loss 5e-8, gradient 3e-7.
    Tf32x3,
    /// Values rounded to 10 bits behind the first, by at most 2^-11. Loss 1e-4, gradient 1e-2.
    Tf32,
    /// Values rounded to 7 bits behind the first, by at most 2^-8. Loss 1e-3, gradient 5e-2.
    Bf16,
}

impl Precision {
    /// Every mode, `f32` first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32x3, Self::Tf32, Self::Bf16];

    /// As it is written in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32x3 => "tf32x3",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}
