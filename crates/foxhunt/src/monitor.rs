//! Q-value statistics on candle tensors: the mean of max-Q, and the divergence alarm.
//!
//! The statistics are those of [`foxhunt_ops::q_monitor`]. Whether training stops on them is the trainer's business.

use candle_core::{Device, Tensor};
use foxhunt_core::Head;
use foxhunt_ops::q_monitor::{MaxQSums, QRange, divergence};

use crate::MLError;
use crate::host_values::{require_cpu, rows};

/// Range of a set of Q-values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QStats {
    /// Smallest finite value; NaN when there is none.
    pub min: f32,
    /// Largest finite value; NaN when there is none.
    pub max: f32,
    /// Mean of the finite values; NaN when there is none.
    pub mean: f32,
    /// Whether some |q| was above the threshold, or some value was not finite.
    pub diverged: bool,
}

impl From<QRange> for QStats {
    fn from(range: QRange) -> Self {
        Self { min: range.min, max: range.max, mean: range.mean, diverged: range.diverged }
    }
}

/// Averages max-Q between two readbacks.
#[derive(Debug)]
pub struct QValueMonitor {
    head: Option<Head>,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Host(HostMonitor),
    #[cfg(feature = "candle-cuda")]
    Cuda(Box<crate::candle_cuda::monitor::CudaMonitor>),
}

#[derive(Debug, Default)]
struct HostMonitor {
    sums: MaxQSums,
    checks: u64,
    latest: Option<QStats>,
}

impl QValueMonitor {
    /// A monitor for tensors on `device` (the CPU, or a GPU with the feature `candle-cuda`) whose rows are one branch of any
    /// width.
    ///
    /// # Errors
    /// [`MLError::DeviceMismatch`] for a device this build has no monitor for; what making kernels can meet on a GPU.
    pub fn new(device: &Device) -> Result<Self, MLError> {
        #[cfg(feature = "candle-cuda")]
        if let Device::Cuda(device) = device {
            let monitor = crate::candle_cuda::monitor::CudaMonitor::new(device)?;
            return Ok(Self { head: None, side: Side::Cuda(Box::new(monitor)) });
        }
        require_cpu("monitor", device)?;
        Ok(Self { head: None, side: Side::Host(HostMonitor::default()) })
    }

    /// As [`QValueMonitor::new`], for rows of `head`: max-Q is the mean over its branches.
    ///
    /// # Errors
    /// As [`QValueMonitor::new`].
    pub fn for_head(device: &Device, head: Head) -> Result<Self, MLError> {
        Ok(Self { head: Some(head), ..Self::new(device)? })
    }

    /// Adds max-Q of each row of `q`, f32 `[B, n_outputs]`. On a GPU the work is queued.
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`] or [`MLError::DeviceMismatch`] for a tensor that does not fit.
    pub fn accumulate(&mut self, q: &Tensor) -> Result<(), MLError> {
        match &mut self.side {
            Side::Host(host) => {
                let (values, _, width) = rows("q", q, self.head.map(Head::n_outputs))?;
                match self.head {
                    Some(head) => host.sums.accumulate(&values, head.branches()),
                    None => host.sums.accumulate(&values, &[width]),
                }
            }
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(monitor) => monitor.accumulate(q, self.head)?,
        }
        Ok(())
    }

    /// Mean of max-Q since the last reset. On a GPU one readback, for epoch boundaries.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when no finite row was added; driver errors on a GPU.
    pub fn read_average(&self) -> Result<f64, MLError> {
        let sums = match &self.side {
            Side::Host(host) => host.sums,
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(monitor) => monitor.sums()?,
        };
        sums.mean().ok_or(MLError::NotEnoughData { have: 0, need: 1 })
    }

    /// Starts a new average. On a GPU the work is queued.
    ///
    /// # Errors
    /// None on the CPU; driver errors on a GPU.
    pub fn reset(&mut self) -> Result<(), MLError> {
        match &mut self.side {
            Side::Host(host) => host.sums = MaxQSums::default(),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(monitor) => monitor.reset()?,
        }
        Ok(())
    }

    /// Range of `q`, f32 `[B, n_outputs]`, and whether it passed `threshold` (10,000 is usual).
    ///
    /// On a GPU the check is queued and the call returns at once with the newest range that has arrived, NaN when none
    /// has; [`QValueMonitor::latest`] tells which check a range is of.
    ///
    /// # Errors
    /// As [`QValueMonitor::accumulate`].
    pub fn check_divergence(&mut self, q: &Tensor, threshold: f32) -> Result<QStats, MLError> {
        match &mut self.side {
            Side::Host(host) => {
                let (values, ..) = rows("q", q, self.head.map(Head::n_outputs))?;
                host.checks += 1;
                host.latest = Some(divergence(&values, threshold).into());
            }
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(monitor) => monitor.check(q, self.head, threshold)?,
        }
        let none = QStats { min: f32::NAN, max: f32::NAN, mean: f32::NAN, diverged: false };
        Ok(self.latest().map_or(none, |(_, stats)| stats))
    }

    /// The newest range that has arrived with the number of its check, 1 for the first. Waits for nothing.
    #[must_use]
    pub fn latest(&self) -> Option<(u64, QStats)> {
        match &self.side {
            Side::Host(host) => host.latest.map(|stats| (host.checks, stats)),
            #[cfg(feature = "candle-cuda")]
            Side::Cuda(monitor) => monitor.latest().map(|(check, range)| (check, range.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_max_q_and_sees_divergence() {
        let mut monitor = QValueMonitor::new(&Device::Cpu).unwrap();
        assert!(monitor.read_average().is_err());
        let q = Tensor::new(&[[1.0_f32, 5.0], [-2.0, -3.0]], &Device::Cpu).unwrap();
        monitor.accumulate(&q).unwrap();
        assert_eq!(monitor.read_average().unwrap(), 1.5);
        let stats = monitor.check_divergence(&q, 10_000.0).unwrap();
        assert_eq!(stats, QStats { min: -3.0, max: 5.0, mean: 0.25, diverged: false });
        assert!(monitor.check_divergence(&q, 4.0).unwrap().diverged);
        assert_eq!(monitor.latest(), Some((2, QStats { diverged: true, ..stats })));
        monitor.reset().unwrap();
        assert!(monitor.read_average().is_err());

        let mut monitor = QValueMonitor::for_head(&Device::Cpu, Head::Branching).unwrap();
        let q = [1.0_f32, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 6.0, 0.0, 0.0];
        monitor.accumulate(&Tensor::from_slice(&q, (1, 11), &Device::Cpu).unwrap()).unwrap();
        assert_eq!(monitor.read_average().unwrap(), 3.0);
        let flat = Tensor::new(&[1.0_f32], &Device::Cpu).unwrap();
        assert!(matches!(monitor.accumulate(&flat), Err(MLError::Shape { what: "q", .. })));
    }
}
