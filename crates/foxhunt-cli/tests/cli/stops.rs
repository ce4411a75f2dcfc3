//! Ends that were not planned: signals (case E09), kill -9 (case E03), full disks (case E08).
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::support::{Done, Place, bars, csv, foxhunt, policy_bytes, run, state_bytes, table, wait_for};

/// Long enough to be stopped on the way.
const LONG: &[&str] = &["--epochs", "2000", "--set", "checkpoint.every_epochs=100"];

/// What a run that was never stopped leaves: policy, state, table.
fn uninterrupted() -> &'static (Vec<u8>, Vec<u8>, String) {
    static WHOLE: OnceLock<(Vec<u8>, Vec<u8>, String)> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let place = Place::new();
        let (done, run) = place.trained("bars.csv", "runs", LONG);
        (policy_bytes(&run), state_bytes(&run), table(&done.out))
    })
}

fn assert_as_uninterrupted(done: &Done, run: &Path, context: &str) {
    let (policy, state, end) = uninterrupted();
    assert!(policy_bytes(run) == *policy, "{context}: another policy");
    assert!(state_bytes(run) == *state, "{context}: another state");
    assert_eq!(table(&done.out), *end, "{context}");
    let temporary: Vec<_> = fs::read_dir(run.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| {
            !name.to_str().unwrap().starts_with("epoch_") || name.to_str().unwrap().contains("tmp")
        })
        .collect();
    assert!(temporary.is_empty(), "{context}: {temporary:?}");
}

/// A long run that has done `lines` lines of metrics.
fn begun(place: &Place, out: &str, lines: usize) -> (Child, PathBuf) {
    let mut child =
        place.train("bars.csv", out, LONG).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let parent = place.path(out);
    let metrics = || {
        let run = fs::read_dir(&parent).ok()?.map(|e| e.unwrap().path()).find(|path| path.is_dir())?;
        fs::read_to_string(run.join("metrics.jsonl")).ok()
    };
    wait_for("the first epochs", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        metrics().is_some_and(|text| text.lines().count() >= lines)
    });
    (child, place.only_run(out))
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// Case E09: SIGINT and SIGTERM in the middle save, tell how to go on, and end with 130 and 143; the command told
/// goes on to the same end, to the bit.
#[test]
fn a_signal_saves_and_the_command_told_goes_on() {
    let place = Place::new();
    for (name, code, lines) in [("INT", 130, 40), ("TERM", 143, 137)] {
        let (child, run) = begun(&place, name, lines);
        signal(&child, name);
        let done = Done::from(child.wait_with_output().unwrap()).expect(code);
        assert!(done.out.is_empty(), "{}", done.out);
        let (_, told) = done.err.split_once("go on with: foxhunt ").expect(&done.err);
        let told: Vec<_> = told.trim().split(' ').collect();
        assert_eq!(told, ["resume", run.to_str().unwrap()]);
        let done = Done::from(foxhunt().args(told).output().unwrap()).expect(0);
        assert!(done.err.contains("resumes"), "{}", done.err);
        assert_as_uninterrupted(&done, &run, name);
    }
}

/// A signal in the long evaluation at the end is answered at once; the run is saved, and going on ends as if it had
/// not come.
#[test]
fn a_signal_in_the_last_evaluation_is_answered() {
    let place = Place::new();
    let more = ["--epochs", "2", "--set", "evaluation.random_policies=4000"];
    let mut child =
        place.train("bars.csv", "runs", &more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let parent = place.path("runs");
    wait_for("the last checkpoint", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        fs::read_dir(&parent).is_ok_and(|mut runs| {
            runs.any(|run| run.unwrap().path().join("checkpoints/epoch_2/manifest.json").exists())
        })
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    let asked = std::time::Instant::now();
    signal(&child, "TERM");
    let done = Done::from(child.wait_with_output().unwrap()).expect(143);
    let waited = asked.elapsed();
    assert!(waited < std::time::Duration::from_secs(1), "{waited:?}");
    let run = place.only_run("runs");
    assert!(done.err.contains(&format!("go on with: foxhunt resume {}", run.display())), "{}", done.err);
    assert!(!run.join("report.json").exists());
    let resumed = Done::from(foxhunt().arg("resume").arg(&run).output().unwrap()).expect(0);
    let (whole, _) = place.trained("bars.csv", "whole", &more);
    assert_eq!(table(&resumed.out), table(&whole.out));
}

/// Case E09: a second signal, whether it comes in the middle of the save or after it, leaves a checkpoint that loads.
#[test]
fn an_impatient_second_signal_breaks_nothing() {
    let place = Place::new();
    for (round, second) in ["INT", "TERM", "INT"].into_iter().enumerate() {
        let (mut child, run) = begun(&place, &format!("runs-{round}"), 30 + 50 * round);
        signal(&child, "INT");
        std::thread::sleep(std::time::Duration::from_micros(1500 * round as u64));
        if child.try_wait().unwrap().is_none() {
            signal(&child, second);
        }
        let done = Done::from(child.wait_with_output().unwrap());
        assert!(matches!(done.code, Some(130 | 143)), "{:?}\n{}", done.code, done.err);
        let done = Done::from(foxhunt().arg("resume").arg(&run).output().unwrap()).expect(0);
        assert_as_uninterrupted(&done, &run, "two signals");
    }
}

/// Cases E03 and E02: killed with -9 again and again, a run still ends in the same place, to the bit.
#[test]
fn kill_9_costs_no_bit() {
    let place = Place::new();
    let (mut child, run) = begun(&place, "runs", 250);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "killed, not finished");
    for round in 0..3 {
        let before = fs::read(run.join("metrics.jsonl")).unwrap().len();
        let mut child =
            foxhunt().arg("resume").arg(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("progress after the kill", || {
            child.try_wait().unwrap().is_some()
                || fs::read(run.join("metrics.jsonl")).is_ok_and(|m| m.len() > before + 3000 * (round + 1))
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let done = Done::from(foxhunt().arg("resume").arg(&run).output().unwrap()).expect(0);
    assert_as_uninterrupted(&done, &run, "kill -9");
}

/// A run killed in its first moment, whatever files it has by then: one clear line.
#[test]
fn a_run_that_was_not_begun_is_told() {
    let place = Place::new();
    let (_, folder) = place.trained("bars.csv", "runs", &[]);
    fs::remove_dir_all(folder.join("checkpoints")).unwrap();
    for file in ["nothing", "data_report.json", "settings.toml"] {
        let _ = fs::remove_file(folder.join(file));
        let done = run(&["resume", folder.to_str().unwrap()]).expect(1);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        let told = format!("error: {} holds no checkpoint to go on from", folder.display());
        assert!(done.err.starts_with(&told), "without {file}: {}", done.err);
    }
}

/// A run that is being written is not opened by a second process.
#[test]
fn two_processes_do_not_share_a_run() {
    let place = Place::new();
    let (mut child, folder) = begun(&place, "runs", 5);
    let done = run(&["resume", folder.to_str().unwrap()]).expect(1);
    assert!(done.err.contains(&format!("in use by process {}", child.id())), "{}", done.err);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A small disk of its own, unmounted in the end whatever happens.
#[cfg(target_os = "linux")]
struct SmallDisk(PathBuf);

#[cfg(target_os = "linux")]
impl SmallDisk {
    fn mount(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "foxhunt-test"])
            .arg(&at)
            .stderr(Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Self(at))
    }

    fn grow(&self, options: &str) {
        let options = format!("remount,{options}");
        let grown = std::process::Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(grown.unwrap().success());
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Case E08: a disk of 1 MiB fills up at a save: exit code 1, an error with path and bytes, nothing half-written, the
/// previous checkpoint loads, and with room again the run goes on to where it would have been.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stderr)]
fn a_full_disk_costs_no_checkpoint() {
    let place = Place::new();
    let Some(disk) = SmallDisk::mount(place.path("disk"), "size=1m") else {
        eprintln!(
            "SKIPPED: a tmpfs cannot be mounted here; foxhunt-tests has the same case under a file size limit"
        );
        return;
    };
    let more = ["--epochs", "60", "--set", "replay.capacity=4096", "--set", "replay.storage=rows"];
    let done = Done::from(place.train("bars.csv", "disk", &more).output().unwrap()).expect(1);
    let folder = place.only_run("disk");
    let error = done.err.lines().last().unwrap();
    assert!(error.starts_with("error: cannot write ") && error.contains(" bytes to "), "{error}");
    assert!(error.contains(folder.to_str().unwrap()), "{error}");
    for entry in fs::read_dir(folder.join("checkpoints")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!name.to_str().unwrap().contains("tmp"), "{name:?} is left");
    }
    disk.grow("size=16m");
    let done = Done::from(foxhunt().arg("resume").arg(&folder).output().unwrap()).expect(0);
    let (whole, want) = place.trained("bars.csv", "roomy", &more);
    assert_eq!(table(&done.out), table(&whole.out));
    assert!(policy_bytes(&folder) == policy_bytes(&want) && state_bytes(&folder) == state_bytes(&want));
}

/// A run goes on for longer than it was begun for, with other threads, and ends as one that was begun so; keys that
/// would change what was learned have no flag.
#[test]
fn a_resumed_run_may_go_on_for_longer() {
    let place = Place::new();
    let (_, long) = place.trained("bars.csv", "long", &["--epochs", "6"]);
    let (_, short) = place.trained("bars.csv", "short", &["--epochs", "3"]);
    let folder = short.to_str().unwrap();
    run(&["resume", folder, "--epochs", "6", "--threads", "2", "--device", "cpu"]).expect(0);
    assert_eq!(policy_bytes(&short), policy_bytes(&long));
    // Settings, policy and ledger tell of one and the same run; a try of three epochs stays one.
    let toml = |folder: &Path| fs::read_to_string(folder.join("settings.toml")).unwrap();
    assert!(toml(&short).contains("epochs = 6") && toml(&short).contains("threads = 2"), "{}", toml(&short));
    let hash = |folder: &Path| {
        let lines = fs::read_to_string(folder.with_file_name("ledger.jsonl")).unwrap();
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        (last["config_hash"].as_str().unwrap().to_owned(), lines.lines().count())
    };
    assert_eq!(hash(&short), (hash(&long).0, 3));
    // Not for shorter than it has gone: then nothing is written, nor counted as another try.
    let kept = || {
        let files = [
            short.join("policy/policy.json"),
            short.join("settings.toml"),
            short.with_file_name("ledger.jsonl"),
        ];
        files.map(|file| fs::read(file).unwrap())
    };
    let before = kept();
    let done = run(&["resume", folder, "--epochs", "4"]).expect(1);
    assert!(done.err.contains("6 epochs are done, so training.epochs cannot become 4"), "{}", done.err);
    assert_eq!(kept(), before);
    assert_eq!(run(&["resume", folder, "--seed", "9"]).expect(2).out, "");
    // Without a flag it goes on as its settings say, and those say nothing that it was not begun with.
    run(&["resume", folder]).expect(0);
    assert!(toml(&short).contains("epochs = 6"), "{}", toml(&short));
    fs::write(short.join("settings.toml"), toml(&short).replace("batch = 8", "batch = 16")).unwrap();
    for flags in [&[][..], &["--epochs", "7"]] {
        let done = run(&[&["resume", folder], flags].concat()).expect(1);
        let told = "learner.batch is 8 in this run and was asked to be 16; a resumed run may change only training.epochs";
        assert!(done.err.contains(told) && !done.err.contains("epochs is"), "{}", done.err);
    }
}

/// Edited settings of a finished run are refused as those of any other, each key by name, before memory is planned.
#[test]
fn a_finished_run_is_not_resumed_with_edited_settings() {
    let place = Place::new();
    let (_, folder) = place.trained("bars.csv", "runs", &[]);
    let file = folder.join("settings.toml");
    let text = fs::read_to_string(&file).unwrap();
    let edits = [("gamma = 0.97", "gamma = 0.5"), ("seed = 1", "seed = 2"), ("n_envs = 3", "n_envs = 4")];
    let all = edits.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
    let single = edits.iter().map(|(from, to)| text.replace(from, to));
    let keys = ["learner.gamma", "run.seed", "env.n_envs"];
    let named = keys.iter().map(std::slice::from_ref).chain([&keys[..]]);
    for (edited, keys) in single.chain([all]).zip(named) {
        assert_ne!(edited, text);
        fs::write(&file, edited).unwrap();
        let done = run(&["resume", folder.to_str().unwrap()]).expect(1);
        assert!(keys.iter().all(|key| done.err.contains(&format!("{key} is "))), "{keys:?}: {}", done.err);
        assert!(!done.err.contains("memory: "), "{}", done.err);
    }
    fs::write(&file, text).unwrap();
    run(&["resume", folder.to_str().unwrap()]).expect(0);
}

/// What is refused is refused before anything is planned, not after.
#[test]
fn a_refused_resume_plans_no_memory() {
    let place = Place::new();
    let (_, folder) = place.trained("bars.csv", "runs", &[]);
    let folder = folder.to_str().unwrap();
    for (flags, code, told) in [
        (["--threads", "2000"], 2, "run.threads"),
        (["--epochs", "0"], 2, "training.epochs"),
        (["--epochs", "1"], 1, "training.epochs cannot become 1"),
    ] {
        let done = run(&[&["resume", folder], &flags[..]].concat()).expect(code);
        assert!(done.err.contains(told) && !done.err.contains("memory: "), "{flags:?}: {}", done.err);
    }
    let other = place.write("other.csv", csv(&bars(700, 2)));
    let done = run(&["resume", folder, &other]).expect(1);
    assert!(done.err.contains("not the ones") && !done.err.contains("memory: "), "{}", done.err);
    // A flag that cannot be meant is told before the bars are read, too.
    let done = run(&["resume", folder, "--threads", "2000"]).expect(2);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}
