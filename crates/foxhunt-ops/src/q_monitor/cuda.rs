//! The Q monitor on the device: launchers of `q_monitor.cu`, and what the host reads of it.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_cuda::nvrtc::{Cache, Program};
use foxhunt_cuda::{COMMON_CUH, CudaError, DeviceBuffer, Kernel, Launch, Stream, shared_struct};

use super::{MaxQSums, Q_MONITOR_CUH, QRange};
use crate::gpu_learner::{CARVEOUT, Loader};
use crate::guard::record::{RECORD_CUH, Record};
use crate::tree_sum::TREE_SUM_CUH;

const Q_MONITOR_CU: &str = include_str!("q_monitor.cu");
const MAX_BRANCHES: usize = 6;

shared_struct! {
    /// Sums of an epoch, as the kernel adds to them.
    pub struct MaxQState {
        sum: f64,
        rows: u64,
        non_finite_rows: u64,
    }
}

shared_struct! {
    /// How a row is divided.
    struct Branches {
        count: u32,
        width: u32,
        len: [u32; MAX_BRANCHES],
    }
}

/// The program of the Q monitor.
#[must_use]
pub fn program() -> Program {
    let structs = [MaxQState::cuda_source(), Branches::cuda_source()].concat();
    Program::new("q_monitor.cu", Q_MONITOR_CU)
        .header("common.cuh", COMMON_CUH)
        .header("shared_structs.cuh", &format!("#pragma once\n{structs}"))
        .header("tree_sum.cuh", TREE_SUM_CUH)
        .header("record.cuh", RECORD_CUH)
        .header("q_monitor.cuh", Q_MONITOR_CUH)
}

/// Statistics of Q-values on the device.
#[derive(Debug)]
pub struct DeviceQMonitor {
    accumulate: Kernel,
    divergence_check: Kernel,
    sums: DeviceBuffer<MaxQState>,
    checks: DeviceBuffer<u64>,
    record: Record,
}

impl DeviceQMonitor {
    /// Compiles its kernels (or takes them from `cache`).
    ///
    /// # Errors
    /// Those of the driver and the compiler.
    pub fn new(stream: &Stream, cache: Option<&Cache>) -> Result<Self, CudaError> {
        let module = Loader::new(stream, cache).load(&program())?;
        let (accumulate, divergence_check) =
            (module.kernel("qvalue_accumulate")?, module.kernel("qvalue_divergence_check")?);
        for kernel in [&accumulate, &divergence_check] {
            kernel.prefer_carveout(CARVEOUT)?;
        }
        let (sums, checks) = (stream.zeros("max-Q sums", 1)?, stream.zeros("Q checks", 1)?);
        Ok(Self { accumulate, divergence_check, sums, checks, record: Record::new(stream.device())? })
    }

    /// Queues adding max-Q of the first `rows` of `q`, f32 `[rows, sum of branches]`, to the sums.
    ///
    /// # Errors
    /// [`CudaError::Length`] for a shorter buffer or more than six branches, and driver errors.
    pub fn accumulate(
        &mut self,
        stream: &Stream,
        q: &DeviceBuffer<f32>,
        rows: usize,
        branches: &[usize],
    ) -> Result<(), CudaError> {
        let width: usize = branches.iter().sum();
        q.holds(rows.saturating_mul(width))?;
        if branches.len() > MAX_BRANCHES {
            return Err(CudaError::Length { what: "branches", got: branches.len(), expected: MAX_BRANCHES });
        }
        if rows == 0 {
            return Ok(());
        }
        let mut of = Branches { count: branches.len() as u32, width: count("width", width)?, len: [0; 6] };
        for (len, &branch) in of.len.iter_mut().zip(branches) {
            *len = branch as u32;
        }
        let launch = Launch::new(&self.accumulate, 1, 256)
            .programmatic(true)
            .buffer(q)
            .value(count("rows", rows)?)
            .value(of)
            .buffer(&self.sums);
        // SAFETY: qvalue_accumulate(float*, u32, Branches, MaxQState*); q holds `rows` rows of the branches (checked above),
        // and one launch of one block at a time writes the sums. All is kept.
        unsafe { launch.launch(stream) }
    }

    /// Queues the range of the first `n` values of `q`; [`DeviceQMonitor::range`] has the result.
    ///
    /// # Errors
    /// [`CudaError::Length`] for a shorter buffer, and driver errors.
    pub fn divergence_check(
        &mut self,
        stream: &Stream,
        q: &DeviceBuffer<f32>,
        n: usize,
        threshold: f32,
    ) -> Result<(), CudaError> {
        q.holds(n)?;
        let launch = Launch::new(&self.divergence_check, 1, 256)
            .programmatic(true)
            .buffer(q)
            .value(count("Q-values", n)?)
            .value(threshold)
            .buffer(&self.checks)
            .mapped(&self.record.0);
        // SAFETY: qvalue_divergence_check(float*, u32, float, u64*, u64*) over n values, one word and three record slots.
        // All is kept.
        unsafe { launch.launch(stream) }
    }

    /// The newest range with the number of its check, 1 for the first; `None` before. No driver call; from any thread.
    #[must_use]
    pub fn range(&self) -> Option<(u64, QRange)> {
        let whole = self.record.read_words()?;
        let half = |word: usize, high: u32| (whole.words[word] >> (32 * high)) as u32;
        let range = QRange {
            min: f32::from_bits(half(0, 0)),
            max: f32::from_bits(half(0, 1)),
            mean: f32::from_bits(half(1, 0)),
            finite: half(2, 0),
            non_finite: half(2, 1),
            diverged: f32::from_bits(half(1, 1)) != 0.0,
        };
        Some((whole.number, range))
    }

    /// The sums since the last reset: one readback.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn sums(&self, stream: &Stream) -> Result<MaxQSums, CudaError> {
        let state = stream.download(&self.sums)?;
        let state = state.first().copied().unwrap_or(MaxQState { sum: 0.0, rows: 0, non_finite_rows: 0 });
        Ok(MaxQSums { sum: state.sum, rows: state.rows, non_finite_rows: state.non_finite_rows })
    }

    /// Queues emptying the sums; checks keep their numbers.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn reset(&mut self, stream: &Stream) -> Result<(), CudaError> {
        stream.fill_zero(&mut self.sums)
    }
}

fn count(what: &'static str, n: usize) -> Result<u32, CudaError> {
    u32::try_from(n).map_err(|_| CudaError::Length { what, got: n, expected: u32::MAX as usize })
}
