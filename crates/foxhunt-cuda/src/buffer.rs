//! Typed device memory that carries its shape and stays alive as long as a graph or a launch needs it.
//!
//! A buffer belongs to the stream that made it: its release is ordered behind that stream's work. Nothing here
//! looks at the contents; copies are [`crate::Stream`]'s.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{result, sys};

use crate::calls::CALLS;
use crate::{CudaError, Device};

/// Extents of an array, row-major, at most four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    extents: [usize; 4],
    rank: usize,
}

impl Shape {
    /// The shape with these extents; more than four are multiplied into the last.
    #[must_use]
    pub fn new(extents: &[usize]) -> Self {
        let mut shape = Self { extents: [1; 4], rank: extents.len().min(4) };
        for (i, &extent) in extents.iter().enumerate() {
            let slot = &mut shape.extents[i.min(3)];
            *slot = slot.saturating_mul(extent);
        }
        shape
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> &[usize] {
        &self.extents[..self.rank]
    }

    /// Elements; `usize::MAX` when the number does not fit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extents().iter().fold(1, |n: usize, &extent| n.saturating_mul(extent))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<usize> for Shape {
    fn from(n: usize) -> Self {
        Self::new(&[n])
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Self {
        Self::new(&extents)
    }
}

/// Device or pinned memory; freed when the last buffer, launch or graph that names it is gone.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) device: Arc<Device>,
    /// Its address on the device.
    pub(crate) ptr: sys::CUdeviceptr,
    /// Its address on the host when it is pinned host memory, else 0.
    pub(crate) host: usize,
    /// Whether somebody else frees it.
    pub(crate) borrowed: bool,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.borrowed || (self.ptr == 0 && self.host == 0) || self.device.bind().is_err() {
            return; // After a fault the driver takes the memory back with the context.
        }
        CALLS.frees.add();
        if self.host != 0 {
            // SAFETY: `host` came from cuMemHostAlloc and is freed once.
            let _ = unsafe { result::free_host(self.host as *mut std::ffi::c_void) };
            return;
        }
        // SAFETY: `ptr` came from cuMemAlloc and is freed once. cuMemFree waits for the work that uses it. An error
        // here could only be one that an earlier call reported, and a drop has nobody to tell.
        let _ = unsafe { result::free_sync(self.ptr) };
    }
}

/// `[T; shape]` in device memory, row-major.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    shape: Shape,
    what: &'static str,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with undefined contents; [`crate::Stream::zeros`] is the public way.
    pub(crate) fn uninit(device: &Arc<Device>, what: &'static str, shape: Shape) -> Result<Self, CudaError> {
        device.bind()?;
        let bytes = (shape.len() as u64).saturating_mul(size_of::<T>() as u64);
        let (free, _) = device.memory()?;
        // Asking for more than there is can take the driver seconds, so the plain case is answered here.
        if bytes > free {
            return Err(CudaError::OutOfMemory { what, bytes, free });
        }
        let mut ptr = 0;
        if bytes > 0 {
            CALLS.allocations.add();
            // SAFETY: the context is current; the size is not 0.
            ptr = match unsafe { result::malloc_sync(bytes as usize) } {
                Ok(ptr) => ptr,
                Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    return Err(CudaError::OutOfMemory { what, bytes, free });
                }
                Err(error) => return device.check("cuMemAlloc", Err(error)),
            };
        }
        let allocation = Arc::new(Allocation { device: Arc::clone(device), ptr, host: 0, borrowed: false });
        Ok(Self { allocation, shape, what, element: PhantomData })
    }

    /// Memory that another library owns and frees, seen as a buffer. Nothing is copied.
    ///
    /// # Safety
    /// `address` must be that of `[T; shape]` in memory of `device`, aligned for `T` and initialised wherever a kernel reads
    /// it. Work queued with the buffer must be ordered behind what wrote the memory, and the owner must free it behind
    /// that work. No launch or graph keeps it alive: for work that is captured it must outlive the graph.
    #[must_use]
    pub unsafe fn borrowed(device: &Arc<Device>, what: &'static str, shape: Shape, address: u64) -> Self {
        let allocation = Allocation { device: Arc::clone(device), ptr: address, host: 0, borrowed: true };
        Self { allocation: Arc::new(allocation), shape, what, element: PhantomData }
    }
}

impl<T> DeviceBuffer<T> {
    /// Its extents.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * size_of::<T>() as u64
    }

    /// What it holds, for error messages.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// Its address on the device, valid while the buffer lives.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr::at(self.allocation.ptr)
    }

    /// The device it lives on.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.allocation.device
    }

    /// The same memory, seen as its first `len` elements; it is freed when neither buffer names it.
    ///
    /// # Errors
    /// [`CudaError::Length`] when there are fewer.
    pub fn share(&self, len: usize) -> Result<Self, CudaError> {
        self.holds(len)?;
        let allocation = Arc::clone(&self.allocation);
        Ok(Self { allocation, shape: len.into(), what: self.what, element: PhantomData })
    }

    /// Refuses a buffer of fewer than `n` elements.
    ///
    /// # Errors
    /// [`CudaError::Length`].
    pub fn holds(&self, n: usize) -> Result<(), CudaError> {
        if self.len() >= n {
            return Ok(());
        }
        Err(CudaError::Length { what: self.what, got: self.len(), expected: n })
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }
}

/// A device address as kernels take it: eight bytes, no lifetime.
#[repr(transparent)]
pub struct DevicePtr<T> {
    /// The address; 0 is null.
    pub address: u64,
    pointee: PhantomData<*const T>,
}

impl<T> DevicePtr<T> {
    /// The null address.
    pub const NULL: Self = Self { address: 0, pointee: PhantomData };

    pub(crate) fn at(address: u64) -> Self {
        Self { address, pointee: PhantomData }
    }

    /// The address of element `n` from here.
    #[must_use]
    pub fn offset(self, n: usize) -> Self {
        Self { address: self.address + n as u64 * size_of::<T>() as u64, pointee: PhantomData }
    }
}

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

impl<T> std::fmt::Debug for DevicePtr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

// SAFETY: an address is a number; only kernels dereference it, and a launch vouches for it.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DevicePtr<T> {}
// SAFETY: a transparent u64, for which all zeros is the null address.
unsafe impl<T> Zeroable for DevicePtr<T> {}
// SAFETY: a transparent u64: no padding, every bit pattern valid.
unsafe impl<T: 'static> Pod for DevicePtr<T> {}
