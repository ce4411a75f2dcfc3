//! `walk-forward` and `lookahead` as their user meets them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Done, Place, foxhunt, only_entry, run, wait_for};

const SMALL: [&str; 4] = ["--set", "walk_forward.folds=2", "--set", "walk_forward.seeds=2"];

fn walk_forward(place: &Place, out: &str, more: &[&str]) -> Command {
    let mut command = foxhunt();
    command.arg("walk-forward").arg(place.path("bars.csv"));
    command.arg("--config").arg(place.path("tiny.toml")).arg("--out").arg(place.path(out));
    command.args(SMALL).args(more);
    command
}

/// What was printed, without the place of the report.
fn told(done: &Done) -> String {
    let lines = done.out.lines().filter(|line| !line.starts_with("report "));
    lines.collect::<Vec<_>>().join("\n")
}

fn resumed(run: &PathBuf) -> Done {
    Done::from(foxhunt().arg("resume").arg(run).output().unwrap()).expect(0)
}

/// Killed with -9 after its first fold, a walk-forward run goes on, does nothing twice, and ends with the same words as one
/// that was never stopped; both are one try in their ledgers.
#[test]
fn a_killed_walk_forward_goes_on() {
    let place = Place::new();
    let whole = Done::from(walk_forward(&place, "whole", &[]).output().unwrap()).expect(0);
    assert!(whole.out.contains("2 folds, 2 seeds") && whole.out.contains("Deflated (DSR)"), "{}", whole.out);
    let folder = only_entry(&place.path("whole"));
    let report: Value = serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["walk_forward"]["runs"].as_array().unwrap().len(), 4);
    assert_eq!(report["verdict"]["trials"], 1);
    assert!(fs::read_to_string(folder.join("report.html")).unwrap().contains("Folds and seeds"));

    let mut child = walk_forward(&place, "killed", &["--set", "walk_forward.parallel=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let parent = place.path("killed");
    wait_for("the first fold", || {
        let run = fs::read_dir(&parent).ok().and_then(|mut all| {
            all.find_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| path.is_dir()))
        });
        run.is_some_and(|run| run.join("folds/fold_001_seed_1/fold.json").exists())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let run = only_entry(&parent);
    let done = resumed(&run);
    assert_eq!(told(&done), told(&whole));
    assert!(done.err.contains("done before"), "{}", done.err);
    let again = resumed(&run);
    assert_eq!(again.err.matches("done before").count(), 4, "{}", again.err);
    let ledger = fs::read_to_string(parent.join("ledger.jsonl")).unwrap();
    let hashes: std::collections::BTreeSet<String> = ledger
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["config_hash"].to_string())
        .collect();
    assert_eq!(hashes.len(), 1, "{ledger}");
}

#[test]
fn settings_of_folds_are_checked_and_shown() {
    let place = Place::new();
    let shown = Done::from(walk_forward(&place, "runs", &["--show-settings"]).output().unwrap()).expect(0);
    let table: toml::Table = shown.out.parse().unwrap();
    assert_eq!(table["walk_forward"]["folds"].as_integer(), Some(2));
    let refused = walk_forward(&place, "runs", &["--set", "walk_forward.fold=3"]).output().unwrap();
    assert!(Done::from(refused).expect(2).err.contains("fold"));
    let refused = walk_forward(&place, "runs", &["--set", "walk_forward.folds=0"]).output().unwrap();
    assert!(Done::from(refused).expect(2).err.contains("walk_forward.folds"));
    let few = walk_forward(&place, "runs", &["--set", "walk_forward.folds=900"]).output().unwrap();
    let few = Done::from(few).expect(1);
    assert!(few.err.contains("bars.csv"), "{}", few.err);
    assert!(!place.path("runs").exists(), "nothing is begun");
}

/// What `train` refuses, a walk-forward run refuses in the same words, and nothing is left that would count as a try.
#[test]
fn a_refused_walk_forward_is_no_try() {
    let place = Place::new();
    let refused: [&[&str]; 4] = [
        &["--device", "auto", "--set", "learner.precision=bf16"],
        &["--device", "cuda"],
        &["--set", "learner.batch=65536", "--set", "replay.capacity=2147483648"],
        &["--set", "execution.tick_size=1000000"],
    ];
    for (i, flags) in refused.into_iter().enumerate() {
        let (single, whole) = (format!("single-{i}"), format!("whole-{i}"));
        let train = Done::from(place.train("bars.csv", &single, flags).output().unwrap());
        if train.code == Some(0) {
            assert_eq!(flags[0], "--device", "nothing else can be there or not");
            continue;
        }
        let code = train.code.unwrap();
        let done = Done::from(walk_forward(&place, &whole, flags).output().unwrap()).expect(code);
        let error = |done: &Done| {
            let line = done.err.lines().last().unwrap();
            // How much is free changes from one moment to the next.
            line.split(" of memory").next().unwrap().split(';').next().unwrap().to_owned()
        };
        assert_eq!(error(&done), error(&train));
        assert!(!place.path(&single).exists() && !place.path(&whole).exists(), "{flags:?}: {}", done.err);
    }
}

/// The honest pipeline exits 0; with each cheater in it the command exits 1 and names the leak.
#[test]
fn lookahead_tells_leaks_by_its_exit_code() {
    let place = Place::new();
    let (bars, config) = (place.text("bars.csv"), place.text("tiny.toml"));
    let arguments = ["lookahead", &bars, "--config", &config, "--cuts", "2"];
    let done = run(&arguments).expect(0);
    assert!(done.out.contains("every planted cheater was caught"), "{}", done.out);
    let json: Value =
        serde_json::from_str(&run(&[&arguments[..], &["--json"]].concat()).expect(0).out).unwrap();
    assert_eq!(json["leaks"].as_array().unwrap().len(), 0);
    assert_eq!(json["cheaters"].as_array().unwrap().len(), 5);
    for plant in ["feature", "router", "normaliser", "decision", "fill"] {
        let caught = run(&[&arguments[..], &["--plant", plant]].concat()).expect(1);
        assert!(caught.out.contains("leak: ") && caught.out.contains("knew the future"), "{}", caught.out);
    }
}
