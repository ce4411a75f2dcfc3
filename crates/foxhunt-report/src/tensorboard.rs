//! A training run as TensorBoard reads it: event files of scalars, fed by a [`TrainObserver`].
//!
//! A file is a row of TFRecords (length, its masked CRC32C, an `Event` message, its masked CRC32C; TensorFlow's
//! `record_writer` and `event.proto`). Tags are the keys of `metrics.jsonl`: `loss` for the key `loss` of an epoch,
//! `validation/net_log_return` for that of a validation; the step is the epoch. Numbers are f32, as TensorBoard keeps
//! them; switches are 0 or 1; lists, texts and values that are not finite are left out. A resumed run begins another file,
//! which says from which step on it stands in for the earlier ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crc::{CRC_32_ISCSI, Crc};
use foxhunt::trainer::{EpochReport, StartReport, TrainObserver, ValidationReport};
use prost::Message;
use serde::Serialize;
use serde_json::Value;

use crate::ReportError;

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
/// What every event file begins with.
const FILE_VERSION: &str = "brain.Event:2";
const PREFIX: &str = "events.out.tfevents.";

/// The message of `event.proto`; of its choice of contents those that are written here.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// The epoch.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// First event of a file.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    /// Scalars.
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
    /// First event of a resumed run, after the version.
    #[prost(message, optional, tag = "7")]
    pub session_log: Option<SessionLog>,
}

/// Values of one step.
#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    /// One a tag.
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Scalar>,
}

/// One value of one step.
#[derive(Clone, PartialEq, Message)]
pub struct Scalar {
    /// Its name.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Finite.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
}

/// Says that steps from this event's on are done anew.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    /// 1 is START.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// Writes one event file.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
    error: Option<io::Error>,
}

impl EventWriter {
    /// Begins a new event file in `folder`, which is made where it is missing. Its name sorts after those there.
    ///
    /// # Errors
    /// [`ReportError::Io`].
    pub fn create(folder: &Path) -> Result<Self, ReportError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| ReportError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        // Readers take files in the order of their names, which begin with the second they were made in.
        let last = fs::read_dir(folder).map_err(failed(folder))?.flatten().filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(PREFIX)?.split('.').next()?.parse::<u64>().ok()
        });
        let second = (seconds() as u64).max(last.max().map_or(0, |last| last + 1));
        let path = folder.join(format!("{PREFIX}{second:010}.foxhunt.{}.0", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed(&path))?;
        let mut writer = Self { path, file, error: None };
        writer.put(Event { file_version: Some(FILE_VERSION.to_owned()), ..Event::default() });
        match writer.error.take() {
            Some(source) => Err(ReportError::Io { path: writer.path, source }),
            None => Ok(writer),
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first failure since the last call. A lost event does not end a run; whoever asks can warn of it.
    pub fn take_error(&mut self) -> Option<ReportError> {
        self.error.take().map(|source| ReportError::Io { path: self.path.clone(), source })
    }

    fn put(&mut self, event: Event) {
        let event = Event { wall_time: seconds(), ..event };
        // One write an event, so that a reader or a crash sees whole events or one cut event at the end.
        if let Err(error) = self.file.write_all(&record(&event.encode_to_vec())) {
            self.error.get_or_insert(error);
        }
    }

    /// Every number of `report`, which serialises to an object.
    fn scalars(&mut self, prefix: &str, step: u64, report: &impl Serialize) {
        let Ok(Value::Object(keys)) = serde_json::to_value(report) else { return };
        let value = keys
            .into_iter()
            .filter(|(key, _)| key != "epoch")
            .filter_map(|(key, value)| {
                let number = value.as_f64().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))))?;
                let simple_value = Some(number as f32).filter(|number| number.is_finite());
                simple_value.is_some().then(|| Scalar { tag: format!("{prefix}{key}"), simple_value })
            })
            .collect();
        self.put(Event { step: step as i64, summary: Some(Summary { value }), ..Event::default() });
    }
}

impl TrainObserver for EventWriter {
    fn on_start(&mut self, start: &StartReport) {
        if start.resumed {
            let session_log = Some(SessionLog { status: 1 });
            self.put(Event { step: start.epoch as i64 + 1, session_log, ..Event::default() });
        }
    }

    fn on_epoch(&mut self, report: &EpochReport) {
        self.scalars("", report.epoch, report);
    }

    fn on_validation(&mut self, report: &ValidationReport) {
        self.scalars("validation/", report.epoch, report);
    }
}

/// Reads an event file. An event at the end that was cut off is left out.
///
/// # Errors
/// [`ReportError::Read`] when it cannot be read, or a checksum or a message is wrong.
pub fn read_events(path: &Path) -> Result<Vec<Event>, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_path_buf(), source };
    let wrong = |what: &str| failed(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    let bytes = fs::read(path).map_err(failed)?;
    let mut rest = &bytes[..];
    let mut events = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let Some((head_crc, after)) = after.split_first_chunk::<4>() else { break };
        if u32::from_le_bytes(*head_crc) != masked(head) {
            return Err(wrong("the checksum of a length is wrong"));
        }
        let len = usize::try_from(u64::from_le_bytes(*head)).unwrap_or(usize::MAX);
        let Some((data, after)) = after.split_at_checked(len) else { break };
        let Some((data_crc, after)) = after.split_first_chunk::<4>() else { break };
        if u32::from_le_bytes(*data_crc) != masked(data) {
            return Err(wrong("the checksum of an event is wrong"));
        }
        events.push(Event::decode(data).map_err(|error| wrong(&error.to_string()))?);
        rest = after;
    }
    Ok(events)
}

/// `data` as a TFRecord.
fn record(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend_from_slice(&len);
    record.extend_from_slice(&masked(&len).to_le_bytes());
    record.extend_from_slice(data);
    record.extend_from_slice(&masked(data).to_le_bytes());
    record
}

/// CRC32C, turned and shifted as TensorFlow does, because a checksum of data that holds checksums is a weak one.
fn masked(data: &[u8]) -> u32 {
    CASTAGNOLI.checksum(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn seconds() -> f64 {
    // A clock before 1970 is as good as 1970 here.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use foxhunt::engine::EngineStatus;
    use foxhunt::run_folder::RunPaths;
    use foxhunt_core::record::EpochStats;

    use super::*;

    fn report(epoch: u64) -> EpochReport {
        let stats = EpochStats {
            loss: Some(0.25),
            grad_norm: Some(f64::NAN),
            td_error: Some(1e300),
            q_diverged: true,
            ..EpochStats::default()
        };
        let (env_steps_per_s, updates_per_s) = (Some(10.0), None);
        EpochReport { epoch, epochs: 9, wall_s: 1.5, env_steps_per_s, updates_per_s, rollbacks: 0, stats }
    }

    /// CRC32C of `123456789` is the check value of the catalogue of CRCs; masked it is what TensorBoard 2.21.0 gives.
    #[test]
    fn checksums_are_masked_crc32c() {
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(masked(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn events_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path()).unwrap();
        writer.on_epoch(&report(1));
        writer.on_validation(&ValidationReport {
            epoch: 1,
            net_log_return: Some(-0.5),
            turnover: None,
            fills: 7,
            best: true,
            without_progress: 0,
        });
        assert!(writer.take_error().is_none());
        let events = read_events(writer.path()).unwrap();
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let scalars = |event: &Event| -> Vec<(String, f32)> {
            let values = event.summary.clone().unwrap().value;
            values.into_iter().map(|v| (v.tag, v.simple_value.unwrap())).collect()
        };
        let epoch = scalars(&events[1]);
        assert_eq!(events[1].step, 1);
        for want in [("loss", 0.25), ("q_diverged", 1.0), ("env_steps_per_s", 10.0), ("epsilon", 0.0)] {
            assert!(epoch.contains(&(want.0.to_owned(), want.1)), "{want:?} in {epoch:?}");
        }
        for absent in ["epoch", "grad_norm", "td_error", "updates_per_s", "actions", "faults"] {
            assert!(!epoch.iter().any(|(tag, _)| tag == absent), "{absent}");
        }
        let validation = scalars(&events[2]);
        assert!(validation.contains(&("validation/net_log_return".to_owned(), -0.5)), "{validation:?}");
        assert!(validation.contains(&("validation/best".to_owned(), 1.0)), "{validation:?}");
    }

    /// Cut anywhere, a file gives the events before the cut; changed anywhere, it is refused or loses its end.
    #[test]
    fn a_torn_file_gives_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path()).unwrap();
        writer.on_epoch(&report(1));
        let whole = fs::read(writer.path()).unwrap();
        for k in 0..whole.len() {
            fs::write(writer.path(), &whole[..k]).unwrap();
            assert!(read_events(writer.path()).unwrap().len() < 2, "{k}");
            let mut changed = whole.clone();
            changed[k] ^= 0x10;
            fs::write(writer.path(), &changed).unwrap();
            assert!(read_events(writer.path()).is_err(), "byte {k} changed");
        }
    }

    /// A resumed run writes a file that comes after the first, and says where it begins.
    #[test]
    fn resuming_begins_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..3)
            .map(|_| {
                let mut writer = EventWriter::create(folder.path()).unwrap();
                writer.on_start(&StartReport {
                    engine: "cpu",
                    epoch: 4,
                    resumed: true,
                    done: EngineStatus::default(),
                    epochs: 9,
                    run: RunPaths::new(folder.path()),
                });
                writer.path().to_path_buf()
            })
            .collect();
        assert!(files.is_sorted() && files[0] < files[1] && files[1] < files[2], "{files:?}");
        let start = &read_events(&files[2]).unwrap()[1];
        assert_eq!((start.step, start.session_log.clone()), (5, Some(SessionLog { status: 1 })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_remembered_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path()).unwrap();
        writer.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        writer.on_epoch(&report(1));
        writer.on_epoch(&report(2));
        assert!(writer.take_error().is_some() && writer.take_error().is_none());
    }
}
