//! Where folds begin and end.

use std::ops::Range;

use foxhunt_core::Settings;
use foxhunt_core::settings::FoldScheme;
use foxhunt_market::split::{MIN_WINDOW_BARS, least_count};
use foxhunt_market::{MarketError, Split};
use serde::{Deserialize, Serialize};

use crate::MLError;

/// One fold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// Its number, from 1.
    pub number: usize,
    /// Its windows.
    pub windows: Split,
}

/// The folds over bars `first_bar..n_bars`. Test windows follow each other without a gap and end with the last bar; their
/// lengths differ by one bar at most.
///
/// # Errors
/// [`MLError::Market`] when a window would hold fewer than two bars.
pub fn plan(n_bars: usize, first_bar: usize, settings: &Settings) -> Result<Vec<Fold>, MLError> {
    if let Some(folds) = cut(n_bars, first_bar, settings) {
        return Ok(folds);
    }
    let enough = |n_bars| cut(n_bars, first_bar, settings).is_some();
    let need = least_count(n_bars, sure(first_bar, settings), enough);
    Err(MarketError::TooFewRows { need, have: n_bars }.into())
}

/// The folds; none when a window would be too short.
fn cut(n_bars: usize, first_bar: usize, settings: &Settings) -> Option<Vec<Fold>> {
    let w = &settings.walk_forward;
    let usable = n_bars.saturating_sub(first_bar);
    let past = ((usable as f64 * w.first_share) as usize).min(usable);
    let tested = usable - past;
    let purge = settings.split.purge_bars;
    let folds = (0..w.folds).map(|i| {
        let [start, end] =
            [i, i + 1].map(|i| first_bar + past + (tested as u128 * i as u128 / w.folds as u128) as usize);
        let from = match w.scheme {
            FoldScheme::Rolling => start - past,
            FoldScheme::Anchored => first_bar,
        };
        // Any purge and embargo are allowed, so sums with them stop at the largest number.
        let until = start.saturating_sub(purge.saturating_add(w.embargo_bars));
        let learned = (until.saturating_sub(from) as f64 * (1.0 - w.validation)) as usize;
        let windows = Split {
            train: from..from + learned,
            validation: (from + learned).saturating_add(purge)..until,
            test: start..end,
        };
        let long_enough = |r: &Range<usize>| r.end >= r.start.saturating_add(MIN_WINDOW_BARS);
        let all = [&windows.train, &windows.validation, &windows.test].into_iter().all(long_enough);
        all.then_some(Fold { number: i + 1, windows })
    });
    folds.collect()
}

/// Bars that are enough, as any more are.
fn sure(first_bar: usize, settings: &Settings) -> usize {
    let w = &settings.walk_forward;
    let purge = settings.split.purge_bars;
    let gaps = purge.saturating_mul(2).saturating_add(w.embargo_bars) as f64;
    // One bar more than two in each part, because cuts are rounded down.
    let least = (MIN_WINDOW_BARS + 1) as f64;
    let past = (least / (1.0 - w.validation)).max((least + purge as f64) / w.validation) + gaps + 1.0;
    let usable = (past / w.first_share).max(least * w.folds as f64 / (1.0 - w.first_share));
    first_bar.saturating_add(usable.ceil() as usize).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(scheme: FoldScheme) -> Settings {
        let mut settings = Settings::default();
        settings.walk_forward.scheme = scheme;
        settings.walk_forward.folds = 4;
        settings
    }

    #[test]
    fn folds_by_hand() {
        let rolling = plan(1_100, 100, &settings(FoldScheme::Rolling)).unwrap();
        let want = |from: usize, start: usize| {
            let until = start - 15;
            let learned = ((until - from) as f64 * 0.8) as usize;
            Split {
                train: from..from + learned,
                validation: from + learned + 5..until,
                test: start..start + 125,
            }
        };
        assert_eq!(rolling.len(), 4);
        for (i, fold) in rolling.iter().enumerate() {
            assert_eq!((fold.number, &fold.windows), (i + 1, &want(100 + 125 * i, 600 + 125 * i)));
        }
        let anchored = plan(1_100, 100, &settings(FoldScheme::Anchored)).unwrap();
        for (i, fold) in anchored.iter().enumerate() {
            assert_eq!(fold.windows, want(100, 600 + 125 * i));
        }
    }

    /// Over many lengths and settings: test windows tile the end of the bars, nothing learned lies within the purge and the
    /// embargo of a test window, and an error's count is the least that is enough.
    #[test]
    fn folds_tile_and_keep_their_distance() {
        for n_bars in (60..900).step_by(37) {
            for (folds, purge, embargo, first_share, validation) in
                [(1, 5, 0, 0.5, 0.2), (3, 3, 10, 0.3, 0.5), (7, 8, 40, 0.7, 0.1), (40, 5, 5, 0.5, 0.2)]
            {
                for scheme in [FoldScheme::Rolling, FoldScheme::Anchored] {
                    let mut s = settings(scheme);
                    s.split.purge_bars = purge;
                    let w = &mut s.walk_forward;
                    (w.folds, w.embargo_bars, w.first_share, w.validation) =
                        (folds, embargo, first_share, validation);
                    match plan(n_bars, 20, &s) {
                        Ok(plan) => {
                            assert_eq!(plan.len(), folds);
                            assert_eq!(plan[folds - 1].windows.test.end, n_bars);
                            assert!(
                                plan.windows(2).all(|p| p[0].windows.test.end == p[1].windows.test.start)
                            );
                            for fold in &plan {
                                let Split { train, validation, test } = &fold.windows;
                                assert!(train.start >= 20 && train.end + purge == validation.start);
                                assert_eq!(validation.end + purge + embargo, test.start);
                                let mut given = s.clone();
                                given.split.windows = Some(fold.windows.windows());
                                given.validate().unwrap();
                                assert_eq!(Split::new(n_bars, 20, &given.split).unwrap(), fold.windows);
                            }
                        }
                        Err(MLError::Market(error)) => {
                            let MarketError::TooFewRows { need, have } = *error else { panic!("{error}") };
                            assert!(need > have, "{need} for {have}");
                            plan(need, 20, &s).unwrap();
                            assert!((have..need).all(|n_bars| plan(n_bars, 20, &s).is_err()), "{need}");
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
        let mut endless = settings(FoldScheme::Rolling);
        endless.walk_forward.embargo_bars = usize::MAX;
        assert!(plan(1_000, 20, &endless).is_err());
    }
}
