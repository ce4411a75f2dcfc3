//! `cargo xtask kernels`: every CUDA kernel compiles for every target, on a machine without a device.
//!
//! The work is the example `kernels` of foxhunt-ops, which goes the same way as the product. This task only finds
//! NVRTC: `FOXHUNT_NVRTC`, else the wheel in a virtual environment under `target/`, installed on first use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// The compiler that the kernels are checked with.
const WHEEL: &str = "nvidia-cuda-nvrtc==13.0.88";

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let nvrtc = match std::env::var_os("FOXHUNT_NVRTC") {
        Some(path) => PathBuf::from(path),
        None => from_wheel(root)?,
    };
    // Built as the tests build it, so that neither builds the other's crates again with other features.
    let built = Command::new("cargo")
        .args(["build", "--workspace", "--example", "kernels"])
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the compile check does not build");
    let program = target_dir(root).join("debug/examples/kernels");
    let status = Command::new(&program)
        .current_dir(root)
        .env("FOXHUNT_NVRTC", nvrtc)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "a kernel does not compile");
    Ok(())
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The folder with libnvrtc in a virtual environment of our own.
fn from_wheel(root: &Path) -> anyhow::Result<PathBuf> {
    let venv = root.join("target/nvrtc-venv");
    if let Some(dir) = library_dir(&venv) {
        return Ok(dir);
    }
    println!("installing {WHEEL} into {}", venv.display());
    let run = |program: &Path, args: &[&str]| -> anyhow::Result<()> {
        let status = Command::new(program).args(args).current_dir(root).status();
        let status = status.with_context(|| format!("cannot start {}", program.display()))?;
        ensure!(status.success(), "{} {} failed", program.display(), args.join(" "));
        Ok(())
    };
    run(Path::new("python3"), &["-m", "venv", "target/nvrtc-venv"])?;
    run(&venv.join("bin/python"), &["-m", "pip", "install", "--quiet", WHEEL])?;
    match library_dir(&venv) {
        Some(dir) => Ok(dir),
        None => bail!("{WHEEL} holds no libnvrtc"),
    }
}

/// `lib/python*/site-packages/nvidia/*/lib` with a libnvrtc in it.
fn library_dir(venv: &Path) -> Option<PathBuf> {
    let children = |dir: PathBuf| -> Vec<PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect()
    };
    let starts = |path: &Path, prefix: &str| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    children(venv.join("lib"))
        .into_iter()
        .filter(|p| starts(p, "python"))
        .flat_map(|p| children(p.join("site-packages/nvidia")))
        .map(|p| p.join("lib"))
        .find(|lib| children(lib.clone()).iter().any(|f| starts(f, "libnvrtc.so")))
}
