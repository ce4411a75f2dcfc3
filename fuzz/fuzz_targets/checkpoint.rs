//! Everything that is read back from a run folder: checkpoint, policy, ledger, metrics.
//!
//! The bytes are one file, tried as each of them. Checksums are made right, since nothing else gets behind them.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use foxhunt::checkpoint::{self, CheckpointStore};
use foxhunt::cpu_engine::CpuEngine;
use foxhunt::engine::{Engine as _, Snapshot};
use foxhunt::engine_choice::{BuiltEngine, build_engine};
use foxhunt::ledger::Ledger;
use foxhunt::trainer::{Prepared, read_metrics};
use foxhunt::{Policy, Settings, Trainer};
use foxhunt_fuzz::{bars, folder, prepare, tiny};
use foxhunt_market::STATE_DIM;
use libfuzzer_sys::fuzz_target;

/// A finished run of the smallest settings, and an engine to restore into.
struct Base {
    settings: Settings,
    data_hash: String,
    run: PathBuf,
    /// Documents without their first two lines, where the checksum stands.
    manifest: String,
    policy: String,
    state: Vec<u8>,
    arrays: Vec<u8>,
    engine: Mutex<(CpuEngine, Snapshot)>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let settings = tiny();
        let run = Trainer::new(&settings, bars()).expect("a run").run().expect("it ends").run;
        let newest = CheckpointStore::new(run.checkpoints(), 1).load_newest().expect("saved").checkpoint;
        let Prepared { market, split, data_hash } = Prepared::fit(bars(), &settings).expect("enough bars");
        let mut engine = CpuEngine::new(&settings, market, split.train).expect("an engine");
        engine.collect(20).expect("steps");
        engine.update(3).expect("updates");
        let saved = engine.snapshot().expect("a copy");
        let text = |path: PathBuf| body(&fs::read_to_string(path).expect("text")).to_owned();
        Base {
            settings,
            data_hash,
            manifest: text(newest.path.join("manifest.json")),
            policy: text(run.folder().join("policy/policy.json")),
            state: fs::read(newest.path.join("state.safetensors")).expect("an array file"),
            arrays: fs::read(run.folder().join("policy/policy.safetensors")).expect("an array file"),
            run: run.folder().to_path_buf(),
            engine: Mutex::new((engine, saved)),
        }
    })
}

fuzz_target!(init: { prepare(); base(); }, |data: &[u8]| {
    let base = base();
    let (checkpoint, policy) = (folder().join("epoch_1"), folder().join("policy"));
    // As arrays.
    write_checkpoint(&checkpoint, &base.manifest, data);
    match checkpoint::load(&checkpoint) {
        Ok(loaded) => restore(&loaded.snapshot),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    write_policy(&policy, &base.policy, data);
    act(&policy);

    let Ok(text) = std::str::from_utf8(data) else { return };
    let text = body(text);
    write_checkpoint(&checkpoint, text, &base.state);
    if checkpoint::load(&checkpoint).is_ok() {
        resume(text);
    }
    write_policy(&policy, text, &base.arrays);
    act(&policy);

    let lines = folder().join("lines");
    fs::create_dir_all(&lines).expect("a folder");
    let ledger = Ledger::in_folder(&lines);
    fs::write(ledger.path(), data).expect("a file");
    ledger.read().expect("a ledger that can be read");
    ledger.tried(&base.data_hash, &base.settings).expect("counts");
    let metrics = lines.join("metrics.jsonl");
    fs::write(&metrics, data).expect("a file");
    if let Err(error) = read_metrics(&metrics) {
        assert!(error.to_string().contains("metrics.jsonl"), "{error}");
    }
});

/// A snapshot is taken up whole and can be gone on with, or it changes nothing.
fn restore(snapshot: &Snapshot) {
    let mut guard = base().engine.lock().expect("one thread");
    let (engine, saved) = &mut *guard;
    match engine.restore(snapshot) {
        Ok(()) => {
            engine.collect(2).expect("two steps");
            let _ = engine.update(2);
            engine.drain().expect("counts");
            engine.snapshot().expect("a copy");
            engine.restore(saved).expect("its own snapshot");
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(engine.snapshot().expect("a copy") == *saved, "a refusal changed something: {error}");
        }
    }
}

/// A manifest in the run it came from.
fn resume(manifest: &str) {
    let base = base();
    let store = base.run.join("checkpoints");
    let _ = fs::remove_dir_all(&store);
    write_checkpoint(&store.join("epoch_1"), manifest, &base.state);
    let build = |settings: &Settings, prepared: &Prepared| -> Result<BuiltEngine<'static>, _> {
        build_engine(settings, prepared)
    };
    match Trainer::resume_with(&base.run, bars(), Some(&base.settings), &build) {
        Ok(trainer) => drop(trainer),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn act(policy: &Path) {
    match Policy::load(policy) {
        Ok(mut policy) => {
            policy.q_values(&[0.5; STATE_DIM]).expect("a finite state");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What a checksum covers: everything behind the first two lines.
fn body(document: &str) -> &str {
    document.splitn(3, '\n').nth(2).filter(|_| document.starts_with("{\n  \"blake3\"")).unwrap_or(document)
}

fn sealed(body: &str) -> String {
    format!("{{\n  \"blake3\": \"{}\",\n{body}", blake3::hash(body.as_bytes()).to_hex())
}

/// `document` with the size and checksum of `arrays` in its last lines.
fn fitted(document: &str, key: &str, arrays: &[u8]) -> String {
    let end = document.rfind(&format!("\"{key}_bytes\"")).unwrap_or(document.len());
    let tail = format!(
        "\"{key}_bytes\": {},\n  \"{key}_blake3\": \"{}\"\n}}",
        arrays.len(),
        blake3::hash(arrays).to_hex()
    );
    if end == document.len() { document.to_owned() } else { format!("{}{tail}", &document[..end]) }
}

fn write_checkpoint(folder: &Path, manifest: &str, state: &[u8]) {
    write_pair(folder, ["manifest.json", "state.safetensors"], &fitted(manifest, "state", state), state);
}

fn write_policy(folder: &Path, document: &str, arrays: &[u8]) {
    write_pair(folder, ["policy.json", "policy.safetensors"], &fitted(document, "arrays", arrays), arrays);
}

fn write_pair(folder: &Path, [document_name, arrays_name]: [&str; 2], document: &str, arrays: &[u8]) {
    fs::create_dir_all(folder).expect("a folder in memory");
    fs::write(folder.join(document_name), sealed(document)).expect("a file in memory");
    fs::write(folder.join(arrays_name), arrays).expect("a file in memory");
}
