//! The buffers of a learner on the device, and how many bytes they are.

use foxhunt_core::settings::NanPolicy;
use foxhunt_cuda::{CudaError, DeviceBuffer, Launch, Stream};

use super::state::StepBuffers;
use super::{GpuLearnerConfig, GpuLearnerError};
use crate::adam::cuda::square_blocks;
use crate::error::check_len;
use crate::learner::LearnerState;
use crate::mlp::MlpLayout;
use crate::mlp::cuda::stride;
use crate::mlp::tiles::segment;
use crate::network_pass::plan::Plan;
use crate::noise::cuda::Drawn;
use crate::td_loss::TargetRule;
use crate::td_loss::cuda::RowResults;

/// Most bytes for gradients of segments apart; above, a block takes the segments one after the other.
const PART_BYTES: u64 = 1 << 30;

/// The parameters and what goes with them: what a rollback brings back.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// f32 `[layout.len()]`, as the other three.
    pub(crate) online: DeviceBuffer<f32>,
    pub(crate) target: DeviceBuffer<f32>,
    pub(crate) m: DeviceBuffer<f32>,
    pub(crate) v: DeviceBuffer<f32>,
    /// Steps that the moments hold.
    pub(crate) adam_t: DeviceBuffer<u64>,
}

impl Parameters {
    pub(crate) fn zeros(stream: &Stream, n: usize) -> Result<Self, CudaError> {
        Ok(Self {
            online: stream.zeros("online parameters", n)?,
            target: stream.zeros("target parameters", n)?,
            m: stream.zeros("first moments", n)?,
            v: stream.zeros("second moments", n)?,
            adam_t: stream.zeros("optimiser step", 1)?,
        })
    }

    fn bytes(n: usize) -> u64 {
        16 * n as u64 + 8
    }

    /// Queues a copy of everything from `other`.
    pub(crate) fn copy_from(&mut self, stream: &Stream, other: &Self) -> Result<(), CudaError> {
        stream.copy(&mut self.online, &other.online)?;
        stream.copy(&mut self.target, &other.target)?;
        stream.copy(&mut self.m, &other.m)?;
        stream.copy(&mut self.v, &other.v)?;
        stream.copy(&mut self.adam_t, &other.adam_t)
    }

    /// Copies everything to the host.
    pub(crate) fn download(&self, stream: &Stream) -> Result<LearnerState, CudaError> {
        Ok(LearnerState {
            online: stream.download(&self.online)?,
            target: stream.download(&self.target)?,
            m: stream.download(&self.m)?,
            v: stream.download(&self.v)?,
            adam_t: stream.download(&self.adam_t)?[0],
        })
    }

    /// Takes up what was copied; nothing of another layout.
    pub(crate) fn upload(&mut self, stream: &Stream, state: &LearnerState) -> Result<(), GpuLearnerError> {
        let parts = [("online", &state.online), ("target", &state.target), ("m", &state.m), ("v", &state.v)];
        for (what, values) in parts {
            check_len(what, values.len(), self.online.len())?;
        }
        stream.upload(&mut self.online, &state.online)?;
        stream.upload(&mut self.target, &state.target)?;
        stream.upload(&mut self.m, &state.m)?;
        stream.upload(&mut self.v, &state.v)?;
        Ok(stream.upload(&mut self.adam_t, &[state.adam_t])?)
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch.keep(&self.online).keep(&self.target).keep(&self.m).keep(&self.v).keep(&self.adam_t)
    }
}

/// The gradient of an update.
#[derive(Debug)]
pub(crate) struct Gradient {
    /// f32 `[layout.len()]`; the scales' behind that of the weights.
    pub(crate) whole: DeviceBuffer<f32>,
    /// f32 `[splits, part_stride]`, a gradient for each segment of rows.
    pub(crate) parts: Option<DeviceBuffer<f32>>,
    /// Rows of a segment.
    pub(crate) segment: usize,
    /// Segments apart; 1 without parts.
    pub(crate) splits: usize,
    pub(crate) part_stride: usize,
    /// f64, sums of squares of blocks of 1,024 values.
    pub(crate) squares: DeviceBuffer<f64>,
}

/// Activations of a forward pass that nobody goes back through: two buffers in turn, and the head.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) hidden: [DeviceBuffer<f32>; 2],
    pub(crate) head: DeviceBuffer<f32>,
}

/// Activations and their gradients.
#[derive(Debug)]
pub(crate) struct Activations {
    /// Online network on the states: f32 `[batch, stride(units)]` a hidden layer.
    pub(crate) kept: Vec<DeviceBuffer<f32>>,
    /// f32 `[batch, stride(outputs)]`.
    pub(crate) head: DeviceBuffer<f32>,
    /// Online network on the next states for double DQN, or target network on the states for Munchausen.
    pub(crate) beside: Option<Passing>,
    pub(crate) target_next: Passing,
    pub(crate) dhead: DeviceBuffer<f32>,
    pub(crate) dhidden: [DeviceBuffer<f32>; 2],
}

/// Whether targets ask for more than the target network on the next states.
fn asks_beside(config: &GpuLearnerConfig) -> bool {
    let rule = TargetRule::of(&config.learner);
    rule.asks_online() || rule.asks_target()
}

fn widest(layout: &MlpLayout) -> usize {
    stride(layout.shape().hidden.iter().copied().max().unwrap_or(0))
}

impl Passing {
    /// The inputs of layer `l`, from the second on.
    pub(crate) fn units(&self, l: usize) -> &DeviceBuffer<f32> {
        &self.hidden[(l + 1) % 2]
    }

    /// Without hidden units where they stay in shared memory (`heads_only`).
    pub(crate) fn zeros(
        stream: &Stream,
        layout: &MlpLayout,
        rows: usize,
        heads_only: bool,
    ) -> Result<Self, CudaError> {
        let units = if heads_only { 0 } else { rows };
        let hidden = || stream.zeros("passing activations", [units, widest(layout)]);
        let head = stream.zeros("head outputs", [rows, stride(layout.head().n_out)])?;
        Ok(Self { hidden: [hidden()?, hidden()?], head })
    }

    fn bytes(layout: &MlpLayout, rows: usize) -> u64 {
        4 * rows as u64 * (2 * widest(layout) + stride(layout.head().n_out)) as u64
    }
}

impl Activations {
    /// Gradient of the inputs of layer `l`, from the second on.
    pub(crate) fn dunits(&self, l: usize) -> &DeviceBuffer<f32> {
        &self.dhidden[(l + 1) % 2]
    }

    pub(crate) fn zeros(
        stream: &Stream,
        layout: &MlpLayout,
        config: &GpuLearnerConfig,
        heads_only: bool,
    ) -> Result<Self, CudaError> {
        let rows = config.learner.batch;
        let units_rows = if heads_only { 0 } else { rows };
        let head = stride(layout.head().n_out);
        let kept = layout.shape().hidden.iter();
        let delta = || stream.zeros("activation gradients", [units_rows, widest(layout)]);
        Ok(Self {
            kept: kept
                .map(|&units| stream.zeros("activations", [units_rows, stride(units)]))
                .collect::<Result<_, _>>()?,
            head: stream.zeros("head outputs", [rows, head])?,
            beside: asks_beside(config)
                .then(|| Passing::zeros(stream, layout, rows, heads_only))
                .transpose()?,
            target_next: Passing::zeros(stream, layout, rows, heads_only)?,
            dhead: stream.zeros("head gradient", [rows, head])?,
            dhidden: [delta()?, delta()?],
        })
    }

    fn bytes(layout: &MlpLayout, config: &GpuLearnerConfig) -> u64 {
        let rows = config.learner.batch;
        let kept: usize = layout.shape().hidden.iter().map(|&units| stride(units)).sum();
        let own = kept + 2 * stride(layout.head().n_out) + 2 * widest(layout);
        let passes = 1 + u64::from(asks_beside(config));
        4 * rows as u64 * own as u64 + passes * Passing::bytes(layout, rows)
    }
}

/// Segments whose gradients are kept apart: those of a batch, or 1 when it has one or they would take too much.
fn splits(layout: &MlpLayout, config: &GpuLearnerConfig) -> usize {
    let segments = config.learner.batch.div_ceil(segment(config.learner.precision, config.learner.batch));
    let bytes = 4 * (segments as u64) * stride(layout.n_weights()) as u64;
    if bytes > PART_BYTES { 1 } else { segments }
}

impl Gradient {
    pub(crate) fn zeros(
        stream: &Stream,
        layout: &MlpLayout,
        config: &GpuLearnerConfig,
    ) -> Result<Self, CudaError> {
        let (n, splits) = (layout.len(), splits(layout, config));
        let part_stride = stride(layout.n_weights());
        let parts = (splits > 1).then(|| stream.zeros("gradients of segments", [splits, part_stride]));
        Ok(Self {
            whole: stream.zeros("gradient", n)?,
            parts: parts.transpose()?,
            segment: segment(config.learner.precision, config.learner.batch),
            splits,
            part_stride,
            squares: stream.zeros("sums of squares", square_blocks(n))?,
        })
    }

    fn bytes(layout: &MlpLayout, config: &GpuLearnerConfig) -> u64 {
        let (n, splits) = (layout.len() as u64, splits(layout, config) as u64);
        let parts = if splits > 1 { 4 * splits * stride(layout.n_weights()) as u64 } else { 0 };
        4 * n + parts + 8 * square_blocks(layout.len()) as u64
    }
}

pub(crate) fn row_results(stream: &Stream, config: &GpuLearnerConfig) -> Result<RowResults, CudaError> {
    let rows = config.rows_total();
    Ok(RowResults {
        losses: stream.zeros("losses", config.learner.batch)?,
        td: stream.zeros("td errors", rows)?,
        indices: stream.zeros("indices", rows)?,
        generations: stream.zeros("generations", rows)?,
    })
}

/// Whether a last good copy is taken from the start.
pub(crate) fn keeps_copy(config: &GpuLearnerConfig) -> bool {
    config.guard.nan_policy == NanPolicy::Rollback
}

/// Device bytes of a learner; at most these where whole networks pass at once ([`crate::network_pass`]), which keep units in
/// another form.
pub(super) fn bytes(config: &GpuLearnerConfig, layout: &MlpLayout) -> u64 {
    let copies = 1 + u64::from(keeps_copy(config));
    let rows = 4 * config.learner.batch as u64 + 16 * config.rows_total() as u64;
    let drawn = Drawn::bytes(layout, config);
    let acting = if config.acting_rows > 0 { Passing::bytes(layout, config.acting_rows) } else { 0 };
    copies * Parameters::bytes(layout.len())
        + Gradient::bytes(layout, config)
        + Activations::bytes(layout, config)
        + StepBuffers::bytes()
        + rows
        + drawn
        + acting
        + Plan::of(config, layout).map_or(0, |plan| plan.bytes(config.learner.batch))
}
