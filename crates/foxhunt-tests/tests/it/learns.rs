//! Training is worth something: on a market that reverts strongly, the agent beats doing nothing on bars it has not
//! seen.

use foxhunt::{Settings, Trainer};
use foxhunt_core::LinearSchedule;
use foxhunt_market::synthetic::MeanReverting;

#[test]
fn a_reverting_market_is_learned() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.run.dir = dir.path().to_path_buf();
    settings.network.hidden = vec![32];
    settings.learner.batch = 64;
    settings.learner.learning_rate = LinearSchedule { start: 2e-3, end: 5e-4, steps: 2_000 };
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.05, steps: 15_000 };
    settings.training.epochs = 25;
    settings.training.updates_per_epoch = 96;
    settings.evaluation.random_policies = 2;
    let market = MeanReverting { n_bars: 6_000, seed: 3, phi: 0.9, volatility: 0.01, mean_price: 100.0 };
    let outcome = Trainer::new(&settings, market.bars().unwrap()).unwrap().run().unwrap();
    let evaluation = outcome.evaluation.unwrap();
    let test = &evaluation.window("test").unwrap().agent.backtest;
    let bars = test.window.len() as f64;
    // The expected move is a tenth of the deviation: 0.18 % a bar on average for whoever is always on the right
    // side, before costs of about 0.01 % a trade. A position without skill has a mean of 0 with a standard error
    // of 0.03 % over these bars. Half of the former is three of the latter.
    assert!(
        test.net_log_return() / bars > 0.0009,
        "{} over {bars} bars; best validation {:?}",
        test.net_log_return(),
        outcome.best_validation
    );
}
