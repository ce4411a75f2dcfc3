//! Chronological training, validation and test windows.
//!
//! It cuts once; rolling folds are built on top of it elsewhere.

use std::ops::Range;

use foxhunt_core::settings::{SplitSettings, SplitWindows};
use serde::{Deserialize, Serialize};

use crate::MarketError;

/// Fewest bars of a window: one decision needs its own bar and the next.
pub const MIN_WINDOW_BARS: usize = 2;

/// The least count above `have` that is `enough`, when `have` is not and every count from `sure` on is.
///
/// Cuts are rounded, so on the way to `sure` lengths waver by a bar and a formula cannot tell; counts are tried instead,
/// each one over the last few thousand, and by halves where there are more (shares below a thousandth).
#[must_use]
pub fn least_count(have: usize, sure: usize, enough: impl Fn(usize) -> bool) -> usize {
    const TRIED: usize = 4096;
    if sure <= have || !enough(sure) {
        return sure;
    }
    let (mut few, mut many) = (have, sure);
    if many - few > TRIED && !enough(many - TRIED) {
        few = many - TRIED;
    }
    while many - few > TRIED {
        let middle = few + (many - few) / 2;
        if enough(middle) { many = middle } else { few = middle }
    }
    (few + 1..many).find(|count| enough(*count)).unwrap_or(many)
}

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
        if let Some(split) = Self::cut(n_bars, first_bar, settings) {
            return Ok(split);
        }
        let test = 1.0 - settings.train - settings.validation;
        let sure = [(settings.train, 0), (settings.validation, 1), (test, 1)]
            .into_iter()
            .map(|(share, purges)| {
                // One bar more, because both ends are rounded down.
                let bars = settings.purge_bars.saturating_mul(purges).saturating_add(MIN_WINDOW_BARS + 1);
                (bars as f64 / share).ceil() as usize
            })
            .max()
            .unwrap_or(0);
        let need = least_count(n_bars, first_bar.saturating_add(sure), |n_bars| {
            Self::cut(n_bars, first_bar, settings).is_some()
        });
        Err(MarketError::TooFewRows { need, have: n_bars })
    }

    /// The windows at the settings' shares; none when one would be too short.
    fn cut(n_bars: usize, first_bar: usize, settings: &SplitSettings) -> Option<Self> {
        let usable = n_bars.saturating_sub(first_bar);
        let cut = |share: f64| first_bar.saturating_add((usable as f64 * share) as usize);
        let (first, second) = (cut(settings.train), cut(settings.train + settings.validation));
        // Any purge is allowed, so sums with it stop at the largest number, which no series reaches.
        let split = Self {
            train: first_bar..first,
            validation: first.saturating_add(settings.purge_bars)..second,
            test: second.saturating_add(settings.purge_bars)..n_bars,
        };
        let long_enough = |r: &Range<usize>| r.end >= r.start.saturating_add(MIN_WINDOW_BARS);
        let all = [&split.train, &split.validation, &split.test].into_iter().all(long_enough);
        all.then_some(split)
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

    /// Found over any distance, and where it is too far to try each count, one that is enough behind one that is not.
    #[test]
    fn the_least_count_is_found() {
        for (have, least, sure) in
            [(0, 1, 1), (3, 4, 9), (0, 60_000, 60_003), (5, 6, 1 << 40), (0, 9, 1 << 60)]
        {
            assert_eq!(least_count(have, sure, |n| n >= least), least, "{have} {sure}");
        }
        // Wavering before it is sure.
        let odd = |n: usize| n >= 100_000 || n > 99_000 && n % 2 == 1;
        assert_eq!(least_count(7, 100_000, odd), 99_001);
        assert_eq!(least_count(99_500, 100_000, odd), 99_501);
        // Nothing is enough.
        assert_eq!(least_count(7, usize::MAX, |_| false), usize::MAX);
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
        /// enough and the least that is.
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
                    prop_assert!((have..need).all(|n| Split::new(n, first_bar, &settings).is_err()));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
