//! The threads that bars are read and networks trained with, had once, before any work.
//!
//! Asked for them in the middle of work, rayon panics where the system gives none (a limit on processes or on address
//! space). Asked here, fewer will do, and none is an error like any other.

use anyhow::Context as _;
use rayon::ThreadPoolBuilder;

use crate::console;

/// Starts as many threads as there are cores, or as many as can be had.
///
/// # Errors
/// When not even one can.
pub(crate) fn start() -> anyhow::Result<()> {
    let wanted = rayon::max_num_threads().min(wanted());
    let mut threads = wanted;
    // A pool that fails to start cannot be started again, so a number is tried on one that is dropped.
    while let Err(error) = ThreadPoolBuilder::new().num_threads(threads).build() {
        if threads == 1 {
            return Err(error).context("cannot start a thread");
        }
        threads /= 2;
    }
    if threads < wanted {
        console::notice(&format!(
            "warning: the system gives {threads} of {wanted} threads; work takes longer"
        ));
    }
    ThreadPoolBuilder::new().num_threads(threads).build_global().context("cannot start threads")
}

/// As many as rayon starts by itself: what its own variable says, else a thread a core.
fn wanted() -> usize {
    let told = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    told.filter(|&threads| threads > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
