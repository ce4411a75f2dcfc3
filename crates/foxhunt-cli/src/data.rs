//! Where bars come from: a file, or the sample inside the binary; and the note of it that a run keeps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use foxhunt::MLError;
use foxhunt_core::settings::DataSettings;
use foxhunt_market::{DataReport, Loaded, MarketError, load};
use serde::{Deserialize, Serialize};

use crate::console;
use crate::resolve::{UsageError, keepable};

/// The bundled bars, so that an installed binary needs no file. Provenance: `samples/README.md`.
const SAMPLE: &[u8] = include_bytes!("../../../samples/eurusd_1h_2017_ask.csv");
/// What the bundled bars are called.
const SAMPLE_NAME: &str = "eurusd_1h_2017_ask.csv";

/// Where bars come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Source {
    /// The sample inside the binary.
    BundledSample,
    /// A file.
    File {
        /// Where it is; absolute, so that a run can be resumed from any folder.
        path: PathBuf,
    },
}

/// `data_report.json` of a run folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DataNote {
    /// Where the bars come from.
    pub(crate) source: Source,
    /// How they were read.
    pub(crate) report: DataReport,
}

impl Source {
    /// The source that a command line names.
    pub(crate) fn of(file: Option<&Path>) -> Self {
        match file {
            None => Self::BundledSample,
            Some(path) => {
                Self::File { path: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()) }
            }
        }
    }

    /// As [`Source::of`], for a run that keeps a note of it.
    pub(crate) fn to_keep(file: Option<&Path>) -> Result<Self, UsageError> {
        let source = Self::of(file);
        if let Self::File { path } = &source {
            keepable("bar file", path)?;
        }
        Ok(source)
    }

    /// What to call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::BundledSample => format!("bundled sample {SAMPLE_NAME}"),
            Self::File { path } => path.display().to_string(),
        }
    }

    /// Reads the bars.
    pub(crate) fn load(&self, settings: &DataSettings) -> anyhow::Result<Loaded> {
        console::hush_caught_panics();
        match self {
            Self::File { path } => load(path, settings).map_err(|error| self.named(error)),
            Self::BundledSample => bundled(settings),
        }
    }

    /// An error with the name of these bars before it, if it is about bars and does not say which (too few of them,
    /// for example, is found by parts that know of no file).
    pub(crate) fn named(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        let about_bars =
            error.is::<MarketError>() || matches!(error.downcast_ref::<MLError>(), Some(MLError::Market(_)));
        let name = self.name();
        if about_bars && !error.to_string().contains(&name) { error.context(name) } else { error }
    }
}

/// The loader reads files, so the sample takes the way of any other: through a file of its own name.
fn bundled(settings: &DataSettings) -> anyhow::Result<Loaded> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder for the bundled sample")?;
    let path = folder.path().join(SAMPLE_NAME);
    fs::write(&path, SAMPLE).with_context(|| format!("cannot write {}", path.display()))?;
    load(&path, settings)
        .map_err(|error: MarketError| anyhow::Error::new(error).context("the bundled sample"))
}
