//! A request to stop, from a signal handler or another thread.
//!
//! The trainer looks at it between chunks of an epoch, a backtest at every bar. The trainer then finishes what must
//! be whole, saves and returns; a backtest is dropped, and done again by who resumes. Catching signals and choosing
//! exit codes is the binary's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Something that can ask the trainer to stop.
pub trait StopSignal: Sync {
    /// Whether to save and stop now. Asked often and from several threads, so it must be cheap.
    fn stop_requested(&self) -> bool;
}

/// Never asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverStop;

impl StopSignal for NeverStop {
    fn stop_requested(&self) -> bool {
        false
    }
}

macro_rules! atomic_stop {
    ($($atomic:ty => $none:expr),+) => {$(
        impl StopSignal for $atomic {
            fn stop_requested(&self) -> bool {
                self.load(Ordering::Relaxed) != $none
            }
        }
    )+};
}
atomic_stop!(AtomicBool => false, AtomicU8 => 0, AtomicUsize => 0);

impl<T: StopSignal + ?Sized> StopSignal for &T {
    fn stop_requested(&self) -> bool {
        (**self).stop_requested()
    }
}

impl<T: StopSignal + Send + ?Sized> StopSignal for Arc<T> {
    fn stop_requested(&self) -> bool {
        (**self).stop_requested()
    }
}
