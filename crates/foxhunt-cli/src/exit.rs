//! How a command ends: with a code, or with an error that has one.

use std::process::ExitCode;

use foxhunt::MLError;
use foxhunt_core::SettingsError;

use crate::resolve::UsageError;

/// The run did what was asked.
pub(crate) const OK: u8 = 0;
/// The run failed.
pub(crate) const FAILED: u8 = 1;
/// What was asked makes no sense.
pub(crate) const USAGE: u8 = 2;

/// The exit code an error calls for: 2 when the command line or a settings file is at fault, else 1.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    let usage = error.chain().any(|cause| {
        cause.is::<UsageError>()
            || cause.is::<SettingsError>()
            || matches!(cause.downcast_ref::<MLError>(), Some(MLError::Settings(_)))
    });
    if usage { USAGE } else { FAILED }
}

/// `code` as the process's.
pub(crate) fn code(code: u8) -> ExitCode {
    ExitCode::from(code)
}
