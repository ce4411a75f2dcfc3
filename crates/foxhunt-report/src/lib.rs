//! Records in, HTML, JSON and tables out; metrics as Prometheus and TensorBoard read them.
//!
//! [`table::summary`] is the text a run ends with, [`json::render`] the report for programs, [`html::render`] the page
//! for people. Everything is made from one [`ReportInput`]; no figure is computed here that is not in it. A figure
//! that does not exist is `n/a` with its reason in all three.

pub mod charts;
mod error;
pub mod figures;
pub mod html;
mod input;
pub mod json;
pub mod lookahead;
pub mod number;
pub mod plot;
pub mod prometheus;
pub mod table;
pub mod tensorboard;
pub mod time;

use std::path::Path;

use foxhunt::checkpoint::write_synced;

pub use error::ReportError;
pub use input::{FILL_RULE, Provenance, ReportInput, TrainingPoint};

impl ReportInput<'_> {
    /// Checks that every window lies inside the bars.
    fn check(&self) -> Result<(), ReportError> {
        let bars = self.bars.len();
        match self.evaluation.windows.iter().find(|w| w.bars.is_empty() || w.bars.end > bars) {
            Some(w) => {
                Err(ReportError::Window { name: w.name.clone(), start: w.bars.start, end: w.bars.end, bars })
            }
            None => Ok(()),
        }
    }
}

/// Writes `report.html` and `report.json` into `folder`: both beside what is there first, then renamed, so that reports that cannot
/// be written leave those before as they were.
///
/// # Errors
/// Any [`ReportError`].
pub fn write(folder: &Path, input: &ReportInput<'_>) -> Result<(), ReportError> {
    let reports = [("report.json", json::render(input)?), ("report.html", html::render(input)?)];
    let paths = reports.map(|(name, text)| (folder.join(name), folder.join(format!("{name}.tmp")), text));
    let written = paths.iter().try_for_each(|(_, temporary, text)| {
        write_synced(temporary, text.as_bytes()).map_err(ReportError::from)
    });
    let renamed = written.and_then(|()| {
        paths.iter().try_for_each(|(path, temporary, _)| {
            std::fs::rename(temporary, path).map_err(|source| ReportError::Io { path: path.clone(), source })
        })
    });
    if renamed.is_err() {
        for (_, temporary, _) in &paths {
            // Best effort: the first error is the one worth telling.
            let _ = std::fs::remove_file(temporary);
        }
    }
    renamed
}

#[cfg(test)]
mod tests;
