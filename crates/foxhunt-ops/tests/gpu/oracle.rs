//! The gradient of an update in f64, straight from the formulas, one row after the other.

use foxhunt_core::{ActionSpace, Head};
use foxhunt_ops::mlp::MlpLayout;
use foxhunt_ops::ring::BatchBuffers;

/// Outputs of every layer, the head's last, before its dueling combination.
fn outputs(layout: &MlpLayout, w: &[f32], x: &[f64]) -> Vec<Vec<f64>> {
    let layers = layout.layers();
    let mut all: Vec<Vec<f64>> = Vec::new();
    for (l, layer) in layers.iter().enumerate() {
        let input = all.last().map_or(x, Vec::as_slice).to_vec();
        let out = (0..layer.n_out).map(|o| {
            let row = &w[layer.weight + o * layer.n_in..][..layer.n_in];
            let sum: f64 = row.iter().zip(&input).map(|(w, x)| f64::from(*w) * x).sum();
            let z = sum + f64::from(w[layer.bias + o]);
            if l + 1 < layers.len() { z.max(0.0) } else { z }
        });
        all.push(out.collect());
    }
    all
}

fn q_of(layout: &MlpLayout, head: &[f64]) -> Vec<f64> {
    if !layout.shape().dueling {
        return head.to_vec();
    }
    let mut q = Vec::new();
    for &len in layout.shape().head.branches() {
        let branch = &head[1 + q.len()..][..len];
        let mean = branch.iter().sum::<f64>() / len as f64;
        q.extend(branch.iter().map(|a| head[0] + a - mean));
    }
    q
}

/// The gradient of the mean loss of double DQN with Huber's delta 1.
pub(crate) fn gradient(layout: &MlpLayout, online: &[f32], target: &[f32], rows: &BatchBuffers) -> Vec<f64> {
    let (n, state_dim) = (rows.actions.len(), layout.shape().state_dim);
    let branches = layout.shape().head.branches();
    let mut gradient = vec![0.0; layout.len()];
    let wide = |v: &[f32], r: usize| -> Vec<f64> {
        v[r * state_dim..(r + 1) * state_dim].iter().map(|&x| f64::from(x)).collect()
    };
    for r in 0..n {
        let (s, next) = (wide(&rows.states, r), wide(&rows.next_states, r));
        let acts = outputs(layout, online, &s);
        let q = q_of(layout, acts.last().unwrap());
        let chooser = q_of(layout, outputs(layout, online, &next).last().unwrap());
        let judge = q_of(layout, outputs(layout, target, &next).last().unwrap());
        let mut y = 0.0;
        let mut start = 0;
        for &len in branches {
            let best = (start..start + len).rev().max_by(|&a, &b| chooser[a].total_cmp(&chooser[b])).unwrap();
            y += judge[best] / branches.len() as f64;
            start += len;
        }
        let bootstrap = if rows.terminated[r] == 0.0 { f64::from(rows.discounts[r]) * y } else { 0.0 };
        let y = f64::from(rows.rewards[r]) + bootstrap;
        let mut dq = vec![0.0; q.len()];
        let action = rows.actions[r] as usize;
        let chosen = match layout.shape().head {
            ActionSpace::Trading(Head::Branching) => vec![action / 9, 5 + action / 3 % 3, 8 + action % 3],
            _ => vec![action],
        };
        for at in chosen {
            let slope = (q[at] - y).clamp(-1.0, 1.0);
            dq[at] = f64::from(rows.weights[r]) * slope / (branches.len() * n) as f64;
        }
        let mut d = dq.clone();
        if layout.shape().dueling {
            d = vec![dq.iter().sum()];
            let mut start = 0;
            for &len in branches {
                let mean = dq[start..start + len].iter().sum::<f64>() / len as f64;
                d.extend(dq[start..start + len].iter().map(|g| g - mean));
                start += len;
            }
        }
        for (l, layer) in layout.layers().iter().enumerate().rev() {
            let input = if l == 0 { &s } else { &acts[l - 1] };
            let mut before = vec![0.0; layer.n_in];
            for o in 0..layer.n_out {
                gradient[layer.bias + o] += d[o];
                for i in 0..layer.n_in {
                    let at = layer.weight + o * layer.n_in + i;
                    gradient[at] += d[o] * input[i];
                    before[i] += d[o] * f64::from(online[at]);
                }
            }
            if l > 0 {
                before.iter_mut().zip(input).for_each(|(d, h)| *d = if *h > 0.0 { *d } else { 0.0 });
                d = before;
            }
        }
    }
    gradient
}
