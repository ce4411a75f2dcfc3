//! The device memory an engine takes, known before any of it is taken, and where the replay memory goes.

use foxhunt_core::Settings;
use foxhunt_core::settings::{MemoryFallback, ReplayKind, ReplayStorage};
use foxhunt_market::STATE_DIM;
use foxhunt_ops::env_step::cuda::DeviceMarket;
use foxhunt_ops::gpu_collect::GpuCollector;
use foxhunt_ops::gpu_learner::GpuLearnerConfig;
use foxhunt_ops::gpu_replay::{GpuReplayConfig, GpuSampling};
use foxhunt_ops::mlp::MlpShape;
use foxhunt_ops::ring::cuda::DeviceBatch;
use foxhunt_ops::rollout::cuda::Rollout;

use crate::MLError;
use crate::memory_plan::MemoryPart;

/// Of `free` device bytes those that buffers may take: code, graphs and the granularity of allocations need some.
pub(super) fn usable(free: u64) -> u64 {
    free.saturating_sub((256 << 20) + free / 50)
}

/// Device bytes by part.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The learner's configuration, which its bytes follow from.
    pub(super) learner: GpuLearnerConfig,
    market: u64,
    environments: u64,
    learning: u64,
    batches: u64,
}

/// Where the replay memory goes.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Whether in device memory.
    pub(super) on_device: bool,
    /// Rows.
    pub(super) capacity: usize,
    /// What to tell the user, when it is not what was asked for.
    pub(super) notice: Option<String>,
}

impl Placed {
    /// Where it goes next when, placed here, the device ran out of memory while the engine was built: `error`, or as
    /// `memory_fallback` says.
    ///
    /// # Errors
    /// `error`, when it is of another kind or nothing is left to try.
    pub(super) fn after(&self, settings: &Settings, error: MLError) -> Result<Self, MLError> {
        let batch = settings.learner.batch;
        if !matches!(error, MLError::GpuMemoryError { .. }) || !self.on_device {
            return Err(error);
        }
        match settings.replay.memory_fallback {
            MemoryFallback::Cpu => {
                let capacity = settings.replay.capacity;
                let notice = Some(format!(
                    "{error}: the {capacity} rows of the replay memory are kept in host memory"
                ));
                Ok(Self { on_device: false, capacity, notice })
            }
            MemoryFallback::Shrink if self.capacity / 2 >= batch => {
                let (capacity, asked) = (self.capacity / 2, settings.replay.capacity);
                let notice =
                    Some(format!("{error}: the replay memory has {capacity} rows instead of {asked}"));
                Ok(Self { on_device: true, capacity, notice })
            }
            MemoryFallback::Shrink | MemoryFallback::Error => Err(error),
        }
    }
}

impl Plan {
    pub(super) fn new(settings: &Settings, n_bars: usize) -> Self {
        let network = &settings.network;
        let shape = MlpShape::of(network, STATE_DIM, network.head.into());
        let learner = GpuLearnerConfig {
            learner: settings.learner.clone(),
            guard: settings.guard.clone(),
            noise: network.noisy.then_some(network.noisy_sigma as f32),
            seed: settings.run.seed,
            acting_rows: settings.env.n_envs,
            ..GpuLearnerConfig::new(shape)
        };
        let (n_envs, n_step) = (settings.env.n_envs, settings.learner.n_step);
        let replay = &settings.replay;
        let rollouts = match replay.storage {
            ReplayStorage::Rows => 0,
            ReplayStorage::Compact => Rollout::bytes_for(&learner, network.head, n_step, replay.capacity),
        };
        let environments = GpuCollector::bytes_for(n_envs, n_step, replay.storage).saturating_add(rollouts);
        let q = 4 * (settings.env.n_envs * network.head.n_outputs()) as u64;
        let batch = DeviceBatch::bytes_for(settings.learner.batch, STATE_DIM);
        Self {
            market: DeviceMarket::bytes_for(n_bars),
            environments: environments.saturating_add(q),
            learning: learner.bytes(),
            batches: batch.saturating_mul(settings.learner.accumulation as u64),
            learner,
        }
    }

    /// Everything but the replay memory.
    pub(super) fn fixed(&self) -> u64 {
        [self.market, self.environments, self.learning, self.batches].into_iter().fold(0, u64::saturating_add)
    }

    /// The parts, with the replay memory where it was placed.
    pub(super) fn parts(&self, settings: &Settings, placed: &Placed) -> Vec<MemoryPart> {
        let part = |name, bytes| MemoryPart { name, bytes };
        let mut parts = vec![
            part("market", self.market),
            part("environments", self.environments),
            part("learner", self.learning),
            part("batches", self.batches),
        ];
        if placed.on_device {
            parts.push(part("replay", replay_config(settings, placed.capacity).bytes()));
        }
        parts
    }

    /// Decides where the replay memory goes when `free` device bytes can be had.
    pub(super) fn place_replay(&self, settings: &Settings, free: u64) -> Result<Placed, MLError> {
        let fixed = self.fixed();
        let Some(room) = free.checked_sub(fixed) else {
            return Err(MLError::GpuMemoryError {
                what: "market, environments and learner",
                requested: fixed,
                free,
            });
        };
        let replay = &settings.replay;
        let bytes = |capacity| replay_config(settings, capacity).bytes();
        let (capacity, asked) = (replay.capacity, bytes(replay.capacity));
        if asked <= room {
            return Ok(Placed { on_device: true, capacity, notice: None });
        }
        let told =
            format!("the device cannot hold the replay memory ({asked} bytes asked for, {room} bytes free)");
        match replay.memory_fallback {
            MemoryFallback::Error => {
                Err(MLError::GpuMemoryError { what: "the replay memory", requested: asked, free: room })
            }
            MemoryFallback::Cpu => {
                let notice = Some(format!("{told}: its {capacity} rows are kept in host memory"));
                Ok(Placed { on_device: false, capacity, notice })
            }
            MemoryFallback::Shrink => {
                let halves = std::iter::successors(Some(capacity), |c| Some(c / 2));
                let fits = |c: &usize| bytes(*c) <= room;
                match halves.take_while(|&c| c >= settings.learner.batch).find(fits) {
                    Some(fitting) => {
                        let notice = Some(format!("{told}: it has {fitting} rows instead of {capacity}"));
                        Ok(Placed { on_device: true, capacity: fitting, notice })
                    }
                    None => Err(MLError::GpuMemoryError {
                        what: "the replay memory",
                        requested: asked,
                        free: room,
                    }),
                }
            }
        }
    }
}

/// The replay memory that `settings` describe, with `capacity` rows.
pub(super) fn replay_config(settings: &Settings, capacity: usize) -> GpuReplayConfig {
    let replay = &settings.replay;
    GpuReplayConfig {
        alpha: replay.alpha as f32,
        epsilon: replay.epsilon as f32,
        storage: replay.storage,
        beta_start: replay.beta_start,
        beta_end: replay.beta_max,
        beta_steps: replay.beta_annealing_steps as u64,
        seed: settings.run.seed,
        sampling: match replay.kind {
            ReplayKind::Uniform => GpuSampling::Uniform,
            ReplayKind::Proportional => GpuSampling::Proportional,
            ReplayKind::RankBased => GpuSampling::RankBased { resort_every: replay.resort_every },
        },
        ..GpuReplayConfig::new(capacity, STATE_DIM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(fallback: MemoryFallback) -> Settings {
        let mut settings = Settings::default();
        settings.replay.capacity = 1 << 20;
        settings.replay.memory_fallback = fallback;
        settings
    }

    fn plan(settings: &Settings) -> Plan {
        // The parts of the environments do not matter here.
        let network = &settings.network;
        let shape = MlpShape::of(network, STATE_DIM, network.head.into());
        Plan {
            learner: GpuLearnerConfig::new(shape),
            market: 1000,
            environments: 200,
            learning: 30,
            batches: 4,
        }
    }

    #[test]
    fn a_replay_memory_that_fits_goes_to_the_device() {
        let settings = settings(MemoryFallback::Error);
        let room = replay_config(&settings, 1 << 20).bytes();
        let placed = plan(&settings).place_replay(&settings, 1234 + room).unwrap();
        assert_eq!((placed.on_device, placed.capacity, placed.notice), (true, 1 << 20, None));
    }

    #[test]
    fn one_byte_too_few_takes_the_fallback_and_says_so() {
        let bytes = replay_config(&settings(MemoryFallback::Cpu), 1 << 20).bytes();
        let free = 1234 + bytes - 1;
        let place = |fallback| {
            let settings = settings(fallback);
            plan(&settings).place_replay(&settings, free)
        };
        let host = place(MemoryFallback::Cpu).unwrap();
        assert_eq!((host.on_device, host.capacity), (false, 1 << 20));
        let notice = host.notice.unwrap();
        assert!(notice.contains(&bytes.to_string()) && notice.contains("host memory"), "{notice}");
        let shrunk = place(MemoryFallback::Shrink).unwrap();
        assert_eq!((shrunk.on_device, shrunk.capacity), (true, 1 << 19));
        assert!(shrunk.notice.unwrap().contains("524288"));
        match place(MemoryFallback::Error) {
            Err(MLError::GpuMemoryError { requested, free, .. }) => {
                assert_eq!((requested, free), (bytes, bytes - 1));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Memory that runs out while an engine is built moves the replay memory as the plan would have; nothing else does.
    #[test]
    fn running_out_goes_the_way_of_the_fallback() {
        let short = || MLError::GpuMemoryError { what: "code", requested: 0, free: 7 };
        let placed = |on_device, capacity| Placed { on_device, capacity, notice: None };
        let after = |fallback, from: Placed| from.after(&settings(fallback), short());
        let host = after(MemoryFallback::Cpu, placed(true, 1 << 20)).unwrap();
        assert_eq!((host.on_device, host.capacity), (false, 1 << 20));
        let told = host.notice.clone().unwrap();
        assert!(told.contains("code: 7 bytes free") && told.contains("host memory"), "{told}");
        assert!(host.after(&settings(MemoryFallback::Cpu), short()).is_err());
        let half = after(MemoryFallback::Shrink, placed(true, 1 << 20)).unwrap();
        assert_eq!((half.on_device, half.capacity), (true, 1 << 19));
        assert!(half.notice.unwrap().contains("524288 rows instead of 1048576"));
        let batch = settings(MemoryFallback::Shrink).learner.batch;
        assert!(after(MemoryFallback::Shrink, placed(true, 2 * batch - 1)).is_err());
        assert!(after(MemoryFallback::Error, placed(true, 1 << 20)).is_err());
        let other = MLError::NotEnoughData { have: 0, need: 1 };
        assert!(placed(true, 1 << 20).after(&settings(MemoryFallback::Cpu), other).is_err());
    }

    #[test]
    fn what_cannot_shrink_enough_is_an_error() {
        let settings = settings(MemoryFallback::Shrink);
        let free = 1234 + replay_config(&settings, settings.learner.batch - 1).bytes();
        assert!(matches!(plan(&settings).place_replay(&settings, free), Err(MLError::GpuMemoryError { .. })));
        assert!(matches!(
            plan(&settings).place_replay(&settings, 1233),
            Err(MLError::GpuMemoryError { requested: 1234, .. })
        ));
    }
}
