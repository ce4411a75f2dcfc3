//! The faces on candle's CUDA tensors (feature `candle-cuda`): nothing is copied through the host and nothing waits.
//!
//! With this feature [`GpuReplayBuffer`](crate::replay::GpuReplayBuffer), [`GpuTrainingGuard`](crate::guard::GpuTrainingGuard),
//! [`QValueMonitor`](crate::monitor::QValueMonitor) and the functions of [`actions`](crate::actions) also take tensors on
//! `Device::Cuda` and give such tensors back. The work is that of the device kernels in `foxhunt-ops`, which have the
//! bits of their CPU twins: the same calls on `Device::Cpu` give the same indices, weights, rows, flags and actions.
//!
//! # Building
//!
//! ```toml
//! foxhunt = { version = "0.1", features = ["candle-cuda"] }
//! ```
//!
//! candle compiles kernels of its own with `nvcc` and links `cuda`, `cudart`, `cublas`, `cublasLt`, `curand` and `nvrtc`, so a
//! build needs a CUDA toolkit (13.0 is what it was built and run with): `nvcc` on `PATH`, `CUDA_HOME` at the toolkit, and
//! `CUDA_COMPUTE_CAP` (for example 90) where there is no GPU to ask. It takes some twenty minutes on two cores. The
//! program then starts only where these libraries are found. Without the feature nothing of CUDA is needed to build,
//! and the CUDA engine ([`cuda_engine`](crate::cuda_engine)), which does not use candle, is there all the same.
//!
//! # Order and threads
//!
//! Work is queued on the stream of the candle device, so it is ordered with candle's own operations on it, and tensors
//! may be used before the device has made them, as everywhere in candle. `Device::new_cuda` uses the per-thread default
//! stream, which is another queue in every thread: an object made on such a device refuses calls from other threads
//! with a typed error. `Device::new_cuda_with_stream` has one queue for all threads.
//!
//! # What the host knows late
//!
//! - [`GpuTrainingGuard::check`](crate::guard::GpuTrainingGuard::check) and
//!   [`QValueMonitor::check_divergence`](crate::monitor::QValueMonitor::check_divergence) queue a check and return the newest
//!   result that has arrived in pinned memory, often one of an earlier call.
//! - A replay buffer counts on the device what it refuses: rows and TD errors that are not finite, indices out of range.
//!   [`GpuReplayBuffer::counters`](crate::replay::GpuReplayBuffer::counters) reads them, `len` counts rows offered.
//! - An exposure of 5 or more becomes `u32::MAX`; [`action_counts`] tells how many there were.
//!
//! # What is taken
//!
//! Tensors that are given back are allocated by candle, from the device's memory pool. Foxhunt takes memory when an object
//! is made, at the first call for a batch larger than any before, and at the first draw by rank.

pub(crate) mod actions;
pub(crate) mod cuda;
pub(crate) mod guard;
pub(crate) mod monitor;
pub(crate) mod replay;

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::CudaDevice;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{Device, DeviceBuffer, Stream};
use foxhunt_ops::select_actions::cuda::ActionKernels;
use parking_lot::Mutex;

use crate::MLError;

pub use actions::{ActionCounts, action_counts};

/// What all objects on one device share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Arc<Device>,
    pub(crate) actions: ActionKernels,
    pub(crate) fell_back: Mutex<DeviceBuffer<u64>>,
    pub(crate) bad_exposures: Mutex<DeviceBuffer<u64>>,
}

static SHARED: Mutex<BTreeMap<usize, Arc<Shared>>> = Mutex::new(BTreeMap::new());

/// What the objects on candle's device share, made at the first call for it.
fn shared(candle: &CudaDevice) -> Result<Arc<Shared>, MLError> {
    let stream = candle.cuda_stream();
    let mut all = SHARED.lock();
    if let Some(shared) = all.get(&stream.context().ordinal()) {
        return Ok(Arc::clone(shared));
    }
    let device = Device::over(stream.context())?;
    // A stream of its own, so that making this does not depend on who asks first.
    let own = device.stream()?;
    let shared = Arc::new(Shared {
        actions: ActionKernels::new(&own, Cache::user().as_ref())?,
        fell_back: Mutex::new(counter(&own)?),
        bad_exposures: Mutex::new(counter(&own)?),
        device,
    });
    own.synchronise()?;
    all.insert(stream.context().ordinal(), Arc::clone(&shared));
    Ok(shared)
}

fn counter(stream: &Stream) -> Result<DeviceBuffer<u64>, MLError> {
    Ok(stream.zeros("action counter", 1)?)
}
