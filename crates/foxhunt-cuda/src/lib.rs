//! The raw CUDA layer: device, stream, buffers, pinned memory, NVRTC with its cache, kernels, graphs, timers, and a
//! count of driver calls.
//!
//! Every call into the driver made by this workspace goes through here. One binary, built without CUDA, uses a GPU
//! where there is one: `libcuda` and `libnvrtc` are opened at run time, and a machine without them gets an error
//! value with one clear line, never a panic. No operation of the learner lives here and no candle type is known here.
//!
//! Beside another library built on the same `cudarc`, [`Device::over`], [`Stream::over`] and [`DeviceBuffer::borrowed`] take
//! over its context, its queue and its memory. The feature `beside-candle` is for programs that link CUDA, as candle's
//! `cuda` feature does: then the driver is no longer looked for at run time.
//!
//! Layers, each adding one promise: `cudarc`'s bindings (right signatures), [`Device`], [`Stream`] and
//! [`DeviceBuffer`] (right lifetimes and lengths), and [`Launch`], the only unsafe step, whose caller vouches for the
//! kernel's signature and bounds.
#![allow(unsafe_code)] // The one library crate whose job is foreign calls; every block names its invariant.

mod buffer;
mod calls;
mod device;
mod error;
mod graph;
mod kernel;
pub mod nvrtc;
mod pace;
mod pinned;
mod shared;
mod stream;
mod timer;

#[cfg(test)]
mod tests;

pub use buffer::{DeviceBuffer, DevicePtr, Shape};
pub use calls::{DriverCalls, driver_calls};
pub use device::{Device, DeviceInfo, probe};
pub use error::CudaError;
pub use graph::Graph;
pub use kernel::{Kernel, KernelResources, Launch, Module};
pub use pace::Pace;
pub use pinned::MappedBuffer;
pub use shared::CudaType;
pub use stream::Stream;
pub use timer::{EventSpans, EventTimer};

/// Re-exported for [`shared_struct!`] and for buffer element types.
pub use bytemuck;

/// Integer names, warp reductions, launch dependencies and ordered memory accesses, under the name `common.cuh`.
pub const COMMON_CUH: &str = include_str!("cu/common.cuh");
/// Barriers that count bytes and the copies that tell them, for compute capability 9.0 and up, under the name `barrier.cuh`; behind
/// `common.cuh`.
pub const BARRIER_CUH: &str = include_str!("cu/barrier.cuh");
/// How the blocks of a cluster meet and hand one another what lies in shared memory, for compute capability 9.0 and up, under the name `cluster.cuh`;
/// behind `barrier.cuh`.
pub const CLUSTER_CUH: &str = include_str!("cu/cluster.cuh");
/// Philox4x32-10 with the addresses of `foxhunt_core::philox`, under the name `philox.cuh`.
pub const PHILOX_CUH: &str = include_str!("cu/philox.cuh");
