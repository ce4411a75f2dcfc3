//! One environment against worked examples, against a second book-keeping, and against its ends.

use foxhunt_core::settings::{EnvSettings, ExecutionSettings};
use foxhunt_core::{Exposure, FactoredAction, OrderType, Philox, Purpose, Urgency};
use foxhunt_market::synthetic::{MeanReverting, RandomWalk};
use foxhunt_market::{
    BarArrays, BarSeries, N_MARKET_FEATURES, Normalise, Normaliser, OptimalPolicy, Portfolio, STATE_DIM,
};
use proptest::prelude::*;

use super::*;

/// A market of bars whose high and low are `reach` away from open and close, without features.
fn small(open: &[f64], close: &[f64], reach: f64, half_spread: f64, volume: Option<f64>) -> Market {
    let n = open.len();
    let extreme = |pick: fn(f64, f64) -> f64, by: f64| {
        open.iter().zip(close).map(|(o, c)| pick(*o, *c) + by).collect::<Vec<f64>>()
    };
    let arrays = BarArrays {
        time: (0..n as i64).map(|t| t * 3_600_000_000_000).collect(),
        open: open.to_vec(),
        high: extreme(f64::max, reach),
        low: extreme(f64::min, -reach),
        close: close.to_vec(),
        volume: volume.map(|v| vec![v; n]),
        spread: Some(vec![2.0 * half_spread; n]),
    };
    let bars = BarSeries::from_arrays(None, arrays).unwrap();
    let zeros = vec![0.0_f32; n];
    Market {
        features: vec![0.25; n * N_MARKET_FEATURES],
        normaliser: Normaliser { names: vec![], mean: vec![], std: vec![] },
        half_spread: vec![half_spread; n],
        spread: zeros.clone(),
        median_spread: zeros.clone(),
        volatility: zeros.clone(),
        median_volatility: zeros,
        first_bar: 0,
        tick_size: 0.125,
        bars,
    }
}

/// Costs of binary fractions, so that worked examples are exact.
fn params() -> EnvParams {
    EnvParams {
        start_equity: 1024.0,
        max_leverage: 1.0,
        ruin_equity: 512.0,
        equity_floor: 10.24,
        reward_scale: 1.0,
        half_spread_scale: 1.0,
        impact_rate: 0.0,
        taker_fee: 0.0,
        maker_fee: 0.0,
        episode_bars: 100,
        limit_to_volume: 1,
    }
}

fn action(exposure: Exposure, order_type: OrderType, urgency: Urgency) -> FactoredAction {
    FactoredAction { exposure, order_type, urgency }
}

fn market_order(exposure: Exposure) -> FactoredAction {
    action(exposure, OrderType::Market, Urgency::Normal)
}

fn begin(market: &Market, params: &EnvParams) -> EnvState {
    EnvState::begin(params, 0, market.len() as u32 - 1, 0)
}

/// Case F02: an action earns the move after it: prices 100, 110, 99, long then flat, rewards +10 % and 0.
#[test]
fn reward_is_the_move_after_the_action() {
    let market = small(&[100.0, 100.0, 110.0], &[100.0, 110.0, 99.0], 0.0, 0.0, None);
    let p = params();
    let mut s = begin(&market, &p);
    let first = step(&market, &p, &mut s, market_order(Exposure::Long));
    assert_eq!(first.reward, 1.1_f64.ln() as f32);
    assert_eq!(s.equity, 1024.0 * 1.1);
    let second = step(&market, &p, &mut s, market_order(Exposure::Flat));
    assert_eq!((second.reward, second.truncated, second.terminated), (0.0, true, false));
    assert_eq!(s.position, 0.0);
}

/// Staying flat leaves equity and reward exactly where they were, whatever the order type and the prices.
#[test]
fn flat_costs_nothing_to_the_bit() {
    let bars = RandomWalk { n_bars: 2000, seed: 1, volatility: 0.02, start_price: 3.7 }.bars().unwrap();
    let market = small(&bars.open, &bars.close, 0.01, 0.003, Some(5.0));
    let p = EnvParams { taker_fee: 1e-3, impact_rate: 1e-3, start_equity: 100_000.1, ..params() };
    let mut s = begin(&market, &p);
    for t in 0..1999_u32 {
        let a = FactoredAction::from_index(18 + t % 9).unwrap();
        assert_eq!(a.exposure, Exposure::Flat);
        let out = step(&market, &p, &mut s, a);
        assert!(out.hold && out.fill.is_none() && out.reward.to_bits() == 0);
        assert_eq!(s.equity.to_bits(), 100_000.1_f64.to_bits());
    }
    assert_eq!(s.bar, 1999);
}

/// A round trip at one price costs exactly two fees and two half spreads.
#[test]
fn round_trip_costs_two_fees_and_two_half_spreads() {
    let market = small(&[64.0; 4], &[64.0; 4], 0.0, 0.25, None);
    let p = EnvParams { taker_fee: 1.0 / 1024.0, ..params() };
    for side in [Exposure::Long, Exposure::Short] {
        let mut s = begin(&market, &p);
        let opened = step(&market, &p, &mut s, market_order(side)).fill.unwrap();
        let closed = step(&market, &p, &mut s, market_order(Exposure::Flat)).fill.unwrap();
        assert_eq!(opened.quantity.abs(), 16.0);
        assert_eq!(closed.quantity, -opened.quantity);
        let sign = opened.quantity.signum();
        let fees = 16.0 * (64.0 + sign * 0.25) / 1024.0 + 16.0 * (64.0 - sign * 0.25) / 1024.0;
        assert_eq!(opened.fee + closed.fee, fees);
        assert_eq!(s.equity, 1024.0 - fees - 2.0 * 16.0 * 0.25);
        assert_eq!((s.position, s.entry_price, s.level), (0.0, 0.0, FLAT_LEVEL));
    }
}

/// A flip trades, and pays for, the whole change.
#[test]
fn a_flip_pays_for_the_whole_change() {
    let market = small(&[64.0; 4], &[64.0; 4], 0.0, 0.0, None);
    let p = EnvParams { taker_fee: 1.0 / 64.0, ..params() };
    let mut s = begin(&market, &p);
    step(&market, &p, &mut s, market_order(Exposure::Long));
    assert_eq!(s.equity, 1024.0 - 16.0);
    let flip = step(&market, &p, &mut s, market_order(Exposure::Short)).fill.unwrap();
    // From +16 units to -(1008 / 64) = -15.75 units.
    assert_eq!(flip.quantity, -31.75);
    assert_eq!(flip.fee, 31.75);
    assert_eq!((s.equity, s.position, s.bars_in_position), (1008.0 - 31.75, -15.75, 1));
}

/// Target units = fraction * max_leverage * equity / close, for every level; a target equal to the level is a
/// hold after the market has moved, and for every order type and urgency.
#[test]
fn targets_and_holds() {
    let market = small(&[64.0, 64.0, 128.0, 128.0], &[64.0, 128.0, 128.0, 128.0], 0.0, 0.0, None);
    let p = EnvParams { max_leverage: 2.0, ruin_equity: -1e9, ..params() };
    for exposure in Exposure::ALL {
        let mut s = begin(&market, &p);
        let out = step(&market, &p, &mut s, market_order(exposure));
        assert_eq!(s.position, exposure.fraction() * 2.0 * 1024.0 / 64.0);
        assert_eq!((out.hold, s.level), (exposure == Exposure::Flat, exposure.index()));
        for k in 0..9 {
            let before = s;
            let mut held = s;
            let a = FactoredAction::from_index(exposure.index() * 9 + k).unwrap();
            let out = step(&market, &EnvParams { taker_fee: 0.01, ..p }, &mut held, a);
            if s.equity > 0.0 {
                assert!(out.hold && out.fill.is_none());
            }
            assert_eq!((held.cash, held.position, held.level), (before.cash, before.position, before.level));
        }
    }
}

/// A partial fill leaves no level, so the same target is an order again; a cancelled order leaves everything.
#[test]
fn partial_fills_and_cancels() {
    let market = small(&[64.0; 6], &[64.0; 6], 0.0, 0.0, Some(40.0));
    let p = params();
    let mut s = begin(&market, &p);
    let ioc = |e, u| action(e, OrderType::Ioc, u);
    let out = step(&market, &p, &mut s, ioc(Exposure::Long, Urgency::Patient));
    assert_eq!((out.fill.unwrap().quantity, out.hold), (4.0, false));
    assert_eq!((s.position, s.level, s.bars_in_position), (4.0, NO_LEVEL, 1));
    let out = step(&market, &p, &mut s, ioc(Exposure::Long, Urgency::Normal));
    assert_eq!((out.fill.unwrap().quantity, s.position, s.level), (10.0, 14.0, NO_LEVEL));
    let out = step(&market, &p, &mut s, ioc(Exposure::Long, Urgency::Normal));
    assert_eq!((out.fill.unwrap().quantity, s.position), (2.0, 16.0));
    assert_eq!((s.level, s.bars_in_position), (Exposure::Long.index(), 3));

    // A limit that is not traded through: nothing changes but the bar and the time held.
    let before = s;
    let out = step(&market, &p, &mut s, action(Exposure::Short, OrderType::LimitMaker, Urgency::Normal));
    assert_eq!((out.fill, out.hold, out.reward), (None, false, 0.0));
    assert_eq!(s, EnvState { bar: 4, bars_in_position: 4, ..before });

    // Where volume does not limit, an IoC order fills whole.
    let mut s = begin(&market, &p);
    let free = EnvParams { limit_to_volume: 0, ..p };
    step(&market, &free, &mut s, ioc(Exposure::Long, Urgency::Patient));
    assert_eq!((s.position, s.level), (16.0, Exposure::Long.index()));
}

/// After a partial fill a target that the position happens to meet needs no order and takes the level.
#[test]
fn a_position_that_meets_its_target_takes_the_level() {
    let market = small(&[64.0; 6], &[64.0; 6], 0.0, 0.0, Some(80.0));
    let p = params();
    let mut s = begin(&market, &p);
    step(&market, &p, &mut s, action(Exposure::Long, OrderType::Ioc, Urgency::Patient));
    assert_eq!((s.position, s.level), (8.0, NO_LEVEL));
    let out = step(&market, &p, &mut s, market_order(Exposure::HalfLong));
    assert!(out.hold && out.fill.is_none());
    assert_eq!((s.position, s.level), (8.0, Exposure::HalfLong.index()));
}

/// Cases B04 and F26: ruin terminates, also below zero equity and also on the last bar; the end of the window
/// truncates. Reward and state stay finite.
#[test]
fn ruin_terminates_and_the_end_truncates() {
    let crash = |last: f64| small(&[64.0, 64.0, 64.0], &[64.0, last, last], 0.0, 0.0, None);
    let p = EnvParams { max_leverage: 4.0, ..params() };
    // Equity 1024 + 64 * (close - 64): 512 at 56, just above it at 56.125, -2048 at 16.
    for (last, ruined) in [(56.0, true), (56.125, false), (16.0, true)] {
        let market = crash(last);
        let mut s = begin(&market, &p);
        let out = step(&market, &p, &mut s, market_order(Exposure::Long));
        assert_eq!((out.terminated, out.truncated), (ruined, false), "close {last}");
        let equity = 1024.0 + 64.0 * (last - 64.0);
        assert_eq!(s.equity, equity);
        let want = (equity.max(10.24) / 1024.0).ln() as f32;
        assert_eq!(out.reward, want);
        assert!(out.reward.is_finite());
        let mut seen = [0.0; STATE_DIM];
        observe(&market, &p, &s, &mut seen);
        assert!(seen.iter().all(|v| v.is_finite()), "case C12: {seen:?}");

        // A second step after ruin changes nothing and says so again.
        let before = s;
        let again = step(&market, &p, &mut s, market_order(Exposure::Short));
        if ruined {
            assert_eq!((s, again.terminated, again.truncated, again.reward), (before, true, false, 0.0));
        } else {
            assert_eq!((again.terminated, again.truncated, s.bar), (false, true, 2));
            let before = s;
            let again = step(&market, &p, &mut s, market_order(Exposure::Long));
            assert_eq!((s, again.terminated, again.truncated, again.hold), (before, false, true, true));
        }

        // Ruin on the last bar is termination, not truncation.
        let mut s = EnvState::begin(&p, 0, 1, 0);
        let out = step(&market, &p, &mut s, market_order(Exposure::Long));
        assert_eq!((out.terminated, out.truncated), (ruined, !ruined));
    }
}

/// Case B06: after the last step the state is still that of the last bar; the reset then clears every value.
#[test]
fn last_state_is_seen_before_the_reset() {
    let close = [64.0, 65.0, 66.0, 67.0, 68.0];
    let mut market = small(&[64.0, 64.0, 65.0, 66.0, 67.0], &close, 0.0, 0.0, None);
    for bar in 0..5 {
        market.features[bar * N_MARKET_FEATURES] = bar as f32;
    }
    let p = EnvParams { episode_bars: 4, ..params() };
    let window = EnvWindow::new(&market, 0..5).unwrap();
    let philox = Philox::new(1);
    let fresh = reset(&p, &philox, 0, 0, window);
    let mut s = fresh;
    let mut seen = [0.0; STATE_DIM];
    for t in 0..4 {
        observe(&market, &p, &s, &mut seen);
        assert_eq!(seen[0], t as f32);
        let out = step(&market, &p, &mut s, market_order(Exposure::Long));
        assert_eq!(out.truncated, t == 3);
    }
    observe(&market, &p, &s, &mut seen);
    assert_eq!(seen[0], 4.0, "the true next state, not the first of the next episode");
    assert!(seen[N_MARKET_FEATURES] > 0.9 && seen[N_MARKET_FEATURES + 2] == 0.2);
    let next = reset(&p, &philox, 0, s.episode + 1, window);
    assert_eq!(next, EnvState { episode: 1, ..fresh });
}

#[test]
fn observation_of_the_portfolio() {
    let market = small(&[64.0, 64.0, 80.0], &[64.0, 80.0, 80.0], 0.0, 0.0, None);
    let p = EnvParams { max_leverage: 2.0, ..params() };
    let mut s = begin(&market, &p);
    let mut seen = [f32::NAN; STATE_DIM];
    observe(&market, &p, &s, &mut seen);
    assert_eq!(seen[..N_MARKET_FEATURES], [0.25; N_MARKET_FEATURES]);
    assert_eq!(seen[N_MARKET_FEATURES..], [0.0; 3]);
    step(&market, &p, &mut s, market_order(Exposure::HalfLong));
    // 16 units bought at 64 now stand at 80: value 1280, equity 1280, profit 256.
    observe(&market, &p, &s, &mut seen);
    assert_eq!(seen[N_MARKET_FEATURES..], [0.5, 10.0, 1.0 / 17.0]);
    let small_gain = EnvState { entry_price: 79.0, ..s };
    observe(&market, &p, &small_gain, &mut seen);
    assert_eq!(seen[N_MARKET_FEATURES + 1], 100.0 * 16.0 / 1280.0);
}

/// Episode starts are uniform over all that leave room, the same for the same address, and other for others.
#[test]
fn resets_draw_starts_from_philox() {
    let market = small(&[64.0; 50], &[64.0; 50], 0.0, 0.0, None);
    let p = EnvParams { episode_bars: 10, ..params() };
    let window = EnvWindow::new(&market, 20..40).unwrap();
    let philox = Philox::new(9);
    let mut counts = [0_u32; 50];
    for episode in 0..10_000 {
        let s = reset(&p, &philox, episode % 3, episode, window);
        assert_eq!(s, reset(&p, &philox, episode % 3, episode, window));
        assert_eq!((s.end_bar - s.bar, s.bar, s.episode), (10, s.start_bar, episode));
        counts[s.bar as usize] += 1;
    }
    // Starts 20..=29: ten of them, 1,000 draws each, five standard errors.
    for (bar, count) in counts.iter().enumerate() {
        let want = if (20..30).contains(&bar) { 1000 } else { 0 };
        assert!(count.abs_diff(want) <= if want == 0 { 0 } else { 150 }, "bar {bar}: {count}");
    }
    // A window shorter than an episode is one episode.
    let s = reset(&p, &philox, 0, 0, EnvWindow::new(&market, 45..50).unwrap());
    assert_eq!((s.bar, s.end_bar), (45, 49));
    for bad in [0..1, 49..51, 7..7] {
        assert!(EnvWindow::new(&market, bad).is_err());
    }
    let late = Market { first_bar: 5, ..market };
    assert!(EnvWindow::new(&late, 4..10).is_err() && EnvWindow::new(&late, 5..10).is_ok());
}

/// Every key of the two sections reaches its own parameter.
#[test]
fn parameters_come_from_settings() {
    let settings = Settings {
        env: EnvSettings {
            n_envs: 1,
            episode_bars: 7,
            start_equity: 200.0,
            max_leverage: 3.0,
            ruin_fraction: 0.25,
            reward_scale: 11.0,
        },
        execution: ExecutionSettings {
            impact_bps: 4.0,
            taker_fee_bps: 5.0,
            maker_fee_bps: -6.0,
            limit_to_volume: false,
            ..ExecutionSettings::default()
        },
        ..Settings::default()
    };
    let p = EnvParams::new(&settings);
    let want = EnvParams {
        start_equity: 200.0,
        max_leverage: 3.0,
        ruin_equity: 50.0,
        equity_floor: 2.0,
        reward_scale: 11.0,
        half_spread_scale: 1.0,
        impact_rate: 4.0 * 1e-4,
        taker_fee: 5.0 * 1e-4,
        maker_fee: -6.0 * 1e-4,
        episode_bars: 7,
        limit_to_volume: 0,
    };
    assert_eq!(p, want);
    let none = p.with_cost_scale(0.0);
    assert_eq!([none.half_spread_scale, none.impact_rate, none.taker_fee, none.maker_fee], [0.0; 4]);
    assert_eq!(p.with_cost_scale(2.0).taker_fee, 1e-3);
}

fn random_market(seed: u64) -> Market {
    let bars = RandomWalk { n_bars: 300, seed, volatility: 0.01, start_price: 50.0 }.bars().unwrap();
    // Opens away from the closes before, so that every order type is filled and cancelled.
    let mut random = Philox::new(seed).stream(Purpose::Synthetic, 1, 0);
    let open: Vec<f64> = bars.open.iter().map(|o| o * (1.0 + 0.002 * random.next_normal())).collect();
    Market { tick_size: 0.01, ..small(&open, &bars.close, 0.1, 0.05, Some(3000.0)) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under any actions: equity is cash plus position times close to the bit; fees, spread and impact add up to
    /// the difference against the same quantities filled without friction; rewards add up to the log return; and
    /// the level always says what it means.
    #[test]
    fn money_adds_up(
        seed in 0u64..10_000,
        actions in prop::collection::vec(0u32..45, 299),
        fee in -5e-4..1e-3f64,
        impact in 0.0..1e-3f64,
        leverage in 0.1..3.0f64,
    ) {
        let market = random_market(seed);
        let p = EnvParams {
            start_equity: 1e5, ruin_equity: 1e4, equity_floor: 1e3, taker_fee: fee, maker_fee: -fee,
            impact_rate: impact, max_leverage: leverage, ..params()
        };
        let mut s = begin(&market, &p);
        let mut frictionless = Portfolio::new(1e5);
        let (mut costs, mut rewards) = (0.0, 0.0);
        for index in actions {
            let before = s;
            let out = step(&market, &p, &mut s, FactoredAction::from_index(index).unwrap());
            let close = market.bars.close[s.bar as usize];
            prop_assert_eq!(s.bar, before.bar + 1);
            prop_assert_eq!(s.equity.to_bits(), (s.cash + s.position * close).to_bits());
            if let Some(f) = out.fill {
                frictionless.trade(f.quantity, f.mid, 0.0);
                costs += f.fee + f.spread_cost + f.impact_cost;
                prop_assert!(!out.hold);
                prop_assert_eq!(s.position, before.position + f.quantity);
                prop_assert_eq!(s.level, if f.complete { index / 9 } else { NO_LEVEL });
            } else {
                prop_assert_eq!((s.cash, s.position, s.entry_price), (before.cash, before.position, before.entry_price));
                prop_assert_eq!(s.level, if out.hold { index / 9 } else { before.level });
            }
            prop_assert_eq!(s.bars_in_position == 0, s.position == 0.0);
            prop_assert!((frictionless.equity(close) - s.equity - costs).abs() < 1e-6);
            rewards += f64::from(out.reward);
            if out.terminated {
                break;
            }
        }
        prop_assert!((rewards - (s.equity / 1e5).ln()).abs() < 1e-4);
    }

    /// Bars after t + 1 do not matter to a step at t, nor bars after t to what is seen at t.
    #[test]
    fn a_step_sees_one_bar_ahead(seed in 0u64..10_000, actions in prop::collection::vec(0u32..45, 20)) {
        let market = random_market(seed);
        let mut other = market.clone();
        for bar in 21..300 {
            for prices in [&mut other.bars.open, &mut other.bars.high, &mut other.bars.low, &mut other.bars.close] {
                prices[bar] *= 2.0;
            }
        }
        let p = EnvParams { taker_fee: 1e-3, ..params() };
        let (mut a, mut b) = (begin(&market, &p), begin(&other, &p));
        for index in actions {
            let action = FactoredAction::from_index(index).unwrap();
            prop_assert_eq!(step(&market, &p, &mut a, action), step(&other, &p, &mut b, action));
            prop_assert_eq!(a, b);
        }
    }
}

/// The optimal policy of a mean-reverting market, run through the environment with the router, earns what its
/// model promises within chance; flat earns nothing and holding far less.
#[test]
fn the_optimal_policy_earns_through_the_environment() {
    let truth = MeanReverting { n_bars: 30_287, seed: 21, phi: 0.9, volatility: 0.004, mean_price: 100.0 };
    let settings = Settings::default();
    let market =
        Market::prepare(truth.bars().unwrap(), &settings.execution, Normalise::FitOn(287..20_000)).unwrap();
    let p = EnvParams::new(&settings);
    let optimal = OptimalPolicy::solve(&truth, &settings.execution, settings.env.max_leverage);
    let run = |policy: &dyn Fn(f64, Exposure) -> Exposure| {
        let mut s = EnvState::begin(&p, 287, market.len() as u32 - 1, 0);
        while s.bar < s.end_bar {
            let x = truth.deviation(market.bars.close[s.bar as usize]);
            let level = Exposure::from_index(s.level).unwrap();
            let action = market.route(s.bar as usize, policy(x, level));
            step(&market, &p, &mut s, action);
        }
        (s.equity / p.start_equity).ln()
    };
    let best = run(&|x, level| optimal.act(x, level));
    let hold = run(&|_, _| Exposure::Long);
    assert_eq!(run(&|_, _| Exposure::Flat), 0.0);
    let promised = optimal.growth_per_bar() * 30_000.0;
    // Four standard errors of 30,000 log returns of 0.004, and second-order terms of half their variance.
    let slack = 4.0 * 0.004 * 30_000_f64.sqrt() + 0.5 * 0.004 * 0.004 * 30_000.0;
    println!("optimal {best:.3}, promised {promised:.3} +- {slack:.3}, buy and hold {hold:.3}");
    assert!((best - promised).abs() < slack, "{best} against {promised} +- {slack}");
    assert!(best > 20.0 * hold.abs());
}
