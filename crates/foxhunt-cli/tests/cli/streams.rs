//! Streams: no terminal (case H06), readers that go away (case H07).

use std::fs;
use std::process::Stdio;

use foxhunt::checkpoint::{CheckpointNumber, CheckpointStore};

use crate::support::{Done, Place, foxhunt};

/// Case H06: without a terminal a thousand epochs are twenty plain lines, the notices about data and run, and the
/// table: no ESC, no carriage return, whatever the terminal is said to be and however much is logged.
#[test]
fn without_a_terminal_output_is_plain_and_bounded() {
    let place = Place::new();
    let (out, err) = (place.path("out.txt"), place.path("err.txt"));
    let status = place
        .train("bars.csv", "runs", &["--epochs", "1000", "--set", "checkpoint.every_epochs=500"])
        .env("TERM", "xterm-256color")
        .env("COLORTERM", "truecolor")
        .env("FOXHUNT_LOG", "trace")
        .env_remove("NO_COLOR")
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .status()
        .unwrap();
    let (out, err) = (fs::read_to_string(out).unwrap(), fs::read_to_string(err).unwrap());
    assert_eq!(status.code(), Some(0), "{err}");
    for text in [&out, &err] {
        assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
    }
    let epochs: Vec<_> = err.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(epochs.len(), 20, "{err}");
    assert!(epochs[0].starts_with("epoch 50/1000: ") && epochs[19].starts_with("epoch 1000/1000: "));
    assert!(err.lines().count() < 40, "{err}");
    // An epoch is told before its own validation, with the one before.
    assert!(epochs[1].contains(" % (epoch ") && !epochs[1].contains("(epoch 100)"), "{err}");
    assert!(out.contains("buy and hold") && out.contains("\nreport  "), "the final summary: {out}");
}

/// On a terminal progress is a bar with figures under it, drawn over itself, and gone before the table.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stderr)]
fn a_terminal_gets_a_bar() {
    let place = Place::new();
    let train = place.train("bars.csv", "runs", &["--epochs", "60"]);
    let words = std::iter::once(train.get_program()).chain(train.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    // `script` runs a command on a pseudo-terminal of its own.
    let line = format!("stty cols 120 rows 30; exec {}", words.join(" "));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env_remove("FOXHUNT_LOG");
    let output = match script.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: there is no `script` here to make a pseudo-terminal with");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let shown = Done::from(output).expect(0).out;
    assert!(shown.contains("/60 [=") && shown.contains(">"), "{shown:?}");
    for figure in ["loss ", "grad norm ", "max-Q ", "epsilon ", "validation net ", "updates/s", " left"] {
        assert!(shown.contains(figure), "{figure} is missing: {shown:?}");
    }
    assert!(!shown.contains("epoch 3/60:"), "no plain lines beside the bar: {shown:?}");
    let (bar, table) = shown.rsplit_once("\u{1b}[").expect("the bar is drawn with control codes");
    assert!(bar.matches("\u{1b}[2K").count() > 10, "drawn over itself: {shown:?}");
    assert!(table.contains("buy and hold") && !table.contains("/60"), "{table:?}");
}

/// Cases H06 and E02: a checkpoint without the random state of its draws is taken with a warning in the log, and the
/// log has no colours where nobody can see them.
#[test]
fn the_log_is_plain_without_a_terminal() {
    let place = Place::new();
    let (_, run) = place.trained("bars.csv", "runs", &[]);
    let store = CheckpointStore::new(run.join("checkpoints"), 2);
    let newest = store.load_newest().unwrap().checkpoint;
    let mut snapshot = newest.snapshot;
    snapshot.arrays.remove("replay.rng").unwrap();
    store.save(CheckpointNumber { epoch: 4, step: 0 }, newest.manifest, &snapshot).unwrap();
    let output = foxhunt().arg("resume").arg(&run).env_remove("NO_COLOR").env("TERM", "xterm").output();
    let done = Done::from(output.unwrap()).expect(0);
    assert!(done.err.contains("WARN") && done.err.contains("replay.rng"), "{}", done.err);
    assert!(!done.err.contains('\u{1b}'), "{:?}", done.err);
}

/// Case H07: a reader that is gone before the first byte, on either stream or both, costs output and nothing else.
#[test]
fn training_outlives_its_readers() {
    let place = Place::new();
    for (out, err) in [(true, false), (false, true), (true, true)] {
        let folder = format!("runs-{out}-{err}");
        let mut child = place
            .train("bars.csv", &folder, &[])
            .env("FOXHUNT_LOG", "trace")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if out {
            drop(child.stdout.take());
        }
        if err {
            drop(child.stderr.take());
        }
        Done::from(child.wait_with_output().unwrap()).expect(0);
        let run = place.only_run(&folder);
        for file in
            ["policy/policy.safetensors", "report.html", "report.json", "checkpoints/epoch_4/manifest.json"]
        {
            assert!(run.join(file).is_file(), "{file} is missing");
        }
    }
}

/// Case H07, in a shell: `train | head -1` and `inspect | head -1`.
#[cfg(unix)]
#[test]
fn heads_of_pipes() {
    let place = Place::new();
    let shell = |script: &str| {
        let output = std::process::Command::new("bash")
            .args(["-c", &format!("{script}; exit ${{PIPESTATUS[0]}}")])
            .env("FOXHUNT", env!("CARGO_BIN_EXE_foxhunt"))
            .current_dir(place.path(""))
            .output();
        Done::from(output.unwrap()).expect(0)
    };
    let done = shell("\"$FOXHUNT\" train bars.csv --config tiny.toml --out runs 2>&1 | head -1");
    assert_eq!(done.out.lines().count(), 1);
    assert!(done.err.is_empty(), "{}", done.err);
    assert!(place.only_run("runs").join("report.html").is_file());
    for command in
        ["inspect bars.csv", "inspect bars.csv --json", "train --show-settings", "doctor", "--help"]
    {
        let done = shell(&format!("\"$FOXHUNT\" {command} | head -1"));
        assert_eq!((done.out.lines().count(), done.err.as_str()), (1, ""), "{command}");
        // Gone before the first byte.
        let done = shell(&format!("{{ sleep 0.1; exec \"$FOXHUNT\" {command}; }} | true"));
        assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""), "{command}");
    }
}

/// Output that a full disk swallows is told and fails the command; a reader that goes away does not.
#[cfg(target_os = "linux")]
#[test]
fn lost_output_is_no_success() {
    let place = Place::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut inspect = foxhunt();
    inspect.args(["inspect", &place.text("bars.csv"), "--json"]).stdout(full());
    let done = Done::from(inspect.output().unwrap()).expect(1);
    assert!(done.err.contains("cannot write to standard output"), "{}", done.err);

    let mut train = place.train("bars.csv", "runs", &["--epochs", "1"]);
    let done = Done::from(train.stdout(full()).output().unwrap()).expect(1);
    assert_eq!(done.err.matches("cannot write to standard output").count(), 1, "{}", done.err);
    assert!(place.only_run("runs").join("report.html").is_file(), "the run itself is whole");
}

/// A file that may not grow further is a failed write like any other, not the end of the process by a signal.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_size_of_files_is_told() {
    let place = Place::new();
    let output = std::process::Command::new("bash")
        .args(["-c", "ulimit -f 8; exec \"$FOXHUNT\" train bars.csv --config tiny.toml --out runs"])
        .env("FOXHUNT", env!("CARGO_BIN_EXE_foxhunt"))
        .current_dir(place.path(""))
        .output();
    let done = Done::from(output.unwrap()).expect(1);
    assert!(done.err.contains("File too large"), "{}", done.err);

    let (_, folder) = place.trained("bars.csv", "whole", &[]);
    let folder = folder.to_str().unwrap();
    for command in [
        format!("export {folder} --out limited.onnx"),
        format!("evaluate {folder} bars.csv --report limited"),
    ] {
        let output = std::process::Command::new("bash")
            .args(["-c", &format!("ulimit -f 1; exec \"$FOXHUNT\" {command}")])
            .env("FOXHUNT", env!("CARGO_BIN_EXE_foxhunt"))
            .current_dir(place.path(""))
            .output();
        let done = Done::from(output.unwrap()).expect(1);
        assert!(done.err.contains("File too large"), "{command}: {}", done.err);
    }
    assert!(!place.path("limited.onnx").exists() && !place.path("limited.onnx.tmp").exists());
}
