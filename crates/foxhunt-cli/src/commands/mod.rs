//! One module a command. Each returns the exit code; an error is printed by `main`.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod inspect;
pub(crate) mod lookahead;
pub(crate) mod resume;
pub(crate) mod shell;
pub(crate) mod train;
pub(crate) mod walk_forward;

mod finish;
