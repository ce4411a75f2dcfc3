//! What it means: defaults, then the settings file, then flags, merged into checked [`Settings`].
//!
//! Merging works on TOML keys, so a new setting needs no code here.

use std::fs;
use std::path::Path;

use foxhunt_core::settings::{DataSettings, Device, Repair};
use foxhunt_core::{Settings, SettingsError};
use foxhunt_market::{MarketError, check_timezone};
use toml::{Table, Value};

use crate::args::{DataArgs, SettingsArgs};

/// A command line or settings file that cannot be used: exit code 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    /// The settings file cannot be read.
    #[error("cannot read settings file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The settings file is not TOML, or has unknown keys or wrong types.
    #[error("settings file {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        source: SettingsError,
    },
    /// A `--set` without `=`.
    #[error("--set {given}: expected KEY=VALUE, for example learner.batch=256")]
    SetForm {
        /// What was given.
        given: String,
    },
    /// A `--set` with a whole number that TOML has no room for.
    #[error("--set {given}: whole numbers go from -2^63 to 2^63 - 1")]
    SetNumber {
        /// What was given.
        given: String,
    },
    /// A `--set` whose key path runs through a plain value.
    #[error("--set {given}: {part} is a value, not a section")]
    SetPath {
        /// What was given.
        given: String,
        /// The part of the key that is no section.
        part: String,
    },
    /// A path that is kept in a text file and cannot be.
    #[error("{what} {path}: the path must be UTF-8, as a run keeps it in a text file")]
    NotUtf8 {
        /// What the path was given as.
        what: &'static str,
        /// The path, as far as it can be shown.
        path: String,
    },
    /// A flag of single runs, given for a walk-forward run.
    #[error("{flag} is not for walk-forward runs, which go on as they were begun")]
    NotForWalkForward {
        /// The flag.
        flag: &'static str,
    },
    /// Settings refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A time zone that is not known.
    #[error("data.timezone: {0}")]
    Timezone(MarketError),
}

/// Merges and checks everything that was given.
pub(crate) fn settings(args: &SettingsArgs) -> Result<Settings, UsageError> {
    let mut table = match &args.config {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    for given in &args.set {
        let (key, text) =
            given.split_once('=').ok_or_else(|| UsageError::SetForm { given: given.clone() })?;
        set(&mut table, given, key.trim(), value(given, text.trim())?)?;
    }
    let mut settings = Settings::from_table(table)?;
    if let Some(seed) = args.seed {
        settings.run.seed = seed;
    }
    if let Some(device) = args.device {
        settings.run.device = Device::from(device);
    }
    if let Some(epochs) = args.epochs {
        settings.training.epochs = epochs;
    }
    if let Some(out) = &args.out {
        keepable("--out", out)?;
        settings.run.dir.clone_from(out);
    }
    apply_data(&mut settings.data, &args.data);
    settings.validate()?;
    check_timezone(&settings.data.timezone).map_err(UsageError::Timezone)?;
    Ok(settings)
}

/// Refuses a path that the files of a run have no way to write.
pub(crate) fn keepable(what: &'static str, path: &Path) -> Result<(), UsageError> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(UsageError::NotUtf8 { what, path: path.display().to_string() }),
    }
}

/// Lays the data flags over `data`.
pub(crate) fn apply_data(data: &mut DataSettings, args: &DataArgs) {
    if let Some(symbol) = &args.symbol {
        data.symbol = Some(symbol.clone());
    }
    if let Some(timezone) = &args.timezone {
        data.timezone.clone_from(timezone);
    }
    if let Some(repair) = &args.repair {
        data.repair = repair.iter().copied().map(Repair::from).collect();
    }
    data.decimal_comma |= args.decimal_comma;
}

fn read(path: &Path) -> Result<Table, UsageError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| UsageError::Read { path: name.clone(), source })?;
    // Parsed into settings first, so that an error carries the line and column of the user's file.
    Settings::from_toml(&text).map_err(|source| UsageError::File { path: name, source })?;
    Ok(text.parse().unwrap_or_default())
}

/// `text` as a TOML value; what is no TOML value is a plain string, so `--set network.head=branching` works.
fn value(given: &str, text: &str) -> Result<Value, UsageError> {
    let parsed = format!("value = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("value"));
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).replace('_', "");
    match parsed {
        Some(value) => Ok(value),
        None if !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !has_leading_zero(&digits) =>
        {
            Err(UsageError::SetNumber { given: given.to_owned() })
        }
        None => Ok(Value::String(text.to_owned())),
    }
}

/// TOML takes `007` for no number; it may be meant as a word.
fn has_leading_zero(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0')
}

fn set(table: &mut Table, given: &str, key: &str, value: Value) -> Result<(), UsageError> {
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut at = table;
    for part in parts {
        at = at
            .entry(part)
            .or_insert_with(|| Value::Table(Table::new()))
            .as_table_mut()
            .ok_or_else(|| UsageError::SetPath { given: given.to_owned(), part: part.to_owned() })?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn resolve(arguments: &[&str]) -> Result<Settings, UsageError> {
        let cli = Cli::try_parse_from(["foxhunt", "train"].iter().chain(arguments)).unwrap();
        let Command::Train(args) = cli.command else { panic!("not train") };
        settings(&args.settings)
    }

    #[test]
    fn flags_override_the_file_and_the_file_overrides_defaults() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "[run]\nseed = 5\n[learner]\nbatch = 32\nn_step = 2").unwrap();
        let path = file.path().to_str().unwrap();
        let got = resolve(&["--config", path, "--seed", "9", "--set", "learner.batch=64"]).unwrap();
        assert_eq!((got.run.seed, got.learner.batch, got.learner.n_step), (9, 64, 2));
        assert_eq!(got.learner.gamma, Settings::default().learner.gamma);
    }

    #[test]
    fn set_takes_words_numbers_arrays_and_tables() {
        let got = resolve(&[
            "--set",
            "network.head=branching",
            "--set",
            "network.hidden=[8, 8]",
            "--set",
            "learner.target={ kind = \"hard\", every = 7 }",
            "--set",
            "exploration.epsilon.end=0.5",
            "--set",
            "exploration.epsilon.start=0.5",
            "--set",
            "exploration.epsilon.steps=1",
        ])
        .unwrap();
        assert_eq!(got.network.hidden, [8, 8]);
        assert_eq!(got.network.head, foxhunt_core::Head::Branching);
        assert_eq!(got.learner.target, foxhunt_core::settings::TargetUpdate::Hard { every: 7 });
    }

    /// A key alone keeps the rest of its table: the file's where the file has one, else the default's.
    #[test]
    fn a_table_is_changed_key_by_key() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "[exploration.epsilon]\nstart = 0.9").unwrap();
        let path = file.path().to_str().unwrap();
        let default = Settings::default().exploration.epsilon;
        let got = resolve(&["--set", "exploration.epsilon.end=0.5"]).unwrap().exploration.epsilon;
        assert_eq!((got.start, got.end, got.steps), (default.start, 0.5, default.steps));
        let got = resolve(&["--config", path, "--set", "exploration.epsilon.end=0.5"]).unwrap();
        let got = got.exploration.epsilon;
        assert_eq!((got.start, got.end, got.steps), (0.9, 0.5, default.steps));
        let error = resolve(&["--set", "exploration.epsilon.stop=0.5"]).unwrap_err().to_string();
        assert!(error.contains("stop"), "{error}");
    }

    #[test]
    fn wrong_usage_is_named() {
        assert!(matches!(resolve(&["--set", "learner.batch"]), Err(UsageError::SetForm { .. })));
        assert!(matches!(
            resolve(&["--set", "run.seed=1", "--set", "run.seed.x=1"]),
            Err(UsageError::SetPath { .. })
        ));
        let error = resolve(&["--set", "learner.lr=1"]).unwrap_err().to_string();
        assert!(error.contains("lr"), "{error}");
        let error = resolve(&["--set", "learner.gamma=nan"]).unwrap_err().to_string();
        assert!(error.contains("learner.gamma"), "{error}");
        // Nothing points into a text that nobody wrote.
        let error =
            resolve(&["--set", "learner.batch=12", "--set", "learner.btch=13"]).unwrap_err().to_string();
        assert!(error.contains("btch") && !error.contains("line"), "{error}");
        let error = resolve(&["--set", "learner.batch=twelve"]).unwrap_err().to_string();
        assert!(error.contains("learner.batch") && error.contains("twelve"), "{error}");
        let error = resolve(&["--set", "run.seed=9223372036854775808"]).unwrap_err().to_string();
        assert!(error.contains("9223372036854775808") && error.contains("2^63"), "{error}");
        let error = resolve(&["--timezone", "Mars/Olympus"]).unwrap_err().to_string();
        assert!(error.contains("data.timezone") && error.contains("Mars/Olympus"), "{error}");
        let error = resolve(&["--config", "no/such.toml"]).unwrap_err().to_string();
        assert!(error.contains("no/such.toml"), "{error}");
    }
}
