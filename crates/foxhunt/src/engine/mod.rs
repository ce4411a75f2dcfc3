//! The engine seam: everything the trainer asks of a device.
//!
//! The trainer is written once over this trait. An engine owns network, optimiser, target network, environments,
//! replay memory and random counters; the trainer owns epochs, validation, early stop and checkpoints and sees
//! none of what the engine holds. The calls are coarse on purpose: a GPU engine answers each with a few graph
//! launches and no readback, a CPU engine with a loop. Nothing here names a tensor library.

pub(crate) mod arrays;
pub(crate) mod collect_arrays;
pub(crate) mod progress;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use foxhunt_core::record::EpochStats;
use foxhunt_market::Market;
use serde::{Deserialize, Serialize};

use crate::MLError;
use crate::evaluation::Backtest;
use crate::trainer::StopSignal;

/// A device that can train and run one agent.
pub trait Engine {
    /// Short name for reports: `cpu`, `cuda`.
    fn name(&self) -> &'static str;

    /// Advances every environment by `vector_steps` bars under the behaviour policy and stores the transitions.
    ///
    /// # Errors
    /// Any [`MLError`] of the device. A non-finite reward or state is no error: it is refused, counted and recorded.
    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError>;

    /// Does up to `updates` optimiser steps and gives how many it did, skipped ones among them. A non-finite step is
    /// skipped whole, counted and recorded. An engine that knows at once that a limit of `settings.guard` is reached
    /// may return early; one that learns of it late, like a GPU, does them all. Under the rollback policy every
    /// engine returns at the first skipped step, since where a rollback begins decides what is learned.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when the replay memory cannot fill a batch, and any [`MLError`] of the device.
    fn update(&mut self, updates: u32) -> Result<u32, MLError>;

    /// How long it worked since the last call, for rates; told right after [`Engine::drain`].
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn take_work_times(&mut self) -> Result<WorkTimes, MLError>;

    /// How much more than of the CPU engine to ask for at once: an engine that answers before the work is done gains
    /// from long chunks.
    fn chunk_scale(&self) -> u32 {
        1
    }

    /// Counts that can be had at any time without waiting for the device; they may lag behind it.
    fn status(&self) -> EngineStatus;

    /// Takes a copy of network, target network and optimiser as the last good one.
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn keep_good_copy(&mut self) -> Result<(), MLError>;

    /// Goes back to the last good copy (the initial network when none was taken). Replay memory, environments and
    /// every count stay, so the next updates draw other batches than the ones that failed.
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn roll_back(&mut self) -> Result<(), MLError>;

    /// What happened since the last call: the one readback of an epoch (case D10).
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn drain(&mut self) -> Result<EpochStats, MLError>;

    /// Runs the greedy policy over `window` of `market` and returns the backtest.
    ///
    /// # Errors
    /// [`MLError::Interrupted`] when `stop` asks for it, with the engine as it was; any [`MLError`] of the device.
    fn evaluate(
        &mut self,
        market: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError>;

    /// Everything needed to go on exactly here.
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn snapshot(&mut self) -> Result<Snapshot, MLError>;

    /// Takes up a snapshot. On an error the engine is unchanged.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] when the snapshot does not fit this engine's settings.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError>;

    /// Only the online network's parameters, as stored in a policy file.
    ///
    /// # Errors
    /// Any [`MLError`] of the device.
    fn parameters(&mut self) -> Result<Snapshot, MLError>;
}

/// Time an engine worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkTimes {
    /// On vector steps.
    pub collecting: Duration,
    /// On updates.
    pub updating: Duration,
}

/// What an engine can tell without stopping its device: the guard's pinned words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineStatus {
    /// Env steps since the start of training.
    pub env_steps: u64,
    /// Applied updates since the start of training.
    pub updates: u64,
    /// Skipped updates since the start of training.
    pub skipped_updates: u64,
    /// Longest row of updates skipped one after the other since the start of training.
    pub longest_skipped_row: u64,
    /// Longest row of updates whose gradient norm was below the collapse threshold since the start of training.
    pub longest_collapsed_row: u64,
}

/// Named arrays: the neutral form in which state leaves and enters an engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Arrays by name, for example `online.layer0.weight`.
    pub arrays: BTreeMap<String, Array>,
}

/// One array of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Values.
    pub data: ArrayData,
}

/// The values of an [`Array`].
#[derive(Clone, Debug, PartialEq)]
pub enum ArrayData {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
}
