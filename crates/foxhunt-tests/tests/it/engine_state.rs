//! The CPU engine by itself: snapshots, refusals, non-finite values.

use std::sync::Arc;

use foxhunt::cpu_engine::CpuEngine;
use foxhunt::engine::{ArrayData, Engine, Snapshot};
use foxhunt::evaluation::Metrics;
use foxhunt::trainer::{NeverStop, Prepared};
use foxhunt::{MLError, Settings};
use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::{ReplayKind, ReplayStorage, TargetUpdate};
use foxhunt_core::{Head, LinearSchedule};
use foxhunt_market::STATE_DIM;

use crate::support::{assert_same_bits, bars, tiny};

fn prepared(settings: &Settings) -> Prepared {
    Prepared::fit(bars(1), settings).unwrap()
}

fn engine(settings: &Settings) -> CpuEngine {
    let Prepared { market, split, .. } = prepared(settings);
    CpuEngine::new(settings, market, split.train).unwrap()
}

fn settings() -> Settings {
    tiny("unused".as_ref())
}

/// Case E02: after a restore the engine draws what the original draws next, and a fresh one does not.
#[test]
fn a_restored_engine_draws_on() {
    let mut first = engine(&settings());
    first.collect(30).unwrap();
    first.update(5).unwrap();
    let saved = first.snapshot().unwrap();
    let mut second = engine(&settings());
    second.restore(&saved).unwrap();
    assert_same_bits(&second.snapshot().unwrap(), &saved, "just restored");
    for engine in [&mut first, &mut second] {
        engine.collect(5).unwrap();
        engine.update(5).unwrap();
    }
    assert_same_bits(&second.snapshot().unwrap(), &first.snapshot().unwrap(), "five on");
    assert_eq!(second.drain().unwrap(), first.drain().unwrap());
    let mut fresh = engine(&settings());
    fresh.collect(35).unwrap();
    fresh.update(5).unwrap();
    assert_ne!(fresh.snapshot().unwrap(), first.snapshot().unwrap());
}

/// A snapshot without the rows of the replay memory, which have two forms.
fn without_rows(mut snapshot: Snapshot) -> Snapshot {
    for name in ["compact", "state", "next_state", "action", "reward", "terminated", "discount"] {
        snapshot.arrays.remove(&format!("replay.{name}"));
    }
    snapshot
}

/// Rows of 32 bytes teach what whole rows teach, to the bit, and either memory goes on from a snapshot of the other.
#[test]
fn compact_and_whole_rows_learn_the_same() {
    for (kind, head, n_step) in [
        (ReplayKind::Uniform, Head::Exposure, 1),
        (ReplayKind::Proportional, Head::Branching, 3),
        (ReplayKind::RankBased, Head::Factored, 7),
    ] {
        let mut base = settings();
        (base.replay.kind, base.network.head, base.learner.n_step) = (kind, head, n_step);
        base.split.purge_bars = base.split.purge_bars.max(n_step);
        (base.replay.capacity, base.replay.resort_every) = (150, 4);
        let of = |storage| {
            let mut s = base.clone();
            s.replay.storage = storage;
            engine(&s)
        };
        let (mut whole, mut compact) = (of(ReplayStorage::Rows), of(ReplayStorage::Compact));
        for round in 0..4 {
            for engine in [&mut whole, &mut compact] {
                engine.collect(25).unwrap();
                engine.update(9).unwrap();
            }
            let (a, b) = (whole.snapshot().unwrap(), compact.snapshot().unwrap());
            assert_same_bits(&without_rows(b), &without_rows(a), &format!("{kind:?}, round {round}"));
            assert_eq!(compact.drain().unwrap(), whole.drain().unwrap());
        }
        let (of_whole, of_compact) = (whole.snapshot().unwrap(), compact.snapshot().unwrap());
        assert!(
            of_compact.arrays.contains_key("replay.compact") && of_whole.arrays.contains_key("replay.state")
        );

        let mut unpacked = of(ReplayStorage::Rows);
        unpacked.restore(&of_compact).unwrap();
        assert_same_bits(&unpacked.snapshot().unwrap(), &of_whole, "whole from compact");
        let mut packed = of(ReplayStorage::Compact);
        packed.restore(&of_whole).unwrap();
        for engine in [&mut whole, &mut compact, &mut unpacked, &mut packed] {
            engine.collect(11).unwrap();
            engine.update(13).unwrap();
        }
        let want = whole.snapshot().unwrap();
        assert_same_bits(&unpacked.snapshot().unwrap(), &want, "gone on whole");
        // Bars with equal features are equal places, so the rows are compared unpacked.
        for (engine, name) in [(&mut compact, "never stopped"), (&mut packed, "gone on packed")] {
            unpacked.restore(&engine.snapshot().unwrap()).unwrap();
            assert_same_bits(&unpacked.snapshot().unwrap(), &want, name);
        }

        // States of another market have no place in this one, and rows cut off or behind its end are none.
        let before = packed.snapshot().unwrap();
        let mut foreign = of_whole.clone();
        let mut cut = of_compact.clone();
        let mut beyond = of_compact.clone();
        if let ArrayData::F32(values) = &mut foreign.arrays.get_mut("replay.next_state").unwrap().data {
            values[5 * STATE_DIM + 7] += 0.25;
        }
        if let ArrayData::U32(words) = &mut cut.arrays.get_mut("replay.compact").unwrap().data {
            words.truncate(words.len() - 8);
        }
        if let ArrayData::U32(words) = &mut beyond.arrays.get_mut("replay.compact").unwrap().data {
            words[8 * 3] = 899;
        }
        for (snapshot, why) in [(foreign, "row 5"), (cut, "149"), (beyond, "inside the market")] {
            let error = packed.restore(&snapshot).unwrap_err();
            assert!(
                matches!(&error, MLError::Checkpoint { .. }) && error.to_string().contains(why),
                "{error}"
            );
            assert_same_bits(&packed.snapshot().unwrap(), &before, why);
        }
    }
}

/// Weights so large that every Q-value is inf - inf: decisions fall back to flat, and every one is counted, in
/// training and in a backtest.
#[test]
fn decisions_without_a_q_value_are_counted() {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        let mut settings = settings();
        settings.network.head = head;
        settings.exploration.epsilon = LinearSchedule { start: 0.0, end: 0.0, steps: 1 };
        let mut engine = engine(&settings);
        engine.collect(5).unwrap();
        let sound = engine.drain().unwrap();
        assert_eq!((sound.fallback_decisions, sound.non_finite_q_decisions), (0, 0), "{head:?}");
        let mut snapshot = engine.snapshot().unwrap();
        for (name, array) in &mut snapshot.arrays {
            if let (true, ArrayData::F32(values)) = (name.starts_with("online."), &mut array.data) {
                values.fill(1e38);
            }
        }
        engine.restore(&snapshot).unwrap();
        engine.collect(4).unwrap();
        // In the middle of an epoch the counts survive a snapshot.
        let saved = engine.snapshot().unwrap();
        engine.restore(&saved).unwrap();
        engine.collect(3).unwrap();
        let stats = engine.drain().unwrap();
        let decisions = 7 * settings.env.n_envs as u64;
        assert_eq!(stats.fallback_decisions, decisions, "{head:?}");
        assert_eq!((stats.non_finite_q_decisions, stats.max_q), (decisions, None), "{head:?}");

        let Prepared { market, split, .. } = prepared(&settings);
        let record = engine.evaluate(&market, split.test, &NeverStop).unwrap();
        assert_eq!(record.fallbacks, record.actions.len() as u64, "{head:?}");
        assert!(record.fills.is_empty(), "{head:?}: flat");
        let metrics = Metrics::of(&record, None, 0.0);
        assert_eq!(metrics.fallbacks, record.fallbacks);
    }
}

/// A snapshot with any one array missing, cut or of another type is refused, and the engine is as it was.
#[test]
fn a_snapshot_that_does_not_fit_changes_nothing() {
    let mut donor = engine(&settings());
    donor.collect(30).unwrap();
    donor.update(3).unwrap();
    let whole = donor.snapshot().unwrap();
    let mut target = engine(&settings());
    target.collect(10).unwrap();
    let before = target.snapshot().unwrap();
    let mut attempt = |snapshot: &Snapshot, what: &str| {
        let error = target.restore(snapshot).err().unwrap_or_else(|| panic!("{what} was accepted"));
        assert!(matches!(error, MLError::Checkpoint { .. }), "{what}: {error}");
        assert_same_bits(&target.snapshot().unwrap(), &before, what);
    };
    for name in whole.arrays.keys() {
        // A missing random state is a warning by the rule of E02, not a refusal.
        if name == "replay.rng" {
            continue;
        }
        let mut missing = whole.clone();
        missing.arrays.remove(name);
        attempt(&missing, &format!("without {name}"));
        let mut retyped = whole.clone();
        let array = retyped.arrays.get_mut(name).unwrap();
        array.data = match &array.data {
            ArrayData::F32(v) => ArrayData::F64(v.iter().map(|x| f64::from(*x)).collect()),
            ArrayData::F64(v) => ArrayData::U64(v.iter().map(|x| x.to_bits()).collect()),
            ArrayData::U32(v) => ArrayData::F32(v.iter().map(|x| *x as f32).collect()),
            ArrayData::U64(v) => ArrayData::F64(v.iter().map(|x| *x as f64).collect()),
        };
        attempt(&retyped, &format!("{name} of another type"));
    }
    let mut other = settings();
    other.network.hidden = vec![12, 9];
    let mut other = engine(&other);
    assert!(other.restore(&whole).is_err());
}

/// Case B13: a hard target interval counts updates: with one update for every 4 env steps and a sync every 2,500
/// updates there are 4 syncs in 40,000 env steps. Scaled down by 100: 25 updates, 4 syncs in 100 updates.
#[test]
fn target_syncs_are_counted_in_updates() {
    let mut settings = settings();
    settings.env.n_envs = 4;
    settings.learner.target = TargetUpdate::Hard { every: 25 };
    let mut engine = engine(&settings);
    engine.collect(20).unwrap();
    let mut syncs = 0;
    let mut last = engine.snapshot().unwrap().arrays["target.layer0.weight"].clone();
    for update in 1..=100 {
        engine.collect(1).unwrap();
        engine.update(1).unwrap();
        let snapshot = engine.snapshot().unwrap();
        let target = snapshot.arrays["target.layer0.weight"].clone();
        if target != last {
            syncs += 1;
            assert_eq!(update % 25, 0);
            assert_eq!(target, snapshot.arrays["online.layer0.weight"]);
        }
        last = target;
    }
    assert_eq!(syncs, 4);
}

/// Case B07: two calls of collect are one long one: no transition joins the end of the first to a reset.
#[test]
fn two_collections_are_one() {
    let mut settings = settings();
    settings.env.n_envs = 1;
    settings.env.episode_bars = 10;
    settings.learner.n_step = 1;
    settings.replay.storage = ReplayStorage::Rows;
    let mut parts = engine(&settings);
    parts.collect(3).unwrap();
    parts.collect(3).unwrap();
    let mut whole = engine(&settings);
    whole.collect(6).unwrap();
    let got = parts.snapshot().unwrap();
    assert_same_bits(&got, &whole.snapshot().unwrap(), "3 + 3");
    assert_eq!(got.arrays["replay.state"].shape, [6, STATE_DIM]);
    let ArrayData::F32(states) = &got.arrays["replay.state"].data else { panic!() };
    let ArrayData::F32(next) = &got.arrays["replay.next_state"].data else { panic!() };
    for row in 0..5 {
        assert_eq!(
            next[row * STATE_DIM..(row + 1) * STATE_DIM],
            states[(row + 1) * STATE_DIM..(row + 2) * STATE_DIM],
            "row {row} leads to row {}",
            row + 1
        );
    }
}

/// Cases B04, B06: where an episode is cut, the row keeps the state before the reset and goes on bootstrapping.
#[test]
fn a_cut_episode_keeps_its_own_next_state() {
    let mut settings = settings();
    settings.env.n_envs = 1;
    settings.env.episode_bars = 4;
    settings.learner.n_step = 1;
    settings.replay.storage = ReplayStorage::Rows;
    let mut engine = engine(&settings);
    engine.collect(8).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let ArrayData::F32(states) = &snapshot.arrays["replay.state"].data else { panic!() };
    let ArrayData::F32(next) = &snapshot.arrays["replay.next_state"].data else { panic!() };
    let ArrayData::F32(terminated) = &snapshot.arrays["replay.terminated"].data else { panic!() };
    let (cut, fresh) = (3 * STATE_DIM..4 * STATE_DIM, 4 * STATE_DIM..5 * STATE_DIM);
    assert_ne!(next[cut.clone()], states[fresh.clone()]);
    // A fresh episode has no position; the state before the reset is one bar on in its own episode.
    assert_eq!(states[fresh][48..], [0.0, 0.0, 0.0]);
    assert_ne!(next[cut][..48], states[3 * STATE_DIM..][..48]);
    assert_eq!(*terminated, [0.0; 8]);
}

/// Cases C11, C12: bars whose features are not finite are reported, their transitions are not stored, and learning
/// goes on with the rest.
#[test]
fn a_dead_feature_is_reported_and_not_stored() {
    let mut settings = settings();
    settings.replay.storage = ReplayStorage::Rows;
    let Prepared { market, split, .. } = prepared(&settings);
    let mut dirty = (*market).clone();
    let dead: Vec<usize> = split.train.clone().step_by(9).collect();
    for bar in &dead {
        dirty.features[bar * 48 + 5] = f32::NAN;
    }
    let mut engine = CpuEngine::new(&settings, Arc::new(dirty), split.train).unwrap();
    engine.collect(60).unwrap();
    engine.update(10).unwrap();
    let stats = engine.drain().unwrap();
    let reported: u32 =
        stats.faults.iter().filter(|f| f.kind == FaultKind::NonFiniteState).map(|f| f.count).sum();
    assert!(reported > 0);
    assert_eq!((stats.updates, stats.skipped_updates), (10, 0));
    assert!(stats.max_q.unwrap().is_finite());
    let snapshot = engine.snapshot().unwrap();
    for name in ["replay.state", "replay.next_state", "online.layer0.weight", "n_step.newest"] {
        let ArrayData::F32(values) = &snapshot.arrays[name].data else { panic!() };
        assert!(values.iter().all(|v| v.is_finite()), "{name}");
    }
}

#[test]
fn too_few_rows_are_an_error_and_threads_are_as_set() {
    let mut settings = settings();
    settings.run.threads = 2;
    let mut engine = engine(&settings);
    assert_eq!(engine.threads(), 2);
    engine.collect(3).unwrap();
    match engine.update(1) {
        Err(MLError::NotEnoughData { have, need: 8 }) => assert!(have < 8),
        other => panic!("{other:?}"),
    }
}
