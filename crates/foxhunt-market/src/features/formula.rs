//! How each formula of the feature table is computed over a whole series, O(n) each.
//!
//! A column is a pure function of bars up to t at each t. It is not normalised here.

use std::f64::consts::{LN_2, TAU};

use super::rolling::{Max, Min, Moments, Sum, rolling};
use crate::BarSeries;

/// What a feature computes; numbers are windows or spans in bars.
#[derive(Clone, Copy, Debug)]
pub(super) enum Formula {
    Return(usize),
    Gap,
    Body,
    Range,
    UpperShadow,
    LowerShadow,
    CloseLocation,
    Volatility(usize),
    VolatilityRatio(usize, usize),
    Parkinson(usize),
    GarmanKlass(usize),
    ZScore(usize),
    MeanDistance(usize),
    EmaDistance(usize),
    Rsi(usize),
    Macd,
    MacdHistogram,
    StochasticK(usize),
    StochasticD(usize, usize),
    BollingerB(usize),
    BollingerWidth(usize),
    Atr(usize),
    VolumeZ(usize),
    Flow(usize),
    Spread,
    SpreadZ(usize),
    DaySin,
    DayCos,
    WeekSin,
    WeekCos,
}

const DAY_NS: i64 = 86_400_000_000_000;

/// Bars with what several formulas share.
pub(super) struct Inputs<'a> {
    bars: &'a BarSeries,
    log_open: Vec<f64>,
    log_high: Vec<f64>,
    log_low: Vec<f64>,
    log_close: Vec<f64>,
    /// `ln c(t) - ln c(t-1)`, 0 at bar 0.
    log_return: Vec<f64>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(bars: &'a BarSeries) -> Self {
        let logs = |prices: &[f64]| prices.iter().map(|p| p.ln()).collect::<Vec<f64>>();
        let log_close = logs(&bars.close);
        let log_return = difference(&log_close, 1);
        Self {
            bars,
            log_open: logs(&bars.open),
            log_high: logs(&bars.high),
            log_low: logs(&bars.low),
            log_close,
            log_return,
        }
    }

    fn each(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..self.bars.len()).map(f).collect()
    }

    /// Population standard deviation of the last `window` log returns, 0 before there are so many.
    pub(super) fn volatility(&self, window: usize) -> Vec<f64> {
        rolling(&self.log_return, 1, window, |_, m: Moments| m.std())
    }

    /// The column of `formula`, f64 `[n_bars]`, all finite.
    pub(super) fn column(&self, formula: Formula) -> Vec<f64> {
        let mut values = self.raw_column(formula);
        for value in &mut values {
            if !value.is_finite() {
                *value = 0.0;
            }
        }
        values
    }

    fn raw_column(&self, formula: Formula) -> Vec<f64> {
        let b = self.bars;
        let (o, h, l, c) = (&self.log_open, &self.log_high, &self.log_low, &self.log_close);
        match formula {
            Formula::Return(k) => difference(c, k),
            Formula::Gap => self.each(|t| if t == 0 { 0.0 } else { o[t] - c[t - 1] }),
            Formula::Body => self.each(|t| c[t] - o[t]),
            Formula::Range => self.each(|t| h[t] - l[t]),
            Formula::UpperShadow => self.each(|t| h[t] - o[t].max(c[t])),
            Formula::LowerShadow => self.each(|t| o[t].min(c[t]) - l[t]),
            Formula::CloseLocation => {
                self.each(|t| ratio((b.close[t] - b.low[t]) - (b.high[t] - b.close[t]), b.high[t] - b.low[t]))
            }
            Formula::Volatility(window) => self.volatility(window),
            Formula::VolatilityRatio(short, long) => {
                let (short, long) = (self.volatility(short), self.volatility(long));
                self.each(|t| {
                    let both = short[t] > 0.0 && long[t] > 0.0;
                    if both { (short[t].ln() - long[t].ln()).clamp(-5.0, 5.0) } else { 0.0 }
                })
            }
            Formula::Parkinson(window) => {
                let squares = self.each(|t| (h[t] - l[t]).powi(2));
                rolling(&squares, 0, window, |_, m: Moments| (m.mean / (4.0 * LN_2)).sqrt())
            }
            Formula::GarmanKlass(window) => {
                // Not negative, because |ln c - ln o| <= ln h - ln l and 2 ln 2 - 1 < 1/2; max(0) is for rounding.
                let terms = self.each(|t| {
                    let variance = 0.5 * (h[t] - l[t]).powi(2) - (2.0 * LN_2 - 1.0) * (c[t] - o[t]).powi(2);
                    variance.max(0.0)
                });
                rolling(&terms, 0, window, |_, m: Moments| m.mean.sqrt())
            }
            Formula::ZScore(window) => z_score(c, window),
            Formula::MeanDistance(window) => rolling(c, 0, window, |t, m: Moments| c[t] - m.mean),
            Formula::EmaDistance(span) => {
                let average = ema(c, span);
                self.each(|t| c[t] - average[t])
            }
            Formula::Rsi(n) => {
                let moves = difference(&b.close, 1);
                let up = wilder(&moves.iter().map(|m| m.max(0.0)).collect::<Vec<_>>(), n);
                let down = wilder(&moves.iter().map(|m| (-m).max(0.0)).collect::<Vec<_>>(), n);
                self.each(|t| ratio(up[t] - down[t], up[t] + down[t]))
            }
            Formula::Macd => {
                let line = self.macd_line();
                self.each(|t| line[t] / b.close[t])
            }
            Formula::MacdHistogram => {
                let line = self.macd_line();
                let signal = ema(&line, 9);
                self.each(|t| (line[t] - signal[t]) / b.close[t])
            }
            Formula::StochasticK(window) => self.stochastic(window),
            Formula::StochasticD(window, smooth) => {
                rolling(&self.stochastic(window), window - 1, smooth, |_, m: Moments| m.mean)
            }
            Formula::BollingerB(window) => {
                rolling(&b.close, 0, window, |t, m: Moments| ratio(b.close[t] - m.mean, 2.0 * m.std()))
            }
            Formula::BollingerWidth(window) => {
                rolling(&b.close, 0, window, |_, m: Moments| 4.0 * m.std() / m.mean)
            }
            Formula::Atr(n) => {
                let true_range = self.each(|t| match t {
                    0 => 0.0,
                    _ => b.high[t].max(b.close[t - 1]) - b.low[t].min(b.close[t - 1]),
                });
                let average = wilder(&true_range, n);
                self.each(|t| average[t] / b.close[t])
            }
            Formula::VolumeZ(window) => match &b.volume {
                None => self.each(|_| 0.0),
                Some(volume) => z_score(&volume.iter().map(|v| v.ln_1p()).collect::<Vec<_>>(), window),
            },
            Formula::Flow(window) => match &b.volume {
                None => self.each(|_| 0.0),
                Some(volume) => {
                    let signed = self.each(|t| volume[t] * sign(self.log_return[t]));
                    let total = rolling(volume, 1, window, |_, Sum(s)| s);
                    rolling(&signed, 1, window, |t, Sum(s)| ratio(s, total[t]))
                }
            },
            Formula::Spread => self.relative_spread(),
            Formula::SpreadZ(window) => z_score(&self.relative_spread(), window),
            Formula::DaySin => self.each(|t| angle(b.time[t], DAY_NS).sin()),
            Formula::DayCos => self.each(|t| angle(b.time[t], DAY_NS).cos()),
            Formula::WeekSin => self.each(|t| angle(since_monday(b.time[t]), 7 * DAY_NS).sin()),
            Formula::WeekCos => self.each(|t| angle(since_monday(b.time[t]), 7 * DAY_NS).cos()),
        }
    }

    fn macd_line(&self) -> Vec<f64> {
        let (fast, slow) = (ema(&self.bars.close, 12), ema(&self.bars.close, 26));
        self.each(|t| fast[t] - slow[t])
    }

    fn stochastic(&self, window: usize) -> Vec<f64> {
        let b = self.bars;
        let high = rolling(&b.high, 0, window, |_, Max(m)| m);
        rolling(&b.low, 0, window, |t, Min(low)| {
            ratio((b.close[t] - low) - (high[t] - b.close[t]), high[t] - low)
        })
    }

    fn relative_spread(&self) -> Vec<f64> {
        match &self.bars.spread {
            None => self.each(|_| 0.0),
            Some(spread) => self.each(|t| spread[t] / self.bars.close[t]),
        }
    }
}

/// `values[t] - values[t - k]`, 0 for the first k.
fn difference(values: &[f64], k: usize) -> Vec<f64> {
    (0..values.len()).map(|t| if t < k { 0.0 } else { values[t] - values[t - k] }).collect()
}

/// `a / b`, 0 when b is not above 0.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        0.0
    }
}

fn z_score(values: &[f64], window: usize) -> Vec<f64> {
    rolling(values, 0, window, |t, m: Moments| ratio(values[t] - m.mean, m.std()))
}

/// Exponential average with weight 2 / (span + 1), started at the first value.
fn ema(values: &[f64], span: usize) -> Vec<f64> {
    let weight = 2.0 / (span as f64 + 1.0);
    let mut average = values.first().copied().unwrap_or(0.0);
    values
        .iter()
        .map(|&value| {
            average += weight * (value - average);
            average
        })
        .collect()
}

/// Wilder's average of `values[1..]`: the mean of the first n, then `(average * (n - 1) + value) / n`; 0 before.
///
/// A remnant below 1e-200 is taken as 0, so that a flat market does not end in denormals.
fn wilder(values: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; values.len()];
    if values.len() <= n {
        return out;
    }
    let mut average = values[1..=n].iter().sum::<f64>() / n as f64;
    out[n] = average;
    for t in n + 1..values.len() {
        average = (average * (n as f64 - 1.0) + values[t]) / n as f64;
        if average < 1e-200 {
            average = 0.0;
        }
        out[t] = average;
    }
    out
}

/// Nanoseconds since a Monday 00:00 UTC, up to whole weeks: 1970-01-01 was a Thursday.
fn since_monday(time: i64) -> i64 {
    time.rem_euclid(7 * DAY_NS) + 3 * DAY_NS
}

fn angle(time: i64, period: i64) -> f64 {
    TAU * (time.rem_euclid(period) as f64 / period as f64)
}
