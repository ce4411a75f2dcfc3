//! Launchers of `collect.cu`, and the buffers they share. The host side is the [module above](super).
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::Head;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::nvrtc::{self, Cache, Program};
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, KernelResources, Launch, MappedBuffer, Module,
    PHILOX_CUH, Stream, shared_struct,
};
use foxhunt_market::STATE_DIM;

use crate::collect::{CollectConfig, GROUP, Group, count};
use crate::env_step::cuda::{Bar, DeviceMarket, ENV_STEP_CUH, Market};
use crate::env_step::{EnvParams, EnvState};
use crate::gpu_replay::CARVEOUT;
use crate::n_step::N_STEP_CUH;
use crate::power::POWER_CUH;
use crate::q_monitor::Q_MONITOR_CUH;
use crate::ring::cuda::{COMPACT_CUH, DeviceCompactRows, Rows, RowsRoom};
use crate::select_actions::cuda::SELECT_ACTIONS_CUH;

const COLLECT_CU: &str = include_str!("collect.cu");
const ACT_CUH: &str = include_str!("act.cuh");

/// Room for faults between two reports; those beyond it are counted.
pub use crate::collect::MAX_FAULTS;
/// Environments up to which a block takes one group, so that they spread over more multiprocessors, and more for which
/// it takes four.
const FEW_ENVS: usize = 8448;

shared_struct! {
    /// What never changes.
    pub(crate) struct CollectParams {
        seed: u64,
        epsilon_start: f64,
        epsilon_end: f64,
        epsilon_steps: u64,
        gamma: f64,
        threshold: f32,
        n_envs: u32,
        n: u32,
        first_bar: u32,
        last_bar: u32,
        pad: u32,
    }
}

shared_struct! {
    /// The buffers, as kernels take them; rows of four and two words have plain types here.
    pub(crate) struct CollectBuffers {
        ledger: DevicePtr<Ledger>,
        groups: DevicePtr<Group>,
        envs: DevicePtr<EnvState>,
        shown: DevicePtr<f32>,
        places: DevicePtr<u32>,
        pending: DevicePtr<f32>,
        rewards: DevicePtr<f32>,
        returns: DevicePtr<f32>,
        moves: DevicePtr<u32>,
        reached: DevicePtr<f32>,
        group_rows: DevicePtr<u32>,
        states: DevicePtr<f32>,
    }
}

shared_struct! {
    /// What kernels advance, and what they count between two reports.
    pub struct Ledger {
        /// Vector steps since the start of training.
        pub vector_step: u64,
        /// Env steps since the last report.
        pub env_steps: u64,
        /// Refusals beyond the room for them.
        pub faults_lost: u64,
        /// Chance of a random action at the next vector step.
        pub epsilon: f32,
        /// Refusals listed.
        pub fault_count: u32,
        pad0: [u64; 12],
        /// State values of the running step that were not finite.
        pub bad_states: u32,
        /// Rewards of the running step that were not finite.
        pub bad_rewards: u32,
        /// See [`count`].
        pub counts: [u64; 71],
        /// {step, kind | count << 32}.
        pub faults: [u64; 2048],
    }
}
const _: () = assert!(count::LEN == 71 && 2 * MAX_FAULTS == 2048, "lengths of the arrays above");

/// Everything of a collector in device memory.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) ledger: DeviceBuffer<Ledger>,
    pub(super) groups: DeviceBuffer<Group>,
    /// [`EnvState`] `[n_envs]`.
    pub(super) envs: DeviceBuffer<EnvState>,
    /// f32 `[n_envs, 4]`: portfolio inputs of the state to act in, bits of its bar.
    pub(super) shown: DeviceBuffer<f32>,
    /// u32 `[n_envs, 2]`: slot of the oldest pending step, pending steps.
    pub(super) places: DeviceBuffer<u32>,
    /// f32 `[n, n_envs, 4]`: portfolio inputs of a pending step, bits of its action.
    pub(super) pending: DeviceBuffer<f32>,
    /// f32 `[n, n_envs]`.
    pub(super) rewards: DeviceBuffer<f32>,
    /// f32 `[n, n_envs, 2]`: R and discount of the k-th row that leaves.
    returns: DeviceBuffer<f32>,
    /// u32 `[n_envs, 4]`: rows that leave, slot and bar of the first, whether they are terminal.
    moves: DeviceBuffer<u32>,
    /// f32 `[n_envs, 4]`: portfolio inputs of the state the rows end in, bits of its bar.
    reached: DeviceBuffer<f32>,
    /// u32 `[n_groups]`.
    group_rows: DeviceBuffer<u32>,
    /// f32 `[n_envs, STATE_DIM]`.
    pub(super) states: DeviceBuffer<f32>,
    /// Rows of the last step.
    pub(super) rows: RowsRoom,
    /// u32 `[1]`: how many.
    pub(super) row_count: DeviceBuffer<u32>,
    /// u64 `[1]`: env steps since the start of training.
    pub(super) progress: MappedBuffer<u64>,
}

impl Buffers {
    /// Bytes for so many environments and steps of a window.
    pub(super) fn bytes(n_envs: usize, n_step: usize, storage: ReplayStorage) -> u64 {
        let groups = n_envs.div_ceil(GROUP) as u64;
        let (n_envs, n) = (n_envs as u64, n_step as u64);
        let state = 4 * STATE_DIM as u64;
        let an_env = size_of::<EnvState>() as u64 + 16 + 8 + 16 + 16 + state + n * (16 + 4 + 8);
        let a_group = size_of::<Group>() as u64 + 4;
        let row = match storage {
            ReplayStorage::Rows => 2 * state + 16,
            ReplayStorage::Compact => DeviceCompactRows::bytes_for(1),
        };
        n_envs * (an_env + n * row) + groups * a_group + size_of::<Ledger>() as u64 + 4
    }

    pub(super) fn zeros(stream: &Stream, config: &CollectConfig) -> Result<Self, CudaError> {
        let (n_envs, n) = (config.n_envs, config.n_step);
        Ok(Self {
            ledger: stream.zeros("collector ledger", 1)?,
            groups: stream.upload_new("collector sums", &vec![Group::EMPTY; config.n_groups()])?,
            envs: stream.zeros("environments", n_envs)?,
            shown: stream.zeros("portfolio inputs", [n_envs, 4])?,
            places: stream.zeros("pending places", [n_envs, 2])?,
            pending: stream.zeros("pending steps", [n, n_envs, 4])?,
            rewards: stream.zeros("pending rewards", [n, n_envs])?,
            returns: stream.zeros("returns", [n, n_envs, 2])?,
            moves: stream.zeros("leaving rows", [n_envs, 4])?,
            reached: stream.zeros("states reached", [n_envs, 4])?,
            group_rows: stream.zeros("rows a group", config.n_groups())?,
            states: stream.zeros("states", [n_envs, STATE_DIM])?,
            rows: RowsRoom::zeros(stream, config.max_rows(), config.storage)?,
            row_count: stream.zeros("row count", 1)?,
            progress: MappedBuffer::zeros(stream.device(), "env steps", 1)?,
        })
    }

    fn view(&self) -> CollectBuffers {
        CollectBuffers {
            ledger: self.ledger.ptr(),
            groups: self.groups.ptr(),
            envs: self.envs.ptr(),
            shown: self.shown.ptr(),
            places: self.places.ptr(),
            pending: self.pending.ptr(),
            rewards: self.rewards.ptr(),
            returns: self.returns.ptr(),
            moves: self.moves.ptr(),
            reached: self.reached.ptr(),
            group_rows: self.group_rows.ptr(),
            states: self.states.ptr(),
        }
    }

    fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch
            .keep(&self.ledger)
            .keep(&self.groups)
            .keep(&self.envs)
            .keep(&self.shown)
            .keep(&self.places)
            .keep(&self.pending)
            .keep(&self.rewards)
            .keep(&self.returns)
            .keep(&self.moves)
            .keep(&self.reached)
            .keep(&self.group_rows)
            .keep(&self.states)
    }
}

/// The structs of kernels that act.
pub(crate) fn structs() -> String {
    [
        EnvParams::cuda_source(),
        EnvState::cuda_source(),
        Bar::cuda_source(),
        Market::cuda_source(),
        Ledger::cuda_source(),
        Group::cuda_source(),
        CollectParams::cuda_source(),
        CollectBuffers::cuda_source(),
    ]
    .concat()
}

/// The program for a head and a form of rows.
#[must_use]
pub fn program(head: Head, storage: ReplayStorage) -> Program {
    let program = Program::new("collect.cu", COLLECT_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{}{}", structs(), Rows::cuda_source()))
        .define("COMPACT", u32::from(storage == ReplayStorage::Compact));
    with_acting(program, head)
}

/// A program with what an environment does in a step; its structs are to be among the program's.
pub(crate) fn with_acting(program: Program, head: Head) -> Program {
    let program = program
        .header("act.cuh", ACT_CUH)
        .header("philox.cuh", PHILOX_CUH)
        .header("power.cuh", POWER_CUH)
        .header("env_step.cuh", ENV_STEP_CUH)
        .header("n_step.cuh", N_STEP_CUH)
        .header("q_monitor.cuh", Q_MONITOR_CUH)
        .header("select_actions.cuh", SELECT_ACTIONS_CUH)
        .header("compact.cuh", COMPACT_CUH)
        .define("HEAD", head as u32)
        .define("OUTPUTS", head.n_outputs())
        .define("MAX_FAULTS", MAX_FAULTS);
    [
        ("COUNTS", count::LEN),
        ("COUNT_ACTIONS", count::ACTIONS),
        ("COUNT_ORDERS", count::ORDERS),
        ("COUNT_FILLS", count::FILLS),
        ("COUNT_HOLDS", count::HOLDS),
        ("COUNT_REWARDS", count::REWARDS),
        ("COUNT_EPISODES", count::EPISODES),
        ("COUNT_RUINED", count::RUINED),
        ("COUNT_Q_ROWS", count::Q_ROWS),
        ("COUNT_Q_NON_FINITE_ROWS", count::Q_NON_FINITE_ROWS),
        ("COUNT_FALLBACKS", count::FALLBACKS),
        ("COUNT_DIVERGED", count::DIVERGED),
    ]
    .into_iter()
    .fold(program, |program, (name, value)| program.define(name, value))
}

/// Handles of the kernels, and what they are told.
#[derive(Clone, Debug)]
pub(super) struct CollectKernels {
    act: Kernel,
    moves: Kernel,
    params: CollectParams,
    env: EnvParams,
    outputs: usize,
}

impl CollectKernels {
    pub(super) fn new(
        stream: &Stream,
        config: &CollectConfig,
        cache: Option<&Cache>,
    ) -> Result<Self, CudaError> {
        let device = stream.device();
        let target = nvrtc::target_of(device.info().compute_capability);
        let module =
            Module::load(device, &nvrtc::compile(&program(config.head, config.storage), &target, cache)?)?;
        let (act, moves) = (module.kernel("collect_act")?, module.kernel("collect_move")?);
        // Kernels that overlap at their edges must agree on the L1 split.
        act.prefer_carveout(CARVEOUT)?;
        moves.prefer_carveout(CARVEOUT)?;
        let params = CollectParams {
            seed: config.seed,
            epsilon_start: config.epsilon.start,
            epsilon_end: config.epsilon.end,
            epsilon_steps: config.epsilon.steps,
            gamma: config.gamma,
            threshold: config.divergence_threshold,
            n_envs: config.n_envs as u32,
            n: config.n_step as u32,
            first_bar: config.window.first_bar(),
            last_bar: config.window.last_bar(),
            pad: 0,
        };
        Ok(Self { act, moves, params, env: config.params, outputs: config.head.n_outputs() })
    }

    /// Adds what the collector's kernels are told.
    pub(super) fn told<'k>(
        &self,
        launch: Launch<'k>,
        market: Option<&DeviceMarket>,
        buffers: &Buffers,
    ) -> Launch<'k> {
        let launch = match market {
            Some(market) => market.keep(launch.value(market.view()).value(self.env)),
            None => launch,
        };
        buffers.keep(launch.value(self.params).value(buffers.view()))
    }

    pub(super) fn resources(&self) -> Result<Vec<(&'static str, KernelResources)>, CudaError> {
        [&self.act, &self.moves].into_iter().map(|k| Ok((k.symbol(), k.resources()?))).collect()
    }

    /// One vector step: decisions and environments, then rows and states.
    pub(super) fn step(
        &self,
        stream: &Stream,
        market: &DeviceMarket,
        buffers: &Buffers,
        q: &DeviceBuffer<f32>,
        programmatic: bool,
    ) -> Result<(), CudaError> {
        let n_envs = self.params.n_envs as usize;
        q.holds(n_envs * self.outputs)?;
        let groups_a_block = if n_envs <= FEW_ENVS { 1 } else { 4 };
        let blocks = self.params.n_envs.div_ceil(groups_a_block * GROUP as u32);
        let launch = Launch::new(&self.act, blocks, groups_a_block * 64).programmatic(programmatic);
        let launch = self.told(launch, Some(market), buffers).buffer(q);
        // SAFETY: collect_act(Market, EnvParams, CollectParams, CollectBuffers, float*). Environments are tested against
        // n_envs, for which all buffers were made; bars stay in the window, checked against the market and again for
        // every state taken up; slots are below n, the window the buffers were made for. All is kept.
        unsafe { launch.launch(stream)? };

        // Enough blocks for every multiprocessor, few enough to be resident together.
        let envs_a_block: u32 = match n_envs {
            0..=6144 => 8,
            6145..=12_288 => 16,
            _ => GROUP as u32,
        };
        let launch = Launch::new(&self.moves, self.params.n_envs.div_ceil(envs_a_block), 256)
            .programmatic(programmatic)
            .value(market.view())
            .value(self.params)
            .value(buffers.view())
            .value(buffers.rows.incoming().view(0, STATE_DIM))
            .buffer(&buffers.row_count)
            .value(envs_a_block)
            .mapped(&buffers.progress);
        let launch = buffers.rows.incoming().keep(market.keep(buffers.keep(launch)));
        // SAFETY: collect_move(Market, CollectParams, CollectBuffers, Rows, u32*, u32, u64*). No environment gives more than
        // n rows and the rows, of the form the kernel was compiled for, have room for n_envs * n; the rest as above. All is kept, the mapped word too.
        unsafe { launch.launch(stream) }
    }
}
