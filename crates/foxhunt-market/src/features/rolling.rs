//! Sliding windows in O(n) that neither drift nor cancel.
//!
//! A window is never updated by subtracting what leaves it. Elements are cut into blocks as long as the window;
//! a window is then the tail of one block and the head of the next, so each result is one merge of a suffix and a
//! prefix (the block method of van Herk 1992 and of Gil and Werman 1993 for minima, used here for any
//! associative merge). A result depends on the values of its window and on nothing before or after them.

use std::collections::BTreeSet;

/// What can be gathered over a window: a value each, merged in time order.
pub(crate) trait Gather: Copy {
    /// The gathering of one value.
    fn of(value: f64) -> Self;
    /// `self` followed by `later`.
    fn merge(self, later: Self) -> Self;
}

/// Count, mean and sum of squared deviations, merged by the formula of Chan, Golub and LeVeque (1983).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    n: f64,
    pub(crate) mean: f64,
    squares: f64,
}

impl Moments {
    /// Population standard deviation; exactly 0 when all values are equal.
    pub(crate) fn std(self) -> f64 {
        (self.squares / self.n).sqrt()
    }
}

impl Gather for Moments {
    fn of(value: f64) -> Self {
        Self { n: 1.0, mean: value, squares: 0.0 }
    }

    fn merge(self, later: Self) -> Self {
        let n = self.n + later.n;
        let delta = later.mean - self.mean;
        let share = later.n / n;
        Self {
            n,
            mean: self.mean + delta * share,
            squares: self.squares + later.squares + delta * delta * self.n * share,
        }
    }
}

/// A plain sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum(pub(crate) f64);

impl Gather for Sum {
    fn of(value: f64) -> Self {
        Self(value)
    }

    fn merge(self, later: Self) -> Self {
        Self(self.0 + later.0)
    }
}

/// The largest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Max(pub(crate) f64);

impl Gather for Max {
    fn of(value: f64) -> Self {
        Self(value)
    }

    fn merge(self, later: Self) -> Self {
        Self(self.0.max(later.0))
    }
}

/// The smallest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Min(pub(crate) f64);

impl Gather for Min {
    fn of(value: f64) -> Self {
        Self(value)
    }

    fn merge(self, later: Self) -> Self {
        Self(self.0.min(later.0))
    }
}

/// For each t, `finish(t, gathering of values[t + 1 - window ..= t])`; 0 where that reaches before `first`.
pub(crate) fn rolling<G: Gather>(
    values: &[f64],
    first: usize,
    window: usize,
    finish: impl Fn(usize, G) -> f64,
) -> Vec<f64> {
    let mut out = vec![0.0; values.len()];
    // tail[j] gathers elements j.. of the block before the current one.
    let mut tail: Vec<G> = Vec::with_capacity(window);
    let mut start = first;
    while start < values.len() {
        let end = (start + window).min(values.len());
        let mut head: Option<G> = None;
        for t in start..end {
            let value = G::of(values[t]);
            let head_now = head.map_or(value, |h| h.merge(value));
            head = Some(head_now);
            let from = t - start + 1;
            if from == window {
                out[t] = finish(t, head_now);
            } else if let Some(&before) = tail.get(from) {
                out[t] = finish(t, before.merge(head_now));
            }
        }
        tail.clear();
        if end - start == window {
            tail.extend(values[start..end].iter().map(|&v| G::of(v)));
            for j in (0..window - 1).rev() {
                tail[j] = tail[j].merge(tail[j + 1]);
            }
        }
        start = end;
    }
    out
}

/// For each t, the median of `values[t + 1 - window ..= t]`, or of what there is at the start: O(n log window).
///
/// An even count gives `0.5 * (lower + upper)` in f32. Values must not be NaN.
pub(crate) fn rolling_median(values: &[f32], window: usize) -> Vec<f32> {
    let mut median = SlidingMedian::default();
    (0..values.len())
        .map(|t| {
            median.insert((key(values[t]), t));
            if let Some(old) = t.checked_sub(window) {
                median.remove((key(values[old]), old));
            }
            median.value(values)
        })
        .collect()
}

/// Two ordered halves; the lower one holds as many elements as the upper one, or one more.
#[derive(Default)]
struct SlidingMedian {
    lower: BTreeSet<(u32, usize)>,
    upper: BTreeSet<(u32, usize)>,
}

impl SlidingMedian {
    fn insert(&mut self, element: (u32, usize)) {
        if self.lower.last().is_none_or(|&top| element < top) {
            self.lower.insert(element);
        } else {
            self.upper.insert(element);
        }
        self.balance();
    }

    fn remove(&mut self, element: (u32, usize)) {
        if !self.lower.remove(&element) {
            self.upper.remove(&element);
        }
        self.balance();
    }

    fn balance(&mut self) {
        while self.lower.len() > self.upper.len() + 1 {
            self.upper.extend(self.lower.pop_last());
        }
        while self.upper.len() > self.lower.len() {
            self.lower.extend(self.upper.pop_first());
        }
    }

    fn value(&self, values: &[f32]) -> f32 {
        let at = |element: Option<&(u32, usize)>| element.map_or(0.0, |&(_, t)| values[t]);
        let low = at(self.lower.last());
        if self.lower.len() > self.upper.len() { low } else { 0.5 * (low + at(self.upper.first())) }
    }
}

/// An integer that orders like the f32 it comes from.
fn key(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_equal_their_definition(
            values in prop::collection::vec(-1e3..1e3f64, 1..200), first in 0usize..4, window in 1usize..40,
        ) {
            let sum = rolling(&values, first, window, |_, Sum(s)| s);
            let max = rolling(&values, first, window, |_, Max(m)| m);
            let min = rolling(&values, first, window, |_, Min(m)| m);
            let mean = rolling(&values, first, window, |_, m: Moments| m.mean);
            let std = rolling(&values, first, window, |_, m: Moments| m.std());
            for t in 0..values.len() {
                if t + 1 < first + window {
                    prop_assert_eq!([sum[t], max[t], min[t], mean[t], std[t]], [0.0; 5]);
                    continue;
                }
                let w = &values[t + 1 - window..=t];
                let want_sum: f64 = w.iter().sum();
                let want_mean = want_sum / window as f64;
                let var = w.iter().map(|v| (v - want_mean).powi(2)).sum::<f64>() / window as f64;
                prop_assert!((sum[t] - want_sum).abs() < 1e-9);
                prop_assert!((mean[t] - want_mean).abs() < 1e-10);
                prop_assert!((std[t] - var.sqrt()).abs() < 1e-9);
                prop_assert_eq!(max[t], w.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                prop_assert_eq!(min[t], w.iter().copied().fold(f64::INFINITY, f64::min));
            }
        }

        #[test]
        fn median_equals_a_sorted_window(
            values in prop::collection::vec(prop_oneof![-5.0..5.0f32, Just(0.0f32), Just(1.0f32)], 1..200),
            window in 1usize..40,
        ) {
            let got = rolling_median(&values, window);
            for t in 0..values.len() {
                let mut w = values[(t + 1).saturating_sub(window)..=t].to_vec();
                w.sort_by(f32::total_cmp);
                let n = w.len();
                let want = if n % 2 == 1 { w[n / 2] } else { 0.5 * (w[n / 2 - 1] + w[n / 2]) };
                prop_assert_eq!(got[t], want);
            }
        }
    }

    /// A million bars at a price of 1e9 that moves by cents: the deviation keeps its digits, and a flat window
    /// gives exactly zero after them. Running sums would have lost both.
    #[test]
    fn no_drift_and_no_cancellation() {
        let mut values: Vec<f64> = (0..1_000_000u64).map(|t| 1e9 + (t * 7919 % 101) as f64 * 0.01).collect();
        values.extend([1e9; 64]);
        let std = rolling(&values, 0, 32, |_, m: Moments| m.std());
        for t in [31, 999, 500_000, 999_999] {
            let w = &values[t - 31..=t];
            let mean = w.iter().map(|v| v - 1e9).sum::<f64>() / 32.0;
            let var = w.iter().map(|v| (v - 1e9 - mean).powi(2)).sum::<f64>() / 32.0;
            assert!((std[t] - var.sqrt()).abs() < 1e-6, "{} against {}", std[t], var.sqrt());
        }
        assert_eq!(std[1_000_063], 0.0);
    }

    /// Case F32: a window ends at its bar: prices 0..9, window 3, t = 5 is [3, 4, 5].
    #[test]
    fn a_window_ends_at_its_bar() {
        let values: Vec<f64> = (0..10).map(f64::from).collect();
        assert_eq!(rolling(&values, 0, 3, |_, Sum(s)| s)[5], 12.0);
        assert_eq!(rolling(&values, 0, 3, |_, Min(m)| m)[5], 3.0);
        assert_eq!(rolling(&values, 0, 3, |_, Max(m)| m)[5], 5.0);
    }
}
