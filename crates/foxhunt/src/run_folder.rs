//! The folder of one run: its name, its files, and the lock that keeps a second writer out.
//!
//! ```text
//! runs/20261130T091500Z-3f2a9c/
//!   settings.toml  data_report.json  metrics.jsonl  lock
//!   checkpoints/epoch_<n>/{manifest.json, state.safetensors}
//!   policy/{policy.json, policy.safetensors}
//!   report.html  report.json  tensorboard/
//! ```
//! What is inside the files is told where they are written.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use foxhunt_core::Settings;
use serde::Serialize;

use crate::MLError;
use crate::checkpoint::settings_hash;
use crate::checkpoint::store::write_synced;

/// Runs started in one second with equal settings get `-2`, `-3` and so on, up to this many.
const MAX_SAME_NAME: u32 = 10_000;

/// Where the files of a run are. Only names; nothing has to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPaths {
    folder: PathBuf,
}

macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident = $file:literal),+ $(,)?) => {
        impl RunPaths {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(&self) -> PathBuf {
                self.folder.join($file)
            }
        )+}
    };
}

paths!(
    /// The settings that the run goes by: as it was started with, or as it was last resumed with.
    settings = "settings.toml",
    /// What was understood of the bar file.
    data_report = "data_report.json",
    /// One JSON object a line.
    metrics = "metrics.jsonl",
    /// The folder of checkpoints.
    checkpoints = "checkpoints",
    /// The folder of the best policy.
    policy = "policy",
    /// The folder of a walk-forward run's folds, each a run folder.
    folds = "folds",
    /// The folder of event files, where they were asked for.
    tensorboard = "tensorboard",
    /// The report as a page.
    report_html = "report.html",
    /// The report as data.
    report_json = "report.json",
    /// Held by the process that writes the run.
    lock = "lock",
);

impl RunPaths {
    /// The files of the run in `folder`.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A run folder that this process alone may write.
#[derive(Debug)]
pub struct RunFolder {
    paths: RunPaths,
    lock: File,
    stale: Option<String>,
}

impl RunFolder {
    /// Makes a new run folder in `settings.run.dir`, takes its lock and writes `settings.toml`.
    ///
    /// # Errors
    /// [`MLError::Io`] or [`MLError::WriteFailed`] when the folder cannot be written.
    pub fn create(settings: &Settings) -> Result<Self, MLError> {
        let toml = settings.to_toml()?;
        let parent = &settings.run.dir;
        fs::create_dir_all(parent).map_err(|source| io("create", parent, source))?;
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let name = format!("{time}-{}", &settings_hash(settings)[..6]);
        for attempt in 1..=MAX_SAME_NAME {
            let folder = match attempt {
                1 => parent.join(&name),
                _ => parent.join(format!("{name}-{attempt}")),
            };
            match fs::create_dir(&folder) {
                Ok(()) => return Self::begin(folder, &toml),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(io("create", &folder, source)),
            }
        }
        let taken = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(io("create", &parent.join(name), taken))
    }

    /// As [`RunFolder::create`], under the name given, which must not be taken.
    ///
    /// # Errors
    /// As [`RunFolder::create`].
    pub fn create_at(folder: &Path, settings: &Settings) -> Result<Self, MLError> {
        let toml = settings.to_toml()?;
        fs::create_dir(folder).map_err(|source| io("create", folder, source))?;
        Self::begin(folder.to_path_buf(), &toml)
    }

    fn begin(folder: PathBuf, toml: &str) -> Result<Self, MLError> {
        let run = Self::lock(RunPaths::new(folder))?;
        write_synced(&run.paths.settings(), toml.as_bytes())?;
        Ok(run)
    }

    /// Takes the lock of an existing run.
    ///
    /// # Errors
    /// [`MLError::RunLocked`] while another process holds it, [`MLError::Io`] when it cannot be written.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, MLError> {
        let paths = RunPaths::new(folder);
        if !paths.folder().is_dir() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(io("open", paths.folder(), missing));
        }
        Self::lock(paths)
    }

    /// The files of the run.
    #[must_use]
    pub fn paths(&self) -> &RunPaths {
        &self.paths
    }

    /// The process that held the lock before and died without letting go, as it named itself.
    #[must_use]
    pub fn stale_lock(&self) -> Option<&str> {
        self.stale.as_deref()
    }

    /// Writes `value` as JSON to `path`, in one piece: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// [`MLError::WriteFailed`] or [`MLError::Io`].
    pub fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), MLError> {
        write_json(path, value)
    }

    /// The settings that the run goes by; none when they cannot be read, as in a run killed in its first moment.
    ///
    /// # Errors
    /// [`MLError::Settings`] when the file was made into something that is no settings.
    pub fn settings(&self) -> Result<Option<Settings>, MLError> {
        read_settings(&self.paths)
    }

    /// Makes `settings` those that the run goes by; a reader sees the old file or the new one.
    ///
    /// # Errors
    /// [`MLError::WriteFailed`] or [`MLError::Io`].
    pub fn rewrite_settings(&self, settings: &Settings) -> Result<(), MLError> {
        let (path, toml) = (self.paths.settings(), settings.to_toml()?);
        replace(&path, &path.with_extension("toml.tmp"), toml.as_bytes())
    }

    /// The system drops the lock with its process, however that ends, so a lock is never stale; what a dead
    /// process leaves is its number in an unlocked file.
    fn lock(paths: RunPaths) -> Result<Self, MLError> {
        let path = paths.lock();
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| io("open", &path, source))?;
        let mut pid = String::new();
        let held = match lock.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(source)) => return Err(io("lock", &path, source)),
        };
        // Whatever is in there is only shown, so an unreadable lock file names no process.
        let _ = lock.read_to_string(&mut pid);
        let pid = pid.trim().to_owned();
        if held {
            return Err(MLError::RunLocked { path: paths.folder, pid });
        }
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            write!(lock, "{}", std::process::id())?;
            lock.sync_all()
        };
        write(&mut lock).map_err(|source| io("write", &path, source))?;
        Ok(Self { paths, lock, stale: Some(pid).filter(|pid| !pid.is_empty()) })
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // An empty lock file says that its holder ended properly. Failing to say so costs a notice at most.
        let _ = self.lock.set_len(0);
    }
}

/// See [`RunFolder::write_json`].
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), MLError> {
    let json = serde_json::to_vec_pretty(value)
        .map_err(|error| MLError::Checkpoint { path: path.to_path_buf(), reason: error.to_string() })?;
    replace(path, &path.with_extension("json.tmp"), &json)
}

/// See [`RunFolder::settings`].
pub(crate) fn read_settings(paths: &RunPaths) -> Result<Option<Settings>, MLError> {
    let Ok(text) = fs::read_to_string(paths.settings()) else { return Ok(None) };
    let settings = Settings::from_toml(&text)?;
    settings.validate()?;
    Ok(Some(settings))
}

fn replace(path: &Path, temporary: &Path, content: &[u8]) -> Result<(), MLError> {
    let renamed = write_synced(temporary, content)
        .and_then(|()| fs::rename(temporary, path).map_err(|source| io("rename", temporary, source)));
    if renamed.is_err() {
        // Best effort: the first error is the one worth telling.
        let _ = fs::remove_file(temporary);
    }
    renamed
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> MLError {
    MLError::Io { action, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_in(dir: &Path) -> Settings {
        let mut settings = Settings::default();
        settings.run.dir = dir.join("runs");
        settings
    }

    #[test]
    fn two_runs_of_one_second_get_two_folders() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings_in(dir.path());
        let runs = [0; 3].map(|_| RunFolder::create(&settings).unwrap());
        assert_ne!(runs[0].paths(), runs[1].paths());
        assert_ne!(runs[1].paths(), runs[2].paths());
        let name = runs[0].paths().folder().file_name().unwrap().to_str().unwrap();
        let (time, hash) = name.split_once('-').unwrap();
        assert_eq!((time.len(), &time[8..9], &time[15..]), (16, "T", "Z"), "{name}");
        assert_eq!(hash, &settings_hash(&settings)[..6]);
        let text = fs::read_to_string(runs[0].paths().settings()).unwrap();
        assert_eq!(Settings::from_toml(&text).unwrap(), settings);
    }

    #[test]
    fn a_second_writer_is_kept_out_and_a_dead_one_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&settings_in(dir.path())).unwrap();
        let folder = run.paths().folder().to_path_buf();
        match RunFolder::open(&folder) {
            Err(MLError::RunLocked { path, pid }) => {
                assert_eq!((path, pid), (folder.clone(), std::process::id().to_string()));
            }
            other => panic!("{other:?}"),
        }
        drop(run);
        assert_eq!(RunFolder::open(&folder).unwrap().stale_lock(), None);
        // A killed process leaves its number behind, but no lock.
        fs::write(folder.join("lock"), "4194305").unwrap();
        assert_eq!(RunFolder::open(&folder).unwrap().stale_lock(), Some("4194305"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings_in(dir.path());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        settings.run.dir = file.join("runs");
        let error = RunFolder::create(&settings).unwrap_err();
        assert!(matches!(error, MLError::Io { action: "create", .. }), "{error}");
        assert!(matches!(RunFolder::open(dir.path().join("none")), Err(MLError::Io { .. })));
    }
}
