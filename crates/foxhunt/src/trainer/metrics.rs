//! `metrics.jsonl`: one JSON object a line, told apart by `kind`.
//!
//! | kind | keys |
//! |---|---|
//! | `epoch` | `epoch`, `epochs`, `wall_s`, `env_steps_per_s`, `updates_per_s`, `rollbacks` and every key of [`EpochStats`](foxhunt_core::record::EpochStats) |
//! | `validation` | the keys of [`ValidationReport`] |
//! | `checkpoint` | the keys of [`CheckpointReport`] |
//! | `warning` | `epoch` (epochs completed), `text` |
//!
//! Numbers are finite or `null`. Lines appear as things happen and are flushed one by one; after a resume the
//! lines of what is done again are gone, so an epoch occurs once. Reading it into plots is the report's business.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::observer::{CheckpointReport, EpochReport, TrainObserver, ValidationReport, Warning};
use crate::MLError;
use crate::checkpoint::store::write_synced;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
// Most lines are of the largest kind, so a box would save nothing.
#[allow(clippy::large_enum_variant)]
pub enum MetricsLine {
    /// A completed epoch.
    Epoch(EpochReport),
    /// A validation.
    Validation(ValidationReport),
    /// A saved checkpoint.
    Checkpoint(CheckpointReport),
    /// A warning.
    Warning {
        /// Epochs completed when it came.
        epoch: u64,
        /// What it said.
        text: String,
    },
}

impl MetricsLine {
    /// Epochs completed when the line was written.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Epoch(report) => report.epoch,
            Self::Validation(report) => report.epoch,
            Self::Checkpoint(report) => report.epoch,
            Self::Warning { epoch, .. } => *epoch,
        }
    }
}

/// Reads a metrics file. A last line that was cut off by a crash is left out.
///
/// # Errors
/// [`MLError::Io`], or [`MLError::Checkpoint`] naming the first line that does not parse.
pub fn read_metrics(path: &Path) -> Result<Vec<MetricsLine>, MLError> {
    let text = fs::read_to_string(path).map_err(|source| io("read", path, source))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| MLError::Checkpoint {
                path: path.to_path_buf(),
                reason: format!("line {}: {error}", index + 1),
            })
        })
        .collect()
}

/// Appends to `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
    epoch: u64,
    error: Option<std::io::Error>,
}

impl MetricsWriter {
    /// Opens the file after `epoch` completed epochs; lines of later epochs are removed first.
    ///
    /// # Errors
    /// [`MLError::Io`] or [`MLError::WriteFailed`].
    pub fn open(path: &Path, epoch: u64) -> Result<Self, MLError> {
        if path.exists() {
            Self::truncate_after(path, epoch)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|source| io("open", path, source))?;
        Ok(Self { path: path.to_path_buf(), file, epoch, error: None })
    }

    /// The first failure since the last call. A lost line does not end a run; whoever asks can warn of it.
    pub fn take_error(&mut self) -> Option<MLError> {
        self.error.take().map(|source| io("append to", &self.path, source))
    }

    /// Keeps the whole lines of epochs up to `epoch`; what is no metrics line at all is dropped with the rest.
    fn truncate_after(path: &Path, epoch: u64) -> Result<(), MLError> {
        let bytes = fs::read(path).map_err(|source| io("read", path, source))?;
        let mut kept = Vec::with_capacity(bytes.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let parsed = serde_json::from_slice::<MetricsLine>(line);
            if parsed.is_ok_and(|line| line.epoch() <= epoch) {
                kept.extend_from_slice(line);
            }
        }
        if kept == bytes {
            return Ok(());
        }
        let temporary = path.with_extension("jsonl.tmp");
        write_synced(&temporary, &kept)?;
        fs::rename(&temporary, path).map_err(|source| io("rename", &temporary, source))
    }

    fn put(&mut self, line: &MetricsLine) {
        let write = |file: &mut File| -> std::io::Result<()> {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            // One write a line, so that a reader or a crash sees whole lines or one cut line at the end.
            file.write_all(&text)
        };
        if let Err(error) = write(&mut self.file) {
            self.error.get_or_insert(error);
        }
    }
}

impl TrainObserver for MetricsWriter {
    fn on_epoch(&mut self, report: &EpochReport) {
        self.epoch = report.epoch;
        self.put(&MetricsLine::Epoch(report.clone()));
    }

    fn on_validation(&mut self, report: &ValidationReport) {
        self.put(&MetricsLine::Validation(report.clone()));
    }

    fn on_checkpoint(&mut self, report: &CheckpointReport) {
        self.put(&MetricsLine::Checkpoint(report.clone()));
    }

    fn on_warning(&mut self, warning: &Warning) {
        self.put(&MetricsLine::Warning { epoch: self.epoch, text: warning.to_string() });
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> MLError {
    MLError::Io { action, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxhunt_core::record::EpochStats;

    fn report(epoch: u64) -> EpochReport {
        EpochReport {
            epoch,
            epochs: 9,
            wall_s: 1.5,
            env_steps_per_s: Some(10.0),
            updates_per_s: None,
            rollbacks: 0,
            stats: EpochStats { loss: Some(f64::NAN), max_q: Some(0.1), ..EpochStats::default() },
        }
    }

    #[test]
    fn resume_leaves_each_epoch_once_and_drops_a_cut_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut writer = MetricsWriter::open(&path, 0).unwrap();
        (1..=5).for_each(|epoch| writer.on_epoch(&report(epoch)));
        writer.on_warning(&Warning::Diverged { epoch: 5 });
        drop(writer);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"kind\":\"epoch\",\"epo");
        fs::write(&path, text).unwrap();
        assert_eq!(read_metrics(&path).unwrap().len(), 6);

        let mut writer = MetricsWriter::open(&path, 3).unwrap();
        (4..=6).for_each(|epoch| writer.on_epoch(&report(epoch)));
        assert!(writer.take_error().is_none());
        let epochs: Vec<u64> = read_metrics(&path).unwrap().iter().map(MetricsLine::epoch).collect();
        assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_nan_never_reaches_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        MetricsWriter::open(&path, 0).unwrap().on_epoch(&report(1));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"loss\":null"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let MetricsLine::Epoch(back) = &read_metrics(&path).unwrap()[0] else { panic!("{text}") };
        assert_eq!((back.stats.loss, back.stats.max_q), (None, Some(0.1)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_remembered_once() {
        let mut writer = MetricsWriter::open(Path::new("/dev/null"), 0).unwrap();
        writer.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        writer.on_epoch(&report(1));
        writer.on_epoch(&report(2));
        assert!(writer.take_error().is_some());
        assert!(writer.take_error().is_none());
    }
}
