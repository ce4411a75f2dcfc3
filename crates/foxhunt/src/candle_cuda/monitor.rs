//! The Q monitor on candle's CUDA tensors. The contract is that of [`crate::monitor`].

use candle_core::{CudaDevice, Tensor};
use foxhunt_core::Head;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_ops::q_monitor::cuda::DeviceQMonitor;
use foxhunt_ops::q_monitor::{MaxQSums, QRange};

use super::cuda::Queue;
use crate::MLError;

#[derive(Debug)]
pub(crate) struct CudaMonitor {
    queue: Queue,
    monitor: DeviceQMonitor,
}

impl CudaMonitor {
    pub(crate) fn new(device: &CudaDevice) -> Result<Self, MLError> {
        let queue = Queue::of(device)?;
        let monitor = DeviceQMonitor::new(queue.stream(), Cache::user().as_ref())?;
        Ok(Self { queue, monitor })
    }

    /// Queues adding max-Q of each row.
    pub(crate) fn accumulate(&mut self, q: &Tensor, head: Option<Head>) -> Result<(), MLError> {
        let width = head.map(Head::n_outputs);
        let input = self.queue.input::<f32>("q", q, &[None, width])?;
        let (rows, width) = q.dims2()?;
        if width == 0 {
            let expected = "[rows, width]".to_owned();
            return Err(MLError::Shape { what: "q", got: q.dims().to_vec(), expected });
        }
        let stream = self.queue.stream();
        match head {
            Some(head) => self.monitor.accumulate(stream, &input, rows, head.branches())?,
            None => self.monitor.accumulate(stream, &input, rows, &[width])?,
        }
        Ok(())
    }

    /// Queues a check of the range.
    pub(crate) fn check(&mut self, q: &Tensor, head: Option<Head>, threshold: f32) -> Result<(), MLError> {
        let input = self.queue.input::<f32>("q", q, &[None, head.map(Head::n_outputs)])?;
        Ok(self.monitor.divergence_check(self.queue.stream(), &input, input.len(), threshold)?)
    }

    /// The newest range that has arrived, with the number of its check. No driver call.
    pub(crate) fn latest(&self) -> Option<(u64, QRange)> {
        self.monitor.range()
    }

    /// One readback.
    pub(crate) fn sums(&self) -> Result<MaxQSums, MLError> {
        Ok(self.monitor.sums(self.queue.stream())?)
    }

    pub(crate) fn reset(&mut self) -> Result<(), MLError> {
        Ok(self.monitor.reset(self.queue.stream())?)
    }
}
