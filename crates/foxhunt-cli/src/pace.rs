//! How often to say how far something is that takes long: not at all when it is short, ever more rarely when it is not.

use std::time::{Duration, Instant};

use foxhunt::trainer::EvaluationReport;

/// Says how far a backtest of many decisions is.
pub(crate) struct Pace {
    start: Option<Instant>,
    every: Duration,
    growth: f64,
    due: Duration,
}

impl Pace {
    /// For plain lines: first after ten seconds, then each time half as much time again has passed. A day makes some
    /// twenty lines.
    pub(crate) fn lines() -> Self {
        Self::new(Duration::from_secs(10), 1.5)
    }

    /// For a terminal, where what is shown takes the place of what was shown before.
    pub(crate) fn display() -> Self {
        Self::new(Duration::from_millis(200), 1.0)
    }

    fn new(every: Duration, growth: f64) -> Self {
        Self { start: None, every, growth, due: every }
    }

    /// What to say now, if anything.
    pub(crate) fn told(&mut self, report: &EvaluationReport) -> Option<String> {
        let start = *self.start.get_or_insert_with(Instant::now);
        self.told_at(start.elapsed(), report)
    }

    /// As [`Pace::told`], `elapsed` after the first decision.
    pub(crate) fn told_at(&mut self, elapsed: Duration, report: &EvaluationReport) -> Option<String> {
        if elapsed < self.due {
            return None;
        }
        self.due = (elapsed + self.every).max(elapsed.mul_f64(self.growth));
        let EvaluationReport { decisions, of } = *report;
        let left = elapsed.as_secs_f64() / decisions.max(1) as f64 * of.saturating_sub(decisions) as f64;
        Some(format!("{decisions} of {of} decisions, {left:.0} s left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An evaluation of `seconds` with a decision every tenth of a second; when something was said, and what.
    fn told(mut pace: Pace, seconds: u64) -> Vec<(u64, String)> {
        let of = 10 * seconds;
        let at = |n: u64| Duration::from_millis(100 * n);
        (1..=of)
            .filter_map(|decisions| {
                let report = EvaluationReport { decisions, of };
                pace.told_at(at(decisions), &report).map(|text| (decisions / 10, text))
            })
            .collect()
    }

    #[test]
    fn long_evaluations_are_told_of_and_short_ones_are_not() {
        assert!(told(Pace::lines(), 9).is_empty());
        let hour = told(Pace::lines(), 3_600);
        let when: Vec<u64> = hour.iter().map(|(second, _)| *second).collect();
        assert_eq!(when[..4], [10, 20, 30, 45]);
        assert!((10..16).contains(&when.len()), "{when:?}");
        assert_eq!(hour[0].1, "100 of 36000 decisions, 3590 s left");
        assert!(told(Pace::lines(), 86_400).len() < 25);
        assert_eq!(told(Pace::display(), 10).len(), 50);
    }
}
