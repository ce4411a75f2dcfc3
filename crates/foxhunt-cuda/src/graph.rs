//! A captured piece of work that replays with one call.
//!
//! What changes between replays must live in device memory: arguments are frozen at capture. The graph keeps every
//! buffer named by its launches alive.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use crate::buffer::Allocation;
use crate::calls::CALLS;
use crate::{CudaError, Device, Stream};

/// A replayable graph.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    /// Memory the nodes name, held until the graph is gone.
    kept: Vec<Arc<Allocation>>,
}

// SAFETY: the handles are owned and only used through `&mut self` or on drop, never from two threads at once.
unsafe impl Send for Graph {}

impl Graph {
    pub(crate) fn instantiate(
        device: &Arc<Device>,
        graph: sys::CUgraph,
        mut kept: Vec<Arc<Allocation>>,
    ) -> Result<Self, CudaError> {
        kept.sort_by_key(|a| a.ptr);
        kept.dedup_by_key(|a| a.ptr);
        let mut this = Self { device: Arc::clone(device), graph, exec: std::ptr::null_mut(), kept };
        // SAFETY: `graph` came from an ended capture.
        let exec = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        this.exec = device.check("cuGraphInstantiate", exec)?;
        Ok(this)
    }

    /// Replays it on `stream`.
    ///
    /// # Errors
    /// [`CudaError::Driver`], [`CudaError::DeviceFault`] after an earlier kernel broke the context.
    pub fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.device.bind()?;
        CALLS.graph_launches.add();
        // SAFETY: the executable graph is live, its memory is kept in `kept`, and both belong to one context.
        self.device.check("cuGraphLaunch", unsafe { result::graph::launch(self.exec, stream.raw()) })
    }

    /// Buffers it keeps alive.
    #[must_use]
    pub fn buffers_kept(&self) -> usize {
        self.kept.len()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        // SAFETY: both handles are owned and destroyed once; the driver defers while a replay is running.
        unsafe {
            if !self.exec.is_null() {
                let _ = result::graph::exec_destroy(self.exec);
            }
            let _ = result::graph::destroy(self.graph);
        }
    }
}
