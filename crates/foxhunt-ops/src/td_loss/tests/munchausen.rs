//! Munchausen targets against the paper's own formulas in f64, and the edges.

use super::*;

const RULE: Munchausen = Munchausen { alpha: 0.9, tau: 0.03, floor: -1.0 };

fn munchausen(head: Head, rule: Munchausen) -> TdLossParams {
    TdLossParams { rule: TargetRule::Munchausen(rule), ..params(head, 1) }
}

/// `ln softmax(q / tau)` as it is written down.
fn log_policy(q: &[f32], tau: f64) -> Vec<f64> {
    let most = q.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let scaled: Vec<f64> = q.iter().map(|&q| (f64::from(q) - f64::from(most)) / tau).collect();
    let sum: f64 = scaled.iter().map(|x| x.exp()).sum();
    scaled.iter().map(|x| x - sum.ln()).collect()
}

/// The paper's target for one branch: `sum pi (q - tau ln pi)`, and the clipped `tau ln pi(a)`.
fn by_the_paper(rule: &Munchausen, next: &[f32], at_state: &[f32], action: usize) -> (f64, f64) {
    let value = log_policy(next, rule.tau)
        .iter()
        .zip(next)
        // The limit of p ln p at 0 is 0.
        .map(|(l, &q)| if l.exp() == 0.0 { 0.0 } else { l.exp() * (f64::from(q) - rule.tau * l) })
        .sum();
    (value, (rule.tau * log_policy(at_state, rule.tau)[action]).clamp(rule.floor, 0.0))
}

/// Every head, from temperatures far below the gaps between Q-values to far above; the mean over branches.
#[test]
fn targets_are_those_of_the_paper() {
    let mut stream = foxhunt_core::Philox::new(1).stream(foxhunt_core::Purpose::Synthetic, 0, 0);
    let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.next_normal() as f32).collect() };
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for (tau, floor) in [(1e-6, -1e6), (0.03, -1.0), (0.5, -0.3), (30.0, -1e6)] {
            let rule = Munchausen { tau, floor, ..RULE };
            let (n, action) = (head.n_outputs(), head.n_actions() as u32 / 2);
            let rows = Rows {
                q: vec![0.0; n],
                online: vec![],
                target: normal(n),
                at_state: normal(n),
                actions: vec![action],
                rewards: vec![0.25],
                terminated: vec![0.0],
                discounts: vec![0.9],
                weights: vec![1.0],
            };
            let chosen = match head {
                Head::Branching => vec![action / 9, action / 3 % 3, action % 3],
                _ => vec![action],
            };
            let (mut next, mut bonus, mut start) = (0.0, 0.0, 0);
            for (&len, chosen) in head.branches().iter().zip(chosen) {
                let of = start..start + len;
                let (v, b) =
                    by_the_paper(&rule, &rows.target[of.clone()], &rows.at_state[of], chosen as usize);
                (next, bonus, start) = (next + v, bonus + b, start + len);
            }
            let d = head.branches().len() as f64;
            let want = 0.25 + rule.alpha * bonus / d + f64::from(0.9_f32) * next / d;
            let (_, _, td) = rows.run(&munchausen(head, rule));
            // Q is 0, so |y| is the error; one rounding to f32, and portable powers to 5e-12.
            let error = (f64::from(td[0]) - want.abs()).abs();
            assert!(error < 1e-7 * want.abs().max(1.0), "{head:?} at {tau}: {} and {want}", td[0]);
        }
    }
}

/// Equal values: the policy is uniform, the bonus `tau ln (1/5)`, the soft value `q + tau ln 5`.
#[test]
fn a_uniform_policy_is_paid_its_entropy() {
    let mut rows = Rows::exposure([0.0; 5], [0.0; 5], [2.0; 5], 3, 1.0);
    rows.at_state = vec![-7.0; 5];
    let rule = Munchausen { tau: 0.1, ..RULE };
    let want = 1.0 - 0.9 * 0.1 * 5.0_f64.ln() + 0.5 * (2.0 + 0.1 * 5.0_f64.ln());
    let (_, _, td) = rows.run(&munchausen(Head::Exposure, rule));
    assert!((f64::from(td[0]) - want).abs() < 1e-6, "{} and {want}", td[0]);
}

/// The floor limits what an action the policy would not take can cost, and a terminal row still pays its bonus without a
/// look at what follows.
#[test]
fn the_floor_holds_and_a_terminal_row_is_paid_too() {
    let mut rows = Rows::exposure([0.0; 5], [0.0; 5], [f32::NAN; 5], 1, 2.0);
    rows.at_state = vec![50.0, 0.0, 0.0, 0.0, 0.0];
    rows.terminated = vec![1.0];
    let (sums, _, td) = rows.run(&munchausen(Head::Exposure, RULE));
    assert_eq!((td[0], sums.non_finite), (2.0 - 0.9, 0));
    let lower = Munchausen { floor: -2.0, ..RULE };
    assert_eq!(rows.run(&munchausen(Head::Exposure, lower)).2[0], 0.2);
    rows.actions = vec![0];
    assert_eq!(rows.run(&munchausen(Head::Exposure, RULE)).2[0], 2.0, "the certain action costs nothing");
}

/// A NaN among the values of either state that is looked at makes the row's error NaN, wherever it stands.
#[test]
fn what_is_not_a_number_is_seen() {
    for at in 0..5 {
        for state in [true, false] {
            let mut rows = Rows::exposure([0.0; 5], [0.0; 5], [1.0; 5], 2, 0.0);
            rows.at_state = vec![1.0; 5];
            let of = if state { &mut rows.at_state } else { &mut rows.target };
            of[at] = f32::NAN;
            let (sums, _, td) = rows.run(&munchausen(Head::Exposure, RULE));
            assert!(td[0].is_nan() && sums.non_finite == 1, "{at} {state}");
        }
    }
}

/// The gradient is that of the loss by the paper's formulas, by central differences in f64: targets stand still.
#[test]
fn the_gradient_is_that_of_the_loss() {
    for head in [Head::Exposure, Head::Branching] {
        let n = head.n_outputs();
        let value = |i: usize, scale: f32| ((i * 7 % 11) as f32 - 5.0) * scale;
        let rows = Rows {
            q: (0..n).map(|i| value(i, 0.2)).collect(),
            online: vec![],
            target: (0..n).map(|i| value(i + 3, 0.05)).collect(),
            at_state: (0..n).map(|i| value(i + 5, 0.02)).collect(),
            actions: vec![2],
            rewards: vec![0.1],
            terminated: vec![0.0],
            discounts: vec![0.9],
            weights: vec![0.7],
        };
        let (_, dq, _) = rows.run(&munchausen(head, RULE));
        let chosen: &[usize] = if head == Head::Branching { &[0, 5, 8 + 2] } else { &[2] };
        let (mut next, mut bonus, mut start) = (0.0, 0.0, 0);
        for (&len, at) in head.branches().iter().zip(chosen) {
            let of = start..start + len;
            let (v, b) = by_the_paper(&RULE, &rows.target[of.clone()], &rows.at_state[of], at - start);
            (next, bonus, start) = (next + v, bonus + b, start + len);
        }
        let d = chosen.len() as f64;
        let y = f64::from(0.1_f32) + 0.9 * bonus / d + f64::from(0.9_f32) * next / d;
        let loss = |q: &[f64]| {
            let huber = |x: f64| if x.abs() <= 1.0 { 0.5 * x * x } else { x.abs() - 0.5 };
            f64::from(0.7_f32) * chosen.iter().map(|&at| huber(q[at] - y)).sum::<f64>() / d
        };
        for i in 0..n {
            let mut q: Vec<f64> = rows.q.iter().map(|&q| f64::from(q)).collect();
            let mut moved = |by: f64| {
                q[i] += by;
                let loss = loss(&q);
                q[i] -= by;
                loss
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((f64::from(dq[i]) - slope).abs() < 1e-6, "{head:?} dq[{i}] = {}, not {slope}", dq[i]);
        }
    }
}
