//! An ordered queue of work on one device: copies, fills, launches, capture.
//!
//! A stream is used by one thread at a time. Streams made here never touch the default stream; one taken over from another
//! library may be that, or a per-thread default stream, which is another queue in every thread and therefore refused
//! in all but the thread that took it over.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use bytemuck::Pod;
use cudarc::driver::{CudaStream, result, sys};

use crate::buffer::Allocation;
use crate::calls::CALLS;
use crate::{CudaError, Device, DeviceBuffer, Graph, Shape};

/// A queue of work.
#[derive(Debug)]
pub struct Stream {
    device: Arc<Device>,
    stream: Arc<CudaStream>,
    /// The only thread that may use it, for a queue that is another one in every thread.
    home: Option<ThreadId>,
    /// Memory named by the launches of a running capture; `None` outside one.
    captured: Mutex<Option<Vec<Arc<Allocation>>>>,
}

impl Stream {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        device.bind()?;
        let stream = device.check("cuStreamCreate", device.context().new_stream())?;
        Ok(Self { device: Arc::clone(device), stream, home: None, captured: Mutex::new(None) })
    }

    /// The queue of another library built on `cudarc`: what is queued here is ordered with that library's own work.
    ///
    /// # Errors
    /// [`CudaError::MixedDevices`] for a stream of another context.
    pub fn over(device: &Arc<Device>, stream: &Arc<CudaStream>) -> Result<Self, CudaError> {
        let (own, context) = (device.context(), stream.context());
        if own.cu_ctx() != context.cu_ctx() {
            let (got, expected) = (context.ordinal(), own.ordinal());
            return Err(CudaError::MixedDevices { what: "a stream taken over", got, expected });
        }
        // CU_STREAM_PER_THREAD, a handle that means another queue in every thread.
        let per_thread = stream.cu_stream() as usize == 2;
        let home = per_thread.then(|| thread::current().id());
        Ok(Self { device: Arc::clone(device), stream: Arc::clone(stream), home, captured: Mutex::new(None) })
    }

    /// Makes the context current and refuses a thread that this queue is not of.
    pub(crate) fn ready(&self) -> Result<(), CudaError> {
        if self.home.is_some_and(|home| home != thread::current().id()) {
            return Err(CudaError::OtherThread);
        }
        self.device.bind()
    }

    /// The device it works on.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// Zeroed memory, ready for work on this stream.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] naming the bytes, [`CudaError::Capturing`], [`CudaError::Driver`].
    pub fn zeros<T: Pod>(
        &self,
        what: &'static str,
        shape: impl Into<Shape>,
    ) -> Result<DeviceBuffer<T>, CudaError> {
        self.not_capturing("an allocation")?;
        let mut buffer = DeviceBuffer::uninit(&self.device, what, shape.into())?;
        self.fill_zero(&mut buffer)?;
        Ok(buffer)
    }

    /// A copy of `values` on the device.
    ///
    /// # Errors
    /// As [`Stream::zeros`].
    pub fn upload_new<T: Pod>(&self, what: &'static str, values: &[T]) -> Result<DeviceBuffer<T>, CudaError> {
        self.not_capturing("an allocation")?;
        let mut buffer = DeviceBuffer::uninit(&self.device, what, values.len().into())?;
        self.upload(&mut buffer, values)?;
        Ok(buffer)
    }

    /// Sets every byte to 0.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn fill_zero<T>(&self, buffer: &mut DeviceBuffer<T>) -> Result<(), CudaError> {
        self.fill(buffer, 0)
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn fill<T>(&self, buffer: &mut DeviceBuffer<T>, byte: u8) -> Result<(), CudaError> {
        self.ready()?;
        let bytes = buffer.bytes() as usize;
        if bytes == 0 {
            return Ok(());
        }
        CALLS.memsets.add();
        self.keep(buffer.allocation());
        // SAFETY: the buffer has `bytes` bytes and lives until the stream is done (cuMemFree waits).
        let done = unsafe { result::memset_d8_async(buffer.ptr().address, byte, bytes, self.raw()) };
        self.device.check("cuMemsetD8Async", done)
    }

    /// Copies `values` to the first elements of `buffer`; returns when `values` may be changed again.
    ///
    /// # Errors
    /// [`CudaError::Length`] when they do not fit, [`CudaError::Capturing`], [`CudaError::Driver`].
    pub fn upload<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, values: &[T]) -> Result<(), CudaError> {
        self.upload_at(buffer, 0, values)
    }

    /// As [`Stream::upload`], to the elements from `first` on.
    ///
    /// # Errors
    /// As there.
    pub fn upload_at<T: Pod>(
        &self,
        buffer: &mut DeviceBuffer<T>,
        first: usize,
        values: &[T],
    ) -> Result<(), CudaError> {
        self.not_capturing("an upload")?;
        buffer.holds(first.saturating_add(values.len()))?;
        self.ready()?;
        if values.is_empty() {
            return Ok(());
        }
        CALLS.copies_to_device.add();
        let target = buffer.ptr().offset(first).address;
        // SAFETY: source and target hold `values.len()` elements; the wait below keeps the source borrowed until done.
        let done = unsafe { result::memcpy_htod_async(target, values, self.raw()) };
        self.device.check("cuMemcpyHtoDAsync", done)?;
        self.synchronise()
    }

    /// A copy of the whole buffer in host memory; waits for the work queued before.
    ///
    /// # Errors
    /// [`CudaError::Capturing`], [`CudaError::Driver`], [`CudaError::DeviceFault`].
    pub fn download<T: Pod>(&self, buffer: &DeviceBuffer<T>) -> Result<Vec<T>, CudaError> {
        self.download_range(buffer, 0, buffer.len())
    }

    /// A copy of `len` elements from `first` on.
    ///
    /// # Errors
    /// As [`Stream::download`], and [`CudaError::Length`].
    pub fn download_range<T: Pod>(
        &self,
        buffer: &DeviceBuffer<T>,
        first: usize,
        len: usize,
    ) -> Result<Vec<T>, CudaError> {
        self.not_capturing("a download")?;
        buffer.holds(first.saturating_add(len))?;
        self.ready()?;
        let mut values = vec![T::zeroed(); len];
        if values.is_empty() {
            return Ok(values);
        }
        CALLS.copies_to_host.add();
        let source = buffer.ptr().offset(first).address;
        // SAFETY: both sides hold `len` elements; nobody reads `values` before the wait below.
        let queued = unsafe { result::memcpy_dtoh_async(&mut values, source, self.raw()) };
        let queued = self.device.check("cuMemcpyDtoHAsync", queued);
        // Wait even after an error: the copy may have been queued into `values`.
        self.synchronise()?;
        queued.map(|()| values)
    }

    /// Queues a copy of the whole of `source` to the first elements of `target`, on the device.
    ///
    /// # Errors
    /// [`CudaError::Length`] when it does not fit, [`CudaError::Driver`].
    pub fn copy<T: Pod>(
        &self,
        target: &mut DeviceBuffer<T>,
        source: &DeviceBuffer<T>,
    ) -> Result<(), CudaError> {
        target.holds(source.len())?;
        self.ready()?;
        if source.is_empty() {
            return Ok(());
        }
        self.keep(target.allocation());
        self.keep(source.allocation());
        let (to, from, bytes) = (target.ptr().address, source.ptr().address, source.bytes() as usize);
        // SAFETY: both hold `bytes` bytes and are released only behind the work that uses them.
        let queued = unsafe { result::memcpy_dtod_async(to, from, bytes, self.raw()) };
        self.device.check("cuMemcpyDtoDAsync", queued)
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// [`CudaError::DeviceFault`] when a kernel broke the context, [`CudaError::Driver`].
    pub fn synchronise(&self) -> Result<(), CudaError> {
        self.not_capturing("a synchronisation")?;
        self.ready()?;
        CALLS.synchronisations.add();
        // SAFETY: the stream is live.
        self.device.check("cuStreamSynchronize", unsafe { result::stream::synchronize(self.raw()) })
    }

    /// Records what `work` queues into a graph instead of running it. The graph keeps the memory it names alive.
    ///
    /// # Errors
    /// The error of `work`, or [`CudaError::Driver`].
    pub fn capture<E: From<CudaError>>(&self, work: impl FnOnce(&Self) -> Result<(), E>) -> Result<Graph, E> {
        self.not_capturing("a second capture")?;
        self.ready()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live and not the default one.
        let begun = unsafe { result::stream::begin_capture(self.raw(), mode) };
        self.device.check("cuStreamBeginCapture", begun)?;
        *self.lock() = Some(Vec::new());
        let worked = work(self);
        let kept = self.lock().take().unwrap_or_default();
        // SAFETY: a capture is running on this stream, begun above.
        let ended = unsafe { result::stream::end_capture(self.raw()) };
        let graph = match (worked, self.device.check("cuStreamEndCapture", ended)) {
            (Ok(()), graph) => graph?,
            (Err(error), ended) => {
                if let Ok(graph) = ended {
                    // SAFETY: just made, used by nobody.
                    let _ = unsafe { result::graph::destroy(graph) };
                }
                return Err(error);
            }
        };
        Ok(Graph::instantiate(&self.device, graph, kept)?)
    }

    /// Whether a capture is running.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.lock().is_some()
    }

    /// Remembers memory for a running capture.
    pub(crate) fn keep(&self, allocation: &Arc<Allocation>) {
        if let Some(kept) = self.lock().as_mut()
            && !allocation.borrowed
        {
            kept.push(Arc::clone(allocation));
        }
    }

    fn not_capturing(&self, call: &'static str) -> Result<(), CudaError> {
        if self.is_capturing() { Err(CudaError::Capturing { call }) } else { Ok(()) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Arc<Allocation>>>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
