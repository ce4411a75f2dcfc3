use std::fs;
use std::path::Path;

use foxhunt_core::Settings;
use foxhunt_market::Normaliser;

use super::*;
use crate::MLError;
use crate::engine::{Array, ArrayData, EngineStatus, Snapshot};
use crate::trainer::TrainerState;

fn manifest(epoch: u64) -> Manifest {
    let settings = Settings::default();
    Manifest {
        engine: "test".into(),
        settings_hash: settings_hash(&settings),
        settings,
        data_hash: "data".into(),
        status: EngineStatus { updates: 10 * epoch, ..EngineStatus::default() },
        trainer: TrainerState { epoch, ..TrainerState::default() },
        normaliser: Normaliser { names: vec!["a".into()], mean: vec![0.1], std: vec![3.0] },
        state_bytes: 0,
        state_blake3: String::new(),
    }
}

fn snapshot(epoch: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let values = (0..32).map(|i| (epoch * 100 + i) as f32).collect();
    snapshot.arrays.insert("online.w".into(), Array { shape: vec![4, 8], data: ArrayData::F32(values) });
    snapshot.arrays.insert("updates".into(), Array { shape: vec![1], data: ArrayData::U64(vec![epoch]) });
    snapshot
}

fn number(epoch: u64) -> CheckpointNumber {
    CheckpointNumber { epoch, step: 0 }
}

fn save(store: &CheckpointStore, epoch: u64) -> std::path::PathBuf {
    store.save(number(epoch), manifest(epoch), &snapshot(epoch)).unwrap()
}

fn store(folder: &Path, keep: usize) -> CheckpointStore {
    let store = CheckpointStore::new(folder.join("checkpoints"), keep);
    store.prepare().unwrap();
    store
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_checkpoint_comes_back_whole_and_the_last_k_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 2);
    for epoch in [1, 2, 9, 10] {
        save(&store, epoch);
    }
    assert_eq!(names(&dir.path().join("checkpoints")), ["epoch_10", "epoch_9"]);
    let LoadOutcome { checkpoint, skipped } = store.load_newest().unwrap();
    assert!(skipped.is_empty());
    assert_eq!(checkpoint.snapshot, snapshot(10));
    let expected = Manifest {
        state_bytes: checkpoint.manifest.state_bytes,
        state_blake3: checkpoint.manifest.state_blake3.clone(),
        ..manifest(10)
    };
    assert_eq!(checkpoint.manifest, expected);
    let by_path = load(&checkpoint.path).unwrap();
    assert_eq!(by_path.manifest, checkpoint.manifest);
}

/// Case B12: three rounds of loading and saving leave the stored settings as they were.
#[test]
fn loading_changes_no_setting() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 2);
    let mut first = manifest(1);
    first.settings.env.n_envs = 4;
    first.settings.learner.target = foxhunt_core::settings::TargetUpdate::Hard { every: 10_000 };
    store.save(number(1), first.clone(), &snapshot(1)).unwrap();
    for epoch in 2..5 {
        let loaded = store.load_newest().unwrap().checkpoint;
        assert_eq!(loaded.manifest.settings, first.settings);
        store.save(number(epoch), loaded.manifest, &loaded.snapshot).unwrap();
    }
}

/// Case E05: the newest is chosen by number; other names are no checkpoints.
#[test]
fn newest_by_number_not_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let folder = dir.path().join("checkpoints");
    for (epoch, name) in [(900, "epoch_900"), (1000, "epoch_1000"), (950, "epoch_0000950")] {
        let made = save(&store, epoch);
        fs::rename(made, folder.join(name)).unwrap();
    }
    fs::create_dir(folder.join("handpicked")).unwrap();
    fs::create_dir(folder.join("epoch_+7")).unwrap();
    assert_eq!(store.load_newest().unwrap().checkpoint.manifest.trainer.epoch, 1000);

    let parse = |name| CheckpointNumber::parse(name).map(|number| (number.epoch, number.step));
    assert!(parse("epoch_100000") < parse("epoch_0900000"));
    assert_eq!(parse("epoch_12_37"), Some((12, 37)));
    assert!(parse("epoch_12") < parse("epoch_12_37") && parse("epoch_12_37") < parse("epoch_13"));
    for name in ["handpicked", "epoch_", "epoch_1_", "epoch_1.tmp", "epoch_-1", "epoch_99999999999999999999"]
    {
        assert_eq!(parse(name), None, "{name}");
    }
    assert_eq!(parse(&CheckpointNumber { epoch: 3, step: 5 }.folder_name()), Some((3, 5)));
}

/// Case E06: a folder without a manifest is passed over with a warning; alone, it is an error and no fresh start.
#[test]
fn an_unfinished_folder_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    save(&store, 100);
    let unfinished = save(&store, 200);
    fs::remove_file(unfinished.join("manifest.json")).unwrap();
    let LoadOutcome { checkpoint, skipped } = store.load_newest().unwrap();
    assert_eq!(checkpoint.manifest.trainer.epoch, 100);
    assert_eq!(skipped, [(unfinished, CheckpointFault::Unfinished)]);

    fs::remove_dir_all(&checkpoint.path).unwrap();
    let error = store.load_newest().unwrap_err();
    assert!(matches!(error, MLError::NoUsableCheckpoint { unusable: 1, .. }), "{error}");
    assert!(error.to_string().contains("no manifest: it was never finished"), "{error}");
    let nothing = CheckpointStore::new(dir.path().join("none"), 1).load_newest().unwrap_err();
    assert!(matches!(nothing, MLError::NoUsableCheckpoint { unusable: 0, .. }), "{nothing}");
}

/// Case E03: a writer that stops after k bytes of either file of B leaves A loadable, for every k.
#[test]
fn a_write_cut_anywhere_leaves_the_previous_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    save(&store, 1);
    let second = save(&store, 2);
    for file in ["state.safetensors", "manifest.json"] {
        let path = second.join(file);
        let whole = fs::read(&path).unwrap();
        for k in 0..whole.len() {
            fs::write(&path, &whole[..k]).unwrap();
            let LoadOutcome { checkpoint, skipped } = store.load_newest().unwrap();
            assert_eq!(checkpoint.snapshot, snapshot(1), "{file} {k}");
            assert_eq!(skipped.len(), 1, "{file} {k}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(store.load_newest().unwrap().checkpoint.snapshot, snapshot(2));
    }
}

/// A flipped bit in any byte of either file is noticed.
#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    save(&store, 1);
    let second = save(&store, 2);
    for file in ["state.safetensors", "manifest.json"] {
        let path = second.join(file);
        let whole = fs::read(&path).unwrap();
        for k in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[k] ^= 1 << (k % 8);
            fs::write(&path, &flipped).unwrap();
            let found = store.load_newest().unwrap();
            assert_eq!(found.checkpoint.snapshot, snapshot(1), "{file} byte {k}");
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_newer_or_foreign_checkpoint_says_so_and_the_previous_one_loads() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    save(&store, 1);
    let second = save(&store, 2);
    let path = second.join("manifest.json");
    let body: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut body = body.as_object().unwrap().clone();
    for key in ["blake3", "format", "version", "foxhunt"] {
        body.remove(key).unwrap();
    }
    body.insert("a key of a later version".into(), 1.into());
    let attempt = |format| {
        fs::write(&path, sealed::seal(format, &body).unwrap()).unwrap();
        let error = load(&second).unwrap_err();
        let MLError::CheckpointFile { fault, .. } = error else { panic!("{error}") };
        let outcome = store.load_newest().unwrap();
        assert_eq!(outcome.checkpoint.manifest.trainer.epoch, 1);
        assert_eq!(outcome.skipped, [(second.clone(), fault.clone())]);
        fault
    };
    let newer = attempt(sealed::Format { name: "foxhunt checkpoint", version: 2 });
    assert_eq!(newer, CheckpointFault::Newer { found: 2, supported: 1 });
    let foreign = attempt(sealed::Format { name: "foxhunt policy", version: 1 });
    assert!(matches!(foreign, CheckpointFault::Foreign { .. }), "{foreign}");
    let unknown_key = attempt(sealed::Format { name: "foxhunt checkpoint", version: 1 });
    assert!(matches!(unknown_key, CheckpointFault::Foreign { .. }), "{unknown_key}");
}

/// Case E08: a save that fails removes what it began and leaves earlier checkpoints alone.
#[test]
fn a_failed_save_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    save(&store, 1);
    // The unfinished folder cannot be made where a file of its name lies.
    let folder = dir.path().join("checkpoints");
    fs::write(folder.join("epoch_2.tmp"), "in the way").unwrap();
    let error = store.save(number(2), manifest(2), &snapshot(2)).unwrap_err();
    assert!(matches!(error, MLError::Io { .. } | MLError::WriteFailed { .. }), "{error}");
    assert_eq!(store.load_newest().unwrap().checkpoint.snapshot, snapshot(1));

    // The next process clears what was left behind.
    fs::create_dir(folder.join("epoch_3.tmp")).unwrap();
    store.prepare().unwrap();
    assert_eq!(names(&folder), ["epoch_1"]);
}

/// Saving under a number that is taken replaces what lies there, torn or whole.
#[test]
fn a_taken_number_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 9);
    let path = save(&store, 1);
    fs::write(path.join("state.safetensors"), "torn").unwrap();
    save(&store, 1);
    assert_eq!(store.load_newest().unwrap().checkpoint.snapshot, snapshot(1));
    assert_eq!(names(&dir.path().join("checkpoints")), ["epoch_1"]);
}

#[test]
fn the_settings_hash_sees_results_and_not_places() {
    let base = Settings::default();
    let mut elsewhere = base.clone();
    elsewhere.run.dir = "other".into();
    elsewhere.run.threads = 7;
    elsewhere.replay.storage = foxhunt_core::settings::ReplayStorage::Rows;
    elsewhere.checkpoint.keep = 5;
    assert_eq!(settings_hash(&elsewhere), settings_hash(&base));
    let mut other = base.clone();
    other.learner.gamma = 0.98;
    assert_ne!(settings_hash(&other), settings_hash(&base));
}
