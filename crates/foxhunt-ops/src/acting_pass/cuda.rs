//! The launcher of `acting_pass.cu`.
#![allow(unsafe_code)] // A launch that names the signature it matches.

use foxhunt_core::settings::Precision;
use foxhunt_cuda::nvrtc::{Nvrtc, Program};
use foxhunt_cuda::{
    CLUSTER_CUH, COMMON_CUH, CudaError, DeviceBuffer, DeviceInfo, DevicePtr, Kernel, Launch, Stream,
    bytemuck, shared_struct,
};

use crate::cluster_pass::cuda::{COMPILER, likely_clusters};
use crate::gpu_learner::{CARVEOUT, GpuLearnerConfig, Loader};
use crate::mlp::cuda::{Ahead, HeadArgs, Job, head_args};
use crate::mlp::{Layer, MlpLayout};
use crate::network_pass::cuda::with_shared_operands;
use crate::network_pass::plan::{LAYERS, SHARED_BYTES, line, lines, weight_bytes};

const ACTING_PASS_CU: &str = include_str!("acting_pass.cu");
const ACTING_CUH: &str = include_str!("acting.cuh");

/// Threads of a block, and units of a layer that it makes, as in the kernel.
const THREADS: u32 = 256;
const SHARE: usize = 64;
/// Rows of a cluster at most: with `tf32x3` by the registers of products, and otherwise as many as rollouts find room for, so that their Q-values have the same
/// bits. Alone a pass of more than 96 rows a cluster is no quicker than whole networks are.
fn most_rows(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 0,
        Precision::Tf32x3 => 96,
        Precision::Tf32 | Precision::Bf16 => 144,
    }
}

shared_struct! {
    /// A pass of the online network.
    pub(crate) struct ActingArgs {
        states: DevicePtr<f32>,
        image: DevicePtr<u8>,
        parameters: DevicePtr<f32>,
        out: DevicePtr<f32>,
        head: HeadArgs,
        bias: [u32; LAYERS],
        out_stride: u32,
        ahead: u32,
        rows: u32,
    }
}

/// What a program is compiled for, as `acting.cuh` knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) precision: Precision,
    /// Values of a row at the beginning and behind each product.
    pub(crate) widths: Vec<usize>,
    /// Blocks of a cluster.
    pub(crate) blocks: usize,
    /// Rows of a cluster.
    pub(crate) rows: usize,
    /// Whether shared memory holds all weights at once.
    pub(crate) keeps_weights: bool,
}

impl Shape {
    /// The shape for up to `rows` rows of this network, if it is one that the kernel has, with blocks of `shared` bytes at most and rows for as many
    /// clusters as are likely to find multiprocessors at once. It does not keep weights.
    pub(crate) fn of(
        layout: &MlpLayout,
        precision: Precision,
        rows: usize,
        processors: u32,
        shared: usize,
    ) -> Option<Self> {
        let layers = layout.layers();
        let (head, hidden) = layers.split_last()?;
        let units = hidden.first()?.n_out;
        let equal = hidden.iter().all(|layer| layer.n_out == units);
        if precision == Precision::F32 || !equal || layers.len() > LAYERS || head.n_out > SHARE {
            return None;
        }
        let blocks = [1, 2, 4].into_iter().find(|blocks| blocks * SHARE == units)?;
        let rows = rows.div_ceil(likely_clusters(processors, blocks)?).next_multiple_of(8);
        let mut widths = vec![layers[0].n_in];
        widths.extend(layers.iter().map(|layer| layer.n_out));
        let this = Self { precision, widths, blocks, rows, keeps_weights: false };
        let fits = (1..=most_rows(precision)).contains(&rows) && this.shared_bytes() <= shared;
        fits.then_some(this)
    }

    /// Shared memory of a block: places as in the kernel.
    pub(crate) fn shared_bytes(&self) -> usize {
        let &Self { precision, ref widths, rows, .. } = self;
        let (inputs, units, head) = (widths[0], widths[1], widths[widths.len() - 1]);
        let hidden = widths.len() - 2;
        // Slabs of so many values.
        let of_rows = |k: usize| k.div_ceil(line(precision)) * rows * 128;
        let states = of_rows(inputs) + rows * inputs * 4;
        let parts = rows * (head.next_multiple_of(8) + 4) * 4;
        let used = of_rows(SHARE).max(states).next_multiple_of(16) + 2 * parts;
        let all_rows = of_rows(units).max(states).max(used).next_multiple_of(1024);
        let low = if precision == Precision::Tf32x3 { 2 * of_rows(SHARE) } else { 0 };
        // A product of the head has more lines than there are.
        let last =
            (weight_bytes(precision, SHARE, head) + (SHARE - lines(head)) * 128).next_multiple_of(1024);
        let first = weight_bytes(precision, inputs, SHARE).next_multiple_of(1024);
        let ends = if self.keeps_weights { first + last } else { first.max(last) };
        let middle = (hidden - 1) * weight_bytes(precision, units, SHARE);
        let biases = ((hidden * SHARE + head) * 4).next_multiple_of(16);
        // Weights of each product, chunks of units, the head's parts, states.
        let barriers = hidden + 1 + (hidden - 1) * self.blocks + 2;
        all_rows + low + ends + middle + biases + barriers * 8
    }

    /// A program with the network for this shape; [`HeadArgs`] is to be among its structs.
    pub(crate) fn with_acting(&self, program: Program) -> Program {
        let widths: Vec<_> = self.widths.iter().map(ToString::to_string).collect();
        with_shared_operands(program, self.precision, &[self.rows])
            .header("acting.cuh", ACTING_CUH)
            .header("common.cuh", COMMON_CUH)
            .header("cluster.cuh", CLUSTER_CUH)
            .define("WIDTHS", widths.join(","))
            .define("BLOCKS", self.blocks as u32)
            .define("ROWS", self.rows as u32)
            .define("KEEPS_WEIGHTS", u32::from(self.keeps_weights))
    }

    fn program(&self) -> Program {
        let structs = [HeadArgs::cuda_source(), ActingArgs::cuda_source()].concat();
        self.with_acting(Program::new("acting_pass.cu", ACTING_PASS_CU))
            .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
            .define("SHARED_BYTES", self.shared_bytes() as u32)
            .define("AHEAD_LEAVES_PARAMETERS", Ahead::LeavesParameters as u32)
            .define("AHEAD_LEAVES_ALL", Ahead::LeavesAll as u32)
    }
}

/// Whether a device may have the kernel for this network and so many rows.
pub(crate) fn may_serve(layout: &MlpLayout, precision: Precision, rows: usize) -> bool {
    rows > 0 && Shape::of(layout, precision, rows, u32::MAX, usize::MAX).is_some()
}

/// The program of a learner that acts for `rows` rows at most on a device of `processors` multiprocessors, none where it is not served. For
/// [`crate::network_pass::cuda::TARGET`] alone.
#[must_use]
pub fn program(precision: Precision, layout: &MlpLayout, rows: usize, processors: u32) -> Option<Program> {
    Shape::of(layout, precision, rows, processors, SHARED_BYTES).map(|shape| shape.program())
}

/// The kernel for one network and most rows.
#[derive(Clone, Debug)]
pub(crate) struct ActingPass {
    kernel: Kernel,
    shape: Shape,
    layers: Vec<Layer>,
}

/// Rows to act on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acting<'a> {
    pub(crate) rows: usize,
    /// States, the online network's parameters, and where head outputs go.
    pub(crate) job: Job<'a>,
    /// Values from row to row of those.
    pub(crate) out_stride: usize,
    pub(crate) ahead: Ahead,
    /// Where the Q-values of a dueling head go instead, f32 `[rows, n_outputs]`.
    pub(crate) q: Option<(&'a MlpLayout, &'a DeviceBuffer<f32>)>,
}

impl ActingPass {
    /// The kernel, if it serves for this learner on this device, whose instructions are those of compute capability 9.0.
    pub(crate) fn new(
        loader: &Loader<'_>,
        config: &GpuLearnerConfig,
        layout: &MlpLayout,
        device: &DeviceInfo,
    ) -> Result<Option<Self>, CudaError> {
        if config.acting_rows == 0 || Nvrtc::get()?.version() < COMPILER {
            return Ok(None);
        }
        let (precision, room) = (config.learner.precision, device.shared_bytes as usize);
        let Some(shape) = Shape::of(layout, precision, config.acting_rows, device.multiprocessors, room)
        else {
            return Ok(None);
        };
        let kernel = loader.load(&shape.program())?.kernel("acting_pass")?;
        kernel.prefer_carveout(CARVEOUT)?;
        let shared = shape.shared_bytes() as u32;
        kernel.allow_shared(shared)?;
        if kernel.active_clusters(shape.blocks as u32, THREADS, shared)? == 0 {
            return Ok(None);
        }
        Ok(Some(Self { kernel, shape, layers: layout.layers().to_vec() }))
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Queues the pass, with weights from `image`.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        image: &DeviceBuffer<u8>,
        of: &Acting<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let (Acting { rows, job, out_stride, .. }, Shape { widths, blocks, .. }) = (*of, &self.shape);
        job.x.holds(rows * widths[0])?;
        let mut args: ActingArgs = bytemuck::Zeroable::zeroed();
        let grid = blocks * rows.div_ceil(self.shape.rows);
        let mut launch = Launch::new(&self.kernel, grid as u32, THREADS)
            .shared(self.shape.shared_bytes() as u32)
            .programmatic(programmatic)
            .keep(job.x)
            .keep(job.parameters)
            .keep(job.out)
            .keep(image);
        match of.q {
            Some((layout, q)) => {
                args.head = head_args(layout, rows, DevicePtr::NULL, q)?;
                launch = launch.keep(q);
            }
            None => {
                job.out.holds((rows - 1) * out_stride + widths[widths.len() - 1])?;
            }
        }
        args.states = job.x.ptr();
        args.image = image.ptr();
        args.parameters = job.parameters.ptr();
        args.out = job.out.ptr();
        for (bias, layer) in args.bias.iter_mut().zip(&self.layers) {
            *bias = layer.bias as u32;
        }
        args.out_stride = out_stride as u32;
        args.ahead = of.ahead as u32;
        args.rows = rows as u32;
        // SAFETY: acting_pass(ActingArgs). Rows are tested against the count given, which states and what is written hold (checked above and in
        // `head_args`); image and parameters are this layout's. All is kept.
        unsafe { launch.value(args).launch(stream) }
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::{Head, ReturnModel};

    use super::*;
    use crate::mlp::MlpShape;

    const ROOM: usize = 227 * 1024;

    fn layout(state_dim: usize, hidden: &[usize]) -> MlpLayout {
        let (hidden, head) = (hidden.to_vec(), Head::Factored.into());
        MlpLayout::new(MlpShape { state_dim, hidden, head, dueling: true, returns: ReturnModel::Mean })
    }

    fn rows(layout: &MlpLayout, precision: Precision, rows: usize) -> usize {
        Shape::of(layout, precision, rows, 132, ROOM).map_or(0, |shape| shape.rows)
    }

    #[test]
    fn a_cluster_has_as_few_rows_as_there_are_clusters_for() {
        let layout = layout(51, &[256, 256]);
        let of = |precision| {
            [1, 240, 241, 1024, 1200, 1201, 2880, 4081, 4321].map(|n| rows(&layout, precision, n))
        };
        assert_eq!(of(Precision::Tf32), [8, 8, 16, 40, 40, 48, 96, 144, 0]);
        assert_eq!(of(Precision::Bf16), of(Precision::Tf32));
        assert_eq!(of(Precision::Tf32x3), [8, 8, 16, 40, 40, 0, 0, 0, 0], "shared memory ends");
        assert_eq!(of(Precision::F32), [0; 9]);
        // A device with hardly any multiprocessors, and blocks that have less room.
        assert_eq!(Shape::of(&layout, Precision::Tf32, 8, 15, ROOM), None);
        assert_eq!(Shape::of(&layout, Precision::Tf32x3, 8, 132, 100 * 1024), None);
    }

    #[test]
    fn layers_of_one_width_are_served() {
        let served = |hidden: &[usize]| rows(&layout(51, hidden), Precision::Bf16, 8) > 0;
        assert!(served(&[64]) && served(&[128, 128]) && served(&[256]) && served(&[64, 64, 64]));
        assert!(!served(&[]) && !served(&[72, 72]) && !served(&[256, 128]) && !served(&[512, 512]));
        assert!(
            !may_serve(&layout(51, &[64]), Precision::Tf32, 0)
                && may_serve(&layout(51, &[64]), Precision::Tf32, 1)
        );
    }
}
