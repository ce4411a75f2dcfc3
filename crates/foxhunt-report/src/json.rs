//! The report as JSON; the schema is documented in `docs/report.md`.
//!
//! A figure is `{"value": x}` or `{"value": null, "reason": "..."}`, and there is no other null in the document.
//! Series are thinned to the bars where the agent's equity is extreme.

use std::collections::BTreeMap;

use foxhunt::evaluation::{Backtest, Measure, Metrics, OrderCounts, Summary, Verdict, WindowEvaluation};
use foxhunt::walk_forward::{Fold, FoldResult, Scores, WalkForwardOutcome};
use serde::Serialize;

use crate::ReportError;
use crate::figures::FIGURES;
use crate::input::{FILL_RULE, Provenance, ReportInput, TrainingPoint};
use crate::plot::sample;
use crate::time;

/// Name and version of the schema. The number rises when a reader of the old one would go wrong.
pub const SCHEMA: &str = "foxhunt-report/1";

/// Columns that the series of a window are thinned to; each gives up to two bars.
const SERIES_COLUMNS: usize = 500;

/// The report as one line of JSON text.
///
/// # Errors
/// [`ReportError::Json`]; [`ReportError::Window`] when a window does not lie inside the bars.
pub fn render(input: &ReportInput<'_>) -> Result<String, ReportError> {
    input.check()?;
    let windows = &input.evaluation.windows;
    let report = Report {
        schema: SCHEMA,
        title: input.title,
        program: input.program,
        created: time::minute(input.created_ns),
        engine: input.engine,
        seed: input.seed,
        settings_toml: input.settings_toml,
        provenance: Data::of(input.provenance),
        fill_rule: FILL_RULE,
        verdict: input.evaluation.verdict.as_ref(),
        walk_forward: input.walk_forward.map(|walk| Walk::of(walk, &input.bars.time)),
        windows: windows.iter().map(|window| Window::of(window, &input.bars.time)).collect(),
        training: input.training.iter().map(Epoch::of).collect(),
        notes: input.notes,
    };
    Ok(serde_json::to_string(&report)?)
}

type Figures = BTreeMap<&'static str, Measure>;

fn figures(metrics: &Metrics) -> Figures {
    FIGURES.iter().map(|figure| (figure.key, (figure.of)(metrics))).collect()
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    title: &'a str,
    program: &'a str,
    created: String,
    engine: &'a str,
    seed: u64,
    settings_toml: &'a str,
    provenance: Data<'a>,
    fill_rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    walk_forward: Option<Walk>,
    windows: Vec<Window<'a>>,
    training: Vec<Epoch>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Data<'a> {
    file: &'a str,
    format: &'a str,
    data_hash: &'a str,
    symbol: &'a str,
    bars: u64,
    first: String,
    last: String,
    first_ns: i64,
    last_ns: i64,
    bar_ns: i64,
    bars_per_year: Measure,
    tick_size: Measure,
    spread_source: &'a str,
    repairs: BTreeMap<&'a str, u64>,
    notes: &'a [String],
}

impl<'a> Data<'a> {
    fn of(p: &'a Provenance) -> Self {
        Self {
            file: &p.file,
            format: &p.format,
            data_hash: &p.data_hash,
            symbol: p.symbol.as_deref().unwrap_or_default(),
            bars: p.bars,
            first: time::minute(p.first_ns),
            last: time::minute(p.last_ns),
            first_ns: p.first_ns,
            last_ns: p.last_ns,
            bar_ns: p.bar_ns,
            bars_per_year: Measure::of_option(p.bars_per_year, "fewer than 2 bars"),
            tick_size: Measure::of(p.tick_size),
            spread_source: &p.spread_source,
            repairs: p.repairs.iter().map(|(kind, rows)| (kind.as_str(), *rows)).collect(),
            notes: &p.notes,
        }
    }
}

#[derive(Serialize)]
struct Window<'a> {
    name: &'a str,
    start_bar: usize,
    end_bar: usize,
    first: String,
    last: String,
    first_ns: i64,
    last_ns: i64,
    bars_per_year: Measure,
    agent: Policy<'a>,
    baselines: Vec<Policy<'a>>,
    random: Random,
    #[serde(skip_serializing_if = "Option::is_none")]
    foresight: Option<Policy<'a>>,
    ladder: Vec<Rung>,
    actions: Actions<'a>,
    series: Series<'a>,
}

impl<'a> Window<'a> {
    fn of(w: &'a WindowEvaluation, times: &[i64]) -> Self {
        let equity = &w.agent.backtest.equity;
        let mut all: BTreeMap<&str, &[f64]> = BTreeMap::from([
            ("agent", equity.as_slice()),
            ("random mean", &w.random.equity_mean),
            ("random low", &w.random.equity_low),
            ("random high", &w.random.equity_high),
        ]);
        all.extend(w.baselines.iter().map(|b| (b.name.as_str(), b.backtest.equity.as_slice())));
        let mut chosen = sample::min_max(equity, SERIES_COLUMNS);
        let thinned = chosen.len();
        chosen.retain(|i| all.values().all(|values| values.get(*i).is_some_and(|v| v.is_finite())));
        let thin = |values: &[f64]| chosen.iter().map(|i| ten_digits(values[*i])).collect();
        Self {
            name: &w.name,
            start_bar: w.bars.start,
            end_bar: w.bars.end,
            first: time::minute(w.first_ns),
            last: time::minute(w.last_ns),
            first_ns: w.first_ns,
            last_ns: w.last_ns,
            bars_per_year: Measure::of_option(w.bars_per_year, "fewer than 2 bars"),
            agent: Policy::of(&w.agent.name, &w.agent.metrics, &w.agent.backtest),
            baselines: w.baselines.iter().map(|b| Policy::of(&b.name, &b.metrics, &b.backtest)).collect(),
            random: Random::of(w),
            foresight: w.foresight.as_ref().map(|p| Policy::of(&p.name, &p.metrics, &p.backtest)),
            ladder: w
                .ladder
                .iter()
                .map(|rung| Rung { multiple: Measure::of(rung.multiple), figures: figures(&rung.metrics) })
                .collect(),
            actions: Actions {
                counts: &w.actions.counts,
                by_exposure: w.actions.by_exposure(),
                by_order_type: w.actions.by_order_type(),
                by_urgency: w.actions.by_urgency(),
                holds: w.actions.holds,
            },
            series: Series {
                bar: chosen.iter().map(|i| w.bars.start + i).collect(),
                time_ns: chosen.iter().map(|i| times[w.bars.start + i]).collect(),
                equity: all.into_iter().map(|(name, values)| (name, thin(values))).collect(),
                not_finite: thinned - chosen.len(),
            },
        }
    }
}

/// The value rounded to ten significant digits, which is what a plot can use and half the text.
fn ten_digits(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

#[derive(Serialize)]
struct Policy<'a> {
    name: &'a str,
    ruined: bool,
    figures: Figures,
    fills: usize,
    orders: OrderCounts,
}

impl<'a> Policy<'a> {
    fn of(name: &'a str, metrics: &Metrics, backtest: &Backtest) -> Self {
        Self {
            name,
            ruined: metrics.ruined,
            figures: figures(metrics),
            fills: backtest.fills.len(),
            orders: metrics.orders,
        }
    }
}

#[derive(Serialize)]
struct Random {
    policies: usize,
    chance: Measure,
    target_turnover: Measure,
    turnover: Measure,
    matched: bool,
    worse_than_agent: usize,
    figures: BTreeMap<&'static str, Summary>,
}

impl Random {
    fn of(w: &WindowEvaluation) -> Self {
        let r = &w.random;
        Self {
            policies: r.runs.len(),
            chance: Measure::of(r.chance),
            target_turnover: Measure::of(r.target_turnover),
            turnover: Measure::of(r.turnover),
            matched: r.matched,
            worse_than_agent: w.random_policies_beaten(),
            figures: FIGURES.iter().map(|figure| (figure.key, r.summary(figure.of))).collect(),
        }
    }
}

/// Folds and seeds.
#[derive(Serialize)]
struct Walk {
    folds: Vec<Fold>,
    runs: Vec<Run>,
    seeds: Vec<Seed>,
    median_seed: u64,
    scores: Scores,
    series: WalkSeries,
}

#[derive(Serialize)]
struct Run {
    fold: usize,
    seed: u64,
    epochs: u64,
    updates: u64,
    best_epoch: Measure,
    train: Figures,
    validation: Figures,
    test: Figures,
}

#[derive(Serialize)]
struct Seed {
    seed: u64,
    ruined: bool,
    figures: Figures,
}

#[derive(Serialize)]
struct WalkSeries {
    bar: Vec<usize>,
    time_ns: Vec<i64>,
    mean: Vec<f64>,
    seeds: Vec<Vec<f64>>,
    not_finite: usize,
}

impl Walk {
    fn of(w: &WalkForwardOutcome, times: &[i64]) -> Self {
        let run = |r: &FoldResult| Run {
            fold: r.fold.number,
            seed: r.seed,
            epochs: r.epochs,
            updates: r.updates,
            best_epoch: Measure::of_option(
                r.best_epoch.map(|epoch| epoch as f64),
                "no validation gave a score",
            ),
            train: figures(&r.train),
            validation: figures(&r.validation),
            test: figures(&r.test),
        };
        let equity: Vec<&Vec<f64>> = w.seeds.iter().map(|s| &s.evaluation.agent.backtest.equity).collect();
        let mut chosen = sample::min_max(&w.mean_equity, SERIES_COLUMNS);
        let thinned = chosen.len();
        let finite = |values: &Vec<f64>, i: usize| values.get(i).is_some_and(|v| v.is_finite());
        chosen.retain(|i| finite(&w.mean_equity, *i) && equity.iter().all(|values| finite(values, *i)));
        let thin = |values: &Vec<f64>| chosen.iter().map(|i| ten_digits(values[*i])).collect();
        let first = w.seeds[w.median].evaluation.bars.start;
        Self {
            folds: w.folds.clone(),
            runs: w.results.iter().map(run).collect(),
            seeds: w
                .seeds
                .iter()
                .map(|s| Seed {
                    seed: s.seed,
                    ruined: s.evaluation.agent.metrics.ruined,
                    figures: figures(&s.evaluation.agent.metrics),
                })
                .collect(),
            median_seed: w.seeds[w.median].seed,
            scores: w.scores.clone(),
            series: WalkSeries {
                bar: chosen.iter().map(|i| first + i).collect(),
                time_ns: chosen.iter().map(|i| times[first + i]).collect(),
                mean: thin(&w.mean_equity),
                seeds: equity.iter().map(|values| thin(values)).collect(),
                not_finite: thinned - chosen.len(),
            },
        }
    }
}

#[derive(Serialize)]
struct Rung {
    multiple: Measure,
    figures: Figures,
}

#[derive(Serialize)]
struct Actions<'a> {
    counts: &'a [u64],
    by_exposure: [u64; 5],
    by_order_type: [u64; 3],
    by_urgency: [u64; 3],
    holds: u64,
}

#[derive(Serialize)]
struct Series<'a> {
    bar: Vec<usize>,
    time_ns: Vec<i64>,
    equity: BTreeMap<&'a str, Vec<f64>>,
    not_finite: usize,
}

#[derive(Serialize)]
struct Epoch {
    epoch: u64,
    env_steps: u64,
    updates: u64,
    skipped_updates: u64,
    fallback_decisions: u64,
    loss: Measure,
    td_error: Measure,
    max_q: Measure,
    grad_norm: Measure,
    env_steps_per_s: Measure,
    updates_per_s: Measure,
    validation_log_return: Measure,
    episode_log_return: Measure,
}

impl Epoch {
    fn of(p: &TrainingPoint) -> Self {
        let updated = |value| Measure::of_option(value, "no update in this epoch");
        Self {
            epoch: p.epoch,
            env_steps: p.env_steps,
            updates: p.updates,
            skipped_updates: p.skipped_updates,
            fallback_decisions: p.fallback_decisions,
            loss: updated(p.loss),
            td_error: updated(p.td_error),
            max_q: Measure::of_option(p.max_q, "no decision in this epoch"),
            grad_norm: updated(p.grad_norm),
            env_steps_per_s: Measure::of_option(p.env_steps_per_s, "not measured"),
            updates_per_s: Measure::of_option(p.updates_per_s, "not measured"),
            validation_log_return: Measure::of_option(p.validation_log_return, "not validated in this epoch"),
            episode_log_return: Measure::of_option(p.episode_log_return, "no episode ended in this epoch"),
        }
    }
}
