//! The priority tree in device memory: what kernels are told about it, and its buffers.
//!
//! Everything that changes between two replays of a captured graph, the sample number, beta, the epoch, cursor and
//! counters, lives in [`Control`]. Launches are in [`super::cuda`].

use foxhunt_cuda::{CudaError, DeviceBuffer, DevicePtr, Launch, Stream, shared_struct};

use super::{FAN_OUT, MAX_TOP, mass_scale};

/// Most levels: leaves and sums, enough for 2^32 slots.
pub(crate) const MAX_LEVELS: usize = 6;
shared_struct! {
    /// Device state that kernels advance. Words read together share 16 bytes; words written by different kernels or
    /// polled by other blocks have a line of their own.
    pub struct Control {
        /// Number of the running update; leaves it writes carry it.
        pub epoch: u32,
        /// Bits of the running maximum priority.
        pub max_priority: u32,
        /// Next slot written.
        pub cursor: u32,
        /// Rows stored.
        pub len: u32,
        /// Rows ever accepted.
        pub inserted: u64,
        /// `inserted / capacity`.
        pub turns: u64,
        /// Inserts done; tags the words that insert blocks publish.
        pub inserts: u32,
        pad0: [u32; 23],
        /// Samples that returned rows: the sample number and RNG step.
        pub step: u64,
        /// Beta at `step`.
        pub beta: f32,
        /// Smallest mass of a batch whose weights come later; +infinity otherwise.
        pub deferred_minimum: u32,
        pad1: [u64; 14],
        /// Blocks of the running update that are done.
        pub update_ticket: u32,
        pad2: [u32; 31],
        /// {rows refused, blocks that have looked at their rows}, for even and odd inserts.
        pub meetings: [u64; 2],
        pad3: [u64; 14],
        /// Entries refused for a non-finite TD error.
        pub refused: u64,
        /// Priorities stored as the cap.
        pub capped: u64,
        /// Entries whose slot was overwritten after it was drawn.
        pub stale: u64,
        /// Entries with a slot outside the rows stored.
        pub out_of_range: u64,
        /// Rows refused for a non-finite reward, terminated flag or discount.
        pub refused_rewards: u64,
        /// Rows refused for a non-finite state or next state.
        pub refused_states: u64,
        /// Samples that found no mass.
        pub empty_samples: u64,
        /// Repairs of the order that met more changes than they were made for.
        pub order_overflows: u64,
        pad4: [u64; 8],
        /// Leaves changed since the order was last right.
        pub changes: u32,
        /// Leaves with an older epoch have not changed since then.
        pub sorted_epoch: u32,
        /// Which of the two order buffers holds.
        pub order_parity: u32,
        /// Rows stored when the order was made.
        pub sorted_len: u32,
        /// Blocks of the running merge that are done.
        pub merge_ticket: u32,
        pad5: [u32; 27],
        /// {tag, smallest mass of the batch}.
        pub batch_minimum: u64,
        pad6: [u64; 15],
        /// {tag, smallest mass of the block}.
        pub sample_words: [u64; 128],
        /// {tag, rows accepted by the block}, of blocks that refused some.
        pub insert_words: [u64; 128],
    }
}

impl Control {
    /// The state of an empty memory.
    #[must_use]
    pub fn empty(beta_start: f32) -> Self {
        let zero: Self = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        Self {
            epoch: 1,
            max_priority: 1.0_f32.to_bits(),
            beta: beta_start,
            deferred_minimum: f32::INFINITY.to_bits(),
            ..zero
        }
    }
}

shared_struct! {
    /// The levels, as kernels take them.
    pub(crate) struct Tree {
        levels: [DevicePtr<u64>; 6],
        top_nodes: u32,
        capacity: u32,
        scale: f32,
        pad: u32,
    }
}

shared_struct! {
    /// How a batch is drawn.
    pub(crate) struct SampleParams {
        pub(crate) seed: u64,
        pub(crate) width: u64,
        pub(crate) beta_start: f64,
        pub(crate) beta_end: f64,
        pub(crate) beta_steps: u64,
        pub(crate) batch: u32,
        pub(crate) workers: u32,
        pub(crate) exchange: u32,
        pub(crate) pad: u32,
    }
}

shared_struct! {
    /// How TD errors become priorities.
    pub(crate) struct UpdateParams {
        pub(crate) alpha: f32,
        pub(crate) epsilon: f32,
        pub(crate) batch: u32,
        pub(crate) pad: u32,
    }
}

shared_struct! {
    /// The log of changed leaves; capacity 0 where nobody keeps an order.
    pub(crate) struct Changes {
        old_keys: DevicePtr<u64>,
        capacity: u32,
        pad: u32,
    }
}

/// Nodes of each level, leaves first: at least two levels, the last of at most [`MAX_TOP`] nodes.
#[must_use]
pub fn level_nodes(capacity: usize) -> Vec<usize> {
    let mut nodes = vec![capacity];
    loop {
        let above = nodes[nodes.len() - 1].div_ceil(FAN_OUT);
        nodes.push(above);
        if above <= MAX_TOP {
            return nodes;
        }
    }
}

/// Address of node `i` within its level; the twin of `place` in `tree.cuh`.
#[must_use]
pub const fn place(i: usize) -> usize {
    i & !63 | (i >> 1 & 3) << 4 | (i >> 3 & 7) << 1 | i & 1
}

/// The sums in device memory.
#[derive(Debug)]
pub struct DeviceTree {
    pub(crate) levels: Vec<DeviceBuffer<u64>>,
    pub(crate) nodes: Vec<usize>,
    scale: f32,
}

impl DeviceTree {
    /// A tree of zeros over `capacity` slots.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, capacity: usize) -> Result<Self, CudaError> {
        let nodes = level_nodes(capacity);
        let top = nodes.len() - 1;
        let room = |level: usize| if level == top { MAX_TOP } else { nodes[level].next_multiple_of(FAN_OUT) };
        let levels = (0..=top)
            .map(|level| stream.zeros("sums of priorities", room(level)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { levels, nodes, scale: mass_scale(capacity) })
    }

    /// Bytes of a tree over `capacity` slots.
    #[must_use]
    pub fn bytes_for(capacity: usize) -> u64 {
        level_nodes(capacity).iter().map(|&n| 8 * (n as u64 + MAX_TOP as u64)).sum()
    }

    /// Slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.nodes[0]
    }

    pub(crate) fn levels(&self) -> &[DeviceBuffer<u64>] {
        &self.levels
    }

    pub(crate) fn leaves_mut(&mut self) -> &mut DeviceBuffer<u64> {
        &mut self.levels[0]
    }

    pub(crate) fn view(&self) -> Tree {
        let mut levels = [DevicePtr::NULL; MAX_LEVELS];
        for (to, level) in levels.iter_mut().zip(&self.levels) {
            *to = level.ptr();
        }
        Tree {
            levels,
            top_nodes: self.nodes[self.nodes.len() - 1] as u32,
            capacity: self.capacity() as u32,
            scale: self.scale,
            pad: 0,
        }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        self.levels.iter().fold(launch, |launch, level| launch.keep(level))
    }
}

/// Room for the log of changed leaves; empty where nobody keeps an order.
#[derive(Debug)]
pub struct ChangeLog {
    old_keys: Option<DeviceBuffer<u64>>,
}

impl ChangeLog {
    /// No log.
    #[must_use]
    pub fn none() -> Self {
        Self { old_keys: None }
    }

    /// A log of up to `capacity` leaves.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, capacity: usize) -> Result<Self, CudaError> {
        Ok(Self { old_keys: Some(stream.zeros("changed leaves", capacity)?) })
    }

    pub(crate) fn view(&self) -> Changes {
        match &self.old_keys {
            Some(keys) => Changes { old_keys: keys.ptr(), capacity: keys.len() as u32, pad: 0 },
            None => Changes { old_keys: DevicePtr::NULL, capacity: 0, pad: 0 },
        }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        match &self.old_keys {
            Some(keys) => launch.keep(keys),
            None => launch,
        }
    }
}
