//! The launcher of `cluster_pass.cu`.
#![allow(unsafe_code)] // A launch that names the signature it matches.

use foxhunt_cuda::nvrtc::{self, Nvrtc, Program};
use foxhunt_cuda::{
    BARRIER_CUH, CLUSTER_CUH, COMMON_CUH, CudaError, DeviceBuffer, DeviceInfo, DevicePtr, Kernel, Launch,
    Stream, shared_struct,
};

use crate::gpu_learner::state::StepState;
use crate::gpu_learner::{CARVEOUT, GpuLearnerConfig, Loader};
use crate::mlp::cuda::{Ahead, COPIES_CUH};
use crate::mlp::{Layer, MlpLayout};
use crate::td_loss::TargetRule;
use crate::td_loss::cuda::{Loss, LossArgs, with_loss};

const CLUSTER_PASS_CU: &str = include_str!("cluster_pass.cu");

/// Blocks of a cluster and threads of a block, as in the kernel.
const BLOCKS: usize = 8;
const THREADS: u32 = 256;
/// Rows of a cluster at least, as fewer take as long, and at most, as the kernel's warps go with double targets.
const ROWS: std::ops::RangeInclusive<usize> = 8..=18;
/// The first compiler that has all instructions of kernels on clusters.
pub(crate) const COMPILER: (u32, u32) = (12, 1);
/// Units of a hidden layer.
const UNITS: [usize; 3] = [64, 128, 256];
/// Most outputs, as far as the loss goes.
const OUTPUTS: usize = 46;
/// Words of a row of head outputs in shared memory, as in the kernel.
const HEAD_WORDS: usize = 49;

shared_struct! {
    /// Batch, networks, units and their gradients, as the kernel takes them.
    pub(crate) struct ClusterPassArgs {
        states: DevicePtr<f32>,
        next_states: DevicePtr<f32>,
        parameters: [DevicePtr<f32>; 2],
        kept: [DevicePtr<f32>; 2],
        before: [DevicePtr<f32>; 2],
        state: DevicePtr<StepState>,
        weight: [u32; 3],
        bias: [u32; 3],
        ahead: u32,
        pad: u32,
    }
}

/// Clusters of up to eight blocks, one a multiprocessor, that are likely to find room at once, if any is. Multiprocessors lie in groups that a cluster
/// does not reach across, so that some are left over.
pub(crate) fn likely_clusters(processors: u32, blocks: usize) -> Option<usize> {
    let eights = (processors as usize / 8).checked_sub(1)?;
    Some(eights * 8 / blocks).filter(|&clusters| clusters > 0)
}

/// What a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Values of a state, units of both hidden layers, head outputs.
    widths: [usize; 4],
    /// Rows of a cluster.
    rows: usize,
    branches: usize,
    dueling: bool,
    double: bool,
}

/// Words from row to row in shared memory: an odd number of fours.
fn stride_of(n: usize) -> usize {
    4 * (n.div_ceil(4) | 1)
}

impl Shape {
    /// The shape for a batch of this network, if it is one that the kernel has, with blocks of `shared` bytes at most
    /// and as many clusters as are likely to find multiprocessors at once.
    fn of(layout: &MlpLayout, double: bool, batch: usize, processors: u32, shared: usize) -> Option<Self> {
        let layers = layout.layers();
        let [first, second, head] = layers else { return None };
        let shape = layout.shape();
        let (h1, h2) = (first.n_out, second.n_out);
        let known = UNITS.contains(&h1) && UNITS.contains(&h2) && shape.returns.is_mean();
        let aligned = [second, head].iter().all(|layer| layer.weight.is_multiple_of(4));
        if !known || !aligned || head.n_out > OUTPUTS {
            return None;
        }
        let branches = shape.head.branches().len();
        let (widths, dueling) = ([first.n_in, h1, h2, head.n_out], shape.dueling);
        let rows = batch.div_ceil(likely_clusters(processors, BLOCKS)?).max(*ROWS.start());
        let this = Self { widths, rows, branches, dueling, double };
        (ROWS.contains(&rows) && this.has_places() && this.shared_bytes() <= shared).then_some(this)
    }

    /// Of each hidden layer a block's units, and words from row to row of them.
    fn shares(&self) -> [(usize, usize); 2] {
        [1, 2].map(|l| (self.widths[l] / BLOCKS, stride_of(self.widths[l] / BLOCKS)))
    }

    /// Rows in all forward passes of a cluster.
    fn passes(&self) -> usize {
        (2 + usize::from(self.double)) * self.rows
    }

    /// Whether gradients of the second layer find room in the place of the first's units.
    fn has_places(&self) -> bool {
        let ([(_, row1), (_, row2)], rows) = (self.shares(), self.rows);
        rows * row2 <= (self.passes() - rows) * row1
    }

    /// Shared memory of a block: places as in the kernel.
    fn shared_bytes(&self) -> usize {
        let (rows, [x, h1, h2, outputs]) = (self.rows, self.widths);
        let ([(units1, row1), (units2, row2)], outs) = (self.shares(), outputs.div_ceil(BLOCKS));
        let own = rows.div_ceil(BLOCKS);
        let loss = (rows + own) * stride_of(outputs) + own * 3 * (HEAD_WORDS + 4);
        let first = (2 * units1 * stride_of(x)).max(loss.next_multiple_of(4));
        let weights = 2 * (units2 * stride_of(h1) + outs * stride_of(h2)) + outputs * units2;
        let units = 2 * rows * stride_of(x) + BLOCKS * self.passes() * (row1 + row2);
        // Behind everything five barriers.
        4 * (first + weights + units + 10)
    }

    fn program(&self) -> Program {
        let structs =
            [StepState::cuda_source(), ClusterPassArgs::cuda_source(), LossArgs::cuda_source()].concat();
        let [state, first, second, head] = self.widths.map(|width| width as u32);
        with_loss(Program::new("cluster_pass.cu", CLUSTER_PASS_CU))
            .header("common.cuh", COMMON_CUH)
            .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
            .header("copies.cuh", COPIES_CUH)
            .header("barrier.cuh", BARRIER_CUH)
            .header("cluster.cuh", CLUSTER_CUH)
            .define("STATE", state)
            .define("FIRST", first)
            .define("SECOND", second)
            .define("HEAD", head)
            .define("ROWS", self.rows as u32)
            .define("SHARED_BYTES", self.shared_bytes() as u32)
            .define("BRANCHES", self.branches as u32)
            .define("DUELING", u32::from(self.dueling))
            .define("DOUBLE_DQN", u32::from(self.double))
            .define("AHEAD_LEAVES_PARAMETERS", Ahead::LeavesParameters as u32)
    }
}

/// Programs for the widest network with few and many rows, and some others; a learner compiles one. For compute capability 9.0
/// and up.
#[must_use]
pub fn programs() -> Vec<Program> {
    let widest = Shape { widths: [51, 256, 256, 46], rows: 18, branches: 1, dueling: true, double: true };
    let three = Shape { widths: [9, 64, 128, 12], branches: 3, ..widest };
    let single = Shape { widths: [60, 128, 64, 5], double: false, ..widest };
    let all = [
        widest,
        Shape { rows: 8, ..widest },
        three,
        Shape { rows: 12, dueling: false, ..three },
        Shape { rows: 8, ..three },
        single,
        Shape { rows: 8, ..single },
    ];
    all.map(|shape| shape.program()).into()
}

/// The kernel for one network and batch size.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPass {
    kernel: Kernel,
    shape: Shape,
}

/// Whose units, weights and gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) layers: &'a [Layer],
    /// Flat parameters of the online and the target network.
    pub(crate) parameters: [&'a DeviceBuffer<f32>; 2],
    /// f32 `[rows, units]` of each hidden layer, of the online network at the states.
    pub(crate) kept: [&'a DeviceBuffer<f32>; 2],
    /// f32 `[rows, units]`, their gradients.
    pub(crate) before: [&'a DeviceBuffer<f32>; 2],
    /// Where what is not finite is counted.
    pub(crate) state: &'a DeviceBuffer<StepState>,
    pub(crate) ahead: Ahead,
}

impl ClusterPass {
    /// The kernel, if it serves for this learner on this device.
    pub(crate) fn new(
        loader: &Loader<'_>,
        config: &GpuLearnerConfig,
        layout: &MlpLayout,
        device: &DeviceInfo,
    ) -> Result<Option<Self>, CudaError> {
        let learner = &config.learner;
        let rule = TargetRule::of(learner);
        if config.noise.is_some() || rule.asks_target() || device.compute_capability.0 < 9 {
            return Ok(None);
        }
        if Nvrtc::get()?.version() < COMPILER || !nvrtc::knows(&nvrtc::target_of(device.compute_capability))?
        {
            return Ok(None);
        }
        let (processors, most) = (device.multiprocessors, device.shared_bytes as usize);
        let Some(shape) = Shape::of(layout, rule.asks_online(), learner.batch, processors, most) else {
            return Ok(None);
        };
        let kernel = loader.load(&shape.program())?.kernel("cluster_pass")?;
        kernel.prefer_carveout(CARVEOUT)?;
        let shared = shape.shared_bytes() as u32;
        kernel.allow_shared(shared)?;
        let room = kernel.active_clusters(BLOCKS as u32, THREADS, shared)?;
        let all_at_once = learner.batch.div_ceil(shape.rows) <= room as usize;
        Ok(all_at_once.then_some(Self { kernel, shape }))
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Queues the pass over the rows of a sub-batch.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        pass: &Pass<'_>,
        loss: &Loss<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let of_loss = loss.args()?;
        let (rows, batch) = (of_loss.rows as usize, loss.batch);
        for units in [pass.kept, pass.before] {
            for (units, layer) in units.iter().zip(pass.layers) {
                units.holds(rows * layer.n_out)?;
            }
        }
        let at = |get: fn(&Layer) -> usize| {
            std::array::from_fn(|l| pass.layers.get(l).map_or(0, |layer| get(layer) as u32))
        };
        let args = ClusterPassArgs {
            states: batch.states.ptr(),
            next_states: batch.next_states.ptr(),
            parameters: pass.parameters.map(DeviceBuffer::ptr),
            kept: pass.kept.map(DeviceBuffer::ptr),
            before: pass.before.map(DeviceBuffer::ptr),
            state: pass.state.ptr(),
            weight: at(|layer| layer.weight),
            bias: at(|layer| layer.bias),
            ahead: pass.ahead as u32,
            pad: 0,
        };
        let grid = BLOCKS * rows.div_ceil(self.shape.rows);
        let mut launch = Launch::new(&self.kernel, grid as u32, THREADS)
            .shared(self.shape.shared_bytes() as u32)
            .programmatic(programmatic)
            .value(args)
            .value(of_loss)
            .keep(pass.state);
        for buffer in pass.parameters.into_iter().chain(pass.kept).chain(pass.before) {
            launch = launch.keep(buffer);
        }
        // SAFETY: cluster_pass(ClusterPassArgs, LossArgs). Rows are tested against the loss's, which units hold (checked above) and
        // batch and results too (checked by `args`); the shape is that of this learner's network, whose parameters these are. All is
        // kept.
        unsafe { loss.keep(launch).launch(stream) }
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::{Head, ReturnModel};

    use super::*;
    use crate::mlp::MlpShape;

    fn layout(state_dim: usize, hidden: &[usize], head: Head) -> MlpLayout {
        let (hidden, head) = (hidden.to_vec(), head.into());
        MlpLayout::new(MlpShape { state_dim, hidden, head, dueling: true, returns: ReturnModel::Mean })
    }

    const ROOM: usize = 227 * 1024;

    #[test]
    fn all_clusters_run_at_once_or_the_layers_kernels_do() {
        let layout = layout(51, &[256, 256], Head::Factored);
        let rows = |batch, room| Shape::of(&layout, true, batch, 132, room).map_or(0, |shape| shape.rows);
        let batches = [1, 64, 120, 121, 128, 181, 256, 270, 271];
        assert_eq!(batches.map(|batch| rows(batch, ROOM)), [8, 8, 8, 9, 9, 13, 18, 18, 0]);
        // Blocks that have less room, and a device with few multiprocessors.
        assert_eq!([64, 256].map(|batch| rows(batch, 164 * 1024)), [8, 0]);
        assert_eq!(Shape::of(&layout, true, 8, 15, ROOM), None);
    }

    #[test]
    fn other_networks_are_left_to_the_layers_kernels() {
        let served = |hidden: &[usize], double| {
            Shape::of(&layout(9, hidden, Head::Branching), double, 8, 132, ROOM).is_some()
        };
        assert!(served(&[64, 128], true) && served(&[256, 64], true));
        assert!(
            !served(&[], true)
                && !served(&[256], true)
                && !served(&[96, 64], true)
                && !served(&[64, 64, 64], true)
        );
        // Gradients of the second layer would not find room in the place of the first's units.
        assert!(!served(&[64, 256], true) && served(&[128, 256], true) && !served(&[64, 128], false));
    }
}
