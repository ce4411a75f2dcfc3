//! What a file was understood as, in words and numbers.
//!
//! It changes nothing and refuses nothing; it points at what a user should look at before training.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bars::{BarSeries, time_text};
use crate::load::{DataReport, Loaded};

/// Smallest move between two closes that is suspicious, as a log return: a quarter up or a fifth down.
const MIN_JUMP: f64 = 0.223;

/// A suspicious move is also this many times the usual move of the series.
const JUMP_OVER_USUAL: f64 = 10.0;

/// Jumps listed, the largest first.
const MAX_JUMPS: usize = 20;

/// Split ratios looked for: new shares for old shares.
const SPLITS: [(u32, u32); 13] = [
    (2, 1),
    (3, 1),
    (3, 2),
    (4, 1),
    (5, 1),
    (7, 1),
    (10, 1),
    (20, 1),
    (1, 2),
    (1, 4),
    (1, 5),
    (1, 8),
    (1, 10),
];

/// How far, relatively, an open may be from a split's price to look like one.
const SPLIT_TOLERANCE: f64 = 0.06;

/// A move that may be a split, a bad tick or a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Jump {
    /// Open time of the bar, RFC 3339, UTC.
    pub time: String,
    /// Close before.
    pub from: f64,
    /// Close of the bar.
    pub to: f64,
    /// The split the bar's open looks like, such as `2-for-1`.
    pub looks_like_split: Option<String>,
}

/// Spread over close, basis points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpreadStatistics {
    /// Smallest.
    pub min_bps: f64,
    /// Median, the lower of two.
    pub median_bps: f64,
    /// Mean.
    pub mean_bps: f64,
    /// Largest.
    pub max_bps: f64,
    /// Bars whose spread is zero.
    pub zero_bars: u64,
}

/// The result of [`inspect`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// How the file was read: format, columns, range, bar size, bars a year, gaps, repairs, assumptions.
    pub report: DataReport,
    /// Lowest low and highest high, price units.
    pub price_range: (f64, f64),
    /// Bars that did not move: open, high, low and close alike.
    pub flat_bars: u64,
    /// Bars with volume zero; none where the file has no volume.
    pub zero_volume_bars: Option<u64>,
    /// Spread statistics, where the file has a spread.
    pub spread: Option<SpreadStatistics>,
    /// Suspicious jumps, the largest first, at most 20.
    pub jumps: Vec<Jump>,
    /// How many suspicious jumps there are.
    pub jump_count: u64,
    /// What to look at before training.
    pub warnings: Vec<String>,
}

/// Looks over loaded bars.
#[must_use]
pub fn inspect(loaded: &Loaded) -> Inspection {
    let bars = &loaded.bars;
    let report = &loaded.report;
    let (jumps, jump_count) = jumps(bars);
    let flat_bars = (0..bars.len()).filter(|&t| bars.high[t] == bars.low[t]).count() as u64;
    let zero_volume_bars = bars.volume.as_ref().map(|v| v.iter().filter(|&&v| v == 0.0).count() as u64);
    let low = bars.low.iter().copied().fold(f64::INFINITY, f64::min);
    let high = bars.high.iter().copied().fold(f64::NEG_INFINITY, f64::max);

    let mut warnings = Vec::new();
    if jumps.iter().any(|jump| jump.looks_like_split.is_some()) {
        let adjusted = report.ignored_columns.iter().find(|name| is_adjusted_close(name));
        warnings.push(match adjusted {
            Some(name) => format!(
                "prices jump like an unadjusted share split; column `{name}` is not used, because it does not adjust \
                 open, high and low: give a file with all four prices adjusted"
            ),
            None => "prices jump like an unadjusted share split: give a file with adjusted prices".into(),
        });
    } else if jump_count > 0 {
        warnings.push(format!("{jump_count} suspicious jumps: look for bad ticks"));
    }
    let share = |count: u64| 100.0 * count as f64 / bars.len() as f64;
    if share(flat_bars) > 5.0 {
        warnings.push(format!("{:.1} % of the bars are flat", share(flat_bars)));
    }
    if let Some(count) = zero_volume_bars.filter(|&count| share(count) > 5.0) {
        warnings.push(format!("{:.1} % of the bars have no volume", share(count)));
    }
    if report.gaps.gaps > 0 {
        warnings.push(format!(
            "{} bars are missing in {} gaps inside usual hours (holidays are among them)",
            report.gaps.missing_bars, report.gaps.gaps
        ));
    }
    Inspection {
        report: report.clone(),
        price_range: (low, high),
        flat_bars,
        zero_volume_bars,
        spread: spread_statistics(bars),
        jumps,
        jump_count,
        warnings,
    }
}

fn is_adjusted_close(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("adj") && name.contains("close")
}

fn jumps(bars: &BarSeries) -> (Vec<Jump>, u64) {
    let moves: Vec<f64> = bars.close.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs()).collect();
    let mut sorted = moves.clone();
    let middle = sorted.len() / 2;
    let usual = match sorted.is_empty() {
        true => 0.0,
        false => *sorted.select_nth_unstable_by(middle, f64::total_cmp).1,
    };
    let limit = MIN_JUMP.max(JUMP_OVER_USUAL * usual);
    let mut found: Vec<usize> = (0..moves.len()).filter(|&t| moves[t] > limit).collect();
    let count = found.len() as u64;
    found.sort_by(|&a, &b| moves[b].total_cmp(&moves[a]));
    found.truncate(MAX_JUMPS);
    let jumps = found.into_iter().map(|t| Jump {
        time: time_text(bars.time[t + 1]),
        from: bars.close[t],
        to: bars.close[t + 1],
        looks_like_split: split_of(bars.close[t], bars.open[t + 1]),
    });
    (jumps.collect(), count)
}

/// The split between a close and the next open, if the open is near where a split would put it.
fn split_of(close: f64, open: f64) -> Option<String> {
    let distance = |&(new, old): &(u32, u32)| {
        let expected = close * f64::from(old) / f64::from(new);
        (open / expected - 1.0).abs()
    };
    let nearest = SPLITS.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    (distance(nearest) <= SPLIT_TOLERANCE).then(|| format!("{}-for-{}", nearest.0, nearest.1))
}

fn spread_statistics(bars: &BarSeries) -> Option<SpreadStatistics> {
    let spread = bars.spread.as_ref()?;
    let mut bps: Vec<f64> = spread.iter().zip(&bars.close).map(|(s, c)| 1e4 * s / c).collect();
    let zero_bars = spread.iter().filter(|&&s| s == 0.0).count() as u64;
    let mean_bps = bps.iter().sum::<f64>() / bps.len() as f64;
    let (min_bps, max_bps) =
        bps.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let middle = (bps.len().checked_sub(1)?) / 2;
    let median_bps = *bps.select_nth_unstable_by(middle, f64::total_cmp).1;
    Some(SpreadStatistics { min_bps, median_bps, mean_bps, max_bps, zero_bars })
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<16} {value}");
        line("file", &format_args!("{} ({} bytes)", r.file, r.file_bytes))?;
        line("format", &r.format)?;
        for (role, column) in &r.columns {
            line(if role == "close" { "columns" } else { "" }, &format_args!("{role} from `{column}`"))?;
        }
        if !r.ignored_columns.is_empty() {
            line("not used", &r.ignored_columns.join(", "))?;
        }
        line("times", &r.time_format)?;
        if let Some(symbol) = &r.symbol {
            line("symbol", symbol)?;
        }
        line("rows", &format_args!("{} read, {} kept", r.rows_read, r.rows_kept))?;
        if r.rows_of_other_symbols > 0 {
            line("", &format_args!("{} of other symbols left out", r.rows_of_other_symbols))?;
        }
        let fixed = &r.repaired;
        if fixed.unsorted + fixed.duplicates + fixed.gaps > 0 {
            line(
                "repaired",
                &format_args!(
                    "{} rows sorted in, {} repetitions dropped, {} bars filled",
                    fixed.unsorted, fixed.duplicates, fixed.gaps
                ),
            )?;
        }
        line("range", &format_args!("{} to {}", r.first, r.last))?;
        line("bar size", &Duration(r.bar_seconds))?;
        line("bars a year", &format_args!("{:.1} (observed)", r.bars_per_year))?;
        line(
            "gaps",
            &format_args!(
                "{} ({} bars missing); longest distance {} from {}",
                r.gaps.gaps,
                r.gaps.missing_bars,
                Duration(r.gaps.longest_seconds),
                r.gaps.longest_from
            ),
        )?;
        line("session breaks", &r.gaps.session_breaks)?;
        line("prices", &format_args!("{} to {}", self.price_range.0, self.price_range.1))?;
        line("tick size", &r.tick_size)?;
        line("flat bars", &self.flat_bars)?;
        match self.zero_volume_bars {
            Some(count) => line("zero volume", &format_args!("{count} bars"))?,
            None => line("volume", &"n/a (the file has none)")?,
        }
        match &self.spread {
            Some(s) => line(
                "spread",
                &format_args!(
                    "{:.3} to {:.3} bps, median {:.3}, mean {:.3}; zero in {} bars",
                    s.min_bps, s.max_bps, s.median_bps, s.mean_bps, s.zero_bars
                ),
            )?,
            None => line("spread", &"n/a (the file has none)")?,
        }
        line("jumps", &self.jump_count)?;
        for jump in &self.jumps {
            let change = 100.0 * (jump.to / jump.from - 1.0);
            match &jump.looks_like_split {
                Some(split) => line(
                    "",
                    &format_args!(
                        "{} {change:+.1} % ({} to {}), looks like a {split} split",
                        jump.time, jump.from, jump.to
                    ),
                )?,
                None => {
                    line("", &format_args!("{} {change:+.1} % ({} to {})", jump.time, jump.from, jump.to))?
                }
            }
        }
        line("hash", &r.hash)?;
        for assumption in &r.assumptions {
            line("assumed", assumption)?;
        }
        for warning in &self.warnings {
            line("warning", warning)?;
        }
        Ok(())
    }
}

/// Seconds in the largest unit that leaves at least one.
struct Duration(f64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s >= 2.0 * 86_400.0 => write!(f, "{:.4} d", s / 86_400.0),
            s if s >= 3600.0 => write!(f, "{} h", s / 3600.0),
            s if s >= 60.0 => write!(f, "{} min", s / 60.0),
            s => write!(f, "{s} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_told_from_crashes() {
        assert_eq!(split_of(93.25, 46.0).as_deref(), Some("2-for-1"));
        assert_eq!(split_of(600.0, 86.0).as_deref(), Some("7-for-1"));
        assert_eq!(split_of(10.0, 101.0).as_deref(), Some("1-for-10"));
        assert_eq!(split_of(100.0, 80.0), None);
        assert_eq!(split_of(100.0, 60.0), None);
    }
}
