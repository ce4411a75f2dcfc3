//! Backtests against hand arithmetic and identities; baselines and ladder against their definitions.

use std::ops::Range;

use foxhunt_core::settings::EvaluationSettings;
use foxhunt_core::{Exposure, FactoredAction, OrderType, Philox, Purpose, Settings, Urgency};
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{BarArrays, BarSeries, Market, Normalise, features};
use foxhunt_ops::env_step::{EnvParams, EnvState, step};

use super::*;
use crate::MLError;
use crate::trainer::NeverStop;

const HOUR: i64 = 3_600_000_000_000;

fn action(exposure: Exposure, order_type: OrderType, urgency: Urgency) -> FactoredAction {
    FactoredAction { exposure, order_type, urgency }
}

fn market_order(exposure: Exposure) -> FactoredAction {
    action(exposure, OrderType::Market, Urgency::Normal)
}

/// A market whose usable bars close at `closes`, each opening at the close before it; before them, price 100.
fn market_of(closes: &[f64]) -> (Market, Range<usize>) {
    let execution = Settings::default().execution;
    let before = features::first_bar(&execution);
    let close: Vec<f64> = std::iter::repeat_n(100.0, before).chain(closes.iter().copied()).collect();
    let open: Vec<f64> = std::iter::once(100.0).chain(close.iter().copied()).take(close.len()).collect();
    let pick = |f: fn(f64, f64) -> f64| open.iter().zip(&close).map(|(o, c)| f(*o, *c)).collect();
    let arrays = BarArrays {
        time: (0..close.len() as i64).map(|i| i * HOUR).collect(),
        high: pick(f64::max),
        low: pick(f64::min),
        open,
        close,
        ..BarArrays::default()
    };
    let bars = BarSeries::from_arrays(None, arrays).unwrap();
    let window = before..bars.len();
    (Market::prepare(bars, &execution, Normalise::FitOn(window.clone())).unwrap(), window)
}

fn random_walk(bars: usize) -> (Market, Range<usize>) {
    let execution = Settings::default().execution;
    let first = features::first_bar(&execution);
    let walk = RandomWalk { n_bars: first + bars, seed: 3, volatility: 0.002, start_price: 100.0 };
    let window = first..first + bars;
    (Market::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(window.clone())).unwrap(), window)
}

/// Trades at random over all 45 actions, the same way every time it is asked.
fn busy(bar: usize) -> Result<Decision, MLError> {
    let [word, coin, ..] = Philox::new(99).block(Purpose::Explore, 0, bar as u64, 0);
    // Every fourth bar another action, else the one before.
    let bar = if coin < u32::MAX / 4 { bar } else { bar - bar % 5 };
    let word = if bar % 5 == 0 { Philox::new(99).block(Purpose::Explore, 0, bar as u64, 0)[0] } else { word };
    Ok(FactoredAction::from_index(foxhunt_core::philox::below(word, 45))?.into())
}

fn params() -> EnvParams {
    EnvParams::new(&Settings::default())
}

#[test]
fn flat_keeps_the_start_equity() {
    let (market, window) = random_walk(300);
    let record = fixed(&market, window, &params(), &NeverStop, Fixed::Flat).unwrap();
    assert_eq!(record.equity, vec![100_000.0; 300]);
    assert_eq!((record.actions.len(), record.holds), (299, 299));
    assert!(record.fills.is_empty() && !record.terminated);
    assert_eq!(record.net_log_return(), 0.0);
    let metrics = Metrics::of(&record, Some(6000.0), 0.0);
    assert_eq!(metrics.net_return.value(), Some(0.0));
    assert_eq!(metrics.sharpe.reason(), Some("returns do not vary"));
    assert_eq!(metrics.win_rate.reason(), Some("no trade"));
    assert_eq!(metrics.max_drawdown.value(), Some(0.0));
    assert_eq!(metrics.turnover.to_bits(), 0.0_f64.to_bits());
}

/// Cases F06 and F14: long over 100, 100, 110 by hand. Half spread 0.5 bp, impact 0.2 bp and fee 0.5 bp, both ways.
#[test]
fn buy_and_hold_by_hand() {
    let (market, window) = market_of(&[100.0, 100.0, 110.0]);
    let record = fixed(&market, window.clone(), &params(), &NeverStop, Fixed::BuyAndHold).unwrap();
    let units = 1000.0;
    let buy = 100.0 + 100.0 * 0.7e-4;
    let cash = 100_000.0 - units * buy - units * buy * 0.5e-4;
    let sell = 110.0 - 110.0 * 0.7e-4;
    let end = cash + units * sell - units * sell * 0.5e-4;
    let want = [100_000.0, cash + units * 100.0, end];
    for (got, want) in record.equity.iter().zip(want) {
        assert!((got - want).abs() < 1e-6, "{:?}", record.equity);
    }
    assert_eq!(record.position, [0.0, units, units]);
    assert_eq!(record.fills.len(), 2);
    assert!(record.fills[1].closing && !record.fills[0].closing);
    assert_eq!(record.fills[0].bar, window.start + 1);
    assert_eq!(record.holds, 1);
    assert!((record.costs.fee - (buy + sell) * units * 0.5e-4).abs() < 1e-9);
    assert!((record.costs.spread - units * 210.0 * 0.5e-4).abs() < 1e-9);
    assert!((record.costs.impact - units * 210.0 * 0.2e-4).abs() < 1e-9);
    assert!((record.turnover() - (units * buy / 1e5 + units * sell / (cash + units * 110.0))).abs() < 1e-12);

    let short = fixed(&market, window, &params(), &NeverStop, Fixed::AlwaysShort).unwrap();
    assert!(short.final_equity() < 90_000.0, "a short loses the rise and the costs");
    assert!((short.costs.spread - record.costs.spread).abs() < 1e-9, "both sides pay alike");
}

/// The profits of the round trips are the change of equity, to rounding; every order is accounted for.
#[test]
fn trades_explain_the_equity() {
    let (market, window) = random_walk(3000);
    let record = backtest(&market, window, &params(), &NeverStop, &mut |_, bar| busy(bar)).unwrap();
    let trades = round_trips(&record.fills);
    assert!(trades.len() > 100 && record.fills.iter().any(|f| f.maker), "{} trades", trades.len());
    let profit: f64 = trades.iter().map(|trade| trade.profit).sum();
    assert!((profit - (record.final_equity() - 100_000.0)).abs() < 1e-5);
    let o = &record.orders;
    for slot in 0..9 {
        assert_eq!(o.sent[slot], o.filled[slot] + o.partial[slot] + o.cancelled[slot]);
        assert!(o.sent[slot] > 0, "slot {slot} never used");
    }
    assert_eq!(o.total_sent() + record.holds, record.actions.len() as u64);
    let filled: u64 = o.filled.iter().chain(&o.partial).sum();
    assert_eq!(record.fills.iter().filter(|f| !f.closing).count() as u64, filled);
    let fees: f64 = record.fills.iter().map(|f| f.fee).sum();
    assert!((fees - record.costs.fee).abs() < 1e-9);
    assert_eq!(ActionTable::of(&record).total(), 2999);
}

/// A backtest is the environment: the same equity bar for bar, and rewards that add up to its log return.
#[test]
fn a_backtest_is_the_environment() {
    let (market, window) = random_walk(500);
    let params = params();
    let last_decision = window.end - 2;
    let policy = |bar: usize| {
        if bar == last_decision { market_order(Exposure::Short) } else { busy(bar).unwrap().action }
    };
    let record =
        backtest(&market, window.clone(), &params, &NeverStop, &mut |_, bar| Ok(policy(bar).into())).unwrap();
    let mut state = EnvState::begin(&params, window.start as u32, window.end as u32 - 1, 0);
    let mut rewards = 0.0;
    for i in 1..window.len() {
        let action = policy(state.bar as usize);
        let outcome = step(&market, &params, &mut state, action);
        rewards += f64::from(outcome.reward) / params.reward_scale;
        if i + 1 < window.len() {
            assert_eq!(record.equity[i], state.equity, "bar {i}");
        }
        assert_eq!(record.position[i], state.position);
    }
    assert_ne!(state.position, 0.0, "the closing fill is to be seen");
    let closing_cost = record.fills.last().map(|f| f.fee + f.spread + f.impact).unwrap();
    assert!((record.final_equity() + closing_cost - state.equity).abs() < 1e-8);
    let marked = record.net_log_return() + (state.equity / record.final_equity()).ln();
    assert!((rewards - marked).abs() < 1e-5, "{rewards} against {marked}");
}

/// Case F26: ruin ends the trading, closes the position with costs and leaves the account flat and finite.
#[test]
fn ruin_stops_the_account() {
    let (market, window) = market_of(&[100.0, 100.0, 80.0, 70.0, 200.0]);
    let mut params = params();
    params.max_leverage = 3.0;
    let record = fixed(&market, window.clone(), &params, &NeverStop, Fixed::BuyAndHold).unwrap();
    assert!(record.terminated);
    assert_eq!(record.equity.len(), 5);
    assert_eq!(record.actions.len(), 2);
    assert!(record.equity[2] < 40_000.0 && record.equity[2..].iter().all(|e| *e == record.equity[2]));
    assert_eq!(record.position[3..], [0.0, 0.0]);
    assert!(record.fills[1].closing && record.fills[1].bar == window.start + 2);

    params.max_leverage = 10.0;
    let below = fixed(&market, window, &params, &NeverStop, Fixed::BuyAndHold).unwrap();
    assert!(below.final_equity() < 0.0);
    assert_eq!(below.net_log_return(), 0.01_f64.ln());
    let metrics = Metrics::of(&below, Some(6000.0), 0.0);
    assert!(metrics.net_return.value().unwrap() < -1.0);
    assert!(metrics.sharpe.reason().unwrap().contains("not positive"), "{:?}", metrics.sharpe);
    assert!(metrics.annual_return.value().is_none());
    assert!(!serde_json::to_string(&below).unwrap().contains("null"));
}

/// Case F20: one return has no deviation, and says so.
#[test]
fn two_bars_are_enough_to_run_but_not_to_judge() {
    let (market, window) = market_of(&[100.0, 101.0]);
    let record = fixed(&market, window.clone(), &params(), &NeverStop, Fixed::BuyAndHold).unwrap();
    assert_eq!(record.equity.len(), 2);
    assert_eq!(record.fills.len(), 2, "bought and closed in the same bar");
    let metrics = Metrics::of(&record, market.bars.bars_per_year(window.clone()), 0.0);
    assert_eq!(metrics.sharpe.reason(), Some("1 returns, needs 2"));
    assert_eq!(metrics.annual_return.reason(), Some("fewer than 20 returns"));
    assert!(metrics.net_return.value().is_some());
    assert!(fixed(&market, window.start..window.start + 1, &params(), &NeverStop, Fixed::Flat).is_err());
    assert!(
        fixed(&market, 0..5, &params(), &NeverStop, Fixed::Flat).is_err(),
        "bars without full look-backs"
    );
}

fn evaluate(market: &Market, window: Range<usize>, seed: u64) -> Evaluation {
    let settings = EvaluationSettings::default();
    let mut policy = |_: &[f32], bar: usize| busy(bar);
    evaluate_windows(market, &[("test", window)], &params(), &settings, seed, &NeverStop, &mut policy)
        .unwrap()
}

#[test]
fn random_has_the_agents_turnover_and_orders() {
    let (market, window) = random_walk(2000);
    let evaluation = evaluate(&market, window.clone(), 1);
    let w = evaluation.window("test").unwrap();
    let random = &w.random;
    assert_eq!(random.runs.len(), 20);
    assert!(random.matched);
    let error = random.turnover / w.agent.metrics.turnover - 1.0;
    assert!(error.abs() < 0.03, "turnover {} for {}", random.turnover, w.agent.metrics.turnover);
    let turnover = random.summary(|m| Measure::of(m.turnover));
    assert!((turnover.mean.value().unwrap() - random.turnover).abs() < 1e-9);
    assert!(turnover.sd.value().unwrap() > 0.0, "policies differ");
    // The order mix is the agent's: the share of market orders agrees to a few standard errors.
    let share = |o: &OrderCounts| o.sent[..3].iter().sum::<u64>() as f64 / o.total_sent() as f64;
    let mean = random.summary(|m| Measure::of(share(&m.orders))).mean.value().unwrap();
    assert!((mean - share(&w.agent.metrics.orders)).abs() < 0.03, "{mean}");
    for (i, equity) in random.equity_mean.iter().enumerate() {
        assert!(random.equity_low[i] <= *equity + 1e-6 && *equity <= random.equity_high[i] + 1e-6);
    }
    assert_eq!(evaluation, evaluate(&market, window.clone(), 1), "the same seed repeats");
    assert_ne!(random.runs, evaluate(&market, window, 2).windows[0].random.runs);
}

#[test]
fn random_follows_rare_busy_and_idle_agents() {
    let (market, window) = random_walk(1500);
    let judge = |b: &Backtest| Metrics::of(b, None, 0.0);
    let of = |agent: &Backtest| random(&market, agent, &params(), 20, 5, &NeverStop, &judge).unwrap();
    let idle = of(&fixed(&market, window.clone(), &params(), &NeverStop, Fixed::Flat).unwrap());
    assert_eq!((idle.chance, idle.turnover, idle.matched), (0.0, 0.0, true));
    assert!(idle.equity_mean.iter().all(|e| (e - 100_000.0).abs() < 1e-6));
    let rare = of(&fixed(&market, window.clone(), &params(), &NeverStop, Fixed::BuyAndHold).unwrap());
    assert!(rare.matched && rare.chance > 0.0 && rare.chance < 0.01, "{} {}", rare.turnover, rare.chance);
    // From fully long to fully short and back at every bar is more than a random policy can do.
    let restless =
        |bar: usize| market_order(if bar.is_multiple_of(2) { Exposure::Long } else { Exposure::Short });
    let mut free = params().with_cost_scale(0.0);
    free.ruin_equity = 0.0;
    let agent = backtest(&market, window, &free, &NeverStop, &mut |_, bar| Ok(restless(bar).into())).unwrap();
    let most = random(&market, &agent, &free, 4, 5, &NeverStop, &judge).unwrap();
    assert_eq!(most.chance, 1.0);
    assert!(!most.matched && most.turnover < most.target_turnover);
}

/// More cost, less equity, for a policy whose fills do not depend on costs.
#[test]
fn the_ladder_falls_for_market_orders() {
    let (market, window) = random_walk(1000);
    let mut policy = |_: &[f32], bar: usize| Ok(market_order(Exposure::ALL[bar / 7 % 5]).into());
    let settings = EvaluationSettings { random_policies: 2, ..EvaluationSettings::default() };
    let windows = [("train", window.start..window.start + 400), ("test", window.start + 400..window.end)];
    let evaluation =
        evaluate_windows(&market, &windows, &params(), &settings, 1, &NeverStop, &mut policy).unwrap();
    assert_eq!(evaluation.windows.len(), 2);
    for w in &evaluation.windows {
        assert_eq!(w.ladder.iter().map(|r| r.multiple).collect::<Vec<_>>(), LADDER);
        for pair in w.ladder.windows(2) {
            assert!(pair[1].metrics.final_equity < pair[0].metrics.final_equity);
        }
        assert_eq!(w.ladder[0].metrics.costs.total(), 0.0);
        assert_eq!(w.ladder[2].metrics, w.agent.metrics);
        assert_eq!(w.baselines.len(), 3);
        assert!(w.baselines[1].metrics.costs.total() > 0.0 && w.baselines[0].metrics.costs.total() == 0.0);
        assert_eq!(w.last_ns, market.bars.time[w.bars.end - 1]);
    }
}

#[test]
fn an_evaluation_survives_json() {
    let (market, window) = random_walk(60);
    let evaluation = evaluate(&market, window, 1);
    let json = serde_json::to_string(&evaluation).unwrap();
    let back: Evaluation = serde_json::from_str(&json).unwrap();
    assert_eq!(back, evaluation);
}

/// A stop asked for at any bar of the agent, the baselines, the calibration or the ladder ends the whole evaluation.
#[test]
fn an_evaluation_stops_where_it_is_asked_to() {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    struct After(AtomicU64);
    impl crate::trainer::StopSignal for After {
        fn stop_requested(&self) -> bool {
            self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
        }
    }
    let (market, window) = random_walk(60);
    let settings = EvaluationSettings { random_policies: 2, ..EvaluationSettings::default() };
    let attempt = |looks: u64| {
        let stop = After(AtomicU64::new(looks));
        let mut policy = |_: &[f32], bar: usize| busy(bar);
        let windows = [("test", window.clone())];
        let result = evaluate_windows(&market, &windows, &params(), &settings, 1, &stop, &mut policy);
        (result, stop.0.into_inner())
    };
    let (whole, left) = attempt(1_000_000);
    let looks = 1_000_000 - left;
    // Agent, three fixed baselines, at least one round and the run of two random policies, three rungs.
    assert!(looks > 59 * (1 + 3 + 4 + 3) - 1, "{looks}");
    assert_eq!(attempt(looks).0.unwrap(), whole.unwrap());
    for k in (0..looks).step_by(7).chain([looks - 1]) {
        assert!(matches!(attempt(k).0, Err(MLError::Interrupted)), "look {k} of {looks}");
    }
}

/// The errors of a policy come through.
#[test]
fn a_failing_policy_fails_the_backtest() {
    let (market, window) = market_of(&[100.0, 101.0, 102.0]);
    let result = backtest(&market, window, &params(), &NeverStop, &mut |state, _| {
        assert_eq!(state.len(), foxhunt_market::STATE_DIM);
        Err(MLError::Halted { update: 0, reason: "planted".into() })
    });
    assert!(matches!(result, Err(MLError::Halted { .. })));
}
