//! The training guard on candle's CUDA tensors. The contract is that of [`crate::guard`].

use candle_core::{CudaDevice, DType, Tensor};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_ops::guard::cuda::DeviceGuard;
use foxhunt_ops::guard::{GuardSums, GuardWords};

use super::cuda::{Input, Queue};
use crate::MLError;

#[derive(Debug)]
pub(crate) struct CudaGuard {
    queue: Queue,
    guard: DeviceGuard,
}

impl CudaGuard {
    pub(crate) fn new(device: &CudaDevice) -> Result<Self, MLError> {
        let queue = Queue::of(device)?;
        let guard = DeviceGuard::new(queue.stream(), Cache::user().as_ref())?;
        Ok(Self { queue, guard })
    }

    /// Queues a check.
    pub(crate) fn check(
        &mut self,
        loss: &Tensor,
        grad_norm: &Tensor,
        collapse_threshold: f32,
        loss_threshold: f32,
        warmup: bool,
    ) -> Result<(), MLError> {
        let (loss, norm) = self.pair(loss, grad_norm)?;
        let stream = self.queue.stream();
        Ok(self.guard.check(stream, &loss, &norm, collapse_threshold, loss_threshold, warmup)?)
    }

    /// Queues adding to the sums.
    pub(crate) fn accumulate(&mut self, loss: &Tensor, grad_norm: &Tensor) -> Result<(), MLError> {
        let (loss, norm) = self.pair(loss, grad_norm)?;
        Ok(self.guard.accumulate(self.queue.stream(), &loss, &norm)?)
    }

    /// The newest judgement that has arrived. No driver call.
    pub(crate) fn latest(&self) -> Option<GuardWords> {
        self.guard.record()
    }

    /// One readback.
    pub(crate) fn sums(&self) -> Result<GuardSums, MLError> {
        Ok(self.guard.sums(self.queue.stream())?)
    }

    pub(crate) fn reset(&mut self) -> Result<(), MLError> {
        Ok(self.guard.reset(self.queue.stream())?)
    }

    fn pair(&self, loss: &Tensor, norm: &Tensor) -> Result<(Input<f32>, Input<f32>), MLError> {
        Ok((self.one("loss", loss)?, self.one("grad_norm", norm)?))
    }

    fn one(&self, what: &'static str, tensor: &Tensor) -> Result<Input<f32>, MLError> {
        if tensor.elem_count() != 1 {
            let got = tensor.dims().to_vec();
            return Err(MLError::Shape { what, got, expected: "one element".into() });
        }
        let tensor = tensor.flatten_all()?;
        let tensor = if tensor.dtype() == DType::F64 { tensor.to_dtype(DType::F32)? } else { tensor };
        self.queue.input(what, &tensor, &[Some(1)])
    }
}
