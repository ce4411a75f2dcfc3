//! Expectations, targets, losses and gradients against the formulas in f64, written out anew.

use foxhunt_core::{ActionSpace, Head, Philox, Purpose, ReturnModel};

use super::*;
use crate::td_loss::{TargetRule, TdLossInput, TdLossParams, TdLossSums};

const C51: ReturnModel = ReturnModel::Categorical { atoms: 11, v_min: -2.0, v_max: 3.0 };
const QR: ReturnModel = ReturnModel::Quantiles { n: 9 };

/// Rows of one head; the next values of both networks come from `online` and `target`.
#[derive(Clone)]
struct Rows {
    q: Vec<f32>,
    online: Vec<f32>,
    target: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
    weights: Vec<f32>,
}

/// Gradient, losses, TD errors.
type Out = (Vec<f32>, Vec<f32>, Vec<f32>);

impl Rows {
    fn new(n: usize, head: Head, returns: &ReturnModel, seed: u64) -> Self {
        let width = head.n_outputs() * returns.atoms();
        let mut stream = Philox::new(seed).stream(Purpose::Synthetic, 0, 0);
        let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.next_normal() as f32).collect() };
        Self {
            q: normal(n * width),
            online: normal(n * width),
            target: normal(n * width),
            actions: (0..n).map(|i| (i * 7 % head.n_actions()) as u32).collect(),
            rewards: normal(n),
            terminated: (0..n).map(|i| f32::from(u8::from(i % 4 == 1))).collect(),
            discounts: vec![0.9; n],
            weights: (0..n).map(|i| 0.4 + 0.1 * i as f32).collect(),
        }
    }

    fn run(&self, returns: &ReturnModel, params: &TdLossParams) -> Out {
        let input = TdLossInput {
            q: &self.q,
            q_next_online: &self.online,
            q_next_target: &self.target,
            q_target: &[],
            actions: &self.actions,
            rewards: &self.rewards,
            terminated: &self.terminated,
            discounts: &self.discounts,
            weights: &self.weights,
        };
        let n = self.actions.len();
        let (mut dvalues, mut losses, mut td) = (vec![9.0; self.q.len()], vec![9.0; n], vec![9.0; n]);
        distribution_loss(returns, params, &input, &mut dvalues, &mut losses, &mut td);
        (dvalues, losses, td)
    }
}

fn params(head: Head, rows_total: usize) -> TdLossParams {
    TdLossParams { head: head.into(), rule: TargetRule::Double, huber_delta: 0.7, rows_total }
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let total: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / total).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn returns_of(returns: &ReturnModel) -> Vec<f64> {
    let ReturnModel::Categorical { atoms, v_min, v_max } = *returns else { return Vec::new() };
    (0..atoms).map(|j| v_min + (v_max - v_min) * j as f64 / (atoms - 1) as f64).collect()
}

fn mean_of(returns: &ReturnModel, x: &[f64]) -> f64 {
    match returns {
        ReturnModel::Categorical { .. } => {
            softmax(x).iter().zip(returns_of(returns)).map(|(p, z)| p * z).sum()
        }
        _ => x.iter().sum::<f64>() / x.len() as f64,
    }
}

fn argmax(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Loss (weighted, over all rows) and TD errors by the module's formulas, for online values `q` in f64.
fn reference(rows: &Rows, returns: &ReturnModel, params: &TdLossParams, q: &[f64]) -> (f64, Vec<f64>) {
    let (atoms, branches) = (returns.atoms(), params.head.branches());
    let width = params.head.n_outputs() * atoms;
    let (mut total, mut tds) = (0.0, Vec::new());
    for i in 0..rows.actions.len() {
        let of = |x: &[f32]| wide(&x[i * width..(i + 1) * width]);
        let target = of(&rows.target);
        let chooser = if params.rule.asks_online() { of(&rows.online) } else { target.clone() };
        let mut best = Vec::new();
        let mut start = 0;
        for &len in branches {
            let action = |a: usize| (start + a) * atoms..(start + a + 1) * atoms;
            let means: Vec<f64> = (0..len).map(|a| mean_of(returns, &chooser[action(a)])).collect();
            best.push(target[action(argmax(&means))].to_vec());
            start += len;
        }
        let (reward, discount) = (f64::from(rows.rewards[i]), f64::from(rows.discounts[i]));
        let discount = if rows.terminated[i] == 0.0 { discount } else { 0.0 };
        let mean = |parts: Vec<Vec<f64>>| -> Vec<f64> {
            (0..atoms).map(|j| parts.iter().map(|part| part[j]).sum::<f64>() / parts.len() as f64).collect()
        };
        let y = if let ReturnModel::Categorical { v_min, v_max, .. } = *returns {
            let p = mean(best.iter().map(|x| softmax(x)).collect());
            let (z, step) = (returns_of(returns), (v_max - v_min) / (atoms - 1) as f64);
            let near = |z_i: f64, j: usize| {
                (1.0 - ((reward + discount * z[j]).clamp(v_min, v_max) - z_i).abs() / step).max(0.0)
            };
            z.iter().map(|&z_i| (0..atoms).map(|j| near(z_i, j) * p[j]).sum()).collect()
        } else {
            mean(best).iter().map(|next| reward + discount * next).collect::<Vec<_>>()
        };
        let action = rows.actions[i] as usize;
        let chosen = match params.head {
            ActionSpace::Trading(Head::Branching) => vec![action / 9, 5 + action / 3 % 3, 8 + action % 3],
            _ => vec![action],
        };
        let (mut loss, mut td) = (0.0, 0.0);
        for a in chosen {
            let x = &q[i * width + a * atoms..i * width + (a + 1) * atoms];
            if returns.is_mean() {
                unreachable!("distributions alone");
            } else if let ReturnModel::Categorical { .. } = returns {
                let p = softmax(x);
                loss -= y.iter().zip(&p).map(|(m, p)| m * p.ln()).sum::<f64>();
                td += y.iter().zip(&p).filter(|(m, _)| **m > 0.0).map(|(m, p)| m * (m / p).ln()).sum::<f64>();
            } else {
                let kappa = f64::from(params.huber_delta);
                for (k, x) in x.iter().enumerate() {
                    let tau = (k as f64 + 0.5) / atoms as f64;
                    for y in &y {
                        let u = y - x;
                        let size = u.abs();
                        let huber = if size <= kappa { u * u / 2.0 } else { kappa * (size - kappa / 2.0) };
                        loss += (tau - f64::from(u8::from(u < 0.0))).abs() * huber / atoms as f64;
                    }
                    td += (y[k] - x).abs() / atoms as f64;
                }
            }
        }
        let n_branches = branches.len() as f64;
        total += f64::from(rows.weights[i]) * loss / n_branches / params.rows_total as f64;
        tds.push(td / n_branches);
    }
    (total, tds)
}

/// Loss and TD errors by the formulas; the gradient by differences of the loss in f64.
#[test]
fn losses_and_gradients_equal_the_formulas() {
    for returns in [C51, QR] {
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            for double in [false, true] {
                let n = 6;
                let rows = Rows::new(n, head, &returns, 5);
                let rule = if double { TargetRule::Double } else { TargetRule::Largest };
                let params = TdLossParams { rule, ..params(head, n) };
                let (dvalues, losses, td) = rows.run(&returns, &params);
                let context = format!("{returns:?} {head:?} double {double}");
                let q = wide(&rows.q);
                let (want, want_td) = reference(&rows, &returns, &params, &q);
                let loss = losses.iter().map(|&l| f64::from(l)).sum::<f64>() / n as f64;
                // Chains of at most a dozen roundings of f32.
                assert!((loss - want).abs() < 2e-6 * want.abs().max(1.0), "{context}: {loss}, not {want}");
                for (got, want) in td.iter().zip(&want_td) {
                    assert!((f64::from(*got) - want).abs() < 2e-6 * want.max(1.0), "{context}: {got} {want}");
                }
                let mut moved = 0;
                for k in 0..q.len() {
                    if dvalues[k] == 0.0 {
                        continue;
                    }
                    let h = 1e-6;
                    let at = |step: f64| {
                        let mut q = q.clone();
                        q[k] += step;
                        reference(&rows, &returns, &params, &q).0
                    };
                    // Where Huber turns the two sides differ by no more than h.
                    let want = (at(h) - at(-h)) / (2.0 * h);
                    assert!(
                        (f64::from(dvalues[k]) - want).abs() < 2e-7,
                        "{context} [{k}]: {} {want}",
                        dvalues[k]
                    );
                    moved += 1;
                }
                assert_eq!(moved, n * head.branches().len() * returns.atoms(), "{context}");
            }
        }
    }
}

/// By hand: two returns 0 and 1, three actions.
#[test]
fn expectations_are_means() {
    let pair = ReturnModel::Categorical { atoms: 2, v_min: 0.0, v_max: 1.0 };
    let mut q = [9.0; 3];
    // Odds of 1, of 3 and of a million millions, with a logit that overflows a plain exponential.
    expectations(&pair, &[5.0, 5.0, 0.0, 3.0_f32.ln(), 900.0, 900.0 + 27.5], &mut q);
    assert_eq!(q[0], 0.5);
    assert!((q[1] - 0.75).abs() < 1e-6 && q[2] > 0.999_999, "{q:?}");
    expectations(&ReturnModel::Quantiles { n: 2 }, &[1.0, 2.0, -3.0, 3.0, 1e30, 1e30], &mut q);
    assert_eq!(q, [1.5, 0.0, 1e30]);
    expectations(&ReturnModel::Mean, &[1.0, -2.0, 3.0], &mut q);
    assert_eq!(q, [1.0, -2.0, 3.0]);
    for returns in [pair, ReturnModel::Quantiles { n: 2 }] {
        let mut q = [0.0; 2];
        expectations(&returns, &[f32::NAN, 1.0, 0.5, 0.5], &mut q);
        assert!(q[0].is_nan() && q[1] == 0.5);
    }
}

/// The sum is the tree of the module: as good as a plain one for any number of atoms, and every atom is in it once.
#[test]
fn sums_hold_every_atom() {
    for n in 0..300 {
        assert_eq!(cpu::sum(n, |j| j as f64), (n * n.saturating_sub(1) / 2) as f64, "{n}");
    }
}

/// Probability is moved, never lost, its mean moves with it where nothing is cut off, and what is cut lies at the ends.
#[test]
fn projection_keeps_probability_and_mean() {
    let support = categorical::Support::new(11, -2.0, 3.0);
    let logits: Vec<f32> = (0..11).map(|j| ((j * 5) % 7) as f32 * 0.3).collect();
    let p = softmax(&wide(&logits));
    let z = returns_of(&C51);
    let mean = |m: &[f64]| m.iter().zip(&z).map(|(m, z)| m * z).sum::<f64>();
    let mut m = vec![9.0; 11];
    for (reward, discount) in [(0.0, 1.0), (0.25, 0.5), (-0.1, 0.9), (0.5, 0.0)] {
        categorical::project(&support, &[&logits], reward, discount, &mut m);
        assert!((m.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{m:?}");
        let (r, g) = (f64::from(reward), f64::from(discount));
        let want: f64 = p.iter().zip(&z).map(|(p, z)| p * (r + g * z).clamp(-2.0, 3.0)).sum();
        assert!((mean(&m) - want).abs() < 1e-9, "{reward} {discount}: {} {want}", mean(&m));
    }
    categorical::project(&support, &[&logits], 0.0, 1.0, &mut m);
    assert!(m.iter().zip(&p).all(|(m, p)| (m - p).abs() < 1e-9), "returns on the atoms stay where they are");
    for (reward, at) in [(-2.0, 0), (-9.0, 0), (3.0, 10), (1e30, 10), (0.5, 5)] {
        categorical::certain(&support, reward, &mut m);
        assert!(m[at] == 1.0 && m.iter().sum::<f64>() == 1.0, "{reward}: {m:?}");
    }
    categorical::certain(&support, 0.6, &mut m);
    assert!((m[5] - 0.8).abs() < 1e-7 && (m[6] - 0.2).abs() < 1e-7, "{m:?}");
}

/// What has learned its target has neither TD error nor gradient, though the returns still vary.
#[test]
fn nothing_is_left_when_the_target_is_met() {
    for returns in [C51, QR] {
        let mut rows = Rows::new(3, Head::Exposure, &returns, 2);
        (rows.rewards, rows.discounts, rows.terminated) = (vec![0.0; 3], vec![1.0; 3], vec![0.0; 3]);
        let params = TdLossParams { rule: TargetRule::Largest, ..params(Head::Exposure, 3) };
        let atoms = returns.atoms();
        let mut q = [0.0; 5];
        for i in 0..3 {
            let row = i * 5 * atoms..(i + 1) * 5 * atoms;
            expectations(&returns, &rows.target[row.clone()], &mut q);
            let best = argmax(&wide(&q));
            rows.actions[i] = best as u32;
            rows.target[row.start + best * atoms..][..atoms].sort_by(f32::total_cmp);
            let copy = rows.target[row.clone()].to_vec();
            rows.q[row].copy_from_slice(&copy);
        }
        let (dvalues, losses, td) = rows.run(&returns, &params);
        assert!(td.iter().all(|td| (0.0..1e-6).contains(td)), "{returns:?}: {td:?}");
        assert!(losses.iter().all(|&loss| loss > 0.05), "{losses:?}");
        if let ReturnModel::Categorical { .. } = returns {
            assert!(dvalues.iter().all(|d| d.abs() < 1e-6), "{dvalues:?}");
        }
    }
}

/// Samples of a target that varies: gradient steps end at its quantiles, or at its probabilities.
#[test]
fn steps_lead_to_the_distribution() {
    let n = 400;
    for returns in [C51, ReturnModel::Quantiles { n: 4 }] {
        let atoms = returns.atoms();
        let mut x = vec![0.0_f32; 5 * atoms];
        let mut rows = Rows::new(n, Head::Exposure, &returns, 3);
        rows.actions.fill(2);
        rows.terminated.fill(1.0);
        rows.weights.fill(1.0);
        // Half of the returns are -1, half are 2, in no order.
        rows.rewards = (0..n).map(|i| if i * 7 % 10 < 5 { -1.0 } else { 2.0 }).collect();
        // A small kappa: quantiles, not expectiles.
        let params = TdLossParams { huber_delta: 0.01, ..params(Head::Exposure, n) };
        for _ in 0..3000 {
            rows.q = x.repeat(n);
            let (dvalues, ..) = rows.run(&returns, &params);
            let rate = if returns == C51 { 1.0 } else { 2.0 };
            for row in dvalues.chunks(5 * atoms) {
                x.iter_mut().zip(row).for_each(|(x, d)| *x -= rate * d);
            }
        }
        let taken = &x[2 * atoms..3 * atoms];
        if returns == C51 {
            let p = softmax(&wide(taken));
            assert!((p[2] - 0.5).abs() < 0.02 && (p[8] - 0.5).abs() < 0.02, "{p:?}");
        } else {
            assert!(taken[..2].iter().all(|x| (x + 1.0).abs() < 0.05), "{taken:?}");
            assert!(taken[2..].iter().all(|x| (x - 2.0).abs() < 0.05), "{taken:?}");
        }
        assert!(x[..2 * atoms].iter().chain(&x[3 * atoms..]).all(|&x| x == 0.0), "another action moved");
    }
}

/// Case B04: a terminated row's target is its reward, whatever the next state's values are, even NaN.
#[test]
fn a_terminal_row_does_not_look_at_the_next_state() {
    for returns in [C51, QR] {
        let mut rows = Rows::new(1, Head::Branching, &returns, 4);
        rows.terminated = vec![1.0];
        let want = rows.run(&returns, &params(Head::Branching, 1));
        rows.online.fill(f32::NAN);
        rows.target.fill(f32::INFINITY);
        assert_eq!(rows.run(&returns, &params(Head::Branching, 1)), want);
        assert!(want.2[0].is_finite());
    }
}

/// Whatever is not a number, and matters, makes the TD error so; what the row does not look at does not.
#[test]
fn a_row_that_is_not_finite_is_reported() {
    let nan = f32::NAN;
    for returns in [C51, QR] {
        let atoms = returns.atoms();
        let clean = || {
            let mut rows = Rows::new(1, Head::Exposure, &returns, 6);
            (rows.terminated, rows.actions) = (vec![0.0], vec![1]);
            rows
        };
        let bad: [fn(&mut Rows, usize); 6] = [
            |rows, atoms| rows.q[atoms + 1] = f32::NAN,
            |rows, atoms| rows.q[2 * atoms - 1] = f32::NAN,
            |rows, _| rows.online[0] = f32::NAN,
            |rows, _| rows.target.fill(f32::NAN),
            |rows, _| rows.rewards[0] = f32::NAN,
            |rows, _| rows.discounts[0] = f32::NAN,
        ];
        for (i, poison) in bad.iter().enumerate() {
            let mut rows = clean();
            poison(&mut rows, atoms);
            let (_, losses, td) = rows.run(&returns, &params(Head::Exposure, 1));
            let sums = TdLossSums::of(&losses, &td);
            assert!(sums.non_finite == 1 && !sums.weighted_loss.is_finite(), "{returns:?} {i}: {td:?}");
        }
        // An atom of an action that was not taken is no part of this row's error.
        let mut rows = clean();
        rows.q[0] = nan;
        assert!(rows.run(&returns, &params(Head::Exposure, 1)).2[0].is_finite());
    }
}
