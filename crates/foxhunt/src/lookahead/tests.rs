//! The honest way passes, every cheater is caught, and the detector changes what it says it changes.

use std::path::Path;

use foxhunt_market::synthetic::{MeanReverting, RandomWalk};

use super::*;
use crate::trainer::NeverStop;

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.network.hidden = vec![8];
    settings.execution.volatility_window = 8;
    settings.execution.median_window = 16;
    settings
}

/// A walk with volume and a spread that varies, so that every input is alive.
fn bars(n_bars: usize) -> BarSeries {
    let mut bars = RandomWalk { n_bars, seed: 3, volatility: 0.004, start_price: 100.0 }.bars().unwrap();
    bars.spread = Some(bars.close.iter().enumerate().map(|(t, c)| 1e-4 * c * (1 + t % 7) as f64).collect());
    bars.volume = Some((0..n_bars).map(|t| 1e6 + (t % 11) as f64).collect());
    bars
}

fn report(settings: &Settings, bars: &BarSeries, plant: Option<Plant>) -> LookaheadReport {
    check(&Subject { settings, bars, policy: None, cuts: 3, plant }, &NeverStop).unwrap()
}

/// On a random walk and on the vendored hourly file, under every head.
#[test]
fn the_honest_way_passes_and_every_cheater_is_caught() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/eurusd_1h_2017_ask.csv");
    let sample = foxhunt_market::load(&sample, &Settings::default().data).unwrap().bars;
    let cases = [
        (foxhunt_core::Head::Exposure, bars(900)),
        (foxhunt_core::Head::Branching, bars(900)),
        (foxhunt_core::Head::Factored, sample),
    ];
    for (head, bars) in cases {
        let mut settings = settings();
        settings.network.head = head;
        let report = report(&settings, &bars, None);
        assert_eq!(report.leaks, [], "{head:?}");
        assert!(report.passed(), "{:?}", report.cheaters);
        assert_eq!(report.cuts.len(), 3);
        for (stage, check) in
            Stage::ALL.into_iter().flat_map(|s| [(s, Check::Truncation), (s, Check::Perturbation)])
        {
            let tally = report.tallies.iter().find(|(s, c, _)| (*s, *c) == (stage, check)).unwrap().2;
            assert!(tally.compared > 0 && tally.leaks == 0, "{stage:?} {check:?}");
        }
        let caught = |plant| &report.cheaters.iter().find(|c| c.plant == plant).unwrap().caught_by;
        for plant in [Plant::Feature, Plant::Router, Plant::Normaliser, Plant::Decision] {
            assert!(caught(plant).contains(&Check::Perturbation), "{plant:?} {:?}", caught(plant));
        }
        assert!(caught(Plant::Feature).contains(&Check::Truncation) || caught(Plant::Feature).len() > 1);
        assert!(caught(Plant::Decision).contains(&Check::Lag));
        assert_eq!(caught(Plant::Fill), &[Check::NextBar]);
    }
}

/// A cheater in the pipeline itself is told by stage, bar and value.
#[test]
fn a_leak_is_told_where_it_is() {
    let report = report(&settings(), &bars(700), Some(Plant::Feature));
    assert!(!report.passed());
    let leak = report.leaks.iter().find(|leak| leak.stage == Stage::Features).unwrap();
    assert_eq!(leak.what, foxhunt_market::FEATURES[0].name);
    // The return of the next bar is known one bar early: at the cut, and nowhere before it.
    assert_eq!(leak.bar, leak.cut);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<LookaheadReport>(&json).unwrap(), report);
}

/// A market that can be predicted is not called a cheat: its best policy has an honest edge that lasts.
#[test]
fn an_honest_edge_passes_the_lag() {
    let market = MeanReverting { n_bars: 3000, seed: 5, phi: 0.9, volatility: 0.01, mean_price: 100.0 };
    let bars = market.bars().unwrap();
    let exposure: Vec<f64> = bars.close.iter().map(|c| -market.deviation(*c).signum()).collect();
    let earned = |late: usize| -> Vec<f64> {
        (0..2900).map(|t| (bars.close[t + 1 + late] / bars.open[t + 1 + late]).ln()).collect()
    };
    let [now, late] = [0, 1].map(|lag| super::lag::correlation(&exposure[..2900], &earned(lag)).unwrap());
    assert!(now > 0.1 && now < 0.3 && late > 0.5 * now, "{now} {late}");
}

#[test]
fn the_other_futures_share_the_past_alone() {
    let bars = bars(400);
    for course in [futures::Course::Up, futures::Course::Down] {
        let other = futures::perturbed(&bars, 300, course).unwrap();
        assert_eq!(other.close[..=300], bars.close[..=300]);
        for bar in 301..400 {
            for (other, mine) in
                [(&other.low, &bars.low), (&other.close, &bars.close), (&other.high, &bars.high)]
            {
                let ratio = other[bar] / mine[bar];
                assert!(
                    if course == futures::Course::Up { ratio >= 1.1 } else { ratio <= 0.9 },
                    "{bar}: {ratio}"
                );
            }
            assert_ne!(other.time[bar], bars.time[bar]);
            assert_ne!(other.volume.as_ref().unwrap()[bar], bars.volume.as_ref().unwrap()[bar]);
            assert_ne!(other.spread.as_ref().unwrap()[bar], bars.spread.as_ref().unwrap()[bar]);
        }
    }
    assert_eq!(futures::truncated(&bars, 300).unwrap().len(), 301);
}

#[test]
fn cuts_lie_behind_the_training_bars() {
    assert_eq!(cut_bars(100, 200, 4).unwrap(), [124, 148, 173, 197]);
    assert_eq!(cut_bars(100, 103, 9).unwrap(), [100]);
    assert!(cut_bars(100, 102, 1).is_err());
    let few = bars(258);
    assert!(
        check(&Subject { settings: &settings(), bars: &few, policy: None, cuts: 1, plant: None }, &NeverStop)
            .is_err()
    );
}

/// A stop is answered at once.
#[test]
fn a_stop_is_heard() {
    let stop = std::sync::atomic::AtomicBool::new(true);
    let subject = Subject { settings: &settings(), bars: &bars(700), policy: None, cuts: 1, plant: None };
    assert!(matches!(check(&subject, &stop), Err(MLError::Interrupted)));
}
