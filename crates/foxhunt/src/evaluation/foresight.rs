//! What a trader who knows every bar would have made: the best found under the same fills and costs.
//!
//! Dynamic programming forward over bars and exposure levels: of all ways to stand at a level at a bar the richest
//! is kept, and each is led on with every order there is ([`step`](foxhunt_ops::env_step::step) itself fills and
//! charges it). Levels hold money and units as they came, so two ways to one level can differ a little in exposure;
//! the richest is taken for the best, which makes the result a little less than the true optimum, never more: it is a
//! way that was walked. Market orders are patient, because a less patient one only pays more.

use std::ops::Range;

use foxhunt_core::{Exposure, FactoredAction, OrderType, Urgency};
use foxhunt_market::Market;
use foxhunt_ops::env_step::{EnvParams, EnvState, EnvWindow, step};

use super::Backtest;
use super::backtest::run;
use crate::MLError;
use crate::trainer::StopSignal;

/// Bars above which it is not worked out: it takes about a second for a hundred thousand.
pub const MOST_BARS: usize = 200_000;
/// Exposure levels, and the one of a position that was brought to none.
const LEVELS: usize = 6;
/// Bars between two looks at the stop signal.
const LOOK: usize = 1024;

/// The best way found over `window`; none for more bars than [`MOST_BARS`].
///
/// # Errors
/// As [`super::backtest`].
pub fn foresight(
    market: &Market,
    window: Range<usize>,
    params: &EnvParams,
    stop: &dyn StopSignal,
) -> Result<Option<Backtest>, MLError> {
    if window.len() > MOST_BARS {
        return Ok(None);
    }
    let bounds = EnvWindow::new(market, window.clone())?;
    let start = EnvState::begin(params, bounds.first_bar(), bounds.last_bar(), 0);
    let mut standing: [Option<EnvState>; LEVELS] = [None; LEVELS];
    standing[start.level as usize] = Some(start);
    // By bar and level: where the best way came from and what it did.
    let mut came: Vec<[(u8, u8); LEVELS]> = Vec::with_capacity(window.len());
    for bar in window.start..window.end - 1 {
        if (bar - window.start).is_multiple_of(LOOK) && stop.stop_requested() {
            return Err(MLError::Interrupted);
        }
        let (next, from) = advance(market, params, &standing);
        if next.iter().all(Option::is_none) {
            // Ruin whatever is done.
            break;
        }
        standing = next;
        came.push(from);
    }
    let ends = standing.iter().enumerate().filter(|(_, state)| state.is_some()).map(|(level, _)| level);
    let mut best: Option<Backtest> = None;
    for level in ends {
        let actions = way(&came, level);
        let walked = run(market, window.clone(), params, stop, &mut |_, bar| {
            // Behind a ruin that could not be avoided nothing is asked.
            let action = actions.get(bar - window.start).copied().unwrap_or(18);
            Ok(FactoredAction::from_index(u32::from(action))?.into())
        })?;
        if best.as_ref().is_none_or(|best| walked.final_equity() > best.final_equity()) {
            best = Some(walked);
        }
    }
    Ok(best)
}

type Standing = [Option<EnvState>; LEVELS];

fn advance(market: &Market, params: &EnvParams, standing: &Standing) -> (Standing, [(u8, u8); LEVELS]) {
    let mut next: Standing = [None; LEVELS];
    let mut from = [(0, 0); LEVELS];
    for (level, state) in standing.iter().enumerate() {
        let Some(state) = state else { continue };
        for exposure in Exposure::ALL {
            for order_type in OrderType::ALL {
                for urgency in Urgency::ALL {
                    let hold = exposure.index() as usize == level;
                    let market_order = order_type == OrderType::Market;
                    let plain = market_order && urgency == Urgency::Patient;
                    if (hold || market_order) && !plain {
                        continue;
                    }
                    let action = FactoredAction { exposure, order_type, urgency };
                    let mut after = *state;
                    if step(market, params, &mut after, action).terminated {
                        continue;
                    }
                    let slot = after.level as usize;
                    if next[slot].is_none_or(|best| after.equity > best.equity) {
                        next[slot] = Some(after);
                        from[slot] = (level as u8, action.index() as u8);
                    }
                }
            }
        }
    }
    (next, from)
}

/// The actions that lead to `level`, in bar order.
fn way(came: &[[(u8, u8); LEVELS]], mut level: usize) -> Vec<u8> {
    let mut actions: Vec<u8> = came
        .iter()
        .rev()
        .map(|bar| {
            let (before, action) = bar[level];
            level = usize::from(before);
            action
        })
        .collect();
    actions.reverse();
    actions
}

#[cfg(test)]
mod tests {
    use foxhunt_core::Settings;
    use foxhunt_market::synthetic::RandomWalk;
    use foxhunt_market::{Normalise, features};

    use super::*;
    use crate::evaluation::{Fixed, fixed};
    use crate::trainer::NeverStop;

    fn market(bars: usize, seed: u64) -> (Market, Range<usize>) {
        let execution = Settings::default().execution;
        let first = features::first_bar(&execution);
        let walk = RandomWalk { n_bars: first + bars, seed, volatility: 0.004, start_price: 100.0 };
        let window = first..first + bars;
        (Market::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(window.clone())).unwrap(), window)
    }

    /// Every sequence of exposures by market orders on five bars: the way found is at least as good as the best of
    /// them, for several markets and costs.
    #[test]
    fn no_sequence_of_market_orders_is_better() {
        for seed in 0..20 {
            let (market, window) = market(5, seed);
            let params = EnvParams::new(&Settings::default()).with_cost_scale((seed % 4) as f64 * 5.0);
            let found = foresight(&market, window.clone(), &params, &NeverStop).unwrap().unwrap();
            let mut best = f64::NEG_INFINITY;
            for sequence in 0..5_usize.pow(4) {
                let decide = |bar: usize| {
                    let exposure = Exposure::ALL[sequence / 5_usize.pow((bar - window.start) as u32) % 5];
                    FactoredAction { exposure, order_type: OrderType::Market, urgency: Urgency::Patient }
                };
                let walked =
                    run(&market, window.clone(), &params, &NeverStop, &mut |_, bar| Ok(decide(bar).into()));
                best = best.max(walked.unwrap().final_equity());
            }
            let share = found.final_equity() / best;
            assert!(share > 0.9995, "seed {seed}: {share}");
        }
    }

    /// It beats every fixed policy, falls with costs, and without costs is about fully invested on the right side.
    #[test]
    fn it_beats_what_does_not_know() {
        let (market, window) = market(1_000, 3);
        let params = EnvParams::new(&Settings::default());
        let gain = |scale: f64| {
            let params = params.with_cost_scale(scale);
            foresight(&market, window.clone(), &params, &NeverStop).unwrap().unwrap().net_log_return()
        };
        for which in Fixed::ALL {
            let plain = fixed(&market, window.clone(), &params, &NeverStop, which).unwrap();
            assert!(gain(1.0) > plain.net_log_return());
        }
        let ladder = [0.0, 0.5, 1.0, 2.0, 50.0].map(gain);
        assert!(ladder.windows(2).all(|pair| pair[1] < pair[0]), "{ladder:?}");
        assert!(ladder[4] >= 0.0, "standing still is always possible");
        let close = &market.bars.close[window.clone()];
        let all: f64 = close.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs()).sum();
        assert!((ladder[0] / all - 1.0).abs() < 0.02, "{} for {all}", ladder[0]);
    }

    #[test]
    fn long_windows_and_stops_are_answered() {
        let (market, window) = market(50, 1);
        let params = EnvParams::new(&Settings::default());
        assert_eq!(foresight(&market, 0..MOST_BARS + 1, &params, &NeverStop).unwrap(), None);
        let stop = std::sync::atomic::AtomicBool::new(true);
        assert!(matches!(foresight(&market, window, &params, &stop), Err(MLError::Interrupted)));
    }
}
