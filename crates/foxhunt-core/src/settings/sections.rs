//! The sections of the settings file. Each field says unit, range and default.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Precision, partial};
use crate::{Head, LinearSchedule};

/// Which moment of its interval a bar's time stamp names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampAt {
    /// The start of the interval.
    Open,
    /// The end of the interval; shifted back by one bar on loading.
    Close,
}

/// A kind of dirt that loading may repair; each repaired row is counted in the data report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Sort rows by time.
    Unsorted,
    /// Drop rows equal to another row in every column.
    Duplicates,
    /// Fill missing intervals inside a session with flat bars of zero volume, in which no order fills.
    Gaps,
}

/// How the bar file is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// The one symbol to keep from a file that holds several. Default: none, and two symbols are refused.
    pub symbol: Option<String>,
    /// IANA zone of time stamps without an offset. Default `UTC`.
    pub timezone: String,
    /// Read `1,5` as 1.5. Default false, and such a number is an error.
    pub decimal_comma: bool,
    /// What a time stamp names. Default `open`.
    pub stamp: StampAt,
    /// Kinds of dirt to repair. Default: none.
    pub repair: Vec<Repair>,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self {
            symbol: None,
            timezone: "UTC".into(),
            decimal_comma: false,
            stamp: StampAt::Open,
            repair: Vec::new(),
        }
    }
}

/// Chronological division of the bars. What training and validation leave is the test split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitSettings {
    /// Share of bars to train on, in (0, 1). Default 0.6.
    pub train: f64,
    /// Share of bars to validate on, in (0, 1). Default 0.2.
    pub validation: f64,
    /// Bars left out before the validation split and before the test split. Default 5, at least `learner.n_step`.
    pub purge_bars: usize,
    /// The windows themselves, instead of shares. Default: none; a fold of a walk-forward run has them.
    pub windows: Option<SplitWindows>,
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self { train: 0.6, validation: 0.2, purge_bars: 5, windows: None }
    }
}

/// Windows of bars, each first bar and end (not included), in time order and at least `learner.n_step` bars apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitWindows {
    /// Bars trained on.
    pub train: [usize; 2],
    /// Bars that choose the best checkpoint.
    pub validation: [usize; 2],
    /// Bars looked at once, at the end.
    pub test: [usize; 2],
}

/// What a fold of a walk-forward run trains on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoldScheme {
    /// As many bars in every fold, moving along.
    Rolling,
    /// Every bar from the first one on, more with every fold.
    Anchored,
}

/// Folds and seeds of `foxhunt walk-forward`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WalkForwardSettings {
    /// What a fold trains on: `rolling` or `anchored`. Default `rolling`.
    pub scheme: FoldScheme,
    /// Test windows, one after the other to the last bar, 1 to 1,000. Default 5.
    pub folds: usize,
    /// Seeds of each fold, from `run.seed` upwards, 1 to 1,000. Default 5.
    pub seeds: usize,
    /// Share of the bars before the first test window, in (0, 1). Default 0.5.
    pub first_share: f64,
    /// Share of a fold's bars before its test window that validates, in (0, 1). Default 0.2.
    pub validation: f64,
    /// Bars left out before a test window beside `split.purge_bars`. Default 10.
    pub embargo_bars: usize,
    /// Runs at a time, 0 to 1,024; 0 takes as many as cores and memory hold. Default 0.
    pub parallel: usize,
}

impl Default for WalkForwardSettings {
    fn default() -> Self {
        Self {
            scheme: FoldScheme::Rolling,
            folds: 5,
            seeds: 5,
            first_share: 0.5,
            validation: 0.2,
            embargo_bars: 10,
            parallel: 0,
        }
    }
}

/// Costs and fills. Basis points are of the price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionSettings {
    /// Half spread where the file has none, basis points, in [0, 10000]. Default 0.5.
    pub half_spread_bps: f64,
    /// Impact of a market order at normal urgency, basis points, in [0, 10000]. Default 0.2.
    pub impact_bps: f64,
    /// Fee of a taking fill, basis points of traded value, in (-10000, 10000); negative is a rebate. Default 0.5.
    pub taker_fee_bps: f64,
    /// Fee of a making fill, as `taker_fee_bps`. Default 0.1.
    pub maker_fee_bps: f64,
    /// Smallest price step, price units, > 0. Default: read off the bars trained on, and kept with the policy.
    pub tick_size: Option<f64>,
    /// Whether IoC fills are limited by the bar's volume, where the file has volume. Default true.
    pub limit_to_volume: bool,
    /// Window of the rolling volatility the router sees, bars, >= 2. Default 32.
    pub volatility_window: usize,
    /// Window of the rolling medians the router compares with, bars, >= 2. Default 256.
    pub median_window: usize,
}

impl Default for ExecutionSettings {
    fn default() -> Self {
        Self {
            half_spread_bps: 0.5,
            impact_bps: 0.2,
            taker_fee_bps: 0.5,
            maker_fee_bps: 0.1,
            tick_size: None,
            limit_to_volume: true,
            volatility_window: 32,
            median_window: 256,
        }
    }
}

/// Environments and reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvSettings {
    /// Parallel environments, 1 to 65,536. Default 64.
    pub n_envs: usize,
    /// Bars an episode lasts before it is truncated, >= 1. Default 256.
    pub episode_bars: usize,
    /// Equity at the start of an episode, account currency, 1e-6 to 1e18. Default 100,000.
    pub start_equity: f64,
    /// Value of the maximum position over equity, in (0, 100]. Default 1.
    pub max_leverage: f64,
    /// Episode terminates when equity is at or below this share of the start, in [0.01, 1). Default 0.5.
    pub ruin_fraction: f64,
    /// Reward is this times the log return of equity, > 0. Default 100.
    pub reward_scale: f64,
}

impl Default for EnvSettings {
    fn default() -> Self {
        Self {
            n_envs: 64,
            episode_bars: 256,
            start_equity: 100_000.0,
            max_leverage: 1.0,
            ruin_fraction: 0.5,
            reward_scale: 100.0,
        }
    }
}

/// The Q-network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSettings {
    /// What the network decides: `exposure`, `factored` or `branching`. Default `exposure`.
    pub head: Head,
    /// Units of each hidden layer, one to eight layers of 1 to 4,096. Default [256, 256].
    pub hidden: Vec<usize>,
    /// Value and advantage streams (arXiv 1511.06581). Default true.
    pub dueling: bool,
    /// Noisy linear layers (arXiv 1706.10295, factorised Gaussian), in training; policies and evaluation go by the means. They
    /// explore by themselves, so an `exploration.epsilon` of 0 throughout is recommended. Default false.
    pub noisy: bool,
    /// Scale of the noise at first, times the root of a layer's inputs (`sigma_0`), in (0, 10]. Default 0.5; only `noisy` has another.
    pub noisy_sigma: f64,
    /// C51 (arXiv 1707.06887): returns that the network spreads probability over, an action. Default 0, off, or 2 to 256; 51
    /// is the paper's. Not with `quantiles`, and without a Huber loss: `learner.huber_delta` must keep its default.
    pub c51_atoms: usize,
    /// The lowest and the highest return of C51, in units of reward (discounted sums of it), two numbers of at most 1e6 in size,
    /// the second above the first by at least 1e-6 and a thousandth of the larger size. What lies outside counts as the end.
    /// Default [-10, 10]; another is for `c51_atoms` alone.
    pub c51_range: [f64; 2],
    /// QR-DQN (arXiv 1710.10044): quantiles of the return, an action. Default 0, off, or 2 to 256; the paper has 200. Not with
    /// `c51_atoms`. `learner.huber_delta` is its kappa.
    pub quantiles: usize,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            head: Head::Exposure,
            hidden: vec![256, 256],
            dueling: true,
            noisy: false,
            noisy_sigma: 0.5,
            c51_atoms: 0,
            c51_range: [-10.0, 10.0],
            quantiles: 0,
        }
    }
}

/// How the target network follows the online network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetUpdate {
    /// Copy every `every` updates, first at update `every`.
    Hard {
        /// Updates between copies, >= 1.
        every: u64,
    },
    /// `target += tau * (online - target)` after every update.
    Polyak {
        /// Share taken, in (0, 1].
        tau: f64,
    },
}

/// Targets, loss and optimiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerSettings {
    /// Transitions a sub-batch, 1 to 65,536. Default 128.
    pub batch: usize,
    /// Sub-batches whose gradients are averaged into one update, 1 to 1,024. Default 1.
    pub accumulation: usize,
    /// Discount a bar, in [0, 1]. Default 0.97.
    pub gamma: f64,
    /// Rewards summed before bootstrapping, 1 to 256. Default 3.
    pub n_step: usize,
    /// Double DQN targets (arXiv 1509.06461). Default true; refused beside `learner.munchausen`, which asks no online network.
    pub double: bool,
    /// Munchausen targets (arXiv 2007.14430): soft values of the target network, and its log-policy of the action taken (the
    /// first of an n-step window) added to the reward. Default false; true asks for `double = false`, and only then may the next three differ.
    pub munchausen: bool,
    /// Share of the log-policy that Munchausen adds, in [0, 1]. Default 0.9.
    pub munchausen_alpha: f64,
    /// Temperature of Munchausen's policy, in units of Q-values and so of rewards, from 1e-6 to 1e6. Default 0.03.
    pub munchausen_tau: f64,
    /// Least that `tau` times the log-policy may be before `alpha` (`l_0`), in units of Q-values, in [-1e6, 0]. Default -1.
    pub munchausen_floor: f64,
    /// Step size of Adam by update, in (0, 1] throughout. Default 5e-4 to 1e-4 over 10,000.
    #[serde(deserialize_with = "partial::learning_rate")]
    pub learning_rate: LinearSchedule,
    /// Where the Huber loss turns linear, > 0. Default 1; C51 has no Huber loss and refuses another.
    pub huber_delta: f64,
    /// Largest global gradient norm, >= 0; 0 clips everything to zero gradient. Default 10.
    pub clip_norm: f64,
    /// First-moment decay of Adam, in [0, 1). Default 0.9.
    pub adam_beta1: f64,
    /// Second-moment decay of Adam, in [0, 1). Default 0.999.
    pub adam_beta2: f64,
    /// Added to the root of the second moment, >= 1e-20. Default 1e-8.
    pub adam_epsilon: f64,
    /// How the target network follows. Default Polyak with tau 0.005.
    #[serde(deserialize_with = "partial::target")]
    pub target: TargetUpdate,
    /// How matrices are multiplied when learning and acting: `f32`, `tf32x3`, `tf32` or `bf16`. The CPU engine has `f32`
    /// alone. Default `f32`.
    pub precision: Precision,
}

impl Default for LearnerSettings {
    fn default() -> Self {
        Self {
            batch: 128,
            accumulation: 1,
            gamma: 0.97,
            n_step: 3,
            double: true,
            munchausen: false,
            munchausen_alpha: 0.9,
            munchausen_tau: 0.03,
            munchausen_floor: -1.0,
            learning_rate: LinearSchedule { start: 5e-4, end: 1e-4, steps: 10_000 },
            huber_delta: 1.0,
            clip_norm: 10.0,
            adam_beta1: 0.9,
            adam_beta2: 0.999,
            adam_epsilon: 1e-8,
            target: TargetUpdate::Polyak { tau: 0.005 },
            precision: Precision::F32,
        }
    }
}

/// How rows are drawn from the replay memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayKind {
    /// Every row alike.
    Uniform,
    /// By priority.
    Proportional,
    /// By rank of priority.
    RankBased,
}

/// How a transition is stored. What is drawn and learned is the same to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStorage {
    /// Both states whole: 448 bytes.
    Rows,
    /// The bars of both states and what the portfolio adds to them: 32 bytes. Features are looked up when a row is drawn.
    Compact,
}

/// What to do when the device cannot hold the replay memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryFallback {
    /// Keep the capacity, in host memory.
    Cpu,
    /// Halve the capacity until it fits.
    Shrink,
    /// Fail.
    Error,
}

/// Replay memory (arXiv 1511.05952).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySettings {
    /// How rows are drawn. Default `proportional`.
    pub kind: ReplayKind,
    /// Rows, from `learner.batch` to 2^31. Default 131,072.
    pub capacity: usize,
    /// Power of the priority, in [0, 1]. Default 0.6.
    pub alpha: f64,
    /// First power of the importance weight, in [0, 1]. Default 0.4.
    pub beta_start: f64,
    /// Last power of the importance weight, in [beta_start, 1]. Default 1.
    pub beta_max: f64,
    /// Samples over which beta moves. Default 20,000.
    pub beta_annealing_steps: usize,
    /// Added to the priority after the power, in [0, 32767]. Default 1e-6.
    pub epsilon: f64,
    /// Rank-based: updates between two orderings, >= 1. Default 256.
    pub resort_every: u64,
    /// How a transition is stored: whole, or as places in the market (a fourteenth of the memory, of a device's and of
    /// a checkpoint). Results are the same. Default `compact`.
    pub storage: ReplayStorage,
    /// What to do when the device cannot hold it: keep it in host memory, halve the capacity until it fits, or fail.
    /// Default `cpu`; others are refused for the CPU engine, which has no other place, and do nothing where
    /// `run.device = "auto"` ends on it.
    pub memory_fallback: MemoryFallback,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            kind: ReplayKind::Proportional,
            capacity: 131_072,
            alpha: 0.6,
            beta_start: 0.4,
            beta_max: 1.0,
            beta_annealing_steps: 20_000,
            epsilon: 1e-6,
            resort_every: 256,
            storage: ReplayStorage::Compact,
            memory_fallback: MemoryFallback::Cpu,
        }
    }
}

/// Exploration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExplorationSettings {
    /// Chance of a random action by env steps, in [0, 1]. Default 1 to 0.02 over 120,000.
    #[serde(deserialize_with = "partial::epsilon")]
    pub epsilon: LinearSchedule,
}

impl Default for ExplorationSettings {
    fn default() -> Self {
        Self { epsilon: LinearSchedule { start: 1.0, end: 0.02, steps: 120_000 } }
    }
}

/// What the host does when updates are skipped for a non-finite loss or gradient norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanPolicy {
    /// End the run with an error.
    Stop,
    /// Go on, up to `max_skips_in_row`.
    Skip,
    /// Go back to the last good copy, up to `max_skips_in_row` times in a row.
    Rollback,
}

/// What happens on non-finite or collapsed updates. A non-finite update is never applied, whatever is set here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardSettings {
    /// What the host does about skipped updates. Default `skip`.
    pub nan_policy: NanPolicy,
    /// Skipped updates in a row (or rollbacks in a row) that end the run, >= 1. Default 20.
    pub max_skips_in_row: u64,
    /// Loss above which a warning is raised, > 0. Default 1e6.
    pub loss_threshold: f64,
    /// A gradient norm below learning rate times this counts as collapsed, >= 0. Default 1e-3.
    pub collapse_multiplier: f64,
    /// Updates before a collapse is looked for. Default 1,000.
    pub collapse_warmup: u64,
    /// Collapsed updates in a row that end the run, >= 1. Default 500.
    pub collapse_patience: u64,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            nan_policy: NanPolicy::Skip,
            max_skips_in_row: 20,
            loss_threshold: 1e6,
            collapse_multiplier: 1e-3,
            collapse_warmup: 1_000,
            collapse_patience: 500,
        }
    }
}

/// Early stop on the average of max-Q.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AverageQStop {
    /// Smallest change of the epoch's mean max-Q that counts as movement, > 0.
    pub min_change: f64,
    /// Epochs without movement that end training, >= 1.
    pub patience: u32,
}

/// Q-value monitoring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorSettings {
    /// |Q| above which values count as diverged, > 0. Default 10,000.
    pub divergence_threshold: f64,
    /// Stop when mean max-Q no longer moves. Default: off.
    pub average_q_stop: Option<AverageQStop>,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        Self { divergence_threshold: 10_000.0, average_q_stop: None }
    }
}

/// Length of training and early stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingSettings {
    /// Epochs, >= 1. Default 60.
    pub epochs: u64,
    /// Vector steps collected each epoch, >= 1. Default 64.
    pub collect: u32,
    /// Updates each epoch, from 1 to 2^30. Default 128.
    pub updates_per_epoch: u32,
    /// Env steps collected before the first update (beside what one batch needs). Default 2,000.
    pub warmup_env_steps: u64,
    /// Epochs between validations, >= 1. Default 2.
    pub validate_every: u64,
    /// Validations without improvement that end training; 0 never ends it. Default 12.
    pub patience: u32,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            epochs: 60,
            collect: 64,
            updates_per_epoch: 128,
            warmup_env_steps: 2_000,
            validate_every: 2,
            patience: 12,
        }
    }
}

/// Backtests and baselines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationSettings {
    /// Random baseline policies to average, 1 to 10,000. Default 20.
    pub random_policies: u32,
    /// Risk-free rate a year, as a share. Default 0.
    pub risk_free_rate: f64,
}

impl Default for EvaluationSettings {
    fn default() -> Self {
        Self { random_policies: 20, risk_free_rate: 0.0 }
    }
}

/// What to do when a checkpoint or policy cannot be saved after the start of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveFailure {
    /// End the run with an error.
    Stop,
    /// Warn and go on; the next save is tried as usual. There is none after a requested stop, so that one must
    /// succeed.
    Continue,
}

/// Checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSettings {
    /// Epochs between checkpoints, >= 1. Default 5.
    pub every_epochs: u64,
    /// Checkpoints kept, >= 1. Default 2.
    pub keep: usize,
    /// What to do when one cannot be saved. Default `stop`.
    pub on_failure: SaveFailure,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self { every_epochs: 5, keep: 2, on_failure: SaveFailure::Stop }
    }
}

/// Which engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// CUDA when there is a usable device, else the CPU.
    Auto,
    /// The CPU engine.
    Cpu,
    /// The CUDA engine, or an error.
    Cuda,
}

/// Seed, device and where a run is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Seed of everything random, below 2^63. Default 1.
    pub seed: u64,
    /// Which engine runs. Default `auto`.
    pub device: Device,
    /// Threads of the CPU engine; 0 takes every core. Default 0.
    pub threads: usize,
    /// Folder that run folders are made in. Default `runs`.
    pub dir: PathBuf,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { seed: 1, device: Device::Auto, threads: 0, dir: PathBuf::from("runs") }
    }
}
