//! Replay memory: transitions kept in a ring and drawn uniformly, by priority or by rank of priority.
//!
//! A row is stored whole or compact, in one block of memory, by [`foxhunt_ops::ring`]; beside it stand the priorities of
//! [`foxhunt_ops::priority_tree`], integer masses whose sums are exact, and, when rows are drawn by rank, the order of
//! [`foxhunt_ops::rank_sampler`]. Each of those modules states its formulas; this one puts them together and says
//! in which order things happen:
//!
//! - an insert stores rows and gives the slots written the largest priority so far; refused rows are counted;
//! - a sample draws slots with the Philox words of (seed, sample number), gathers their rows, and moves the sample
//!   number on by one; beta and the random numbers are functions of that number, so it is all that resume needs;
//! - an update turns TD errors into priorities of the slots they belong to.
//!
//! [`ReplayMemory`] works on slices and is what the CPU engine uses. [`GpuReplayBuffer`] is the same on candle
//! tensors. [`ReplayBufferType`] chooses between kinds at run time. The CUDA engine does not come through here: it
//! has the same structure over raw device buffers.

mod buffer_type;
mod convert;
pub(crate) mod device;
mod gpu_buffer;
mod memory;
mod snapshot;

#[cfg(test)]
mod tests;

pub use buffer_type::{BatchSample, Experience, ReplayBufferType};
pub use foxhunt_ops::priority_tree::UpdateReport;
pub use foxhunt_ops::ring::{BatchBuffers, CompactRow, InsertReport, Rows, StateSource};
pub use gpu_buffer::{GpuBatch, GpuReplayBuffer, GpuReplayBufferConfig};
pub(crate) use memory::beta_schedule;
pub use memory::{ReplayCounters, ReplayMemory};
pub use snapshot::RestoreReport;
pub(crate) use snapshot::{check_actions, stored_capacity};

use foxhunt_ops::OpError;
use foxhunt_ops::gpu_replay::{CudaError, GpuReplayError};

use crate::MLError;

impl From<GpuReplayError> for MLError {
    fn from(error: GpuReplayError) -> Self {
        match error {
            GpuReplayError::Op(error) => error.into(),
            GpuReplayError::Cuda(CudaError::OutOfMemory { what, bytes, free }) => {
                Self::GpuMemoryError { what, requested: bytes, free }
            }
            GpuReplayError::Cuda(CudaError::DriverMemory { free, .. }) => {
                Self::GpuMemoryError { what: "code and graphs of the driver", requested: 0, free }
            }
            GpuReplayError::Cuda(
                error @ (CudaError::NoDriver
                | CudaError::NoDevice { .. }
                | CudaError::NoCompiler { .. }
                | CudaError::PinnedMemory { .. }),
            ) => Self::DeviceUnavailable { device: "cuda", reason: error.to_string() },
            GpuReplayError::Cuda(error) => Self::Gpu(Box::new(error)),
        }
    }
}

impl From<CudaError> for MLError {
    fn from(error: CudaError) -> Self {
        GpuReplayError::from(error).into()
    }
}

impl From<OpError> for MLError {
    fn from(error: OpError) -> Self {
        match error {
            OpError::HostMemory { what, bytes } => {
                Self::HostMemory { what, bytes, free: crate::host_memory::free() }
            }
            OpError::NotEnoughRows { have, need } => Self::NotEnoughData { have, need },
            OpError::NoMass { rows } => Self::NoMass { rows },
            OpError::RowOutOfRange { index, len } => Self::RowOutOfRange { index, len },
            OpError::Length { what, got, expected } => {
                Self::Shape { what, got: vec![got], expected: format!("{expected} elements") }
            }
            OpError::InvalidArgument { what, value, rule } => Self::InvalidArgument { what, value, rule },
            other => Self::InvalidArgument { what: "argument", value: other.to_string(), rule: "acceptable" },
        }
    }
}
