//! Chronological training, validation and test windows.
//!
//! It cuts once; rolling folds are built on top of it elsewhere.

use std::ops::Range;

use foxhunt_core::settings::{SplitSettings, SplitWindows};
use serde::{Deserialize, Serialize};

use crate::MarketError;

/// Fewest bars of a window: one decision needs its own bar and the next.
pub const MIN_WINDOW_BARS: usize = 2;

/// Three windows of bars in time order, `purge_bars` apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Bars trained on; features are normalised with these alone.
    pub train: Range<usize>,
    /// Bars that choose the best checkpoint.
    pub validation: Range<usize>,
    /// Bars looked at once, at the end.
    pub test: Range<usize>,
}

impl Split {
    /// Cuts bars `first_bar..n_bars` at the settings' shares, rounded down, and leaves `purge_bars` out before
    /// the validation and the test window; or takes the settings' windows as they are.
    ///
    /// # Errors
    /// [`MarketError::TooFewRows`] when a window would hold fewer than two bars or ends behind the last one,
    /// [`MarketError::InvalidArgument`] when a given one begins before `first_bar`.
    pub fn new(n_bars: usize, first_bar: usize, settings: &SplitSettings) -> Result<Self, MarketError> {
        if let Some(windows) = &settings.windows {
            return Self::given(n_bars, first_bar, windows);
        }
        let usable = n_bars.saturating_sub(first_bar);
        let cut = |share: f64| first_bar + (usable as f64 * share) as usize;
        let (first, second) = (cut(settings.train), cut(settings.train + settings.validation));
        // Any purge is allowed, so sums with it stop at the largest number, which no series reaches.
        let split = Self {
            train: first_bar..first,
            validation: first.saturating_add(settings.purge_bars)..second,
            test: second.saturating_add(settings.purge_bars)..n_bars,
        };
        let long_enough = |r: &Range<usize>| r.end >= r.start.saturating_add(MIN_WINDOW_BARS);
        if [&split.train, &split.validation, &split.test].into_iter().all(long_enough) {
            return Ok(split);
        }
        let test = 1.0 - settings.train - settings.validation;
        let need = [(settings.train, 0), (settings.validation, 1), (test, 1)]
            .into_iter()
            .map(|(share, purges)| {
                // One bar more, because both ends are rounded down.
                let bars = settings.purge_bars.saturating_mul(purges).saturating_add(MIN_WINDOW_BARS + 1);
                (bars as f64 / share).ceil() as usize
            })
            .max()
            .unwrap_or(0);
        Err(MarketError::TooFewRows { need: first_bar.saturating_add(need), have: n_bars })
    }

    /// Order and length of the windows were checked with the settings.
    fn given(n_bars: usize, first_bar: usize, windows: &SplitWindows) -> Result<Self, MarketError> {
        let [train, validation, test] = [windows.train, windows.validation, windows.test].map(|[a, b]| a..b);
        if train.start < first_bar {
            return Err(MarketError::InvalidArgument {
                what: "split.windows.train",
                value: format!("{train:?}"),
                rule: "behind the bars that fill the look-backs",
            });
        }
        if test.end > n_bars {
            return Err(MarketError::TooFewRows { need: test.end, have: n_bars });
        }
        Ok(Self { train, validation, test })
    }

    /// The windows as settings that give this split again.
    #[must_use]
    pub fn windows(&self) -> SplitWindows {
        let pair = |range: &Range<usize>| [range.start, range.end];
        SplitWindows { train: pair(&self.train), validation: pair(&self.validation), test: pair(&self.test) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cuts_at_the_shares_with_purges() {
        let split = Split::new(1100, 100, &SplitSettings::default()).unwrap();
        assert_eq!(split, Split { train: 100..700, validation: 705..900, test: 905..1100 });
        assert!(matches!(
            Split::new(110, 100, &SplitSettings::default()),
            Err(MarketError::TooFewRows { have: 110, .. })
        ));
        assert!(Split::new(50, 100, &SplitSettings::default()).is_err());
    }

    /// A purge beyond every series and a share of almost nothing are errors like any other.
    #[test]
    fn extreme_settings_are_too_few_rows() {
        for (train, validation, purge_bars) in
            [(0.6, 0.2, usize::MAX), (0.6, 0.2, i64::MAX as usize), (1e-300, 0.2, 5), (0.7, 0.3 - 1e-16, 5)]
        {
            let settings = SplitSettings { train, validation, purge_bars, windows: None };
            match Split::new(1100, 100, &settings) {
                Err(MarketError::TooFewRows { need, have: 1100 }) => assert!(need > 1100, "{settings:?}"),
                other => panic!("{settings:?}: {other:?}"),
            }
        }
    }

    /// Given windows are taken as they are, where there are bars for them.
    #[test]
    fn given_windows_are_taken() {
        let split = Split { train: 100..500, validation: 510..700, test: 720..800 };
        let settings = SplitSettings { windows: Some(split.windows()), ..SplitSettings::default() };
        assert_eq!(Split::new(800, 100, &settings).unwrap(), split);
        assert!(matches!(Split::new(799, 100, &settings), Err(MarketError::TooFewRows { need: 800, .. })));
        assert!(matches!(Split::new(800, 101, &settings), Err(MarketError::InvalidArgument { .. })));
    }

    proptest! {
        /// Windows are ordered, apart by the purge, inside the usable bars; and the count an error asks for is
        /// enough.
        #[test]
        fn windows_are_ordered_and_errors_can_be_cured(
            n_bars in 0usize..2000, first_bar in 0usize..600, train in 0.05..0.8f64, rest in 0.1..0.9f64, purge in 0usize..40,
        ) {
            let validation = (1.0 - train) * rest;
            let settings = SplitSettings { train, validation, purge_bars: purge, windows: None };
            match Split::new(n_bars, first_bar, &settings) {
                Ok(s) => {
                    prop_assert_eq!(s.train.start, first_bar);
                    prop_assert!(s.train.end + purge == s.validation.start && s.validation.end + purge == s.test.start);
                    prop_assert_eq!(s.test.end, n_bars);
                    for r in [s.train, s.validation, s.test] {
                        prop_assert!(r.len() >= 2);
                    }
                }
                Err(MarketError::TooFewRows { need, have }) => {
                    prop_assert!(have == n_bars && need > have);
                    prop_assert!(Split::new(need, first_bar, &settings).is_ok());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
