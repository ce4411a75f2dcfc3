//! The launchers of `adam.cu`: the norm, and the end of an update.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::settings::{GuardSettings, LearnerSettings, Precision, TargetUpdate};
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{COMMON_CUH, CudaError, DevicePtr, Kernel, Launch, Stream, bytemuck, shared_struct};

use super::cpu::SQUARES;
use super::{AdamParams, AdamScale};
use crate::gpu_learner::memory::{Gradient, Parameters};
use crate::gpu_learner::state::{STEP_CUH, StepBuffers, StepState, SumArgs};
use crate::gpu_learner::{CARVEOUT, Loader};
use crate::guard::cuda::{FaultRing, FaultState, GUARD_CUH, GuardState};
use crate::guard::gate::{Findings, GATE_CUH, GateArgs};
use crate::guard::record::{RECORD_CUH, Record};
use crate::learner::MAX_CLIP_NORM;
use crate::network_pass::cuda::{IMAGES_CUH, ImageArgs, NetworkPass, with_warpgroup};
use crate::tree_sum::TREE_SUM_CUH;

const ADAM_CU: &str = include_str!("adam.cu");
const THREADS: u32 = 256;
/// Of a block that sums squares: one a value.
const SQUARE_THREADS: u32 = SQUARES as u32;

shared_struct! {
    /// A gradient, in segments or whole, and the sums of its squares.
    pub(crate) struct SquaresArgs {
        gradient: DevicePtr<f32>,
        parts: DevicePtr<f32>,
        sums: DevicePtr<f64>,
        n: u64,
        blocks: u64,
        stride: u64,
        segments: u32,
        add: u32,
    }
}

shared_struct! {
    /// The end of an update.
    pub(crate) struct ApplyArgs {
        online: DevicePtr<f32>,
        target: DevicePtr<f32>,
        m: DevicePtr<f32>,
        v: DevicePtr<f32>,
        gradient: DevicePtr<f32>,
        sums: DevicePtr<f64>,
        state: DevicePtr<StepState>,
        findings: DevicePtr<Findings>,
        adam_t: DevicePtr<u64>,
        gate: DevicePtr<u32>,
        sums_of_epoch: DevicePtr<GuardState>,
        faults: DevicePtr<FaultState>,
        record: DevicePtr<u64>,
        ring: DevicePtr<u64>,
        images: ImageArgs,
        n: u64,
        blocks: u64,
        clip_norm: f64,
        copy_every: u64,
        one_minus_beta1: f32,
        beta2: f32,
        one_minus_beta2: f32,
        epsilon: f32,
        tau: f32,
        loss_threshold: f32,
        polyak: u32,
        ring_capacity: u32,
    }
}

/// The program of the end of an update.
#[must_use]
pub fn program() -> Program {
    let structs = [
        GuardState::cuda_source(),
        FaultState::cuda_source(),
        Findings::cuda_source(),
        GateArgs::cuda_source(),
        StepState::cuda_source(),
        SumArgs::cuda_source(),
        SquaresArgs::cuda_source(),
        ImageArgs::cuda_source(),
        ApplyArgs::cuda_source(),
    ];
    Program::new("adam.cu", ADAM_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{}", structs.concat()))
        .header("tree_sum.cuh", TREE_SUM_CUH)
        .header("record.cuh", RECORD_CUH)
        .header("guard.cuh", GUARD_CUH)
        .header("gate.cuh", GATE_CUH)
        .header("step.cuh", STEP_CUH)
}

/// The same without what the guard adds to an update, to time the difference.
pub(crate) fn program_without_guard() -> Program {
    program().define("WITHOUT_GUARD", 1)
}

/// The program where the images of whole networks follow the parameters; for [`crate::network_pass::cuda::TARGET`] alone.
#[must_use]
pub fn with_images(program: Program, precision: Precision) -> Program {
    with_warpgroup(program, precision, &[]).header("images.cuh", IMAGES_CUH).define("IMAGES", 1)
}

/// Blocks of 1,024 values.
pub(crate) fn square_blocks(n: usize) -> usize {
    n.div_ceil(SQUARES)
}

#[derive(Clone, Debug)]
pub(crate) struct AdamKernels {
    sum_squares: Kernel,
    apply_update: Kernel,
    processors: u32,
}

impl AdamKernels {
    /// With `images`, the precision of images that follow the parameters. Without `guard`, without what the guard adds to an update, for
    /// timing that; nothing is reported then.
    pub(crate) fn new(
        loader: &Loader<'_>,
        processors: u32,
        images: Option<Precision>,
        guard: bool,
    ) -> Result<Self, CudaError> {
        let program = if guard { program() } else { program_without_guard() };
        let program = match images {
            Some(precision) => with_images(program, precision),
            None => program,
        };
        let module = loader.load(&program)?;
        let (sum_squares, apply_update) = (module.kernel("sum_squares")?, module.kernel("apply_update")?);
        for kernel in [&sum_squares, &apply_update] {
            kernel.prefer_carveout(CARVEOUT)?;
        }
        Ok(Self { sum_squares, apply_update, processors })
    }

    pub(crate) fn all(&self) -> [&Kernel; 2] {
        [&self.sum_squares, &self.apply_update]
    }

    /// Queues the sums of squares of the first `n` values of the gradient; with `join`, joins its segments first, onto what is
    /// there when `add`.
    pub(crate) fn sum_squares(
        &self,
        stream: &Stream,
        gradient: &Gradient,
        n: usize,
        join: bool,
        add: bool,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let blocks = square_blocks(n);
        gradient.squares.holds(blocks)?;
        gradient.whole.holds(n)?;
        let mut args = SquaresArgs {
            gradient: gradient.whole.ptr(),
            parts: DevicePtr::NULL,
            sums: gradient.squares.ptr(),
            n: n as u64,
            blocks: blocks as u64,
            stride: gradient.part_stride as u64,
            segments: 0,
            add: u32::from(add),
        };
        let grid = (blocks as u32).min(2 * self.processors.max(1));
        let mut launch = Launch::new(&self.sum_squares, grid, SQUARE_THREADS).programmatic(programmatic);
        if let Some(parts) = gradient.parts.as_ref().filter(|_| join) {
            parts.holds((gradient.splits - 1) * gradient.part_stride + n)?;
            args.parts = parts.ptr();
            args.segments = gradient.splits as u32;
            launch = launch.keep(parts);
        }
        let launch = launch.value(args).keep(&gradient.whole).keep(&gradient.squares);
        // SAFETY: sum_squares(SquaresArgs). Values are tested against `n`, and the gradient and each of the parts
        // hold as many (checked above); there is a sum for each block (checked above). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Queues the end of an update.
    #[allow(clippy::too_many_arguments)] // The parts of a learner, each with its own owner.
    pub(crate) fn apply(
        &self,
        stream: &Stream,
        settings: &LearnerSettings,
        guard: &GuardSettings,
        parameters: &Parameters,
        gradient: &Gradient,
        step: &StepBuffers,
        record: &Record,
        ring: &FaultRing,
        network: Option<&NetworkPass>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let n = gradient.whole.len();
        let blocks = square_blocks(n);
        let adam = AdamParams {
            beta1: settings.adam_beta1,
            beta2: settings.adam_beta2,
            epsilon: settings.adam_epsilon,
        };
        // The factors that do not depend on the step.
        let scale = AdamScale::new(&adam, 1, 0.0, 1.0);
        let (tau, copy_every) = match settings.target {
            TargetUpdate::Polyak { tau } => (Some(tau as f32), 0),
            TargetUpdate::Hard { every } => (None, every),
        };
        let args = ApplyArgs {
            online: parameters.online.ptr(),
            target: parameters.target.ptr(),
            m: parameters.m.ptr(),
            v: parameters.v.ptr(),
            gradient: gradient.whole.ptr(),
            sums: gradient.squares.ptr(),
            state: step.state.ptr(),
            findings: step.findings.ptr(),
            adam_t: parameters.adam_t.ptr(),
            gate: step.gate.ptr(),
            sums_of_epoch: step.sums.ptr(),
            faults: step.faults.ptr(),
            record: record.0.ptr(),
            ring: ring.words.ptr(),
            images: network.map_or_else(bytemuck::Zeroable::zeroed, NetworkPass::image_args),
            n: n as u64,
            blocks: blocks as u64,
            clip_norm: settings.clip_norm.min(MAX_CLIP_NORM),
            copy_every,
            one_minus_beta1: scale.one_minus_beta1,
            beta2: scale.beta2,
            one_minus_beta2: scale.one_minus_beta2,
            epsilon: scale.epsilon,
            tau: tau.unwrap_or(0.0),
            loss_threshold: guard.loss_threshold as f32,
            polyak: u32::from(tau.is_some()),
            ring_capacity: ring.capacity(),
        };
        for buffer in [&parameters.online, &parameters.target, &parameters.m, &parameters.v] {
            buffer.holds(n)?;
        }
        let grid = (blocks as u32).min(4 * self.processors.max(1));
        let mut launch = Launch::new(&self.apply_update, grid + 1, THREADS);
        if let Some(network) = network {
            launch = network.keep_images(launch);
        }
        let launch = launch
            .programmatic(programmatic)
            .value(args)
            .keep(&gradient.whole)
            .keep(&gradient.squares)
            .keep_mapped(&record.0)
            .keep_mapped(&ring.words);
        // SAFETY: apply_update(ApplyArgs). Elements are tested against `n`, which all arrays hold (checked above); state,
        // gate, sums and faults are single structs; record and ring have the lengths their owner gave them, the ring's
        // capacity among the arguments; images are those of this layout, with maps made for them. All is kept.
        unsafe { step.keep(parameters.keep(launch)).launch(stream) }
    }
}
