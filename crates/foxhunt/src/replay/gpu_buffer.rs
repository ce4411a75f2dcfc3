//! The replay buffer on candle tensors.

use candle_core::{Device, Tensor};
use foxhunt_core::settings::{MemoryFallback, ReplayKind, ReplaySettings, ReplayStorage};
use foxhunt_ops::priority_tree::UpdateReport;
use foxhunt_ops::ring::{BatchBuffers, InsertReport, Rows};

use super::ReplayMemory;
use super::tensors::{check_device, check_shape, device_name, f32s, flags, u32s};
use crate::MLError;

/// What a [`GpuReplayBuffer`] is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuReplayBufferConfig {
    /// Rows, from 1 to 2^31.
    pub capacity: usize,
    /// Values in a state, >= 1.
    pub state_dim: usize,
    /// Power of the priority, in [0, 1].
    pub alpha: f32,
    /// First power of the importance weight, in [0, 1].
    pub beta_start: f32,
    /// Last power of the importance weight, in [beta_start, 1].
    pub beta_max: f32,
    /// Samples over which beta moves.
    pub beta_annealing_steps: usize,
    /// Added to the priority after the power, >= 0.
    pub epsilon: f32,
}

/// A sampled batch. Row b of every tensor belongs together.
#[derive(Clone, Debug)]
pub struct GpuBatch {
    /// f32 `[B, state_dim]`.
    pub states: Tensor,
    /// f32 `[B, state_dim]`.
    pub next_states: Tensor,
    /// u32 `[B]`.
    pub actions: Tensor,
    /// f32 `[B]`.
    pub rewards: Tensor,
    /// f32 `[B]`, 1 where the row is terminated.
    pub dones: Tensor,
    /// f32 `[B]`, importance weights over the batch maximum.
    pub weights: Tensor,
    /// u32 `[B]`, slots, for [`GpuReplayBuffer::update_priorities_gpu`].
    pub indices: Tensor,
}

/// Prioritised replay on candle tensors: [`ReplayMemory`] behind shape, dtype and device checks.
#[derive(Debug)]
pub struct GpuReplayBuffer {
    memory: ReplayMemory,
    discounts: Vec<f32>,
}

impl GpuReplayBuffer {
    /// An empty buffer on `device`, which must be the CPU until the feature `candle-cuda` exists. Draws use seed 0
    /// and rank order is renewed every 256 updates; [`GpuReplayBuffer::with_seed_and_resort`] sets both.
    ///
    /// # Errors
    /// [`MLError::DeviceUnavailable`], [`MLError::InvalidArgument`], [`MLError::HostMemory`].
    pub fn new(config: GpuReplayBufferConfig, device: &Device) -> Result<Self, MLError> {
        Self::with_seed_and_resort(config, device, 0, ReplaySettings::default().resort_every)
    }

    /// As [`GpuReplayBuffer::new`], with the seed of the draws and the updates between two rank orderings.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::new`].
    pub fn with_seed_and_resort(
        config: GpuReplayBufferConfig,
        device: &Device,
        seed: u64,
        resort_every: u64,
    ) -> Result<Self, MLError> {
        if !matches!(device, Device::Cpu) {
            return Err(MLError::DeviceUnavailable {
                device: device_name(device),
                reason: "replay on candle tensors of this device is not part of this build; \
                         use Device::Cpu, or the CUDA engine"
                    .into(),
            });
        }
        let settings = ReplaySettings {
            kind: ReplayKind::Proportional,
            capacity: config.capacity,
            alpha: config.alpha.into(),
            beta_start: config.beta_start.into(),
            beta_max: config.beta_max.into(),
            beta_annealing_steps: config.beta_annealing_steps,
            epsilon: config.epsilon.into(),
            resort_every,
            storage: ReplayStorage::Rows,
            memory_fallback: MemoryFallback::Error,
        };
        Ok(Self { memory: ReplayMemory::new(&settings, config.state_dim, seed)?, discounts: Vec::new() })
    }

    /// Rows stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Whether at least `batch` rows are stored: the usual test before training starts. Rows are drawn with
    /// replacement, so sampling itself needs only one.
    #[must_use]
    pub fn can_sample(&self, batch: usize) -> bool {
        self.len() >= batch
    }

    /// The memory behind it: counters, beta, snapshot.
    #[must_use]
    pub fn memory(&self) -> &ReplayMemory {
        &self.memory
    }

    /// The memory behind it, for slices instead of tensors and for restoring a snapshot.
    pub fn memory_mut(&mut self) -> &mut ReplayMemory {
        &mut self.memory
    }

    /// Stores rows: states and next_states f32 `[n, state_dim]`, actions u32 `[n]`, rewards f32 `[n]`, dones f32 or u8 `[n]`.
    /// A row with a value that is not finite is refused and counted, see [`ReplayMemory::counters`].
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`] and [`MLError::DeviceMismatch`]; nothing is stored then.
    pub fn insert_batch(
        &mut self,
        states: &Tensor,
        next_states: &Tensor,
        actions: &Tensor,
        rewards: &Tensor,
        dones: &Tensor,
    ) -> Result<(), MLError> {
        self.insert_reported(states, next_states, actions, rewards, dones).map(|_| ())
    }

    /// As [`GpuReplayBuffer::insert_batch`], with what was stored and refused.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::insert_batch`].
    pub fn insert_reported(
        &mut self,
        states: &Tensor,
        next_states: &Tensor,
        actions: &Tensor,
        rewards: &Tensor,
        dones: &Tensor,
    ) -> Result<InsertReport, MLError> {
        let dim = self.memory.state_dim();
        check_shape("actions", actions, &[None])?;
        let n = actions.dims()[0];
        check_shape("states", states, &[Some(n), Some(dim)])?;
        check_shape("next_states", next_states, &[Some(n), Some(dim)])?;
        check_shape("rewards", rewards, &[Some(n)])?;
        check_shape("dones", dones, &[Some(n)])?;
        for (what, tensor) in [
            ("states", states),
            ("next_states", next_states),
            ("actions", actions),
            ("rewards", rewards),
            ("dones", dones),
        ] {
            check_device(what, tensor)?;
        }
        let (states, next_states) = (states.contiguous()?, next_states.contiguous()?);
        let (actions, rewards, dones) = (actions.contiguous()?, rewards.contiguous()?, dones.contiguous()?);
        let (state_storage, state_layout) = states.storage_and_layout();
        let (next_storage, next_layout) = next_states.storage_and_layout();
        let (action_storage, action_layout) = actions.storage_and_layout();
        let (reward_storage, reward_layout) = rewards.storage_and_layout();
        let (done_storage, done_layout) = dones.storage_and_layout();
        self.discounts.resize(n, 1.0);
        self.memory.insert(&Rows {
            states: f32s("states", &state_storage, state_layout)?,
            next_states: f32s("next_states", &next_storage, next_layout)?,
            actions: u32s("actions", &action_storage, action_layout)?,
            rewards: f32s("rewards", &reward_storage, reward_layout)?,
            terminated: &flags("dones", &done_storage, done_layout)?,
            discounts: &self.discounts,
        })
    }

    /// Draws `batch` rows in proportion to their priorities, stratified, with replacement. A batch of 0 is empty.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when nothing is stored, [`MLError::NoMass`] when every priority is 0.
    pub fn sample_proportional(&mut self, batch: usize) -> Result<GpuBatch, MLError> {
        self.sample(ReplayKind::Proportional, batch)
    }

    /// Draws `batch` rows by the rank of their priorities, stratified, with replacement. A batch of 0 is empty.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when nothing is stored, [`MLError::HostMemory`] when the first call cannot have
    /// the memory for the order.
    pub fn sample_rank_based(&mut self, batch: usize) -> Result<GpuBatch, MLError> {
        self.sample(ReplayKind::RankBased, batch)
    }

    /// Sets priorities from TD errors: indices u32 `[B]`, td_errors f32 `[B]`.
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`], [`MLError::DeviceMismatch`] and [`MLError::RowOutOfRange`]; nothing
    /// changes then.
    pub fn update_priorities_gpu(&mut self, indices: &Tensor, td_errors: &Tensor) -> Result<(), MLError> {
        self.update_reported(indices, td_errors).map(|_| ())
    }

    /// As [`GpuReplayBuffer::update_priorities_gpu`], with what was applied, refused and capped.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::update_priorities_gpu`].
    pub fn update_reported(&mut self, indices: &Tensor, td_errors: &Tensor) -> Result<UpdateReport, MLError> {
        update_from_tensors(&mut self.memory, indices, td_errors)
    }

    fn sample(&mut self, kind: ReplayKind, batch: usize) -> Result<GpuBatch, MLError> {
        let mut rows = BatchBuffers::default();
        self.memory.sample_as(kind, batch, &mut rows)?;
        let dim = self.memory.state_dim();
        Ok(GpuBatch {
            states: Tensor::from_vec(rows.states, (batch, dim), &Device::Cpu)?,
            next_states: Tensor::from_vec(rows.next_states, (batch, dim), &Device::Cpu)?,
            actions: Tensor::from_vec(rows.actions, batch, &Device::Cpu)?,
            rewards: Tensor::from_vec(rows.rewards, batch, &Device::Cpu)?,
            dones: Tensor::from_vec(rows.terminated, batch, &Device::Cpu)?,
            weights: Tensor::from_vec(rows.weights, batch, &Device::Cpu)?,
            indices: Tensor::from_vec(rows.indices, batch, &Device::Cpu)?,
        })
    }
}

/// An update of `memory` from tensors in host memory.
pub(super) fn update_from_tensors(
    memory: &mut ReplayMemory,
    indices: &Tensor,
    td_errors: &Tensor,
) -> Result<UpdateReport, MLError> {
    check_shape("indices", indices, &[None])?;
    check_shape("td_errors", td_errors, &[Some(indices.dims()[0])])?;
    check_device("indices", indices)?;
    check_device("td_errors", td_errors)?;
    let (indices, td_errors) = (indices.contiguous()?, td_errors.contiguous()?);
    let (index_storage, index_layout) = indices.storage_and_layout();
    let (td_storage, td_layout) = td_errors.storage_and_layout();
    memory.update_priorities(
        u32s("indices", &index_storage, index_layout)?,
        f32s("td_errors", &td_storage, td_layout)?,
    )
}
