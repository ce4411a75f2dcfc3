//! The binary, small markets, small runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Settings of a run that takes a moment and still does everything.
const TINY: &str = include_str!("../../../foxhunt-tests/tiny.toml");

/// The command, without the settings of the shell that the tests run in.
pub(crate) fn foxhunt() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foxhunt"));
    command.env_remove("FOXHUNT_LOG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A finished command.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// The code, or everything that was said.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

pub(crate) fn run(arguments: &[&str]) -> Done {
    foxhunt().args(arguments).output().unwrap().into()
}

/// A folder with bars, settings and room for runs.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bars.csv"), csv(&bars(700, 1))).unwrap();
        fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.text(name)
    }

    /// `foxhunt train` with the small settings, `bars` by its name in this folder, runs under `out`.
    pub(crate) fn train(&self, bars: &str, out: &str, more: &[&str]) -> Command {
        let mut command = foxhunt();
        command.arg("train").arg(self.path(bars));
        command.arg("--config").arg(self.path("tiny.toml")).arg("--out").arg(self.path(out)).args(more);
        command
    }

    /// The same, to its end.
    pub(crate) fn trained(&self, bars: &str, out: &str, more: &[&str]) -> (Done, PathBuf) {
        let done = Done::from(self.train(bars, out, more).output().unwrap()).expect(0);
        (done, self.only_run(out))
    }

    /// The one run folder under `out`.
    pub(crate) fn only_run(&self, out: &str) -> PathBuf {
        only_entry(&self.path(out))
    }
}

/// Any entry of a folder that has some.
pub(crate) fn an_entry(folder: &Path) -> PathBuf {
    fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

pub(crate) fn only_entry(folder: &Path) -> PathBuf {
    // Run folders lie beside the ledger.
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let entries: Vec<_> = all.filter(|path| path.is_dir()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}

pub(crate) fn policy_bytes(run: &Path) -> Vec<u8> {
    fs::read(run.join("policy/policy.safetensors")).unwrap()
}

/// The state of the newest checkpoint.
pub(crate) fn state_bytes(run: &Path) -> Vec<u8> {
    let epoch = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        name.strip_prefix("epoch_").unwrap().parse::<u64>().unwrap()
    };
    let folders = fs::read_dir(run.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
    fs::read(folders.max_by_key(epoch).unwrap().join("state.safetensors")).unwrap()
}

/// What a run printed at its end without the paths in it.
pub(crate) fn table(out: &str) -> String {
    let lines = out.lines().filter(|line| !line.starts_with("policy ") && !line.starts_with("report "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until `ready`, for a minute at most.
pub(crate) fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Hourly bars in whole cents: time in s, then open, high, low, close in cents, then volume.
pub(crate) type Bar = (i64, [i64; 4], u64);

/// A wandering market with wicks.
pub(crate) fn bars(n: usize, seed: u64) -> Vec<Bar> {
    let mut state = seed;
    let mut random = |n: u64| {
        // Knuth's MMIX generator: any jumble does.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % n) as i64
    };
    let mut close = 10_000;
    (0..n as i64)
        .map(|t| {
            let open = close + random(11) - 5;
            close = open + random(121) - 60 + (10_000 - open) / 20;
            let high = open.max(close) + random(30);
            let low = open.min(close) - random(30);
            (1_600_000_000 + 3_600 * t, [open, high, low, close], 500 + random(1_000) as u64)
        })
        .collect()
}

pub(crate) fn csv(bars: &[Bar]) -> String {
    let mut text = String::from("time,open,high,low,close,volume\n");
    for (time, prices, volume) in bars {
        let [open, high, low, close] = prices.map(|cents| format!("{}.{:02}", cents / 100, cents % 100));
        text += &format!("{time},{open},{high},{low},{close},{volume}\n");
    }
    text
}
