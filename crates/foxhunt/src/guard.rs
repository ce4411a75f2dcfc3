//! The training guard on candle tensors: judge an update before it is applied, keep the epoch's means.
//!
//! The judgements are those of [`foxhunt_ops::guard`]. The guard says what is so; it is the learner that does not
//! apply a non-finite update, and the trainer that warns, waits or stops.

use candle_core::{Device, Tensor};
use foxhunt_core::settings::GuardSettings;
use foxhunt_ops::guard::{GuardSums, GuardWords, check};

use crate::MLError;
use crate::host_values::{require_cpu, scalar};

/// The judgement of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardResult {
    /// Loss or gradient norm is NaN or infinite.
    pub halt_nan: bool,
    /// Loss is above the default of `guard.loss_threshold`, 1e6.
    pub halt_loss_clip: bool,
    /// Gradient norm is below the threshold given, past warm-up.
    pub halt_grad_collapse: bool,
    /// Loss, at most 1e6; a NaN stays NaN.
    pub clipped_loss: f32,
    /// Gradient norm as given.
    pub raw_grad_norm: f32,
    /// Number of the check, 1 for the first; 0 where no judgement has arrived from a GPU yet.
    pub step: u64,
}

impl GuardResult {
    /// No judgement yet.
    const NONE: Self = Self {
        halt_nan: false,
        halt_loss_clip: false,
        halt_grad_collapse: false,
        clipped_loss: f32::NAN,
        raw_grad_norm: f32::NAN,
        step: 0,
    };
}

impl From<GuardWords> for GuardResult {
    fn from(words: GuardWords) -> Self {
        Self {
            halt_nan: words.halt_nan,
            halt_loss_clip: words.halt_loss_clip,
            halt_grad_collapse: words.halt_grad_collapse,
            clipped_loss: words.clipped_loss,
            raw_grad_norm: words.raw_grad_norm,
            step: words.step,
        }
    }
}

/// Judges updates and averages loss and gradient norm over an epoch.
#[derive(Debug)]
pub struct GpuTrainingGuard {
    side: Side,
}

#[derive(Debug)]
enum Side {
    Host(HostGuard),
    #[cfg(feature = "candle-cuda")]
    Cuda(Box<crate::candle_cuda::guard::CudaGuard>),
}

#[derive(Debug, Default)]
struct HostGuard {
    sums: GuardSums,
    step: u64,
    latest: Option<GuardResult>,
}

impl GpuTrainingGuard {
    /// A guard for tensors on `device`: the CPU, or a GPU with the feature `candle-cuda`.
    ///
    /// # Errors
    /// [`MLError::DeviceMismatch`] for a device this build has no guard for; what making kernels can meet on a GPU.
    pub fn new(device: &Device) -> Result<Self, MLError> {
        #[cfg(feature = "candle-cuda")]
        if let Device::Cuda(device) = device {
            let guard = crate::candle_cuda::guard::CudaGuard::new(device)?;
            return Ok(Self { side: Side::Cuda(Box::new(guard)) });
        }
        require_cpu("guard", device)?;
        Ok(Self { side: Side::Host(HostGuard::default()) })
    }

    /// Judges a loss and a gradient norm, each a tensor of one element.
    ///
    /// `grad_collapse_threshold` is the norm below which gradients count as collapsed (the learning rate times a
    /// multiplier); during `warmup` nothing counts as collapsed.
    ///
    /// On a GPU the check is queued and the call returns at once, with the newest judgement that has arrived: `step` says
    /// which check it is of, 0 when none has arrived yet. [`GpuTrainingGuard::latest`] has the rest later.
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`] or [`MLError::DeviceMismatch`] for a tensor that does not fit.
    pub fn check(
        &mut self,
        loss: &Tensor,
        grad_norm: &Tensor,
        grad_collapse_threshold: f32,
        warmup: bool,
    ) -> Result<GuardResult, MLError> {
        let loss_threshold = GuardSettings::default().loss_threshold as f32;
        match &mut self.side {
            Side::Host(host) => {
                let (loss, norm) = (scalar("loss", loss)?, scalar("grad_norm", grad_norm)?);
                host.step += 1;
                let words = check(loss, norm, grad_collapse_threshold, loss_threshold, warmup, host.step);
                host.latest = Some(words.into());
            }
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(guard) => {
                guard.check(loss, grad_norm, grad_collapse_threshold, loss_threshold, warmup)?;
            }
        }
        Ok(self.latest().unwrap_or(GuardResult::NONE))
    }

    /// The newest judgement that has arrived, `None` before the first. Waits for nothing.
    #[must_use]
    pub fn latest(&self) -> Option<GuardResult> {
        match &self.side {
            Side::Host(host) => host.latest,
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(guard) => guard.latest().map(GuardResult::from),
        }
    }

    /// Adds a loss and a gradient norm to the sums. What is not finite is left out of its mean and counted.
    ///
    /// # Errors
    /// As [`GpuTrainingGuard::check`].
    pub fn accumulate(&mut self, loss: &Tensor, grad_norm: &Tensor) -> Result<(), MLError> {
        match &mut self.side {
            Side::Host(host) => host.sums.add(scalar("loss", loss)?, scalar("grad_norm", grad_norm)?),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(guard) => guard.accumulate(loss, grad_norm)?,
        }
        Ok(())
    }

    /// Mean loss and mean gradient norm since the last reset. On a GPU one readback, for epoch boundaries.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when either has no finite value yet; driver errors on a GPU.
    pub fn read_accumulators(&self) -> Result<(f64, f64), MLError> {
        match self.sums()?.means() {
            (Some(loss), Some(norm)) => Ok((loss, norm)),
            _ => Err(MLError::NotEnoughData { have: 0, need: 1 }),
        }
    }

    /// Losses and norms that were left out since the last reset. On a GPU one readback.
    ///
    /// # Errors
    /// Driver errors on a GPU.
    pub fn non_finite(&self) -> Result<u64, MLError> {
        Ok(self.sums()?.non_finite)
    }

    /// Empties the sums. On a GPU it waits: for epoch boundaries.
    ///
    /// # Errors
    /// None on the CPU; driver errors on a GPU.
    pub fn reset_accumulators(&mut self) -> Result<(), MLError> {
        match &mut self.side {
            Side::Host(host) => host.sums = GuardSums::default(),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(guard) => guard.reset()?,
        }
        Ok(())
    }

    fn sums(&self) -> Result<GuardSums, MLError> {
        match &self.side {
            Side::Host(host) => Ok(host.sums),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(guard) => guard.sums(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(value: f32) -> Tensor {
        Tensor::new(value, &Device::Cpu).unwrap()
    }

    #[test]
    fn judges_and_numbers_each_update() {
        let mut guard = GpuTrainingGuard::new(&Device::Cpu).unwrap();
        let mut check = |loss, norm, warmup| guard.check(&tensor(loss), &tensor(norm), 1e-6, warmup).unwrap();
        let calm = check(1.0, 2.0, false);
        let want = GuardResult {
            halt_nan: false,
            halt_loss_clip: false,
            halt_grad_collapse: false,
            clipped_loss: 1.0,
            raw_grad_norm: 2.0,
            step: 1,
        };
        assert_eq!(calm, want);
        assert!(check(f32::NAN, 1.0, false).halt_nan && check(1.0, f32::INFINITY, false).halt_nan);
        let high = check(2e6, 1.0, false);
        assert!(high.halt_loss_clip && high.clipped_loss == 1e6 && high.step == 4);
        assert!(check(1.0, 0.0, false).halt_grad_collapse && !check(1.0, 0.0, true).halt_grad_collapse);
    }

    #[test]
    fn averages_since_the_last_reset() {
        let mut guard = GpuTrainingGuard::new(&Device::Cpu).unwrap();
        assert!(matches!(guard.read_accumulators(), Err(MLError::NotEnoughData { .. })));
        for (loss, norm) in [(1.0, 10.0), (f32::NAN, f32::NAN), (3.0, 30.0)] {
            guard.accumulate(&tensor(loss), &tensor(norm)).unwrap();
        }
        assert_eq!(guard.read_accumulators().unwrap(), (2.0, 20.0));
        assert_eq!(guard.non_finite().unwrap(), 2);
        guard.reset_accumulators().unwrap();
        assert!(guard.read_accumulators().is_err());
    }

    #[test]
    fn only_one_element_is_a_loss() {
        let mut guard = GpuTrainingGuard::new(&Device::Cpu).unwrap();
        let two = Tensor::new(&[1.0_f32, 2.0], &Device::Cpu).unwrap();
        let error = guard.check(&two, &tensor(1.0), 0.0, false).unwrap_err();
        assert!(matches!(error, MLError::Shape { what: "loss", .. }));
    }
}
