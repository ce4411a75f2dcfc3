//! Chains of equal steps, captured once and replayed.
//!
//! A chain of n steps is replayed as graphs of 1, 2, 4 ... steps, the binary digits of n: few graphs serve every length.
//! The very first step runs uncaptured, so that all code is on the device before anything is captured. Where the driver has
//! no memory for a graph, shorter ones do, and where it has none for any, steps are queued one by one: slower, the same.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use foxhunt_cuda::{Graph, Stream};

use crate::MLError;

/// Most steps of one graph. A power of two.
pub(super) const LONGEST: u32 = 256;
/// Most launches of one graph, whose memory grows with them.
const MOST_LAUNCHES: usize = 8192;

/// The graphs of one kind of step.
#[derive(Debug)]
pub(super) struct Chain {
    /// Most steps of one graph of this chain: a power of two, or 0 when the device has no memory for graphs.
    longest: u32,
    /// By number of steps.
    graphs: BTreeMap<u32, Graph>,
    begun: bool,
    /// Steps that replays did since the last [`Chain::take_replayed`].
    replayed: u64,
}

impl Chain {
    /// A chain of steps that are `launches` launches each.
    pub(super) fn new(launches: usize) -> Self {
        let most = (MOST_LAUNCHES / launches.max(1)).clamp(1, LONGEST as usize);
        Self { longest: 1 << most.ilog2(), graphs: BTreeMap::new(), begun: false, replayed: 0 }
    }

    /// Queues `steps` steps. `queue` queues as many as it is told, which follow one another; it is called for the first step ever,
    /// while a graph is captured, and where there is no memory for any.
    ///
    /// # Errors
    /// Those of `queue` and of the driver.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        steps: u32,
        queue: &mut dyn FnMut(&Stream, u32) -> Result<(), MLError>,
    ) -> Result<(), MLError> {
        let mut left = steps;
        if left > 0 && !self.begun {
            queue(stream, 1)?;
            self.begun = true;
            left -= 1;
        }
        while left > 0 {
            if self.longest == 0 {
                queue(stream, 1)?;
                left -= 1;
                continue;
            }
            let length = self.longest.min(1 << left.ilog2());
            match self.replay(stream, length, queue) {
                Ok(()) => {
                    self.replayed += u64::from(length);
                    left -= length;
                }
                Err(MLError::GpuMemoryError { free, .. }) => {
                    self.graphs.remove(&length);
                    self.longest = length / 2;
                    tracing::warn!(
                        "{free} bytes of device memory are too few for graphs of {length} steps: {} from here on",
                        if self.longest > 0 {
                            "shorter ones are used"
                        } else {
                            "steps are queued one by one"
                        }
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queues the graph of `length` steps, captured the first time. Nothing was queued when it fails for want of memory.
    fn replay(
        &mut self,
        stream: &Stream,
        length: u32,
        queue: &mut dyn FnMut(&Stream, u32) -> Result<(), MLError>,
    ) -> Result<(), MLError> {
        let graph = match self.graphs.entry(length) {
            Entry::Occupied(captured) => captured.into_mut(),
            Entry::Vacant(place) => place.insert(stream.capture(|s| queue(s, length))?),
        };
        Ok(graph.launch(stream)?)
    }

    /// Steps that graphs did since the last call: what the host has not counted while they were queued.
    pub(super) fn take_replayed(&mut self) -> u64 {
        std::mem::take(&mut self.replayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_as_long_as_their_launches_allow() {
        let longest = [1, 10, 32, 33, 1000, 8192, 1 << 20].map(|launches| Chain::new(launches).longest);
        assert_eq!(longest, [256, 256, 256, 128, 8, 1, 1]);
    }
}
