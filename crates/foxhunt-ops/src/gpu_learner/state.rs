//! What a learner knows about its own progress, in device memory.
//!
//! Everything that changes from update to update and is not a parameter lives here, so that captured updates replay
//! without the host; `step.cuh` moves it on.

use foxhunt_cuda::{CudaError, DeviceBuffer, DevicePtr, Launch, Stream, shared_struct};

use crate::guard::cuda::{FaultState, GuardState};
use crate::guard::gate::Findings;
use crate::learner::{EpochSums, Progress};

/// Text of `step.cuh`.
pub(crate) const STEP_CUH: &str = include_str!("step.cuh");

shared_struct! {
    /// Counts, sums of the epoch, and the running update.
    pub(crate) struct StepState {
        pub(crate) updates: u64,
        pub(crate) skipped: u64,
        pub(crate) skipped_in_row: u64,
        pub(crate) collapsed_in_row: u64,
        pub(crate) longest_skipped_row: u64,
        pub(crate) longest_collapsed_row: u64,
        pub(crate) epoch_updates: u64,
        pub(crate) epoch_skipped: u64,
        pub(crate) collapsed_updates: u64,
        pub(crate) loss_clipped_updates: u64,
        pub(crate) td_sum: f64,
        loss_of_rows: f64,
        td_of_rows: f64,
        step_size: f32,
        root_factor: f32,
        collapse_threshold: f32,
        warmup: u32,
        bad_td: u32,
        bad_states: u32,
        bad_rewards: u32,
        ticket: u32,
    }
}

shared_struct! {
    /// What the sums over a sub-batch's rows need, and behind the last one the step.
    pub(crate) struct SumArgs {
        pub(crate) losses: DevicePtr<f32>,
        pub(crate) td: DevicePtr<f32>,
        pub(crate) state: DevicePtr<StepState>,
        pub(crate) findings: DevicePtr<Findings>,
        pub(crate) adam_t: DevicePtr<u64>,
        pub(crate) rows_total: f64,
        pub(crate) rate_start: f64,
        pub(crate) rate_end: f64,
        pub(crate) rate_steps: u64,
        pub(crate) beta1: f64,
        pub(crate) beta2: f64,
        pub(crate) collapse_multiplier: f64,
        pub(crate) collapse_warmup: u64,
        pub(crate) first: u32,
        pub(crate) last: u32,
    }
}

/// The small buffers around an update.
#[derive(Debug)]
pub(crate) struct StepBuffers {
    pub(crate) state: DeviceBuffer<StepState>,
    pub(crate) findings: DeviceBuffer<Findings>,
    pub(crate) sums: DeviceBuffer<GuardState>,
    pub(crate) faults: DeviceBuffer<FaultState>,
    /// Not 0 refuses the priorities of the last update.
    pub(crate) gate: DeviceBuffer<u32>,
}

impl StepBuffers {
    pub(crate) fn zeros(stream: &Stream) -> Result<Self, CudaError> {
        Ok(Self {
            state: stream.zeros("learner state", 1)?,
            findings: stream.zeros("guard findings", 1)?,
            sums: stream.zeros("guard sums", 1)?,
            faults: stream.zeros("fault counts", 1)?,
            gate: stream.zeros("gate", 1)?,
        })
    }

    pub(crate) fn bytes() -> u64 {
        (size_of::<StepState>()
            + size_of::<Findings>()
            + size_of::<GuardState>()
            + size_of::<FaultState>()
            + 4) as u64
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch.keep(&self.state).keep(&self.findings).keep(&self.sums).keep(&self.faults).keep(&self.gate)
    }

    /// Counts and sums as they stand. Reads back.
    pub(crate) fn download(&self, stream: &Stream) -> Result<(Progress, EpochSums), CudaError> {
        let state = one(stream, &self.state)?;
        let guard = one(stream, &self.sums)?.sums();
        let words = [
            state.updates,
            state.skipped,
            state.skipped_in_row,
            state.collapsed_in_row,
            state.longest_skipped_row,
            state.longest_collapsed_row,
        ];
        let sums = EpochSums {
            guard,
            td_error: state.td_sum,
            updates: state.epoch_updates,
            skipped: state.epoch_skipped,
            collapsed_updates: state.collapsed_updates,
            loss_clipped_updates: state.loss_clipped_updates,
        };
        Ok((Progress::from_words(words), sums))
    }

    /// Takes up counts and sums.
    pub(crate) fn upload(
        &mut self,
        stream: &Stream,
        progress: &Progress,
        sums: &EpochSums,
    ) -> Result<(), CudaError> {
        let zero: StepState = foxhunt_cuda::bytemuck::Zeroable::zeroed();
        let state = StepState {
            updates: progress.counts.updates,
            skipped: progress.counts.skipped,
            skipped_in_row: progress.counts.skipped_in_row,
            collapsed_in_row: progress.counts.collapsed_in_row,
            longest_skipped_row: progress.longest_skipped_row,
            longest_collapsed_row: progress.longest_collapsed_row,
            epoch_updates: sums.updates,
            epoch_skipped: sums.skipped,
            collapsed_updates: sums.collapsed_updates,
            loss_clipped_updates: sums.loss_clipped_updates,
            td_sum: sums.td_error,
            ..zero
        };
        stream.upload(&mut self.state, &[state])?;
        stream.upload(&mut self.sums, &[GuardState::from_sums(&sums.guard)])
    }
}

fn one<T: foxhunt_cuda::bytemuck::Pod>(stream: &Stream, buffer: &DeviceBuffer<T>) -> Result<T, CudaError> {
    let values = stream.download(buffer)?;
    values.first().copied().ok_or(CudaError::Length { what: buffer.what(), got: 0, expected: 1 })
}
