//! The launchers of `distribution.cu`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::ReturnModel;
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, Stream, shared_struct};

use super::categorical::Support;
use crate::gpu_learner::{CARVEOUT, Loader};
use crate::mlp::MlpLayout;
use crate::mlp::cuda::{branches, stride};
use crate::td_loss::cuda::{Loss, LossArgs, with_loss};

const DISTRIBUTION_CU: &str = include_str!("distribution.cu");
const THREADS: u32 = 128;

shared_struct! {
    /// How a head of distributions is read.
    pub(crate) struct HeadShape {
        v_min: f64,
        v_max: f64,
        step: f64,
        start: [u32; 4],
        len: [u32; 4],
        head_stride: u32,
        n_outputs: u32,
        n_branches: u32,
        atoms: u32,
        dueling: u32,
        categorical: u32,
    }
}

shared_struct! {
    /// Heads to Q-values, a block a row.
    pub(crate) struct ExpectationArgs {
        shape: HeadShape,
        head: DevicePtr<f32>,
        q: DevicePtr<f32>,
    }
}

shared_struct! {
    /// Rows, head outputs and results, a block a row.
    pub(crate) struct DistributionLossArgs {
        shape: HeadShape,
        loss: LossArgs,
    }
}

/// The program of both kernels.
#[must_use]
pub fn program() -> Program {
    let structs = [
        HeadShape::cuda_source(),
        ExpectationArgs::cuda_source(),
        LossArgs::cuda_source(),
        DistributionLossArgs::cuda_source(),
    ]
    .concat();
    with_loss(Program::new("distribution.cu", DISTRIBUTION_CU))
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
}

fn head_shape(layout: &MlpLayout) -> HeadShape {
    let (start, len, n_branches) = branches(layout);
    let returns = layout.shape().returns;
    let support = match returns {
        ReturnModel::Categorical { atoms, v_min, v_max } => Some(Support::new(atoms, v_min, v_max)),
        _ => None,
    };
    let of = |get: fn(&Support) -> f64| support.as_ref().map_or(0.0, get);
    HeadShape {
        v_min: of(|s| s.v_min),
        v_max: of(|s| s.v_max),
        step: of(|s| s.step),
        start,
        len,
        head_stride: stride(layout.head().n_out) as u32,
        n_outputs: layout.n_outputs() as u32,
        n_branches,
        atoms: returns.atoms() as u32,
        dueling: u32::from(layout.shape().dueling),
        categorical: u32::from(support.is_some()),
    }
}

/// Handles of both kernels.
#[derive(Clone, Debug)]
pub(crate) struct DistributionKernels {
    expectations: Kernel,
    loss: Kernel,
}

impl DistributionKernels {
    pub(crate) fn new(loader: &Loader<'_>) -> Result<Self, CudaError> {
        let module = loader.load(&program())?;
        let kernels =
            Self { expectations: module.kernel("expectations")?, loss: module.kernel("distribution_loss")? };
        for kernel in kernels.all() {
            kernel.prefer_carveout(CARVEOUT)?;
        }
        Ok(kernels)
    }

    pub(crate) fn all(&self) -> [&Kernel; 2] {
        [&self.expectations, &self.loss]
    }

    /// Queues Q-values `[rows, n_outputs]` from head outputs `[rows, stride]`.
    pub(crate) fn expectations(
        &self,
        stream: &Stream,
        layout: &MlpLayout,
        rows: usize,
        head: &DeviceBuffer<f32>,
        q: &DeviceBuffer<f32>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        head.holds(rows * stride(layout.head().n_out))?;
        q.holds(rows * layout.n_outputs())?;
        let args = ExpectationArgs { shape: head_shape(layout), head: head.ptr(), q: q.ptr() };
        let launch = Launch::new(&self.expectations, rows as u32, THREADS)
            .programmatic(programmatic)
            .value(args)
            .keep(head)
            .keep(q);
        // SAFETY: expectations(ExpectationArgs). A block a row, and both buffers hold the rows; a head has at most four
        // branches and 256 atoms (`GpuLearnerConfig::check`), as its shared memory does. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Queues the loss of one sub-batch.
    pub(crate) fn loss(&self, stream: &Stream, loss: &Loss<'_>, programmatic: bool) -> Result<(), CudaError> {
        let args = DistributionLossArgs { shape: head_shape(loss.layout), loss: loss.args()? };
        let rows = args.loss.rows;
        let launch = Launch::new(&self.loss, rows, THREADS).programmatic(programmatic).value(args);
        // SAFETY: distribution_loss(DistributionLossArgs). A block a row, which batch, heads and results hold (checked by
        // `args`; the results are one length, made together); actions are tested against the head, which has at most 46
        // outputs, four branches and 256 atoms (`GpuLearnerConfig::check`), as shared memory does. All is kept.
        unsafe { loss.keep(launch).launch(stream) }
    }
}
