//! The rules of the house that the compiler does not know: crate edges, module docs, file sizes, rooms for
//! `unsafe`, the length and truth of ARCHITECTURE.md, no readback on the hot path, a reason for every
//! dependency, the time of day in few places, and nothing of any one machine in the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{dependencies, hot_path};

/// The crates in order: each may use only those before it.
const ORDER: &[&str] = &[
    "foxhunt-core",
    "foxhunt-cuda",
    "foxhunt-market",
    "foxhunt-ops",
    "foxhunt",
    "foxhunt-report",
    "foxhunt-cli",
    "foxhunt-tests",
];

/// Edges that the order would allow but the design does not want.
const FORBIDDEN: &[(&str, &str)] = &[("foxhunt-market", "foxhunt-cuda")];

/// The only crate that may name the tensor library.
const TENSOR_CRATE: &str = "foxhunt";

/// The only files that may ask for the time of day, for a name or a date that somebody reads.
const WALL_CLOCK: &[&str] = &[
    "crates/foxhunt/src/ledger/mod.rs",
    "crates/foxhunt/src/run_folder.rs",
    "crates/foxhunt-cli/src/report.rs",
    "crates/foxhunt-report/src/tensorboard.rs",
];

const MAX_LINES: usize = 600;
const MAX_ARCHITECTURE_LINES: usize = 200;

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = tracked(root)?;
    let mut faults = Vec::new();
    edges(root, &mut faults)?;
    for file in &files {
        source_rules(root, file, &mut faults)?;
    }
    architecture(root, &mut faults)?;
    dependencies::check(root, &mut faults)?;
    hot_path::check(root, &mut faults)?;
    if faults.is_empty() {
        println!("tidy: {} files, no faults", files.len());
        return Ok(());
    }
    for fault in &faults {
        println!("{fault}");
    }
    bail!("tidy found {} faults", faults.len());
}

/// Files git tracks or would track.
fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("a tracked file name is not UTF-8")?;
    Ok(names.split('\0').filter(|n| !n.is_empty() && root.join(n).is_file()).map(PathBuf::from).collect())
}

fn edges(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    for (place, name) in ORDER.iter().enumerate() {
        let path = root.join("crates").join(name).join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: toml::Table = text.parse().with_context(|| format!("{}", path.display()))?;
        let Some(dependencies) = manifest.get("dependencies").and_then(toml::Value::as_table) else {
            continue;
        };
        for used in dependencies.keys() {
            if used.starts_with("candle") && *name != TENSOR_CRATE && *name != "foxhunt-tests" {
                faults.push(format!("{name} uses {used}; only {TENSOR_CRATE} may name the tensor library"));
            }
            let Some(used_place) = ORDER.iter().position(|n| n == used) else { continue };
            if used_place >= place || FORBIDDEN.contains(&(name, used)) {
                faults
                    .push(format!("{name} uses {used}; a crate may use only those to its left in {ORDER:?}"));
            }
        }
    }
    for entry in fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !ORDER.contains(&name.as_str()) {
            faults.push(format!("crate {name} has no place in the order of xtask/src/tidy.rs"));
        }
    }
    Ok(())
}

fn source_rules(root: &Path, file: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let name = file.to_string_lossy();
    let Ok(text) = fs::read_to_string(root.join(file)) else { return Ok(()) };
    // Built from parts so that this file does not trip over itself.
    for place in [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")] {
        if let Some(line) = text.lines().position(|l| l.contains(place)) {
            faults.push(format!("{name}:{}: a path of one machine ({place})", line + 1));
        }
    }
    if !name.ends_with(".rs") {
        return Ok(());
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{name}: {lines} lines; split it by noun (limit {MAX_LINES})"));
    }
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    if !is_test && !text.starts_with("//!") {
        faults.push(format!("{name}: does not begin with `//!` saying its job"));
    }
    if !is_test && !WALL_CLOCK.contains(&&*name) {
        for clock in [concat!("System", "Time::now"), concat!("Time", "stamp::now")] {
            if let Some(line) = text.lines().position(|l| l.contains(clock)) {
                faults.push(format!("{name}:{}: asks for the time of day, which may jump", line + 1));
            }
        }
    }
    // GPU tests launch kernels of their own.
    let gpu_test = name.starts_with("crates/foxhunt-ops/tests/gpu/");
    let room_for_unsafe = name.starts_with("crates/foxhunt-cuda/") || name.ends_with("/cuda.rs") || gpu_test;
    let marked = ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"];
    if !room_for_unsafe && file != Path::new("xtask/src/tidy.rs") {
        for (at, line) in text.lines().enumerate() {
            if marked.iter().any(|m| line.contains(m)) {
                faults.push(format!("{name}:{}: unsafe code outside foxhunt-cuda and cuda.rs", at + 1));
            }
        }
    }
    Ok(())
}

fn architecture(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let path = root.join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).context("cannot read ARCHITECTURE.md")?;
    let lines = text.lines().count();
    if lines > MAX_ARCHITECTURE_LINES {
        faults.push(format!("ARCHITECTURE.md: {lines} lines (limit {MAX_ARCHITECTURE_LINES})"));
    }
    for name in ORDER {
        if !text.contains(&format!("`{name}`")) {
            faults.push(format!("ARCHITECTURE.md does not mention `{name}`"));
        }
    }
    // Every path in backquotes that looks like one of ours must exist.
    for word in text.split('`').skip(1).step_by(2) {
        let ours = word.starts_with("crates/") || word.starts_with("docs/") || word.starts_with("xtask/");
        if ours && !root.join(word).exists() {
            faults.push(format!("ARCHITECTURE.md names {word}, which does not exist"));
        }
    }
    Ok(())
}
