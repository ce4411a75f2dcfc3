//! The guard on the device: the record and the faults that the host reads without a driver call, and the guard by itself
//! over raw values.
//!
//! How record and ring are written, and why a reader never sees half of one, stands in `record.cuh` and `guard.cuh`. Kernels
//! of the guard alone: `guard.cu`; the learner judges inside its last kernel with the same device functions.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_cuda::nvrtc::{Cache, Program};
use foxhunt_cuda::{
    COMMON_CUH, CudaError, Device, DeviceBuffer, Kernel, Launch, MappedBuffer, Stream, shared_struct,
};

use super::record::{COUNTS, RECORD_CUH, Record};
use super::{GuardSums, GuardWords};
use crate::gpu_learner::{CARVEOUT, Loader};

/// Text of `guard.cuh`.
pub(crate) const GUARD_CUH: &str = include_str!("guard.cuh");
const GUARD_CU: &str = include_str!("guard.cu");

const RING_HEAD: usize = 8;

shared_struct! {
    /// Sums of an epoch and the number of checks.
    pub struct GuardState {
        loss_sum: f64,
        norm_sum: f64,
        losses: u64,
        norms: u64,
        non_finite: u64,
        checks: u64,
    }
}

shared_struct! {
    /// How far the fault ring is written.
    pub(crate) struct FaultState {
        written: u64,
        lost: u64,
        last_lost: u64,
        pad: u64,
    }
}

impl GuardState {
    /// The sums.
    #[must_use]
    pub fn sums(&self) -> GuardSums {
        GuardSums {
            loss: self.loss_sum,
            losses: self.losses,
            grad_norm: self.norm_sum,
            grad_norms: self.norms,
            non_finite: self.non_finite,
        }
    }

    /// These sums.
    #[must_use]
    pub(crate) fn from_sums(sums: &GuardSums) -> Self {
        Self {
            loss_sum: sums.loss,
            norm_sum: sums.grad_norm,
            losses: sums.losses,
            norms: sums.grad_norms,
            non_finite: sums.non_finite,
            checks: 0,
        }
    }
}

impl Record {
    /// The newest judgement with the counts behind it; `None` as [`Record::read_words`].
    pub(crate) fn read(&self) -> Option<(GuardWords, [u64; COUNTS])> {
        let whole = self.read_words()?;
        let [a, b, c] = whole.words.map(|word| [word as u32, (word >> 32) as u32]);
        let number = [whole.number as u32, (whole.number >> 32) as u32];
        let words = [a[0], a[1], b[0], b[1], c[0], c[1], number[0], number[1]];
        Some((GuardWords::from_words(words), whole.counts))
    }
}

/// What a drain of the fault ring brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultDrain {
    /// In order, none twice.
    pub faults: Vec<Fault>,
    /// Faults since the last drain that found the ring full and are only counted.
    pub lost: u64,
    /// Step of the last fault ever lost; 0 when none was.
    pub last_lost: u64,
}

/// The fault ring in pinned memory, as the host reads it.
#[derive(Debug)]
pub(crate) struct FaultRing {
    pub(crate) words: MappedBuffer<u64>,
    capacity: usize,
    taken: u64,
    lost: u64,
}

impl FaultRing {
    pub(crate) fn new(device: &Arc<Device>, capacity: usize) -> Result<Self, CudaError> {
        let words = MappedBuffer::zeros(device, "fault ring", RING_HEAD + 2 * capacity)?;
        Ok(Self { words, capacity, taken: 0, lost: 0 })
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity as u32
    }

    /// Takes every fault that is published. No driver call.
    pub(crate) fn drain(&mut self) -> FaultDrain {
        let word = |i: usize| self.words.read(i).unwrap_or(0);
        let (written, lost, last_lost) = (word(0), word(1), word(2));
        fence(Ordering::Acquire);
        let mut faults = Vec::new();
        for number in self.taken..written {
            let at = RING_HEAD + 2 * (number % self.capacity as u64) as usize;
            let (step, what) = (word(at), word(at + 1));
            if let Some(kind) = kind_of(what as u32) {
                faults.push(Fault { step, kind, count: (what >> 32) as u32 });
            }
        }
        // The records are read before the device may write over them.
        fence(Ordering::SeqCst);
        self.taken = written;
        self.words.write(3, written);
        let drain = FaultDrain { faults, lost: lost - self.lost, last_lost };
        self.lost = lost;
        drain
    }
}

fn kind_of(word: u32) -> Option<FaultKind> {
    use FaultKind::{NonFiniteGradNorm, NonFiniteLoss, NonFiniteReward, NonFiniteState, NonFiniteTdError};
    [NonFiniteLoss, NonFiniteGradNorm, NonFiniteTdError, NonFiniteReward, NonFiniteState]
        .into_iter()
        .find(|kind| *kind as u32 == word)
}

/// The program of the guard by itself.
#[must_use]
pub fn program() -> Program {
    let structs = [GuardState::cuda_source(), FaultState::cuda_source()].concat();
    Program::new("guard.cu", GUARD_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
        .header("record.cuh", RECORD_CUH)
        .header("guard.cuh", GUARD_CUH)
}

/// A guard over losses and norms on the device.
#[derive(Debug)]
pub struct DeviceGuard {
    check: Kernel,
    accumulate: Kernel,
    state: DeviceBuffer<GuardState>,
    record: Record,
}

impl DeviceGuard {
    /// Compiles its kernels (or takes them from `cache`).
    ///
    /// # Errors
    /// Those of the driver and the compiler.
    pub fn new(stream: &Stream, cache: Option<&Cache>) -> Result<Self, CudaError> {
        let module = Loader::new(stream, cache).load(&program())?;
        let (check, accumulate) =
            (module.kernel("training_guard_check")?, module.kernel("training_guard_accumulate")?);
        for kernel in [&check, &accumulate] {
            kernel.prefer_carveout(CARVEOUT)?;
        }
        let state = stream.zeros("guard sums", 1)?;
        Ok(Self { check, accumulate, state, record: Record::new(stream.device())? })
    }

    /// Queues the judgement of the first value of `loss` and of `norm`; [`DeviceGuard::record`] has the result.
    ///
    /// # Errors
    /// [`CudaError::Length`] for an empty buffer, and driver errors.
    pub fn check(
        &mut self,
        stream: &Stream,
        loss: &DeviceBuffer<f32>,
        norm: &DeviceBuffer<f32>,
        collapse_threshold: f32,
        loss_threshold: f32,
        warmup: bool,
    ) -> Result<(), CudaError> {
        loss.holds(1)?;
        norm.holds(1)?;
        let launch = Launch::new(&self.check, 1, 32)
            .programmatic(true)
            .buffer(loss)
            .buffer(norm)
            .value(collapse_threshold)
            .value(loss_threshold)
            .value(u32::from(warmup))
            .buffer(&self.state)
            .mapped(&self.record.0);
        // SAFETY: training_guard_check(float*, float*, float, float, u32, GuardState*, u64*) over one value each and three
        // record slots. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Queues adding the first value of `loss` and of `norm` to the sums.
    ///
    /// # Errors
    /// As [`DeviceGuard::check`].
    pub fn accumulate(
        &mut self,
        stream: &Stream,
        loss: &DeviceBuffer<f32>,
        norm: &DeviceBuffer<f32>,
    ) -> Result<(), CudaError> {
        loss.holds(1)?;
        norm.holds(1)?;
        let launch = Launch::new(&self.accumulate, 1, 32)
            .programmatic(true)
            .buffer(loss)
            .buffer(norm)
            .buffer(&self.state);
        // SAFETY: training_guard_accumulate(float*, float*, GuardState*) over one value each. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// The newest judgement, `None` before the first. No driver call; from any thread.
    #[must_use]
    pub fn record(&self) -> Option<GuardWords> {
        self.record.read().map(|(words, _)| words)
    }

    /// The sums since the last reset: one readback.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn sums(&self, stream: &Stream) -> Result<GuardSums, CudaError> {
        Ok(stream.download(&self.state)?.first().map(GuardState::sums).unwrap_or_default())
    }

    /// Empties the sums; checks keep their numbers.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn reset(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let checks = stream.download(&self.state)?.first().map_or(0, |state| state.checks);
        let state = GuardState { checks, ..GuardState::from_sums(&GuardSums::default()) };
        stream.upload(&mut self.state, &[state])
    }
}
