//! One device and its context; asks the machine what is there without panicking.
//!
//! The context is the device's primary one, which every library in the process shares. Work is queued by
//! [`Stream`], not here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, DriverError};

use crate::error::is_fault;
use crate::{CudaError, Stream};

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Index of the device.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block may ask for, in bytes.
    pub shared_bytes: u32,
    /// Device memory in bytes.
    pub total_bytes: u64,
    /// Highest CUDA version the driver speaks, as 1000 * major + 10 * minor.
    pub driver_version: u32,
}

/// A device with its context.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    info: DeviceInfo,
    fault: OnceLock<CudaError>,
    last_kernel: Mutex<&'static str>,
    /// Bytes of host memory that may still be pinned.
    pinned_left: AtomicU64,
}

/// Describes device `ordinal`, or says why there is none. Never panics.
///
/// # Errors
/// [`CudaError::NoDriver`], [`CudaError::NoDevice`], [`CudaError::Driver`].
pub fn probe(ordinal: usize) -> Result<DeviceInfo, CudaError> {
    Ok(Device::open(ordinal)?.info.clone())
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NoDevice`], [`CudaError::Driver`].
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        if !driver_is_there() {
            return Err(CudaError::NoDriver);
        }
        let count = match CudaContext::device_count() {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
            Err(error) => return Err(plain("cuInit", error)),
        };
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(|e| plain("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: buffers of this crate are ordered by their stream and kept alive by graphs and launches, so
        // cudarc's own event bookkeeping, which breaks stream capture, is not needed.
        unsafe { context.disable_event_tracking() };
        Self::over(&context)
    }

    /// A device over the context of another library built on `cudarc`, whose settings stay as they are.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn over(context: &Arc<CudaContext>) -> Result<Arc<Self>, CudaError> {
        let attribute =
            |a| context.attribute(a).map(|v| v.unsigned_abs()).map_err(|e| plain("cuDeviceGetAttribute", e));
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { sys::cuDriverGetVersion(&mut version) }
            .result()
            .map_err(|e| plain("cuDriverGetVersion", e))?;
        let info = DeviceInfo {
            ordinal: context.ordinal(),
            name: context.name().map_err(|e| plain("cuDeviceGetName", e))?,
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            total_bytes: context.total_mem().map_err(|e| plain("cuDeviceTotalMem", e))? as u64,
            driver_version: version.unsigned_abs(),
        };
        let context = Arc::clone(context);
        Ok(Arc::new(Self {
            context,
            info,
            fault: OnceLock::new(),
            last_kernel: Mutex::new("none"),
            pinned_left: AtomicU64::new(u64::MAX),
        }))
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The shared context, for libraries built on `cudarc`.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Free and total device memory in bytes.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (free, total) = self.check("cuMemGetInfo", self.context.mem_get_info())?;
        Ok((free as u64, total as u64))
    }

    /// Lets no more than `bytes` more of host memory be pinned from now on, as a system with little of it would. What is
    /// freed does not count back.
    pub fn limit_pinned(&self, bytes: u64) {
        self.pinned_left.store(bytes, Ordering::Relaxed);
    }

    /// Takes `bytes` of what may be pinned, if so much is left.
    pub(crate) fn may_pin(&self, bytes: u64) -> bool {
        self.pinned_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                u64::MAX => Some(left),
                _ => left.checked_sub(bytes),
            })
            .is_ok()
    }

    /// A new stream that does not wait for the default one.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn stream(self: &Arc<Self>) -> Result<Stream, CudaError> {
        Stream::new(self)
    }

    /// Makes the context current on this thread. Once the context is lost, returns the fault.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        if let Some(fault) = self.fault.get() {
            return Err(fault.clone());
        }
        self.check("cuCtxSetCurrent", self.context.bind_to_thread())
    }

    /// Turns a driver result into ours and remembers a fault.
    pub(crate) fn check<T>(&self, call: &str, result: Result<T, DriverError>) -> Result<T, CudaError> {
        result.map_err(|error| {
            if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                let free = self.context.mem_get_info().map_or(0, |(free, _)| free as u64);
                return CudaError::DriverMemory { call: call.to_owned(), free };
            }
            if !is_fault(error.0) {
                return plain(call, error);
            }
            let kernel = *self.last_kernel.lock().unwrap_or_else(PoisonError::into_inner);
            let fault = CudaError::DeviceFault { call: call.to_owned(), name: name_of(error), kernel };
            self.fault.get_or_init(|| fault).clone()
        })
    }

    pub(crate) fn launched(&self, kernel: &'static str) {
        *self.last_kernel.lock().unwrap_or_else(PoisonError::into_inner) = kernel;
    }
}

/// Whether there is a driver library; without one most calls panic.
#[cfg(not(feature = "beside-candle"))]
fn driver_is_there() -> bool {
    // SAFETY: it only tries to open the library.
    unsafe { sys::is_culib_present() }
}

/// Beside candle the library is linked: without it the program has not started.
#[cfg(feature = "beside-candle")]
fn driver_is_there() -> bool {
    true
}

pub(crate) fn plain(call: &str, error: DriverError) -> CudaError {
    CudaError::Driver { call: call.to_owned(), name: name_of(error) }
}

pub(crate) fn name_of(error: DriverError) -> String {
    match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("CUresult {}", error.0 as u32),
    }
}
