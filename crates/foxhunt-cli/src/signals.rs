//! Ctrl-C and SIGTERM as a request to stop.
//!
//! The first signal asks: the update in progress is finished, the run saved, the process ends with 130 or 143.
//! A second one ends the process at once; checkpoints are renamed into place, so the last complete one is intact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context as _;
use foxhunt::trainer::StopSignal;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Makes a write to a file that may not grow further one that fails and is told, in every command, instead of the end of the
/// process.
pub(crate) fn outlive_file_limits() -> anyhow::Result<()> {
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .context("cannot install signal handlers")?;
    Ok(())
}

/// The signal that asked to stop, if any.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs the handlers.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let received = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the shutdown looks at what an earlier signal left behind.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
                .and_then(|_| {
                    signal_hook::flag::register_usize(signal, Arc::clone(&received), signal as usize)
                })
                .context("cannot install signal handlers")?;
        }
        Ok(Self { received })
    }

    /// The exit code that tells which signal it was: 130 for SIGINT, 143 for SIGTERM.
    pub(crate) fn exit_code(&self) -> u8 {
        128 + u8::try_from(self.received.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl StopSignal for Signals {
    fn stop_requested(&self) -> bool {
        self.received.stop_requested()
    }
}
