//! QR-DQN on one action's quantiles.

use super::cpu::{BranchLoss, sum};
use crate::td_loss::{huber, huber_slope};

/// The mean of the distribution.
pub(super) fn expectation(quantiles: &[f32]) -> f32 {
    (sum(quantiles.len(), |j| f64::from(quantiles[j])) / quantiles.len() as f64) as f32
}

/// The targets `y`, from the target network's quantiles of each branch's best action.
pub(super) fn project(best: &[&[f32]], reward: f32, discount: f32, y: &mut [f32]) {
    for (j, y) in y.iter_mut().enumerate() {
        let next = best.iter().fold(0.0, |next, quantiles| next + quantiles[j]);
        *y = reward + discount * (next / best.len() as f32);
    }
}

/// Quantile Huber loss and distance of the action taken from `y`; `gradient` takes that of the loss.
pub(super) fn loss(quantiles: &[f32], y: &[f32], kappa: f32, gradient: &mut [f32]) -> BranchLoss {
    let n = quantiles.len();
    let mut losses = vec![0.0_f32; n];
    gradient.fill(0.0);
    // Target by target, so that each quantile takes its terms in order and all of them move at once.
    for &y in y {
        for (i, ((&quantile, loss), gradient)) in
            quantiles.iter().zip(&mut losses).zip(&mut *gradient).enumerate()
        {
            let tau = (2 * i + 1) as f32 / (2 * n) as f32;
            let u = y - quantile;
            let weight = if u < 0.0 { 1.0 - tau } else { tau };
            *loss += weight * huber(u, kappa);
            *gradient += weight * huber_slope(u, kappa);
        }
    }
    gradient.iter_mut().for_each(|gradient| *gradient = -(*gradient / n as f32));
    let loss = sum(n, |i| f64::from(losses[i])) / n as f64;
    let td = sum(n, |i| f64::from((y[i] - quantiles[i]).abs())) / n as f64;
    BranchLoss { loss: loss as f32, td: td as f32 }
}
