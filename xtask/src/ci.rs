//! The steps of continuous integration, in the order of cost. It installs nothing; a tool that is missing is
//! a failed step, not a skipped one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::kernels::target_dir;

/// A step: its name and its command line; what begins with `target/` was built by `test`.
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
    ("size", &["cargo", "xtask", "size"]),
    ("learn", &["target/debug/examples/prove_learning"]),
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut table = Vec::new();
    for (name, command) in STEPS {
        println!("== {name}: {}", command.join(" "));
        let start = Instant::now();
        let program = match command[0].strip_prefix("target/") {
            Some(built) => target_dir(root).join(built),
            None => command[0].into(),
        };
        let status = Command::new(&program)
            .args(&command[1..])
            .current_dir(root)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .with_context(|| format!("cannot start {}", program.display()))?;
        table.push(format!("{name:>8}  {:>7.1} s", start.elapsed().as_secs_f64()));
        if !status.success() {
            println!("{}", table.join("\n"));
            bail!("step {name} failed: {status}");
        }
    }
    println!("{}", table.join("\n"));
    Ok(())
}
