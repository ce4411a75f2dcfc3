//! Device time between two points of a stream.
//!
//! Reading waits for the device, so it is for benches, not for the hot path.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use crate::calls::CALLS;
use crate::{CudaError, Device, Stream};

/// A pair of events.
#[derive(Debug)]
pub struct EventTimer {
    device: Arc<Device>,
    events: [sys::CUevent; 2],
}

impl EventTimer {
    /// A timer for streams of `device`.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        device.bind()?;
        let create =
            || device.check("cuEventCreate", result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT));
        Ok(Self { device: Arc::clone(device), events: [create()?, create()?] })
    }

    /// Microseconds of device time that `work` takes on `stream`; waits for it.
    ///
    /// # Errors
    /// The error of `work`, or [`CudaError::Driver`].
    pub fn time<E: From<CudaError>>(
        &mut self,
        stream: &Stream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<f64, E> {
        self.record(stream, 0)?;
        work()?;
        self.record(stream, 1)?;
        CALLS.synchronisations.add();
        let [start, stop] = self.events;
        // SAFETY: both events are live and recorded.
        let ms = unsafe {
            self.device.check("cuEventSynchronize", result::event::synchronize(stop))?;
            self.device.check("cuEventElapsedTime", result::event::elapsed(start, stop))?
        };
        Ok(f64::from(ms) * 1e3)
    }

    fn record(&self, stream: &Stream, i: usize) -> Result<(), CudaError> {
        self.device.bind()?;
        // SAFETY: event and stream are live and of one context.
        self.device.check("cuEventRecord", unsafe { result::event::record(self.events[i], stream.raw()) })
    }
}

impl Drop for EventTimer {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            for event in self.events {
                // SAFETY: owned, destroyed once.
                let _ = unsafe { result::event::destroy(event) };
            }
        }
    }
}
