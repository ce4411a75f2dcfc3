//! The CPU twin of the TD loss.

use foxhunt_core::{ActionSpace, Head};

use super::{Munchausen, TargetRule, TdLossInput, TdLossParams, TdLossSums};
use crate::tree_sum::tree_sum;

/// `x^2 / 2` up to `delta`, then linear: `delta (|x| - delta / 2)`.
#[must_use]
pub fn huber(x: f32, delta: f32) -> f32 {
    let size = x.abs();
    if size <= delta { 0.5 * x * x } else { delta * (size - 0.5 * delta) }
}

/// Derivative of [`huber`]: `x` clamped to `[-delta, delta]`; NaN stays NaN.
#[must_use]
pub fn huber_slope(x: f32, delta: f32) -> f32 {
    if x > delta {
        delta
    } else if x < -delta {
        -delta
    } else {
        x
    }
}

/// Writes the gradient, the losses and the TD errors of a block of rows; see the [module](super) for the formulas.
///
/// `dq`: f32 `[B, n_outputs]`, every entry written. `losses`: f32 `[B]`, weighted, not divided by the rows. `td`: f32
/// `[B]`.
///
/// # Panics
/// When a slice does not fit `td.len()` rows, or an action is outside the head.
pub fn td_loss(
    params: &TdLossParams,
    input: &TdLossInput<'_>,
    dq: &mut [f32],
    losses: &mut [f32],
    td: &mut [f32],
) {
    let branches = params.head.branches();
    let width = params.head.n_outputs();
    let rows = td.len();
    assert_eq!(losses.len(), rows, "one loss a row");
    assert!(input.q.len() == rows * width && dq.len() == rows * width, "q and dq must be [rows, {width}]");
    assert!(input.q_next_target.len() == rows * width, "q_next_target must be [rows, {width}]");
    for (asked, what, q) in [
        (params.rule.asks_online(), "q_next_online", input.q_next_online),
        (params.rule.asks_target(), "q_target", input.q_target),
    ] {
        assert!(!asked || q.len() == rows * width, "{what} must be [rows, {width}]");
    }
    let n_branches = branches.len() as f32;
    let scale = params.scale();
    dq.fill(0.0);
    for i in 0..rows {
        let row = i * width..(i + 1) * width;
        let y = match &params.rule {
            TargetRule::Munchausen(rule) => soft_target(rule, params.head, input, i),
            TargetRule::Double => target(branches, input, input.q_next_online, i),
            TargetRule::Largest => target(branches, input, input.q_next_target, i),
        };

        let q = &input.q[row.clone()];
        let dq = &mut dq[row];
        let (mut loss, mut size) = (0.0, 0.0);
        let mut start = 0;
        for (d, &len) in branches.iter().enumerate() {
            let chosen = start + chosen_in_branch(params.head, input.actions[i], d);
            let delta = q[chosen] - y;
            loss += huber(delta, params.huber_delta);
            size += delta.abs();
            dq[chosen] = input.weights[i] * huber_slope(delta, params.huber_delta) * scale;
            start += len;
        }
        td[i] = size / n_branches;
        losses[i] = input.weights[i] * (loss / n_branches);
    }
}

impl TdLossSums {
    /// The sums over the rows of a sub-batch.
    #[must_use]
    pub fn of(losses: &[f32], td: &[f32]) -> Self {
        Self {
            weighted_loss: tree_sum(losses, |loss| loss),
            td_error: tree_sum(td, |td| td),
            non_finite: crate::guard::count_non_finite(td),
        }
    }
}

/// The target of row `i` whose next actions are the best of `chooser`, f32 `[B, n_outputs]`.
fn target(branches: &[usize], input: &TdLossInput<'_>, chooser: &[f32], i: usize) -> f32 {
    if input.terminated[i] != 0.0 {
        return input.rewards[i];
    }
    let mut next = 0.0;
    let mut start = i * branches.iter().sum::<usize>();
    for &len in branches {
        let branch = start..start + len;
        next += value_of_best(&chooser[branch.clone()], &input.q_next_target[branch]);
        start += len;
    }
    input.rewards[i] + input.discounts[i] * (next / branches.len() as f32)
}

/// The Munchausen target of row `i`.
fn soft_target(rule: &Munchausen, head: ActionSpace, input: &TdLossInput<'_>, i: usize) -> f32 {
    let branches = head.branches();
    let bootstraps = input.terminated[i] == 0.0;
    let (mut bonus, mut next) = (0.0, 0.0);
    let mut start = i * head.n_outputs();
    for (d, &len) in branches.iter().enumerate() {
        let branch = start..start + len;
        bonus += rule.bonus(&input.q_target[branch.clone()], chosen_in_branch(head, input.actions[i], d));
        if bootstraps {
            next += rule.soft_value(&input.q_next_target[branch]);
        }
        start += len;
    }
    let n_branches = branches.len() as f64;
    let paid = f64::from(input.rewards[i]) + rule.alpha * (bonus / n_branches);
    let y = if bootstraps { paid + f64::from(input.discounts[i]) * (next / n_branches) } else { paid };
    y as f32
}

/// `values` at the argmax of `chooser`; NaN when any of `chooser` is NaN.
fn value_of_best(chooser: &[f32], values: &[f32]) -> f32 {
    best_of(chooser).map_or(f32::NAN, |best| values[best])
}

/// The first of the largest; none when any is NaN.
pub(crate) fn best_of(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if value > values[best] {
            best = index;
        }
    }
    Some(best)
}

/// The stored action's index within branch `d`.
pub(crate) fn chosen_in_branch(head: ActionSpace, action: u32, d: usize) -> usize {
    let action = action as usize;
    match (head, d) {
        (ActionSpace::Trading(Head::Branching), 0) => action / 9,
        (ActionSpace::Trading(Head::Branching), 1) => action / 3 % 3,
        (ActionSpace::Trading(Head::Branching), _) => action % 3,
        _ => action,
    }
}
