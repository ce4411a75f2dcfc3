//! The launchers of `network_pass.cu`, `network_back.cu`, `weight_gradient.cu` and `pack_weights.cu`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use std::fmt::Write;

use foxhunt_core::settings::Precision;
use foxhunt_cuda::nvrtc::{self, Program};
use foxhunt_cuda::{
    BARRIER_CUH, COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, Stream, bytemuck,
    shared_struct,
};
use rayon::prelude::*;

use super::plan::{Deal, LAYERS, Plan, SHARED_BYTES, THREADS, gradient_stages, mask_len};
use crate::acting_pass::cuda::{Acting, ActingPass};
use crate::gpu_learner::memory::{Gradient, Parameters};
use crate::gpu_learner::state::{STEP_CUH, StepBuffers, StepState, SumArgs};
use crate::gpu_learner::{CARVEOUT, GpuLearnerConfig, Loader};
use crate::guard::gate::Findings;
use crate::mlp::cuda::{Ahead, HeadArgs, Job, Q_FROM_HEAD_CUH, head_args, stride};
use crate::mlp::{Layer, MlpLayout};
use crate::ring::cuda::DeviceBatch;

const NETWORK_PASS_CU: &str = include_str!("network_pass.cu");
const NETWORK_BACK_CU: &str = include_str!("network_back.cu");
const WEIGHT_GRADIENT_CU: &str = include_str!("weight_gradient.cu");
const PACK_WEIGHTS_CU: &str = include_str!("pack_weights.cu");
const WARPGROUP_CUH: &str = include_str!("warpgroup.cuh");
const CHAIN_CUH: &str = include_str!("chain.cuh");
/// Text of `images.cuh`.
pub(crate) const IMAGES_CUH: &str = include_str!("images.cuh");

/// The only target whose instructions these are.
pub const TARGET: &str = "sm_90a";

shared_struct! {
    /// How tiles are dealt to blocks.
    pub(crate) struct DealArgs {
        rows: u32,
        tiles: u32,
        tiles_of_job: u32,
        double_rounds: u32,
    }
}

shared_struct! {
    /// Up to three forward passes.
    pub(crate) struct PassArgs {
        x: [DevicePtr<f32>; 3],
        parameters: [DevicePtr<f32>; 3],
        images: [DevicePtr<u8>; 3],
        out: [DevicePtr<f32>; 3],
        kept: [DevicePtr<u8>; LAYERS],
        masks: [DevicePtr<u32>; LAYERS],
        rewards: DevicePtr<f32>,
        terminated: DevicePtr<f32>,
        state: DevicePtr<StepState>,
        head: HeadArgs,
        deal: DealArgs,
        bias: [u32; LAYERS],
        jobs: u32,
        out_stride: u32,
        inspect: u32,
        ahead: u32,
        pad: u32,
    }
}

shared_struct! {
    /// The way back.
    pub(crate) struct BackArgs {
        dhead: DevicePtr<f32>,
        image: DevicePtr<u8>,
        gradients: [DevicePtr<u8>; LAYERS],
        masks: [DevicePtr<u32>; LAYERS],
        deal: DealArgs,
        dhead_stride: u32,
        pad: u32,
    }
}

shared_struct! {
    /// Gradients of all layers.
    pub(crate) struct GradientArgs {
        gradients: [DevicePtr<u8>; LAYERS],
        inputs: [DevicePtr<u8>; LAYERS],
        gradient: DevicePtr<f32>,
        split_stride: u64,
        weight: [u32; LAYERS],
        bias: [u32; LAYERS],
        rows: u32,
        segment: u32,
        splits: u32,
        pad: u32,
    }
}

shared_struct! {
    /// Images of weights and where in them each parameter goes.
    pub(crate) struct ImageArgs {
        online: DevicePtr<u8>,
        back: DevicePtr<u8>,
        target: DevicePtr<u8>,
        forward_map: DevicePtr<u32>,
        back_map: DevicePtr<u32>,
    }
}

shared_struct! {
    /// Parameters to be put in images.
    pub(crate) struct PackArgs {
        online: DevicePtr<f32>,
        target: DevicePtr<f32>,
        images: ImageArgs,
        n: u64,
    }
}

/// The instruction for a product of each shape: TILE lines times N. The left operand is a descriptor of shared memory, or four registers.
fn products(precision: Precision, shapes: &[usize], registers: bool) -> String {
    let (shape, tail) = match precision {
        Precision::Bf16 => ("k16.f32.bf16.bf16", ", 0, 0"),
        _ => ("k8.f32.tf32.tf32", ""),
    };
    let mut text = "#pragma once\ntemplate <int N> struct Product;\n".to_owned();
    for n in shapes {
        let sums = n / 2;
        let list = |f: &dyn Fn(usize) -> String| (0..sums).map(f).collect::<Vec<_>>().join(", ");
        let names = list(&|i| format!("%{i}"));
        let (left, right, takes, given) = if registers {
            let registers: Vec<_> = (sums..sums + 4).map(|i| format!("%{i}")).collect();
            let values: Vec<_> = (0..4).map(|i| format!("\"r\"(a[{i}])")).collect();
            (format!("{{{}}}", registers.join(", ")), sums + 4, "const unsigned (&a)[4]", values.join(", "))
        } else {
            (format!("%{sums}"), sums + 1, "unsigned long long a", "\"l\"(a)".to_owned())
        };
        // `run` adds to sums that are there, `first` begins them. Nothing can fail in writing to a string.
        let ways = [("run", "+f", 1), ("first", "=&f", 0)];
        let _ = write!(text, "template <> struct Product<{n}> {{");
        for (name, constraint, adds) in ways {
            let outs = list(&|i| format!("\"{constraint}\"(d[{i}])"));
            let _ = write!(
                text,
                "
  static __device__ __forceinline__ void {name}(float (&d)[{sums}], {takes}, unsigned long long b) {{
    asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, {adds}, 0; \"
                 \"wgmma.mma_async.sync.aligned.m64n{n}{shape} {{{names}}}, {left}, %{right}, p, 1, 1{tail}; }}\"
                 : {outs} : {given}, \"l\"(b));
  }}"
            );
        }
        text.push_str("\n};\n");
    }
    text
}

/// A program with what warpgroups multiply with, products of these shapes among it. Where values are split, left operands come from registers.
pub(crate) fn with_warpgroup(program: Program, precision: Precision, shapes: &[usize]) -> Program {
    with_products(program, precision, &products(precision, shapes, precision == Precision::Tf32x3))
}

/// The same with both operands from shared memory, whatever the precision.
pub(crate) fn with_shared_operands(program: Program, precision: Precision, shapes: &[usize]) -> Program {
    with_products(program, precision, &products(precision, shapes, false))
}

fn with_products(program: Program, precision: Precision, products: &str) -> Program {
    let number = match precision {
        Precision::Tf32x3 => 1,
        Precision::Bf16 => 3,
        Precision::Tf32 | Precision::F32 => 2,
    };
    let text = format!("{products}{WARPGROUP_CUH}");
    program.header("barrier.cuh", BARRIER_CUH).header("warpgroup.cuh", &text).define("PRECISION", number)
}

/// The programs of a network: forward, back, weight gradient, images.
fn programs_of(plan: &Plan) -> [Program; 4] {
    let structs = [
        StepState::cuda_source(),
        Findings::cuda_source(),
        SumArgs::cuda_source(),
        HeadArgs::cuda_source(),
        DealArgs::cuda_source(),
        PassArgs::cuda_source(),
        BackArgs::cuda_source(),
        GradientArgs::cuda_source(),
        ImageArgs::cuda_source(),
        PackArgs::cuda_source(),
    ]
    .concat();
    let program = |name, source, widths: &[usize], stages, units_bytes: usize| {
        let widths: Vec<_> = widths.iter().map(ToString::to_string).collect();
        with_warpgroup(Program::new(name, source), plan.precision, &plan.product_shapes())
            .header("common.cuh", COMMON_CUH)
            .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
            .header("images.cuh", IMAGES_CUH)
            .header("chain.cuh", CHAIN_CUH)
            .header("q_from_head.cuh", Q_FROM_HEAD_CUH)
            .header("step.cuh", STEP_CUH)
            .define("WIDTHS", widths.join(","))
            .define("STAGES", stages)
            .define("UNITS_BYTES", units_bytes)
            .define("SHARED_BYTES", SHARED_BYTES)
            .define("AHEAD_LEAVES_PARAMETERS", Ahead::LeavesParameters as u32)
            .define("AHEAD_LEAVES_ALL", Ahead::LeavesAll as u32)
    };
    let (forward, back) = (&plan.forward, &plan.back);
    [
        program("network_pass.cu", NETWORK_PASS_CU, &forward.widths, forward.stages, forward.units_bytes),
        program("network_back.cu", NETWORK_BACK_CU, &back.widths, back.stages, back.units_bytes),
        program(
            "weight_gradient.cu",
            WEIGHT_GRADIENT_CU,
            &forward.widths,
            gradient_stages(plan.precision).0,
            0,
        ),
        program("pack_weights.cu", PACK_WEIGHTS_CU, &[], 0, 0),
    ]
}

/// The programs of a network, of which a learner compiles those of its own; none where it is not served. For [`TARGET`] alone.
#[must_use]
pub fn programs(precision: Precision, layout: &MlpLayout) -> Vec<Program> {
    Plan::of_network(layout, precision).map_or_else(Vec::new, |plan| programs_of(&plan).into())
}

/// What an update has beside acting.
#[derive(Debug)]
struct OfUpdate {
    back: Kernel,
    gradient: Kernel,
    /// Weights of the target network, and of the online network for the way back.
    target_image: DeviceBuffer<u8>,
    back_image: DeviceBuffer<u8>,
    back_map: DeviceBuffer<u32>,
    /// Of each layer: inputs and gradients of outputs as images, k along the rows.
    inputs: Vec<DeviceBuffer<u8>>,
    gradients: Vec<DeviceBuffer<u8>>,
    /// Of each hidden layer, which units are above 0.
    masks: Vec<DeviceBuffer<u32>>,
}

/// A learner's passes, with the images of its networks.
#[derive(Debug)]
pub(crate) struct NetworkPass {
    plan: Plan,
    layers: Vec<Layer>,
    /// What passes many rows, and what gives Q-values of few.
    pass: Option<Kernel>,
    acting: Option<ActingPass>,
    pack: Kernel,
    online_image: DeviceBuffer<u8>,
    /// Where each parameter goes in an image for the way forward.
    forward_map: DeviceBuffer<u32>,
    update: Option<OfUpdate>,
    processors: usize,
}

/// Forward passes that are done together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passes<'a> {
    pub(crate) rows: usize,
    /// Of each what it reads, whose parameters, and where head outputs go.
    pub(crate) jobs: &'a [Job<'a>],
    /// Values from row to row of those outputs.
    pub(crate) out_stride: usize,
    /// Which of them belong to the target network.
    pub(crate) of_target: [bool; 3],
    pub(crate) ahead: Ahead,
    /// The batch of an update, whose first job is kept and whose values are looked at for those that are not finite.
    pub(crate) batch: Option<(&'a DeviceBatch, &'a DeviceBuffer<StepState>)>,
    /// Where the Q-values of a dueling head go instead, f32 `[rows, n_outputs]`.
    pub(crate) q: Option<(&'a MlpLayout, &'a DeviceBuffer<f32>)>,
}

/// The way back of a sub-batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WayBack<'a> {
    pub(crate) rows: usize,
    /// Gradient of the head's outputs, f32 `[rows, stride]`.
    pub(crate) dhead: &'a DeviceBuffer<f32>,
    /// Where the gradients of segments go.
    pub(crate) gradient: &'a Gradient,
    /// What is summed beside it, from these results to this state.
    pub(crate) sums: SumArgs,
    pub(crate) results: [&'a DeviceBuffer<f32>; 2],
    pub(crate) step: &'a StepBuffers,
    pub(crate) adam_t: &'a DeviceBuffer<u64>,
}

impl NetworkPass {
    /// The passes of a learner, if they serve for it on this device.
    pub(crate) fn new(
        loader: &Loader<'_>,
        stream: &Stream,
        config: &GpuLearnerConfig,
        layout: &MlpLayout,
    ) -> Result<Option<Self>, CudaError> {
        let device = stream.device().info();
        let Some(plan) = Plan::of(config, layout) else { return Ok(None) };
        let hopper = device.compute_capability == (9, 0) && device.shared_bytes as usize >= SHARED_BYTES;
        if !hopper || !nvrtc::knows(TARGET)? {
            return Ok(None);
        }
        let programs = programs_of(&plan);
        let acting = if plan.acts_on_few { ActingPass::new(loader, config, layout, device)? } else { None };
        let passes = plan.updates || (plan.acts && acting.is_none());
        if !passes && acting.is_none() {
            return Ok(None);
        }
        let wanted = |i: usize| plan.updates || (i == 0 && passes) || i == 3;
        let images: Vec<_> = programs
            .par_iter()
            .enumerate()
            .map(|(i, program)| wanted(i).then(|| loader.compile(program)).transpose())
            .collect::<Result<_, _>>()?;
        let kernel = |i: usize, symbol, shared: usize| -> Result<Option<Kernel>, CudaError> {
            let Some(image) = &images[i] else { return Ok(None) };
            let kernel = loader.load_image(image)?.kernel(symbol)?;
            kernel.prefer_carveout(CARVEOUT)?;
            kernel.allow_shared(shared as u32)?;
            Ok(Some(kernel))
        };
        let back = kernel(1, "network_back", plan.back.shared)?;
        let gradient = kernel(2, "weight_gradient", gradient_stages(plan.precision).1)?;
        let pass = kernel(0, "network_pass", plan.forward.shared)?;
        let Some(pack) = kernel(3, "pack_weights", 0)? else { return Ok(None) };
        let weights = |n: usize| stream.zeros("images of weights", n);
        let (forward_bytes, back_bytes) =
            (plan.forward.image_bytes(plan.precision), plan.back.image_bytes(plan.precision));
        let batch = config.learner.batch;
        let of_rows = |which: usize| -> Result<Vec<DeviceBuffer<u8>>, CudaError> {
            let bytes = |l: &Layer| plan.images_of_rows(batch, l.n_in, l.n_out)[which];
            layout.layers().iter().map(|l| stream.zeros("images of a batch", bytes(l))).collect()
        };
        let layers = layout.layers();
        let hidden = &layers[..layers.len() - 1];
        let update = match back.zip(gradient) {
            Some((back, gradient)) => Some(OfUpdate {
                back,
                gradient,
                target_image: weights(forward_bytes)?,
                back_image: weights(back_bytes)?,
                back_map: stream.upload_new("where weights go", &plan.map(layout, true))?,
                inputs: of_rows(0)?,
                gradients: of_rows(1)?,
                masks: hidden
                    .iter()
                    .map(|l| stream.zeros("masks of units", mask_len(batch, l.n_out)))
                    .collect::<Result<_, _>>()?,
            }),
            None => None,
        };
        let online_image = weights(forward_bytes)?;
        let forward_map = stream.upload_new("where weights go", &plan.map(layout, false))?;
        let processors = device.multiprocessors as usize;
        let layers = layers.to_vec();
        Ok(Some(Self { plan, layers, pass, acting, pack, online_image, forward_map, update, processors }))
    }

    /// Whether an update goes this way.
    pub(crate) fn updates(&self) -> bool {
        self.update.is_some()
    }

    /// Whether acting does.
    pub(crate) fn acts(&self) -> bool {
        self.plan.acts || self.acting.is_some()
    }

    /// The clusters that act on few rows, and the image that they read.
    pub(crate) fn acting_on_few(&self) -> Option<(&ActingPass, &DeviceBuffer<u8>)> {
        self.acting.as_ref().map(|acting| (acting, &self.online_image))
    }

    /// All kernels, for resource reports.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Kernel> {
        let update = self.update.iter().flat_map(|of| [&of.back, &of.gradient]);
        let acting = self.acting.as_ref().map(ActingPass::kernel);
        self.pass.iter().chain(acting).chain([&self.pack]).chain(update)
    }

    /// The format of its images.
    pub(crate) fn precision(&self) -> Precision {
        self.plan.precision
    }

    /// Its images of weights, for whoever changes parameters.
    pub(crate) fn image_args(&self) -> ImageArgs {
        let update = self.update.as_ref();
        ImageArgs {
            online: self.online_image.ptr(),
            back: update.map_or(DevicePtr::NULL, |of| of.back_image.ptr()),
            target: update.map_or(DevicePtr::NULL, |of| of.target_image.ptr()),
            forward_map: self.forward_map.ptr(),
            back_map: update.map_or(DevicePtr::NULL, |of| of.back_map.ptr()),
        }
    }

    pub(crate) fn keep_images<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        let launch = launch.keep(&self.online_image).keep(&self.forward_map);
        match &self.update {
            Some(of) => launch.keep(&of.back_image).keep(&of.back_map).keep(&of.target_image),
            None => launch,
        }
    }

    /// Queues images of the parameters as they will be then, for all changes but the steps of an update.
    pub(crate) fn pack(
        &self,
        stream: &Stream,
        parameters: &Parameters,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let n = self.forward_map.len();
        parameters.online.holds(n)?;
        parameters.target.holds(n)?;
        let args = PackArgs {
            online: parameters.online.ptr(),
            target: parameters.target.ptr(),
            images: self.image_args(),
            n: n as u64,
        };
        let launch = Launch::new(&self.pack, n.div_ceil(256) as u32, 256)
            .programmatic(programmatic)
            .value(args)
            .keep(&parameters.online)
            .keep(&parameters.target);
        // SAFETY: pack_weights(PackArgs). Elements are tested against `n`, which parameters and maps hold (checked above; maps were
        // made for this layout, and lead into images as long as theirs). All is kept.
        unsafe { self.keep_images(launch).launch(stream) }
    }

    fn deal(&self, rows: usize, jobs: usize) -> (DealArgs, u32) {
        let deal = Deal::new(rows, jobs, self.processors);
        let args = DealArgs {
            rows: rows as u32,
            tiles: deal.tiles as u32,
            tiles_of_job: deal.tiles_of_job as u32,
            double_rounds: deal.double_rounds as u32,
        };
        (args, deal.blocks as u32)
    }

    /// Queues Q-values or head outputs of the online network.
    pub(crate) fn act(&self, stream: &Stream, of: &Acting<'_>, programmatic: bool) -> Result<(), CudaError> {
        if let Some(acting) = &self.acting {
            return acting.run(stream, &self.online_image, of, programmatic);
        }
        let passes = Passes {
            rows: of.rows,
            jobs: &[of.job],
            out_stride: of.out_stride,
            of_target: [false; 3],
            ahead: of.ahead,
            batch: None,
            q: of.q,
        };
        self.forward(stream, &passes, programmatic)
    }

    /// Queues forward passes.
    pub(crate) fn forward(
        &self,
        stream: &Stream,
        of: &Passes<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let (deal, blocks) = self.deal(of.rows, of.jobs.len());
        let mut args: PassArgs = bytemuck::Zeroable::zeroed();
        let (n_in, n_out) = (self.layers[0].n_in, self.layers.last().map_or(0, |head| head.n_out));
        let Some(pass) = &self.pass else {
            return Err(CudaError::Length { what: "forward passes", got: of.jobs.len(), expected: 0 });
        };
        let mut launch = Launch::new(pass, blocks, THREADS)
            .shared(self.plan.forward.shared as u32)
            .programmatic(programmatic);
        for (i, job) in of.jobs.iter().enumerate() {
            job.x.holds(of.rows * n_in)?;
            args.x[i] = job.x.ptr();
            args.parameters[i] = job.parameters.ptr();
            let image = match &self.update {
                Some(update) if of.of_target[i] => &update.target_image,
                _ => &self.online_image,
            };
            args.images[i] = image.ptr();
            args.out[i] = job.out.ptr();
            launch = launch.keep(job.x).keep(job.parameters).keep(image).keep(job.out);
            if of.q.is_none() {
                job.out.holds((of.rows - 1) * of.out_stride + n_out)?;
            }
        }
        if let Some((batch, state)) = of.batch {
            args.rewards = batch.rewards.ptr();
            args.terminated = batch.terminated.ptr();
            args.state = state.ptr();
            args.inspect = 1;
            launch = batch.keep(launch).keep(state);
            if let Some(update) = &self.update {
                for (l, image) in update.inputs.iter().enumerate() {
                    let Layer { n_in, n_out, .. } = self.layers[l];
                    image.holds(self.plan.images_of_rows(of.rows, n_in, n_out)[0])?;
                    args.kept[l] = image.ptr();
                    launch = launch.keep(image);
                }
                for (l, mask) in update.masks.iter().enumerate() {
                    args.masks[l] = mask.ptr();
                    launch = launch.keep(mask);
                }
            }
        }
        if let Some((layout, q)) = of.q {
            args.head = head_args(layout, of.rows, DevicePtr::NULL, q)?;
            launch = launch.keep(q);
        }
        for (bias, layer) in args.bias.iter_mut().zip(&self.layers) {
            *bias = layer.bias as u32;
        }
        args.deal = deal;
        args.jobs = of.jobs.len() as u32;
        args.out_stride = of.out_stride as u32;
        args.ahead = of.ahead as u32;
        // SAFETY: network_pass(PassArgs). Rows are tested against the count given, which states, outputs and images hold
        // (checked above and in `head_args`; a batch's fields by their owner, masks with the images, whose tiles are
        // theirs); images of weights are this layout's. All is kept.
        unsafe { launch.value(args).launch(stream) }
    }

    /// Queues the way back behind the forward passes of an update, and the gradients of all segments. One more block sums up the losses.
    pub(crate) fn backward(
        &self,
        stream: &Stream,
        way: &WayBack<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let WayBack { rows, dhead, gradient, sums, .. } = *way;
        let (Some(update), Some(parts)) = (&self.update, &gradient.parts) else {
            return Err(CudaError::Length { what: "segments of a gradient", got: 0, expected: 2 });
        };
        let (deal, blocks) = self.deal(rows, 1);
        let head = self.layers.last().map_or(0, |head| head.n_out);
        dhead.holds(rows * stride(head))?;
        let mut back: BackArgs = bytemuck::Zeroable::zeroed();
        back.dhead = dhead.ptr();
        back.dhead_stride = stride(head) as u32;
        back.image = update.back_image.ptr();
        back.deal = deal;
        let mut of: GradientArgs = bytemuck::Zeroable::zeroed();
        let mut launch = Launch::new(&update.back, blocks + 1, THREADS)
            .shared(self.plan.back.shared as u32)
            .programmatic(programmatic)
            .keep(dhead)
            .keep(&update.back_image)
            .keep(&way.step.state)
            .keep(&way.step.findings)
            .keep(way.adam_t);
        let splits = gradient.splits;
        let mut second =
            Launch::new(&update.gradient, (self.plan.gradient_blocks() * splits) as u32, THREADS)
                .shared(gradient_stages(self.plan.precision).1 as u32)
                .programmatic(programmatic)
                .keep(parts);
        for (l, layer) in self.layers.iter().enumerate() {
            let (image, inputs) = (&update.gradients[l], &update.inputs[l]);
            let [of_inputs, of_outputs] = self.plan.images_of_rows(rows, layer.n_in, layer.n_out);
            image.holds(of_outputs)?;
            inputs.holds(of_inputs)?;
            back.gradients[l] = image.ptr();
            of.gradients[l] = image.ptr();
            of.inputs[l] = inputs.ptr();
            of.weight[l] = layer.weight as u32;
            of.bias[l] = layer.bias as u32;
            launch = launch.keep(image);
            second = second.keep(image).keep(inputs);
            if let Some(mask) = update.masks.get(l) {
                back.masks[l] = mask.ptr();
                launch = launch.keep(mask);
            }
        }
        for buffer in way.results {
            launch = launch.keep(buffer);
        }
        of.gradient = parts.ptr();
        of.split_stride = gradient.part_stride as u64;
        of.rows = rows as u32;
        of.segment = gradient.segment as u32;
        of.splits = splits as u32;
        parts.holds(splits * gradient.part_stride)?;
        // SAFETY: network_back(BackArgs, SumArgs). Rows are tested against the count given, which the head's gradient and all
        // images hold (checked above); `sums` names rows that its owner made for this batch. All is kept.
        unsafe { launch.value(back).value(sums).launch(stream) }?;
        // SAFETY: weight_gradient(GradientArgs). Segments end with the rows; each writes its own gradient, whose parts are this
        // layout's and as many as blocks are launched for (checked above). All is kept.
        unsafe { second.value(of).launch(stream) }
    }
}
