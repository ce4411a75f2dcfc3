//! The run ledger: which configurations were tried on which bars, so that the best of many is not taken for the first.
//!
//! One JSON object a line in `ledger.jsonl` of the folder that run folders are made in. A line is added when a run
//! begins and another when its test bars were looked at. Lines are only ever added, each in one write under a lock, so
//! two processes can share a ledger; a last line torn by a crash is passed over and counted, and the next one begins on
//! a line of its own. A configuration is counted once however often it ran ([`config_hash`]); another seed is another
//! configuration, because a seed can be chosen too. Runs kept elsewhere have a ledger elsewhere: what was tried and not
//! recorded here deflates nothing.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use foxhunt_core::Settings;
use foxhunt_core::settings::Device;
use serde::{Deserialize, Serialize};

use crate::MLError;
use crate::checkpoint::settings_hash;
use crate::statistics::{SharpeEstimate, Trials};

/// Name of the file.
pub const FILE_NAME: &str = "ledger.jsonl";
/// What the first key of each line says.
const FORMAT: &str = "foxhunt ledger 1";

/// The ledger of one folder of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    path: PathBuf,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `foxhunt ledger 1`.
    format: String,
    /// When it was written, UTC.
    pub time: String,
    /// Hash of the bars, all of them.
    pub data_hash: String,
    /// [`config_hash`] of the settings.
    pub config_hash: String,
    /// What ran: `train`, `walk-forward`, `evaluate`.
    pub command: String,
    /// The ratio on bars held out; none while a run has only begun, or where the ratio is not defined.
    pub sharpe: Option<SharpeEstimate>,
}

impl Entry {
    /// A line about `settings` on the bars of that hash, now.
    #[must_use]
    pub fn now(command: &str, data_hash: &str, settings: &Settings, sharpe: Option<SharpeEstimate>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            time: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            data_hash: data_hash.to_owned(),
            config_hash: config_hash(settings),
            command: command.to_owned(),
            sharpe,
        }
    }
}

/// What a ledger tells of some bars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Configurations, and the variance of their newest ratios a bar.
    pub trials: Trials,
    /// Lines of the ledger that could not be read, whatever bars they were about.
    pub unreadable_lines: u64,
}

/// What a configuration is: the hash of every setting that can change a result, the seed among them. The device is
/// none, because engines are held to the same bits.
#[must_use]
pub fn config_hash(settings: &Settings) -> String {
    let mut settings = settings.clone();
    settings.run.device = Device::Auto;
    settings_hash(&settings)
}

impl Ledger {
    /// The ledger of the runs in `folder`.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(FILE_NAME) }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line. The folder is made if it is missing.
    ///
    /// # Errors
    /// [`MLError::Io`] or [`MLError::WriteFailed`].
    pub fn append(&self, entry: &Entry) -> Result<(), MLError> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| self.io("create the folder of", source))?;
        }
        let open = OpenOptions::new().create(true).append(true).read(true).open(&self.path);
        let mut file = open.map_err(|source| self.io("open", source))?;
        file.lock().map_err(|source| self.io("lock", source))?;
        let torn = ends_within_a_line(&mut file).map_err(|source| self.io("read", source))?;
        let mut line = serde_json::to_string(entry).expect("an entry is plain data with text keys");
        line.push('\n');
        if torn {
            line.insert(0, '\n');
        }
        let bytes = line.len() as u64;
        file.write_all(line.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|source| MLError::WriteFailed { path: self.path.clone(), bytes, source })
    }

    /// Every line that can be read, in the order written, and how many cannot. No file is an empty ledger.
    ///
    /// # Errors
    /// [`MLError::Io`].
    pub fn read(&self) -> Result<(Vec<Entry>, u64), MLError> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes).map_err(|source| self.io("read", source))?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(source) => return Err(self.io("open", source)),
        };
        let mut unreadable = 0;
        let mut entries = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Entry>(line) {
                Ok(entry) if entry.format == FORMAT => entries.push(entry),
                _ => unreadable += 1,
            }
        }
        Ok((entries, unreadable))
    }

    /// What was tried on the bars of that hash. `settings` counts, whether it has a line or not.
    ///
    /// # Errors
    /// [`MLError::Io`].
    pub fn tried(&self, data_hash: &str, settings: &Settings) -> Result<Tried, MLError> {
        let (entries, unreadable_lines) = self.read()?;
        let mut newest: BTreeMap<String, Option<f64>> = BTreeMap::from([(config_hash(settings), None)]);
        for entry in entries.into_iter().filter(|entry| entry.data_hash == data_hash) {
            let ratio = newest.entry(entry.config_hash).or_default();
            *ratio = entry.sharpe.map(|sharpe| sharpe.ratio).or(*ratio);
        }
        let ratios: Vec<f64> = newest.values().copied().flatten().collect();
        let trials = Trials { count: newest.len() as u64, variance: variance(&ratios) };
        Ok(Tried { trials, unreadable_lines })
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> MLError {
        MLError::Io { action, path: self.path.clone(), source }
    }
}

/// Sample variance; none of fewer than two values.
fn variance(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    Some(values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0))
}

/// Whether the file ends in the middle of a line.
fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests;
