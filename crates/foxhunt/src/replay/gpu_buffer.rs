//! The replay buffer on candle tensors.

use candle_core::{Device, Tensor};
use foxhunt_core::settings::{MemoryFallback, ReplayKind, ReplaySettings, ReplayStorage};
use foxhunt_ops::priority_tree::UpdateReport;
use foxhunt_ops::ring::{BatchBuffers, InsertReport, Rows};

use super::{ReplayCounters, ReplayMemory};
use crate::MLError;
#[cfg(feature = "candle-cuda")]
use crate::candle_cuda::replay::CudaReplay;
use crate::tensors::{check_device, check_shape, device_name, f32s, flags, u32s};

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

/// Prioritised replay on candle tensors: a memory behind shape, dtype and device checks. On the CPU that is
/// [`ReplayMemory`]; with the feature `candle-cuda` it may lie on a GPU, where calls queue work and return, and draw the
/// same rows.
#[derive(Debug)]
pub struct GpuReplayBuffer {
    settings: ReplaySettings,
    seed: u64,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Host(Box<HostReplay>),
    #[cfg(feature = "candle-cuda")]
    Cuda(Box<CudaReplay>),
}

#[derive(Debug)]
struct HostReplay {
    memory: ReplayMemory,
    discounts: Vec<f32>,
}

impl GpuReplayBuffer {
    /// An empty buffer on `device`: the CPU, or a GPU with the feature `candle-cuda`. Draws use seed 0 and rank order is
    /// renewed every 256 updates; [`GpuReplayBuffer::with_seed_and_resort`] sets both.
    ///
    /// # Errors
    /// [`MLError::DeviceUnavailable`] for a device of another build, [`MLError::InvalidArgument`],
    /// [`MLError::HostMemory`], and [`MLError::GpuMemoryError`] with bytes asked and free.
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
        let side = match device {
            Device::Cpu => {
                let memory = ReplayMemory::new(&settings, config.state_dim, seed)?;
                Side::Host(Box::new(HostReplay { memory, discounts: Vec::new() }))
            }
            #[cfg(feature = "candle-cuda")]
            Device::Cuda(device) => {
                Side::Cuda(Box::new(CudaReplay::new(device, &settings, config.state_dim, seed)?))
            }
            other => {
                return Err(MLError::DeviceUnavailable {
                    device: device_name(other),
                    reason: "replay on candle tensors of this device is not part of this build; \
                             use Device::Cpu, the feature candle-cuda, or the CUDA engine"
                        .into(),
                });
            }
        };
        Ok(Self { settings, seed, side })
    }

    /// Rows stored. On a GPU the rows offered, at most the capacity: [`GpuReplayBuffer::counters`] has those refused.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.side {
            Side::Host(host) => host.memory.len(),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.len(),
        }
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.settings.capacity
    }

    /// Values in a state.
    #[must_use]
    pub fn state_dim(&self) -> usize {
        match &self.side {
            Side::Host(host) => host.memory.state_dim(),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.state_dim(),
        }
    }

    /// The device of its tensors.
    #[must_use]
    pub fn device(&self) -> Device {
        match &self.side {
            Side::Host(_) => Device::Cpu,
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.device(),
        }
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether at least `batch` rows are stored: the usual test before training starts. Rows are drawn with
    /// replacement, so sampling itself needs only one.
    #[must_use]
    pub fn can_sample(&self, batch: usize) -> bool {
        self.len() >= batch
    }

    /// The memory behind it, where that is in host memory: beta, snapshot, slices instead of tensors.
    #[must_use]
    pub fn memory(&self) -> Option<&ReplayMemory> {
        match &self.side {
            Side::Host(host) => Some(&host.memory),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(_) => None,
        }
    }

    /// As [`GpuReplayBuffer::memory`], for changing it.
    pub fn memory_mut(&mut self) -> Option<&mut ReplayMemory> {
        match &mut self.side {
            Side::Host(host) => Some(&mut host.memory),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(_) => None,
        }
    }

    /// A memory in host memory with the same rows, priorities and counts, which draws the same next. From a GPU it reads
    /// everything back.
    ///
    /// # Errors
    /// [`MLError::HostMemory`], driver errors on a GPU.
    pub fn host_copy(&self) -> Result<ReplayMemory, MLError> {
        let snapshot = match &self.side {
            Side::Host(host) => host.memory.snapshot(),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.save(&self.settings, self.seed)?,
        };
        let mut copy = ReplayMemory::new(&self.settings, self.state_dim(), self.seed)?;
        copy.restore(&snapshot)?;
        Ok(copy)
    }

    /// Everything refused or capped since the start. On a GPU one readback, for epoch boundaries.
    ///
    /// # Errors
    /// Driver errors on a GPU.
    pub fn counters(&self) -> Result<ReplayCounters, MLError> {
        match &self.side {
            Side::Host(host) => Ok(host.memory.counters()),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => Ok(cuda.counters()?.into()),
        }
    }

    /// Stores rows: states and next_states f32 `[n, state_dim]`, actions u32 `[n]`, rewards f32 `[n]`, dones f32 or u8 `[n]`.
    /// A row with a value that is not finite is refused and counted, see [`GpuReplayBuffer::counters`].
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
        match &mut self.side {
            Side::Host(host) => host.insert(states, next_states, actions, rewards, dones).map(|_| ()),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.insert(states, next_states, actions, rewards, dones),
        }
    }

    /// As [`GpuReplayBuffer::insert_batch`], with what was stored and refused. On a GPU it reads that back, twice.
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
        match &mut self.side {
            Side::Host(host) => host.insert(states, next_states, actions, rewards, dones),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => {
                let before = cuda.counters()?;
                cuda.insert(states, next_states, actions, rewards, dones)?;
                Ok(cuda.inserted_since(&before)?)
            }
        }
    }

    /// Draws `batch` rows in proportion to their priorities, stratified, with replacement. A batch of 0 is empty.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when nothing is stored, [`MLError::NoMass`] when every priority is 0. A GPU sees the latter
    /// too late, as it does when every row offered was refused: then indices are `u32::MAX` and the other tensors undefined.
    pub fn sample_proportional(&mut self, batch: usize) -> Result<GpuBatch, MLError> {
        self.sample(ReplayKind::Proportional, batch)
    }

    /// Draws `batch` rows by the rank of their priorities, stratified, with replacement. A batch of 0 is empty.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::sample_proportional`]; [`MLError::HostMemory`] or [`MLError::GpuMemoryError`] when the
    /// first call cannot have the memory for the order.
    pub fn sample_rank_based(&mut self, batch: usize) -> Result<GpuBatch, MLError> {
        self.sample(ReplayKind::RankBased, batch)
    }

    /// Sets priorities from TD errors: indices u32 `[B]`, td_errors f32 `[B]`.
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`] and [`MLError::DeviceMismatch`]; nothing changes then. On the CPU
    /// [`MLError::RowOutOfRange`] as well; a GPU leaves such an entry out and counts it.
    pub fn update_priorities_gpu(&mut self, indices: &Tensor, td_errors: &Tensor) -> Result<(), MLError> {
        match &mut self.side {
            Side::Host(host) => update_from_tensors(&mut host.memory, indices, td_errors).map(|_| ()),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.update(indices, td_errors),
        }
    }

    /// As [`GpuReplayBuffer::update_priorities_gpu`], with what was applied, refused and capped. On a GPU it reads that back,
    /// twice.
    ///
    /// # Errors
    /// As [`GpuReplayBuffer::update_priorities_gpu`].
    pub fn update_reported(&mut self, indices: &Tensor, td_errors: &Tensor) -> Result<UpdateReport, MLError> {
        match &mut self.side {
            Side::Host(host) => update_from_tensors(&mut host.memory, indices, td_errors),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => {
                let before = cuda.counters()?;
                cuda.update(indices, td_errors)?;
                Ok(cuda.updated_since(&before, indices.elem_count())?)
            }
        }
    }

    fn sample(&mut self, kind: ReplayKind, batch: usize) -> Result<GpuBatch, MLError> {
        match &mut self.side {
            Side::Host(host) => host.sample(kind, batch),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(cuda) => cuda.sample(kind == ReplayKind::RankBased, batch),
        }
    }
}

impl HostReplay {
    fn insert(
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
