//! The steps of continuous integration, in the order of cost. It installs nothing; a tool that is missing is
//! a failed step, not a skipped one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

/// A step: its name and its command line.
const STEPS: &[(&str, &[&str])] = &[
    ("fmt", &["cargo", "fmt", "--all", "--check"]),
    ("typos", &["typos"]),
    ("tidy", &["cargo", "xtask", "tidy"]),
    ("deny", &["cargo", "deny", "check", "licenses", "bans", "sources"]),
    ("test", &["cargo", "test", "--workspace"]),
    ("clippy", &["cargo", "clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("docs", &["cargo", "doc", "--workspace", "--no-deps"]),
    ("kernels", &["cargo", "xtask", "kernels"]),
    ("train", &["cargo", "run", "--release", "--", "train", "--epochs", "6", "--out", "target/ci-runs"]),
    ("learn", &["cargo", "run", "--release", "-p", "foxhunt-tests", "--example", "prove_learning"]),
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut table = Vec::new();
    for (name, command) in STEPS {
        println!("== {name}: {}", command.join(" "));
        let start = Instant::now();
        let status = Command::new(command[0])
            .args(&command[1..])
            .current_dir(root)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .with_context(|| format!("cannot start {}", command[0]))?;
        table.push(format!("{name:>8}  {:>7.1} s", start.elapsed().as_secs_f64()));
        if !status.success() {
            println!("{}", table.join("\n"));
            bail!("step {name} failed: {status}");
        }
    }
    println!("{}", table.join("\n"));
    Ok(())
}
