//! The vertical axis: its range, its round ticks and where a value lies.
//!
//! Values are fractions from the top of the frame (0) to the bottom (1). Drawing is done elsewhere.

/// Linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Equal steps.
    Linear,
    /// Equal ratios; for positive values only.
    Log,
}

/// A vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
}

impl Scale {
    /// An axis that holds every finite value of `values` (and `include`, such as a zero line) with a little air.
    /// `kind` of log falls back to linear when a value is not positive.
    #[must_use]
    pub fn fit(values: impl IntoIterator<Item = f64>, include: Option<f64>, kind: Kind) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().chain(include).filter(|v| v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if kind == Kind::Log && low > 0.0 {
            let (bottom, top) = (low.log10(), high.log10());
            let pad = ((top - bottom) * 0.05).max(0.02);
            return Self { kind, low: bottom - pad, high: top + pad };
        }
        let span = high - low;
        let pad = if span > 0.0 { span * 0.06 } else { (high.abs() * 0.05).max(1e-9) };
        // The air stays out where the zero line is the natural edge.
        let bottom = if low == 0.0 && span > 0.0 { 0.0 } else { low - pad };
        let top = if high == 0.0 && span > 0.0 { 0.0 } else { high + pad };
        Self { kind: Kind::Linear, low: bottom, high: top }
    }

    /// Where `value` lies, 0 at the top and 1 at the bottom, clamped; `None` when it has no place.
    #[must_use]
    pub fn place(&self, value: f64) -> Option<f64> {
        let x = if self.kind == Kind::Log { value.log10() } else { value };
        x.is_finite().then(|| ((self.high - x) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// About five round values inside the range, ascending.
    #[must_use]
    pub fn ticks(&self) -> Vec<f64> {
        if self.kind == Kind::Log {
            let decades: Vec<f64> =
                (self.low.ceil() as i32..=self.high.floor() as i32).map(|e| 10f64.powi(e)).collect();
            if decades.len() >= 2 {
                let every = decades.len().div_ceil(5);
                return decades.into_iter().step_by(every).collect();
            }
            let (low, high) = (10f64.powf(self.low), 10f64.powf(self.high));
            return round_steps(low, high);
        }
        round_steps(self.low, self.high)
    }
}

fn round_steps(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    if rough.is_nan() || rough <= 0.0 || !rough.is_finite() {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    (0..12)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|tick| *tick <= high + step * 1e-9)
        // Zero is zero, not a rounding remainder.
        .map(|tick| if tick.abs() < step * 1e-6 { 0.0 } else { tick })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round() {
        let ticks = Scale::fit([-0.031, 0.12], Some(0.0), Kind::Linear).ticks();
        assert_eq!(ticks.len(), 3, "{ticks:?}");
        for (got, want) in ticks.iter().zip([0.0, 0.05, 0.1]) {
            assert!((got - want).abs() < 1e-12, "{ticks:?}");
        }
    }

    #[test]
    fn odd_input_still_gives_an_axis() {
        for values in [vec![], vec![f64::NAN], vec![5.0], vec![0.0, 0.0], vec![f64::INFINITY, 2.0]] {
            let scale = Scale::fit(values.clone(), None, Kind::Linear);
            assert!(!scale.ticks().is_empty(), "{values:?}");
            assert!(scale.ticks().iter().all(|tick| tick.is_finite()));
            assert_eq!(scale.place(f64::NAN), None);
        }
    }

    #[test]
    fn log_ticks_are_decades_and_refuse_nothing() {
        let scale = Scale::fit([0.002, 30.0], None, Kind::Log);
        assert_eq!(scale.ticks(), [0.01, 0.1, 1.0, 10.0]);
        assert_eq!(scale.place(0.0), None);
        assert_eq!(Scale::fit([-1.0, 30.0], None, Kind::Log).kind, Kind::Linear);
        assert!(!Scale::fit([2.0, 3.0], None, Kind::Log).ticks().is_empty());
    }

    #[test]
    fn place_runs_from_top_to_bottom() {
        let scale = Scale::fit([0.0, 1.0], None, Kind::Linear);
        assert_eq!(scale.place(0.0), Some(1.0));
        assert!(scale.place(1.0).unwrap() < 0.1);
        assert_eq!(scale.place(99.0), Some(0.0));
    }
}
