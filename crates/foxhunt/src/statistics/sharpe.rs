//! One Sharpe ratio with what its sampling law needs.

use foxhunt_market::ratios::{self, Undefined};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::Interval;
use crate::evaluation::Measure;

/// Returns below which no sampling law is claimed: skewness needs three.
const NEED: usize = 3;

/// A Sharpe ratio a bar, not annualised, and the moments that its standard error depends on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharpeEstimate {
    /// Mean excess return over sample standard deviation, a bar.
    pub ratio: f64,
    /// Returns it was taken from.
    pub n_returns: usize,
    /// Third standardised population moment; 0 for a normal.
    pub skewness: f64,
    /// Fourth standardised population moment; 3 for a normal.
    pub kurtosis: f64,
}

impl SharpeEstimate {
    /// The estimate from simple returns and a risk-free rate a bar.
    ///
    /// # Errors
    /// [`Undefined`] for fewer than 3 returns or returns that do not vary.
    pub fn of(returns: &[f64], rate_per_bar: f64) -> Result<Self, Undefined> {
        if returns.len() < NEED {
            return Err(Undefined::TooFewReturns { have: returns.len(), need: NEED });
        }
        let std = ratios::sample_std(returns)?;
        if std == 0.0 {
            return Err(Undefined::ZeroVariance);
        }
        let mean = ratios::mean(returns)?;
        // Standardised first: powers of small returns would leave the range of f64 before their quotient does.
        let (mut second, mut third, mut fourth) = (0.0, 0.0, 0.0);
        for r in returns {
            let z = (r - mean) / std;
            second += z * z;
            third += z * z * z;
            fourth += z * z * z * z;
        }
        let n = returns.len() as f64;
        let (second, third, fourth) = (second / n, third / n, fourth / n);
        let estimate = Self {
            ratio: (mean - rate_per_bar) / std,
            n_returns: returns.len(),
            skewness: third / second.powf(1.5),
            kurtosis: fourth / (second * second),
        };
        let finite = [estimate.ratio, estimate.skewness, estimate.kurtosis].iter().all(|v| v.is_finite());
        if finite { Ok(estimate) } else { Err(Undefined::NotFinite) }
    }

    /// `1 - skew * sr + (kurt - 1) / 4 * sr^2`: the variance of the ratio times the number of returns, for independent
    /// returns of any law with four moments (Mertens, "Comments on variance of the IID estimator in Lo", 2002;
    /// Bailey and Lopez de Prado, "The Sharpe ratio efficient frontier", 2012). Never negative, because a kurtosis is at
    /// least the squared skewness plus one.
    fn spread(&self) -> f64 {
        let sr = self.ratio;
        (1.0 - self.skewness * sr + (self.kurtosis - 1.0) / 4.0 * sr * sr).max(0.0)
    }

    /// Standard error of the ratio a bar. Returns that follow each other are taken for independent: positive
    /// autocorrelation makes the true error larger.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        (self.spread() / (self.n_returns as f64 - 1.0)).sqrt()
    }

    /// The central normal interval of `confidence`, a share in (0, 1), around the ratio a bar.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        let half = quantile(0.5 + 0.5 * confidence) * self.standard_error();
        Interval { low: self.ratio - half, high: self.ratio + half }
    }

    /// The chance that the true ratio is above `benchmark`, a bar: the probabilistic Sharpe ratio (Bailey and Lopez de
    /// Prado 2012, eq. 11), the normal distribution function of the distance in standard errors.
    #[must_use]
    pub fn probabilistic(&self, benchmark: f64) -> f64 {
        let error = self.standard_error();
        if error > 0.0 {
            standard_normal().cdf((self.ratio - benchmark) / error)
        } else if self.ratio > benchmark {
            1.0
        } else {
            0.0
        }
    }

    /// The chance that the true ratio is above what the best of `trials` worthless ones would show by luck: the deflated
    /// Sharpe ratio (Bailey and Lopez de Prado, "The deflated Sharpe ratio", 2014). One trial deflates nothing.
    #[must_use]
    pub fn deflated(&self, trials: &Trials) -> f64 {
        self.probabilistic(expected_best_ratio(trials.count, trials.variance_for(self.n_returns)))
    }

    /// Returns needed before the ratio is above `benchmark` with `confidence`: `1 + spread * (z / (sr - sr*))^2`
    /// (Bailey and Lopez de Prado 2012, eq. 13).
    #[must_use]
    pub fn min_track_record(&self, benchmark: f64, confidence: f64) -> Measure {
        if self.ratio <= benchmark {
            return Measure::undefined("the ratio is not above the benchmark");
        }
        let z = quantile(confidence);
        Measure::of(1.0 + self.spread() * (z / (self.ratio - benchmark)).powi(2))
    }
}

/// How many configurations were tried, and how much their ratios vary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// Configurations tried on the data, the one judged among them.
    pub count: u64,
    /// Sample variance of their ratios a bar, where at least two were recorded.
    pub variance: Option<f64>,
}

impl Trials {
    /// The one trial there was.
    pub const ONE: Self = Self { count: 1, variance: None };

    /// The variance as recorded; where it is not known that of worthless ratios over as many returns, `1 / (n - 1)`.
    #[must_use]
    pub fn variance_for(&self, n_returns: usize) -> f64 {
        let null = 1.0 / (n_returns as f64 - 1.0).max(1.0);
        self.variance.filter(|v| v.is_finite() && *v >= 0.0).unwrap_or(null)
    }
}

/// The expected largest of `count` independent ratios with mean 0 and `variance`: `sqrt(V) ((1 - g) z(1 - 1/N) +
/// g z(1 - 1/(N e)))` with Euler's constant g (Bailey and Lopez de Prado 2014). 0 for one trial or none.
#[must_use]
pub fn expected_best_ratio(count: u64, variance: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if count < 2 {
        return 0.0;
    }
    let n = count as f64;
    // Quantiles of 1 - p, taken from the small side, where f64 has digits left.
    let z = |p: f64| -quantile(p);
    variance.sqrt() * ((1.0 - EULER) * z(1.0 / n) + EULER * z(1.0 / (n * std::f64::consts::E)))
}

fn standard_normal() -> Normal {
    Normal::standard()
}

fn quantile(p: f64) -> f64 {
    standard_normal().inverse_cdf(p)
}
