//! Exit codes and settings.

use crate::support::{Place, run};

/// 0 where the answer is what was asked for, 2 where the question makes no sense.
#[test]
fn exit_codes() {
    assert!(run(&["--help"]).expect(0).out.contains("Exit codes"));
    assert!(run(&["--version"]).expect(0).out.starts_with("foxhunt "));
    assert!(run(&["doctor"]).expect(0).out.contains("cpu engine   ready"));
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
