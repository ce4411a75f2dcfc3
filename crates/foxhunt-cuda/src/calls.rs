//! Counts driver calls by what they cost, so that "no synchronisation in the hot path" is a number.
//!
//! The counts are of the whole process: a hidden call in a helper thread shows too. It times nothing.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),+ $(,)?) => {
        /// Driver calls since the program started, or between two readings when subtracted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DriverCalls { $($(#[$doc])* pub $field: u64),+ }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $field: Counter),+ }

        pub(crate) static CALLS: Counters = Counters { $($field: Counter(AtomicU64::new(0))),+ };

        /// The counts up to now.
        #[must_use]
        pub fn driver_calls() -> DriverCalls {
            DriverCalls { $($field: CALLS.$field.0.load(Ordering::Relaxed)),+ }
        }

        impl std::ops::Sub for DriverCalls {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field),+ }
            }
        }
    };
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

counters!(
    /// Calls that wait for the device.
    synchronisations,
    /// Waits for work that was queued two pieces earlier, so that the host does not run far ahead ([`crate::Pace`]).
    pacing_waits,
    /// Copies from device to host memory.
    copies_to_host,
    /// Copies from host to device memory.
    copies_to_device,
    /// Allocations of device or pinned memory.
    allocations,
    /// Releases of device or pinned memory.
    frees,
    /// Fills of device memory.
    memsets,
    /// Kernel launches, captured ones included.
    launches,
    /// Graph launches.
    graph_launches,
);
