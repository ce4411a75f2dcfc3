//! Checkpoints that are whole and hold nonsense: any number of any array or manifest at an end of its range. Each is
//! refused and changes nothing, or it is gone on from; nothing overflows, hangs or panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foxhunt::checkpoint::{CheckpointNumber, CheckpointStore, Manifest};
use foxhunt::cpu_engine::CpuEngine;
use foxhunt::engine::{ArrayData, Engine as _, Snapshot};
use foxhunt::trainer::Prepared;
use foxhunt::{MLError, Settings, Trainer};
use foxhunt_core::Head;
use foxhunt_core::settings::{NanPolicy, ReplayKind, ReplayStorage};
use serde_json::Value;

use crate::support::{assert_same_bits, bars, newest, run, tiny};

fn engine(settings: &Settings) -> CpuEngine {
    let Prepared { market, split, .. } = Prepared::fit(bars(1), settings).unwrap();
    CpuEngine::new(settings, market, split.train).unwrap()
}

/// Numbers at the ends of what an array can hold, each put at a place of `data`; how many there are.
fn spoil(data: &mut ArrayData, place: usize, which: usize) -> usize {
    const F32: [f32; 7] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -1.0, 1e-45];
    const F64: [f64; 7] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, -1.0, 5e-324];
    const U32: [u32; 5] = [u32::MAX, u32::MAX - 1, 1 << 31, 0, 77];
    const U64: [u64; 6] = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32, 0, 77];
    match data {
        ArrayData::F32(values) => {
            values[place] = F32[which % F32.len()];
            F32.len()
        }
        ArrayData::F64(values) => {
            values[place] = F64[which % F64.len()];
            F64.len()
        }
        ArrayData::U32(values) => {
            values[place] = U32[which % U32.len()];
            U32.len()
        }
        ArrayData::U64(values) => {
            values[place] = U64[which % U64.len()];
            U64.len()
        }
    }
}

fn len(data: &ArrayData) -> usize {
    match data {
        ArrayData::F32(values) => values.len(),
        ArrayData::F64(values) => values.len(),
        ArrayData::U32(values) => values.len(),
        ArrayData::U64(values) => values.len(),
    }
}

/// Places that mean something of their own: all of a small array of whole numbers, the ends of others.
fn places(data: &ArrayData) -> Vec<usize> {
    let len = len(data);
    let first = match data {
        ArrayData::U32(_) | ArrayData::U64(_) if len <= 80 => len,
        ArrayData::U32(_) | ArrayData::U64(_) => 16,
        ArrayData::F64(_) => 8,
        ArrayData::F32(_) => 2,
    };
    (0..len.min(first)).chain(len.saturating_sub(2).max(first)..len).collect()
}

/// Restores and goes on.
fn go_on(engine: &mut CpuEngine, snapshot: &Snapshot, before: &Snapshot, what: &str) -> bool {
    match engine.restore(snapshot) {
        Err(error) => {
            assert!(matches!(error, MLError::Checkpoint { .. }), "{what}: {error}");
            assert_same_bits(&engine.snapshot().unwrap(), before, what);
            false
        }
        Ok(()) => {
            engine.collect(3).unwrap_or_else(|error| panic!("{what}: {error}"));
            // Draws may be refused where no mass is left, and nothing else.
            if let Err(error) = engine.update(16) {
                assert!(error.to_string().contains("mass"), "{what}: {error}");
            }
            engine.drain().unwrap_or_else(|error| panic!("{what}: {error}"));
            engine.snapshot().unwrap_or_else(|error| panic!("{what}: {error}"));
            engine.restore(before).unwrap_or_else(|error| panic!("{what}: {error}"));
            true
        }
    }
}

#[test]
fn any_number_of_a_snapshot_is_refused_or_gone_on_from() {
    for (kind, head, storage) in [
        (ReplayKind::RankBased, Head::Exposure, ReplayStorage::Compact),
        (ReplayKind::Proportional, Head::Branching, ReplayStorage::Rows),
    ] {
        let mut settings = tiny("unused".as_ref());
        (settings.replay.kind, settings.network.head, settings.replay.storage) = (kind, head, storage);
        (settings.network.hidden, settings.replay.capacity) = (vec![4], 64);
        (settings.env.n_envs, settings.learner.n_step) = (2, 3);
        settings.guard.nan_policy = NanPolicy::Rollback;
        let mut target = engine(&settings);
        // Into an episode, so that windows are open.
        target.collect(65).unwrap();
        target.update(3).unwrap();
        let whole = target.snapshot().unwrap();
        assert_eq!(whole.arrays["n_step.lens"].data, ArrayData::U32(vec![2; 2]), "open windows");
        let mut faults = Vec::new();
        let (mut tried, mut taken) = (0, 0);
        for (name, array) in &whole.arrays {
            for place in places(&array.data) {
                let mut which = 0;
                loop {
                    let mut snapshot = whole.clone();
                    let kinds = spoil(&mut snapshot.arrays.get_mut(name).unwrap().data, place, which);
                    let what = format!("{kind:?}: {name}[{place}], {which}");
                    tried += 1;
                    match catch_unwind(AssertUnwindSafe(|| go_on(&mut target, &snapshot, &whole, &what))) {
                        Ok(gone_on) => taken += u32::from(gone_on),
                        Err(_) => {
                            faults.push(what);
                            target = engine(&settings);
                            target.restore(&whole).unwrap();
                        }
                    }
                    which += 1;
                    if which == kinds {
                        break;
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{} of {tried}: {faults:#?}", faults.len());
        assert!(taken > 0 && taken < tried, "{taken} of {tried} were taken");
    }
}

/// Paths of all numbers in a document.
fn numbers(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let mut inside = |key: String, value: &Value| {
        path.push(key);
        numbers(value, path, found);
        path.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| inside(key.clone(), value)),
        // A list of numbers of one meaning: its ends.
        Value::Array(list) => {
            let ends = [0, list.len().saturating_sub(1)];
            let ends = if list.len() > 1 { &ends[..] } else { &ends[..list.len()] };
            ends.iter().for_each(|&i| inside(i.to_string(), &list[i]));
        }
        Value::Number(_) | Value::Bool(_) | Value::Null => found.push(path.clone()),
        Value::String(_) => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(value, |value, key| match value {
        Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        other => &mut other[key.as_str()],
    })
}

#[test]
fn any_number_of_a_manifest_is_refused_or_gone_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(dir.path());
    (settings.network.hidden, settings.replay.capacity, settings.training.epochs) = (vec![4], 64, 2);
    let outcome = run(&settings);
    let checkpoint = newest(&outcome.run);
    let store = CheckpointStore::new(outcome.run.checkpoints(), 1);
    let number = CheckpointNumber { epoch: 9, step: 0 };
    let whole = serde_json::to_value(&checkpoint.manifest).unwrap();
    let mut paths = Vec::new();
    numbers(&whole, &mut Vec::new(), &mut paths);
    assert!(paths.len() > 90, "{}", paths.len());
    let values = [
        Value::from(u64::MAX),
        Value::from(u64::from(u32::MAX)),
        Value::from(1),
        Value::from(0),
        Value::from(-1),
        Value::from(1e308),
        Value::from(5e-324),
        Value::from(true),
        Value::Null,
    ];
    let mut faults = Vec::new();
    let (mut tried, mut taken) = (0, 0);
    for path in &paths {
        for value in &values {
            let mut document = whole.clone();
            *at(&mut document, path) = value.clone();
            // What has the wrong type is refused before anything is looked at.
            let Ok(manifest) = serde_json::from_value::<Manifest>(document) else { continue };
            tried += 1;
            let what = format!("{} = {value}", path.join("."));
            let attempt = || {
                store.save(number, manifest.clone(), &checkpoint.snapshot).unwrap();
                // Settings that ask for what nobody has are refused by the plan; the file beside it is the run's own.
                std::fs::write(outcome.run.settings(), manifest.settings.to_toml().unwrap_or_default())
                    .unwrap();
                match Trainer::resume(outcome.run.folder(), bars(1)) {
                    Ok(trainer) => {
                        let _ = trainer.state().number();
                        true
                    }
                    Err(error) => {
                        assert!(!error.to_string().is_empty(), "{what}");
                        false
                    }
                }
            };
            match catch_unwind(AssertUnwindSafe(attempt)) {
                Ok(gone_on) => taken += u32::from(gone_on),
                Err(_) => faults.push(what),
            }
        }
    }
    assert!(faults.is_empty(), "{} of {tried}: {faults:#?}", faults.len());
    assert!(taken > 0 && taken < tried, "{taken} of {tried} were taken");
}
