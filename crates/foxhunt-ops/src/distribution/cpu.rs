//! The CPU twin: rows and branches; what a kind of distribution does is in a file of its own.

use foxhunt_core::ReturnModel;

use super::categorical::{self, Support};
use super::quantiles;
use crate::td_loss::{TdLossInput, TdLossParams, best_of, chosen_in_branch};

/// Running sums of a sum over atoms.
const LANES: usize = 32;

/// The sum of `value(0..n)` in the tree of the [module](super).
pub(super) fn sum(n: usize, value: impl Fn(usize) -> f64) -> f64 {
    let [sum] = sums(n, |j| [value(j)]);
    sum
}

/// Several such sums at once, each as if it were alone.
pub(super) fn sums<const N: usize>(n: usize, values: impl Fn(usize) -> [f64; N]) -> [f64; N] {
    let mut lanes = [[0.0; N]; LANES];
    let add = |to: &mut [f64; N], values: [f64; N]| to.iter_mut().zip(values).for_each(|(to, v)| *to += v);
    for first in (0..n).step_by(LANES) {
        for (lane, j) in lanes.iter_mut().zip(first..n) {
            add(lane, values(j));
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| add(low, *high));
        half /= 2;
    }
    lanes[0]
}

/// Loss of a branch before weights, and its TD error.
pub(super) struct BranchLoss {
    pub(super) loss: f32,
    pub(super) td: f32,
}

/// Q-values from what a head says, f32 `[n, atoms]`: the expectation of each action, f32 `[n]`.
///
/// # Panics
/// When the slices do not fit each other.
pub fn expectations(returns: &ReturnModel, values: &[f32], q: &mut [f32]) {
    let atoms = returns.atoms();
    assert_eq!(values.len(), q.len() * atoms, "the atoms of each action");
    let rows = values.chunks_exact(atoms).zip(q);
    match *returns {
        ReturnModel::Mean => rows.for_each(|(x, q)| *q = x[0]),
        ReturnModel::Categorical { atoms, v_min, v_max } => {
            let support = Support::new(atoms, v_min, v_max);
            rows.for_each(|(x, q)| *q = categorical::expectation(&support, x));
        }
        ReturnModel::Quantiles { .. } => rows.for_each(|(x, q)| *q = quantiles::expectation(x)),
    }
}

/// The target of a row, of one kind or the other.
enum Target {
    Categorical(Support, Vec<f64>),
    Quantiles(Vec<f32>),
}

impl Target {
    fn of(returns: &ReturnModel) -> Self {
        match *returns {
            ReturnModel::Categorical { atoms, v_min, v_max } => {
                Self::Categorical(Support::new(atoms, v_min, v_max), vec![0.0; atoms])
            }
            _ => Self::Quantiles(vec![0.0; returns.atoms()]),
        }
    }

    /// From the atoms of each branch's best action; none where there is none, because an expectation is NaN.
    fn set(&mut self, best: Option<&[&[f32]]>, reward: f32, discount: f32) {
        match (self, best) {
            (Self::Categorical(support, m), Some(best)) => {
                categorical::project(support, best, reward, discount, m);
            }
            (Self::Categorical(_, m), None) => m.fill(f64::NAN),
            (Self::Quantiles(y), Some(best)) => quantiles::project(best, reward, discount, y),
            (Self::Quantiles(y), None) => y.fill(f32::NAN),
        }
    }

    fn set_certain(&mut self, reward: f32) {
        match self {
            Self::Categorical(support, m) => categorical::certain(support, reward, m),
            Self::Quantiles(y) => y.fill(reward),
        }
    }

    fn loss(&self, values: &[f32], kappa: f32, gradient: &mut [f32]) -> BranchLoss {
        match self {
            Self::Categorical(_, m) => categorical::loss(values, m, gradient),
            Self::Quantiles(y) => quantiles::loss(values, y, kappa, gradient),
        }
    }
}

/// Writes the gradient, the losses and the TD errors of a block of rows; see the [module](super) for the formulas.
///
/// `dvalues`: f32 `[B, n_outputs, atoms]`, as the Q arrays of `input`; every entry written. `losses`: f32 `[B]`, weighted,
/// not divided by the rows. `td`: f32 `[B]`.
///
/// # Panics
/// When a slice does not fit `td.len()` rows, or an action is outside the head; for Munchausen targets, which are made of
/// Q-values.
pub fn distribution_loss(
    returns: &ReturnModel,
    params: &TdLossParams,
    input: &TdLossInput<'_>,
    dvalues: &mut [f32],
    losses: &mut [f32],
    td: &mut [f32],
) {
    let branches = params.head.branches();
    let (atoms, n_outputs) = (returns.atoms(), params.head.n_outputs());
    let (rows, width) = (td.len(), n_outputs * atoms);
    assert!(!params.rule.asks_target(), "Munchausen targets are made of Q-values");
    assert_eq!(losses.len(), rows, "one loss a row");
    assert!(
        input.q.len() == rows * width && dvalues.len() == rows * width,
        "values and gradient must be [rows, {width}]"
    );
    assert!(input.q_next_target.len() == rows * width, "the target's values must be [rows, {width}]");
    assert!(
        !params.rule.asks_online() || input.q_next_online.len() == rows * width,
        "the next values must be [rows, {width}]"
    );
    let (n_branches, scale) = (branches.len() as f32, params.scale());
    let mut target = Target::of(returns);
    let mut q = vec![0.0; n_outputs];
    let mut best: Vec<&[f32]> = Vec::with_capacity(branches.len());
    dvalues.fill(0.0);
    for i in 0..rows {
        let row = i * width..(i + 1) * width;
        if input.terminated[i] != 0.0 {
            target.set_certain(input.rewards[i]);
        } else {
            let next = &input.q_next_target[row.clone()];
            let chooser = if params.rule.asks_online() { &input.q_next_online[row.clone()] } else { next };
            expectations(returns, chooser, &mut q);
            best.clear();
            let mut start = 0;
            for &len in branches {
                best.extend(best_of(&q[start..start + len]).map(|a| atoms_of(next, start + a, atoms)));
                start += len;
            }
            let best = (best.len() == branches.len()).then_some(&best[..]);
            target.set(best, input.rewards[i], input.discounts[i]);
        }

        let (values, dvalues) = (&input.q[row.clone()], &mut dvalues[row]);
        let (mut loss, mut size) = (0.0, 0.0);
        let mut start = 0;
        for (d, &len) in branches.iter().enumerate() {
            let chosen = start + chosen_in_branch(params.head, input.actions[i], d);
            let gradient = &mut dvalues[chosen * atoms..(chosen + 1) * atoms];
            let branch = target.loss(atoms_of(values, chosen, atoms), params.huber_delta, gradient);
            loss += branch.loss;
            size += branch.td;
            gradient.iter_mut().for_each(|g| *g = input.weights[i] * *g * scale);
            start += len;
        }
        td[i] = size / n_branches;
        losses[i] = input.weights[i] * (loss / n_branches);
    }
}

/// The atoms of one action.
fn atoms_of(values: &[f32], action: usize, atoms: usize) -> &[f32] {
    &values[action * atoms..(action + 1) * atoms]
}
