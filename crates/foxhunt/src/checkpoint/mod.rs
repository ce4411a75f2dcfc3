//! Checkpoints: everything needed to go on as if nothing had happened, in one folder each.
//!
//! `epoch_<n>/state.safetensors` holds every array (weights, target, moments, counters, ring, priorities, rank
//! order, environments, statistics in progress, best-so-far parameters) and `manifest.json` everything else, with
//! the checksum of both. A folder is written under a temporary name, flushed and renamed, so a name that looks like
//! a checkpoint is one, unless the disk lied; then the checksum says so and the previous one loads. Because random
//! numbers are pure functions of counters and schedules pure functions of counts, restoring arrays and counts
//! restores the run to the bit. Nothing is printed: what was passed over is returned as data.
//!
//! This module knows files and hashes. What the arrays mean is the engine's business, when to save the trainer's.

mod fault;
mod manifest;
pub(crate) mod sealed;
pub(crate) mod state_file;
pub(crate) mod store;

pub use fault::CheckpointFault;
pub(crate) use manifest::defining;
pub use manifest::{Manifest, settings_hash};
pub use store::{Checkpoint, CheckpointNumber, CheckpointStore, LoadOutcome, load, write_synced};

#[cfg(test)]
mod tests;
