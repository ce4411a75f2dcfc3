//! The one error type of the library.

use std::path::PathBuf;

use foxhunt_core::settings::Difference;
use foxhunt_core::{ActionError, SettingsError};
use foxhunt_cuda::CudaError;
use foxhunt_market::MarketError;

use crate::checkpoint::CheckpointFault;

/// What can go wrong in replay, guard, engines, training, evaluation and checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MLError {
    /// A tensor had another shape than the call asks for.
    #[error("{what}: shape {got:?}, expected {expected}")]
    Shape {
        /// Which argument.
        what: &'static str,
        /// The shape given.
        got: Vec<usize>,
        /// The shape asked for, in words.
        expected: String,
    },
    /// A tensor had another dtype than the call asks for.
    #[error("{what}: dtype {got}, expected {expected}")]
    DType {
        /// Which argument.
        what: &'static str,
        /// The dtype given.
        got: String,
        /// The dtype asked for.
        expected: &'static str,
    },
    /// A tensor lived on another device than the object it was given to (case D08).
    #[error("{what} is on {got}, but this object lives on {expected}")]
    DeviceMismatch {
        /// Which argument.
        what: &'static str,
        /// Where it was.
        got: String,
        /// Where it should be.
        expected: String,
    },
    /// A replay memory holds too few rows (cases A11).
    #[error("not enough data: {have} rows stored, {need} needed")]
    NotEnoughData {
        /// Rows stored.
        have: usize,
        /// Rows needed.
        need: usize,
    },
    /// Every stored row has priority 0, so none can be drawn.
    #[error("all {rows} rows stored have priority 0, none can be drawn")]
    NoMass {
        /// Rows stored.
        rows: usize,
    },
    /// An index outside the rows stored.
    #[error("row {index} is outside the {len} rows stored")]
    RowOutOfRange {
        /// The index given.
        index: usize,
        /// Rows stored.
        len: usize,
    },
    /// An argument outside its range.
    #[error("{what} = {value} is refused: it must be {rule}")]
    InvalidArgument {
        /// Which argument.
        what: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        rule: &'static str,
    },
    /// Host memory for a buffer, or for a whole run, cannot be had.
    #[error("cannot have {bytes} bytes of memory for {what}{}", told_free(*free))]
    HostMemory {
        /// For what.
        what: &'static str,
        /// How many bytes were asked for; `u64::MAX` when the number does not fit.
        bytes: u64,
        /// How many bytes were free, where that is known.
        free: Option<u64>,
    },
    /// Device memory for a buffer could not be had.
    #[error("the device cannot hold {what}: {}{free} bytes free", told_requested(*requested))]
    GpuMemoryError {
        /// For what.
        what: &'static str,
        /// Bytes asked for; 0 where the driver asked for itself and does not tell.
        requested: u64,
        /// Bytes free.
        free: u64,
    },
    /// Training was stopped by the guard.
    #[error("training halted at update {update}: {reason}")]
    Halted {
        /// Update at which it was decided.
        update: u64,
        /// Why.
        reason: String,
    },
    /// A checkpoint or policy file cannot be used.
    #[error("{path}: {reason}")]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Settings that a resumed run has to keep have other values than it was begun with, in its `settings.toml` or where a
    /// caller asked for them.
    #[error("{path}: {}; a resumed run may change only {}", told_changes(changes), crate::trainer::FREE_KEYS)]
    SettingsChanged {
        /// The checkpoint that holds the values to keep.
        path: PathBuf,
        /// Keys with the value to keep and the one asked for.
        changes: Vec<Difference>,
    },
    /// A checkpoint or policy on disk is unfinished, torn, foreign or newer than this build.
    #[error("{path} cannot be used: {fault}")]
    CheckpointFile {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: CheckpointFault,
    },
    /// A folder holds no checkpoint that can be used; nothing is started from scratch instead (case E06).
    #[error("no usable checkpoint in {path} ({unusable} unusable{newest})")]
    NoUsableCheckpoint {
        /// The folder searched.
        path: PathBuf,
        /// Checkpoints found there and refused.
        unusable: usize,
        /// What is wrong with the newest of them, as part of a sentence; empty when there is none.
        newest: String,
    },
    /// A run ended before its start was saved, so there is nothing to go on from.
    #[error(
        "{path} holds no checkpoint to go on from: a run that ended before its start was saved has to be begun again"
    )]
    RunNotBegun {
        /// The run folder.
        path: PathBuf,
    },
    /// A checkpoint or policy could not be written, for example because the disk is full (case E08).
    #[error("cannot write {bytes} bytes to {path}: {source}")]
    WriteFailed {
        /// The file.
        path: PathBuf,
        /// Bytes it was to hold.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process is writing the same run.
    #[error("{path} is in use by process {pid}")]
    RunLocked {
        /// The run folder.
        path: PathBuf,
        /// Who holds the lock, as it says itself.
        pid: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A request to stop arrived in the middle of a backtest, which was dropped. The trainer answers it by saving.
    #[error("stopped on request")]
    Interrupted,
    /// The engine asked for cannot run here.
    #[error("device {device} is not available: {reason}")]
    DeviceUnavailable {
        /// Which device.
        device: &'static str,
        /// Why.
        reason: String,
    },
    /// A device that is there failed: its driver, its compiler, or a kernel.
    #[error("the GPU failed: {0}")]
    Gpu(Box<CudaError>),
    /// Settings were refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Bars were refused.
    #[error(transparent)]
    Market(Box<MarketError>),
    /// An action index was refused.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// The tensor library failed.
    #[error("tensor operation failed: {0}")]
    Tensor(#[from] candle_core::Error),
}

fn told_requested(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!("{bytes} bytes asked for, ") }
}

/// Each key that differs, the value a run was begun with and the one it was asked to go on with.
pub(crate) fn told_changes(changes: &[Difference]) -> String {
    let one = |Difference { key, here, there }: &Difference| {
        format!("{key} is {here} in this run and was asked to be {there}")
    };
    changes.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn told_free(free: Option<u64>) -> String {
    free.map_or_else(String::new, |free| format!(": {free} bytes are free"))
}

// Boxed, because it would make every result of the library as large as itself.
impl From<MarketError> for MLError {
    fn from(error: MarketError) -> Self {
        Self::Market(Box::new(error))
    }
}
