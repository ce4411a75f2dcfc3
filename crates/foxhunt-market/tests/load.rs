//! Loading of bar files, from the outside: the samples, the known faults (cases G, F29, F35), dialects and dirt.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets one has failed")]

#[path = "load/support.rs"]
mod support;

#[path = "load/binary.rs"]
mod binary;
#[path = "load/binary_dirt.rs"]
mod binary_dirt;
#[path = "load/dialects.rs"]
mod dialects;
#[path = "load/dirt.rs"]
mod dirt;
#[path = "load/faults.rs"]
mod faults;
#[path = "load/footer.rs"]
mod footer;
#[path = "load/repair.rs"]
mod repair;
#[path = "load/samples.rs"]
mod samples;
#[path = "load/text.rs"]
mod text;
