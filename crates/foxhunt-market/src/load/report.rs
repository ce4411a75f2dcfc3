//! What loading did, for the run folder and the report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bars::BarSeries;
use crate::sessions::GapSummary;

/// Bars with the account of how they were read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The bars.
    pub bars: BarSeries,
    /// How they were read.
    pub report: DataReport,
}

/// Rows changed by repairs, by kind; all zero unless asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repairs {
    /// Rows that stood behind a later time and were sorted in.
    pub unsorted: u64,
    /// Exact repetitions dropped.
    pub duplicates: u64,
    /// Flat bars of zero volume put into missing intervals.
    pub gaps: u64,
}

/// The account of one loaded file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataReport {
    /// File name without folders.
    pub file: String,
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// What the file was understood as.
    pub format: String,
    /// What each column was used for: `time`, `open`, `high`, `low`, `close`, `volume`, `spread`, `symbol` to its name.
    pub columns: BTreeMap<String, String>,
    /// Columns that were not used.
    pub ignored_columns: Vec<String>,
    /// How times are written.
    pub time_format: String,
    /// The symbol kept, where the file names symbols.
    pub symbol: Option<String>,
    /// Data rows of the symbol kept, before repairs.
    pub rows_read: u64,
    /// Rows of other symbols, left out because one was selected.
    pub rows_of_other_symbols: u64,
    /// Bars after repairs.
    pub rows_kept: u64,
    /// Rows changed by repairs.
    pub repaired: Repairs,
    /// Missing intervals, after repairs.
    pub gaps: GapSummary,
    /// Open time of the first bar, RFC 3339, UTC.
    pub first: String,
    /// Open time of the last bar, RFC 3339, UTC.
    pub last: String,
    /// Most frequent interval between bars, seconds.
    pub bar_seconds: f64,
    /// Bars a year as observed, years of 365.25 days.
    pub bars_per_year: f64,
    /// Smallest price step read off the prices.
    pub tick_size: f64,
    /// [`BarSeries::data_hash`] of the bars.
    pub hash: String,
    /// What was assumed where the file does not say.
    pub assumptions: Vec<String>,
}
