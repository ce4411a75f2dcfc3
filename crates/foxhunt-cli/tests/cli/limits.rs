//! Limits that the system lays on the process.

use std::process::Command;

use crate::support::{Done, Place};

/// `foxhunt inspect` with so much address space, asked to start so many threads.
fn inspect(place: &Place, kib: u64, threads: u32) -> Done {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v \"$1\" && shift && exec \"$@\"", "sh", &kib.to_string()]);
    command.args([env!("CARGO_BIN_EXE_foxhunt"), "inspect", &place.text("bars.csv")]);
    command.env("RAYON_NUM_THREADS", threads.to_string()).env_remove("RUST_MIN_STACK");
    command.output().unwrap().into()
}

/// Stacks of 4,000 threads do not fit into 2 GB: fewer threads do the work, and the user is told.
#[cfg(target_os = "linux")]
#[test]
fn fewer_threads_than_asked_for_will_do() {
    let place = Place::new();
    let done = inspect(&place, 2_000_000, 4000).expect(0);
    let told = done.err.lines().next().unwrap();
    assert!(told.starts_with("warning: the system gives ") && told.contains(" of 4000 threads"), "{told}");
    assert!(done.out.contains("700 read"), "{}", done.out);
    let few = inspect(&place, 2_000_000, 2).expect(0);
    assert!(!few.err.contains("threads"), "{}", few.err);
    assert_eq!(few.out, done.out);
}
