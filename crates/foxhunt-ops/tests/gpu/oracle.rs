//! Loss and gradient of an update, and Q-values, in f64, straight from the formulas.

use foxhunt_core::{ActionSpace, Head};
use foxhunt_ops::mlp::MlpLayout;
use foxhunt_ops::ring::BatchBuffers;
use rayon::prelude::*;

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

/// What one update gives in f64.
pub(crate) struct Oracle {
    /// Mean weighted loss.
    pub(crate) loss: f64,
    /// Its gradient, `[layout.len()]`.
    pub(crate) gradient: Vec<f64>,
    /// How far each row is from a decision that rounding could turn: the least of hidden units before relu, of the lead of
    /// the action chosen for the next state, and of where the loss turns linear.
    pub(crate) margins: Vec<f64>,
}

/// Loss and gradient of double DQN with Huber's delta 1.
pub(crate) fn update(layout: &MlpLayout, online: &[f32], target: &[f32], rows: &BatchBuffers) -> Oracle {
    let n = rows.actions.len();
    let empty = || Oracle { loss: 0.0, gradient: vec![0.0; layout.len()], margins: Vec::new() };
    let add = |mut a: Oracle, b: Oracle| {
        a.loss += b.loss;
        a.gradient.iter_mut().zip(&b.gradient).for_each(|(a, b)| *a += b);
        a.margins.extend(b.margins);
        a
    };
    let pieces: Vec<usize> = (0..n).step_by(32).collect();
    pieces
        .par_iter()
        .map(|&first| {
            let mut part = empty();
            (first..n.min(first + 32)).for_each(|r| row(layout, online, target, rows, r, &mut part));
            part
        })
        .reduce(empty, add)
}

/// Q-values of states, f64 `[rows, n_outputs]`.
pub(crate) fn q_values(layout: &MlpLayout, online: &[f32], states: &[f32]) -> Vec<f64> {
    let q = |state: &[f32]| {
        let wide: Vec<f64> = state.iter().map(|&x| f64::from(x)).collect();
        q_of(layout, outputs(layout, online, &wide).last().unwrap())
    };
    let all: Vec<Vec<f64>> = states.par_chunks(layout.shape().state_dim).map(q).collect();
    all.concat()
}

fn row(layout: &MlpLayout, online: &[f32], target: &[f32], rows: &BatchBuffers, r: usize, into: &mut Oracle) {
    let (n, state_dim) = (rows.actions.len(), layout.shape().state_dim);
    let branches = layout.shape().head.branches();
    let wide = |v: &[f32]| -> Vec<f64> {
        v[r * state_dim..(r + 1) * state_dim].iter().map(|&x| f64::from(x)).collect()
    };
    let (s, next) = (wide(&rows.states), wide(&rows.next_states));
    let acts = outputs(layout, online, &s);
    let q = q_of(layout, acts.last().unwrap());
    let chooser = q_of(layout, outputs(layout, online, &next).last().unwrap());
    let judge = q_of(layout, outputs(layout, target, &next).last().unwrap());
    let mut margin = f64::INFINITY;
    let mut y = 0.0;
    let mut start = 0;
    for &len in branches {
        let best = (start..start + len).rev().max_by(|&a, &b| chooser[a].total_cmp(&chooser[b])).unwrap();
        let second = (start..start + len).filter(|&i| i != best).map(|i| chooser[i]);
        if rows.terminated[r] == 0.0 {
            margin = margin.min(chooser[best] - second.fold(f64::NEG_INFINITY, f64::max));
        }
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
    let each = f64::from(rows.weights[r]) / (branches.len() * n) as f64;
    for at in chosen {
        let delta = q[at] - y;
        let size = delta.abs();
        margin = margin.min((size - 1.0).abs());
        into.loss += each * if size <= 1.0 { 0.5 * delta * delta } else { size - 0.5 };
        dq[at] = each * delta.clamp(-1.0, 1.0);
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
        for (o, &d) in d.iter().enumerate() {
            into.gradient[layer.bias + o] += d;
            let row = layer.weight + o * layer.n_in..layer.weight + (o + 1) * layer.n_in;
            let gradient = into.gradient[row.clone()].iter_mut().zip(&online[row]);
            for ((before, (gradient, &w)), &x) in before.iter_mut().zip(gradient).zip(input) {
                *gradient += d * x;
                *before += d * f64::from(w);
            }
        }
        if l > 0 {
            before.iter_mut().zip(input).for_each(|(d, h)| *d = if *h > 0.0 { *d } else { 0.0 });
            d = before;
        }
    }
    // The least distance of a unit from where relu turns; a unit at 0 says only that it is below.
    let lowest = lowest_unit(layout, online, &s);
    into.margins.push(margin.min(lowest));
}

/// The least absolute value of a hidden unit before its relu.
fn lowest_unit(layout: &MlpLayout, w: &[f32], x: &[f64]) -> f64 {
    let (mut input, mut lowest) = (x.to_vec(), f64::INFINITY);
    for layer in &layout.layers()[..layout.layers().len() - 1] {
        let z = (0..layer.n_out).map(|o| {
            let row = &w[layer.weight + o * layer.n_in..][..layer.n_in];
            let sum: f64 = row.iter().zip(&input).map(|(w, x)| f64::from(*w) * x).sum();
            sum + f64::from(w[layer.bias + o])
        });
        let z: Vec<f64> = z.collect();
        lowest = z.iter().fold(lowest, |low, z| low.min(z.abs()));
        input = z.into_iter().map(|z| z.max(0.0)).collect();
    }
    lowest
}
