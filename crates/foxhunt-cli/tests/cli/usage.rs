//! Exit codes and settings.

use crate::support::{Done, Place, run};

/// 0 where the answer is what was asked for, 2 where the question makes no sense.
#[test]
fn exit_codes() {
    assert!(run(&["--help"]).expect(0).out.contains("Exit codes"));
    assert!(run(&["--version"]).expect(0).out.starts_with("foxhunt "));
    assert!(run(&["doctor"]).expect(0).out.contains("cpu engine   ready"));
    let findings: serde_json::Value =
        serde_json::from_str(&run(&["doctor", "--json"]).expect(0).out).unwrap();
    let named = |what| findings.as_array().unwrap().iter().find(|f| f["what"] == what).unwrap();
    assert_eq!(named("cpu engine")["ready"], true);
    assert!(!named("kernels")["detail"].as_str().unwrap().is_empty());
    for wrong in [
        &[][..],
        &["tarin"],
        &["train", "--sede", "1"],
        &["train", "--seed", "many"],
        &["train", "--device", "abacus"],
        &["train", "--set", "learner.batch"],
        &["train", "--set", "learner.gamma=1.5"],
        &["train", "--set", "learner.gamma=nan"],
        &["train", "--set", "learner.learning_rate.start=inf"],
        &["train", "--set", "learner.batch=0"],
        &["train", "--config", "no/such.toml"],
        &["evaluate", "runs/x"],
        &["resume"],
    ] {
        let done = run(wrong).expect(2);
        assert!(done.out.is_empty() && !done.err.is_empty(), "{wrong:?}");
    }
}

/// An unknown key is refused by name, on the command line and in a file.
#[test]
fn unknown_keys_are_named() {
    let place = Place::new();
    let done = run(&["train", "--set", "learner.batchh=3"]).expect(2);
    assert!(done.err.contains("batchh") && done.err.lines().count() < 8, "{}", done.err);
    let file = place.write("typo.toml", "[learner]\nbatchh = 3\n");
    let done = run(&["train", "--config", &file]).expect(2);
    assert!(done.err.contains("batchh") && done.err.contains("typo.toml"), "{}", done.err);
}

/// Memory is planned and told before it is taken; what cannot be had is an error with both numbers and no run.
#[test]
fn memory_is_planned() {
    let place = Place::new();
    let shown = run(&["train", "--show-settings"]).expect(0).out;
    assert!(shown.starts_with("# memory beside the bars: ") && shown.contains("replay 5"), "{shown}");
    let (done, folder) = place.trained("bars.csv", "runs", &[]);
    let line = done.err.lines().find(|line| line.starts_with("memory: ")).expect(&done.err);
    assert!(line.contains(" MiB planned (program ") || line.contains(" MiB (program "), "{line}");
    let report = std::fs::read_to_string(folder.join("report.json")).unwrap();
    assert!(report.contains("Planned memory: "), "{report}");
    let resumed = run(&["resume", folder.to_str().unwrap()]).expect(0);
    assert!(resumed.err.contains("memory: "), "{}", resumed.err);

    let huge = ["--set", "learner.batch=65536", "--set", "replay.capacity=2147483648"];
    let done = Done::from(place.train("bars.csv", "none", &huge).output().unwrap()).expect(1);
    let lines: Vec<_> = done.err.lines().filter(|line| !line.contains(" bars, ")).collect();
    let [planned, error] = lines[..] else { panic!("{}", done.err) };
    assert!(planned.starts_with("memory: ") && planned.contains("replay "), "{planned}");
    assert!(error.starts_with("error: cannot have ") && error.ends_with(" bytes are free"), "{error}");
    assert!(!place.path("none").exists(), "no run was begun");
}

/// Under a limit on the address space, whatever it is, a run that is too large is refused and one that fits runs:
/// nothing in between is an aborted allocation.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_is_an_error_and_never_an_abort() {
    let place = Place::new();
    let shapes: [&[&str]; 3] = [
        &[
            "--set",
            "learner.batch=65536",
            "--set",
            "learner.accumulation=1024",
            "--set",
            "replay.capacity=65536",
        ],
        &["--set", "network.hidden=[4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096]"],
        &["--set", "replay.capacity=400000", "--set", "env.n_envs=512", "--epochs", "1"],
    ];
    let mut ends = std::collections::BTreeSet::new();
    for (i, shape) in shapes.into_iter().enumerate() {
        for kib in [150_000, 300_000, 600_000, 1_200_000] {
            let out = format!("runs-{i}-{kib}");
            let train = place.train("bars.csv", &out, shape);
            let words = std::iter::once(train.get_program()).chain(train.get_args());
            let mut limited = std::process::Command::new("bash");
            limited.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\"")]).args(words);
            limited.env_remove("FOXHUNT_LOG").env_remove("RUST_LOG");
            let done = Done::from(limited.output().unwrap());
            let context = format!("{shape:?} under {kib} KiB: {}", done.err);
            match done.code {
                Some(0) => {}
                Some(1) => assert!(done.err.contains("error: cannot have "), "{context}"),
                _ => panic!("{context}"),
            }
            ends.insert(done.code);
        }
    }
    assert_eq!(ends.len(), 2, "some run and some are refused");
}

/// A number of cuts is taken as it is or refused with the rule that `--help` tells.
#[test]
fn cuts_have_a_range() {
    assert!(run(&["lookahead", "--help"]).expect(0).out.contains("from 1 to 100"));
    for given in ["0", "101", "1000000", "-1", "many"] {
        let done = run(&["lookahead", &format!("--cuts={given}")]).expect(2);
        assert!(done.err.contains("--cuts") && done.err.contains("from 1 to 100"), "{}", done.err);
    }
}

/// What `--show-settings` prints is a settings file that means the same, options that are off by default included.
#[test]
fn shown_settings_are_a_settings_file() {
    let place = Place::new();
    let more = [
        "--set",
        "execution.tick_size=0.01",
        "--set",
        "monitor.average_q_stop={ min_change = 0.5, patience = 3 }",
        "--set",
        "learner.target={ kind = \"hard\", every = 7 }",
        "--symbol",
        "IBM",
        "--repair",
        "unsorted,gaps",
        "--seed",
        "9223372036854775807",
    ];
    for more in [&[][..], &more] {
        let first = run(&[&["train", "--show-settings"], more].concat()).expect(0);
        let file = place.write("shown.toml", &first.out);
        let second = run(&["train", "--show-settings", "--config", &file]).expect(0);
        assert_eq!(second.out, first.out);
        assert!(first.err.is_empty(), "{}", first.err);
        for value in ["tick_size = 0.01", "min_change = 0.5", "every = 7", "IBM", "9223372036854775807"] {
            assert_eq!(first.out.contains(value), !more.is_empty(), "{value}");
        }
    }
}

/// Completions of every shell and the manual pages know every command and flag there is.
#[test]
fn shells_and_manual_know_every_command() {
    let commands =
        ["train", "resume", "evaluate", "walk-forward", "lookahead", "export", "doctor", "bench", "man"];
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).expect(0).out;
        for word in commands.iter().chain(&["metrics-addr", "tensorboard", "show-settings", "safetensors"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("\\u00"), "{shell}: control codes are written as they are");
    }
    run(&["completions", "tcsh"]).expect(2);
    let page = run(&["man"]).expect(0).out;
    assert!(
        page.contains(".TH foxhunt 1") && commands.iter().all(|c| page.contains(&c.replace('-', "\\-"))),
        "{page}"
    );
    let place = Place::new();
    run(&["man", "--out", &place.text("man")]).expect(0);
    for command in commands {
        let page = std::fs::read_to_string(place.path(&format!("man/foxhunt-{command}.1"))).unwrap();
        assert!(page.starts_with(".ie") && page.contains(".SH"), "{command}");
    }
    run(&["man", "--out", &place.text("bars.csv")]).expect(1);
}

/// What bash is given is a script that bash takes.
#[cfg(target_os = "linux")]
#[test]
fn bash_takes_the_completions() {
    let place = Place::new();
    let script = place.write("complete.bash", run(&["completions", "bash"]).expect(0).out);
    let ask = format!(
        "set -e; source {script}; COMP_WORDS=(foxhunt ex); COMP_CWORD=1; _foxhunt foxhunt ex foxhunt; echo \"${{COMPREPLY[@]}}\""
    );
    let done = Done::from(std::process::Command::new("bash").args(["-c", &ask]).output().unwrap()).expect(0);
    assert_eq!(done.out.trim(), "export");
}
