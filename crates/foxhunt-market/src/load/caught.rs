//! Panics of decoders, which are errors of the file.
//!
//! The Parquet decoder panics on some damaged files. [`caught`] turns such a panic into an error, but before a panic
//! unwinds, the process's panic hook has printed it. A library must not change that hook, so it says instead which
//! panics are answered: a program's own hook can ask [`panic_is_caught`] and stay quiet.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread now would be caught and returned as the error of a bar file.
#[must_use]
pub fn panic_is_caught() -> bool {
    DECODING.get()
}

/// Runs `decode`, which must not hand work to other threads; its panics are caught by [`caught`] further up.
pub(super) fn decoding<T>(decode: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            DECODING.set(self.0);
        }
    }
    let _leave = Leave(DECODING.replace(true));
    decode()
}

/// Runs `read`; what it panics with, as text.
pub(super) fn caught<T>(read: impl FnOnce() -> T + std::panic::UnwindSafe) -> Result<T, String> {
    std::panic::catch_unwind(read).map_err(|panic: Box<dyn Any + Send>| {
        match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => (*text).to_owned(),
            (None, None) => "the decoder gave up".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_and_the_moment_of_decoding_are_marked() {
        assert!(!panic_is_caught());
        let elsewhere = decoding(|| {
            assert!(panic_is_caught());
            decoding(|| assert!(panic_is_caught()));
            assert!(panic_is_caught(), "the outer one goes on");
            std::thread::spawn(panic_is_caught).join().unwrap()
        });
        assert!(!elsewhere && !panic_is_caught());
        // Planted without the hook, which would print here.
        let told = caught(|| decoding(|| std::panic::resume_unwind(Box::new("planted"))));
        assert_eq!(told.unwrap_err(), "planted");
        assert!(!panic_is_caught(), "left by unwinding as well");
    }
}
