//! Rows of 32 bytes mean what whole rows mean.

use foxhunt_core::settings::ReplayStorage;
use foxhunt_core::{Head, Settings};
use foxhunt_market::Normalise;
use foxhunt_market::synthetic::RandomWalk;
use proptest::prelude::*;

use super::*;
use crate::collect::{CollectConfig, Collector};
use crate::ring::{BatchBuffers, Ring};

fn market() -> Arc<Market> {
    let walk = RandomWalk { n_bars: 700, seed: 8, volatility: 0.03, start_price: 50.0 };
    let execution = Settings::default().execution;
    let first = foxhunt_market::features::first_bar(&execution);
    Arc::new(Market::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(first..700)).unwrap())
}

/// What an environment shows after `bars` bars in a position.
fn held(bars: u32) -> f32 {
    (f64::from(bars) / (f64::from(bars) + 16.0)) as f32
}

#[test]
fn every_count_of_bars_in_position_survives() {
    let rare = (0..32).flat_map(|bit| [1_u32 << bit, (1 << bit) - 1, u32::MAX - bit]);
    for bars in (0..300_000).chain(rare) {
        let input = held(bars);
        assert_eq!(held_of(held_code(input).unwrap()).to_bits(), input.to_bits(), "{bars}");
    }
    for no_input in [f32::NAN, -0.5, 0.01, 1.5, f32::INFINITY, -0.0] {
        assert!(held_code(no_input).is_err(), "{no_input}");
    }
}

proptest! {
    /// Every field of every row comes back, whatever stands beside it.
    #[test]
    fn a_row_comes_back(
        bar in 0_u32..1 << 29, steps in 1_u32..=256, action in 0_u32..64, terminated: bool,
        bits in prop::array::uniform5(any::<u32>()), bars: u32, next_bars: u32,
    ) {
        let value = |k: usize| f32::from_bits(bits[k]);
        let row = Transition {
            bar, steps, action, terminated,
            inputs: [value(0), value(1), held(bars)],
            next_inputs: [value(2), value(3), held(next_bars)],
            reward: value(4),
        };
        let back = Transition::unpack(&row.pack().unwrap());
        let words = |row: &Transition| {
            let inputs = row.inputs.into_iter().chain(row.next_inputs).chain([row.reward]);
            inputs.map(f32::to_bits).collect::<Vec<_>>()
        };
        prop_assert_eq!(words(&back), words(&row));
        prop_assert_eq!((back.bar, back.steps, back.action, back.terminated), (bar, steps, action, terminated));
    }
}

#[test]
fn fields_out_of_range_are_refused() {
    let row = Transition {
        bar: 5,
        steps: 1,
        action: 3,
        terminated: false,
        inputs: [0.0; 3],
        next_inputs: [0.0; 3],
        reward: 0.0,
    };
    assert!(row.pack().is_ok());
    for bad in [
        Transition { bar: 1 << 29, ..row },
        Transition { steps: 0, ..row },
        Transition { steps: 257, ..row },
        Transition { action: 64, ..row },
        Transition { inputs: [0.0, 0.0, 0.02], ..row },
        Transition { next_inputs: [0.0, 0.0, f32::NAN], ..row },
    ] {
        assert!(bad.pack().is_err(), "{bad:?}");
    }
}

/// A life of environments with ruin, cut windows and values that are not finite, stored in both forms in rings of several
/// sizes: the same rows are refused, and every row that is drawn has the same bits.
#[test]
fn what_is_drawn_is_the_same_to_the_bit() {
    let clean = market();
    let mut dirty = (*clean).clone();
    for bar in (dirty.first_bar..700).step_by(17) {
        dirty.features[bar * N_MARKET_FEATURES + 3] = f32::NAN;
    }
    let dirty = Arc::new(dirty);
    for (market, head, n_step, capacity) in [
        (&clean, Head::Exposure, 1, 500),
        (&clean, Head::Branching, 3, 1),
        (&clean, Head::Factored, 256, 300),
        (&dirty, Head::Factored, 5, 257),
        (&dirty, Head::Exposure, 3, 40),
    ] {
        let mut settings = Settings::default();
        settings.env.n_envs = 9;
        settings.env.episode_bars = if n_step == 256 { 290 } else { 60 };
        settings.env.max_leverage = 8.0;
        settings.learner.n_step = n_step;
        settings.network.head = head;
        settings.replay.storage = ReplayStorage::Compact;
        let config = CollectConfig::new(&settings, market, market.first_bar..market.len()).unwrap();
        let source = StateSource::new(Arc::clone(market), settings.learner.gamma);
        let mut collector = Collector::new(config, Arc::clone(market));
        let mut whole = Ring::new(capacity, STATE_DIM).unwrap();
        let mut compact = Ring::compact(capacity, source).unwrap();
        let mut terminated = 0.0;
        for step in 0..500_u64 {
            collector.observe();
            let q: Vec<f32> = (0..9 * head.n_outputs() as u64)
                .map(|i| ((i * 7919 + step * 104_729) % 1009) as f32 - 500.0)
                .collect();
            let rows = collector.act(&q);
            terminated += rows.terminated.iter().sum::<f32>();
            let report = whole.insert(&rows).unwrap();
            assert_eq!(compact.insert_compact(collector.compact_rows()).unwrap(), report);
            if step % 50 == 49 && !whole.is_empty() {
                assert!(compact.save() == whole.save(), "{head:?}, n {n_step}, step {step}");
            }
        }
        assert!(terminated > 0.0 && whole.inserted() > 2_000, "{terminated} {}", whole.inserted());
        // A batch across several blocks of a gather, in any order.
        let slots: Vec<u32> = (0..45_u64).map(|b| (b * 2_654_435_761 % whole.len() as u64) as u32).collect();
        let [mut a, mut b] = [(); 2].map(|()| BatchBuffers::new(45, STATE_DIM));
        a.indices.copy_from_slice(&slots);
        b.indices.copy_from_slice(&slots);
        whole.gather(&mut a).unwrap();
        compact.gather(&mut b).unwrap();
        assert!(a == b);
        let (rows, inserted) = (compact.save_compact().to_vec(), compact.inserted());
        let source = compact.source().unwrap().clone();
        let mut back = Ring::compact(capacity, source).unwrap();
        back.restore_compact(&rows, inserted, [1, 2]).unwrap();
        assert!(back.save() == compact.save());
        assert_eq!((back.refused_rewards(), back.refused_states()), (1, 2));
    }
}

/// Rows of the other form, rows that are not finite and rows behind the last bar do not enter.
#[test]
fn rows_that_do_not_belong_are_refused() {
    let market = market();
    let source = StateSource::new(Arc::clone(&market), 0.5);
    assert_eq!(source.discounts().len(), MAX_N);
    assert_eq!((source.discount(1), source.discount(3)), (0.5, 0.125));
    let row = |bar, steps, reward, exposure| {
        let inputs = [exposure, 0.0, 0.0];
        let row =
            Transition { bar, steps, action: 0, terminated: false, inputs, next_inputs: [0.0; 3], reward };
        row.pack().unwrap()
    };
    let mut ring = Ring::compact(4, source).unwrap();
    let report = ring
        .insert_compact(&[
            row(500, 3, f32::NAN, f32::NAN),
            row(500, 3, 1.0, f32::INFINITY),
            row(500, 3, 1.0, 0.5),
        ])
        .unwrap();
    assert_eq!((report.refused_rewards, report.refused_states, report.written), (1, 1, 1));
    assert!(ring.insert_compact(&[row(697, 3, 1.0, 0.0)]).is_err());
    assert!(ring.insert_compact(&[row(696, 3, 1.0, 0.0)]).is_ok());
    let saved = ring.save();
    let whole = crate::ring::Rows {
        states: &saved.states,
        next_states: &saved.next_states,
        actions: &saved.actions,
        rewards: &saved.rewards,
        terminated: &saved.terminated,
        discounts: &saved.discounts,
    };
    assert!(ring.insert(&whole).is_err() && ring.restore(&whole, 2, [0; 2]).is_err());
    let mut other = Ring::new(4, STATE_DIM).unwrap();
    assert!(other.insert_compact(&[row(5, 1, 0.0, 0.0)]).is_err());
    assert!(other.restore_compact(&[], 0, [0; 2]).is_err());
    assert_eq!((ring.len(), other.len()), (2, 0));
}
