//! The launchers of `noise.cu`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_cuda::bytemuck::cast;
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, PHILOX_CUH, Stream, shared_struct,
};

use super::{Pass, linears};
use crate::gpu_collect::cuda::Ledger;
use crate::gpu_learner::state::StepState;
use crate::gpu_learner::{CARVEOUT, GpuLearnerConfig, Loader};
use crate::mlp::MlpLayout;
use crate::power::POWER_CUH;

const NOISE_CU: &str = include_str!("noise.cu");
const NORMAL_CUH: &str = include_str!("normal.cuh");
/// Outputs and inputs of a block.
const PIECE: [usize; 2] = [16, 256];
/// Eight hidden layers and two streams of a dueling head.
const MAX_LINEARS: usize = 10;

shared_struct! {
    /// The layers, and up to three passes over them.
    pub(crate) struct NoiseArgs {
        parameters: [DevicePtr<f32>; 3],
        out: [DevicePtr<f32>; 3],
        clock: DevicePtr<u64>,
        seed: u64,
        n: u64,
        weight: [u32; 10],
        bias: [u32; 10],
        n_in: [u32; 10],
        n_out: [u32; 10],
        first_block: [u32; 10],
        layers: u32,
        blocks: u32,
        first_pass: u32,
        clocks: u32,
    }
}

/// The program of the noise.
#[must_use]
pub fn program() -> Program {
    Program::new("noise.cu", NOISE_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{}", NoiseArgs::cuda_source()))
        .header("philox.cuh", PHILOX_CUH)
        .header("power.cuh", POWER_CUH)
        .header("normal.cuh", NORMAL_CUH)
}

/// Where the number of the vector step is kept that weights to act with are drawn for.
#[derive(Clone, Copy, Debug)]
pub struct Clock<'a>(&'a DeviceBuffer<Ledger>);

impl<'a> Clock<'a> {
    /// The vector step of a collector.
    pub(crate) fn of_steps(ledger: &'a DeviceBuffer<Ledger>) -> Self {
        Self(ledger)
    }
}

/// Weights as drawn, f32 `[n_weights]` each.
#[derive(Debug)]
pub(crate) struct Drawn {
    /// Of online(s), the pass beside it, and target(s').
    pub(crate) update: [DeviceBuffer<f32>; 3],
    pub(crate) acting: DeviceBuffer<f32>,
}

impl Drawn {
    fn zeros(stream: &Stream, n: usize) -> Result<Self, CudaError> {
        let weights = || stream.zeros("drawn weights", n);
        Ok(Self { update: [weights()?, weights()?, weights()?], acting: weights()? })
    }

    /// Device bytes; 0 without noise.
    pub(crate) fn bytes(layout: &MlpLayout, config: &GpuLearnerConfig) -> u64 {
        config.noise.map_or(0, |_| 4 * 4 * layout.n_weights() as u64)
    }
}

/// The noise of a learner: its kernels, its layers, its weights.
#[derive(Debug)]
pub(crate) struct Noise {
    draw_weights: Kernel,
    scale_gradient: Kernel,
    /// The layers; passes are filled in.
    args: NoiseArgs,
    pub(crate) drawn: Drawn,
}

impl Noise {
    pub(crate) fn new(
        stream: &Stream,
        loader: &Loader<'_>,
        layout: &MlpLayout,
        config: &GpuLearnerConfig,
    ) -> Result<Self, CudaError> {
        let module = loader.load(&program())?;
        let (draw_weights, scale_gradient) =
            (module.kernel("draw_weights")?, module.kernel("scale_gradient")?);
        for kernel in [&draw_weights, &scale_gradient] {
            kernel.prefer_carveout(CARVEOUT)?;
        }
        let drawn = Drawn::zeros(stream, layout.n_weights())?;
        Ok(Self { draw_weights, scale_gradient, args: args(layout, config.seed)?, drawn })
    }

    /// Both kernels.
    pub(crate) fn all(&self) -> [&Kernel; 2] {
        [&self.draw_weights, &self.scale_gradient]
    }

    /// Queues the draws of an update's three passes from the `parameters` of each, f32 `[2 n]`.
    pub(crate) fn draw_update(
        &self,
        stream: &Stream,
        parameters: [&DeviceBuffer<f32>; 3],
        state: &DeviceBuffer<StepState>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        // Updates and skipped updates are its first two words.
        let args = NoiseArgs { clock: cast(state.ptr()), clocks: 2, ..self.args };
        self.draw(
            stream,
            Pass::Online,
            &parameters,
            &self.drawn.update.each_ref(),
            args,
            programmatic,
            |launch| launch.keep(state),
        )
    }

    /// Queues the draw of the weights to act with.
    pub(crate) fn draw_acting(
        &self,
        stream: &Stream,
        parameters: &DeviceBuffer<f32>,
        clock: Clock<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        // The vector step is its first word.
        let args = NoiseArgs { clock: cast(clock.0.ptr()), clocks: 1, ..self.args };
        self.draw(stream, Pass::Acting, &[parameters], &[&self.drawn.acting], args, programmatic, |launch| {
            launch.keep(clock.0)
        })
    }

    #[allow(clippy::too_many_arguments)] // What one launch is made of.
    fn draw<'k>(
        &'k self,
        stream: &Stream,
        first_pass: Pass,
        parameters: &[&'k DeviceBuffer<f32>],
        out: &[&'k DeviceBuffer<f32>],
        mut args: NoiseArgs,
        programmatic: bool,
        keep_clock: impl FnOnce(Launch<'k>) -> Launch<'k>,
    ) -> Result<(), CudaError> {
        args.first_pass = first_pass as u32;
        let blocks = args.blocks * out.len() as u32;
        let mut launch = Launch::new(&self.draw_weights, blocks, PIECE[1] as u32).programmatic(programmatic);
        for (job, (parameters, out)) in parameters.iter().zip(out).enumerate() {
            parameters.holds(2 * args.n as usize)?;
            out.holds(args.n as usize)?;
            (args.parameters[job], args.out[job]) = (parameters.ptr(), out.ptr());
            launch = launch.keep(*parameters).keep(*out);
        }
        // SAFETY: draw_weights(NoiseArgs). A block's rows and columns are tested against its layer's sizes; layers lie within
        // `n` weights, which each pass's means, scales and drawn weights hold (checked above); the clock is as many words as
        // `clocks` says, the first of a struct. All is kept.
        unsafe { keep_clock(launch.value(args)).launch(stream) }
    }

    /// Queues the gradient of the scales behind that of the weights in `gradient`, f32 `[2 n]`.
    pub(crate) fn scale_gradient(
        &self,
        stream: &Stream,
        gradient: &DeviceBuffer<f32>,
        state: &DeviceBuffer<StepState>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let mut args = NoiseArgs { clock: cast(state.ptr()), clocks: 2, ..self.args };
        let n = args.n as usize;
        gradient.holds(2 * n)?;
        args.first_pass = Pass::Online as u32;
        (args.parameters[0], args.out[0]) = (gradient.ptr(), gradient.ptr().offset(n));
        let launch = Launch::new(&self.scale_gradient, args.blocks, PIECE[1] as u32)
            .programmatic(programmatic)
            .value(args)
            .keep(gradient)
            .keep(state);
        // SAFETY: scale_gradient(NoiseArgs). As `draw_weights`, with both halves of the gradient (checked above). All is kept.
        unsafe { launch.launch(stream) }
    }
}

/// The layers and how blocks are dealt to them.
fn args(layout: &MlpLayout, seed: u64) -> Result<NoiseArgs, CudaError> {
    let linears = linears(layout);
    if linears.len() > MAX_LINEARS {
        let (got, expected) = (linears.len(), MAX_LINEARS);
        return Err(CudaError::Length { what: "noisy layers", got, expected });
    }
    let mut args: NoiseArgs = foxhunt_cuda::bytemuck::Zeroable::zeroed();
    for (k, layer) in linears.iter().enumerate() {
        args.weight[k] = layer.weight as u32;
        args.bias[k] = layer.bias as u32;
        args.n_in[k] = layer.n_in as u32;
        args.n_out[k] = layer.n_out as u32;
        args.first_block[k] = args.blocks;
        args.blocks += (layer.n_out.div_ceil(PIECE[0]) * layer.n_in.div_ceil(PIECE[1])) as u32;
    }
    (args.layers, args.seed, args.n) = (linears.len() as u32, seed, layout.n_weights() as u64);
    Ok(args)
}

/// `PIECE`, `MAX_LINEARS` and the purpose are written out in the kernel or the struct.
const _: () = assert!(PIECE[0] == 16 && PIECE[1] == 256 && MAX_LINEARS == 10);
const _: () = assert!(foxhunt_core::Purpose::Noise as u32 == 5);
