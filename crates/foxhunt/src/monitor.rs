//! Q-value statistics on candle tensors: the mean of max-Q, and the divergence alarm.
//!
//! The statistics are those of [`foxhunt_ops::q_monitor`]. Whether training stops on them is the trainer's business.

use candle_core::{Device, Tensor};
use foxhunt_core::Head;
use foxhunt_ops::q_monitor::{MaxQSums, divergence};

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

/// Averages max-Q between two readbacks.
#[derive(Debug)]
pub struct QValueMonitor {
    sums: MaxQSums,
    head: Option<Head>,
}

impl QValueMonitor {
    /// A monitor for tensors on `device` whose rows are one branch of any width.
    ///
    /// # Errors
    /// [`MLError::DeviceMismatch`] for a device this build has no monitor for.
    pub fn new(device: &Device) -> Result<Self, MLError> {
        require_cpu("monitor", device)?;
        Ok(Self { sums: MaxQSums::default(), head: None })
    }

    /// As [`QValueMonitor::new`], for rows of `head`: max-Q is the mean over its branches.
    ///
    /// # Errors
    /// As [`QValueMonitor::new`].
    pub fn for_head(device: &Device, head: Head) -> Result<Self, MLError> {
        Ok(Self { head: Some(head), ..Self::new(device)? })
    }

    /// Adds max-Q of each row of `q`, f32 `[B, n_outputs]`.
    ///
    /// # Errors
    /// [`MLError::Shape`], [`MLError::DType`] or [`MLError::DeviceMismatch`] for a tensor that does not fit.
    pub fn accumulate(&mut self, q: &Tensor) -> Result<(), MLError> {
        let (values, _, width) = rows("q", q, self.head.map(Head::n_outputs))?;
        match self.head {
            Some(head) => self.sums.accumulate(&values, head.branches()),
            None => self.sums.accumulate(&values, &[width]),
        }
        Ok(())
    }

    /// Mean of max-Q since the last reset.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when no finite row was added.
    pub fn read_average(&self) -> Result<f64, MLError> {
        self.sums.mean().ok_or(MLError::NotEnoughData { have: 0, need: 1 })
    }

    /// Starts a new average.
    pub fn reset(&mut self) {
        self.sums = MaxQSums::default();
    }

    /// Range of `q`, f32 `[B, n_outputs]`, and whether it passed `threshold` (10,000 is usual).
    ///
    /// # Errors
    /// As [`QValueMonitor::accumulate`].
    pub fn check_divergence(&mut self, q: &Tensor, threshold: f32) -> Result<QStats, MLError> {
        let (values, ..) = rows("q", q, self.head.map(Head::n_outputs))?;
        let range = divergence(&values, threshold);
        Ok(QStats { min: range.min, max: range.max, mean: range.mean, diverged: range.diverged })
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
        monitor.reset();
        assert!(monitor.read_average().is_err());

        let mut monitor = QValueMonitor::for_head(&Device::Cpu, Head::Branching).unwrap();
        let q = [1.0_f32, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 6.0, 0.0, 0.0];
        monitor.accumulate(&Tensor::from_slice(&q, (1, 11), &Device::Cpu).unwrap()).unwrap();
        assert_eq!(monitor.read_average().unwrap(), 3.0);
        let flat = Tensor::new(&[1.0_f32], &Device::Cpu).unwrap();
        assert!(matches!(monitor.accumulate(&flat), Err(MLError::Shape { what: "q", .. })));
    }
}
