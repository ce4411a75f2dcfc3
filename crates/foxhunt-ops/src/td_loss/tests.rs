use foxhunt_core::Head;

use super::*;

mod munchausen;

struct Rows {
    q: Vec<f32>,
    online: Vec<f32>,
    target: Vec<f32>,
    /// Target network at the states; Munchausen alone reads it.
    at_state: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
    weights: Vec<f32>,
}

impl Rows {
    /// One row of the exposure head.
    fn exposure(q: [f32; 5], online: [f32; 5], target: [f32; 5], action: u32, reward: f32) -> Self {
        Self {
            q: q.to_vec(),
            online: online.to_vec(),
            target: target.to_vec(),
            at_state: vec![],
            actions: vec![action],
            rewards: vec![reward],
            terminated: vec![0.0],
            discounts: vec![0.5],
            weights: vec![1.0],
        }
    }

    fn run(&self, params: &TdLossParams) -> (TdLossSums, Vec<f32>, Vec<f32>) {
        let input = TdLossInput {
            q: &self.q,
            q_next_online: &self.online,
            q_next_target: &self.target,
            q_target: &self.at_state,
            actions: &self.actions,
            rewards: &self.rewards,
            terminated: &self.terminated,
            discounts: &self.discounts,
            weights: &self.weights,
        };
        let mut dq = vec![9.0; self.q.len()];
        let mut td = vec![9.0; self.actions.len()];
        let mut losses = vec![9.0; self.actions.len()];
        td_loss(params, &input, &mut dq, &mut losses, &mut td);
        (TdLossSums::of(&losses, &td), dq, td)
    }
}

fn params(head: Head, rows_total: usize) -> TdLossParams {
    TdLossParams { head: head.into(), rule: TargetRule::Double, huber_delta: 1.0, rows_total }
}

/// Case B27: Huber and its slope, also where a clipped TD error would have no gradient.
#[test]
fn huber_values_and_slopes() {
    for (x, delta, loss, slope) in [(3.0, 1.0, 2.5, 1.0), (3.0, 2.0, 4.0, 2.0), (0.3, 0.1, 0.025, 0.1)] {
        assert!((huber(x, delta) - loss).abs() < 1e-7 && huber_slope(x, delta) == slope, "{x} {delta}");
        assert!((huber(-x, delta) - loss).abs() < 1e-7 && huber_slope(-x, delta) == -slope);
    }
    assert_eq!((huber(0.5, 1.0), huber_slope(0.5, 1.0)), (0.125, 0.5));
    assert!(huber(f32::NAN, 1.0).is_nan() && huber_slope(f32::NAN, 1.0).is_nan());
}

/// Case B25: one common target, Huber of each branch, then the mean.
#[test]
fn branching_takes_the_mean_of_losses_not_of_values() {
    // Three branches whose online argmaxes are 4, 2 and 0; their target values are 2, 4 and 3, mean 3.
    let rows = Rows {
        q: vec![0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 2.5],
        online: vec![0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
        target: vec![9.0, 9.0, 9.0, 9.0, 2.0, 9.0, 9.0, 4.0, 3.0, 9.0, 9.0],
        at_state: vec![],
        actions: vec![9 + 2],
        rewards: vec![1.0],
        terminated: vec![0.0],
        discounts: vec![0.5],
        weights: vec![1.0],
    };
    let (sums, dq, td) = rows.run(&params(Head::Branching, 1));
    // y = 1 + 0.5 * 3 = 2.5; deltas -0.5, 0.5, 0: mean square / 2 = (0.125 + 0.125) / 3. Average first gives 0.
    assert!((sums.weighted_loss - 0.25 / 3.0).abs() < 1e-7, "{sums:?}");
    assert!((td[0] - 1.0 / 3.0).abs() < 1e-7);
    let want = [(1, -0.5 / 3.0), (5, 0.5 / 3.0), (10, 0.0)];
    for (index, &got) in dq.iter().enumerate() {
        let want = want.iter().find(|(i, _)| *i == index).map_or(0.0, |(_, g)| *g);
        assert!((got - want).abs() < 1e-7, "dq[{index}] = {got}, not {want}");
    }
}

/// Case B28: each row's loss is multiplied by its own weight, then averaged.
#[test]
fn importance_weights_reach_the_loss_and_the_gradient() {
    // Huber losses 2 and 4 with delta 1: |delta| = 2.5 and 4.5.
    let mut rows = Rows::exposure([2.5, 0.0, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 0, 0.0);
    let second = Rows::exposure([0.0, -4.5, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 1, 0.0);
    rows.q.extend(second.q);
    rows.online.extend(second.online);
    rows.target.extend(second.target);
    rows.actions.extend(second.actions);
    rows.rewards.extend(second.rewards);
    rows.terminated.extend(second.terminated);
    rows.discounts.extend(second.discounts);
    rows.weights = vec![1.0, 0.5];
    let (sums, dq, td) = rows.run(&params(Head::Exposure, 2));
    assert_eq!(sums.weighted_loss / 2.0, 2.0);
    assert_eq!((dq[0], dq[6]), (0.5, -0.25));
    assert_eq!(td, [2.5, 4.5], "priorities are of the unweighted error");
    assert_eq!(sums.td_error, 7.0);
}

/// Case C08: sub-batches of 1 and 3 rows give the mean over four rows, not the mean of two means.
#[test]
fn unequal_sub_batches_average_over_rows() {
    let one = |q: f32| Rows::exposure([q, 0.0, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 0, 0.0);
    let p = params(Head::Exposure, 4);
    // Losses 10 and 2 + 2 + 2: |delta| - 0.5.
    let total: f64 = [10.5, 2.5, 2.5, 2.5].iter().map(|&q| one(q).run(&p).0.weighted_loss).sum();
    assert_eq!(total / 4.0, 4.0);
    assert_eq!(one(10.5).run(&p).1[0], 0.25);
}

/// Case C09: gradients [1, 1, 1, 1, 3] accumulated by two make three steps of [1, 1, 3]: a last window that is not full
/// is averaged over the rows it has.
#[test]
fn a_short_last_window_is_averaged_over_its_own_rows() {
    let gradients = [1.0_f32, 1.0, 1.0, 1.0, 3.0];
    let steps: Vec<f32> = gradients
        .chunks(2)
        .map(|window| {
            // Within a wide Huber the gradient of a row is its TD error.
            let p = TdLossParams { huber_delta: 10.0, ..params(Head::Exposure, window.len()) };
            let row = |q| Rows::exposure([q, 0.0, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 0, 0.0);
            window.iter().map(|&q| row(q).run(&p).1[0]).sum()
        })
        .collect();
    assert_eq!(steps, [1.0, 1.0, 3.0]);
}

/// Double DQN takes the target's value at the online argmax; plain DQN the target's maximum. Ties: lowest index.
#[test]
fn the_online_network_chooses_and_the_target_network_judges() {
    let rows = Rows::exposure([0.0; 5], [1.0, 3.0, 3.0, 0.0, 0.0], [10.0, 2.0, 6.0, 0.0, 0.0], 0, 1.0);
    let (_, _, td) = rows.run(&params(Head::Exposure, 1));
    assert_eq!(td[0], 2.0);
    let (_, _, td) = rows.run(&TdLossParams { rule: TargetRule::Largest, ..params(Head::Exposure, 1) });
    assert_eq!(td[0], 6.0);
}

/// Case B04: a terminated row's target is its reward, whatever the next state's values are, even NaN.
#[test]
fn a_terminal_row_does_not_look_at_the_next_state() {
    let mut rows = Rows::exposure([0.0; 5], [f32::NAN; 5], [f32::INFINITY; 5], 3, 1.0);
    rows.terminated = vec![1.0];
    let (sums, dq, td) = rows.run(&params(Head::Exposure, 1));
    assert_eq!((td[0], dq[3], sums.non_finite), (1.0, -1.0, 0));
}

#[test]
fn a_row_that_is_not_finite_is_reported() {
    let nan = f32::NAN;
    let bad = [
        Rows::exposure([nan, 0.0, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 0, 0.0),
        Rows::exposure([0.0; 5], [0.0, 0.0, nan, 0.0, 0.0], [0.0; 5], 0, 0.0),
        Rows::exposure([0.0; 5], [0.0; 5], [f32::INFINITY, 0.0, 0.0, 0.0, 0.0], 0, 0.0),
        Rows::exposure([0.0; 5], [0.0; 5], [0.0; 5], 0, nan),
    ];
    for rows in bad {
        let (sums, _, td) = rows.run(&params(Head::Exposure, 1));
        assert_eq!(sums.non_finite, 1);
        assert!(!td[0].is_finite() && !sums.weighted_loss.is_finite());
    }
    // A NaN Q-value of an action that was not taken is no part of this row's error.
    let (sums, ..) =
        Rows::exposure([0.0, nan, 0.0, 0.0, 0.0], [0.0; 5], [0.0; 5], 0, 0.0).run(&params(Head::Exposure, 1));
    assert_eq!(sums.non_finite, 0);
}
