//! What can go wrong in making a report.

use std::path::PathBuf;

/// Errors of the report crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The page template failed.
    #[error("the report template failed: {0}")]
    Template(#[from] minijinja::Error),
    /// JSON could not be written.
    #[error("the report cannot be written as json: {0}")]
    Json(#[from] serde_json::Error),
    /// A window of the evaluation does not lie inside the bars given.
    #[error("window {name} ({start}..{end}) does not lie inside the {bars} bars given")]
    Window {
        /// Name of the window.
        name: String,
        /// Its first bar.
        start: usize,
        /// Its end.
        end: usize,
        /// Bars given.
        bars: usize,
    },
    /// A report could not be written.
    #[error(transparent)]
    Write(#[from] foxhunt::MLError),
    /// A file operation failed.
    #[error("cannot write {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be read, or is not what it should be.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
}
