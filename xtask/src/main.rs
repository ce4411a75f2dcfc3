//! Development tasks: `cargo xtask <task>`.
//!
//! Each task lives in its own module. Nothing here is part of the product.
#![allow(clippy::print_stdout)]

mod ci;
mod dependencies;
mod gpu_bundle;
mod hot_path;
mod kernels;
mod size;
mod tidy;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Development tasks of the Foxhunt workspace")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change must pass, in the order of cost.
    Ci,
    /// The rules of the house that the compiler does not know.
    Tidy,
    /// Every CUDA kernel compiles for every target; needs no device.
    Kernels,
    /// The release binary that was built is below its limit.
    Size,
    /// Packs GPU tests, bench and peers for a machine with a GPU.
    GpuBundle(gpu_bundle::Options),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().task {
        Task::Ci => ci::run(&root()),
        Task::Tidy => tidy::run(&root()),
        Task::Kernels => kernels::run(&root()),
        Task::Size => size::run(&root()),
        Task::GpuBundle(options) => gpu_bundle::run(&root(), &options),
    }
}

/// The workspace root: the parent of this crate's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
