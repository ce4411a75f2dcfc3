//! Why a checkpoint or policy folder cannot be used.

/// What is wrong with a checkpoint or policy on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFault {
    /// There is no such folder.
    #[error("there is no such folder")]
    Missing,
    /// The folder is there, but no policy in it: it is none, or that of a run that has not got so far.
    #[error("no policy.json in it or in its folder policy")]
    NoPolicy,
    /// The folder of a walk-forward run, whose folds have a policy each.
    #[error("it is a walk-forward run, with a policy in each of the folders in its folder folds")]
    OneEachFold,
    /// There is no manifest, so the folder was never finished (case E06).
    #[error("no manifest: it was never finished")]
    Unfinished,
    /// The file is cut off or holds bytes that make no sense (case E03).
    #[error("torn: {reason}")]
    Torn {
        /// What did not fit.
        reason: String,
    },
    /// A file holds other bytes than were written.
    #[error("checksum {found} of {file} is not the {expected} that was written")]
    Checksum {
        /// Which file.
        file: &'static str,
        /// BLAKE3 written down, hex.
        expected: String,
        /// BLAKE3 found, hex.
        found: String,
    },
    /// The file is of another kind, or was made with settings or data that do not fit.
    #[error("foreign: {reason}")]
    Foreign {
        /// What does not fit.
        reason: String,
    },
    /// The file was written by a newer format.
    #[error("format version {found} is newer than {supported}, the newest known here")]
    Newer {
        /// Version found.
        found: u32,
        /// Newest version this build reads.
        supported: u32,
    },
    /// The system refused to read it.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// What the system said.
        reason: String,
    },
}
