//! Files and folders that cannot be used: exit code 1 and one line that names them, never a panic.

use std::fs;

use crate::files::{gzip, parquet_bytes};
use crate::support::{Done, Place, bars, csv, foxhunt, run};

/// One line that names `path`, code 1, nothing on standard output.
fn assert_refused(done: Done, path: &str, context: &str) {
    let done = done.expect(1);
    assert!(done.out.is_empty(), "{context}: {}", done.out);
    assert_eq!(done.err.lines().count(), 1, "{context}: {}", done.err);
    assert!(done.err.starts_with("error: ") && done.err.contains(path), "{context}: {}", done.err);
    assert!(done.err.len() < 2_000, "{context}: {} bytes", done.err.len());
}

/// Cases G07, G09, G21, F29, F35 and their like, by every command that reads bars.
#[test]
fn bar_files_that_are_none() {
    let place = Place::new();
    let (_, run_folder) = place.trained("bars.csv", "runs", &[]);
    let header = "time,open,high,low,close,volume\n";
    let good = csv(&bars(700, 1));
    let with = |row: usize, field: usize, value: &str| {
        let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
        let mut fields: Vec<&str> = lines[row].split(',').collect();
        fields[field] = value;
        lines[row] = fields.join(",");
        lines.join("\n")
    };
    let gz = gzip(&good);
    let parquet = parquet_bytes(&bars(700, 1));
    let binary: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::create_dir(place.path("folder.csv")).unwrap();
    for (name, content) in [
        ("empty.csv", Vec::new()),
        ("blank.csv", b"\n\n  \n".to_vec()),
        ("header.csv", header.into()),
        ("one_row.csv", good.lines().take(2).collect::<Vec<_>>().join("\n").into()),
        ("few_rows.csv", good.lines().take(4).collect::<Vec<_>>().join("\n").into()),
        ("binary.csv", binary.clone()),
        ("zeros.csv", vec![0; 5000]),
        ("empty.parquet", Vec::new()),
        ("binary.parquet", binary),
        ("magic.parquet", b"PAR1".to_vec()),
        ("cut.parquet", parquet[..parquet.len() - 10].to_vec()),
        ("cut.csv.gz", gz[..gz.len() / 2].to_vec()),
        ("magic.gz", gz[..2].to_vec()),
        ("magic.dbn", b"DBN".to_vec()),
        ("nan.csv", with(300, 4, "NaN").into()),
        ("inf.csv", with(300, 2, "inf").into()),
        ("negative.csv", with(300, 3, "-5").into()),
        ("word.csv", with(300, 1, "a\u{1b}[31mb").into()),
        ("time.csv", with(300, 0, "yesterday").into()),
        ("fields.csv", with(300, 1, "1,2").into()),
        ("prose.csv", b"Call me Ishmael.\nSome years ago - never mind how long precisely\n".to_vec()),
    ] {
        place.write(name, content);
    }
    let names = fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let bad: Vec<String> =
        names.filter(|n| !["bars.csv", "tiny.toml", "runs"].contains(&n.as_str())).collect();
    assert_eq!(bad.len(), 22);
    for name in bad.iter().map(String::as_str).chain(["missing.csv", "bars.csv/child.csv"]) {
        let path = place.text(name);
        // Three bars can be looked at.
        if name != "few_rows.csv" {
            assert_refused(run(&["inspect", &path]), &path, &format!("inspect {name}"));
            let train = Done::from(place.train(name, "none", &[]).output().unwrap());
            assert_refused(train, &path, &format!("train {name}"));
        }
        let policy = run_folder.to_str().unwrap();
        let told = run(&["evaluate", policy, &path]);
        let told = Done { err: told.err.lines().filter(|l| !l.contains(" bars, ")).collect(), ..told };
        assert_refused(told, &path, &format!("evaluate {name}"));
    }
    assert!(!place.path("none").exists(), "no run was begun");
    if cfg!(target_os = "linux") {
        // No end to read to.
        for device in ["/dev/zero", "/dev/null", "/proc/self/mem"] {
            assert_refused(run(&["inspect", device]), device, device);
        }
    }
}

/// Too few bars for the settings is an error that names the file as well.
#[test]
fn too_few_bars_to_train_on() {
    let place = Place::new();
    place.write("short.csv", csv(&bars(50, 1)));
    let done = Done::from(place.train("short.csv", "none", &[]).output().unwrap()).expect(1);
    let error = done.err.lines().last().unwrap();
    assert!(error.contains(&place.text("short.csv")) && error.contains("has 50"), "{error}");
    assert!(!place.path("none").exists(), "no run was begun");
}

/// The number of rows an error asks for is the least that will do.
#[test]
fn the_rows_asked_for_are_the_least() {
    let place = Place::new();
    let config = place.text("tiny.toml");
    let commands: [&[&str]; 3] = [
        &["train", "--epochs", "1"],
        &["lookahead"],
        &["walk-forward", "--epochs", "1", "--set", "walk_forward.seeds=1"],
    ];
    for (i, command) in commands.into_iter().enumerate() {
        let with = |n_bars: usize| {
            let file = place.write("some.csv", csv(&bars(n_bars, 1)));
            let out = place.text(&format!("out-{i}"));
            run(&[command, &[&file, "--config", &config, "--out", &out]].concat())
        };
        let short = with(20).expect(1).err;
        let (_, asked) = short.split_once("needs at least ").expect(&short);
        let need: usize = asked.split_once(' ').unwrap().0.parse().unwrap();
        let done = with(need - 1).expect(1);
        assert!(done.err.contains(&format!("needs at least {need} rows, has {}", need - 1)), "{}", done.err);
        let done = with(need);
        assert!(!done.err.contains("error: "), "{command:?} with {need}: {}", done.err);
    }
}

/// Control codes of a file do not reach the terminal.
#[test]
fn a_file_cannot_write_to_the_terminal() {
    let place = Place::new();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J";
    let file = place.write("codes.csv", format!("time,open,high,low,{hostile}\n1,1,1,1,1\n2,1,1,1,1\n"));
    let done = run(&["inspect", &file]).expect(1);
    assert!(!done.err.contains('\u{1b}') && !done.err.contains('\u{7}'), "{:?}", done.err);
    let file = place.write("cell.csv", format!("time,open,high,low,close\n1,1,1,1,{hostile}\n2,1,1,1,1\n"));
    let done = run(&["inspect", &file]).expect(1);
    assert!(!done.err.contains('\u{1b}') && !done.err.contains('\u{7}'), "{:?}", done.err);
}

/// A run folder that cannot be made or written is an error that names it, before any training.
#[cfg(unix)]
#[test]
fn folders_that_cannot_be_written() {
    let place = Place::new();
    let (_, run_folder) = place.trained("bars.csv", "runs", &[]);
    // Root may write anywhere but here.
    let mut impossible = vec![place.text("bars.csv/runs"), place.text("bars.csv")];
    if cfg!(target_os = "linux") {
        impossible.push("/proc/foxhunt-runs".to_owned());
    }
    for folder in impossible {
        let mut command = foxhunt();
        command.args([
            "train",
            &place.text("bars.csv"),
            "--config",
            &place.text("tiny.toml"),
            "--out",
            &folder,
        ]);
        let done = Done::from(command.output().unwrap()).expect(1);
        let error = done.err.lines().last().unwrap();
        assert!(error.starts_with("error: ") && error.contains(&folder), "{error}");
        assert!(!done.err.contains("epoch 1/"), "{}", done.err);
        let report =
            run(&["evaluate", run_folder.to_str().unwrap(), &place.text("bars.csv"), "--report", &folder])
                .expect(1);
        let error = report.err.lines().last().unwrap();
        assert!(error.starts_with("error: ") && error.contains(&folder), "{error}");
    }
}

/// Run folders that are none.
#[test]
fn runs_that_cannot_be_resumed_or_evaluated() {
    let place = Place::new();
    fs::create_dir(place.path("nothing")).unwrap();
    let bars_file = place.text("bars.csv");
    for name in ["missing", "nothing", "bars.csv"] {
        let path = place.text(name);
        assert_refused(run(&["resume", &path]), &path, name);
        for command in [&["evaluate", &path, &bars_file][..], &["export", &path]] {
            let done = run(command);
            let told = match name {
                "missing" => "there is no such folder",
                "nothing" => "no policy.json in it or in its folder policy",
                _ => "cannot be used",
            };
            assert!(
                done.err.contains(told) && !done.err.contains("never finished"),
                "{command:?}: {}",
                done.err
            );
            assert_refused(done, &path, name);
        }
    }
    // The bars it was trained on are needed, and others are refused.
    let (_, folder) = place.trained("bars.csv", "runs", &[]);
    let folder = folder.to_str().unwrap();
    let other = place.write("other.csv", csv(&bars(700, 2)));
    let done = run(&["resume", folder, &other]).expect(1);
    assert!(done.err.contains("other bars") || done.err.contains("bars"), "{}", done.err);
    fs::rename(place.path("bars.csv"), place.path("moved.csv")).unwrap();
    assert_refused(run(&["resume", folder]), &bars_file, "the bars have moved");
    run(&["resume", folder, &place.text("moved.csv")]).expect(0);
}
