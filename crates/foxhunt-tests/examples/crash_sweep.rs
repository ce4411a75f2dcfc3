//! Kills training at random moments, again and again, and compares its end with that of a run left alone, to the bit.
//!
//! Each round starts `foxhunt train`, or `foxhunt resume` where a run has begun, and ends it by SIGKILL, SIGTERM or
//! SIGINT: every other one at a random moment, the rest while a checkpoint is being written. When a run gets to its
//! end its policy and its last state are compared and the next run begins, until there were enough kills.
//!
//! `cargo run --release -p foxhunt-tests --example crash_sweep -- --kills 300 [--binary FILE] [--device cpu|cuda]
//! [--seed N]`; exits with 1 at the first difference.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use foxhunt_core::{Philox, Purpose};

const TINY: &str = include_str!("../tiny.toml");
/// Enough epochs for some kills each, a checkpoint after every one.
const MORE: [&str; 6] =
    ["--epochs", "150", "--set", "checkpoint.every_epochs=1", "--set", "evaluation.random_policies=20"];
const SIGNALS: [&str; 3] = ["KILL", "TERM", "INT"];

struct Arguments {
    binary: PathBuf,
    kills: u32,
    device: String,
    seed: u64,
}

/// What a finished run left: policy and last state.
type End = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Count {
    kills: [u32; 3],
    while_saving: u32,
    before_the_run_began: u32,
    runs: u32,
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments()?;
    let place = tempfile::tempdir()?;
    let sweep = Sweep { arguments, settings: place.path().join("tiny.toml"), place: place.path().to_owned() };
    fs::write(&sweep.settings, TINY)?;

    let start = Instant::now();
    let whole = sweep.start(None, "whole")?.wait_with_output()?;
    ensure!(whole.status.success(), "the run left alone failed: {}", String::from_utf8_lossy(&whole.stderr));
    let (want, alone) = (sweep.end("whole")?, start.elapsed());
    println!("a run left alone takes {:.2} s", alone.as_secs_f64());

    let mut count = Count::default();
    let mut random = Philox::new(sweep.arguments.seed).stream(Purpose::Bootstrap, 0, 0);
    while count.kills.iter().sum::<u32>() < sweep.arguments.kills {
        let out = format!("run-{}", count.runs);
        sweep.to_the_end(&out, alone, &mut || f64::from(random.next_f32()), &mut count)?;
        ensure!(sweep.end(&out)? == want, "{out} ended otherwise than the run left alone");
        count.runs += 1;
        let [kill, term, int] = count.kills;
        println!(
            "{} runs end to the bit as the one left alone; {kill} SIGKILL, {term} SIGTERM, {int} SIGINT, {} of them while \
             a checkpoint was written, {} before the run had begun",
            count.runs, count.while_saving, count.before_the_run_began
        );
        fs::remove_dir_all(sweep.place.join(&out))?;
    }
    Ok(())
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut all =
        Arguments { binary: "target/release/foxhunt".into(), kills: 300, device: "cpu".to_owned(), seed: 1 };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let value = given.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--binary" => all.binary = value.into(),
            "--kills" => all.kills = value.parse()?,
            "--device" => all.device = value,
            "--seed" => all.seed = value.parse()?,
            _ => bail!("unknown flag {flag}"),
        }
    }
    ensure!(all.binary.is_file(), "{} is no file; build it first", all.binary.display());
    Ok(all)
}

struct Sweep {
    arguments: Arguments,
    place: PathBuf,
    settings: PathBuf,
}

impl Sweep {
    /// Starts training into `out`, or goes on with `run`.
    fn start(&self, run: Option<&Path>, out: &str) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.arguments.binary);
        match run {
            Some(run) => command.arg("resume").arg(run),
            None => command
                .args(["train", "--config"])
                .arg(&self.settings)
                .arg("--out")
                .arg(self.place.join(out))
                .args(MORE),
        };
        command.args(["--device", &self.arguments.device]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().with_context(|| format!("cannot start {}", self.arguments.binary.display()))
    }

    /// Trains into `out`, killed on the way, until a process gets to the end.
    fn to_the_end(
        &self,
        out: &str,
        alone: Duration,
        random: &mut dyn FnMut() -> f64,
        count: &mut Count,
    ) -> anyhow::Result<()> {
        loop {
            let run = self.run_folder(out).filter(|run| run.join("checkpoints").is_dir());
            let mut child = self.start(run.as_deref(), out)?;
            let saving = random() < 0.5;
            let deadline = Instant::now() + alone.mul_f64(random());
            while Instant::now() < deadline && child.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_micros(200));
            }
            let patience = Instant::now() + alone;
            while saving && !self.is_saving(out) && Instant::now() < patience && child.try_wait()?.is_none() {
                std::thread::yield_now();
            }
            let caught = self.is_saving(out);
            let which = (random() * 3.0) as usize % 3;
            let alive = child.try_wait()?.is_none();
            if alive {
                kill(&mut child, SIGNALS[which])?;
            }
            let done = child.wait_with_output()?;
            let told = String::from_utf8_lossy(&done.stderr);
            ensure!(!told.contains("panicked"), "{told}");
            match done.status.code() {
                Some(0) => return Ok(()),
                // Killed, or stopped as asked.
                None | Some(130 | 143) if alive => {
                    count.kills[which] += 1;
                    count.while_saving += u32::from(caught);
                }
                // Too early for a checkpoint: such a run is begun anew.
                Some(1) if told.contains("holds no checkpoint to go on from") => {
                    count.before_the_run_began += 1;
                    fs::remove_dir_all(self.place.join(out))?;
                }
                code => bail!("ended with {code:?}: {told}"),
            }
        }
    }

    /// The one run folder under `out`, which has no other folders in it.
    fn run_folder(&self, out: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.place.join(out)).ok()?;
        entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.is_dir())
    }

    fn is_saving(&self, out: &str) -> bool {
        let folder = self.run_folder(out).map(|run| run.join("checkpoints"));
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
        entries.is_some_and(|mut all| {
            all.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().contains("tmp")))
        })
    }

    fn end(&self, out: &str) -> anyhow::Result<End> {
        let run = self.run_folder(out).context("there is no run folder")?;
        ensure!(!self.is_saving(out), "{} has temporary files left", run.display());
        let newest = fs::read_dir(run.join("checkpoints"))?
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let epoch: u64 = path.file_name()?.to_str()?.strip_prefix("epoch_")?.parse().ok()?;
                Some((epoch, path))
            })
            .max()
            .context("there is no checkpoint")?
            .1;
        let read = |path: PathBuf| fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
        Ok((read(run.join("policy/policy.safetensors"))?, read(newest.join("state.safetensors"))?))
    }
}

fn kill(child: &mut Child, signal: &str) -> anyhow::Result<()> {
    if signal == "KILL" {
        return Ok(child.kill()?);
    }
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status()?;
    ensure!(sent.success() || child.try_wait()?.is_some(), "no signal could be sent");
    Ok(())
}
