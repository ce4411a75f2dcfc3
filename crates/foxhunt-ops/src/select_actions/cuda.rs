//! Launchers of `select_actions.cu`: what the CPU twin does, on device arrays; nothing is read back.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_core::Head;
use foxhunt_core::action::{N_EXPOSURES, N_FACTORED};
use foxhunt_cuda::nvrtc::{self, Cache, Program};
use foxhunt_cuda::{
    COMMON_CUH, CudaError, DeviceBuffer, DevicePtr, Kernel, Launch, Module, PHILOX_CUH, Stream, shared_struct,
};

const SELECT_ACTIONS_CU: &str = include_str!("select_actions.cu");
/// Text of `select_actions.cuh`.
pub const SELECT_ACTIONS_CUH: &str = include_str!("select_actions.cuh");

const THREADS: u32 = 128;

shared_struct! {
    /// What every decision of one launch shares.
    pub struct Explore {
        /// The run's seed.
        pub seed: u64,
        /// Vector step of the decisions.
        pub vector_step: u64,
        /// Environment of row 0.
        pub first_env: u32,
        /// Chance of a random action, in [0, 1].
        pub epsilon: f32,
    }
}

impl Explore {
    /// The launch form of the CPU twin's argument.
    #[must_use]
    pub fn new(explore: &super::Explore) -> Self {
        Self {
            seed: explore.philox.seed(),
            vector_step: explore.vector_step,
            first_env: explore.first_env,
            epsilon: explore.epsilon,
        }
    }
}

shared_struct! {
    /// What the router reads, as kernels take it: four arrays and their lengths.
    struct RouterInputs {
        spread: DevicePtr<f32>,
        median_spread: DevicePtr<f32>,
        volatility: DevicePtr<f32>,
        median_volatility: DevicePtr<f32>,
        spreads: u32,
        median_spreads: u32,
        volatilities: u32,
        median_volatilities: u32,
    }
}

/// What the router reads; each buffer has one value a row, or a single value for all rows.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRouter<'a> {
    /// Observed spread, f32 `[n]` or `[1]`, price units.
    pub spread: &'a DeviceBuffer<f32>,
    /// Rolling median of the spread, same unit.
    pub median_spread: &'a DeviceBuffer<f32>,
    /// Volatility, f32 `[n]` or `[1]`.
    pub volatility: &'a DeviceBuffer<f32>,
    /// Rolling median of the volatility, same unit.
    pub median_volatility: &'a DeviceBuffer<f32>,
}

impl DeviceRouter<'_> {
    fn inputs(&self, n: usize) -> Result<RouterInputs, CudaError> {
        let len = |buffer: &DeviceBuffer<f32>| match buffer.len() {
            1 => Ok(1),
            len if len >= n => Ok(len as u32),
            got => Err(CudaError::Length { what: buffer.what(), got, expected: n }),
        };
        Ok(RouterInputs {
            spread: self.spread.ptr(),
            median_spread: self.median_spread.ptr(),
            volatility: self.volatility.ptr(),
            median_volatility: self.median_volatility.ptr(),
            spreads: len(self.spread)?,
            median_spreads: len(self.median_spread)?,
            volatilities: len(self.volatility)?,
            median_volatilities: len(self.median_volatility)?,
        })
    }

    fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch.keep(self.spread).keep(self.median_spread).keep(self.volatility).keep(self.median_volatility)
    }
}

/// Handles of the kernels.
#[derive(Clone, Debug)]
pub struct ActionKernels {
    select_actions: Kernel,
    select_actions_routed: Kernel,
    select_actions_branching: Kernel,
    route_exposures: Kernel,
}

/// What a launch decides on: Q-values, an optional mask and how many decisions.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'a> {
    /// f32 `[n, n_outputs]`, row-major.
    pub q: &'a DeviceBuffer<f32>,
    /// u8 `[n, n_outputs]`, 0 = forbidden.
    pub mask: Option<&'a DeviceBuffer<u8>>,
    /// Decisions.
    pub n: usize,
}

impl Decisions<'_> {
    fn check(&self, width: usize) -> Result<u32, CudaError> {
        let values = self.n.saturating_mul(width);
        self.q.holds(values)?;
        self.mask.map_or(Ok(()), |mask| mask.holds(values))?;
        u32::try_from(self.n).map_err(|_| CudaError::Length {
            what: "decisions",
            got: self.n,
            expected: u32::MAX as usize,
        })
    }

    fn mask<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        match self.mask {
            Some(mask) => launch.buffer(mask),
            None => launch.value(0_u64),
        }
    }
}

/// The program.
#[must_use]
pub fn program() -> Program {
    let structs = [Explore::cuda_source(), RouterInputs::cuda_source()].concat();
    Program::new("select_actions.cu", SELECT_ACTIONS_CU)
        .header("common.cuh", COMMON_CUH)
        .header("philox.cuh", PHILOX_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
        .header("select_actions.cuh", SELECT_ACTIONS_CUH)
}

impl ActionKernels {
    /// Compiles the kernels, or takes them from `cache`.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`], [`CudaError::Compile`], driver errors.
    pub fn new(stream: &Stream, cache: Option<&Cache>) -> Result<Self, CudaError> {
        let device = stream.device();
        let target = nvrtc::target_of(device.info().compute_capability);
        let module = Module::load(device, &nvrtc::compile(&program(), &target, cache)?)?;
        Ok(Self {
            select_actions: module.kernel("select_actions")?,
            select_actions_routed: module.kernel("select_actions_routed")?,
            select_actions_branching: module.kernel("select_actions_branching")?,
            route_exposures: module.kernel("route_exposures")?,
        })
    }

    /// One action a row of the exposure head (5 values) or the factored head (45): `actions`, u32 `[n]`. `fell_back`,
    /// u64 `[1]`, gains the decisions that fell back.
    ///
    /// # Errors
    /// [`CudaError::Length`], driver errors.
    pub fn select_actions(
        &self,
        stream: &Stream,
        head: Head,
        decisions: &Decisions<'_>,
        explore: &super::Explore,
        actions: &mut DeviceBuffer<u32>,
        fell_back: &mut DeviceBuffer<u64>,
    ) -> Result<(), CudaError> {
        let width = if head == Head::Factored { N_FACTORED } else { N_EXPOSURES };
        if head == Head::Branching {
            return self.select_actions_branching(stream, decisions, explore, actions, fell_back);
        }
        let n = decisions.check(width)?;
        actions.holds(decisions.n)?;
        fell_back.holds(1)?;
        let launch = Launch::new(&self.select_actions, n.div_ceil(THREADS), THREADS).buffer(decisions.q);
        let launch = decisions.mask(launch.value(width as u32));
        let launch = launch.value(Explore::new(explore)).value(n).buffer(actions).buffer(fell_back);
        // SAFETY: select_actions(float*, u32, u8*, Explore, u32, u32*, u64*). Threads are tested against n, which every
        // buffer holds (checked above). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// [`ActionKernels::select_actions`] over five exposures, then the router: factored actions, u32 `[n]`.
    ///
    /// # Errors
    /// [`CudaError::Length`], driver errors.
    pub fn select_actions_routed(
        &self,
        stream: &Stream,
        decisions: &Decisions<'_>,
        explore: &super::Explore,
        router: &DeviceRouter<'_>,
        actions: &mut DeviceBuffer<u32>,
        fell_back: &mut DeviceBuffer<u64>,
    ) -> Result<(), CudaError> {
        let n = decisions.check(N_EXPOSURES)?;
        actions.holds(decisions.n)?;
        fell_back.holds(1)?;
        let launch = Launch::new(&self.select_actions_routed, n.div_ceil(THREADS), THREADS);
        let launch = decisions.mask(launch.buffer(decisions.q)).value(Explore::new(explore));
        let launch = launch.value(router.inputs(decisions.n)?).value(n).buffer(actions).buffer(fell_back);
        // SAFETY: select_actions_routed(float*, u8*, Explore, RouterInputs, u32, u32*, u64*). Threads are tested against n,
        // which every buffer holds, router inputs of length 1 apart. All is kept.
        unsafe { router.keep(launch).launch(stream) }
    }

    /// One factored action a row of the branching head (5 + 3 + 3 values), u32 `[n]`.
    ///
    /// # Errors
    /// [`CudaError::Length`], driver errors.
    pub fn select_actions_branching(
        &self,
        stream: &Stream,
        decisions: &Decisions<'_>,
        explore: &super::Explore,
        actions: &mut DeviceBuffer<u32>,
        fell_back: &mut DeviceBuffer<u64>,
    ) -> Result<(), CudaError> {
        let n = decisions.check(Head::Branching.n_outputs())?;
        actions.holds(decisions.n)?;
        fell_back.holds(1)?;
        let launch = Launch::new(&self.select_actions_branching, n.div_ceil(THREADS), THREADS);
        let launch = decisions.mask(launch.buffer(decisions.q)).value(Explore::new(explore));
        let launch = launch.value(n).buffer(actions).buffer(fell_back);
        // SAFETY: select_actions_branching(float*, u8*, Explore, u32, u32*, u64*). Threads are tested against n, which
        // every buffer holds (checked above). All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Completes `exposures`, u32 `[n]`, to factored actions. An exposure of 5 or more becomes `u32::MAX` and is
    /// counted in `bad`, u64 `[1]`.
    ///
    /// # Errors
    /// [`CudaError::Length`], driver errors.
    pub fn batch_route_exposure_to_factored(
        &self,
        stream: &Stream,
        exposures: &DeviceBuffer<u32>,
        router: &DeviceRouter<'_>,
        actions: &mut DeviceBuffer<u32>,
        bad: &mut DeviceBuffer<u64>,
    ) -> Result<(), CudaError> {
        let len = exposures.len();
        let n = u32::try_from(len).map_err(|_| CudaError::Length {
            what: "exposures",
            got: len,
            expected: u32::MAX as usize,
        })?;
        actions.holds(len)?;
        bad.holds(1)?;
        let launch = Launch::new(&self.route_exposures, n.div_ceil(THREADS), THREADS).buffer(exposures);
        let launch = launch.value(router.inputs(len)?).value(n).buffer(actions).buffer(bad);
        // SAFETY: route_exposures(u32*, RouterInputs, u32, u32*, u64*). Threads are tested against n, which every buffer
        // holds, router inputs of length 1 apart. All is kept.
        unsafe { router.keep(launch).launch(stream) }
    }
}
