//! Who watches a run: the metrics endpoint during training, TensorBoard files over a resume. Neither changes a run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use foxhunt_report::tensorboard::{Event, read_events};

use crate::support::{Done, Place, policy_bytes, run};

/// Starts a training run with an endpoint; the child and its address.
fn served(place: &Place, more: &[&str]) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut train = place.train("bars.csv", "runs", &[&["--metrics-addr", "0"], more].concat());
    let mut child = train.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("metrics: http://").unwrap().strip_suffix("/metrics").unwrap();
    // Until training starts there is nothing to serve.
    while let (head, body) = get(address, "/metrics").unwrap()
        && head.starts_with("HTTP/1.1 503")
    {
        assert_eq!(body, "training has not started\n");
    }
    (child, address.to_owned(), err)
}

fn get(address: &str, path: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// Names of the samples of a scrape, every line looked at.
fn series(body: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut described = BTreeSet::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            described.insert(comment);
            continue;
        }
        let (name, value) = line.split_once(' ').unwrap();
        assert!(name.starts_with("foxhunt_") && value.parse::<f64>().is_ok(), "{line}");
        assert!(names.insert(name), "{name} twice");
        let family = name.strip_suffix("_total").unwrap_or(name);
        let kind = if family == name { "gauge" } else { "counter" };
        assert!(described.contains(format!("TYPE {family} {kind}").as_str()), "{name} has no type");
        assert!(described.iter().any(|c| c.starts_with(&format!("HELP {family} "))), "{name} has no help");
    }
    assert!(body.ends_with("# EOF\n"));
    names
}

fn value(body: &str, name: &str) -> f64 {
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name);
    line.parse().unwrap()
}

/// A thousand scrapes of a run that trains, beside clients that hang: the same series every time, counters that only
/// rise, and a run that learns the same.
#[test]
fn a_thousand_scrapes_during_training() {
    let place = Place::new();
    let long = ["--epochs", "100000"];
    let (mut child, address, _err) = served(&place, &long);
    let _hanging: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(b"GET /met").unwrap();
    let (mut first, mut epochs, mut updates) = (None, BTreeSet::new(), 0.0);
    for _ in 0..1_000 {
        let (head, body) = get(&address, "/metrics").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0")
        );
        let names = series(&body).len();
        assert_eq!(*first.get_or_insert(names), names);
        let now = value(&body, "foxhunt_updates_total");
        assert!(now >= updates, "{now} after {updates}");
        updates = now;
        epochs.insert(value(&body, "foxhunt_epoch").to_bits());
    }
    while updates == 0.0 {
        updates = value(&get(&address, "/metrics").unwrap().1, "foxhunt_updates_total");
    }
    let (_, body) = get(&address, "/metrics").unwrap();
    for name in
        ["loss", "grad_norm", "q_min", "q_mean", "q_max", "env_steps_per_second", "updates_per_second"]
    {
        assert!(value(&body, &format!("foxhunt_{name}")).is_finite(), "{name}");
    }
    assert_eq!(value(&body, "foxhunt_healthy"), 1.0);
    assert!(get(&address, "/healthz").unwrap().0.starts_with("HTTP/1.1 200"));
    assert!(epochs.len() > 1, "the run went on between scrapes");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Losses that overflow are skipped by the guard: not healthy, and told so.
#[test]
fn a_run_of_skipped_updates_is_unhealthy() {
    let place = Place::new();
    let bad = [
        ["--set", "env.reward_scale=1e30"],
        ["--set", "learner.huber_delta=1e35"],
        ["--set", "guard.max_skips_in_row=1000000000"],
        ["--epochs", "100000"],
    ];
    let (mut child, address, _err) = served(&place, &bad.concat());
    let body = loop {
        let (_, body) = get(&address, "/metrics").unwrap();
        if value(&body, "foxhunt_skipped_updates_total") > 0.0 {
            break body;
        }
    };
    assert_eq!(value(&body, "foxhunt_healthy"), 0.0);
    assert!(get(&address, "/healthz").unwrap().0.starts_with("HTTP/1.1 503"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_port_in_use_is_an_error_before_a_run_begins() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let train = |address: &str| -> Done {
        place.train("bars.csv", "runs", &["--metrics-addr", address]).output().unwrap().into()
    };
    let done = train(&address).expect(1);
    assert!(done.err.contains(&address) && done.err.lines().count() == 1, "{}", done.err);
    assert!(!place.path("runs").exists());
    train("no such address").expect(2);
}

fn event_files(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("tensorboard")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Values of one tag, by step.
fn scalars(events: &[Event], tag: &str) -> Vec<(i64, f32)> {
    let values = events.iter().flat_map(|event| {
        let value = event.summary.iter().flat_map(|summary| &summary.value);
        value.filter(|value| value.tag == tag).map(|value| (event.step, value.simple_value.unwrap()))
    });
    values.collect()
}

/// The same numbers as in `metrics.jsonl`, in a second file after a resume that does not ask again; and a watched run
/// ends with the bits of one that nobody watched.
#[test]
fn tensorboard_files_hold_the_metrics_over_a_resume() {
    let place = Place::new();
    let (_, plain) = place.trained("bars.csv", "plain", &["--epochs", "6"]);
    assert!(!plain.join("tensorboard").exists());
    let (_, watched) = place.trained("bars.csv", "runs", &["--tensorboard", "--metrics-addr", "0"]);
    run(&["resume", watched.to_str().unwrap(), "--epochs", "6"]).expect(0);
    assert_eq!(policy_bytes(&watched), policy_bytes(&plain));

    let files = event_files(&watched);
    let [first, second] = &files[..] else { panic!("{files:?}") };
    let name = first.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("events.out.tfevents."), "{name}");
    let mut events = read_events(first).unwrap();
    let later = read_events(second).unwrap();
    assert_eq!((later[1].step, later[1].session_log.as_ref().unwrap().status), (5, 1));
    events.extend(later);
    let metrics = fs::read_to_string(watched.join("metrics.jsonl")).unwrap();
    let mut compared = 0;
    for line in metrics.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let step = line["epoch"].as_i64().unwrap();
        for (kind, key, tag) in [
            ("epoch", "loss", "loss"),
            ("epoch", "q_max", "q_max"),
            ("epoch", "total_updates", "total_updates"),
            ("validation", "net_log_return", "validation/net_log_return"),
        ] {
            if line["kind"] == kind {
                let want = (step, line[key].as_f64().unwrap() as f32);
                assert!(scalars(&events, tag).contains(&want), "{tag} {want:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(scalars(&events, "loss").len(), 6, "each epoch once");
    assert_eq!(compared, 6 * 3 + 3);
}

/// What is for single runs is refused for a walk-forward run, not passed over.
#[test]
fn flags_of_single_runs_are_refused_for_walk_forward() {
    let place = Place::new();
    fs::create_dir_all(place.path("walk/folds")).unwrap();
    let walk = place.text("walk");
    for flag in [&["--tensorboard"][..], &["--metrics-addr", "0"], &["--epochs", "3"], &["--device", "cpu"]] {
        let done = run(&[&["resume", &walk], flag].concat()).expect(2);
        assert!(done.err.contains(flag[0]), "{}", done.err);
    }
}
