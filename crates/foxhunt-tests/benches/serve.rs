//! Times one answer of a policy on one core: a state to its Q-values, and a bar with what is held to an action.
//!
//! Every answer is checked first: Q-values against a batch of the same network, the action against the state observed
//! by hand. Output is one JSON line a part: `{"part", "us_median", "us_p99", "us_min"}`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;

use foxhunt::learner::QNetwork;
use foxhunt::policy::{Holding, network_layout};
use foxhunt::{Policy, Settings};
use foxhunt_core::Head;
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{Market, Normalise, STATE_DIM};
use foxhunt_ops::env_step::{EnvParams, EnvState, observe};
use foxhunt_tests::timing::Times;

const RUNS: usize = 20_000;

fn main() {
    for (head, name) in
        [(Head::Exposure, "exposure"), (Head::Factored, "factored"), (Head::Branching, "branching")]
    {
        let mut settings = Settings::default();
        settings.network.head = head;
        let walk = RandomWalk { n_bars: 1_200, seed: 3, volatility: 0.002, start_price: 100.0 };
        let bars = walk.bars().unwrap();
        let fitted =
            Market::prepare(bars.clone(), &settings.execution, Normalise::FitOn(700..1_000)).unwrap();
        let network = QNetwork::new(&settings.network, STATE_DIM, 7);
        let mut arrays = foxhunt::engine::Snapshot::default();
        network.write(&mut arrays, "");
        let mut policy = Policy::new(&settings, fitted.normaliser, None, &arrays).unwrap();
        let market = policy.market(bars).unwrap();
        check(&mut policy, &market, network);

        let mut bar = market.first_bar;
        let mut next = || {
            bar = if bar + 1 < market.len() { bar + 1 } else { market.first_bar };
            bar
        };
        let mut state = [0.5; STATE_DIM];
        let times = Times::of(RUNS, || {
            state[..48].copy_from_slice(market.feature_row(next()));
            black_box(policy.q_values(black_box(&state)).unwrap());
        });
        print(&format!("q_values_{name}"), &times);
        let holding = Holding { units: 500.0, entry_price: 99.0, equity: 100_000.0, bars_held: 9 };
        let times = Times::of(RUNS, || {
            black_box(policy.decide(&market, next(), black_box(&holding)).unwrap());
        });
        print(&format!("decide_{name}"), &times);
    }
}

fn check(policy: &mut Policy, market: &Market, mut network: QNetwork) {
    let params = EnvParams::new(policy.settings());
    let rows = 40;
    let mut states = vec![0.0; rows * STATE_DIM];
    let mut decisions = Vec::new();
    for (i, state) in states.chunks_exact_mut(STATE_DIM).enumerate() {
        let bar = market.first_bar + 7 * i;
        let holding =
            Holding { units: 30.0 * i as f64 - 600.0, entry_price: 99.0, equity: 9e4, bars_held: 3 };
        let account = EnvState {
            position: holding.units,
            entry_price: holding.entry_price,
            equity: holding.equity,
            bars_in_position: holding.bars_held,
            bar: bar as u32,
            ..EnvState::begin(&params, 0, 1, 0)
        };
        observe(market, &params, &account, state);
        decisions.push(policy.decide(market, bar, &holding).unwrap());
        assert_eq!(policy.act(market, state, bar).unwrap(), decisions[i]);
    }
    assert_eq!(network.layout(), &network_layout(policy.settings()));
    let width = network.layout().n_outputs();
    let mut q = vec![0.0; rows * width];
    network.q_values(&states, &mut q).unwrap();
    for (state, q) in states.chunks_exact(STATE_DIM).zip(q.chunks_exact(width)) {
        assert_eq!(policy.q_values(state).unwrap(), q);
    }
    assert!(decisions.iter().any(|d| *d != decisions[0]), "the policy decides by what it sees");
}

fn print(part: &str, times: &Times) {
    println!(
        "{{\"part\": \"{part}\", \"us_median\": {:.2}, \"us_p99\": {:.2}, \"us_min\": {:.2}}}",
        times.at(0.5),
        times.at(0.99),
        times.at(0.0)
    );
}
