use std::sync::Arc;

use foxhunt_core::record::FaultKind;
use foxhunt_core::{Head, Settings};
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{Market, Normalise, STATE_DIM};

use super::*;

fn market() -> Market {
    let walk = RandomWalk { n_bars: 900, seed: 5, volatility: 0.03, start_price: 50.0 };
    let execution = Settings::default().execution;
    let first = foxhunt_market::features::first_bar(&execution);
    Market::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(first..900)).unwrap()
}

fn config(market: &Market, n_envs: usize, n_step: usize, head: Head) -> CollectConfig {
    let mut settings = Settings::default();
    settings.env.n_envs = n_envs;
    settings.env.episode_bars = 40;
    settings.env.max_leverage = 8.0;
    settings.learner.n_step = n_step;
    settings.network.head = head;
    CollectConfig::new(&settings, market, market.first_bar..market.len()).unwrap()
}

fn q(step: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| ((i * 7919 + step * 104_729) % 1009) as f32 - 500.0).collect()
}

#[test]
fn trees_add_every_value_once_in_one_order() {
    let mut values = [0.0; GROUP];
    (0..GROUP).for_each(|i| values[i] = (1_u64 << i) as f64);
    assert_eq!(tree_sum(values), ((1_u64 << GROUP) - 1) as f64);
    // 1e16 swallows each 1 alone and keeps their pair.
    let mut order = [0.0; GROUP];
    (order[0], order[8], order[24]) = (1e16, 1.0, 1.0);
    assert_eq!(tree_sum(order), 1e16 + 2.0);
    (order[0], order[8], order[16], order[24]) = (1e16, 1.0, 1.0, 0.0);
    assert_eq!(tree_sum(order), 1e16);
}

/// Every env step, order and episode is in exactly one count, and the sums are those of the rows that left.
#[test]
fn counts_and_sums_agree_with_the_rows() {
    let market = Arc::new(market());
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        let mut collector = Collector::new(config(&market, 70, 1, head), Arc::clone(&market));
        let (mut rewards, mut rows, mut terminal) = (0.0_f64, 0, 0.0);
        for step in 0..300 {
            collector.observe();
            let left = collector.act(&q(step, 70 * head.n_outputs()));
            rewards += left.rewards.iter().map(|r| f64::from(*r)).sum::<f64>();
            terminal += left.terminated.iter().sum::<f32>();
            rows += left.len();
        }
        let tally = collector.take_tally();
        let stats = tally.stats();
        assert_eq!((rows, stats.env_steps, collector.env_steps()), (21_000, 21_000, 21_000));
        assert_eq!(stats.actions.iter().sum::<u64>(), 21_000);
        assert_eq!(stats.orders.iter().sum::<u64>() + stats.holds, 21_000);
        assert!(stats.fills.iter().zip(&stats.orders).all(|(fill, order)| fill <= order));
        assert!(stats.episodes >= 500 && stats.ruined_episodes as f32 == terminal && terminal > 0.0);
        assert!((stats.reward.unwrap() - rewards / 21_000.0).abs() < 1e-9);
        assert!(stats.max_q.unwrap() > 0.0 && stats.q_min.unwrap() < 0.0 && !stats.q_diverged);
        assert_eq!(collector.take_tally().stats().reward, None);
    }
}

#[test]
fn saved_and_continued_equals_never_stopped() {
    let market = Arc::new(market());
    let config = config(&market, 33, 3, Head::Exposure);
    let mut whole = Collector::new(config.clone(), Arc::clone(&market));
    let mut other = Collector::new(config, Arc::clone(&market));
    for step in 0..57 {
        whole.observe();
        whole.act(&q(step, 165));
    }
    let saved = whole.state();
    other.restore(&saved).unwrap();
    assert_eq!(other.state(), saved);
    for step in 57..130 {
        assert_eq!(whole.observe(), other.observe());
        let rows = whole.act(&q(step, 165)).states.to_vec();
        assert_eq!(rows, other.act(&q(step, 165)).states);
    }
    assert_eq!(whole.state(), other.state());
}

#[test]
fn a_state_of_another_market_window_or_size_is_refused() {
    let market = Arc::new(market());
    let mut collector = Collector::new(config(&market, 4, 3, Head::Exposure), Arc::clone(&market));
    collector.observe();
    collector.act(&q(0, 20));
    let saved = collector.state();
    assert_eq!(saved.n_step.lens, [1; 4]);
    let mut wrong: Vec<CollectState> = vec![saved.clone(); 9];
    wrong[0].envs.pop();
    wrong[1].envs[2].bar = 0;
    wrong[2].n_step.lens[1] = 3;
    wrong[3].n_step.states[5] += 1.0;
    wrong[4].n_step.newest[STATE_DIM + 50] += 1.0;
    wrong[5].tally.groups.clear();
    // What no row of the replay memory could take.
    wrong[6].n_step.actions[0] = Head::Exposure.n_actions() as u32;
    wrong[7].n_step.states[STATE_DIM - 1] = 1e-3;
    wrong[8].n_step.states[STATE_DIM - 1] = f32::NAN;
    for (case, state) in wrong.iter().enumerate() {
        assert!(collector.restore(state).is_err(), "case {case}");
        assert_eq!(collector.state(), saved, "case {case}");
    }
}

/// Cases C11, C12: a vector step reports one fault a kind with the number of values, and stores none of them.
#[test]
fn a_vector_step_reports_one_fault_a_kind() {
    let mut dirty = market();
    let (first, n) = (dirty.first_bar, dirty.len());
    for bar in (first..n).step_by(11) {
        dirty.features[bar * 48 + 7] = f32::NAN;
        dirty.features[bar * 48 + 9] = f32::INFINITY;
    }
    for bar in (first..n).step_by(13) {
        dirty.bars.close[bar] = f64::INFINITY;
    }
    let dirty = Arc::new(dirty);
    let mut collector = Collector::new(config(&dirty, 64, 3, Head::Exposure), Arc::clone(&dirty));
    for step in 0..100 {
        let bad = collector.observe().iter().filter(|v| !v.is_finite()).count() as u32;
        let rows = collector.act(&q(step, 320));
        assert!(rows.states.iter().chain(rows.next_states).chain(rows.rewards).all(|v| v.is_finite()));
        let of_step: Vec<_> = collector.tally_faults().iter().filter(|f| f.step == step).collect();
        assert!(of_step.len() <= 2 && of_step.windows(2).all(|f| f[0].kind as u32 > f[1].kind as u32));
        let states = of_step.iter().find(|f| f.kind == FaultKind::NonFiniteState).map_or(0, |f| f.count);
        assert!(states >= bad, "{states} of {bad} at step {step}");
    }
    let kinds = |kind| collector.tally_faults().iter().filter(|f| f.kind == kind).count();
    assert!(kinds(FaultKind::NonFiniteState) > 0 && kinds(FaultKind::NonFiniteReward) > 0);
}
