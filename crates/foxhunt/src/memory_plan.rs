//! How much memory a run will take, part by part, before any of it is taken.
//!
//! The figures are worked out from the settings and the number of bars alone, so they can be shown without starting
//! anything. Parts stay for the whole run. Phases come one after the other (features are computed, a checkpoint is
//! copied, a policy is judged), so only the largest of them counts. The bars themselves are there already when a
//! plan can be made. Who chooses a device says what it holds: [`MemoryPlan::moved_to_device`].

use std::fmt;

use foxhunt_core::Settings;
use foxhunt_core::settings::{NanPolicy, ReplayStorage};
use foxhunt_market::{N_MARKET_FEATURES, STATE_DIM};
use foxhunt_ops::env_step::EnvState;
use foxhunt_ops::gpu_replay;
use foxhunt_ops::mlp::MlpLayout;
use foxhunt_ops::ring::{CompactRow, RowLayout};

use crate::MLError;
use crate::evaluation::FillRecord;
use crate::host_memory;
use crate::policy::network_layout;
use crate::replay::ReplayMemory;

/// Columns that activations and packed weights are padded to.
const PANEL: u64 = 16;
/// Rows that a block of a batch is padded to at most.
const BLOCK_ROWS: u64 = 128;
/// f64 columns that live while features are computed: five logarithms, eight features, and as many windows at work.
const FEATURE_COLUMNS: u64 = 21;
/// Equity, position and action of one bar of a backtest.
const BACKTEST_BAR: u64 = 8 + 8 + 1;
/// Stack and allocator of a thread.
const THREAD_BYTES: u64 = 8 << 20;

const REPLAY: &str = "replay";
const CHECKPOINT: &str = "checkpoint copy";

/// One part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// For what.
    pub name: &'static str,
    /// How much; `u64::MAX` when the number does not fit.
    pub bytes: u64,
}

/// What a run will take beside the program and the bars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Host memory held for the whole run.
    pub parts: Vec<MemoryPart>,
    /// Host memory held for a while, one after the other.
    pub phases: Vec<MemoryPart>,
    /// Device memory.
    pub device: Vec<MemoryPart>,
}

/// The plan of a run over `n_bars` bars on the engine of this machine's processor cores.
#[must_use]
pub fn plan(settings: &Settings, n_bars: usize) -> MemoryPlan {
    let layout = network_layout(settings);
    let (bars, envs) = (n_bars as u64, settings.env.n_envs as u64);
    let threads = match settings.run.threads {
        0 => rayon::current_num_threads() as u64,
        threads => threads as u64,
    };
    let Network { weights, packed, forward_row, update_row } = Network::of(&layout);
    // Noise gives every weight a scale, and draws weights for three passes of an update and for acting.
    let (parameters, drawn) = match settings.network.noisy {
        true => (times(2, weights), times(4, weights.saturating_add(packed))),
        false => (weights, 0),
    };
    let state = 4 * STATE_DIM as u64;
    let row = 2 * state + 16;

    let (batch, subs) = (settings.learner.batch as u64, settings.learner.accumulation as u64);
    let n_step = settings.learner.n_step as u64;
    let good = if settings.guard.nan_policy == NanPolicy::Rollback { times(4, parameters) } else { 0 };
    // Windows of n steps, then what all environments hand over when their episodes end together.
    let env = size_of::<EnvState>() as u64
        + 2 * state
        + 4 * layout.n_outputs() as u64
        + 2 * n_step * (state + 8)
        + 2 * n_step * (row + size_of::<CompactRow>() as u64);
    let acting = times(envs.next_multiple_of(64), forward_row);
    let updating = times(batch.next_multiple_of(BLOCK_ROWS), update_row);

    let replay = ReplayMemory::bytes_of_market(&settings.replay);
    let stored = match settings.replay.storage {
        ReplayStorage::Rows => row,
        ReplayStorage::Compact => size_of::<CompactRow>() as u64,
    };
    // With priority and place in the order of ranks.
    let stored = times(settings.replay.capacity as u64, stored + 8);
    // The learner's copies on their way out or in, with a learner to try them on.
    let learner =
        times(13, parameters).saturating_add(times(2, packed)).saturating_add(drawn).saturating_add(good);
    let fill = size_of::<FillRecord>() as u64;
    let parts = vec![
        part("program", times(threads, THREAD_BYTES).saturating_add(32 << 20)),
        part("market", times(bars, 24)),
        part("features", times(bars, 4 * N_MARKET_FEATURES as u64)),
        part("environments", times(envs, env)),
        part(REPLAY, replay),
        part(
            "network",
            times(6, parameters).saturating_add(times(2, packed)).saturating_add(drawn).saturating_add(good),
        ),
        part("batches", times(times(batch, subs), row + 32)),
        part("activations", acting.saturating_add(updating)),
    ];
    let phases = vec![
        part("feature columns", times(bars, 8 * FEATURE_COLUMNS)),
        part(CHECKPOINT, stored.saturating_add(learner)),
        // Agent and baselines stay, random policies run one a thread; a policy that trades at every bar is rare.
        part(
            "evaluation",
            times(bars, (4 + threads) * BACKTEST_BAR + 24 + fill)
                .saturating_add(weights)
                .saturating_add(packed),
        ),
    ];
    MemoryPlan { parts, phases, device: Vec::new() }
}

impl MemoryPlan {
    /// The plan of the same run on an engine that keeps `device` in device memory. The host holds the market, which it
    /// evaluates on, and for the time of a checkpoint a copy of everything else.
    #[must_use]
    pub fn moved_to_device(mut self, device: Vec<MemoryPart>) -> Self {
        let replay_moves = device.iter().any(|part| part.name == REPLAY);
        let moves = |name: &str| match name {
            REPLAY => replay_moves,
            "environments" | "network" | "batches" | "activations" => true,
            _ => false,
        };
        // Rows come back a block at a time, and go into what is saved at once.
        let block =
            if replay_moves { RowLayout { state_dim: STATE_DIM }.bytes(gpu_replay::BLOCK_ROWS) } else { 0 };
        let environments =
            self.parts.iter().find(|part| part.name == "environments").map_or(0, |part| part.bytes);
        self.parts.retain(|part| !moves(part.name));
        for phase in self.phases.iter_mut().filter(|phase| phase.name == CHECKPOINT) {
            phase.bytes = phase.bytes.saturating_add(environments).saturating_add(block);
        }
        self.device = device;
        self
    }

    /// Host memory at the fullest moment, bytes.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        let longest = self.phases.iter().map(|part| part.bytes).max().unwrap_or(0);
        sum(&self.parts).saturating_add(longest)
    }

    /// Device memory, bytes.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        sum(&self.device)
    }

    /// Refuses a plan that this process cannot have now. Where the system does not tell what is free, nothing is
    /// refused.
    ///
    /// # Errors
    /// [`MLError::HostMemory`] with the bytes asked for and those free.
    pub fn check(&self) -> Result<(), MLError> {
        self.check_against(host_memory::free())
    }

    /// How many such runs fit into what is free now; none where the system does not tell.
    #[must_use]
    pub fn fitting(&self) -> Option<usize> {
        let times = host_memory::free()? / self.host_bytes().max(1);
        Some(usize::try_from(times).unwrap_or(usize::MAX))
    }

    fn check_against(&self, free: Option<u64>) -> Result<(), MLError> {
        let bytes = self.host_bytes();
        match free {
            Some(limit) if bytes > limit => Err(MLError::HostMemory { what: "the run", bytes, free }),
            _ => Ok(()),
        }
    }
}

/// One line: the total and its largest parts.
impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bytes(self.host_bytes()))?;
        let longest = self.phases.iter().max_by_key(|part| part.bytes);
        largest(f, self.parts.iter().chain(longest))?;
        if !self.device.is_empty() {
            write!(f, "; on the device {}", Bytes(self.device_bytes()))?;
            largest(f, self.device.iter())?;
        }
        Ok(())
    }
}

fn largest<'a>(f: &mut fmt::Formatter<'_>, parts: impl Iterator<Item = &'a MemoryPart>) -> fmt::Result {
    const SHOWN: usize = 3;
    let mut parts: Vec<_> = parts.collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for (i, MemoryPart { name, bytes }) in parts.into_iter().take(SHOWN).enumerate() {
        write!(f, "{}{name} {}", if i == 0 { " (" } else { ", " }, Bytes(*bytes))?;
    }
    f.write_str(")")
}

/// A number of bytes for people.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        match bytes {
            u64::MAX => f.write_str("more bytes than can be counted"),
            _ if bytes < 10 << 20 => write!(f, "{} KiB", bytes.div_ceil(1 << 10)),
            _ if bytes < 10 << 30 => write!(f, "{} MiB", bytes.div_ceil(1 << 20)),
            _ => write!(f, "{} GiB", bytes.div_ceil(1 << 30)),
        }
    }
}

/// What one network takes, bytes.
struct Network {
    /// Its parameters once.
    weights: u64,
    /// Its weights as the products read them, both ways.
    packed: u64,
    /// One row on the way forward.
    forward_row: u64,
    /// One row of an update: forward three times, back once, what the heads say and its gradient.
    update_row: u64,
}

impl Network {
    fn of(layout: &MlpLayout) -> Self {
        let padded = |n: usize| (n as u64).next_multiple_of(PANEL);
        let outputs: u64 = layout.layers().iter().map(|layer| padded(layer.n_out)).sum();
        let packed = layout
            .layers()
            .iter()
            .map(|layer| padded(layer.n_out) * layer.n_in as u64 + padded(layer.n_in) * layer.n_out as u64);
        let forward_row = padded(STATE_DIM) + outputs;
        Self {
            weights: 4 * layout.len() as u64,
            packed: 4 * packed.sum::<u64>(),
            forward_row: 4 * forward_row,
            update_row: 4 * (3 * forward_row + outputs + 4 * layout.n_values() as u64 + 1),
        }
    }
}

fn part(name: &'static str, bytes: u64) -> MemoryPart {
    MemoryPart { name, bytes }
}

fn times(count: u64, each: u64) -> u64 {
    count.saturating_mul(each)
}

fn sum(parts: &[MemoryPart]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(plan: &MemoryPlan, name: &str) -> u64 {
        plan.parts.iter().chain(&plan.phases).find(|part| part.name == name).unwrap().bytes
    }

    /// Every setting that takes memory moves its own part, and the plan names what it is about.
    #[test]
    fn each_part_follows_its_settings() {
        let base = plan(&Settings::default(), 100_000);
        let moved = |change: fn(&mut Settings), n_bars: usize| {
            let mut settings = Settings::default();
            change(&mut settings);
            let changed = plan(&settings, n_bars);
            let parts = base.parts.iter().chain(&base.phases);
            parts.filter(|p| bytes(&changed, p.name) > p.bytes).map(|p| p.name).collect::<Vec<_>>()
        };
        let of_bars = ["market", "features", "feature columns", "evaluation"];
        assert_eq!(moved(|_| (), 200_000), of_bars);
        assert_eq!(moved(|s| s.learner.accumulation = 4, 100_000), ["batches"]);
        assert_eq!(moved(|s| s.learner.batch = 1024, 100_000), ["batches", "activations"]);
        assert_eq!(moved(|s| s.replay.capacity *= 2, 100_000), ["replay", "checkpoint copy"]);
        assert_eq!(moved(|s| s.env.n_envs = 4096, 100_000), ["environments", "activations"]);
        assert_eq!(moved(|s| s.learner.n_step = 5, 100_000), ["environments"]);
        assert_eq!(
            moved(|s| s.guard.nan_policy = NanPolicy::Rollback, 100_000),
            ["network", "checkpoint copy"]
        );
        let wide = ["network", "activations", "checkpoint copy", "evaluation"];
        assert_eq!(moved(|s| s.network.hidden = vec![512, 512], 100_000), wide);
        assert_eq!(moved(|s| s.network.c51_atoms = 51, 100_000), wide);
        assert_eq!(moved(|s| s.network.quantiles = 32, 100_000), wide);
        assert_eq!(moved(|s| s.network.noisy = true, 100_000), ["network", "checkpoint copy"]);
        assert_eq!(moved(|s| s.run.threads = 1000, 100_000), ["program", "evaluation"]);
    }

    #[test]
    fn the_network_is_counted_by_hand() {
        let mut settings = Settings::default();
        settings.network.hidden = vec![256, 256];
        let plan = plan(&settings, 0);
        // 51-256-256-(1+5), biases included; weights padded to sixteen columns both ways.
        let weights = 4 * (51 * 256 + 256 + 256 * 256 + 256 + 256 * 6 + 6);
        let packed = 4 * ((51 * 256 + 64 * 256) + 2 * 256 * 256 + (16 * 256 + 256 * 6));
        assert_eq!(bytes(&plan, "network"), 6 * weights + 2 * packed);
        let row = 4 * (64 + 256 + 256 + 16);
        let update = 3 * row + 4 * (256 + 256 + 16 + 4 * 5 + 1);
        assert_eq!(bytes(&plan, "activations"), 64 * row + 128 * update);
    }

    #[test]
    fn a_plan_beyond_what_is_free_is_refused_with_both_numbers() {
        let mut settings = Settings::default();
        settings.replay.storage = ReplayStorage::Rows;
        let small = plan(&settings, 10_000);
        assert!(small.host_bytes() > 100 << 20 && small.host_bytes() < 1 << 30, "{small}");
        small.check_against(Some(small.host_bytes())).unwrap();
        small.check_against(None).unwrap();
        let Err(MLError::HostMemory { bytes, free, .. }) = small.check_against(Some(1 << 20)) else {
            panic!()
        };
        assert_eq!((bytes, free), (small.host_bytes(), Some(1 << 20)));

        settings.learner.batch = 65_536;
        settings.learner.accumulation = 1024;
        let large = plan(&settings, 10_000);
        assert!(large.to_string().contains("batches 2"), "{large}");
        assert!(large.host_bytes() > 29_000_000_000, "{large}");
        settings.replay.capacity = usize::MAX;
        assert_eq!(plan(&settings, usize::MAX).host_bytes(), u64::MAX);
    }

    /// Compact rows take a fourteenth, in the memory and in a checkpoint.
    #[test]
    fn the_form_of_rows_is_counted() {
        let of = |storage| {
            let mut settings = Settings::default();
            settings.replay.storage = storage;
            plan(&settings, 10_000)
        };
        let (rows, compact) = (of(ReplayStorage::Rows), of(ReplayStorage::Compact));
        let capacity = Settings::default().replay.capacity as u64;
        assert_eq!(bytes(&rows, REPLAY) - bytes(&compact, REPLAY), capacity * (448 - 32));
        assert_eq!(bytes(&rows, CHECKPOINT) - bytes(&compact, CHECKPOINT), capacity * (424 - 32));
    }

    /// What moves to the device leaves the host, but for the time of a checkpoint.
    #[test]
    fn a_device_has_a_sum_of_its_own() {
        let host = plan(&Settings::default(), 10_000);
        let device = || vec![part("learner", 1 << 20), part("replay", 448 << 20)];
        let both = host.clone().moved_to_device(device());
        assert_eq!(both.device_bytes(), 449 << 20);
        assert!(
            both.to_string().ends_with("; on the device 449 MiB (replay 448 MiB, learner 1024 KiB)"),
            "{both}"
        );
        assert_eq!(both.parts.iter().map(|p| p.name).collect::<Vec<_>>(), ["program", "market", "features"]);
        let beside = bytes(&both, CHECKPOINT) - bytes(&host, CHECKPOINT) - bytes(&host, "environments");
        assert_eq!(beside, gpu_replay::BLOCK_ROWS as u64 * 448, "rows are held once, and a block of them");

        let rows_stay = host.clone().moved_to_device(device()[..1].to_vec());
        assert_eq!(bytes(&rows_stay, REPLAY), bytes(&host, REPLAY));
        assert!(rows_stay.parts.iter().any(|p| p.name == REPLAY));
    }
}
