//! The launchers of `rollout.cu` and `account.cu`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::Head;
use foxhunt_core::settings::{Precision, ReplayStorage};
use foxhunt_cuda::nvrtc::{Cache, Program};
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, KernelResources, Launch, Stream, bytemuck,
    shared_struct,
};
use foxhunt_market::{N_MARKET_FEATURES, STATE_DIM};

use super::steps;
use crate::acting_pass::cuda::{ActingPass, Shape, may_serve};
use crate::collect::{CollectConfig, GROUP, count};
use crate::error::OpError;
use crate::gpu_collect::GpuCollector;
use crate::gpu_collect::cuda::{structs, with_acting};
use crate::gpu_learner::{CARVEOUT, GpuLearner, GpuLearnerConfig, Loader};
use crate::gpu_replay::{GpuPrioritizedReplay, GpuReplayError};
use crate::mlp::MlpLayout;
use crate::mlp::cuda::{Ahead, HeadArgs, head_args};
use crate::network_pass::plan::{LAYERS, SHARED_BYTES};
use crate::ring::cuda::{DeviceCompactRows, Incoming};

const ROLLOUT_CU: &str = include_str!("rollout.cu");
const ACCOUNT_CU: &str = include_str!("account.cu");
const ROLLOUT_CUH: &str = include_str!("rollout.cuh");

/// Of a block of `rollout`: those that pass rows, and those that step environments.
const THREADS: u32 = 384;
/// Of a block of `account`.
const ACCOUNT_THREADS: usize = 512;
/// Rows of a cluster at most with `tf32x3`, by the registers that its products need, and environments of a block, a lane each.
const MOST_SPLIT_ROWS: usize = 64;
const MOST_OWN: usize = 128;

shared_struct! {
    /// What single steps leave for the account, by step and environment.
    pub(crate) struct RolloutLog {
        q: DevicePtr<f32>,
        rewards: DevicePtr<f32>,
        log_returns: DevicePtr<f64>,
        row_counts: DevicePtr<u32>,
        rows: DevicePtr<u32>,
        part_rows: DevicePtr<u32>,
        bad: DevicePtr<u32>,
    }
}

shared_struct! {
    /// The network that acts, and for how many steps.
    pub(crate) struct RolloutArgs {
        image: DevicePtr<u8>,
        parameters: DevicePtr<f32>,
        head: HeadArgs,
        bias: [u32; LAYERS],
        dueling: u32,
        steps: u32,
        ahead: u32,
    }
}

/// The buffers of a log.
#[derive(Debug)]
struct Log {
    /// f32 `[steps, n_envs, n_outputs]`.
    q: DeviceBuffer<f32>,
    /// f32 `[steps, n_envs]`.
    rewards: DeviceBuffer<f32>,
    /// f64 `[steps, n_envs]`, of the episode that ends there.
    log_returns: DeviceBuffer<f64>,
    /// u32 `[steps, n_envs]`.
    row_counts: DeviceBuffer<u32>,
    /// u32 `[steps, n_envs, n_step, 8]`.
    rows: DeviceBuffer<u32>,
    /// u32 `[steps, parts]`: rows of the environments of a warp.
    part_rows: DeviceBuffer<u32>,
    /// u32 `[steps, 2]`: state values and rewards that were not finite; 0 between rollouts.
    bad: DeviceBuffer<u32>,
}

impl Log {
    fn zeros(stream: &Stream, config: &CollectConfig, steps: usize, parts: usize) -> Result<Self, CudaError> {
        let n_envs = config.n_envs;
        Ok(Self {
            q: stream.zeros("Q-values of a rollout", [steps, n_envs, config.head.n_outputs()])?,
            rewards: stream.zeros("rewards of a rollout", [steps, n_envs])?,
            log_returns: stream.zeros("returns of a rollout", [steps, n_envs])?,
            row_counts: stream.zeros("row counts of a rollout", [steps, n_envs])?,
            rows: stream.zeros("rows of a rollout", [steps, config.max_rows(), 8])?,
            part_rows: stream.zeros("rows a part", [steps, parts])?,
            bad: stream.zeros("what is not finite in a rollout", [steps, 2])?,
        })
    }

    fn view(&self) -> RolloutLog {
        RolloutLog {
            q: self.q.ptr(),
            rewards: self.rewards.ptr(),
            log_returns: self.log_returns.ptr(),
            row_counts: self.row_counts.ptr(),
            rows: self.rows.ptr(),
            part_rows: self.part_rows.ptr(),
            bad: self.bad.ptr(),
        }
    }

    fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch
            .keep(&self.q)
            .keep(&self.rewards)
            .keep(&self.log_returns)
            .keep(&self.row_counts)
            .keep(&self.rows)
            .keep(&self.part_rows)
            .keep(&self.bad)
    }
}

/// What a program is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    /// As in acting on few rows, but for the weights that are kept.
    shape: Shape,
    /// Whether shared memory holds features of the bars that are likely to follow.
    fetches_features: bool,
}

impl Form {
    /// The form of rollouts where few rows are acted on with `acting`, if there is one, with blocks of `shared` bytes at most.
    fn of(acting: &Shape, shared: usize) -> Option<Self> {
        let too_many = acting.precision == Precision::Tf32x3 && acting.rows > MOST_SPLIT_ROWS;
        if too_many || acting.rows / acting.blocks > MOST_OWN {
            return None;
        }
        [(true, true), (false, true), (false, false)]
            .map(|(keeps_weights, fetches_features)| {
                let shape = Shape { keeps_weights, ..acting.clone() };
                Self { shape, fetches_features }
            })
            .into_iter()
            .find(|form| form.shared_bytes() <= shared)
    }

    /// Shared memory of a block: that of acting, counts, of each of its environments what it shows, whether that was expected, and features; two barriers.
    fn shared_bytes(&self) -> usize {
        let own = self.shape.rows / self.shape.blocks;
        let features = if self.fetches_features { N_MARKET_FEATURES * 4 } else { 0 };
        let counts = (self.shape.shared_bytes() + count::LEN * 4).next_multiple_of(16);
        (counts + own * (16 + 4 + features)).next_multiple_of(8) + 2 * 8
    }

    fn program(&self, head: Head) -> Program {
        let structs =
            [structs(), HeadArgs::cuda_source(), RolloutLog::cuda_source(), RolloutArgs::cuda_source()]
                .concat();
        let program = self.shape.with_acting(Program::new("rollout.cu", ROLLOUT_CU));
        with_acting(program, head)
            .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
            .header("rollout.cuh", ROLLOUT_CUH)
            .define("FETCHES_FEATURES", u32::from(self.fetches_features))
            .define("SHARED_BYTES", self.shared_bytes() as u32)
            .define("AHEAD_LEAVES_PARAMETERS", Ahead::LeavesParameters as u32)
    }
}

/// Warps of a block that environments belong to, whose rows are counted apart.
const OWN_WARPS: usize = 4;

/// The program of the account, for every device.
#[must_use]
pub fn account_program(head: Head) -> Program {
    let structs = [structs(), RolloutLog::cuda_source()].concat();
    with_acting(Program::new("account.cu", ACCOUNT_CU), head)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
        .header("rollout.cuh", ROLLOUT_CUH)
}

/// The program of rollouts of `n_envs` environments on a device of `processors` multiprocessors, none where there are none. For
/// [`crate::network_pass::cuda::TARGET`] alone.
#[must_use]
pub fn program(
    precision: Precision,
    layout: &MlpLayout,
    head: Head,
    n_envs: usize,
    processors: u32,
) -> Option<Program> {
    let acting = Shape::of(layout, precision, n_envs, processors, SHARED_BYTES)?;
    Some(Form::of(&acting, SHARED_BYTES)?.program(head))
}

/// Rollouts of a collector that acts by a learner's online network.
#[derive(Debug)]
pub struct Rollout {
    rollout: Kernel,
    account: Kernel,
    form: Form,
    /// Of the network, and of the collector.
    layout: MlpLayout,
    config: CollectConfig,
    /// Most steps.
    steps: usize,
    log: Log,
    /// Rows of the last rollout, and how many.
    rows: DeviceCompactRows,
    row_count: DeviceBuffer<u32>,
}

impl Rollout {
    /// Device bytes for compact rows at most, where a device has rollouts; 0 for what none has them for.
    #[must_use]
    pub fn bytes_for(learner: &GpuLearnerConfig, head: Head, n_step: usize, capacity: usize) -> u64 {
        let (layout, n_envs) = (learner.layout(), learner.acting_rows);
        let plain = learner.noise.is_none() && learner.shape.returns.is_mean();
        if !plain || !may_serve(&layout, learner.learner.precision, n_envs) {
            return 0;
        }
        let an_env = 4 * head.n_outputs() + 4 + 8 + 4 + n_step * 64;
        // Parts of blocks that have two environments at least, and of a last cluster that may have fewer; a number of rows.
        let parts = 4 * OWN_WARPS * (n_envs / 2 + 4);
        (steps(n_envs, n_step, capacity) * (n_envs * an_env + parts + 8) + 4) as u64
    }

    /// Rollouts, if they serve for this learner and collector on this device: they do for networks that clusters pass few rows through
    /// ([`crate::acting_pass`]), without noise or distributions, where rows are compact. `capacity` is that of the memory the rows go to.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], [`CudaError::NoCompiler`] and driver errors.
    pub fn new(
        stream: &Stream,
        learner: &GpuLearner,
        collector: &GpuCollector,
        capacity: usize,
        cache: Option<&Cache>,
    ) -> Result<Option<Self>, CudaError> {
        let (config, layout) = (collector.config(), learner.layout());
        let steps = steps(config.n_envs, config.n_step, capacity);
        let fits = config.n_envs <= learner.config().acting_rows
            && layout.shape().state_dim == STATE_DIM
            && layout.shape().head == config.head.into()
            && config.storage == ReplayStorage::Compact;
        let Some((acting, ..)) = learner.clusters_to_act().filter(|_| fits && steps > 0) else {
            return Ok(None);
        };
        let Some(form) = Form::of(acting.shape(), stream.device().info().shared_bytes as usize) else {
            return Ok(None);
        };
        let loader = Loader::new(stream, cache);
        let rollout = loader.load(&form.program(config.head))?.kernel("rollout")?;
        let account = loader.load(&account_program(config.head))?.kernel("account")?;
        rollout.prefer_carveout(CARVEOUT)?;
        account.prefer_carveout(CARVEOUT)?;
        let (whole, shape) = (form.shared_bytes() as u32, &form.shape);
        rollout.allow_shared(whole)?;
        if rollout.active_clusters(shape.blocks as u32, THREADS, whole)? == 0 {
            return Ok(None);
        }
        let clusters = config.n_envs.div_ceil(shape.rows);
        let parts = clusters * shape.blocks * OWN_WARPS;
        let this = Self {
            rollout,
            account,
            layout: layout.clone(),
            config: config.clone(),
            steps,
            log: Log::zeros(stream, config, steps, parts)?,
            rows: DeviceCompactRows::zeros(stream, steps * config.max_rows())?,
            row_count: stream.zeros("row count", 1)?,
            form,
        };
        this.account.allow_shared(this.account_bytes())?;
        Ok(Some(this))
    }

    /// Most steps of one rollout, a power of two.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// What the kernels use.
    ///
    /// # Errors
    /// Driver errors.
    pub fn resources(&self) -> Result<Vec<(&'static str, KernelResources)>, CudaError> {
        [&self.rollout, &self.account].into_iter().map(|k| Ok((k.symbol(), k.resources()?))).collect()
    }

    /// Shared memory of a block of the account: sums of three kinds by step, Q-values of a group for each warp.
    fn account_bytes(&self) -> u32 {
        (3 * self.steps * 8 + ACCOUNT_THREADS / 32 * GROUP * self.config.head.n_outputs() * 4) as u32
    }

    /// Queues `steps` vector steps and the insert of their rows into `replay`. [`GpuCollector::compact_rows`] are not theirs afterwards. `ahead` tells of
    /// the kernel queued just ahead; what is said of it must be so.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for no steps or more than [`Rollout::steps`], a learner or a collector other than what this was made for, and a memory that
    /// cannot hold the rows at once; those of [`GpuPrioritizedReplay::insert_compact_counted`].
    pub fn run(
        &mut self,
        stream: &Stream,
        learner: &GpuLearner,
        collector: &mut GpuCollector,
        replay: &mut GpuPrioritizedReplay,
        steps: usize,
        ahead: Ahead,
    ) -> Result<(), GpuReplayError> {
        let refuse = |what, value: String, rule| Err(OpError::InvalidArgument { what, value, rule }.into());
        if !(1..=self.steps).contains(&steps) {
            return refuse("steps", steps.to_string(), "from 1 to the most of a rollout");
        }
        let alike = |config: &CollectConfig| (config.n_envs, config.n_step, config.head, config.storage);
        if alike(collector.config()) != alike(&self.config) {
            return refuse("collector", "another".to_owned(), "what the rollout was made for");
        }
        let shape = &self.form.shape;
        let acting = Shape { keeps_weights: false, ..shape.clone() };
        let is_same =
            |(pass, ..): &(&ActingPass, _, _)| *pass.shape() == acting && *learner.layout() == self.layout;
        let clusters = learner.clusters_to_act().filter(is_same);
        let Some((_, image, parameters)) = clusters else {
            return refuse("learner", "another".to_owned(), "what the rollout was made for");
        };
        let most = steps * self.config.max_rows();
        if replay.config().storage != ReplayStorage::Compact {
            return refuse("replay", "rows stored whole".to_owned(), "rows stored compact");
        }
        if most > replay.config().capacity {
            return refuse("steps", steps.to_string(), "as few as give no more rows than the memory has");
        }
        let (layout, n_envs) = (learner.layout(), self.config.n_envs);
        let programmatic = learner.config().programmatic;
        let mut args: RolloutArgs = bytemuck::Zeroable::zeroed();
        args.image = image.ptr();
        args.parameters = parameters.ptr();
        args.head = head_args(layout, steps * n_envs, DevicePtr::NULL, &self.log.q)?;
        for (bias, layer) in args.bias.iter_mut().zip(layout.layers()) {
            *bias = layer.bias as u32;
        }
        args.dueling = u32::from(layout.shape().dueling);
        args.steps = steps as u32;
        args.ahead = ahead as u32;
        let grid = shape.blocks * n_envs.div_ceil(shape.rows);
        let launch = Launch::new(&self.rollout, grid as u32, THREADS)
            .shared(self.form.shared_bytes() as u32)
            .programmatic(programmatic);
        let launch =
            collector.told(launch, true).value(self.log.view()).value(args).keep(image).keep(parameters);
        // SAFETY: rollout(Market, EnvParams, CollectParams, CollectBuffers, RolloutLog, RolloutArgs). Environments are tested against n_envs and slots are
        // below n, for which collector and log were made, the log for as many steps (all checked above); image and parameters are those of a learner of the
        // shape that the program was compiled for (checked above), for states of this collector (checked when it was made). All is kept.
        unsafe { self.log.keep(launch).launch(stream)? };

        let blocks = self.config.n_groups() + steps;
        let launch = Launch::new(&self.account, blocks as u32, ACCOUNT_THREADS as u32)
            .shared(self.account_bytes())
            .programmatic(programmatic);
        let launch = collector
            .told(launch, false)
            .value(self.log.view())
            .buffer(&self.rows.words)
            .buffer(&self.row_count)
            .mapped(collector.progress())
            .value(steps as u32)
            .value((grid * OWN_WARPS) as u32);
        // SAFETY: account(CollectParams, CollectBuffers, RolloutLog, u32*, u32*, u64*, u32, u32). A block for each group and step; no environment gives
        // more than n rows a step, for which rows and log have room; parts are as many as the rollout counted. All is kept, the mapped word too.
        unsafe { self.log.keep(launch).launch(stream)? };
        replay.queue_insert(stream, Incoming::Compact(&self.rows), most, Some(&self.row_count))
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::ReturnModel;

    use super::*;
    use crate::mlp::MlpShape;

    /// Environments of each cluster size, by the multiprocessors of an H200.
    #[test]
    fn rollouts_are_for_as_many_environments_as_find_room() {
        let rows = |hidden: &[usize], precision, n_envs| {
            let (hidden, head) = (hidden.to_vec(), Head::Factored.into());
            let shape =
                MlpShape { state_dim: STATE_DIM, hidden, head, dueling: true, returns: ReturnModel::Mean };
            let acting = Shape::of(&MlpLayout::new(shape), precision, n_envs, 132, SHARED_BYTES)?;
            let form = Form::of(&acting, SHARED_BYTES)?;
            Some((form.shape.rows, form.shape.keeps_weights, form.fetches_features))
        };
        let default =
            |precision| [64, 720, 1200, 1201, 3600, 4080, 4320].map(|n| rows(&[256; 2], precision, n));
        let (kept, not) = (|rows| Some((rows, true, true)), |rows| Some((rows, false, true)));
        assert_eq!(default(Precision::Tf32x3), [kept(8), kept(24), not(40), None, None, None, None]);
        assert_eq!(default(Precision::Tf32)[..5], [kept(8), kept(24), kept(40), kept(48), kept(120)]);
        assert_eq!(default(Precision::Tf32)[5..], [not(136), Some((144, false, false))]);
        assert_eq!(default(Precision::Bf16), [8, 24, 40, 48, 120, 136, 144].map(kept));
        // A lane an environment, where a cluster is one block.
        assert_eq!([15_360, 15_361].map(|n| rows(&[64], Precision::Bf16, n)), [kept(128), None]);
    }
}
