//! Device time between two points of a stream.
//!
//! [`EventTimer`] waits for the device, so it is for benches; [`EventSpans`] adds up spans of a running program and is
//! read when the device has been waited for anyway.

use std::sync::Arc;
use std::time::Duration;

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

/// The device time of many pieces of work, added up.
#[derive(Debug)]
pub struct EventSpans {
    device: Arc<Device>,
    /// Starts and ends in turn, the oldest first; used again once they were read.
    events: Vec<sys::CUevent>,
    recorded: usize,
    /// Of spans whose events were read already.
    read: Duration,
}

/// Events outstanding at which spans that are over are read, so that a long epoch does not gather them.
const MANY: usize = 128;

// SAFETY: the events are owned and used only through `&mut self`; any thread may use them with their context current.
unsafe impl Send for EventSpans {}

impl EventSpans {
    /// No span yet.
    #[must_use]
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device), events: Vec::new(), recorded: 0, read: Duration::ZERO }
    }

    /// Work queued from here on belongs to a span.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn begin(&mut self, stream: &Stream) -> Result<(), CudaError> {
        // A span whose end was lost to an error begins again.
        self.recorded -= self.recorded % 2;
        if self.recorded >= MANY {
            self.read_finished()?;
        }
        self.record(stream)
    }

    /// Ends the span that began last.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn end(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.recorded % 2 == 1 { self.record(stream) } else { Ok(()) }
    }

    /// The time of all spans since the last call. The device must have been waited for.
    ///
    /// # Errors
    /// [`CudaError::Driver`], also when a span is not over yet.
    pub fn take(&mut self) -> Result<Duration, CudaError> {
        self.device.bind()?;
        let mut total = self.read;
        for span in 0..self.recorded / 2 {
            total += self.span(span)?;
        }
        (self.recorded, self.read) = (0, Duration::ZERO);
        Ok(total)
    }

    /// Reads the spans that are over, from the oldest on, without waiting for one.
    fn read_finished(&mut self) -> Result<(), CudaError> {
        self.device.bind()?;
        let mut spans = 0;
        // SAFETY: events below `recorded` are live and were recorded.
        while 2 * spans < self.recorded && unsafe { result::event::query(self.events[2 * spans + 1]) }.is_ok()
        {
            self.read += self.span(spans)?;
            spans += 1;
        }
        self.events.rotate_left(2 * spans);
        self.recorded -= 2 * spans;
        Ok(())
    }

    /// Time of a span that is over.
    fn span(&self, number: usize) -> Result<Duration, CudaError> {
        let [start, end] = [self.events[2 * number], self.events[2 * number + 1]];
        // SAFETY: both events are live and were recorded.
        let ms = unsafe { result::event::elapsed(start, end) };
        let ms = self.device.check("cuEventElapsedTime", ms)?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) * 1e-3))
    }

    fn record(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.device.bind()?;
        if self.recorded == self.events.len() {
            let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
            self.events.push(self.device.check("cuEventCreate", event)?);
        }
        let event = self.events[self.recorded];
        // SAFETY: event and stream are live and of one context.
        self.device.check("cuEventRecord", unsafe { result::event::record(event, stream.raw()) })?;
        self.recorded += 1;
        Ok(())
    }
}

impl Drop for EventSpans {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            for &event in &self.events {
                // SAFETY: owned, destroyed once.
                let _ = unsafe { result::event::destroy(event) };
            }
        }
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
