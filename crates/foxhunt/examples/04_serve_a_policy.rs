//! A trained policy answers bar by bar for an account that the program keeps itself.
//!
//! `cargo run -p foxhunt --example 04_serve_a_policy`
//!
//! A policy is trained in a few seconds, loaded from its run folder as a server would, and asked at the close of every
//! bar of a later market. The account here is filled at the next open at no cost; a real one is told by its broker.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use foxhunt::policy::Holding;
use foxhunt::{BarSeries, MLError, Policy, Settings, Trainer};
use foxhunt_market::synthetic::MeanReverting;

fn main() -> Result<(), MLError> {
    let folder = tempfile::tempdir().map_err(|source| MLError::Io {
        action: "make a folder in",
        path: std::env::temp_dir(),
        source,
    })?;
    let run = train(folder.path())?;
    let served = serve(&mut Policy::load(&run)?, bars(2)?)?;
    println!("{} decisions, {} orders, equity {:.0}", served.decisions, served.orders, served.equity);
    println!("{:.1} us a decision on average", served.us_a_decision);
    Ok(())
}

fn bars(seed: u64) -> Result<BarSeries, MLError> {
    Ok(MeanReverting { n_bars: 2_000, seed, phi: 0.9, volatility: 0.005, mean_price: 100.0 }.bars()?)
}

fn train(runs: &Path) -> Result<std::path::PathBuf, MLError> {
    let mut settings = Settings::default();
    settings.run.dir = runs.to_path_buf();
    settings.network.hidden = vec![32, 32];
    settings.env.n_envs = 16;
    settings.training.epochs = 4;
    settings.training.updates_per_epoch = 32;
    settings.evaluation.random_policies = 1;
    let outcome = Trainer::new(&settings, bars(1)?)?.run()?;
    Ok(outcome.run.folder().to_path_buf())
}

struct Served {
    decisions: usize,
    orders: usize,
    equity: f64,
    us_a_decision: f64,
}

fn serve(policy: &mut Policy, bars: BarSeries) -> Result<Served, MLError> {
    // What the policy sees of these bars: its own normaliser, nothing fitted.
    let market = policy.market(bars)?;
    let (mut cash, mut holding) = (100_000.0, Holding::flat(100_000.0));
    let (mut decisions, mut orders, mut took) = (0, 0, 0.0);
    for bar in market.first_bar..market.len() - 1 {
        let close = market.bars.close[bar];
        holding.equity = cash + holding.units * close;
        let start = Instant::now();
        let decision = policy.decide(&market, bar, &holding)?;
        took += start.elapsed().as_secs_f64();
        decisions += 1;

        // The target is a share of equity in units at this close; the order fills at the next open.
        let target = decision.action.exposure.fraction() * holding.equity / close;
        let change = target - holding.units;
        holding.bars_held += u32::from(holding.units != 0.0);
        if change.abs() * close < 0.25 * holding.equity {
            continue;
        }
        let open = market.bars.open[bar + 1];
        cash -= change * open;
        orders += 1;
        if target == 0.0 || target.signum() != holding.units.signum() {
            (holding.entry_price, holding.bars_held) = (open, 0);
        }
        holding.units = target;
    }
    let us_a_decision = 1e6 * took / f64::from(decisions);
    Ok(Served { decisions: decisions as usize, orders, equity: holding.equity, us_a_decision })
}

#[test]
fn every_bar_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path()).unwrap();
    let mut policy = Policy::load(&run).unwrap();
    let served = serve(&mut policy, bars(2).unwrap()).unwrap();
    assert!(served.decisions > 1_000 && served.orders > 0 && served.equity > 0.0);
    // The same bars give the same orders.
    let again = serve(&mut policy, bars(2).unwrap()).unwrap();
    assert_eq!((again.orders, again.equity.to_bits()), (served.orders, served.equity.to_bits()));
    // A short market is an error, not a guess.
    let short = MeanReverting { n_bars: 100, seed: 1, phi: 0.9, volatility: 0.005, mean_price: 100.0 };
    assert!(matches!(policy.market(short.bars().unwrap()), Err(MLError::Market(_))));
}
