//! What being watched costs a run: the same training with nobody looking, and with a thousand scrapes of its metrics
//! spread over it while ten clients hang, in pairs that take turns in going first.
//!
//! Each run trains by one thread for a fixed number of updates. Told are the medians over the pairs of updates a second
//! of wall time and of processor time of the whole process; the second is the one to believe where something else runs.
//!
//! `cargo run --release -p foxhunt-tests --example scrape_load -- [--binary FILE] [--pairs N] [--epochs N]`; exits with
//! 1 when the scrapes cost 1 % of processor time or more.
#![allow(clippy::print_stdout)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

const SCRAPES: u32 = 1_000;
const HANGING: usize = 10;
/// Slowdown that is too much, share.
const LIMIT: f64 = 0.01;

struct Arguments {
    binary: PathBuf,
    pairs: usize,
    epochs: u64,
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall_s: f64,
    processor_s: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments()?;
    let place = tempfile::tempdir()?;
    let run = |scrapes, name: &str| train(&arguments, place.path(), name, scrapes);
    // The first run fills the caches and tells how far apart scrapes have to be.
    let alone = run(None, "first")?;
    println!("a run takes {:.1} s, {:.1} s of processor time", alone.wall_s, alone.processor_s);
    let apart = Duration::from_secs_f64(0.5 * alone.wall_s / f64::from(SCRAPES));
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for pair in 0..arguments.pairs {
        let mut took = [alone; 2];
        for watched in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let scrapes = (watched == 1).then_some(apart);
            took[watched] = run(scrapes, &format!("{pair}-{watched}"))?;
        }
        let [plain, watched] = took;
        wall.push(watched.wall_s / plain.wall_s - 1.0);
        processor.push(watched.processor_s / plain.processor_s - 1.0);
        println!(
            "pair {pair}: {:.2} s and {:.2} s watched ({:+.2} %), processor {:.2} s and {:.2} s ({:+.2} %)",
            plain.wall_s,
            watched.wall_s,
            100.0 * wall[pair],
            plain.processor_s,
            watched.processor_s,
            100.0 * processor[pair],
        );
    }
    let (wall, processor) = (median(&mut wall), median(&mut processor));
    println!(
        "{SCRAPES} scrapes beside {HANGING} hanging clients slow a run by {:.2} % of wall time and {:.2} % of processor \
         time (medians of {} pairs)",
        100.0 * wall,
        100.0 * processor,
        arguments.pairs
    );
    ensure!(processor < LIMIT, "more than {} %", 100.0 * LIMIT);
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut all = Arguments { binary: "target/release/foxhunt".into(), pairs: 9, epochs: 40 };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let value = given.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--binary" => all.binary = value.into(),
            "--pairs" => all.pairs = value.parse()?,
            "--epochs" => all.epochs = value.parse()?,
            _ => bail!("unknown flag {flag}"),
        }
    }
    ensure!(all.binary.is_file(), "{} is no file; build it first", all.binary.display());
    ensure!(all.pairs > 0, "no pairs");
    Ok(all)
}

/// One run on the bundled bars; with `apart`, scraped that often.
fn train(arguments: &Arguments, place: &Path, name: &str, apart: Option<Duration>) -> anyhow::Result<Took> {
    let out = place.join(name);
    let (start, before) = (Instant::now(), processor_of_children()?);
    let mut child = Command::new(&arguments.binary)
        .args(["train", "--device", "cpu", "--metrics-addr", "0", "--set", "run.threads=1"])
        .args(["--set", "training.patience=0", "--set", "training.validate_every=1000000"])
        .args(["--epochs", &arguments.epochs.to_string(), "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut told = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut line = String::new();
    told.read_line(&mut line)?;
    let address = line.trim().strip_prefix("metrics: http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.with_context(|| format!("no address in {line}"))?.to_owned();
    // Read on, so that the run never waits for its own words.
    let reader = thread::spawn(move || told.lines().count());
    let scraper = apart.map(|apart| thread::spawn(move || scrape(&address, apart)));
    let status = child.wait()?;
    let took = Took { wall_s: start.elapsed().as_secs_f64(), processor_s: processor_of_children()? - before };
    ensure!(status.success(), "training failed: {status}");
    let _ = reader.join();
    if let Some(scraper) = scraper {
        let answered = scraper.join().map_err(|_| anyhow::anyhow!("the scraper gave up"))?;
        ensure!(answered == SCRAPES, "only {answered} scrapes before the run ended");
    }
    fs::remove_dir_all(&out)?;
    Ok(took)
}

/// Scrapes until there were enough or the run has ended; how many were answered.
fn scrape(address: &str, apart: Duration) -> u32 {
    let hanging: Vec<_> = (0..HANGING).map(|_| TcpStream::connect(address)).collect();
    let mut answered = 0;
    let start = Instant::now();
    for n in 0..SCRAPES {
        let due = start + apart * n;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        match get(address) {
            Ok(text) if text.contains("foxhunt_updates_total") => answered += 1,
            _ => break,
        }
    }
    drop(hanging);
    answered
}

fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Processor time of all children that were waited for, seconds.
fn processor_of_children() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name before the last parenthesis may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |field: usize| -> anyhow::Result<f64> { Ok(fields.get(field).context("no such field")?.parse()?) };
    // User and system time of children; the first field here is the third. Linux counts a hundred ticks a second.
    Ok((ticks(13)? + ticks(14)?) / 100.0)
}
