//! The best policy for a mean-reverting market, by value iteration: what an agent can be measured against.
//!
//! The state is the deviation x of the log price and the exposure level held. Moving from level i to level j costs
//! `cost * |f_j - f_i|` and earns `f_j (E[x'] - x) = f_j (phi - 1) x` until the next bar, in log equity to first
//! order (the second order, half the squared exposure times the variance of a bar, is small against it for bars of
//! a few per cent or less). The long-run mean is maximised (relative value iteration, Puterman 1994, section
//! 8.5.5). The expectation over the noise is a trapezoidal sum, which converges geometrically for the normal law
//! (Trefethen and Weideman, SIAM Review 56, 2014); values between grid points are interpolated linearly. It knows
//! the law of the market; it is no trading strategy for real data.

use foxhunt_core::Exposure;
use foxhunt_core::settings::ExecutionSettings;

use crate::synthetic::MeanReverting;

const LEVELS: usize = 5;
/// Grid over +-6 stationary standard deviations, 0.05 apart.
const GRID: usize = 241;
const GRID_STDS: f64 = 6.0;
/// Noise over +-6 standard deviations, 0.25 apart.
const NODES: usize = 49;
const MAX_SWEEPS: usize = 20_000;

/// The optimal policy of one market under one cost.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalPolicy {
    /// Deviation of the first grid point.
    low: f64,
    /// Distance of grid points.
    step: f64,
    /// Log-equity cost of a change of exposure by one.
    cost: f64,
    /// f64 `[GRID, 5]`: value of going on from deviation x at level j, before the cost of getting there.
    going_on: Vec<[f64; LEVELS]>,
    /// Mean log return a bar in the long run.
    growth: f64,
}

impl OptimalPolicy {
    /// Solves `market` for market orders of normal urgency under the costs of `execution`, with `max_leverage`
    /// at full exposure.
    #[must_use]
    pub fn solve(market: &MeanReverting, execution: &ExecutionSettings, max_leverage: f64) -> Self {
        let bps = execution.half_spread_bps + execution.impact_bps + execution.taker_fee_bps;
        let cost = bps * 1e-4 * max_leverage;
        let bound = GRID_STDS * market.stationary_std();
        let step = 2.0 * bound / (GRID - 1) as f64;
        let mut policy = Self { low: -bound, step, cost, going_on: vec![[0.0; LEVELS]; GRID], growth: 0.0 };

        let transitions: Vec<Vec<(usize, f64)>> =
            (0..GRID).map(|g| policy.transitions(market, policy.deviation(g))).collect();
        let mut value = vec![[0.0; LEVELS]; GRID];
        for _ in 0..MAX_SWEEPS {
            for (g, moves) in transitions.iter().enumerate() {
                let drift = (market.phi - 1.0) * policy.deviation(g) * max_leverage;
                for (j, exposure) in Exposure::ALL.into_iter().enumerate() {
                    let next: f64 = moves.iter().map(|&(to, weight)| weight * value[to][j]).sum();
                    policy.going_on[g][j] = exposure.fraction() * drift + next;
                }
            }
            // The mean return is the change of value a sweep; what is left after taking it off is relative value.
            let change = policy.best(&policy.going_on[GRID / 2], Exposure::Flat).1 - value[GRID / 2][2];
            let mut moved = 0.0_f64;
            for (g, values) in value.iter_mut().enumerate() {
                for (i, level) in Exposure::ALL.into_iter().enumerate() {
                    let new = policy.best(&policy.going_on[g], level).1 - change;
                    moved = moved.max((new - values[i]).abs());
                    values[i] = new;
                }
            }
            policy.growth = change;
            if moved < 1e-13 {
                break;
            }
        }
        policy
    }

    /// The exposure to go to from deviation `x` at `level`. A tie keeps the level.
    #[must_use]
    pub fn act(&self, x: f64, level: Exposure) -> Exposure {
        let place = ((x - self.low) / self.step).clamp(0.0, (GRID - 1) as f64);
        let g = (place as usize).min(GRID - 2);
        let share = place - g as f64;
        let mut going_on = [0.0; LEVELS];
        for (j, value) in going_on.iter_mut().enumerate() {
            *value = (1.0 - share) * self.going_on[g][j] + share * self.going_on[g + 1][j];
        }
        self.best(&going_on, level).0
    }

    /// Mean log return a bar that the policy earns in the long run, to the first order of the module's model.
    #[must_use]
    pub fn growth_per_bar(&self) -> f64 {
        self.growth
    }

    fn deviation(&self, g: usize) -> f64 {
        self.low + self.step * g as f64
    }

    /// The best level to go to and its value; only a strictly better one is worth leaving `level` for.
    fn best(&self, going_on: &[f64; LEVELS], level: Exposure) -> (Exposure, f64) {
        let mut best = (level, going_on[level.index() as usize]);
        for (j, to) in Exposure::ALL.into_iter().enumerate() {
            let value = going_on[j] - self.cost * (to.fraction() - level.fraction()).abs();
            if value > best.1 {
                best = (to, value);
            }
        }
        best
    }

    /// Where the deviation goes from `x` in one bar: grid points and weights that sum to 1.
    fn transitions(&self, market: &MeanReverting, x: f64) -> Vec<(usize, f64)> {
        let mut weights = vec![0.0; GRID];
        let mut total = 0.0;
        for node in 0..NODES {
            let z = -6.0 + 0.25 * node as f64;
            let density = (-0.5 * z * z).exp();
            let to = market.phi * x + market.volatility * z;
            let place = ((to - self.low) / self.step).clamp(0.0, (GRID - 1) as f64);
            let g = (place as usize).min(GRID - 2);
            let share = place - g as f64;
            weights[g] += density * (1.0 - share);
            weights[g + 1] += density * share;
            total += density;
        }
        weights
            .into_iter()
            .enumerate()
            .filter(|(_, weight)| *weight > 0.0)
            .map(|(g, weight)| (g, weight / total))
            .collect()
    }
}

#[cfg(test)]
mod tests;
