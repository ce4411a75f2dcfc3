//! What the page tells about folds and seeds.

use foxhunt::evaluation::Metrics;
use foxhunt::walk_forward::{FoldResult, Score, WalkForwardOutcome};
use serde::Serialize;

use super::cell::{Cell, Row};
use crate::figures::{Figure, figure};
use crate::number::{count, or_reason};
use crate::{ReportInput, charts, time};

/// Figures of a seed over all test windows.
const OF_SEED: [&str; 6] =
    ["net_return", "annual_return", "sharpe", "max_drawdown", "turnover", "cost_share"];

#[derive(Serialize)]
pub(super) struct WalkSection {
    line: String,
    plot: String,
    scores: Vec<Row>,
    seed_figures: Vec<&'static str>,
    seeds: Vec<Row>,
    folds: Vec<FoldRow>,
}

#[derive(Serialize)]
struct FoldRow {
    number: usize,
    train: String,
    validation: String,
    test: String,
    cells: Vec<Cell>,
}

impl WalkSection {
    pub(super) fn of(w: &WalkForwardOutcome, input: &ReportInput<'_>) -> Self {
        let figures: Vec<&Figure> = OF_SEED.iter().filter_map(|key| figure(key)).collect();
        let seeds = w.seeds.iter().enumerate().map(|(i, seed)| {
            let shown = if i == w.median { ", shown below" } else { "" };
            let metrics = &seed.evaluation.agent.metrics;
            Row {
                name: format!("seed {}{shown}", seed.seed),
                class: if i == w.median { "agent" } else { "" },
                cells: figures.iter().map(|f| Cell::of(f, metrics)).collect(),
            }
        });
        Self {
            line: format!(
                "{} folds, {} seeds; {} of {} test windows ended with a profit after costs",
                count(w.folds.len() as u64),
                count(w.seeds.len() as u64),
                count(w.scores.profitable as u64),
                count(w.scores.runs as u64)
            ),
            plot: charts::seeds(w, input.bars).html(),
            scores: w.scores.figures.iter().filter_map(score_row).collect(),
            seed_figures: figures.iter().map(|f| f.label).collect(),
            seeds: seeds.collect(),
            folds: fold_rows(w, input),
        }
    }
}

fn score_row(score: &Score) -> Option<Row> {
    let f = figure(&score.key)?;
    let write = |measure| Cell::written(measure, |v| f.unit.write(v));
    let all = [&score.iqm, &score.low, &score.high, &score.mean, &score.min, &score.max];
    Some(Row { name: f.label.into(), class: "", cells: all.into_iter().map(write).collect() })
}

fn fold_rows(w: &WalkForwardOutcome, input: &ReportInput<'_>) -> Vec<FoldRow> {
    let span = |range: &std::ops::Range<usize>| {
        let at = |bar: usize| input.bars.time.get(bar).map_or_else(String::new, |ns| time::date(*ns));
        format!("{} to {}", at(range.start), at(range.end.saturating_sub(1)))
    };
    let rows = w.folds.iter().map(|fold| {
        let of_fold: Vec<&FoldResult> = w.results.iter().filter(|r| r.fold.number == fold.number).collect();
        let mean = |key: &str, get: fn(&FoldResult) -> &Metrics| {
            let Some(f) = figure(key) else { return Cell::plain("n/a") };
            let measures = of_fold.iter().map(|result| (f.of)(get(result)));
            Cell::measured(f, &foxhunt::evaluation::Summary::of(measures).mean)
        };
        FoldRow {
            number: fold.number,
            train: span(&fold.windows.train),
            validation: span(&fold.windows.validation),
            test: span(&fold.windows.test),
            cells: vec![
                mean("net_return", |r| &r.train),
                mean("net_return", |r| &r.validation),
                mean("net_return", |r| &r.test),
                mean("sharpe", |r| &r.train),
                mean("sharpe", |r| &r.test),
            ],
        }
    });
    rows.collect()
}

/// The scores as lines for a terminal.
#[must_use]
pub fn lines(w: &WalkForwardOutcome) -> Vec<String> {
    let line = |score: &Score| {
        let f = figure(&score.key)?;
        let write = |m| or_reason(m, |v| f.unit.write(v));
        let (iqm, low, high) = (write(&score.iqm), write(&score.low), write(&score.high));
        Some(format!("{} of a test window: IQM {iqm}, 95 % from {low} to {high}", f.label))
    };
    w.scores.figures.iter().filter_map(line).collect()
}
