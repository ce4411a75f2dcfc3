//! `cargo xtask gpu-bundle`: the folder `gpu-bundle/` (ignored by git) with all that a machine with a GPU needs.
//!
//! It holds the program `foxhunt`, the GPU tests, the engine tests and the proof of learning as plain executables, the
//! peers' scripts and wheels where they are given, and `run.sh`, which runs them and prints a table. CUDA is needed
//! neither here nor, beyond driver and NVRTC, there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Most bytes the bundle may have.
const LIMIT: u64 = 60 << 20;

/// What to pack.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder with the peers' scripts.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Folder with wheels that the peers need.
    #[arg(long)]
    wheels: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let bundle = root.join("gpu-bundle");
    std::fs::create_dir_all(&bundle)?;
    let tests = build(root, &["test", "--workspace", "--no-run", "--test", "gpu", "--test", "it"])?;
    let program = build(root, &["build", "--release", "--package", "foxhunt-cli"])?;
    let proof = build(root, &["build", "--workspace", "--example", "prove_learning"])?;
    for (name, built) in [("gpu", &tests), ("it", &tests), ("foxhunt", &program), ("prove_learning", &proof)]
    {
        let from =
            built.iter().find(|path| stem(path) == name).with_context(|| format!("cargo built no {name}"))?;
        let to = bundle.join(name);
        std::fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        // Symbols are most of the size; a machine without `strip` carries them along.
        let _ = Command::new("strip").arg(&to).status();
    }
    std::fs::copy(root.join("xtask/gpu/run.sh"), bundle.join("run.sh"))?;
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output()?;
    std::fs::write(bundle.join("COMMIT"), commit.stdout)?;
    for (from, name) in [(&options.peers, "peers"), (&options.wheels, "wheels")] {
        if let Some(from) = from {
            copy_files(from, &bundle.join(name))?;
        }
    }
    let bytes = size(&bundle)?;
    ensure!(bytes < LIMIT, "the bundle has {bytes} bytes, more than {LIMIT}");
    println!("{}: {:.1} MB; on the machine: gpu-bundle/run.sh", bundle.display(), bytes as f64 / 1e6);
    Ok(())
}

/// Runs cargo with `args`; returns the executables that it names.
fn build(root: &Path, args: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("cargo")
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the build failed");
    let text = String::from_utf8(output.stdout).context("cargo's messages are not text")?;
    let key = "\"executable\":\"";
    Ok(text.lines().filter_map(|l| l.split(key).nth(1)?.split('"').next()).map(PathBuf::from).collect())
}

/// Name of an executable without the hash that cargo adds to tests.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 => stem.to_owned(),
        _ => name,
    }
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if path.is_file() {
            // Read and write rather than copy, which would carry a read-only mode along.
            let name = path.file_name().unwrap_or_default();
            std::fs::write(to.join(name), std::fs::read(&path)?)?;
        }
    }
    Ok(())
}

fn size(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
