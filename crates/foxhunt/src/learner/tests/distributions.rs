//! Heads that are distributions of the return.

use candle_core::{DType, Device, Tensor, Var};
use foxhunt_core::Head;

use super::{Rows, STATE_DIM, assert_close, settings};
use crate::engine::Snapshot;
use crate::learner::{Learner, reference};

/// Distributions against candle in f64: forward, loss and autograd are all candle's, only the target is worked out here.
#[test]
fn distributions_equal_candle_autograd() {
    let n = 70;
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for dueling in [false, true] {
            for (c51_atoms, quantiles) in [(11, 0), (0, 7)] {
                let mut settings = settings(head);
                settings.network.dueling = dueling;
                (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
                settings.network.c51_range = [-2.0, 2.5];
                let mut learner = Learner::new(&settings, STATE_DIM);
                let mut rows = Rows::new(n, head, 3);
                // Every row ends, so that the target is the reward for certain.
                rows.terminated.fill(1.0);
                let layout = learner.network().layout().clone();
                let atoms = layout.shape().returns.atoms();
                let w: Vec<f64> = learner.network().parameters().iter().map(|&v| f64::from(v)).collect();
                let w = Var::from_slice(&w, layout.len(), &Device::Cpu).unwrap();
                let tensor = |v: Vec<f64>, shape: &[usize]| Tensor::from_vec(v, shape, &Device::Cpu).unwrap();
                let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
                let states = tensor(wide(&rows.states), &[n, STATE_DIM]);
                let values = reference::values(&layout, w.as_tensor(), &states).unwrap();
                let values = values.reshape((n, layout.n_outputs(), atoms)).unwrap();

                let rewards = wide(&rows.rewards);
                let target: Vec<f64> = if c51_atoms > 0 {
                    let nearness = |r: f64, j: usize| {
                        let distance = (r.clamp(-2.0, 2.5) - (-2.0 + 0.45 * j as f64)).abs() / 0.45;
                        (1.0 - distance).max(0.0)
                    };
                    rewards.iter().flat_map(|&r| (0..atoms).map(move |j| nearness(r, j))).collect()
                } else {
                    rewards.iter().flat_map(|&r| vec![r; atoms]).collect()
                };
                let target = tensor(target, &[n, atoms]);
                let branches = layout.shape().head.branches().to_vec();
                let mut objective = Tensor::zeros((), DType::F64, &Device::Cpu).unwrap();
                let mut start = 0;
                for (d, &len) in branches.iter().enumerate() {
                    let chosen = |a: u32| match (head, d) {
                        (Head::Branching, 0) => a / 9,
                        (Head::Branching, 1) => a / 3 % 3,
                        (Head::Branching, _) => a % 3,
                        _ => a,
                    };
                    let mut picked = vec![0.0; n * layout.n_outputs()];
                    for (i, &a) in rows.actions.iter().enumerate() {
                        picked[i * layout.n_outputs() + start + chosen(a) as usize] = 1.0;
                    }
                    let picked = tensor(picked, &[n, layout.n_outputs(), 1]);
                    let taken = values.broadcast_mul(&picked).unwrap().sum(1).unwrap();
                    let losses = if c51_atoms > 0 {
                        let log_p = reference::log_softmax(&taken).unwrap();
                        (target.clone() * log_p).unwrap().sum(1).unwrap().neg().unwrap()
                    } else {
                        quantile_huber(&taken, &target, atoms)
                    };
                    let each = wide(&rows.weights).iter().map(|w| w / (n * branches.len()) as f64).collect();
                    objective =
                        (objective + (losses * tensor(each, &[n])).unwrap().sum_all().unwrap()).unwrap();
                    start += len;
                }
                let want = objective.backward().unwrap().remove(w.as_tensor()).unwrap();
                let want = want.to_vec1::<f64>().unwrap();

                let report = learner.update(&[rows.view()]).unwrap();
                assert!(report.applied);
                let loss = report.loss;
                let context = format!("{head:?} dueling {dueling} {c51_atoms} {quantiles}");
                assert_close(&context, &[loss], &[objective.to_scalar::<f64>().unwrap()], 2e-6);
                assert_close(&context, learner.gradient(), &want, 1e-6);
                assert!(want.iter().map(|g| g * g).sum::<f64>().sqrt() > 0.01, "{context}");
            }
        }
    }
}

/// Losses `[n]` of quantiles `[n, atoms]` against targets `[n, atoms]`, delta 1.
fn quantile_huber(taken: &Tensor, target: &Tensor, atoms: usize) -> Tensor {
    let u = target.unsqueeze(1).unwrap().broadcast_sub(&taken.unsqueeze(2).unwrap()).unwrap();
    let size = u.abs().unwrap();
    let small = (u.sqr().unwrap() * 0.5).unwrap();
    let large = (size.clone() - 0.5).unwrap();
    let huber = size.le(1.0).unwrap().where_cond(&small, &large).unwrap();
    let tau: Vec<f64> = (0..atoms).map(|i| (i as f64 + 0.5) / atoms as f64).collect();
    let tau = Tensor::from_vec(tau, (1, atoms, 1), &Device::Cpu).unwrap().broadcast_as(u.shape()).unwrap();
    let below = (1.0 - tau.clone()).unwrap();
    let weight = u.lt(0.0).unwrap().where_cond(&below, &tau).unwrap();
    (weight * huber).unwrap().mean(2).unwrap().sum(1).unwrap()
}

/// A snapshot of another kind of head, or of another number of atoms, is refused by the name of an array.
#[test]
fn a_snapshot_of_other_atoms_is_refused() {
    let of = |c51_atoms, quantiles| {
        let mut settings = settings(Head::Branching);
        (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
        Learner::new(&settings, STATE_DIM)
    };
    let mut saved = Snapshot::default();
    of(9, 0).snapshot(&mut saved);
    of(9, 0).restore(&saved).unwrap();
    for (mut other, array) in [(of(0, 9), "value_quantiles.weight"), (of(0, 0), "value.weight")] {
        let error = other.restore(&saved).unwrap_err().to_string();
        assert!(error.contains(array) && error.contains("missing"), "{error}");
    }
    let error = of(8, 0).restore(&saved).unwrap_err().to_string();
    assert!(error.contains("value_logits.weight has shape [9, 16]"), "{error}");
}
