//! The launcher of `td_loss.cu`.
#![allow(unsafe_code)] // A launch that names the signature it matches.

use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, Stream, shared_struct};

use super::{TargetRule, TdLossParams};
use crate::gpu_learner::{CARVEOUT, Loader};
use crate::mlp::MlpLayout;
use crate::mlp::cuda::{Q_FROM_HEAD_CUH, branches, stride};
use crate::power::POWER_CUH;
use crate::ring::cuda::DeviceBatch;

const TD_LOSS_CU: &str = include_str!("td_loss.cu");
const TD_LOSS_CUH: &str = include_str!("td_loss.cuh");
const MUNCHAUSEN_CUH: &str = include_str!("munchausen.cuh");

shared_struct! {
    /// Rows, head outputs and results, as the kernel takes them.
    pub(crate) struct LossArgs {
        heads: [DevicePtr<f32>; 3],
        actions: DevicePtr<u32>,
        rewards: DevicePtr<f32>,
        terminated: DevicePtr<f32>,
        discounts: DevicePtr<f32>,
        weights: DevicePtr<f32>,
        indices: DevicePtr<u32>,
        generations: DevicePtr<u64>,
        dhead: DevicePtr<f32>,
        losses: DevicePtr<f32>,
        td: DevicePtr<f32>,
        indices_out: DevicePtr<u32>,
        generations_out: DevicePtr<u64>,
        alpha: f64,
        tau: f64,
        floor: f64,
        start: [u32; 4],
        len: [u32; 4],
        pub(crate) rows: u32,
        head_stride: u32,
        n_outputs: u32,
        n_branches: u32,
        n_actions: u32,
        dueling: u32,
        double_dqn: u32,
        munchausen: u32,
        huber_delta: f32,
        scale: f32,
    }
}

/// The program of the loss for heads of these branches.
#[must_use]
pub fn program(branches: &[usize]) -> Program {
    let only = if let [only] = branches { *only } else { 0 };
    with_loss(Program::new("td_loss.cu", TD_LOSS_CU))
        .define("ONLY_BRANCH", only as u32)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{}", LossArgs::cuda_source()))
}

/// A program with what the loss of a row is made of; [`LossArgs`] is to be among its structs.
pub(crate) fn with_loss(program: Program) -> Program {
    program
        .header("q_from_head.cuh", Q_FROM_HEAD_CUH)
        .header("td_loss.cuh", TD_LOSS_CUH)
        .header("power.cuh", POWER_CUH)
        .header("munchausen.cuh", MUNCHAUSEN_CUH)
}

/// Where results of the rows of all sub-batches lie.
#[derive(Debug)]
pub(crate) struct RowResults {
    /// f32 `[batch]`, weighted losses of the running sub-batch.
    pub(crate) losses: DeviceBuffer<f32>,
    /// f32 `[accumulation * batch]`.
    pub(crate) td: DeviceBuffer<f32>,
    /// u32, likewise.
    pub(crate) indices: DeviceBuffer<u32>,
    /// u64, likewise.
    pub(crate) generations: DeviceBuffer<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct LossKernel(Kernel);

impl LossKernel {
    pub(crate) fn new(loader: &Loader<'_>, layout: &MlpLayout) -> Result<Self, CudaError> {
        let kernel = loader.load(&program(layout.shape().head.branches()))?.kernel("td_loss")?;
        kernel.prefer_carveout(CARVEOUT)?;
        Ok(Self(kernel))
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.0
    }

    /// Queues the loss of one sub-batch.
    pub(crate) fn run(&self, stream: &Stream, loss: &Loss<'_>, programmatic: bool) -> Result<(), CudaError> {
        let args = loss.args()?;
        let launch = Launch::new(&self.0, args.rows.div_ceil(8), 64).programmatic(programmatic).value(args);
        // SAFETY: td_loss(LossArgs). Rows are tested against `rows`, which batch, heads and results hold (checked by
        // `args`; the results are one length, made together); actions are tested against the head, whose outputs are
        // at most 46. All is kept.
        unsafe { loss.keep(launch).launch(stream) }
    }
}

/// The loss of one sub-batch: what it is made from and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss<'a> {
    pub(crate) layout: &'a MlpLayout,
    pub(crate) params: TdLossParams,
    /// f32 `[rows, head_stride]`: online network at the states; what the rule asks beside, online at the next states or target at
    /// the states, and not read where it asks for neither; target network at the next states.
    pub(crate) heads: [&'a DeviceBuffer<f32>; 3],
    pub(crate) batch: &'a DeviceBatch,
    /// f32 `[rows, head_stride]`, gradient of the first of `heads`.
    pub(crate) dhead: &'a DeviceBuffer<f32>,
    pub(crate) results: &'a RowResults,
    /// Where this sub-batch begins among the rows of the update.
    pub(crate) first: usize,
}

impl Loss<'_> {
    /// The arguments, after a look at all lengths.
    pub(crate) fn args(&self) -> Result<LossArgs, CudaError> {
        let Self { layout, params, batch, results, first, .. } = *self;
        let (rows, head_stride) = (batch.len(), stride(layout.head().n_out));
        for head in self.heads.iter().chain([&self.dhead]) {
            head.holds(rows * head_stride)?;
        }
        results.losses.holds(rows)?;
        results.td.holds(first + rows)?;
        let (start, len, n_branches) = branches(layout);
        let (alpha, tau, floor) = match params.rule {
            TargetRule::Munchausen(rule) => (rule.alpha, rule.tau, rule.floor),
            TargetRule::Largest | TargetRule::Double => (0.0, 1.0, 0.0),
        };
        Ok(LossArgs {
            heads: self.heads.map(DeviceBuffer::ptr),
            actions: batch.actions.ptr(),
            rewards: batch.rewards.ptr(),
            terminated: batch.terminated.ptr(),
            discounts: batch.discounts.ptr(),
            weights: batch.weights.ptr(),
            indices: batch.indices.ptr(),
            generations: batch.generations.ptr(),
            dhead: self.dhead.ptr(),
            losses: results.losses.ptr(),
            td: results.td.ptr().offset(first),
            indices_out: results.indices.ptr().offset(first),
            generations_out: results.generations.ptr().offset(first),
            alpha,
            tau,
            floor,
            start,
            len,
            rows: rows as u32,
            head_stride: head_stride as u32,
            n_outputs: layout.n_outputs() as u32,
            n_branches,
            n_actions: params.head.n_actions() as u32,
            dueling: u32::from(layout.shape().dueling),
            double_dqn: u32::from(params.rule.asks_online()),
            munchausen: u32::from(params.rule.asks_target()),
            huber_delta: params.huber_delta,
            scale: params.scale(),
        })
    }

    /// Adds everything the arguments point to.
    pub(crate) fn keep<'k>(&self, mut launch: Launch<'k>) -> Launch<'k> {
        for buffer in self.heads.into_iter().chain([self.dhead, &self.results.losses, &self.results.td]) {
            launch = launch.keep(buffer);
        }
        self.batch.keep(launch.keep(&self.results.indices).keep(&self.results.generations))
    }
}
