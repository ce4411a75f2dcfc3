//! A policy for other programs: its network as one ONNX or safetensors file that says what goes in and what comes out.
//!
//! Both files hold the same metadata: names of the inputs, normaliser, look-backs, actions (see [`metadata`]). An ONNX
//! file takes `state`, f32 `[N, state_dim]`, and gives `q_values`, f32 `[N, n_outputs]`, dueling streams already
//! combined; a safetensors file holds the arrays under the names of [`MlpLayout`](foxhunt_ops::mlp::MlpLayout).
//! Normalising and observing stay with the caller. [`check`] reads a written file back and compares what it computes
//! with our own network.

pub mod metadata;
pub mod onnx;
mod parity;
#[cfg(test)]
mod tests;

pub use parity::{CHECKED_STATES, Parity, TOLERANCE, check, check_states};

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::checkpoint::state_file;
use crate::checkpoint::store::{owns, write_synced};
use crate::{MLError, Policy};

/// A format that a policy can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A graph with its weights, for onnxruntime and others.
    Onnx,
    /// Named arrays.
    Safetensors,
}

impl Format {
    /// Ending of such a file's name.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Safetensors => "safetensors",
        }
    }

    /// The format whose file names end as `path` does.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?;
        [Self::Onnx, Self::Safetensors].into_iter().find(|format| extension == format.extension())
    }
}

/// Whether a file begins as exported ones do, or is empty.
fn is_export(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(9).read_to_end(&mut begin));
    let Ok(length) = fs::metadata(path).map(|there| there.len()) else { return false };
    let header = begin.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let safetensors = begin.get(8) == Some(&b'{') && header.is_some_and(|header| header < length);
    // ONNX begins with the number of its version's field.
    read.is_ok() && (begin.is_empty() || begin[0] == 0x08 || safetensors)
}

/// Writes `policy` to `path`: beside it first, then renamed, so that a reader sees the old file or the new one. Equal
/// policies are equal files.
///
/// # Errors
/// [`MLError::WriteFailed`] or [`MLError::Io`], and [`MLError::InvalidArgument`] for the file that a saved policy
/// keeps its own arrays in and for what is there already and no ordinary file: a folder, a link, a pipe, a device.
pub fn export(policy: &Policy, format: Format, path: &Path) -> Result<(), MLError> {
    let refused = |rule| {
        let (what, value) = ("the file exported to", path.display().to_string());
        Err(MLError::InvalidArgument { what, value, rule })
    };
    if Policy::owns(path) {
        return refused("another than the policy's own");
    }
    // A rename would put a file in the place of whatever is there.
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.is_file() {
            return refused("a new file or an ordinary one");
        }
        // Bars, say, or another file of a run.
        if owns(path) || !is_export(path) {
            return refused("a new file, or one that was exported before");
        }
    }
    let temporary = PathBuf::from(format!("{}.tmp", path.display()));
    let written = match format {
        Format::Onnx => write_synced(&temporary, &onnx::encode(policy)),
        Format::Safetensors => {
            state_file::write_with(&temporary, &policy.arrays(), &metadata::of(policy)).map(drop)
        }
    };
    let renamed = written.and_then(|()| {
        fs::rename(&temporary, path).map_err(|source| MLError::Io {
            action: "rename",
            path: temporary.clone(),
            source,
        })
    });
    if renamed.is_err() {
        // Best effort: the first error is the one worth telling.
        let _ = fs::remove_file(&temporary);
    }
    renamed
}
