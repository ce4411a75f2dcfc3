//! What was typed: the command line as clap sees it. Nothing here decides what it means.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use foxhunt::export::Format;
use foxhunt::lookahead::Plant;
use foxhunt_core::settings::{Device, Precision, Repair, ReplayStorage};

/// Deep Q-learning for trading: bars in, a trained and honestly tested policy out.
#[derive(Debug, Parser)]
#[command(name = "foxhunt", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 ok, 1 the run failed, 2 wrong usage, 130/143 stopped by Ctrl-C/SIGTERM after saving."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train an agent, validate it while it learns, test it once at the end.
    Train(TrainArgs),
    /// Go on with a run that was stopped or killed.
    Resume(ResumeArgs),
    /// Backtest a trained policy on a bar file.
    Evaluate(EvaluateArgs),
    /// Show what is understood of a bar file.
    Inspect(InspectArgs),
    /// Train and test on one fold after the other, with several seeds, and judge the whole.
    WalkForward(WalkForwardArgs),
    /// Look for values that know the future, from features to fills; exit 1 on a leak.
    Lookahead(LookaheadArgs),
    /// Write a trained policy as one file for other programs.
    Export(ExportArgs),
    /// Show what this machine can run.
    Doctor(DoctorArgs),
    /// Time parts of the program on the GPU.
    Bench(BenchArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write one page a command.
    Man {
        /// Folder for foxhunt.1, foxhunt-train.1 and so on; it is made where it is missing.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// `foxhunt train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Bar file (CSV, .gz, .zst, Parquet, DBN); without it, the bundled year of hourly EUR/USD.
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// Print the settings that would be used, as TOML, and stop.
    #[arg(long)]
    pub(crate) show_settings: bool,
}

/// Who watches a run.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Serve /metrics and /healthz for Prometheus while the run lasts; a port alone is on loopback.
    #[arg(long, value_name = "[HOST:]PORT", value_parser = crate::endpoint::address)]
    pub(crate) metrics_addr: Option<SocketAddr>,
    /// Write event files for TensorBoard into the folder `tensorboard` of the run; a resumed run goes on with them.
    #[arg(long)]
    pub(crate) tensorboard: bool,
}

/// Where settings come from: defaults, then the file, then flags.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Settings file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One setting by its dotted key, for example `--set learner.batch=256`; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of everything random (run.seed).
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Which engine runs (run.device).
    #[arg(long, value_enum)]
    pub(crate) device: Option<DeviceArg>,
    /// Epochs to train (training.epochs).
    #[arg(long)]
    pub(crate) epochs: Option<u64>,
    /// Folder that run folders are made in (run.dir).
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// How a bar file is read.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// The symbol to keep from a file that holds several (data.symbol).
    #[arg(long)]
    pub(crate) symbol: Option<String>,
    /// IANA zone of time stamps without an offset (data.timezone).
    #[arg(long, value_name = "ZONE")]
    pub(crate) timezone: Option<String>,
    /// Kinds of dirt to repair, comma-separated (data.repair).
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub(crate) repair: Option<Vec<RepairArg>>,
    /// Read `1,5` as 1.5 (data.decimal_comma).
    #[arg(long)]
    pub(crate) decimal_comma: bool,
}

/// `foxhunt resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The run folder.
    pub(crate) run: PathBuf,
    /// The bar file the run was started with, if it has moved; other bars are refused.
    pub(crate) file: Option<PathBuf>,
    /// Which engine goes on, whichever began (run.device).
    #[arg(long, value_enum)]
    pub(crate) device: Option<DeviceArg>,
    /// Epochs to train in all (training.epochs).
    #[arg(long)]
    pub(crate) epochs: Option<u64>,
    /// Threads of the CPU engine (run.threads).
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// `foxhunt evaluate`.
#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// The run folder, or a policy folder inside it.
    pub(crate) run: PathBuf,
    /// Bar file to test on.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write report.html and report.json into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// `foxhunt export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The run folder, or a policy folder inside it.
    pub(crate) run: PathBuf,
    /// What to write [default: as FILE ends, else onnx].
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArg>,
    /// The file to write [default: export.onnx or export.safetensors in RUN].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Read the file back and compare it with our own network on 10,000 states; exit 1 on a difference.
    #[arg(long)]
    pub(crate) check: bool,
}

/// See [`Format`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FormatArg {
    /// A graph with its weights, for onnxruntime and others.
    Onnx,
    /// Named arrays.
    Safetensors,
}

impl From<FormatArg> for Format {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Onnx => Self::Onnx,
            FormatArg::Safetensors => Self::Safetensors,
        }
    }
}

/// `foxhunt inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Bar file; without it, the bundled sample.
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `foxhunt doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `foxhunt bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
    /// Print the figures as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What is timed.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Replay memory: sample, update, insert, rank order.
    Replay(BenchReplayArgs),
    /// Environments: decisions, fills, money, rows, without a network.
    Collect(BenchCollectArgs),
    /// Learner: whole updates with their sample and priorities, by phase; forward passes for acting.
    Update(BenchNetwork),
    /// The engine as a run uses it: a vector step and an update in turn.
    Loop(BenchLoopArgs),
    /// The engine for a long time: memory, sums and counts must stay where they are, else it exits 1.
    Soak(BenchSoakArgs),
}

/// `foxhunt bench collect`.
#[derive(Debug, Args)]
pub(crate) struct BenchCollectArgs {
    #[command(flatten)]
    pub(crate) sizes: BenchSizes,
    /// In which form rows leave and are stored [default: rows].
    #[arg(long, value_enum)]
    pub(crate) storage: Option<StorageArg>,
}

/// `foxhunt bench loop`.
#[derive(Debug, Args)]
pub(crate) struct BenchLoopArgs {
    #[command(flatten)]
    pub(crate) network: BenchNetwork,
    /// How rows are stored (replay.storage); as the setting's default without it.
    #[arg(long, value_enum)]
    pub(crate) storage: Option<StorageArg>,
    /// Time the same learner with its rows in host memory as well, and tell the ratio of epochs.
    #[arg(long)]
    pub(crate) fallback: bool,
}

/// `foxhunt bench soak`. With --json, one line an interval.
#[derive(Debug, Args)]
pub(crate) struct BenchSoakArgs {
    /// How long, in seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(crate) seconds: u64,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) every: u64,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

/// How rows are stored.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StorageArg {
    /// Both states whole.
    Rows,
    /// 32 bytes a row.
    Compact,
}

impl From<StorageArg> for ReplayStorage {
    fn from(arg: StorageArg) -> Self {
        match arg {
            StorageArg::Rows => Self::Rows,
            StorageArg::Compact => Self::Compact,
        }
    }
}

/// Sizes to time, and how the network is computed.
#[derive(Debug, Args)]
pub(crate) struct BenchNetwork {
    #[command(flatten)]
    pub(crate) sizes: BenchSizes,
    /// How matrices are multiplied, as `learner.precision`: f32, tf32x3, tf32 or bf16.
    #[arg(long, value_name = "MODE", default_value = "f32", value_parser = precision)]
    pub(crate) precision: Precision,
}

fn precision(text: &str) -> Result<Precision, String> {
    let all = Precision::ALL;
    let known = || format!("one of {}", all.map(Precision::name).join(", "));
    all.into_iter().find(|mode| mode.name() == text).ok_or_else(known)
}

/// Sizes to time.
#[derive(Debug, Args)]
pub(crate) struct BenchSizes {
    /// Environments (for `update`: rows acted on), comma-separated; the usual sizes without it.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", value_parser = environments)]
    pub(crate) envs: Vec<usize>,
    /// Rows a batch, comma-separated; the usual sizes without it.
    #[arg(long, value_delimiter = ',', value_name = "ROWS", value_parser = environments)]
    pub(crate) batch: Vec<usize>,
}

/// `foxhunt bench replay`.
#[derive(Debug, Args)]
pub(crate) struct BenchReplayArgs {
    /// Rows of the memory, comma-separated [default: 2^17, 2^20, 2^22, 2^24].
    #[arg(long, value_delimiter = ',', value_name = "ROWS", value_parser = positive)]
    pub(crate) capacity: Vec<usize>,
    /// Rows a batch, comma-separated [default: 256, 1024, 8192].
    #[arg(long, value_delimiter = ',', value_name = "ROWS", value_parser = positive)]
    pub(crate) batch: Vec<usize>,
    /// Rows of the memory for rank-based sampling, comma-separated [default: 2^20, 2^22].
    #[arg(long, value_delimiter = ',', value_name = "ROWS", value_parser = positive)]
    pub(crate) rank_capacity: Vec<usize>,
    /// How rows are stored [default: rows].
    #[arg(long, value_enum)]
    pub(crate) storage: Option<StorageArg>,
}

/// A count of environments or rows that one launch can have.
fn environments(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=0x1_0000) => Ok(count),
        _ => Err("a whole number from 1 to 65536".to_owned()),
    }
}

/// A count of rows that a memory can have.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows @ 1..=0x8000_0000) => Ok(rows),
        _ => Err("a whole number from 1 to 2147483648".to_owned()),
    }
}

/// `foxhunt walk-forward`.
#[derive(Debug, Args)]
pub(crate) struct WalkForwardArgs {
    /// Bar file; without it, the bundled sample.
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Print the settings that would be used, as TOML, and stop.
    #[arg(long)]
    pub(crate) show_settings: bool,
}

/// `foxhunt lookahead`.
#[derive(Debug, Args)]
pub(crate) struct LookaheadArgs {
    /// Bar file; without it, the bundled sample.
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// A run or policy folder whose policy is looked at; without it, a fresh network.
    #[arg(long, value_name = "RUN")]
    pub(crate) policy: Option<PathBuf>,
    /// Bars after which the future is changed, from 1 to 100; each takes as long as the first.
    #[arg(long, default_value_t = foxhunt::lookahead::DEFAULT_CUTS, value_name = "N", value_parser = cuts)]
    pub(crate) cuts: usize,
    /// Plant a cheater in the pipeline itself, to see what a leak looks like.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) plant: Option<PlantArg>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number of cuts that a user may be kept waiting for.
fn cuts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cuts @ 1..=100) => Ok(cuts),
        _ => Err("a whole number from 1 to 100".to_owned()),
    }
}

/// See [`Plant`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PlantArg {
    /// A feature that is the return of the next bar.
    Feature,
    /// A router that sees the volatility of the next bar.
    Router,
    /// A normaliser fitted on all bars.
    Normaliser,
    /// A policy that looks at the next close.
    Decision,
    /// Fills at the close the decision was made at.
    Fill,
}

impl From<PlantArg> for Plant {
    fn from(arg: PlantArg) -> Self {
        match arg {
            PlantArg::Feature => Self::Feature,
            PlantArg::Router => Self::Router,
            PlantArg::Normaliser => Self::Normaliser,
            PlantArg::Decision => Self::Decision,
            PlantArg::Fill => Self::Fill,
        }
    }
}

/// See [`Device`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DeviceArg {
    /// CUDA when there is a usable device, else the CPU.
    Auto,
    /// The CPU engine.
    Cpu,
    /// The CUDA engine, or an error.
    Cuda,
}

impl From<DeviceArg> for Device {
    fn from(arg: DeviceArg) -> Self {
        match arg {
            DeviceArg::Auto => Self::Auto,
            DeviceArg::Cpu => Self::Cpu,
            DeviceArg::Cuda => Self::Cuda,
        }
    }
}

/// See [`Repair`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RepairArg {
    /// Sort rows by time.
    Unsorted,
    /// Drop rows equal to another row in every column.
    Duplicates,
    /// Fill missing intervals inside a session with flat bars of zero volume.
    Gaps,
}

impl From<RepairArg> for Repair {
    fn from(arg: RepairArg) -> Self {
        match arg {
            RepairArg::Unsorted => Self::Unsorted,
            RepairArg::Duplicates => Self::Duplicates,
            RepairArg::Gaps => Self::Gaps,
        }
    }
}
