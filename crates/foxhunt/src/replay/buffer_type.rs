//! One face for the kinds of replay, chosen at run time and shared between threads.

use std::sync::Arc;

use candle_core::Tensor;
use foxhunt_core::settings::{ReplayKind, ReplaySettings};
use foxhunt_ops::priority_tree::UpdateReport;
use foxhunt_ops::ring::{BatchBuffers, InsertReport, Rows};
use parking_lot::Mutex;

use super::gpu_buffer::update_from_tensors;
use super::{GpuBatch, GpuReplayBuffer, ReplayMemory};
use crate::MLError;

/// One transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Experience {
    /// f32 `[state_dim]`.
    pub state: Vec<f32>,
    /// Action index.
    pub action: u32,
    /// Reward.
    pub reward: f32,
    /// f32 `[state_dim]`, the state before any reset.
    pub next_state: Vec<f32>,
    /// Terminated. A truncated transition is not.
    pub done: bool,
}

/// A sampled batch.
#[derive(Clone, Debug)]
pub struct BatchSample {
    /// The rows; empty when `gpu_batch` holds them.
    pub experiences: Vec<Experience>,
    /// f32 `[B]`, importance weights over the batch maximum; empty when `gpu_batch` has them on a GPU.
    pub weights: Vec<f32>,
    /// Slots, for an update of priorities; empty when `gpu_batch` has them on a GPU.
    pub indices: Vec<usize>,
    /// The batch as tensors, from the tensor buffer.
    pub gpu_batch: Option<GpuBatch>,
}

/// A replay memory of one of three kinds. Clones share the same memory.
#[derive(Clone, Debug)]
pub enum ReplayBufferType {
    /// Every row alike, in host memory.
    Uniform(Arc<Mutex<ReplayMemory>>),
    /// By priority or by its rank, in host memory.
    Prioritized(Arc<Mutex<ReplayMemory>>),
    /// By priority, batches as tensors.
    GpuPrioritized(Arc<Mutex<GpuReplayBuffer>>),
}

impl ReplayBufferType {
    /// A memory on slices, of the variant that `settings.kind` asks for.
    ///
    /// # Errors
    /// As [`ReplayMemory::new`].
    pub fn new(settings: &ReplaySettings, state_dim: usize, seed: u64) -> Result<Self, MLError> {
        let memory = Arc::new(Mutex::new(ReplayMemory::new(settings, state_dim, seed)?));
        Ok(match settings.kind {
            ReplayKind::Uniform => Self::Uniform(memory),
            ReplayKind::Proportional | ReplayKind::RankBased => Self::Prioritized(memory),
        })
    }

    /// Rows stored.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => memory.lock().len(),
            Self::GpuPrioritized(buffer) => buffer.lock().len(),
        }
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => memory.lock().capacity(),
            Self::GpuPrioritized(buffer) => buffer.lock().capacity(),
        }
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether at least `batch` rows are stored.
    #[must_use]
    pub fn can_sample(&self, batch: usize) -> bool {
        self.len() >= batch
    }

    /// Rows refused since the start because they were not finite (case C11). From a GPU one readback.
    ///
    /// # Errors
    /// Driver errors on a GPU.
    pub fn dropped(&self) -> Result<u64, MLError> {
        let counters = match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => memory.lock().counters(),
            Self::GpuPrioritized(buffer) => buffer.lock().counters()?,
        };
        Ok(counters.refused_rewards + counters.refused_states)
    }

    /// Stores one row. One that is not finite is refused and counted in the report.
    ///
    /// # Errors
    /// [`MLError::Shape`] for a state of another size.
    pub fn add(&self, experience: Experience) -> Result<InsertReport, MLError> {
        self.add_batch(std::slice::from_ref(&experience))
    }

    /// Stores rows in order. Rows that are not finite are refused and counted in the report, which from a GPU is read back:
    /// [`GpuReplayBuffer::insert_batch`] is the quick way there.
    ///
    /// # Errors
    /// [`MLError::Shape`] for a state of another size; nothing is stored then.
    pub fn add_batch(&self, experiences: &[Experience]) -> Result<InsertReport, MLError> {
        match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => {
                let mut memory = memory.lock();
                let rows = columns(experiences, memory.state_dim())?;
                memory.insert(&Rows {
                    states: &rows.states,
                    next_states: &rows.next_states,
                    actions: &rows.actions,
                    rewards: &rows.rewards,
                    terminated: &rows.terminated,
                    discounts: &rows.discounts,
                })
            }
            Self::GpuPrioritized(buffer) => {
                let mut buffer = buffer.lock();
                let (n, dim, device) = (experiences.len(), buffer.state_dim(), buffer.device());
                let rows = columns(experiences, dim)?;
                if n == 0 {
                    return Ok(InsertReport::default());
                }
                buffer.insert_reported(
                    &Tensor::from_vec(rows.states, (n, dim), &device)?,
                    &Tensor::from_vec(rows.next_states, (n, dim), &device)?,
                    &Tensor::from_vec(rows.actions, n, &device)?,
                    &Tensor::from_vec(rows.rewards, n, &device)?,
                    &Tensor::from_vec(rows.terminated, n, &device)?,
                )
            }
        }
    }

    /// Draws `batch` rows with replacement; a batch of 0 is empty.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when nothing is stored, [`MLError::NoMass`] when every priority is 0.
    pub fn sample(&self, batch: usize) -> Result<BatchSample, MLError> {
        let memory = match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => memory,
            Self::GpuPrioritized(buffer) => {
                let batch = buffer.lock().sample_proportional(batch)?;
                let (mut weights, mut indices) = (Vec::new(), Vec::new());
                // From a GPU this would wait; there the tensors are what a caller goes on with.
                if batch.indices.device().is_cpu() {
                    weights = batch.weights.to_vec1()?;
                    indices = batch.indices.to_vec1::<u32>()?.into_iter().map(|i| i as usize).collect();
                }
                return Ok(BatchSample { experiences: Vec::new(), weights, indices, gpu_batch: Some(batch) });
            }
        };
        let mut memory = memory.lock();
        let dim = memory.state_dim();
        let mut rows = BatchBuffers::default();
        memory.sample(batch, &mut rows)?;
        let experiences = (0..batch)
            .map(|b| Experience {
                state: rows.states[b * dim..(b + 1) * dim].to_vec(),
                action: rows.actions[b],
                reward: rows.rewards[b],
                next_state: rows.next_states[b * dim..(b + 1) * dim].to_vec(),
                done: rows.terminated[b] != 0.0,
            })
            .collect();
        let indices = rows.indices.into_iter().map(|i| i as usize).collect();
        Ok(BatchSample { experiences, weights: rows.weights, indices, gpu_batch: None })
    }

    /// Sets priorities from TD errors. Uniform replay has none: the report is empty. To a GPU the entries are copied and the
    /// report is read back: [`ReplayBufferType::update_priorities_gpu`] is the quick way there.
    ///
    /// # Errors
    /// [`MLError::Shape`] and [`MLError::RowOutOfRange`]; nothing changes then.
    pub fn update_priorities(&self, indices: &[usize], td_errors: &[f32]) -> Result<UpdateReport, MLError> {
        let len = self.len();
        let narrow = |&index: &usize| u32::try_from(index).map_err(|_| MLError::RowOutOfRange { index, len });
        let slots = indices.iter().map(narrow).collect::<Result<Vec<u32>, MLError>>()?;
        match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => {
                memory.lock().update_priorities(&slots, td_errors)
            }
            Self::GpuPrioritized(_) if slots.is_empty() && td_errors.is_empty() => {
                Ok(UpdateReport::default())
            }
            Self::GpuPrioritized(buffer) => {
                let mut buffer = buffer.lock();
                let device = buffer.device();
                let (n, m) = (slots.len(), td_errors.len());
                let indices = Tensor::from_vec(slots, n, &device)?;
                buffer.update_reported(&indices, &Tensor::from_slice(td_errors, m, &device)?)
            }
        }
    }

    /// Sets priorities from tensors: indices u32 `[B]`, td_errors f32 `[B]`. Uniform replay has none. On a GPU the work is
    /// queued.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::update_priorities_gpu`].
    pub fn update_priorities_gpu(&self, indices: &Tensor, td_errors: &Tensor) -> Result<(), MLError> {
        match self {
            Self::Uniform(memory) | Self::Prioritized(memory) => {
                update_from_tensors(&mut memory.lock(), indices, td_errors).map(|_| ())
            }
            Self::GpuPrioritized(buffer) => buffer.lock().update_priorities_gpu(indices, td_errors),
        }
    }
}

/// The fields of `experiences` apart, each with a discount of 1.
fn columns(experiences: &[Experience], dim: usize) -> Result<BatchBuffers, MLError> {
    let mut rows = BatchBuffers::new(experiences.len(), dim);
    rows.discounts.fill(1.0);
    for (b, experience) in experiences.iter().enumerate() {
        for (what, from, to) in [
            ("state", &experience.state, &mut rows.states),
            ("next_state", &experience.next_state, &mut rows.next_states),
        ] {
            if from.len() != dim {
                let expected = format!("[{dim}]");
                return Err(MLError::Shape { what, got: vec![from.len()], expected });
            }
            to[b * dim..(b + 1) * dim].copy_from_slice(from);
        }
        rows.actions[b] = experience.action;
        rows.rewards[b] = experience.reward;
        rows.terminated[b] = f32::from(u8::from(experience.done));
    }
    Ok(rows)
}
