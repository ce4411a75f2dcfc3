//! Keeps the host from running far ahead of a stream.
//!
//! Graph launches return at once, and a driver takes about a thousand of them before one waits: seconds of work, during which
//! the host would answer nobody. With a [`Pace`] a new piece of work begins when the piece before the last one is done: the
//! device always has a whole piece to do while the host queues the next, and whoever stops the host waits for two pieces
//! at most. What is waited for here is never work that was just queued, so it has a count of its own, `pacing_waits`.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use crate::calls::CALLS;
use crate::{CudaError, Device, Stream};

/// The ends of the last two pieces of work on a stream.
#[derive(Debug)]
pub struct Pace {
    device: Arc<Device>,
    /// In turn.
    events: [sys::CUevent; 2],
    /// Pieces ended so far.
    pieces: usize,
}

// SAFETY: the events are owned and used only through `&mut self`; any thread may use them with their context current.
unsafe impl Send for Pace {}

impl Pace {
    /// Nothing queued yet.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        device.bind()?;
        let mut pace = Self { device: Arc::clone(device), events: [std::ptr::null_mut(); 2], pieces: 0 };
        for event in &mut pace.events {
            // SAFETY: the context is current and the result goes to a live handle.
            let created = unsafe { sys::cuEventCreate(event, FLAGS) };
            device.check("cuEventCreate", created.result())?;
        }
        Ok(pace)
    }

    /// Before a new piece of work: returns when the piece before the last one is done.
    ///
    /// # Errors
    /// [`CudaError::DeviceFault`] when a kernel broke the context, [`CudaError::Driver`].
    pub fn begin(&mut self) -> Result<(), CudaError> {
        if self.pieces < self.events.len() {
            return Ok(());
        }
        self.device.bind()?;
        let event = self.events[self.pieces % 2];
        // SAFETY: the event is live and was recorded two pieces ago.
        if unsafe { result::event::query(event) }.is_ok() {
            return Ok(());
        }
        CALLS.pacing_waits.add();
        // SAFETY: as above.
        self.device.check("cuEventSynchronize", unsafe { result::event::synchronize(event) })
    }

    /// After a piece of work was queued on `stream`.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn end(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.device.bind()?;
        let event = self.events[self.pieces % 2];
        // SAFETY: event and stream are live and of one context.
        self.device.check("cuEventRecord", unsafe { result::event::record(event, stream.raw()) })?;
        self.pieces += 1;
        Ok(())
    }
}

/// The host sleeps in a wait, and nobody asks for times.
const FLAGS: u32 =
    sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32 | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

impl Drop for Pace {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            for event in self.events.into_iter().filter(|event| !event.is_null()) {
                // SAFETY: owned, destroyed once.
                let _ = unsafe { result::event::destroy(event) };
            }
        }
    }
}
