//! Checked bars as a struct of arrays, and the rules every bar obeys.
//!
//! It reads no file and repairs nothing; a value that breaks a rule is an error naming it.

mod checks;
mod tick;

pub(crate) use checks::{Column, PRICES, check_bar};
pub use tick::infer_tick_size;

use std::collections::HashMap;
use std::ops::Range;

use crate::error::{MarketError, Place};

/// Nanoseconds of a year of 365.25 days.
pub const YEAR_NS: f64 = 365.25 * 86_400.0 * 1e9;

/// Fewest bars of a series: a bar size needs two.
pub const MIN_BARS: usize = 2;

/// Bars of one instrument: arrays of the same length, time strictly increasing, prices finite and positive,
/// `low <= min(open, close)` and `high >= max(open, close)`.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// Name of the instrument, where the source gives one.
    pub symbol: Option<String>,
    /// i64 `[n_bars]`, ns UTC, the bar's open.
    pub time: Vec<i64>,
    /// f64 `[n_bars]`, price.
    pub open: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub high: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub low: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub close: Vec<f64>,
    /// f64 `[n_bars]`, units traded, >= 0.
    pub volume: Option<Vec<f64>>,
    /// f64 `[n_bars]`, ask - bid at the close, price units, >= 0.
    pub spread: Option<Vec<f64>>,
    /// Whether a bar was made to fill a gap, `[n_bars]`; empty when none was. Nobody traded in such a bar.
    pub made: Vec<bool>,
    /// Smallest price step, price units; see [`infer_tick_size`].
    pub tick_size: f64,
    /// Most frequent interval between bars, ns.
    pub bar_ns: i64,
}

/// Unchecked arrays of bars, the argument of [`BarSeries::from_arrays`]. Shapes as in [`BarSeries`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarArrays {
    /// i64 `[n_bars]`, ns UTC, the bar's open.
    pub time: Vec<i64>,
    /// f64 `[n_bars]`, price.
    pub open: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub high: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub low: Vec<f64>,
    /// f64 `[n_bars]`, price.
    pub close: Vec<f64>,
    /// f64 `[n_bars]`, units traded.
    pub volume: Option<Vec<f64>>,
    /// f64 `[n_bars]`, ask - bid at the close, price units.
    pub spread: Option<Vec<f64>>,
}

impl BarSeries {
    /// Checks arrays by the rules a file is checked by; tick size and bar size are read off them.
    ///
    /// # Errors
    /// [`MarketError::Lengths`], [`MarketError::TooFewRows`], or the first bar that breaks a rule.
    pub fn from_arrays(symbol: Option<String>, arrays: BarArrays) -> Result<Self, MarketError> {
        let n_bars = arrays.time.len();
        let same_length = |column, values: &[f64]| match values.len() {
            len if len == n_bars => Ok(()),
            len => Err(MarketError::Lengths { column, len, expected: n_bars }),
        };
        same_length("open", &arrays.open)?;
        same_length("high", &arrays.high)?;
        same_length("low", &arrays.low)?;
        same_length("close", &arrays.close)?;
        same_length("volume", arrays.volume.as_deref().unwrap_or(&arrays.open))?;
        same_length("spread", arrays.spread.as_deref().unwrap_or(&arrays.open))?;

        let place = |row: usize, column: &str| Place { file: None, row: row as u64, column: column.into() };
        for bar in 0..n_bars {
            let volume = arrays.volume.as_ref().map(|v| v[bar]);
            let spread = arrays.spread.as_ref().map(|v| v[bar]);
            let prices = [arrays.open[bar], arrays.high[bar], arrays.low[bar], arrays.close[bar]];
            check_bar(prices, volume, spread)
                .map_err(|broken| broken.into_error(place(bar, broken.column().name())))?;
            if bar > 0 && arrays.time[bar] <= arrays.time[bar - 1] {
                return Err(MarketError::Unsorted {
                    place: place(bar, "time"),
                    time: time_text(arrays.time[bar]),
                    previous: time_text(arrays.time[bar - 1]),
                    hint: "; times must rise strictly",
                });
            }
        }
        Self::from_checked(symbol, arrays)
    }

    /// Finishes arrays that are known to obey the rules.
    pub(crate) fn from_checked(symbol: Option<String>, arrays: BarArrays) -> Result<Self, MarketError> {
        if arrays.time.len() < MIN_BARS {
            return Err(MarketError::TooFewRows { need: MIN_BARS, have: arrays.time.len() });
        }
        let tick_size = infer_tick_size(&[&arrays.open, &arrays.high, &arrays.low, &arrays.close]);
        let bar_ns = most_frequent_interval(&arrays.time);
        let BarArrays { time, open, high, low, close, volume, spread } = arrays;
        Ok(Self { symbol, time, open, high, low, close, volume, spread, made: Vec::new(), tick_size, bar_ns })
    }

    /// Number of bars.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there is no bar.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Bars a year as observed in `range`: intervals over the time they span, in years of 365.25 days.
    /// None for a range outside the series or of fewer than two bars.
    #[must_use]
    pub fn bars_per_year(&self, range: Range<usize>) -> Option<f64> {
        let time = self.time.get(range)?;
        let (first, last) = (time.first()?, time.last()?);
        let intervals = time.len().checked_sub(1).filter(|&n| n > 0)?;
        Some(intervals as f64 / ((i128::from(*last) - i128::from(*first)) as f64 / YEAR_NS))
    }

    /// The smallest price step of the bars of `range` alone, by [`infer_tick_size`]; of all bars for a range outside
    /// the series.
    #[must_use]
    pub fn tick_size_of(&self, range: Range<usize>) -> f64 {
        let columns = [&self.open, &self.high, &self.low, &self.close];
        let part = columns.map(|column| column.get(range.clone()).unwrap_or(column));
        infer_tick_size(&part)
    }

    /// Whether `bar` was made to fill a gap; false outside the series.
    #[must_use]
    pub fn is_made(&self, bar: usize) -> bool {
        self.made.get(bar).copied().unwrap_or(false)
    }

    /// BLAKE3 of the arrays in hexadecimal, the same on every platform. Symbol and tick size are not part of it.
    #[must_use]
    pub fn data_hash(&self) -> String {
        use rayon::prelude::*;
        let columns: [(&str, Option<&Vec<f64>>); 6] = [
            ("open", Some(&self.open)),
            ("high", Some(&self.high)),
            ("low", Some(&self.low)),
            ("close", Some(&self.close)),
            ("volume", self.volume.as_ref()),
            ("spread", self.spread.as_ref()),
        ];
        let (time, columns) = rayon::join(
            || hash_words(self.time.iter().map(|t| t.to_le_bytes())),
            || {
                columns
                    .par_iter()
                    .map(|(name, values)| {
                        (*name, values.map(|v| hash_words(v.iter().map(|x| x.to_le_bytes()))))
                    })
                    .collect::<Vec<_>>()
            },
        );
        let mut whole = blake3::Hasher::new();
        whole.update(b"foxhunt bars 1");
        whole.update(&(self.len() as u64).to_le_bytes());
        whole.update(time.as_bytes());
        for (name, hash) in columns {
            if let Some(hash) = hash {
                whole.update(name.as_bytes());
                whole.update(hash.as_bytes());
            }
        }
        if !self.made.is_empty() {
            whole.update(b"made");
            let made: Vec<u8> = self.made.iter().map(|&made| made.into()).collect();
            whole.update(blake3::hash(&made).as_bytes());
        }
        whole.finalize().to_hex().to_string()
    }
}

/// A time in ns UTC as RFC 3339 text.
#[must_use]
pub fn time_text(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).map_or_else(|_| ns.to_string(), |t| t.to_string())
}

/// The interval that occurs most often, the shortest of several; 0 for fewer than two times.
fn most_frequent_interval(time: &[i64]) -> i64 {
    let mut counts: HashMap<i64, u64> = HashMap::new();
    let mut run = (0_i64, 0_u64);
    for pair in time.windows(2) {
        let interval = pair[1].saturating_sub(pair[0]);
        if interval == run.0 {
            run.1 += 1;
        } else {
            *counts.entry(run.0).or_default() += run.1;
            run = (interval, 1);
        }
    }
    *counts.entry(run.0).or_default() += run.1;
    counts
        .into_iter()
        .max_by_key(|&(interval, count)| (count, std::cmp::Reverse(interval)))
        .map_or(0, |(interval, _)| interval)
}

fn hash_words(words: impl Iterator<Item = [u8; 8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Vec::with_capacity(1 << 16);
    for word in words {
        buffer.extend_from_slice(&word);
        if buffer.len() == 1 << 16 {
            hasher.update(&buffer);
            buffer.clear();
        }
    }
    hasher.update(&buffer);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays(n_bars: usize) -> BarArrays {
        let close: Vec<f64> = (0..n_bars).map(|t| 100.0 + 0.25 * (t % 7) as f64).collect();
        BarArrays {
            time: (0..n_bars as i64).map(|t| t * 60_000_000_000).collect(),
            open: close.clone(),
            high: close.iter().map(|c| c + 0.5).collect(),
            low: close.iter().map(|c| c - 0.25).collect(),
            close,
            volume: Some(vec![1.0; n_bars]),
            spread: None,
        }
    }

    #[test]
    fn arrays_become_a_series_with_tick_and_bar_size() {
        let bars = BarSeries::from_arrays(None, arrays(100)).unwrap();
        assert_eq!((bars.len(), bars.tick_size, bars.bar_ns), (100, 0.25, 60_000_000_000));
        let per_year = bars.bars_per_year(0..100).unwrap();
        assert!((per_year - 365.25 * 1440.0).abs() < 1e-6, "{per_year}");
        assert_eq!(bars.bars_per_year(3..4), None);
        assert_eq!(bars.bars_per_year(0..101), None);
    }

    #[test]
    fn every_rule_is_checked_on_arrays_too() {
        let refused = |change: fn(&mut BarArrays)| {
            let mut a = arrays(10);
            change(&mut a);
            BarSeries::from_arrays(None, a).unwrap_err()
        };
        assert!(matches!(refused(|a| a.open.truncate(9)), MarketError::Lengths { column: "open", .. }));
        assert!(matches!(refused(|a| a.high[3] = 1.0), MarketError::HighTooLow { .. }));
        assert!(matches!(refused(|a| a.low[3] = 1000.0), MarketError::LowTooHigh { .. }));
        assert!(matches!(refused(|a| a.close[3] = f64::NAN), MarketError::NotFinite { .. }));
        assert!(matches!(refused(|a| a.open[3] = -1.0), MarketError::NotPositive { .. }));
        assert!(matches!(refused(|a| a.volume = Some(vec![-1.0; 10])), MarketError::Negative { .. }));
        assert!(matches!(refused(|a| a.time[3] = a.time[2]), MarketError::Unsorted { .. }));
        assert!(matches!(
            refused(|a| *a = BarArrays::default()),
            MarketError::TooFewRows { need: 2, have: 0 }
        ));
        assert_eq!(
            refused(|a| a.close[3] = f64::NAN).to_string(),
            "bar 3, column close: `NaN` is not finite"
        );
    }

    #[test]
    fn the_hash_sees_every_array_and_its_name() {
        let base = arrays(10);
        let hash = |a: &BarArrays| BarSeries::from_arrays(None, a.clone()).unwrap().data_hash();
        let mut hashes = vec![hash(&base)];
        let mut changed = base.clone();
        changed.time[9] += 1;
        hashes.push(hash(&changed));
        changed = base.clone();
        changed.close[9] += 0.01;
        hashes.push(hash(&changed));
        changed = base.clone();
        changed.spread = changed.volume.take();
        hashes.push(hash(&changed));
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
        let mut made = BarSeries::from_arrays(None, base.clone()).unwrap();
        made.made = vec![false; 10];
        made.made[4] = true;
        assert!(!hashes.contains(&made.data_hash()));
        assert_eq!(hash(&base), hash(&base.clone()));
    }
}
