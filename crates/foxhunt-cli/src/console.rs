//! What the user sees: text to standard output and notices to standard error.
//!
//! A reader that goes away (`foxhunt train | head -1`) never ends a run: the first failed write closes the
//! stream for good and everything after it is dropped (case H07). Names and values out of files are shown, never obeyed:
//! control codes in them are written as JSON writes them, `\u001b`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static OUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUT_LOST: AtomicBool = AtomicBool::new(false);

/// Writes `text` and a line end to standard output.
pub(crate) fn line(text: &str) {
    write(&[harmless(text).as_bytes(), b"\n"].concat());
}

/// Writes text of our own making to standard output as it is, control codes included.
pub(crate) fn verbatim(text: &[u8]) {
    write(text);
}

fn write(text: &[u8]) {
    if OUT_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text).and_then(|()| out.flush()) {
        OUT_CLOSED.store(true, Ordering::Relaxed);
        if error.kind() != std::io::ErrorKind::BrokenPipe && !OUT_LOST.swap(true, Ordering::Relaxed) {
            notice(&format!("error: cannot write to standard output: {error}"));
        }
    }
}

/// Whether text was lost for another reason than a reader that went away, such as a full disk.
pub(crate) fn output_lost() -> bool {
    OUT_LOST.load(Ordering::Relaxed)
}

/// Writes a notice to standard error; a failure to do so is nobody's concern.
pub(crate) fn notice(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", harmless(text));
}

/// From now on a panic that is caught and told as the error of a bar file is not printed as well; any other is told
/// the usual way. Called before there is a second thread, because a hook is the process's.
pub(crate) fn hush_caught_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !foxhunt_market::panic_is_caught() {
                usual(panic);
            }
        }));
    });
}

/// `text` with every control code but the line end spelt out.
fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n';
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let spelt = |c: char| if obeyed(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(spelt).collect())
}

/// Whether progress can be drawn: standard error is a terminal that understands control codes.
pub(crate) fn interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
