//! What an agent has to beat: doing nothing, holding, shorting, and trading as much at random.
//!
//! Baselines run through the same backtest, fills and costs as the agent. The fixed ones send a market order of
//! normal urgency at the first bar and then hold. Nothing here judges.
//!
//! **Random with the agent's turnover.** A random policy keeps a target exposure. At every bar, with chance `c`,
//! it draws a new target uniformly from the four it does not have; otherwise it keeps the old one, and so goes on
//! asking for it when an order was cancelled or filled in part, as an agent with a standing view does. Order type
//! and urgency are drawn at every bar from the agent's own mix of orders sent (market, normal when it sent
//! none), so that both pay for their trading in the same way. The draws are Philox words (seed,
//! [`Purpose::Baseline`], stream = policy, step = bar), so policies differ and a run repeats to the bit.
//!
//! **Calibration.** A higher chance switches the same policies at more bars, so turnover rises with `c`. The chance
//! starts from the closed form `turnover / (decisions * leverage)` (the mean distance between a uniform level
//! and another one is one whole position) and is then moved by bracketed secant steps until the mean turnover
//! of the policies is within 1 % of the agent's. Where all policies together walk more than 32 million bars, fewer
//! of them are used for calibration. [`RandomBaseline::matched`] says whether the final mean is near.

use std::ops::Range;

use foxhunt_core::philox::{below, unit_f32};
use foxhunt_core::{Exposure, FactoredAction, OrderType, Philox, Purpose, Urgency};
use foxhunt_market::Market;
use foxhunt_ops::env_step::EnvParams;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::backtest::run;
use super::{Backtest, Measure, Metrics, OrderCounts};
use crate::MLError;
use crate::trainer::StopSignal;

/// Rounds of calibration at the most.
const CALIBRATION_ROUNDS: u32 = 14;
/// Bars over all policies that one round of calibration may cost.
const CALIBRATION_BARS: usize = 32_000_000;
/// Relative error of the mean turnover at which calibration stops.
const CALIBRATION_TOLERANCE: f64 = 0.01;

/// The baselines that always want the same exposure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// No position, ever.
    Flat,
    /// Fully long from the first bar to the last.
    BuyAndHold,
    /// Fully short from the first bar to the last.
    AlwaysShort,
}

impl Fixed {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Flat, Self::BuyAndHold, Self::AlwaysShort];

    /// A short name for tables and plots.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::BuyAndHold => "buy and hold",
            Self::AlwaysShort => "always short",
        }
    }

    const fn action(self) -> FactoredAction {
        let exposure = match self {
            Self::Flat => Exposure::Flat,
            Self::BuyAndHold => Exposure::Long,
            Self::AlwaysShort => Exposure::Short,
        };
        FactoredAction { exposure, order_type: OrderType::Market, urgency: Urgency::Normal }
    }
}

/// Runs a fixed baseline over `window`.
///
/// # Errors
/// As [`super::backtest`].
pub fn fixed(
    market: &Market,
    window: Range<usize>,
    params: &EnvParams,
    stop: &dyn StopSignal,
    which: Fixed,
) -> Result<Backtest, MLError> {
    run(market, window, params, stop, &mut |_, _| Ok(which.action().into()))
}

/// Many random policies with the agent's turnover, together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomBaseline {
    /// Chance of a new target at a bar, calibrated.
    pub chance: f64,
    /// The agent's turnover, which the policies were to have.
    pub target_turnover: f64,
    /// Mean turnover they had.
    pub turnover: f64,
    /// Whether that is within 5 % of the target, or within one position a policy. False when the agent trades
    /// more than a random policy can.
    pub matched: bool,
    /// Metrics of each policy.
    pub runs: Vec<Metrics>,
    /// Mean equity of the policies, account currency, one f64 a bar of the window.
    pub equity_mean: Vec<f64>,
    /// Lowest equity of any policy at each bar.
    pub equity_low: Vec<f64>,
    /// Highest equity of any policy at each bar.
    pub equity_high: Vec<f64>,
}

impl RandomBaseline {
    /// Mean and spread over the policies of one figure; policies without it are left out and not counted.
    #[must_use]
    pub fn summary(&self, figure: impl Fn(&Metrics) -> Measure) -> Summary {
        Summary::of(self.runs.iter().map(figure))
    }
}

/// Mean and spread of one figure over several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that have the figure.
    pub n: usize,
    /// Their mean.
    pub mean: Measure,
    /// Sample standard deviation.
    pub sd: Measure,
    /// Smallest.
    pub min: Measure,
    /// Largest.
    pub max: Measure,
}

impl Summary {
    /// Of the defined ones among `measures`.
    #[must_use]
    pub fn of(measures: impl IntoIterator<Item = Measure>) -> Self {
        let mut reason = None;
        let mut values = Vec::new();
        for measure in measures {
            match measure.value() {
                Some(value) => values.push(value),
                None => reason = reason.or(measure.reason().map(str::to_owned)),
            }
        }
        let n = values.len();
        if n == 0 {
            let none = Measure::undefined(reason.unwrap_or_else(|| "no runs".into()));
            return Self { n, mean: none.clone(), sd: none.clone(), min: none.clone(), max: none };
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let sd = if n < 2 {
            Measure::undefined("fewer than 2 runs")
        } else {
            Measure::of((squares / (n - 1) as f64).sqrt())
        };
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { n, mean: Measure::of(mean), sd, min: Measure::of(min), max: Measure::of(max) }
    }
}

/// What the random policies copy from the agent and draw from.
struct Randoms<'a> {
    market: &'a Market,
    window: Range<usize>,
    params: &'a EnvParams,
    stop: &'a dyn StopSignal,
    philox: Philox,
    /// The agent's orders sent, by [`OrderCounts::slot`].
    mix: [u64; 9],
}

impl Randoms<'_> {
    fn run(&self, policy: u32, chance: f64) -> Result<Backtest, MLError> {
        let mut target = Exposure::Flat;
        run(self.market, self.window.clone(), self.params, self.stop, &mut |_, bar| {
            let [coin, level, order, _] = self.philox.block(Purpose::Baseline, policy, bar as u64, 0);
            if f64::from(unit_f32(coin)) < chance {
                let skip = below(level, 4);
                target = Exposure::from_index(skip + u32::from(skip >= target.index()))?;
            }
            let (order_type, urgency) = pick(&self.mix, order);
            Ok(FactoredAction { exposure: target, order_type, urgency }.into())
        })
    }

    fn mean_turnover(&self, policies: u32, chance: f64) -> Result<f64, MLError> {
        let each: Vec<f64> = (0..policies)
            .into_par_iter()
            .map(|policy| self.run(policy, chance).map(|backtest| backtest.turnover()))
            .collect::<Result<_, _>>()?;
        Ok(each.iter().sum::<f64>() / f64::from(policies))
    }

    fn calibrate(&self, policies: u32, target: f64) -> Result<f64, MLError> {
        let decisions = (self.window.len() - 1) as f64;
        let pilots = (CALIBRATION_BARS / self.window.len()).clamp(1, policies as usize) as u32;
        let (mut low, mut high) = ((0.0, 0.0), None::<(f64, f64)>);
        let mut chance = (target / (decisions * self.params.max_leverage)).clamp(0.0, 1.0);
        let mut best = (f64::INFINITY, chance);
        for _ in 0..CALIBRATION_ROUNDS {
            let turnover = self.mean_turnover(pilots, chance)?;
            let error = (turnover - target).abs();
            if error < best.0 {
                best = (error, chance);
            }
            if error <= CALIBRATION_TOLERANCE * target || (chance >= 1.0 && turnover < target) {
                break;
            }
            if turnover < target {
                low = (chance, turnover);
            } else {
                high = Some((chance, turnover));
            }
            chance = match high {
                None => (chance * (target / turnover.max(target * 0.1)) * 1.05).min(1.0),
                Some(high) => {
                    // Secant inside the bracket, kept off its ends so that it always shrinks.
                    let share = (target - low.1) / (high.1 - low.1);
                    low.0 + (high.0 - low.0) * share.clamp(0.1, 0.9)
                }
            };
        }
        Ok(best.1)
    }
}

/// Runs `policies` random policies over `window` with the turnover and the order mix of `agent`; see the module.
///
/// # Errors
/// As [`super::backtest`].
pub fn random(
    market: &Market,
    agent: &Backtest,
    params: &EnvParams,
    policies: u32,
    seed: u64,
    stop: &dyn StopSignal,
    judge: &(dyn Fn(&Backtest) -> Metrics + Sync),
) -> Result<RandomBaseline, MLError> {
    let policies = policies.max(1);
    let window = agent.window.clone();
    let randoms = Randoms {
        market,
        window: window.clone(),
        params,
        stop,
        philox: Philox::new(seed),
        mix: agent.orders.sent,
    };
    let target_turnover = agent.turnover();
    let chance = if target_turnover > 0.0 { randoms.calibrate(policies, target_turnover)? } else { 0.0 };

    let bars = window.len();
    let mut runs = Vec::with_capacity(policies as usize);
    let (mut mean, mut low) = (vec![0.0; bars], vec![f64::INFINITY; bars]);
    let mut high = vec![f64::NEG_INFINITY; bars];
    let mut turnover = 0.0;
    let all: Vec<u32> = (0..policies).collect();
    // A few at a time bound the memory; folding in order makes the sums independent of how many that is.
    for some in all.chunks(rayon::current_num_threads().max(1)) {
        let backtests: Vec<Backtest> =
            some.par_iter().map(|&policy| randoms.run(policy, chance)).collect::<Result<_, _>>()?;
        for backtest in &backtests {
            turnover += backtest.turnover() / f64::from(policies);
            for (i, &equity) in backtest.equity.iter().enumerate() {
                mean[i] += equity / f64::from(policies);
                low[i] = low[i].min(equity);
                high[i] = high[i].max(equity);
            }
            runs.push(judge(backtest));
        }
    }
    let allowed = (0.05 * target_turnover).max(2.0 * params.max_leverage / f64::from(policies));
    let matched = (turnover - target_turnover).abs() <= allowed;
    Ok(RandomBaseline {
        chance,
        target_turnover,
        turnover,
        matched,
        runs,
        equity_mean: mean,
        equity_low: low,
        equity_high: high,
    })
}

/// Draws an order type and urgency with the shares of `mix`; market, normal when it is empty.
fn pick(mix: &[u64; 9], bits: u32) -> (OrderType, Urgency) {
    let total: u64 = mix.iter().sum();
    let mut left = ((u128::from(bits) * u128::from(total)) >> 32) as u64;
    for order_type in OrderType::ALL {
        for urgency in Urgency::ALL {
            let count = mix[OrderCounts::slot(order_type, urgency)];
            if left < count {
                return (order_type, urgency);
            }
            left -= count;
        }
    }
    (OrderType::Market, Urgency::Normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pick_follows_the_mix() {
        assert_eq!(pick(&[0; 9], u32::MAX), (OrderType::Market, Urgency::Normal));
        let mix = [0, 0, 1, 0, 0, 0, 3, 0, 0];
        assert_eq!(pick(&mix, 0), (OrderType::Market, Urgency::Aggressive));
        assert_eq!(pick(&mix, 1 << 30), (OrderType::Ioc, Urgency::Patient));
        assert_eq!(pick(&mix, u32::MAX), (OrderType::Ioc, Urgency::Patient));
    }

    #[test]
    fn summary_leaves_out_undefined_runs() {
        let summary = Summary::of([Measure::of(1.0), Measure::undefined("no trade"), Measure::of(3.0)]);
        assert_eq!(summary.n, 2);
        assert_eq!(summary.mean.value(), Some(2.0));
        assert_eq!(summary.sd.value(), Some(2f64.sqrt()));
        assert_eq!(Summary::of([Measure::undefined("no trade")]).mean.reason(), Some("no trade"));
        assert_eq!(Summary::of([Measure::of(1.0)]).sd.reason(), Some("fewer than 2 runs"));
    }
}
