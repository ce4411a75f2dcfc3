//! The threads that bars are read and networks trained with, had once, before any work.
//!
//! Asked for them in the middle of work, rayon panics where the system gives none (a limit on processes or on address
//! space). Asked here, fewer will do, and none is an error like any other.

use std::sync::{PoisonError, RwLock};
use std::thread;

use anyhow::Context as _;
use rayon::ThreadPoolBuilder;

use crate::console;

/// Starts as many threads as there are cores, or some of those that can be had.
///
/// # Errors
/// When not even one can.
pub(crate) fn start() -> anyhow::Result<()> {
    let wanted = wanted();
    let (can_be_had, refusal) = try_out(wanted);
    let threads = match refusal {
        None => wanted,
        Some(error) if can_be_had == 0 => return Err(error).context("cannot start a thread"),
        // The work needs some of the room that the others would take.
        Some(_) => can_be_had.div_ceil(2),
    };
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
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Starts up to `wanted` threads at a time, and ends them; how many there were, and why there was not one more. A pool
/// of rayon that fails cannot be asked again, and leaves threads behind that take a while to end.
fn try_out(wanted: usize) -> (usize, Option<std::io::Error>) {
    let gate = RwLock::new(());
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let wait = || drop(gate.read().unwrap_or_else(PoisonError::into_inner));
        let mut handles = Vec::new();
        let mut refusal = None;
        while handles.len() < wanted && refusal.is_none() {
            match thread::Builder::new().spawn_scoped(scope, wait) {
                Ok(handle) => handles.push(handle),
                Err(error) => refusal = Some(error),
            }
        }
        drop(closed);
        let count = handles.len();
        // Each until the system has taken it back.
        for handle in handles {
            let _ = handle.join();
        }
        (count, refusal)
    })
}
