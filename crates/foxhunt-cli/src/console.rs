//! What the user sees: text to standard output and notices to standard error.
//!
//! A reader that goes away (`foxhunt train | head -1`) never ends a run: the first failed write closes the
//! stream for good and everything after it is dropped (case H07).
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

static OUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Writes `text` and a line end to standard output.
pub(crate) fn line(text: &str) {
    if OUT_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        OUT_CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Writes a notice to standard error; a failure to do so is nobody's concern.
pub(crate) fn notice(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether progress can be drawn: standard error is a terminal that understands control codes.
pub(crate) fn interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
