//! The launcher of `head_pass.cu`.
#![allow(unsafe_code)] // A launch that names the signature it matches.

use foxhunt_core::settings::LearnerSettings;
use foxhunt_cuda::nvrtc::Program;
use foxhunt_cuda::{
    BARRIER_CUH, COMMON_CUH, CudaError, DeviceBuffer, DeviceInfo, DevicePtr, Kernel, Launch, Stream,
    shared_struct,
};

use crate::gpu_learner::{CARVEOUT, Loader};
use crate::mlp::cuda::COPIES_CUH;
use crate::mlp::{Layer, MlpLayout};
use crate::td_loss::TargetRule;
use crate::td_loss::cuda::{Loss, LossArgs, with_loss};

const HEAD_PASS_CU: &str = include_str!("head_pass.cu");

/// Lanes over a network's outputs, as in the kernel.
const LANES: usize = 16;
/// Most outputs: three to a lane, as far as the loss goes.
const OUTPUTS: usize = 46;
/// Words read ahead at most.
const AHEAD: usize = 16;
/// So much of the largest multiprocessor's shared memory leaves no room for a second block, which would only be in the way of
/// the first while other multiprocessors have none.
const ALONE: usize = 116 * 1024;
/// Words of a row of head outputs in shared memory, as in the kernel.
const HEAD_WORDS: usize = 49;

shared_struct! {
    /// Units, weights and gradients, as the kernel takes them.
    pub(crate) struct HeadPassArgs {
        x: [DevicePtr<f32>; 3],
        parameters: [DevicePtr<f32>; 2],
        before: DevicePtr<f32>,
        weight: u32,
        bias: u32,
        n_in: u32,
        n_out: u32,
        x_stride: u32,
        pad: u32,
    }
}

/// How rows are shared out: rows of a block, and of them those of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    rows: usize,
    jobs: usize,
}

/// From the quickest for few rows to the one that looks at the weights most rarely.
const FORMS: [Form; 3] = [Form { rows: 2, jobs: 2 }, Form { rows: 4, jobs: 2 }, Form { rows: 8, jobs: 2 }];

impl Form {
    /// The smallest blocks that all find a multiprocessor at once. Where none do, the layers' own kernels are quicker.
    fn of(batch: usize, processors: u32) -> Option<Self> {
        let all_at_once = |form: &&Self| batch.div_ceil(form.rows) <= processors as usize;
        FORMS.iter().find(all_at_once).copied()
    }

    fn threads(self) -> u32 {
        (LANES * 3 * self.rows / self.jobs).next_multiple_of(32) as u32
    }

    /// Shared memory of a block that is asked for at launch, and all of it.
    fn shared_bytes(self, head: &Layer) -> (usize, usize) {
        let width = 4 * ((head.n_in / 4) | 1);
        // Behind the last row there is room to read ahead.
        let used = 4 * ((2 * head.n_out + 3 * self.rows) * width + AHEAD);
        let fixed = 4 * self.rows * (4 * HEAD_WORDS + 12) + 16;
        let asked = used.max(ALONE.saturating_sub(fixed));
        (asked, asked + fixed)
    }

    fn program(self, of: Shape) -> Program {
        let structs = [HeadPassArgs::cuda_source(), LossArgs::cuda_source()].concat();
        with_loss(Program::new("head_pass.cu", HEAD_PASS_CU))
            .header("common.cuh", COMMON_CUH)
            .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
            .header("copies.cuh", COPIES_CUH)
            .header("barrier.cuh", BARRIER_CUH)
            .define("ROWS", self.rows as u32)
            .define("JOBS", self.jobs as u32)
            .define("UNITS", of.outputs.div_ceil(LANES) as u32)
            .define("BRANCHES", of.branches as u32)
            .define("DUELING", u32::from(of.dueling))
            .define("DOUBLE_DQN", u32::from(of.double))
    }
}

/// What a program is compiled for beside its form.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Head outputs, the value among them.
    outputs: usize,
    branches: usize,
    dueling: bool,
    double: bool,
}

impl Shape {
    fn of(layout: &MlpLayout, double: bool) -> Self {
        let shape = layout.shape();
        Self {
            outputs: layout.head().n_out,
            branches: shape.head.branches().len(),
            dueling: shape.dueling,
            double,
        }
    }
}

/// Every form of the program for the widest head, and one for the others each; a learner compiles one.
#[must_use]
pub fn programs() -> Vec<Program> {
    let widest = Shape { outputs: 46, branches: 1, dueling: true, double: true };
    let three = Shape { outputs: 12, branches: 3, ..widest };
    let others = [three, Shape { dueling: false, ..three }, Shape { outputs: 5, double: false, ..widest }];
    FORMS.iter().map(|form| form.program(widest)).chain(others.map(|shape| FORMS[1].program(shape))).collect()
}

/// The kernel for one batch size and head.
#[derive(Clone, Debug)]
pub(crate) struct HeadPass {
    kernel: Kernel,
    form: Form,
    shared: u32,
}

/// Whose units, weights and gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units<'a> {
    pub(crate) head: Layer,
    /// f32 `[rows, x_stride]`: online network at the states, at the next states, target network at the next states.
    pub(crate) x: [&'a DeviceBuffer<f32>; 3],
    pub(crate) x_stride: usize,
    /// Flat parameters of the online and the target network.
    pub(crate) parameters: [&'a DeviceBuffer<f32>; 2],
    /// f32 `[rows, x_stride]`, gradient of the first of `x`.
    pub(crate) before: &'a DeviceBuffer<f32>,
}

impl HeadPass {
    /// The kernel, if this head has units before it, in fours, and finds room on the device.
    pub(crate) fn new(
        loader: &Loader<'_>,
        layout: &MlpLayout,
        settings: &LearnerSettings,
        device: &DeviceInfo,
    ) -> Result<Option<Self>, CudaError> {
        let (head, batch, has_units) = (layout.head(), settings.batch, layout.layers().len() > 1);
        let rule = TargetRule::of(settings);
        let Some(form) = Form::of(batch, device.multiprocessors).filter(|_| !rule.asks_target()) else {
            return Ok(None);
        };
        let (asked, whole) = form.shared_bytes(&head);
        let aligned = head.n_in.is_multiple_of(4) && head.weight.is_multiple_of(4);
        let fits = whole <= device.shared_bytes as usize;
        if !(has_units && aligned && fits && head.n_out <= OUTPUTS && device.compute_capability.0 >= 8) {
            return Ok(None);
        }
        let kernel =
            loader.load(&form.program(Shape::of(layout, rule.asks_online())))?.kernel("head_pass")?;
        kernel.prefer_carveout(CARVEOUT)?;
        kernel.allow_shared(asked as u32)?;
        Ok(Some(Self { kernel, form, shared: asked as u32 }))
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Queues the pass over the rows of a sub-batch.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        u: &Units<'_>,
        loss: &Loss<'_>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let of_loss = loss.args()?;
        let rows = of_loss.rows as usize;
        let Layer { n_in, n_out, weight, bias } = u.head;
        for x in u.x.iter().chain([&u.before]) {
            x.holds(rows * u.x_stride)?;
        }
        for parameters in u.parameters {
            parameters.holds(bias + n_out)?;
        }
        let args = HeadPassArgs {
            x: u.x.map(DeviceBuffer::ptr),
            parameters: u.parameters.map(DeviceBuffer::ptr),
            before: u.before.ptr(),
            weight: weight as u32,
            bias: bias as u32,
            n_in: n_in as u32,
            n_out: n_out as u32,
            x_stride: u.x_stride as u32,
            pad: 0,
        };
        let mut launch = Launch::new(&self.kernel, rows.div_ceil(self.form.rows) as u32, self.form.threads())
            .shared(self.shared)
            .programmatic(programmatic)
            .value(args)
            .value(of_loss)
            .keep(u.before);
        for buffer in u.x.into_iter().chain(u.parameters) {
            launch = launch.keep(buffer);
        }
        // SAFETY: head_pass(HeadPassArgs, LossArgs). Rows are tested against the loss's, which units hold (checked above) and
        // fields and results too (checked by `args`); `new` saw to it that the head's weights begin at 16-byte
        // boundaries, as rows of units do, and fit shared memory. All is kept.
        unsafe { loss.keep(launch).launch(stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_whole_warps_and_the_default_head_fits() {
        let head = Layer { n_in: 256, n_out: 46, weight: 0, bias: 0 };
        for form in FORMS {
            assert!(form.rows.is_multiple_of(form.jobs), "{form:?}");
            assert!(form.threads() as usize >= (8 * form.rows).next_multiple_of(32), "{form:?}");
            let (asked, whole) = form.shared_bytes(&head);
            assert!(asked < whole && whole <= 227 * 1024, "{form:?}: {whole}");
        }
    }

    #[test]
    fn small_batches_take_small_blocks() {
        let rows = |batch| Form::of(batch, 132).map_or(0, |form| form.rows);
        assert_eq!([1, 64, 256, 264, 265, 512, 1024, 1057, 8192].map(rows), [2, 2, 2, 2, 4, 4, 8, 0, 0]);
    }
}
