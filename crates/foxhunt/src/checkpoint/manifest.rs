//! What a checkpoint says about itself.

use foxhunt_core::Settings;
use foxhunt_core::settings::ReplaySettings;
use foxhunt_market::Normaliser;
use serde::{Deserialize, Serialize};

use super::sealed::Format;
use super::state_file::Fingerprint;
use crate::engine::EngineStatus;
use crate::trainer::TrainerState;

/// Kind and newest version of `manifest.json`.
pub(crate) const FORMAT: Format = Format { name: "foxhunt checkpoint", version: 1 };

/// Everything of a checkpoint that is not an array.
///
/// Version 1. The file also holds `format`, `version`, the version of Foxhunt that wrote it and its own checksum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name of the engine that took the snapshot.
    pub engine: String,
    /// The settings of the run, as given; loading never changes them (case B12).
    pub settings: Settings,
    /// [`settings_hash`] of `settings`.
    pub settings_hash: String,
    /// Hash of the bars trained on.
    pub data_hash: String,
    /// The engine's own counts at the snapshot.
    pub status: EngineStatus,
    /// Where the training loop stands.
    pub trainer: TrainerState,
    /// How features are scaled; fitted on the training split only (case F33).
    pub normaliser: Normaliser,
    /// Bytes of `state.safetensors`; filled in by the store.
    pub state_bytes: u64,
    /// BLAKE3 of `state.safetensors`, hex; filled in by the store.
    pub state_blake3: String,
}

impl Manifest {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { bytes: self.state_bytes, blake3: self.state_blake3.clone() }
    }
}

/// A short name of what a run is defined by: BLAKE3 over the settings as JSON, hex. Where a run is kept, how
/// many threads it takes, how many runs go at a time, how rows are stored and how many checkpoints are kept are left out, because they
/// change no result.
#[must_use]
pub fn settings_hash(settings: &Settings) -> String {
    let json = serde_json::to_vec(&defining(settings)).expect("settings are plain data with text keys");
    blake3::hash(&json).to_hex().to_string()
}

/// `settings` with every key that changes no result as if it had not been given.
pub(crate) fn defining(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.run.dir = Default::default();
    settings.run.threads = 0;
    settings.checkpoint = Default::default();
    settings.walk_forward.parallel = 0;
    settings.replay.storage = ReplaySettings::default().storage;
    settings
}
