//! `cargo xtask size`: the release binary is one stripped file below its limit.
//!
//! It looks at what the step before it in `ci` has built and builds nothing itself.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::kernels::target_dir;

/// Most bytes the binary may have.
const LIMIT: u64 = 40 << 20;

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let binary = target_dir(root).join("release").join(format!("foxhunt{}", std::env::consts::EXE_SUFFIX));
    let bytes = std::fs::metadata(&binary)
        .with_context(|| format!("{} is not there: cargo build --release", binary.display()))?
        .len();
    println!("{}: {:.1} MiB of {} allowed", binary.display(), bytes as f64 / (1 << 20) as f64, LIMIT >> 20);
    ensure!(bytes < LIMIT, "the release binary is too large");
    Ok(())
}
