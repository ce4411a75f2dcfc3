//! Learning that never leaves the device: forward passes, loss, the way back, guard, Adam, target.
//!
//! The device twin of [`crate::learner`]: given the same state and batches, parameters, moments, TD errors, counts and
//! faults equal those of [`crate::learner::CpuUpdate`] to the bit. With a [`Precision`] other than f32 products go to tensor
//! cores, but for those that are as quick without, and everything else stays. An update is a short chain of kernels, one a
//! step of the arithmetic:
//!
//! | launch | kernel | folder |
//! |---|---|---|
//! | with noise, the weights of all passes first, and behind the way back the gradient of their scales | `draw_weights`, `scale_gradient` | `noise/` |
//! | one a hidden layer, all two or three forward passes | `forward_layer` | `mlp/` |
//! | heads, loss, TD errors, head gradient, gradient of the units before | `head_pass` | `head_pass/` |
//! | one a hidden layer, backwards: units before it and weight gradients together, the head's beside the first | `backward_layer` | `mlp/` |
//! | squares of the gradient | `sum_squares` | `adam/` |
//! | norm, guard, gate, Adam, target, records | `apply_update` | `adam/` |
//!
//! From compute capability 9.0 on, updates of few rows through two layers have everything up to the gradients of units in
//! one launch of `cluster_pass/`, in f32 whatever the precision, and the gradients of all weights in one of
//! `backward_layer`. On Hopper, in tf32x3, tf32 and bf16, three launches of `network_pass/` stand for those of all layers in
//! large batches, and one for acting; with few rows to act on that is `acting_pass/`. Elsewhere, where a block has no room for two heads' weights, `forward_layer`,
//! `td_loss` (`td_loss/`) and `backward_layer` stand for `head_pass`; where heads are distributions, with
//! `distribution_loss` (`distribution/`) in the middle.
//!
//! Everything that changes from update to update lives in device memory, so a captured update replays without the host,
//! which waits for nothing: [`GpuLearner::live`] and [`GpuLearner::drain_faults`] read pinned memory. The learner draws
//! no rows, writes no priorities (it offers [`GpuLearner::priorities`] for that) and chooses no actions; what a run does
//! about skipped updates is the host's policy.

mod acting;
pub mod bench;
mod chain;
mod config;
pub(crate) mod memory;
pub(crate) mod state;

pub use crate::guard::cuda::FaultDrain;
pub use config::GpuLearnerConfig;

use std::sync::Arc;

use foxhunt_core::settings::Precision;
use foxhunt_cuda::nvrtc::{self, Cache, Image, Program};
use foxhunt_cuda::{CudaError, DeviceBuffer, KernelResources, Module, Stream};

use self::config::FAULTS;
use self::memory::{Activations, Gradient, Parameters, Passing};
use self::state::StepBuffers;
use crate::adam::cuda::AdamKernels;
use crate::cluster_pass::cuda::ClusterPass;
use crate::distribution::cuda::DistributionKernels;
use crate::error::check_len;
use crate::gpu_replay::GpuReplayError;
use crate::guard::GuardWords;
use crate::guard::cuda::FaultRing;
use crate::guard::gate::{Gate, PendingUpdate};
use crate::guard::record::Record;
use crate::head_pass::cuda::HeadPass;
use crate::learner::{EpochSums, LearnerCounts, LearnerState, Progress};
use crate::mlp::MlpLayout;
pub use crate::mlp::cuda::Ahead;
use crate::mlp::cuda::MlpKernels;
use crate::network_pass::cuda::NetworkPass;
use crate::noise::cuda::Noise;
use crate::priority_tree::cuda::DeviceUpdate;
use crate::ring::cuda::DeviceBatch;
use crate::td_loss::cuda::{LossKernel, RowResults};

/// The share of L1 that all kernels of the loop agree on; see [`crate::gpu_replay`].
pub(crate) use crate::gpu_replay::CARVEOUT;

/// What can go wrong in a learner on the device; the same as in a replay memory.
pub type GpuLearnerError = GpuReplayError;

/// Compiles and loads programs for the device of a stream.
pub(crate) struct Loader<'a> {
    stream: &'a Stream,
    target: String,
    cache: Option<&'a Cache>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(stream: &'a Stream, cache: Option<&'a Cache>) -> Self {
        let target = nvrtc::target_of(stream.device().info().compute_capability);
        Self { stream, target, cache }
    }

    pub(crate) fn compile(&self, program: &Program) -> Result<Image, CudaError> {
        nvrtc::compile(program, &self.target, self.cache)
    }

    pub(crate) fn load_image(&self, image: &Image) -> Result<Arc<Module>, CudaError> {
        Module::load(self.stream.device(), image)
    }

    pub(crate) fn load(&self, program: &Program) -> Result<Arc<Module>, CudaError> {
        self.load_image(&self.compile(program)?)
    }
}

/// Every program of a learner of this precision but those of [`crate::cluster_pass`], [`crate::network_pass`] and [`crate::acting_pass`], and of the guard and the Q
/// monitor by themselves; with a precision other than f32 for compute capability 8.0 and up.
#[must_use]
pub fn programs(precision: Precision) -> Vec<Program> {
    let mut all = crate::mlp::cuda::programs(precision);
    all.extend([
        crate::td_loss::cuda::program(&[5]),
        crate::td_loss::cuda::program(&[45]),
        crate::td_loss::cuda::program(&[5, 3, 3]),
        crate::distribution::cuda::program(),
        crate::adam::cuda::program(),
        crate::adam::cuda::program_without_guard(),
        crate::noise::cuda::program(),
        crate::guard::cuda::program(),
        crate::q_monitor::cuda::program(),
    ]);
    all.extend(crate::head_pass::cuda::programs());
    all
}

/// The newest state of a learner, as the host sees it without waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// The guard's record of the newest update.
    pub guard: GuardWords,
    /// Counts behind that update.
    pub progress: Progress,
}

/// Online and target network, optimiser and guard on the device.
#[derive(Debug)]
pub struct GpuLearner {
    config: GpuLearnerConfig,
    layout: MlpLayout,
    mlp: MlpKernels,
    head_pass: Option<HeadPass>,
    /// Instead of `head_pass` and the forward kernels of `mlp` in updates.
    cluster_pass: Option<ClusterPass>,
    /// For what it serves, instead of the kernels of `mlp` and `head_pass`.
    network: Option<NetworkPass>,
    loss: LossKernel,
    /// For heads that are no Q-values.
    distribution: Option<DistributionKernels>,
    adam: AdamKernels,
    noise: Option<Noise>,
    parameters: Parameters,
    good: Option<Parameters>,
    gradient: Gradient,
    acts: Activations,
    acting: Option<Passing>,
    results: RowResults,
    step: StepBuffers,
    record: Record,
    faults: FaultRing,
}

impl GpuLearner {
    /// Compiles its kernels (or takes them from `cache`) and takes all its memory. Parameters start at 0: give it a state
    /// with [`GpuLearner::upload_state`].
    ///
    /// # Errors
    /// `InvalidArgument` for settings out of range and a precision that the device does not have; [`CudaError::OutOfMemory`]
    /// with bytes asked and free, before anything is taken; [`CudaError::NoCompiler`].
    pub fn new(
        stream: &Stream,
        config: &GpuLearnerConfig,
        cache: Option<&Cache>,
    ) -> Result<Self, GpuLearnerError> {
        config.check(stream.device().info().compute_capability)?;
        let layout = config.layout();
        let (bytes, (free, _)) = (config.bytes(), stream.device().memory()?);
        if bytes > free {
            return Err(CudaError::OutOfMemory { what: "the learner", bytes, free }.into());
        }
        let loader = Loader::new(stream, cache);
        let processors = stream.device().info().multiprocessors;
        let n = layout.len();
        let network = NetworkPass::new(&loader, stream, config, &layout)?;
        let here = network.as_ref().is_some_and(NetworkPass::updates);
        let cluster_pass =
            if here { None } else { ClusterPass::new(&loader, config, &layout, stream.device().info())? };
        Ok(Self {
            mlp: MlpKernels::new(&loader, config.learner.precision, stream.device().info())?,
            head_pass: if here || cluster_pass.is_some() {
                None
            } else {
                Self::head_pass(&loader, stream, config, &layout)?
            },
            cluster_pass,
            loss: LossKernel::new(&loader, &layout)?,
            distribution: (!layout.shape().returns.is_mean())
                .then(|| DistributionKernels::new(&loader))
                .transpose()?,
            adam: AdamKernels::new(&loader, processors, network.as_ref().map(NetworkPass::precision), true)?,
            noise: config.noise.map(|_| Noise::new(stream, &loader, &layout, config)).transpose()?,
            parameters: Parameters::zeros(stream, n)?,
            good: memory::keeps_copy(config).then(|| Parameters::zeros(stream, n)).transpose()?,
            gradient: Gradient::zeros(stream, &layout, config)?,
            acts: Activations::zeros(stream, &layout, config, here)?,
            acting: (config.acting_rows > 0)
                .then(|| {
                    Passing::zeros(
                        stream,
                        &layout,
                        config.acting_rows,
                        network.as_ref().is_some_and(NetworkPass::acts),
                    )
                })
                .transpose()?,
            network,
            results: memory::row_results(stream, config)?,
            step: StepBuffers::zeros(stream)?,
            record: Record::new(stream.device())?,
            faults: FaultRing::new(stream.device(), FAULTS)?,
            config: config.clone(),
            layout,
        })
    }

    fn head_pass(
        loader: &Loader<'_>,
        stream: &Stream,
        config: &GpuLearnerConfig,
        layout: &MlpLayout,
    ) -> Result<Option<HeadPass>, CudaError> {
        if !layout.shape().returns.is_mean() || config.noise.is_some() {
            return Ok(None);
        }
        HeadPass::new(loader, layout, &config.learner, stream.device().info())
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &GpuLearnerConfig {
        &self.config
    }

    /// Where each parameter lies.
    #[must_use]
    pub fn layout(&self) -> &MlpLayout {
        &self.layout
    }

    /// Turns overlapping launches on or off from here on; results stay the same.
    pub fn set_programmatic(&mut self, on: bool) {
        self.config.programmatic = on;
    }

    /// Queues the gradients of sub-batch number `sub`, 0 for the first; a [`GpuLearner::finish`] follows the last. `ahead`
    /// tells of the kernel queued just ahead; what is said of it must be so.
    ///
    /// # Errors
    /// `Length` for a batch of another size or a `sub` past the accumulation, and driver errors.
    pub fn accumulate(
        &mut self,
        stream: &Stream,
        batch: &DeviceBatch,
        sub: usize,
        ahead: Ahead,
    ) -> Result<(), GpuLearnerError> {
        check_len("rows of a sub-batch", batch.len(), self.config.learner.batch)?;
        let subs = self.config.learner.accumulation;
        if sub >= subs {
            let error = CudaError::Length { what: "sub-batches", got: sub + 1, expected: subs };
            return Err(error.into());
        }
        let ahead = if sub == 0 { self.draw(stream, ahead)? } else { ahead };
        let ahead = self.forward(stream, batch, ahead)?;
        self.head_and_loss(stream, batch, sub, ahead)?;
        self.backward(stream, batch, sub)?;
        if self.gradient.splits > 1 && sub + 1 < subs {
            self.join_segments(stream, sub > 0)?;
        }
        Ok(())
    }

    /// Queues the end of an update: norm, guard, gate, and unless refused Adam and the target network.
    ///
    /// # Errors
    /// Driver errors.
    pub fn finish(&mut self, stream: &Stream) -> Result<(), GpuLearnerError> {
        let (programmatic, again) = (self.config.programmatic, self.config.learner.accumulation > 1);
        if let Some(noise) = &self.noise {
            if self.gradient.splits > 1 {
                self.join_segments(stream, again)?;
            }
            noise.scale_gradient(stream, &self.gradient.whole, &self.step.state, programmatic)?;
            let n = self.layout.len();
            self.adam.sum_squares(stream, &self.gradient, n, false, false, programmatic)?;
        } else {
            self.join_segments(stream, again)?;
        }
        self.adam.apply(
            stream,
            &self.config.learner,
            &self.config.guard,
            &self.parameters,
            &self.gradient,
            &self.step,
            &self.record,
            &self.faults,
            self.network.as_ref(),
            programmatic,
        )?;
        Ok(())
    }

    /// Queues what is made from the parameters, behind a change of them that is no step.
    fn pack(&self, stream: &Stream) -> Result<(), CudaError> {
        let Some(network) = &self.network else { return Ok(()) };
        network.pack(stream, &self.parameters, self.config.programmatic)
    }

    /// Queues the joining of the gradient's segments, onto what is there when `add`, and the sums of its squares.
    fn join_segments(&self, stream: &Stream, add: bool) -> Result<(), CudaError> {
        let n = self.layout.n_weights();
        self.adam.sum_squares(stream, &self.gradient, n, true, add, self.config.programmatic)
    }

    /// Queues a whole update from as many sub-batches as the configuration says.
    ///
    /// # Errors
    /// As [`GpuLearner::accumulate`].
    pub fn update(&mut self, stream: &Stream, batches: &[DeviceBatch]) -> Result<(), GpuLearnerError> {
        self.update_behind(stream, batches, Ahead::Unknown)
    }

    /// The same where something is known of the kernel queued just ahead, for example that it draws the batch. What is said of
    /// it must be so.
    ///
    /// # Errors
    /// As [`GpuLearner::accumulate`].
    pub fn update_behind(
        &mut self,
        stream: &Stream,
        batches: &[DeviceBatch],
        ahead: Ahead,
    ) -> Result<(), GpuLearnerError> {
        let mut ahead = ahead;
        check_len("sub-batches of an update", batches.len(), self.config.learner.accumulation)?;
        for (sub, batch) in batches.iter().enumerate() {
            self.accumulate(stream, batch, sub, ahead)?;
            ahead = Ahead::LeavesParameters;
        }
        self.finish(stream)
    }

    /// What the replay memory's priorities are to be made from, behind [`GpuLearner::finish`]: TD errors, slots and generations
    /// of all rows of the last update, and the gate that refuses them when it is skipped.
    #[must_use]
    pub fn priorities(&self) -> DeviceUpdate<'_> {
        DeviceUpdate {
            indices: &self.results.indices,
            td_errors: &self.results.td,
            generations: Some(&self.results.generations),
            gate: Some(Gate::Update(PendingUpdate {
                findings: &self.step.findings,
                squares: &self.gradient.squares,
            })),
        }
    }

    /// |TD error| of the rows of the last update, f32 `[accumulation * batch]`, sub-batches one after the other.
    #[must_use]
    pub fn td_errors(&self) -> &DeviceBuffer<f32> {
        &self.results.td
    }

    /// u32 `[1]`: not 0 when the last update was skipped.
    #[must_use]
    pub fn gate(&self) -> &DeviceBuffer<u32> {
        &self.step.gate
    }

    /// The gradient of the last update before clipping, f32 `[layout.len()]`.
    #[must_use]
    pub fn gradient(&self) -> &DeviceBuffer<f32> {
        &self.gradient.whole
    }

    /// The online network's flat parameters.
    #[must_use]
    pub fn online(&self) -> &DeviceBuffer<f32> {
        &self.parameters.online
    }

    /// The newest record, `None` before the first update or restore. No driver call.
    #[must_use]
    pub fn live(&self) -> Option<Live> {
        let (guard, words) = self.record.read()?;
        Some(Live { guard, progress: Progress::from_words(words) })
    }

    /// Every fault published since the last call. No driver call.
    pub fn drain_faults(&mut self) -> FaultDrain {
        self.faults.drain()
    }

    /// Parameters, moments and counts, copied to the host.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn download_state(&self, stream: &Stream) -> Result<(LearnerState, LearnerCounts), GpuLearnerError> {
        Ok((self.parameters.download(stream)?, self.step.download(stream)?.0.counts))
    }

    /// Takes up parameters and moments; counts stay.
    ///
    /// # Errors
    /// `Length` for another layout, and those of [`Stream::upload`].
    pub fn upload_state(&mut self, stream: &Stream, state: &LearnerState) -> Result<(), GpuLearnerError> {
        self.parameters.upload(stream, state)?;
        Ok(self.pack(stream)?)
    }

    /// Whether there is something to roll back to.
    #[must_use]
    pub fn keeps_good_copy(&self) -> bool {
        self.good.is_some()
    }

    /// What a rollback goes back to, copied to the host.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn download_good_copy(&self, stream: &Stream) -> Result<Option<LearnerState>, GpuLearnerError> {
        Ok(self.good.as_ref().map(|good| good.download(stream)).transpose()?)
    }

    /// Sets what a rollback goes back to.
    ///
    /// # Errors
    /// As [`GpuLearner::upload_state`], and [`CudaError::OutOfMemory`] for the first copy.
    pub fn upload_good_copy(&mut self, stream: &Stream, state: &LearnerState) -> Result<(), GpuLearnerError> {
        let n = self.layout.len();
        let good = match &mut self.good {
            Some(good) => good,
            none => none.insert(Parameters::zeros(stream, n)?),
        };
        good.upload(stream, state)
    }

    /// Counts and the sums of the running epoch: one readback, at an epoch boundary.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn progress(&self, stream: &Stream) -> Result<(Progress, EpochSums), GpuLearnerError> {
        Ok(self.step.download(stream)?)
    }

    /// Takes up counts and sums, for a restore or, with empty sums, for the next epoch. The last record is forgotten. Waits.
    ///
    /// # Errors
    /// Those of [`Stream::upload`].
    pub fn set_progress(
        &mut self,
        stream: &Stream,
        progress: &Progress,
        sums: &EpochSums,
    ) -> Result<(), GpuLearnerError> {
        self.step.upload(stream, progress, sums)?;
        self.record.clear();
        Ok(())
    }

    /// Queues a copy, on the device, of what a rollback goes back to. Its memory is taken at the first call, or from the
    /// start under the rollback policy.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], driver errors.
    pub fn keep_good_copy(&mut self, stream: &Stream) -> Result<(), GpuLearnerError> {
        let good = match &mut self.good {
            Some(good) => good,
            none => none.insert(Parameters::zeros(stream, self.layout.len())?),
        };
        Ok(good.copy_from(stream, &self.parameters)?)
    }

    /// Queues going back to the last good copy; counts stay. Without one it does nothing and says so.
    ///
    /// # Errors
    /// Driver errors.
    pub fn roll_back(&mut self, stream: &Stream) -> Result<bool, GpuLearnerError> {
        let Some(good) = &self.good else { return Ok(false) };
        self.parameters.copy_from(stream, good)?;
        self.pack(stream)?;
        Ok(true)
    }

    /// Leaves out what the guard adds to an update, to time the difference. Nothing is reported from here on.
    pub(crate) fn leave_out_guard(
        &mut self,
        stream: &Stream,
        cache: Option<&Cache>,
    ) -> Result<(), GpuLearnerError> {
        let processors = stream.device().info().multiprocessors;
        let images = self.network.as_ref().map(NetworkPass::precision);
        self.adam = AdamKernels::new(&Loader::new(stream, cache), processors, images, false)?;
        Ok(())
    }

    /// What the kernels use, one line a kernel and tile.
    ///
    /// # Errors
    /// Driver errors.
    pub fn resources(&self) -> Result<Vec<(String, KernelResources)>, GpuLearnerError> {
        let mut all = Vec::new();
        for (name, kernel) in self.mlp.all() {
            all.push((name, kernel.resources()?));
        }
        let head_pass = self.head_pass.as_ref().map(HeadPass::kernel);
        let cluster_pass = self.cluster_pass.as_ref().map(ClusterPass::kernel);
        let distribution = self.distribution.iter().flat_map(DistributionKernels::all);
        let noise = self.noise.iter().flat_map(Noise::all);
        let network = self.network.iter().flat_map(NetworkPass::all);
        let losses = head_pass
            .into_iter()
            .chain(cluster_pass)
            .chain(network)
            .chain([self.loss.kernel()])
            .chain(distribution);
        for kernel in losses.chain(self.adam.all()).chain(noise) {
            all.push((kernel.symbol().to_owned(), kernel.resources()?));
        }
        Ok(all)
    }
}
