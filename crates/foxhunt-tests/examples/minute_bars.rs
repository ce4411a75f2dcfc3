//! Ten years of minute bars in one training run: how much memory it really takes, beside what was planned.
//!
//! Writes a file of 3.6 million made bars, trains on it with a short schedule, watches the memory that the process
//! holds (`VmHWM` of Linux) until its end and compares it with the plan that the program printed.
//!
//! `cargo run --release -p foxhunt-tests --example minute_bars -- [--binary FILE] [--bars N] [--keep DIR]
//! [-- FLAGS OF TRAIN]`; exits with 1 when the run took more than was planned.
#![allow(clippy::print_stdout)]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use foxhunt_core::{Philox, Purpose};

/// Minutes of ten years of 250 days of 24 hours.
const TEN_YEARS: u64 = 10 * 250 * 24 * 60;
/// A short run that does everything at full size: memory does not depend on how long it lasts.
const SHORT: [&str; 8] = [
    "--device",
    "cpu",
    "--epochs",
    "2",
    "--set",
    "training.updates_per_epoch=50",
    "--set",
    "evaluation.random_policies=4",
];

struct Arguments {
    binary: PathBuf,
    bars: u64,
    keep: Option<PathBuf>,
    flags: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments()?;
    let place = tempfile::tempdir()?;
    let folder = arguments.keep.clone().unwrap_or_else(|| place.path().to_owned());
    fs::create_dir_all(&folder)?;
    let file = folder.join("minutes.csv");
    write(&file, arguments.bars)?;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    println!("{} bars, {} MiB of text", arguments.bars, mib(fs::metadata(&file)?.len()));

    let start = Instant::now();
    let mut child = Command::new(&arguments.binary)
        .arg("train")
        .arg(&file)
        .arg("--out")
        .arg(folder.join("runs"))
        .args(SHORT)
        .args(&arguments.flags)
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("stderr"))?)
        .spawn()?;
    let mut peak = 0;
    let status = loop {
        // The system keeps the highest mark itself; only what comes after the last look is missed.
        peak = peak.max(high_mark(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let told = fs::read_to_string(folder.join("stderr"))?;
    ensure!(status.success(), "training failed: {told}");
    let line = told.lines().find(|line| line.starts_with("memory: ")).context("no plan was told")?;
    let planned = planned(line)?;
    println!("{line}");
    println!("took {} MiB at most in {:.0} s", mib(peak), start.elapsed().as_secs_f64());
    // The bars themselves are there before a plan can be made: time, four prices, volume.
    let bars = arguments.bars * 6 * 8;
    println!("plan and bars: {} MiB", mib(planned + bars));
    ensure!(peak <= planned + bars, "more than planned");
    Ok(())
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut all =
        Arguments { binary: "target/release/foxhunt".into(), bars: TEN_YEARS, keep: None, flags: Vec::new() };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        if flag == "--" {
            all.flags = given.collect();
            break;
        }
        let value = given.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--binary" => all.binary = value.into(),
            "--bars" => all.bars = value.parse()?,
            "--keep" => all.keep = Some(value.into()),
            _ => bail!("unknown flag {flag}"),
        }
    }
    ensure!(all.binary.is_file(), "{} is no file; build it first", all.binary.display());
    Ok(all)
}

/// A wandering price in steps of a tenth of a pip, from Monday to Friday, with volume.
fn write(path: &Path, bars: u64) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut random = Philox::new(1).stream(Purpose::Synthetic, 0, 0);
    writeln!(out, "time,open,high,low,close,volume")?;
    let price = |points: i64| format!("{}.{:05}", points / 100_000, points % 100_000);
    let mut close: i64 = 120_000;
    // 2015-01-05 was a Monday.
    let (mut day, mut minute) = (1_420_416_000_u64, 0);
    for _ in 0..bars {
        let open = close;
        close = (close + (20.0 * random.next_normal()).round() as i64).clamp(50_000, 300_000);
        let high = open.max(close) + (10.0 * random.next_f64()) as i64;
        let low = open.min(close) - (10.0 * random.next_f64()) as i64;
        let volume = 1 + (500.0 * random.next_f64()) as u64;
        let time = day + 60 * minute;
        writeln!(out, "{time},{},{},{},{},{volume}", price(open), price(high), price(low), price(close))?;
        minute += 1;
        if minute == 1440 {
            let days = if (day / 86_400 + 4) % 7 == 5 { 3 } else { 1 };
            (day, minute) = (day + days * 86_400, 0);
        }
    }
    out.flush()?;
    Ok(())
}

/// The most memory a process held so far, bytes.
fn high_mark(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Bytes of `memory: 1234 MiB (...) planned`.
fn planned(line: &str) -> anyhow::Result<u64> {
    let mut words = line.split_whitespace().skip(1);
    let number: u64 = words.next().context("no number")?.parse()?;
    let unit = match words.next() {
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        other => bail!("no unit: {other:?}"),
    };
    Ok(number * unit)
}
