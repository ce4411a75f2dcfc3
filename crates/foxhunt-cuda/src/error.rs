//! The one error type of this crate.

use cudarc::driver::sys::CUresult;

/// What can go wrong between this program and a GPU.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver library on this machine.
    #[error("no CUDA driver library (libcuda) on this machine")]
    NoDriver,
    /// The driver knows fewer devices.
    #[error("no CUDA device {ordinal}: the driver reports {count}")]
    NoDevice {
        /// Device asked for.
        ordinal: usize,
        /// Devices there are.
        count: usize,
    },
    /// NVRTC was not found.
    #[error("no NVRTC library found (FOXHUNT_NVRTC may name its file or folder); tried {}", tried.join(", "))]
    NoCompiler {
        /// Names and paths that were tried.
        tried: Vec<String>,
    },
    /// A call into NVRTC failed for another reason than the source.
    #[error("{call}: NVRTC result {code}")]
    Compiler {
        /// The call.
        call: &'static str,
        /// nvrtcResult.
        code: i32,
    },
    /// The source does not compile.
    #[error("{file} does not compile for {arch}:\n{log}")]
    Compile {
        /// Name of the program.
        file: String,
        /// Target.
        arch: String,
        /// The compiler's log.
        log: String,
    },
    /// The driver refused a call.
    #[error("{call}: {name}")]
    Driver {
        /// The call, and the kernel or symbol where there is one.
        call: String,
        /// Name of the CUresult.
        name: String,
    },
    /// A kernel broke the context. Every later call on this device returns this error again.
    #[error("the device failed with {name}, seen by {call}; the last kernel launched was {kernel}")]
    DeviceFault {
        /// The call that saw it first.
        call: String,
        /// Name of the CUresult.
        name: String,
        /// Last kernel launched before it was seen.
        kernel: &'static str,
    },
    /// Device memory could not be had.
    #[error("cannot allocate {bytes} bytes on the device for {what}: {free} bytes are free")]
    OutOfMemory {
        /// For what.
        what: &'static str,
        /// Bytes asked for; `u64::MAX` when the number itself does not fit.
        bytes: u64,
        /// Bytes free then.
        free: u64,
    },
    /// Pinned host memory could not be had; the device itself is well.
    #[error("cannot pin {bytes} bytes of host memory for {what}: {name}")]
    PinnedMemory {
        /// For what.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// Name of the CUresult.
        name: String,
    },
    /// The driver had no device memory left for something of its own: code or a graph.
    #[error("{call}: the driver has no device memory left for it, {free} bytes are free")]
    DriverMemory {
        /// The call.
        call: String,
        /// Bytes free then.
        free: u64,
    },
    /// A host slice or a buffer had another number of elements than needed.
    #[error("{what}: {got} elements, expected {expected}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Elements it has.
        got: usize,
        /// Elements needed.
        expected: usize,
    },
    /// Two objects of different devices met.
    #[error("{what} lives on device {got}, the call is for device {expected}")]
    MixedDevices {
        /// Which object.
        what: &'static str,
        /// Its device.
        got: usize,
        /// The device of the call.
        expected: usize,
    },
    /// A queue that belongs to one thread was used by another.
    #[error(
        "this queue belongs to the thread that took it up: each thread has its own per-thread default stream; make the device \
         with a stream of its own (candle: Device::new_cuda_with_stream) to share it between threads"
    )]
    OtherThread,
    /// An allocation or a copy to the host was asked for while a graph is captured.
    #[error("{call} is not possible while a graph is captured")]
    Capturing {
        /// What was asked for.
        call: &'static str,
    },
}

/// Whether a result means that the context is lost.
pub(crate) fn is_fault(code: CUresult) -> bool {
    use CUresult as R;
    matches!(
        code,
        R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
    )
}
