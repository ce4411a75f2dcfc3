//! What being watched costs a run: the same training with nobody looking, and with a thousand scrapes of its metrics
//! spread over it while ten clients hang, in pairs that take turns in going first.
//!
//! Each run trains by one thread for a fixed number of updates. The figure that decides is the processor time that the
//! threads of the endpoint took, of the processor time of everything else in the same run: other programs slow both
//! alike. It is what the process took between two moments less what each thread of training took, so that the threads
//! that answered and ended are in it, and whatever else ended is too. Beside it stand the same sum of the runs that
//! nobody scraped, which tells how far off it can be, and the medians over the pairs of wall time and of processor time of
//! whole runs, which other programs blur.
//!
//! `cargo run --release -p foxhunt-tests --example scrape_load -- [--binary FILE] [--pairs N] [--epochs N]`; exits with
//! 1 when the endpoint took 1 % or more in the worst run. Linux only.
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
    /// Of the whole process.
    processor_s: f64,
    /// Of the endpoint's threads while there were scrapes, or would have been.
    endpoint_s: f64,
}

impl Took {
    /// Processor time of the endpoint, share of that of everything else.
    fn share(self) -> f64 {
        self.endpoint_s / (self.processor_s - self.endpoint_s)
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments()?;
    let place = tempfile::tempdir()?;
    let run = |apart, scraped, name: &str| train(&arguments, place.path(), name, apart, scraped);
    // The first run fills the caches and tells how far apart scrapes have to be: no run is shorter than its one thread
    // works.
    let alone = run(Duration::ZERO, false, "first")?;
    println!("a run takes {:.1} s, {:.1} s of processor time", alone.wall_s, alone.processor_s);
    let apart = Duration::from_secs_f64(0.5 * alone.processor_s / f64::from(SCRAPES));
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    let mut runs: [Vec<Took>; 2] = Default::default();
    for pair in 0..arguments.pairs {
        for watched in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            runs[watched].push(run(apart, watched == 1, &format!("{pair}-{watched}"))?);
        }
        let [plain, watched] = [runs[0][pair], runs[1][pair]];
        wall.push(watched.wall_s / plain.wall_s - 1.0);
        processor.push(watched.processor_s / plain.processor_s - 1.0);
        println!(
            "pair {pair}: {:.2} s and {:.2} s watched ({:+.2} %), processor {:.2} s and {:.2} s ({:+.2} %), endpoint \
             {:.0} ms and {:.0} ms ({:.2} % of the rest)",
            plain.wall_s,
            watched.wall_s,
            100.0 * wall[pair],
            plain.processor_s,
            watched.processor_s,
            100.0 * processor[pair],
            1e3 * plain.endpoint_s,
            1e3 * watched.endpoint_s,
            100.0 * watched.share(),
        );
    }
    println!(
        "{SCRAPES} scrapes beside {HANGING} hanging clients: runs differ by {:+.2} % of wall time and {:+.2} % of processor \
         time (medians of {} pairs)",
        100.0 * median(&mut wall),
        100.0 * median(&mut processor),
        arguments.pairs
    );
    let [unwatched, watched] = runs.map(|runs| {
        let each = |of: fn(Took) -> f64| -> Vec<f64> { runs.iter().map(|&took| of(took)).collect() };
        (each(|took| took.endpoint_s), each(Took::share))
    });
    let (mut endpoint_s, shares) = watched;
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let endpoint_s = median(&mut endpoint_s);
    println!(
        "the endpoint's threads took {:.0} ms of processor time, {:.0} us a scrape (median); at most {:.2} % of what everything \
         else took; with nobody looking the same sum is at most {:.0} ms",
        1e3 * endpoint_s,
        1e6 * endpoint_s / f64::from(SCRAPES),
        100.0 * most(&shares),
        1e3 * most(&unwatched.0),
    );
    ensure!(most(&shares) < LIMIT, "more than {} %", 100.0 * LIMIT);
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

/// One run on the bundled bars; if it is to be `scraped`, every so often `apart`, else only looked at from outside.
fn train(
    arguments: &Arguments,
    place: &Path,
    name: &str,
    apart: Duration,
    scraped: bool,
) -> anyhow::Result<Took> {
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
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let watcher = thread::spawn(move || watch(&process, scraped.then_some(&address), apart));
    let status = child.wait()?;
    let (wall_s, processor_s) = (start.elapsed().as_secs_f64(), processor_of_children()? - before);
    ensure!(status.success(), "training failed: {status}");
    let _ = reader.join();
    let endpoint_s = watcher.join().map_err(|_| anyhow::anyhow!("the watcher gave up"))??;
    fs::remove_dir_all(&out)?;
    Ok(Took { wall_s, processor_s, endpoint_s })
}

/// Processor time of the endpoint's threads of `process` over as many turns as there are scrapes; with an address, each
/// turn is one.
fn watch(process: &Path, address: Option<&String>, apart: Duration) -> anyhow::Result<f64> {
    let before = Clocks::read(process)?;
    let hanging: Vec<_> =
        address.iter().flat_map(|&at| (0..HANGING).map(move |_| TcpStream::connect(at))).collect();
    let start = Instant::now();
    for n in 0..SCRAPES {
        thread::sleep((start + apart * n).saturating_duration_since(Instant::now()));
        let Some(address) = address else { continue };
        match get(address) {
            Ok(text) if text.contains("foxhunt_updates_total") => {}
            other => bail!("only {n} scrapes before the run ended: {other:?}"),
        }
    }
    drop(hanging);
    let after = Clocks::read(process).context("the run ended too soon")?;
    Ok(after.process_s - before.process_s - (after.training_s - before.training_s))
}

/// Processor times since a process began, seconds.
struct Clocks {
    /// Of all its threads, ended ones as well.
    process_s: f64,
    /// Of the threads it has but for the endpoint's.
    training_s: f64,
}

impl Clocks {
    fn read(process: &Path) -> anyhow::Result<Self> {
        // User and system time; the first field of `stat` here is the third.
        let process_s = ticks_s(&process.join("stat"), [11, 12])?;
        let mut training_s = 0.0;
        for thread in fs::read_dir(process.join("task"))? {
            let thread = thread?.path();
            // A thread may end between two looks.
            let (Ok(name), Ok(times)) =
                (fs::read_to_string(thread.join("comm")), fs::read_to_string(thread.join("schedstat")))
            else {
                continue;
            };
            if !name.starts_with("metrics") {
                let nanos = times.split_whitespace().next().context("no time in schedstat")?;
                training_s += 1e-9 * nanos.parse::<f64>()?;
            }
        }
        Ok(Self { process_s, training_s })
    }
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
    ticks_s(Path::new("/proc/self/stat"), [13, 14])
}

/// The sum of two times of a `stat` file, by their places after the name, seconds.
fn ticks_s(stat: &Path, places: [usize; 2]) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(stat)?;
    // The name before the last parenthesis may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let mut ticks = 0.0;
    for place in places {
        ticks += fields.get(place).context("no such field")?.parse::<f64>()?;
    }
    // Linux counts a hundred ticks a second.
    Ok(ticks / 100.0)
}
