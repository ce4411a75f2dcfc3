//! When a market is usually open, learnt from the bars, and the intervals that are missing.
//!
//! A week is divided into slots of one bar. A slot is *open* when it has a bar in at least three quarters as many
//! weeks as the busiest slot. A stretch between two bars that is longer than one bar is a **gap** when it misses an open slot,
//! else a **session break** (nights, weekends, the hour that moves with daylight saving). Bars of a day or longer have
//! one slot a day of the week. Files of under four weeks, or with bars shorter than a second, know no slots: there a
//! stretch of more than four hours is a break. It does not know holidays: those are gaps.

use serde::{Deserialize, Serialize};

use crate::bars::time_text;

const WEEK_NS: i64 = 7 * 86_400_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const UNKNOWN_BREAK_NS: i64 = 4 * 3600 * SECOND_NS;

/// Longest distance between two bars that is filled, whichever is longer.
const FILLABLE_NS: i64 = 4 * 3600 * SECOND_NS;
const FILLABLE_BARS: i64 = 5;

/// Fewest weeks of the busiest slot from which opening hours are learnt.
const MIN_WEEKS: u32 = 4;

/// Missing intervals of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapSummary {
    /// Stretches that miss an interval in which the market is usually open.
    pub gaps: u64,
    /// Intervals missing in them.
    pub missing_bars: u64,
    /// Stretches without bars in which the market is usually closed.
    pub session_breaks: u64,
    /// Longest distance between two bars, seconds.
    pub longest_seconds: f64,
    /// Where the longest distance begins, RFC 3339, UTC.
    pub longest_from: String,
}

/// What is known about opening hours.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    bar_ns: i64,
    /// Length of a slot, ns; None where slots are not known.
    slot_ns: Option<i64>,
    open: Vec<bool>,
}

/// One stretch between two bars that is longer than a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Intervals without a bar while usually open.
    missing: u64,
    /// Intervals without a bar.
    total: u64,
}

impl Sessions {
    /// Learns from times that rise strictly.
    pub(crate) fn observe(time: &[i64], bar_ns: i64) -> Self {
        let unknown = Self { bar_ns, slot_ns: None, open: Vec::new() };
        let slot_ns = bar_ns.min(DAY_NS);
        if slot_ns < SECOND_NS {
            return unknown;
        }
        let n_slots = (WEEK_NS / slot_ns) as usize;
        let mut seen = vec![0_u32; n_slots];
        let mut last_week = vec![i64::MIN; n_slots];
        for &t in time {
            let week = t.div_euclid(WEEK_NS);
            let slot = slot_of(t, slot_ns, n_slots);
            if last_week[slot] != week {
                last_week[slot] = week;
                seen[slot] += 1;
            }
        }
        // The busiest slot tells the number of whole weeks better than the range does.
        let busiest = seen.iter().copied().max().unwrap_or(0);
        if busiest < MIN_WEEKS {
            return unknown;
        }
        let open = seen.iter().map(|&count| 4 * u64::from(count) >= 3 * u64::from(busiest)).collect();
        Self { bar_ns, slot_ns: Some(slot_ns), open }
    }

    /// None where the next bar follows at once.
    fn stretch(&self, from: i64, to: i64) -> Option<Stretch> {
        let distance = i128::from(to) - i128::from(from);
        let bar = i128::from(self.bar_ns.max(1));
        // Bars of a day are 23 to 25 hours apart where clocks change.
        let slack = if self.bar_ns >= DAY_NS { bar / 12 } else { 0 };
        if distance <= bar + slack {
            return None;
        }
        let total = u64::try_from(((distance + slack) / bar - 1).max(0)).unwrap_or(u64::MAX);
        let Some(slot_ns) = self.slot_ns else {
            let missing = if distance > i128::from(UNKNOWN_BREAK_NS) { 0 } else { total };
            return Some(Stretch { missing, total });
        };
        // Whole weeks are counted at once, so that a file with one stray row ages apart stays cheap.
        let per_week = i128::from(WEEK_NS) / bar;
        let open_slots = self.open.iter().filter(|open| **open).count() as u64;
        let (weeks, rest) =
            if per_week == 0 { (0, 0) } else { (total as i128 / per_week, total as i128 % per_week) };
        let n_slots = self.open.len();
        let in_rest = (1..=rest)
            .filter(|&n| {
                let t = i128::from(from) + n * bar;
                let t = t.rem_euclid(i128::from(WEEK_NS)) as i64;
                self.open[slot_of(t, slot_ns, n_slots)]
            })
            .count() as u64;
        Some(Stretch { missing: (weeks as u64).saturating_mul(open_slots) + in_rest, total })
    }

    /// The gaps that lie inside a session: nothing but open slots, four hours or four bars at most, and bars shorter
    /// than a day. A longer hole is a holiday or lost data, and no flat price is a fair guess for either. Pairs of bar
    /// and number of missing bars behind it.
    pub(crate) fn fillable(&self, time: &[i64]) -> Vec<(usize, u64)> {
        if self.bar_ns >= DAY_NS {
            return Vec::new();
        }
        let longest = FILLABLE_NS.max(self.bar_ns.saturating_mul(FILLABLE_BARS));
        let inside = |pair: &[i64]| {
            let stretch = self.stretch(pair[0], pair[1])?;
            let short = i128::from(pair[1]) - i128::from(pair[0]) <= i128::from(longest);
            (short && stretch.total > 0 && stretch.missing == stretch.total).then_some(stretch.total)
        };
        time.windows(2).enumerate().filter_map(|(bar, pair)| inside(pair).map(|total| (bar, total))).collect()
    }

    /// Counts gaps and breaks.
    pub(crate) fn summary(&self, time: &[i64]) -> GapSummary {
        let mut summary = GapSummary::default();
        let mut longest = (0_i128, 0_i64);
        for pair in time.windows(2) {
            let distance = i128::from(pair[1]) - i128::from(pair[0]);
            if distance > longest.0 {
                longest = (distance, pair[0]);
            }
            match self.stretch(pair[0], pair[1]) {
                Some(Stretch { missing: 0, .. }) => summary.session_breaks += 1,
                Some(Stretch { missing, .. }) => {
                    summary.gaps += 1;
                    summary.missing_bars = summary.missing_bars.saturating_add(missing);
                }
                None => {}
            }
        }
        summary.longest_seconds = longest.0 as f64 / 1e9;
        summary.longest_from = time_text(longest.1);
        summary
    }
}

/// 1970-01-01 was a Thursday; where a week begins does not matter here.
fn slot_of(t: i64, slot_ns: i64, n_slots: usize) -> usize {
    ((t.rem_euclid(WEEK_NS) / slot_ns) as usize).min(n_slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * SECOND_NS;

    /// Hourly bars, Monday to Friday (1970-01-05 was a Monday), 8 to 16 h.
    fn hours(weeks: i64) -> Vec<i64> {
        let mut time = Vec::new();
        for week in 0..weeks {
            for day in 0..5 {
                for hour in 8..17 {
                    time.push((4 + 7 * week + day) * DAY_NS + hour * HOUR);
                }
            }
        }
        time
    }

    #[test]
    fn nights_and_weekends_are_breaks_and_a_hole_is_a_gap() {
        let mut time = hours(8);
        let summary = Sessions::observe(&time, HOUR).summary(&time);
        assert_eq!((summary.gaps, summary.session_breaks), (0, 8 * 5 - 1));
        assert_eq!(summary.longest_seconds, (16.0 + 48.0) * 3600.0);
        // Two bars in the middle of a day, and a whole day.
        time.drain(3..5);
        time.drain(88..97);
        let sessions = Sessions::observe(&time, HOUR);
        let summary = sessions.summary(&time);
        assert_eq!((summary.gaps, summary.missing_bars), (2, 11));
        assert_eq!(sessions.fillable(&time), [(2, 2)], "a missing day is no hole inside a session");
    }

    /// Case G15: 71 hours between daily bars across the clock change is a weekend, not a fault.
    #[test]
    fn case_g15_a_short_day_is_no_gap() {
        let mut time: Vec<i64> = Vec::new();
        let mut day = 1_583_505_000 - 52 * 7 * 86_400; // a Friday, 9:30 in New York
        while day < 1_583_505_000 {
            let weekday = (day / 86_400 + 4) % 7;
            if weekday != 0 && weekday != 6 {
                time.push(day * SECOND_NS);
            }
            day += 86_400;
        }
        time.extend([1_583_505_000, 1_583_760_600, 1_583_847_000].map(|t| t * SECOND_NS));
        let summary = Sessions::observe(&time, DAY_NS).summary(&time);
        assert_eq!((summary.gaps, summary.session_breaks), (0, 53));
    }

    #[test]
    fn short_files_go_by_four_hours() {
        let time = [0, 60, 120, 300, 30_000].map(|s| s * SECOND_NS);
        let summary = Sessions::observe(&time, 60 * SECOND_NS).summary(&time);
        assert_eq!((summary.gaps, summary.missing_bars, summary.session_breaks), (1, 2, 1));
    }

    #[test]
    fn a_row_ages_apart_is_counted_without_walking() {
        let mut time = hours(5);
        time.push(i64::MAX - 1);
        let summary = Sessions::observe(&time, SECOND_NS).summary(&time);
        assert!(summary.longest_seconds > 9e9, "{summary:?}");
    }
}
