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

/// Writes `report.html` and `report.json` into `folder`.
///
/// # Errors
/// Any [`ReportError`].
pub fn write(folder: &Path, input: &ReportInput<'_>) -> Result<(), ReportError> {
    for (name, text) in [("report.json", json::render(input)?), ("report.html", html::render(input)?)] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| ReportError::Io { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
