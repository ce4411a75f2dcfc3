//! The `foxhunt` command as its user meets it: exit codes, streams, signals, files of every sort.
#![allow(clippy::unwrap_used, clippy::panic)]

mod export;
mod files;
mod hostile;
mod limits;
mod stops;
mod streams;
mod support;
mod usage;
mod verdict;
mod watch;
