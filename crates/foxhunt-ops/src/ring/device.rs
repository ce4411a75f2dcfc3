//! Rows in device memory, whole and compact: what kernels are told about them, and their buffers.
//!
//! Row layout: [`RowLayout`] and [`super::compact`], which `ring.cuh` and `compact.cuh` repeat. Launches are in [`super::cuda`].

use std::sync::Arc;

use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::{CudaError, DeviceBuffer, DevicePtr, Launch, Stream, shared_struct};
use foxhunt_market::STATE_DIM;

use super::RowLayout;
use super::compact::{COMPACT_WORDS, CompactRow, discounts};
use crate::env_step::cuda::DeviceMarket;

shared_struct! {
    /// The store, as kernels take it. All but `words` is for compact rows.
    pub(crate) struct Ring {
        words: DevicePtr<u32>,
        features: DevicePtr<f32>,
        discounts: DevicePtr<f32>,
        last_bar: u32,
        pad: u32,
    }
}

shared_struct! {
    /// Fields of rows to insert, as kernels take them. Compact rows stand whole at `states`; the other fields are null.
    pub(crate) struct Rows {
        states: DevicePtr<f32>,
        next_states: DevicePtr<f32>,
        actions: DevicePtr<u32>,
        rewards: DevicePtr<f32>,
        terminated: DevicePtr<f32>,
        discounts: DevicePtr<f32>,
    }
}

shared_struct! {
    /// Fields of a sampled batch, as kernels take them; the first six as in `Rows`.
    pub(crate) struct Batch {
        states: DevicePtr<f32>,
        next_states: DevicePtr<f32>,
        actions: DevicePtr<u32>,
        rewards: DevicePtr<f32>,
        terminated: DevicePtr<f32>,
        discounts: DevicePtr<f32>,
        weights: DevicePtr<f32>,
        indices: DevicePtr<u32>,
        generations: DevicePtr<u64>,
    }
}

/// Rows to insert, each field apart, in device memory.
#[derive(Debug)]
pub struct DeviceRows {
    /// f32 `[n, state_dim]`, row-major.
    pub states: DeviceBuffer<f32>,
    /// f32 `[n, state_dim]`, row-major; the state before any reset.
    pub next_states: DeviceBuffer<f32>,
    /// u32 `[n]`.
    pub actions: DeviceBuffer<u32>,
    /// f32 `[n]`, n-step rewards.
    pub rewards: DeviceBuffer<f32>,
    /// f32 `[n]`, 1 for a terminated row, else 0.
    pub terminated: DeviceBuffer<f32>,
    /// f32 `[n]`, gamma^n_eff.
    pub discounts: DeviceBuffer<f32>,
}

impl DeviceRows {
    /// Zeroed room for `n` rows.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, n: usize, state_dim: usize) -> Result<Self, CudaError> {
        Ok(Self {
            states: stream.zeros("row states", [n, state_dim])?,
            next_states: stream.zeros("row next states", [n, state_dim])?,
            actions: stream.zeros("row actions", n)?,
            rewards: stream.zeros("row rewards", n)?,
            terminated: stream.zeros("row terminated flags", n)?,
            discounts: stream.zeros("row discounts", n)?,
        })
    }

    /// Room for this many rows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.actions.len()
    }

    /// Copies rows from host memory to the first places.
    ///
    /// # Errors
    /// [`CudaError::Length`] when they do not fit, and those of [`Stream::upload`].
    pub fn upload(&mut self, stream: &Stream, rows: &super::Rows<'_>) -> Result<(), CudaError> {
        stream.upload(&mut self.states, rows.states)?;
        stream.upload(&mut self.next_states, rows.next_states)?;
        stream.upload(&mut self.actions, rows.actions)?;
        stream.upload(&mut self.rewards, rows.rewards)?;
        stream.upload(&mut self.terminated, rows.terminated)?;
        stream.upload(&mut self.discounts, rows.discounts)
    }

    pub(crate) fn holds(&self, n: usize, state_dim: usize) -> Result<(), CudaError> {
        self.states.holds(n.saturating_mul(state_dim))?;
        self.next_states.holds(n.saturating_mul(state_dim))?;
        self.actions.holds(n)?;
        self.rewards.holds(n)?;
        self.terminated.holds(n)?;
        self.discounts.holds(n)
    }

    /// Addresses from row `first` on.
    pub(crate) fn view(&self, first: usize, state_dim: usize) -> Rows {
        Rows {
            states: self.states.ptr().offset(first * state_dim),
            next_states: self.next_states.ptr().offset(first * state_dim),
            actions: self.actions.ptr().offset(first),
            rewards: self.rewards.ptr().offset(first),
            terminated: self.terminated.ptr().offset(first),
            discounts: self.discounts.ptr().offset(first),
        }
    }
}

/// A sampled batch in device memory, made once and filled again and again.
#[derive(Debug)]
pub struct DeviceBatch {
    /// f32 `[batch, state_dim]`, row-major.
    pub states: DeviceBuffer<f32>,
    /// f32 `[batch, state_dim]`, row-major.
    pub next_states: DeviceBuffer<f32>,
    /// u32 `[batch]`.
    pub actions: DeviceBuffer<u32>,
    /// f32 `[batch]`.
    pub rewards: DeviceBuffer<f32>,
    /// f32 `[batch]`, 0 or 1.
    pub terminated: DeviceBuffer<f32>,
    /// f32 `[batch]`, gamma^n_eff.
    pub discounts: DeviceBuffer<f32>,
    /// f32 `[batch]`, importance weights over the batch maximum.
    pub weights: DeviceBuffer<f32>,
    /// u32 `[batch]`, slots; `u32::MAX` where nothing could be drawn.
    pub indices: DeviceBuffer<u32>,
    /// u64 `[batch]`, generation of each slot when it was drawn.
    pub generations: DeviceBuffer<u64>,
}

impl DeviceBatch {
    /// Zeroed room for `batch` rows.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, batch: usize, state_dim: usize) -> Result<Self, CudaError> {
        Ok(Self {
            states: stream.zeros("batch states", [batch, state_dim])?,
            next_states: stream.zeros("batch next states", [batch, state_dim])?,
            actions: stream.zeros("batch actions", batch)?,
            rewards: stream.zeros("batch rewards", batch)?,
            terminated: stream.zeros("batch terminated flags", batch)?,
            discounts: stream.zeros("batch discounts", batch)?,
            weights: stream.zeros("batch weights", batch)?,
            indices: stream.zeros("batch indices", batch)?,
            generations: stream.zeros("batch generations", batch)?,
        })
    }

    /// Device bytes of `batch` rows.
    #[must_use]
    pub fn bytes_for(batch: usize, state_dim: usize) -> u64 {
        let words = 2 * state_dim as u64 + 8;
        words.saturating_mul(4).saturating_mul(batch as u64)
    }

    /// Copies a batch of as many rows from host memory.
    ///
    /// # Errors
    /// [`CudaError::Length`] for another number of rows, and those of [`Stream::upload`].
    pub fn upload(&mut self, stream: &Stream, rows: &super::BatchBuffers) -> Result<(), CudaError> {
        stream.upload(&mut self.states, &rows.states)?;
        stream.upload(&mut self.next_states, &rows.next_states)?;
        stream.upload(&mut self.actions, &rows.actions)?;
        stream.upload(&mut self.rewards, &rows.rewards)?;
        stream.upload(&mut self.terminated, &rows.terminated)?;
        stream.upload(&mut self.discounts, &rows.discounts)?;
        stream.upload(&mut self.weights, &rows.weights)?;
        stream.upload(&mut self.indices, &rows.indices)?;
        stream.upload(&mut self.generations, &rows.generations)
    }

    /// Rows in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the batch to host memory: many copies and waits, for tests and tools.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn download(&self, stream: &Stream) -> Result<super::BatchBuffers, CudaError> {
        Ok(super::BatchBuffers {
            states: stream.download(&self.states)?,
            next_states: stream.download(&self.next_states)?,
            actions: stream.download(&self.actions)?,
            rewards: stream.download(&self.rewards)?,
            terminated: stream.download(&self.terminated)?,
            discounts: stream.download(&self.discounts)?,
            weights: stream.download(&self.weights)?,
            indices: stream.download(&self.indices)?,
            generations: stream.download(&self.generations)?,
        })
    }

    pub(crate) fn view(&self) -> Batch {
        Batch {
            states: self.states.ptr(),
            next_states: self.next_states.ptr(),
            actions: self.actions.ptr(),
            rewards: self.rewards.ptr(),
            terminated: self.terminated.ptr(),
            discounts: self.discounts.ptr(),
            weights: self.weights.ptr(),
            indices: self.indices.ptr(),
            generations: self.generations.ptr(),
        }
    }

    /// Adds every field to what a launch keeps alive.
    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch
            .keep(&self.states)
            .keep(&self.next_states)
            .keep(&self.actions)
            .keep(&self.rewards)
            .keep(&self.terminated)
            .keep(&self.discounts)
            .keep(&self.weights)
            .keep(&self.indices)
            .keep(&self.generations)
    }
}

/// Compact rows to insert, in device memory.
#[derive(Debug)]
pub struct DeviceCompactRows {
    /// u32 `[n, 8]`; see [`super::compact`].
    pub words: DeviceBuffer<u32>,
}

impl DeviceCompactRows {
    /// Zeroed room for `n` rows.
    ///
    /// # Errors
    /// Those of [`Stream::zeros`].
    pub fn zeros(stream: &Stream, n: usize) -> Result<Self, CudaError> {
        Ok(Self { words: stream.zeros("compact rows", [n, COMPACT_WORDS])? })
    }

    /// Device bytes of `n` rows.
    #[must_use]
    pub fn bytes_for(n: usize) -> u64 {
        n as u64 * size_of::<CompactRow>() as u64
    }

    /// Copies rows from host memory to the first places.
    ///
    /// # Errors
    /// [`CudaError::Length`] when they do not fit, and those of [`Stream::upload`].
    pub fn upload(&mut self, stream: &Stream, rows: &[CompactRow]) -> Result<(), CudaError> {
        stream.upload(&mut self.words, rows.as_flattened())
    }

    /// A copy of the first `n` rows in host memory. Waits.
    ///
    /// # Errors
    /// [`CudaError::Length`] when there are fewer, and those of [`Stream::download_range`].
    pub fn download(&self, stream: &Stream, n: usize) -> Result<Vec<CompactRow>, CudaError> {
        let words = stream.download_range(&self.words, 0, n.saturating_mul(COMPACT_WORDS))?;
        Ok(words.as_chunks().0.to_vec())
    }

    /// Addresses from row `first` on.
    pub(crate) fn view(&self, first: usize) -> Rows {
        let address = self.words.ptr().offset(first * COMPACT_WORDS).address;
        let mut rows = Rows::NULL;
        rows.states.address = address;
        rows
    }
}

/// Room for rows of either form.
#[derive(Debug)]
pub(crate) enum RowsRoom {
    Whole(Box<DeviceRows>),
    Compact(DeviceCompactRows),
}

impl RowsRoom {
    /// Zeroed room for `n` rows of environments.
    pub(crate) fn zeros(stream: &Stream, n: usize, storage: ReplayStorage) -> Result<Self, CudaError> {
        Ok(match storage {
            ReplayStorage::Rows => Self::Whole(Box::new(DeviceRows::zeros(stream, n, STATE_DIM)?)),
            ReplayStorage::Compact => Self::Compact(DeviceCompactRows::zeros(stream, n)?),
        })
    }

    pub(crate) fn incoming(&self) -> Incoming<'_> {
        match self {
            Self::Whole(rows) => Incoming::Whole(rows),
            Self::Compact(rows) => Incoming::Compact(rows),
        }
    }
}

/// Rows of either form on their way into a ring.
#[derive(Clone, Copy)]
pub(crate) enum Incoming<'a> {
    Whole(&'a DeviceRows),
    Compact(&'a DeviceCompactRows),
}

impl Incoming<'_> {
    pub(crate) fn holds(self, n: usize, state_dim: usize) -> Result<(), CudaError> {
        match self {
            Self::Whole(rows) => rows.holds(n, state_dim),
            Self::Compact(rows) => rows.words.holds(n.saturating_mul(COMPACT_WORDS)),
        }
    }

    /// Addresses from row `first` on.
    pub(crate) fn view(self, first: usize, state_dim: usize) -> Rows {
        match self {
            Self::Whole(rows) => rows.view(first, state_dim),
            Self::Compact(rows) => rows.view(first),
        }
    }

    /// Adds every field to what a launch keeps alive.
    pub(crate) fn keep<'k>(self, launch: Launch<'k>) -> Launch<'k> {
        match self {
            Self::Whole(rows) => launch
                .keep(&rows.states)
                .keep(&rows.next_states)
                .keep(&rows.actions)
                .keep(&rows.rewards)
                .keep(&rows.terminated)
                .keep(&rows.discounts),
            Self::Compact(rows) => launch.keep(&rows.words),
        }
    }
}

/// Where compact rows on a device find the rest of a state.
#[derive(Debug)]
pub struct DeviceSource {
    market: Arc<DeviceMarket>,
    /// f32 `[256]`: gamma^k at k - 1.
    discounts: DeviceBuffer<f32>,
}

impl DeviceSource {
    /// The source of states that environments of `market` show, under a discount of `gamma` a step.
    ///
    /// # Errors
    /// Those of [`Stream::upload_new`].
    pub fn new(stream: &Stream, market: Arc<DeviceMarket>, gamma: f64) -> Result<Self, CudaError> {
        Ok(Self { market, discounts: stream.upload_new("discounts of windows", &discounts(gamma))? })
    }
}

/// The store of a ring in device memory: u32 words [capacity, stride].
#[derive(Debug)]
pub struct DeviceRing {
    pub(crate) words: DeviceBuffer<u32>,
    pub(crate) layout: RowLayout,
    /// Words of a row.
    pub(crate) stride: usize,
    source: Option<DeviceSource>,
}

impl DeviceRing {
    /// A store of zeros: whole rows, or with a `source` compact ones.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] with the bytes.
    pub fn zeros(
        stream: &Stream,
        capacity: usize,
        state_dim: usize,
        source: Option<DeviceSource>,
    ) -> Result<Self, CudaError> {
        let layout = RowLayout { state_dim };
        let stride = if source.is_some() { COMPACT_WORDS } else { layout.stride() };
        Ok(Self { words: stream.zeros("replay rows", [capacity, stride])?, layout, stride, source })
    }

    pub(crate) fn is_compact(&self) -> bool {
        self.source.is_some()
    }

    pub(crate) fn view(&self) -> Ring {
        let words = self.words.ptr();
        let Some(DeviceSource { market, discounts }) = &self.source else {
            return Ring { words, ..Ring::NULL };
        };
        let last_bar = market.len().saturating_sub(1) as u32;
        Ring { words, features: market.features(), discounts: discounts.ptr(), last_bar, pad: 0 }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        let launch = launch.keep(&self.words);
        match &self.source {
            Some(source) => source.market.keep(launch).keep(&source.discounts),
            None => launch,
        }
    }
}

impl Ring {
    const NULL: Self = Self {
        words: DevicePtr::NULL,
        features: DevicePtr::NULL,
        discounts: DevicePtr::NULL,
        last_bar: 0,
        pad: 0,
    };
}

impl Rows {
    const NULL: Self = Self {
        states: DevicePtr::NULL,
        next_states: DevicePtr::NULL,
        actions: DevicePtr::NULL,
        rewards: DevicePtr::NULL,
        terminated: DevicePtr::NULL,
        discounts: DevicePtr::NULL,
    };
}
