//! What a report is made of, beside the evaluation itself: provenance of the data, training curves, settings.
//!
//! The caller fills these; nothing here reads a run folder.

use foxhunt::evaluation::Evaluation;
use foxhunt::walk_forward::WalkForwardOutcome;
use foxhunt_market::{BarSeries, Market};
use serde::{Deserialize, Serialize};

/// Everything a page or a JSON report needs. Borrowed, because the bars may be large.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// What this report is of: a run id, or the name of an evaluated policy.
    pub title: &'a str,
    /// Version of the program, for example `foxhunt 0.1.0`.
    pub program: &'a str,
    /// When the report was made, ns UTC.
    pub created_ns: i64,
    /// `cpu`, `cuda`.
    pub engine: &'a str,
    /// Seed of the run.
    pub seed: u64,
    /// Settings as TOML text.
    pub settings_toml: &'a str,
    /// Where the bars come from.
    pub provenance: &'a Provenance,
    /// The bars that were evaluated; windows index them.
    pub bars: &'a BarSeries,
    /// Agent and baselines.
    pub evaluation: &'a Evaluation,
    /// Folds and seeds, when this is of a walk-forward run.
    pub walk_forward: Option<&'a WalkForwardOutcome>,
    /// Training curves, one point an epoch in order; empty when a policy is evaluated alone.
    pub training: &'a [TrainingPoint],
    /// Anything the reader must know, for example that training was stopped or that no seeds were repeated.
    pub notes: &'a [String],
}

/// Where bars come from and what was done to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// File name as given.
    pub file: String,
    /// Format as understood: `csv`, `parquet`, `dbn`, ...
    pub format: String,
    /// BLAKE3 of the bars as loaded.
    pub data_hash: String,
    /// Instrument, when known.
    pub symbol: Option<String>,
    /// Bars kept.
    pub bars: u64,
    /// Time of the first bar, ns UTC.
    pub first_ns: i64,
    /// Time of the last bar, ns UTC.
    pub last_ns: i64,
    /// Most frequent interval, ns.
    pub bar_ns: i64,
    /// Bars a year as observed over the whole file.
    pub bars_per_year: Option<f64>,
    /// Smallest price step, as fills take it.
    pub tick_size: f64,
    /// Where the half spread of fills comes from, in words.
    pub spread_source: String,
    /// Repairs and how many rows each touched.
    pub repairs: Vec<(String, u64)>,
    /// Further lines, for example licence of the data or suspicious jumps.
    pub notes: Vec<String>,
}

impl Provenance {
    /// What the market itself tells; the caller adds format, repairs and notes.
    #[must_use]
    pub fn of_market(file: &str, market: &Market, half_spread_bps: f64) -> Self {
        let bars = &market.bars;
        let spread_source = if bars.spread.is_some() {
            "half of the spread in the file, at the bar of the decision".into()
        } else {
            format!("{half_spread_bps} basis points of the price, because the file has no spread")
        };
        Self {
            file: file.into(),
            format: String::new(),
            data_hash: bars.data_hash(),
            symbol: bars.symbol.clone(),
            bars: bars.len() as u64,
            first_ns: bars.time.first().copied().unwrap_or_default(),
            last_ns: bars.time.last().copied().unwrap_or_default(),
            bar_ns: bars.bar_ns,
            bars_per_year: bars.bars_per_year(0..bars.len()),
            tick_size: market.tick_size,
            spread_source,
            repairs: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// One epoch of training. A missing or non-finite value is a gap in its curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingPoint {
    /// Epoch, counted from 1.
    pub epoch: u64,
    /// Env steps since the start of training.
    pub env_steps: u64,
    /// Updates since the start of training.
    pub updates: u64,
    /// Skipped updates since the start of training.
    pub skipped_updates: u64,
    /// Decisions of this epoch that fell back, because every Q-value to choose by was NaN.
    pub fallback_decisions: u64,
    /// Mean loss.
    pub loss: Option<f64>,
    /// Mean |TD error|.
    pub td_error: Option<f64>,
    /// Mean of max-Q.
    pub max_q: Option<f64>,
    /// Mean gradient norm before clipping.
    pub grad_norm: Option<f64>,
    /// Env steps a second.
    pub env_steps_per_s: Option<f64>,
    /// Updates a second.
    pub updates_per_s: Option<f64>,
    /// Net log return on the validation window, where this epoch was validated.
    pub validation_log_return: Option<f64>,
    /// Mean log return of the training episodes that ended.
    pub episode_log_return: Option<f64>,
}

/// The fill rule in words; the same text in page and JSON.
pub const FILL_RULE: &str = "Decided at the close of a bar, filled in the next bar at its open at the earliest. \
Market orders pay half the spread and an impact and the taker fee. Resting limits fill only when the next bar \
trades through them by a tick, and pay the maker fee; a limit that the open has already crossed fills at the open \
as a taker. Immediate-or-cancel orders pay half the spread and the taker fee, fill only near the close of the \
decision bar, and only up to a share of the bar's volume. No order fills in a bar that was made to fill a gap in the data. Asking for the exposure already held costs nothing. Equity \
is net of all costs, marked at closes; an open position is closed with costs at the end of a window.";
