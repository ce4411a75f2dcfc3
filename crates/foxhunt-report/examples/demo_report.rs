//! Writes a report of the optimal policy on a mean-reverting market, with made-up training curves, to look at the
//! page: `cargo run -p foxhunt-report --example demo_report -- FOLDER`.

use std::path::PathBuf;

use foxhunt::evaluation::evaluate_windows;
use foxhunt::trainer::NeverStop;
use foxhunt_core::{Exposure, Settings};
use foxhunt_market::synthetic::MeanReverting;
use foxhunt_market::{Market, Normalise, OptimalPolicy, Split, features};
use foxhunt_ops::env_step::EnvParams;
use foxhunt_report::{Provenance, ReportInput, TrainingPoint, table, write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let settings = Settings::default();
    let source = MeanReverting { n_bars: 12_000, seed: 4, phi: 0.98, volatility: 0.0015, mean_price: 1.1 };
    let mut bars = source.bars()?;
    bars.symbol = Some("DEMO".into());
    let best = OptimalPolicy::solve(&source, &settings.execution, settings.env.max_leverage);

    let first = features::first_bar(&settings.execution);
    let split = Split::new(bars.len(), first, &settings.split)?;
    let market = Market::prepare(bars, &settings.execution, Normalise::FitOn(split.train.clone()))?;
    let windows = [("train", split.train), ("validation", split.validation), ("test", split.test)];
    let mut held = Exposure::Flat;
    let mut policy = |state: &[f32], bar: usize| {
        if state[state.len() - 1] == 0.0 {
            held = Exposure::Flat;
        }
        let x = market.bars.close[bar].ln() - source.mean_price.ln();
        held = best.act(x, held);
        Ok(market.route(bar, held).into())
    };
    let params = EnvParams::new(&settings);
    let (rules, seed) = (&settings.evaluation, settings.run.seed);
    let evaluation = evaluate_windows(&market, &windows, &params, rules, seed, &NeverStop, &mut policy)?;

    let training: Vec<TrainingPoint> = (1..=60_u64)
        .map(|epoch| {
            let t = epoch as f64;
            let wave = (t * 1.7).sin();
            TrainingPoint {
                epoch,
                env_steps: epoch * 1024,
                updates: epoch * 128,
                loss: Some((0.4 * (-t / 12.0).exp() + 0.01) * (1.0 + 0.2 * wave)),
                td_error: Some((0.6 * (-t / 15.0).exp() + 0.05) * (1.0 + 0.1 * wave)),
                max_q: Some(3.0 * (1.0 - (-t / 20.0).exp()) + 0.05 * wave),
                grad_norm: Some(2.0 + wave),
                env_steps_per_s: Some(11_000.0 + 500.0 * wave),
                updates_per_s: Some(410.0 + 20.0 * wave),
                validation_log_return: epoch
                    .is_multiple_of(2)
                    .then(|| 0.2 - 0.3 * (-t / 15.0).exp() + 0.02 * wave),
                episode_log_return: Some(0.05 - 0.1 * (-t / 10.0).exp() + 0.01 * wave),
                ..TrainingPoint::default()
            }
        })
        .collect();
    let provenance = Provenance::of_market("synthetic", &market, settings.execution.half_spread_bps);
    let input = ReportInput {
        title: "Demonstration",
        program: concat!("foxhunt ", env!("CARGO_PKG_VERSION")),
        created_ns: market.bars.time[market.bars.len() - 1],
        engine: "cpu",
        seed: settings.run.seed,
        settings_toml: &settings.to_toml()?,
        provenance: &provenance,
        bars: &market.bars,
        evaluation: &evaluation,
        walk_forward: None,
        training: &training,
        notes: &["A synthetic market and its optimal policy; the training curves are made up.".into()],
    };
    write(&folder, &input)?;
    // A demonstration may print.
    #[allow(clippy::print_stdout)]
    {
        println!("{}", table::summary(&evaluation));
    }
    Ok(())
}
