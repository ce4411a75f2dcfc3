//! Gathers what a report is made of and writes `report.json` and `report.html`.

use std::collections::BTreeMap;
use std::path::Path;

use foxhunt::evaluation::Evaluation;
use foxhunt::trainer::{MetricsLine, read_metrics};
use foxhunt::walk_forward::WalkForwardOutcome;
use foxhunt_core::Settings;
use foxhunt_market::{Market, Repairs};
use foxhunt_report::{Provenance, ReportInput, TrainingPoint};

use crate::data::{DataNote, Source};

/// Name and version of this program.
const PROGRAM: &str = concat!("foxhunt ", env!("CARGO_PKG_VERSION"));

/// What a report is about.
pub(crate) struct Subject<'a> {
    /// Its headline.
    pub(crate) title: &'a str,
    /// Which engine trained.
    pub(crate) engine: &'a str,
    /// Settings trained with.
    pub(crate) settings: &'a Settings,
    /// Market evaluated.
    pub(crate) market: &'a Market,
    /// Where they come from.
    pub(crate) note: &'a DataNote,
    /// The figures.
    pub(crate) evaluation: &'a Evaluation,
    /// Folds and seeds, of a walk-forward run.
    pub(crate) walk_forward: Option<&'a WalkForwardOutcome>,
}

/// Writes both files into `folder`.
pub(crate) fn write(
    folder: &Path,
    subject: &Subject<'_>,
    training: &[TrainingPoint],
    notes: &[String],
) -> anyhow::Result<()> {
    let settings_toml = subject.settings.to_toml()?;
    let provenance = provenance(subject);
    let input = ReportInput {
        title: subject.title,
        program: PROGRAM,
        created_ns: now_ns(),
        engine: subject.engine,
        seed: subject.settings.run.seed,
        settings_toml: &settings_toml,
        provenance: &provenance,
        bars: &subject.market.bars,
        evaluation: subject.evaluation,
        walk_forward: subject.walk_forward,
        training,
        notes,
    };
    Ok(foxhunt_report::write(folder, &input)?)
}

/// The training curves that a metrics file holds.
pub(crate) fn training_points(metrics: &Path) -> anyhow::Result<Vec<TrainingPoint>> {
    let mut points: BTreeMap<u64, TrainingPoint> = BTreeMap::new();
    for line in read_metrics(metrics)? {
        match line {
            MetricsLine::Epoch(report) => {
                let stats = &report.stats;
                points.insert(
                    report.epoch,
                    TrainingPoint {
                        epoch: report.epoch,
                        env_steps: stats.total_env_steps,
                        updates: stats.total_updates,
                        skipped_updates: stats.total_skipped_updates,
                        fallback_decisions: stats.fallback_decisions,
                        loss: stats.loss,
                        td_error: stats.td_error,
                        max_q: stats.max_q,
                        grad_norm: stats.grad_norm,
                        env_steps_per_s: report.env_steps_per_s,
                        updates_per_s: report.updates_per_s,
                        validation_log_return: None,
                        episode_log_return: stats.episode_log_return,
                    },
                );
            }
            MetricsLine::Validation(report) => {
                if let Some(point) = points.get_mut(&report.epoch) {
                    point.validation_log_return = report.net_log_return;
                }
            }
            MetricsLine::Checkpoint(_) | MetricsLine::Warning { .. } => {}
        }
    }
    Ok(points.into_values().collect())
}

fn provenance(subject: &Subject<'_>) -> Provenance {
    let report = &subject.note.report;
    let Repairs { unsorted, duplicates, gaps } = report.repaired;
    let repairs =
        [("rows sorted by time", unsorted), ("duplicates dropped", duplicates), ("gaps filled", gaps)];
    let mut notes = report.assumptions.clone();
    if subject.note.source == Source::BundledSample {
        notes.push("Bundled sample; its origin and licence are told in samples/README.md.".into());
    }
    Provenance {
        format: report.format.clone(),
        repairs: repairs.into_iter().filter(|(_, n)| *n > 0).map(|(kind, n)| (kind.to_owned(), n)).collect(),
        notes,
        ..Provenance::of_market(&report.file, subject.market, subject.settings.execution.half_spread_bps)
    }
}

/// Now, ns UTC; 0 on a clock before 1970.
fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
