//! Pinned host memory that kernels write and the host polls.
//!
//! Reads are volatile and word by word, so a record that spans words needs a sequence number that the kernel writes
//! last behind a system fence; this module does not invent one.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{DriverError, result, sys};

use crate::buffer::Allocation;
use crate::calls::CALLS;
use crate::device::name_of;
use crate::{CudaError, Device, DevicePtr};

/// `[T; len]` in pinned, mapped host memory.
#[derive(Debug)]
pub struct MappedBuffer<T> {
    allocation: Arc<Allocation>,
    host: *mut T,
    len: usize,
    element: PhantomData<T>,
}

// SAFETY: the memory is owned and is only read and written through volatile word accesses.
unsafe impl<T: Send> Send for MappedBuffer<T> {}
// SAFETY: as above; `write` takes `&mut self`.
unsafe impl<T: Sync> Sync for MappedBuffer<T> {}

impl<T: Pod> MappedBuffer<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// [`CudaError::PinnedMemory`], [`CudaError::Driver`].
    pub fn zeros(device: &Arc<Device>, what: &'static str, len: usize) -> Result<Self, CudaError> {
        device.bind()?;
        // Host memory that is short is no shortage of the device's.
        let refused =
            |bytes, error| CudaError::PinnedMemory { what, bytes, name: name_of(DriverError(error)) };
        let short = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| refused(u64::MAX, short))?.max(1);
        if !device.may_pin(bytes as u64) {
            return Err(refused(bytes as u64, short));
        }
        CALLS.allocations.add();
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is current and the size is not 0.
        let host = unsafe { result::malloc_host(bytes, flags) };
        let host = host.map_err(|error| refused(bytes as u64, error.0))?;
        // SAFETY: the allocation has `bytes` bytes.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let mut allocation =
            Allocation { device: Arc::clone(device), ptr: 0, host: host as usize, borrowed: false };
        // SAFETY: `host` is mapped memory of this context, and the result goes to a live word.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut allocation.ptr, host, 0) };
        device.check("cuMemHostGetDevicePointer", mapped.result())?;
        Ok(Self { allocation: Arc::new(allocation), host: host.cast(), len, element: PhantomData })
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `i` as it stands now, or `None` outside. No driver call.
    #[must_use]
    pub fn read(&self, i: usize) -> Option<T> {
        // SAFETY: in bounds by the test; volatile, because the device may write meanwhile.
        (i < self.len).then(|| unsafe { self.host.add(i).read_volatile() })
    }

    /// Sets element `i`; outside the buffer it does nothing. The device must not write that element at the same time.
    pub fn write(&mut self, i: usize, value: T) {
        if i < self.len {
            // SAFETY: in bounds by the test.
            unsafe { self.host.add(i).write_volatile(value) };
        }
    }

    /// Its address on the device.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr::<T>::at(self.allocation.ptr)
    }
}

impl<T> MappedBuffer<T> {
    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }
}
