//! Settings: every key a run can be given, with unit, range and default.
//!
//! Parsing refuses unknown keys; [`Settings::validate`] refuses values outside their range, once, before
//! anything is started. A default is written once, in the `Default` of its section. Merging a file with command
//! line flags is the binary's business.

mod difference;
mod partial;
mod precision;
mod sections;
mod validate;

pub use difference::Difference;
pub use precision::Precision;
pub use sections::{
    AverageQStop, CheckpointSettings, DataSettings, Device, EnvSettings, EvaluationSettings,
    ExecutionSettings, ExplorationSettings, FoldScheme, GuardSettings, LearnerSettings, MemoryFallback,
    MonitorSettings, NanPolicy, NetworkSettings, Repair, ReplayKind, ReplaySettings, ReplayStorage,
    RunSettings, SaveFailure, SplitSettings, SplitWindows, StampAt, TargetUpdate, TrainingSettings,
    WalkForwardSettings,
};

use serde::{Deserialize, Serialize};

/// Everything a run is defined by. Sections and keys carry the names of the TOML file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How the bar file is read.
    pub data: DataSettings,
    /// How bars are divided into training, validation and test.
    pub split: SplitSettings,
    /// Costs and fills.
    pub execution: ExecutionSettings,
    /// Environments and reward.
    pub env: EnvSettings,
    /// The Q-network.
    pub network: NetworkSettings,
    /// Targets, loss and optimiser.
    pub learner: LearnerSettings,
    /// Replay memory.
    pub replay: ReplaySettings,
    /// Exploration.
    pub exploration: ExplorationSettings,
    /// What happens on non-finite or collapsed updates.
    pub guard: GuardSettings,
    /// Q-value monitoring.
    pub monitor: MonitorSettings,
    /// Length of training and early stop.
    pub training: TrainingSettings,
    /// Backtests and baselines.
    pub evaluation: EvaluationSettings,
    /// Folds and seeds of `foxhunt walk-forward`.
    pub walk_forward: WalkForwardSettings,
    /// Checkpoints.
    pub checkpoint: CheckpointSettings,
    /// Seed, device and where a run is kept.
    pub run: RunSettings,
}

/// A refused settings file or value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// The text is not TOML, or names a key that does not exist, or a value has the wrong type.
    #[error("settings do not parse: {reason}")]
    Parse {
        /// What the parser says, with line and column.
        reason: String,
    },
    /// A value is outside its range.
    #[error("{key} = {value} is refused: it must be {rule}")]
    OutOfRange {
        /// Dotted key.
        key: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        rule: &'static str,
    },
    /// A key that is known, but whose feature does not exist yet or has no meaning beside another key.
    #[error("{key} = {value} is not available: {reason}")]
    Unavailable {
        /// Dotted key.
        key: &'static str,
        /// The value given.
        value: String,
        /// Why.
        reason: &'static str,
    },
}

/// What the parser calls a type, and what its users do.
const TYPES: [(&str, &str); 8] = [
    ("expected usize", "expected a whole number from 0 on"),
    ("expected u64", "expected a whole number from 0 on"),
    ("expected u32", "expected a whole number from 0 on"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("expected string only", "expected a word in quotes"),
    ("expected a sequence", "expected a list in brackets"),
    ("expected a boolean", "expected true or false"),
];

/// The parser's message, which ends in what it expected and where, with the types as users know them.
fn in_words(message: &str) -> String {
    let message = message.trim_end();
    if let Some(found) = message.strip_suffix("wanted string or table") {
        return format!("{found}expected a word in quotes");
    }
    let (found, wanted) = message.split_at(message.rfind("expected ").unwrap_or(message.len()));
    if let Some(name) = wanted.strip_prefix("expected struct ") {
        return format!(
            "{found}expected a section{}",
            name.trim_start_matches(|c: char| c.is_alphanumeric())
        );
    }
    match TYPES.iter().find(|(theirs, _)| wanted.starts_with(theirs)) {
        Some((theirs, ours)) => format!("{found}{ours}{}", &wanted[theirs.len()..]),
        None => message.to_owned(),
    }
}

/// Refuses lists in the place of sections and of tables inside them: the parser would take their values in order.
fn check_sections(table: &toml::Table) -> Result<(), SettingsError> {
    let section = |key: &str, value: &toml::Value| match value {
        toml::Value::Array(_) => Err(SettingsError::Parse {
            reason: format!("`{key}` is a section with keys of its own, not a list"),
        }),
        _ => Ok(()),
    };
    for (key, value) in table {
        section(key, value)?;
    }
    for (outer, inner) in [("learner", "learning_rate"), ("learner", "target"), ("exploration", "epsilon")] {
        if let Some(value) = table.get(outer).and_then(|outer| outer.get(inner)) {
            section(&format!("{outer}.{inner}"), value)?;
        }
    }
    Ok(())
}

impl Settings {
    /// Reads settings from TOML text; a missing key takes its default, in a table given in part as well. Does not
    /// validate ranges.
    ///
    /// # Errors
    /// [`SettingsError::Parse`].
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        if let Ok(table) = toml::from_str::<toml::Table>(text) {
            check_sections(&table)?;
        }
        toml::from_str(text).map_err(|e| SettingsError::Parse { reason: in_words(&e.to_string()) })
    }

    /// As [`Settings::from_toml`], from a table that was put together; an error names the key, not a line.
    ///
    /// # Errors
    /// [`SettingsError::Parse`].
    pub fn from_table(table: toml::Table) -> Result<Self, SettingsError> {
        check_sections(&table)?;
        table.try_into().map_err(|e: toml::de::Error| SettingsError::Parse {
            reason: in_words(&e.to_string()).replace('\n', " "),
        })
    }

    /// The settings as TOML text that [`Settings::from_toml`] reads back to an equal value.
    ///
    /// # Errors
    /// [`SettingsError::Parse`] when a value cannot be written as TOML (a path that is not UTF-8).
    pub fn to_toml(&self) -> Result<String, SettingsError> {
        toml::to_string_pretty(self).map_err(|e| SettingsError::Parse { reason: e.to_string() })
    }
}
