//! Bar times as text and as axis ticks. Times are i64 nanoseconds UTC everywhere.
//!
//! Only formatting; what a bar's time means is told by the loader.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

const DAY_NS: i64 = 86_400_000_000_000;

fn civil(ns: i64) -> DateTime {
    // Every i64 count of nanoseconds lies in the years 1677 to 2262, which a Timestamp holds.
    let timestamp = Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    TimeZone::UTC.to_datetime(timestamp)
}

fn nanoseconds(at: DateTime) -> Option<i64> {
    let timestamp = TimeZone::UTC.to_timestamp(at).ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// `2017-12-29`.
#[must_use]
pub fn date(ns: i64) -> String {
    civil(ns).date().to_string()
}

/// `2017-12-29 21:00`.
#[must_use]
pub fn minute(ns: i64) -> String {
    civil(ns).strftime("%Y-%m-%d %H:%M").to_string()
}

/// A length of time in its largest whole unit: `1 h`, `5 min`, `1 d`, `250 ms`.
#[must_use]
pub fn span(ns: i64) -> String {
    for (unit, length) in
        [("d", DAY_NS), ("h", DAY_NS / 24), ("min", DAY_NS / 1440), ("s", 1_000_000_000), ("ms", 1_000_000)]
    {
        if ns >= length && ns % length == 0 {
            return format!("{} {unit}", ns / length);
        }
    }
    format!("{ns} ns")
}

/// A tick of a time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Position among the bars.
    pub index: usize,
    /// What to write under it.
    pub label: String,
}

/// At most `most` ticks on round dates, each at the first bar at or after its date. `times` is ascending. No
/// ticks for fewer than two bars.
#[must_use]
pub fn ticks(times: &[i64], most: usize) -> Vec<Tick> {
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return Vec::new() };
    if last <= first {
        return Vec::new();
    }
    for step in STEPS {
        let starts = step.starts(first, last, most);
        if starts.len() > most || starts.len() < 2 {
            continue;
        }
        let mut found: Vec<Tick> = Vec::with_capacity(starts.len());
        for start in starts {
            let index = times.partition_point(|&t| t < start);
            // A round date inside a gap belongs to the bar after it, unless another date claimed that bar.
            if index < times.len() && found.last().is_none_or(|tick| tick.index < index) {
                found.push(Tick { index, label: civil(start).strftime(step.format()).to_string() });
            }
        }
        return found;
    }
    Vec::new()
}

#[derive(Clone, Copy)]
enum Step {
    Nanoseconds(i64),
    Months(i64),
}

const STEPS: [Step; 29] = [
    Step::Nanoseconds(1_000_000),
    Step::Nanoseconds(10_000_000),
    Step::Nanoseconds(100_000_000),
    Step::Nanoseconds(1_000_000_000),
    Step::Nanoseconds(5_000_000_000),
    Step::Nanoseconds(15_000_000_000),
    Step::Nanoseconds(60_000_000_000),
    Step::Nanoseconds(5 * 60_000_000_000),
    Step::Nanoseconds(15 * 60_000_000_000),
    Step::Nanoseconds(DAY_NS / 24),
    Step::Nanoseconds(DAY_NS / 8),
    Step::Nanoseconds(DAY_NS / 4),
    Step::Nanoseconds(DAY_NS / 2),
    Step::Nanoseconds(DAY_NS),
    Step::Nanoseconds(2 * DAY_NS),
    Step::Nanoseconds(5 * DAY_NS),
    Step::Nanoseconds(7 * DAY_NS),
    Step::Nanoseconds(14 * DAY_NS),
    Step::Months(1),
    Step::Months(2),
    Step::Months(3),
    Step::Months(6),
    Step::Months(12),
    Step::Months(24),
    Step::Months(60),
    Step::Months(120),
    Step::Months(240),
    Step::Months(600),
    Step::Months(1200),
];

impl Step {
    /// Multiples of the step in `first..=last`, and one more than `most` at the most.
    fn starts(self, first: i64, last: i64, most: usize) -> Vec<i64> {
        let mut starts = Vec::new();
        match self {
            Self::Nanoseconds(step) => {
                let mut at = first.div_euclid(step).saturating_mul(step);
                if at < first {
                    at = at.saturating_add(step);
                }
                while at <= last && starts.len() <= most {
                    starts.push(at);
                    at = at.saturating_add(step);
                }
            }
            Self::Months(step) => {
                let date = civil(first).date();
                let mut month =
                    (i64::from(date.year()) * 12 + i64::from(date.month()) - 1).div_euclid(step) * step;
                while starts.len() <= most {
                    let start = i16::try_from(month.div_euclid(12))
                        .ok()
                        .and_then(|year| Date::new(year, (month.rem_euclid(12) + 1) as i8, 1).ok());
                    let Some(at) = start.and_then(|date| nanoseconds(date.into())) else { break };
                    if at > last {
                        break;
                    }
                    if at >= first {
                        starts.push(at);
                    }
                    month += step;
                }
            }
        }
        starts
    }

    fn format(self) -> &'static str {
        match self {
            Self::Nanoseconds(step) if step < 1_000_000_000 => "%H:%M:%S%.3f",
            Self::Nanoseconds(step) if step < 60_000_000_000 => "%H:%M:%S",
            Self::Nanoseconds(step) if step < DAY_NS => "%-d %b %H:%M",
            Self::Nanoseconds(_) => "%-d %b %Y",
            Self::Months(step) if step < 12 => "%b %Y",
            Self::Months(_) => "%Y",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        nanoseconds(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn writes_dates_and_lengths() {
        let ns = at("2017-12-29T21:05:00");
        assert_eq!(date(ns), "2017-12-29");
        assert_eq!(minute(ns), "2017-12-29 21:05");
        assert_eq!(span(3_600_000_000_000), "1 h");
        assert_eq!(span(DAY_NS), "1 d");
        assert_eq!(span(90_000_000_000), "90 s");
        assert_eq!(span(1), "1 ns");
        // The ends of the range do not fail.
        assert_eq!(date(i64::MIN), "1677-09-21");
        assert_eq!(date(i64::MAX), "2262-04-11");
    }

    #[test]
    fn ticks_fall_on_round_dates_and_on_bars() {
        let start = at("2017-01-01T22:00:00");
        let hours: Vec<i64> = (0..6000).map(|h| start + h * 3_600_000_000_000).collect();
        let got = ticks(&hours, 7);
        assert!(got.len() >= 3 && got.len() <= 7, "{got:?}");
        assert_eq!(got[0].label, "Mar 2017");
        assert_eq!(hours[got[0].index], at("2017-03-01T00:00:00"));
        let short = ticks(&hours[..30], 7);
        assert_eq!(short[0].label, "2 Jan 00:00");
        assert!(ticks(&hours[..1], 7).is_empty());
        assert!(ticks(&[], 7).is_empty());
    }

    #[test]
    fn any_span_has_ticks() {
        for length in [1_i64 << 22, 1 << 30, 1 << 36, 1 << 42, 1 << 48, 1 << 54, 1 << 58] {
            let times: Vec<i64> =
                (0..1000).map(|i| 1_000_000_000_000_000_000 + i * (length / 1000)).collect();
            let n = ticks(&times, 7).len();
            assert!((2..=7).contains(&n), "{n} ticks for {length} ns");
        }
    }
}
