//! The folder of checkpoints: atomic saves, the last K kept, the newest usable one found.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::manifest::{FORMAT, Manifest};
use super::{CheckpointFault, sealed, state_file};
use crate::MLError;
use crate::engine::Snapshot;

const MANIFEST: &str = "manifest.json";
const STATE: &str = "state.safetensors";
/// Everything that is not finished carries this ending.
const UNFINISHED: &str = ".tmp";
/// What a start-up test write puts on the disk.
const PROBE_BYTES: usize = 64 * 1024;

/// Whether `path` is a file of a checkpoint, which nothing else may be written to.
pub(crate) fn owns(path: &Path) -> bool {
    let named = path.file_name().is_some_and(|name| name == MANIFEST || name == STATE);
    named && path.with_file_name(MANIFEST).exists()
}

/// A checkpoint in memory.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Where it lies.
    pub path: PathBuf,
    /// Everything that is not an array.
    pub manifest: Manifest,
    /// Every array.
    pub snapshot: Snapshot,
}

/// What loading found. `skipped` is the warning: newer checkpoints that could not be used, and why.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    /// The newest usable checkpoint.
    pub checkpoint: Checkpoint,
    /// Newer checkpoints that were passed over, newest first.
    pub skipped: Vec<(PathBuf, CheckpointFault)>,
}

/// Number of a checkpoint: completed epochs, then steps into the next one (0 at an epoch boundary).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointNumber {
    /// Epochs completed.
    pub epoch: u64,
    /// Vector steps plus updates done of the epoch after it.
    pub step: u64,
}

impl CheckpointNumber {
    /// The folder name: `epoch_12`, or `epoch_12_37` when saved 37 steps into the thirteenth epoch.
    #[must_use]
    pub fn folder_name(self) -> String {
        match self.step {
            0 => format!("epoch_{}", self.epoch),
            step => format!("epoch_{}_{step}", self.epoch),
        }
    }

    /// Reads a folder name back. Leading zeros are fine; any other name is no checkpoint (case E05).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let digits = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().ok(),
            false => None,
        };
        let rest = name.strip_prefix("epoch_")?;
        match rest.split_once('_') {
            Some((epoch, step)) => Some(Self { epoch: digits(epoch)?, step: digits(step)? }),
            None => Some(Self { epoch: digits(rest)?, step: 0 }),
        }
    }
}

/// The checkpoints of one run.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
    keep: usize,
}

impl CheckpointStore {
    /// A store over `folder` that keeps the last `keep` checkpoints. Touches nothing yet.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self { folder: folder.into(), keep: keep.max(1) }
    }

    /// Makes the folder, clears what an earlier process left unfinished, and writes a test file, so that a
    /// read-only or full disk is found before hours of work (case E08).
    ///
    /// # Errors
    /// [`MLError::Io`] or [`MLError::WriteFailed`].
    pub fn prepare(&self) -> Result<(), MLError> {
        fs::create_dir_all(&self.folder).map_err(|source| io("create", &self.folder, source))?;
        for path in self.entries()? {
            if path.to_string_lossy().ends_with(UNFINISHED) {
                remove(&path)?;
            }
        }
        let probe = self.folder.join(format!("probe{UNFINISHED}"));
        let written = write_synced(&probe, &[0; PROBE_BYTES]);
        // A failed probe may have left part of itself; the failure is what gets reported.
        let removed = fs::remove_file(&probe);
        written?;
        removed.map_err(|source| io("remove", &probe, source))
    }

    /// Numbers and folders of what look like checkpoints, newest first, judged by number alone.
    ///
    /// # Errors
    /// [`MLError::Io`].
    pub fn list(&self) -> Result<Vec<(CheckpointNumber, PathBuf)>, MLError> {
        let mut found: Vec<_> = self
            .entries()?
            .into_iter()
            .filter_map(|path| Some((CheckpointNumber::parse(path.file_name()?.to_str()?)?, path)))
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Saves under `number`: written to a temporary folder, flushed, renamed into place, older ones removed.
    /// On an error the temporary folder is gone and every earlier checkpoint is as it was.
    ///
    /// # Errors
    /// [`MLError::WriteFailed`] or [`MLError::Io`].
    pub fn save(
        &self,
        number: CheckpointNumber,
        manifest: Manifest,
        snapshot: &Snapshot,
    ) -> Result<PathBuf, MLError> {
        let target = self.folder.join(number.folder_name());
        let temporary = self.folder.join(format!("{}{UNFINISHED}", number.folder_name()));
        if let Err(error) = write_folder(&temporary, manifest, snapshot) {
            // Best effort: the first error is the one worth telling.
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        replace_folder(&temporary, &target)?;
        self.prune(number)?;
        Ok(target)
    }

    /// Loads the newest checkpoint that is whole, and says which newer ones were not.
    ///
    /// # Errors
    /// [`MLError::NoUsableCheckpoint`], never a silent start from nothing (case E06); [`MLError::Io`].
    pub fn load_newest(&self) -> Result<LoadOutcome, MLError> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match read_folder(&path) {
                Ok(checkpoint) => return Ok(LoadOutcome { checkpoint, skipped }),
                Err(fault) => skipped.push((path, fault)),
            }
        }
        Err(self.none_usable(&skipped))
    }

    fn none_usable(&self, skipped: &[(PathBuf, CheckpointFault)]) -> MLError {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let newest = skipped.first().map(|(path, fault)| format!("; the newest, {}: {fault}", name(path)));
        MLError::NoUsableCheckpoint {
            path: self.folder.clone(),
            unusable: skipped.len(),
            newest: newest.unwrap_or_default(),
        }
    }

    /// The newest manifest that can be read, and the folder it is in. What it tells of arrays is not looked at.
    ///
    /// # Errors
    /// As [`CheckpointStore::load_newest`].
    pub fn newest_manifest(&self) -> Result<(PathBuf, Manifest), MLError> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match sealed::read(FORMAT, MANIFEST, &path.join(MANIFEST)) {
                Ok(manifest) => return Ok((path, manifest)),
                Err(fault) => skipped.push((path, fault)),
            }
        }
        Err(self.none_usable(&skipped))
    }

    fn entries(&self) -> Result<Vec<PathBuf>, MLError> {
        let listing = match fs::read_dir(&self.folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io("list", &self.folder, error)),
        };
        listing
            .map(|entry| entry.map(|entry| entry.path()).map_err(|source| io("list", &self.folder, source)))
            .collect()
    }

    /// Removes all but the last `keep` up to `newest`. Higher numbers, which only a torn checkpoint can have,
    /// are left for the save that replaces them.
    fn prune(&self, newest: CheckpointNumber) -> Result<(), MLError> {
        let up_to_newest = self.list()?.into_iter().filter(|(number, _)| *number <= newest);
        for (_, path) in up_to_newest.skip(self.keep) {
            // Renamed first, so that a crash half-way through leaves no headless checkpoint.
            let doomed = PathBuf::from(format!("{}{UNFINISHED}", path.display()));
            fs::rename(&path, &doomed).map_err(|source| io("rename", &path, source))?;
            remove(&doomed)?;
        }
        Ok(())
    }
}

/// Loads one checkpoint folder.
///
/// # Errors
/// [`MLError::CheckpointFile`] with what is wrong with it.
pub fn load(path: &Path) -> Result<Checkpoint, MLError> {
    read_folder(path).map_err(|fault| MLError::CheckpointFile { path: path.to_path_buf(), fault })
}

fn read_folder(path: &Path) -> Result<Checkpoint, CheckpointFault> {
    let manifest: Manifest = sealed::read(FORMAT, MANIFEST, &path.join(MANIFEST))?;
    let (snapshot, found) = state_file::read(&path.join(STATE))?;
    check_fingerprint(STATE, &manifest.fingerprint(), &found)?;
    Ok(Checkpoint { path: path.to_path_buf(), manifest, snapshot })
}

pub(crate) fn check_fingerprint(
    file: &'static str,
    expected: &state_file::Fingerprint,
    found: &state_file::Fingerprint,
) -> Result<(), CheckpointFault> {
    if expected == found {
        return Ok(());
    }
    Err(CheckpointFault::Checksum { file, expected: expected.blake3.clone(), found: found.blake3.clone() })
}

/// State first, manifest last: a folder with a manifest is a finished folder.
fn write_folder(folder: &Path, mut manifest: Manifest, snapshot: &Snapshot) -> Result<(), MLError> {
    fs::create_dir_all(folder).map_err(|source| io("create", folder, source))?;
    let fingerprint = state_file::write(&folder.join(STATE), snapshot)?;
    manifest.state_bytes = fingerprint.bytes;
    manifest.state_blake3 = fingerprint.blake3;
    write_sealed(&folder.join(MANIFEST), FORMAT, &manifest)?;
    sync_folder(folder)
}

pub(crate) fn write_sealed<T: serde::Serialize>(
    path: &Path,
    format: sealed::Format,
    body: &T,
) -> Result<(), MLError> {
    let text = sealed::seal(format, body)
        .map_err(|error| MLError::Checkpoint { path: path.to_path_buf(), reason: error.to_string() })?;
    write_synced(path, text.as_bytes())
}

/// Writes a file that is on disk when this returns, as some systems tell only then that there was no room.
///
/// # Errors
/// [`MLError::WriteFailed`].
pub fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), MLError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| MLError::WriteFailed {
        path: path.to_path_buf(),
        bytes: bytes.len() as u64,
        source,
    })
}

/// Puts the finished `temporary` folder in the place of `target` and flushes the parent.
pub(crate) fn replace_folder(temporary: &Path, target: &Path) -> Result<(), MLError> {
    if target.exists() {
        // A folder cannot be renamed over a full one. Its stand-in keeps the unfinished ending, so a crash
        // between the two renames leaves older checkpoints, never a half one.
        let old = PathBuf::from(format!("{}.old{UNFINISHED}", target.display()));
        remove(&old)?;
        fs::rename(target, &old).map_err(|source| io("rename", target, source))?;
        fs::rename(temporary, target).map_err(|source| io("rename", temporary, source))?;
        remove(&old)?;
    } else {
        fs::rename(temporary, target).map_err(|source| io("rename", temporary, source))?;
    }
    target.parent().map_or(Ok(()), sync_folder)
}

/// Flushes names and renames of `folder`.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), MLError> {
    // Only Unix lets a folder be opened and flushed; elsewhere the rename is as durable as it gets.
    if cfg!(unix) {
        let flush = || File::open(folder)?.sync_all();
        flush().map_err(|source| io("flush", folder, source))?;
    }
    Ok(())
}

pub(crate) fn remove(path: &Path) -> Result<(), MLError> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", path, error)),
        _ => Ok(()),
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> MLError {
    MLError::Io { action, path: path.to_path_buf(), source }
}
