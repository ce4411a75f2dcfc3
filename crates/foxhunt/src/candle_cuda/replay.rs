//! Prioritised replay on candle's CUDA tensors: the memory of `foxhunt-ops` between tensors. The contract is that of
//! [`GpuReplayBuffer`](crate::replay::GpuReplayBuffer).

use candle_core::{CudaDevice, DType, Tensor};
use foxhunt_core::settings::ReplaySettings;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DeviceBuffer, Stream};
use foxhunt_ops::OpError;
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuSampling, ReplayCounters, Resort};
use foxhunt_ops::priority_tree::UpdateReport;
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;
use foxhunt_ops::ring::InsertReport;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceRows};

use super::cuda::Queue;
use crate::MLError;
use crate::engine::Snapshot;
use crate::replay::{GpuBatch, device};

#[derive(Debug)]
pub(crate) struct CudaReplay {
    queue: Queue,
    replay: GpuPrioritizedReplay,
    resort_every: u64,
    /// f32, ones: what rows that tell no discount are stored with. Grows with the largest insert.
    ones: Option<Tensor>,
    /// What a draw makes and a batch of tensors does not show. They grow with the largest batch.
    discounts: DeviceBuffer<f32>,
    generations: DeviceBuffer<u64>,
}

impl CudaReplay {
    pub(crate) fn new(
        device: &CudaDevice,
        settings: &ReplaySettings,
        state_dim: usize,
        seed: u64,
    ) -> Result<Self, MLError> {
        let queue = Queue::of(device)?;
        let config = GpuReplayConfig {
            alpha: settings.alpha as f32,
            epsilon: settings.epsilon as f32,
            beta_start: settings.beta_start,
            beta_end: settings.beta_max,
            beta_steps: settings.beta_annealing_steps as u64,
            seed,
            ..GpuReplayConfig::new(settings.capacity, state_dim)
        };
        if config.beta_end < config.beta_start {
            let value = config.beta_end.to_string();
            return Err(MLError::InvalidArgument { what: "beta_max", value, rule: "in [beta_start, 1]" });
        }
        let replay = GpuPrioritizedReplay::new(queue.stream(), config, Cache::user().as_ref())?;
        let (discounts, generations) = room_beside(queue.stream(), 1)?;
        Ok(Self { queue, replay, resort_every: settings.resort_every, ones: None, discounts, generations })
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.replay.offered()).unwrap_or(usize::MAX).min(self.capacity())
    }

    pub(crate) fn capacity(&self) -> usize {
        self.replay.capacity()
    }

    pub(crate) fn state_dim(&self) -> usize {
        self.replay.config().state_dim
    }

    pub(crate) fn device(&self) -> candle_core::Device {
        self.queue.device()
    }

    /// Queues storing rows.
    pub(crate) fn insert(
        &mut self,
        states: &Tensor,
        next_states: &Tensor,
        actions: &Tensor,
        rewards: &Tensor,
        dones: &Tensor,
    ) -> Result<(), MLError> {
        let (queue, dim) = (&self.queue, self.state_dim());
        let actions = queue.input::<u32>("actions", actions, &[None])?;
        let n = actions.len();
        let states = queue.input::<f32>("states", states, &[Some(n), Some(dim)])?;
        let next_states = queue.input::<f32>("next_states", next_states, &[Some(n), Some(dim)])?;
        let rewards = queue.input::<f32>("rewards", rewards, &[Some(n)])?;
        let dones = match dones.dtype() {
            DType::U8 => &dones.ne(0_u8)?.to_dtype(DType::F32)?,
            DType::F32 => dones,
            got => {
                let got = got.as_str().to_owned();
                return Err(MLError::DType { what: "dones", got, expected: "f32 or u8" });
            }
        };
        let dones = queue.input::<f32>("dones", dones, &[Some(n)])?;
        if n == 0 {
            return Ok(());
        }
        let ones = match &self.ones {
            Some(ones) if ones.elem_count() >= n => ones,
            _ => self.ones.insert(Tensor::ones(n.next_power_of_two(), DType::F32, &queue.device())?),
        };
        let discounts = queue.input::<f32>("discounts", ones, &[None])?;
        let rows = DeviceRows {
            states: states.view()?,
            next_states: next_states.view()?,
            actions: actions.view()?,
            rewards: rewards.view()?,
            terminated: dones.view()?,
            discounts: discounts.view()?,
        };
        Ok(self.replay.insert(queue.stream(), &rows, n)?)
    }

    /// Queues a draw.
    pub(crate) fn sample(&mut self, by_rank: bool, batch: usize) -> Result<GpuBatch, MLError> {
        if batch > 1 << 31 {
            let value = batch.to_string();
            return Err(MLError::InvalidArgument { what: "batch", value, rule: "at most 2^31" });
        }
        if batch > 0 && self.replay.offered() == 0 {
            return Err(OpError::NotEnoughRows { have: 0, need: 1 }.into());
        }
        if by_rank {
            self.replay.allow_ranks(self.queue.stream(), self.resort_every, Cache::user().as_ref())?;
        }
        let (queue, dim) = (&self.queue, self.replay.config().state_dim);
        if self.discounts.len() < batch {
            (self.discounts, self.generations) = room_beside(queue.stream(), batch)?;
        }
        let states = queue.output::<f32>("batch states", &[batch, dim])?;
        let next_states = queue.output::<f32>("batch next states", &[batch, dim])?;
        let actions = queue.output::<u32>("batch actions", &[batch])?;
        let rewards = queue.output::<f32>("batch rewards", &[batch])?;
        let dones = queue.output::<f32>("batch terminated flags", &[batch])?;
        let weights = queue.output::<f32>("batch weights", &[batch])?;
        let indices = queue.output::<u32>("batch indices", &[batch])?;
        let mut out = DeviceBatch {
            states: states.view()?,
            next_states: next_states.view()?,
            actions: actions.view()?,
            rewards: rewards.view()?,
            terminated: dones.view()?,
            discounts: self.discounts.share(batch)?,
            weights: weights.view()?,
            indices: indices.view()?,
            generations: self.generations.share(batch)?,
        };
        let sampling = match by_rank {
            true => GpuSampling::RankBased { resort_every: self.resort_every },
            false => GpuSampling::Proportional,
        };
        self.replay.sample_as(queue.stream(), sampling, &mut out, Resort::WhenDue)?;
        Ok(GpuBatch {
            states: states.into_tensor(),
            next_states: next_states.into_tensor(),
            actions: actions.into_tensor(),
            rewards: rewards.into_tensor(),
            dones: dones.into_tensor(),
            weights: weights.into_tensor(),
            indices: indices.into_tensor(),
        })
    }

    /// Queues new priorities.
    pub(crate) fn update(&mut self, indices: &Tensor, td_errors: &Tensor) -> Result<(), MLError> {
        let indices = self.queue.input::<u32>("indices", indices, &[None])?;
        let td_errors = self.queue.input::<f32>("td_errors", td_errors, &[Some(indices.len())])?;
        let update = DeviceUpdate { indices: &indices, td_errors: &td_errors, generations: None, gate: None };
        self.replay.update(self.queue.stream(), &update, indices.len())?;
        Ok(self.replay.maintain(self.queue.stream())?)
    }

    /// One readback.
    pub(crate) fn counters(&self) -> Result<ReplayCounters, MLError> {
        Ok(self.replay.counters(self.queue.stream())?)
    }

    /// What was stored and refused since `before`. One readback.
    pub(crate) fn inserted_since(&self, before: &ReplayCounters) -> Result<InsertReport, MLError> {
        let now = self.counters()?;
        let accepted = (now.inserted - before.inserted) as usize;
        let written = accepted.min(self.capacity());
        Ok(InsertReport {
            first_slot: ((now.inserted - written as u64) % self.capacity() as u64) as usize,
            written,
            accepted,
            refused_rewards: (now.refused_rewards - before.refused_rewards) as usize,
            refused_states: (now.refused_states - before.refused_states) as usize,
        })
    }

    /// What became of `n` new priorities since `before`. One readback.
    pub(crate) fn updated_since(&self, before: &ReplayCounters, n: usize) -> Result<UpdateReport, MLError> {
        let now = self.counters()?;
        let refused = (now.refused - before.refused) as usize;
        let outside = (now.out_of_range - before.out_of_range) as usize;
        let capped = (now.capped - before.capped) as usize;
        Ok(UpdateReport { applied: n - refused - outside, refused, capped, stale: 0 })
    }

    /// Reads everything back.
    pub(crate) fn save(&self, settings: &ReplaySettings, seed: u64) -> Result<Snapshot, MLError> {
        device::save(&self.replay, self.queue.stream(), settings, seed)
    }
}

fn room_beside(stream: &Stream, batch: usize) -> Result<(DeviceBuffer<f32>, DeviceBuffer<u64>), MLError> {
    let room = batch.next_power_of_two();
    Ok((stream.zeros("batch discounts", room)?, stream.zeros("batch generations", room)?))
}

impl From<ReplayCounters> for crate::replay::ReplayCounters {
    fn from(counters: ReplayCounters) -> Self {
        Self {
            refused_rewards: counters.refused_rewards,
            refused_states: counters.refused_states,
            refused_td_errors: counters.refused,
            capped_priorities: counters.capped,
            stale_updates: counters.stale,
            out_of_range_updates: counters.out_of_range,
            empty_samples: counters.empty_samples,
        }
    }
}
