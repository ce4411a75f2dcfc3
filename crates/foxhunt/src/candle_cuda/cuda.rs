//! Candle's queue and memory as this workspace's: inputs seen where they lie, outputs that candle allocated.
#![allow(unsafe_code)] // Views of candle's memory; each says what keeps them valid.

use std::ops::Deref;
use std::sync::Arc;

use candle_core::cuda_backend::CudaDType;
use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr as _, DevicePtrMut as _, DeviceRepr,
};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor, WithDType};
use foxhunt_cuda::bytemuck::Pod;
use foxhunt_cuda::{DeviceBuffer, Stream};

use super::{Shared, shared};
use crate::MLError;
use crate::tensors::check_shape;

/// The queue of a candle device.
#[derive(Debug)]
pub(crate) struct Queue {
    candle: CudaDevice,
    stream: Stream,
    shared: Arc<Shared>,
}

impl Queue {
    pub(crate) fn of(candle: &CudaDevice) -> Result<Self, MLError> {
        let shared = shared(candle)?;
        let stream = Stream::over(&shared.device, &candle.cuda_stream())?;
        Ok(Self { candle: candle.clone(), stream, shared })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn device(&self) -> Device {
        Device::Cuda(self.candle.clone())
    }

    /// A tensor on this device as a buffer. One that is not contiguous is copied, on the device.
    pub(crate) fn input<T: Element>(
        &self,
        what: &'static str,
        tensor: &Tensor,
        shape: &[Option<usize>],
    ) -> Result<Input<T>, MLError> {
        check_shape(what, tensor, shape)?;
        if !tensor.device().same_device(&self.device()) {
            let (got, expected) = (tensor.device(), self.device());
            let (got, expected) = (format!("{got:?}"), format!("{expected:?}"));
            return Err(MLError::DeviceMismatch { what, got, expected });
        }
        if tensor.dtype() != T::DTYPE {
            let (got, expected) = (tensor.dtype().as_str().to_owned(), T::DTYPE.as_str());
            return Err(MLError::DType { what, got, expected });
        }
        let tensor = tensor.contiguous()?;
        let stream = self.candle.cuda_stream();
        let start = tensor.layout().start_offset() * size_of::<T>();
        let address = {
            let (storage, _) = tensor.storage_and_layout();
            let Storage::Cuda(storage) = &*storage else {
                let (got, expected) = ("another storage".to_owned(), format!("{:?}", self.device()));
                return Err(MLError::DeviceMismatch { what, got, expected });
            };
            // Makes the stream wait for a write on another one, where there are several.
            storage.as_cuda_slice::<T>()?.device_ptr(&stream).0 + start as u64
        };
        let (device, len) = (self.stream.device(), tensor.elem_count().into());
        // SAFETY: a contiguous tensor has its elements from `start` on, aligned as elements are; the tensor, kept in `Input`,
        // owns the memory until the input is dropped, which is after the launch is queued; candle frees it in the
        // order of this stream, on which candle also queued what filled it. Nothing is captured with it.
        let buffer = unsafe { DeviceBuffer::borrowed(device, what, len, address) };
        Ok(Input { buffer, tensor, stream })
    }

    /// Room for `[T; shape]` that a kernel is going to write, allocated by candle. Its contents are undefined.
    pub(crate) fn output<T: Element>(
        &self,
        what: &'static str,
        shape: &[usize],
    ) -> Result<Output<T>, MLError> {
        let len = shape.iter().product::<usize>();
        // SAFETY: any bits are a value of the element types; the kernel that is given this writes every element.
        let mut slice = unsafe { self.candle.alloc::<T>(len.max(1))? };
        let stream = self.candle.cuda_stream();
        let address = slice.device_ptr_mut(&stream).0;
        // SAFETY: the slice has `len` elements and lives in `Output` until it becomes a tensor, whose memory candle frees in
        // the order of this stream. Nothing is captured with it.
        let buffer = unsafe { DeviceBuffer::borrowed(self.stream.device(), what, len.into(), address) };
        Ok(Output { slice, buffer, shape: shape.to_vec(), candle: self.candle.clone() })
    }
}

/// Types that both sides know.
pub(crate) trait Element: CudaDType + WithDType + DeviceRepr + Pod {}
impl<T: CudaDType + WithDType + DeviceRepr + Pod> Element for T {}

/// A tensor that a kernel reads; keep it until the launch is queued.
#[derive(Debug)]
pub(crate) struct Input<T: Element> {
    buffer: DeviceBuffer<T>,
    tensor: Tensor,
    stream: Arc<CudaStream>,
}

impl<T: Element> Input<T> {
    /// The same memory as a buffer of its own, for structs of buffers; it must not outlive this input.
    pub(crate) fn view(&self) -> Result<DeviceBuffer<T>, MLError> {
        Ok(self.buffer.share(self.buffer.len())?)
    }
}

impl<T: Element> Deref for Input<T> {
    type Target = DeviceBuffer<T>;

    fn deref(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }
}

impl<T: Element> Drop for Input<T> {
    fn drop(&mut self) {
        let (storage, _) = self.tensor.storage_and_layout();
        if let Storage::Cuda(storage) = &*storage
            && let Ok(slice) = storage.as_cuda_slice::<T>()
        {
            // Dropping what comes beside the address notes a read up to here, where there are several streams.
            drop(slice.device_ptr(&self.stream));
        }
    }
}

/// Memory that a kernel writes and that then becomes a tensor.
#[derive(Debug)]
pub(crate) struct Output<T: Element> {
    slice: CudaSlice<T>,
    buffer: DeviceBuffer<T>,
    shape: Vec<usize>,
    candle: CudaDevice,
}

impl<T: Element> Output<T> {
    /// The buffer that the kernel is given.
    pub(crate) fn buffer(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.buffer
    }

    /// The same memory as a buffer of its own, for structs of buffers; it must not outlive this output.
    pub(crate) fn view(&self) -> Result<DeviceBuffer<T>, MLError> {
        Ok(self.buffer.share(self.buffer.len())?)
    }

    /// The tensor, once the launch that writes it is queued.
    pub(crate) fn into_tensor(mut self) -> Tensor {
        // Dropping what comes beside the address notes a write up to here, where there are several streams.
        drop(self.slice.device_ptr_mut(&self.candle.cuda_stream()));
        let storage = CudaStorage::wrap_cuda_slice(self.slice, self.candle);
        Tensor::from_storage(Storage::Cuda(storage), self.shape, BackpropOp::none(), false)
    }
}
