//! Times one learner update, the parts it is made of, and the network's forward passes, on the CPU.
//!
//! The network is 51 -> 256 -> 256 -> 1 + 45, the batch 256 rows. Every timed part is checked first: the update
//! against candle's autograd. Output is one JSON line a part: `{"part", "us_median", "us_min", "gflops"}`.
//! `benches/learner.sh` runs it in turns with `peers/learner_peer.py` and prints the ratio.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;

use candle_core::{D, DType, Device, Tensor, Var};
use foxhunt::learner::{Batch, Learner, reference};
use foxhunt::replay::{BatchBuffers, ReplayMemory, Rows};
use foxhunt_core::settings::ReplaySettings;
use foxhunt_core::{Head, Philox, Purpose, Settings};
use foxhunt_ops::mlp::{
    Activations, Deltas, GradientPart, PackedWeights, backward, forward, parameter_gradient,
};
use foxhunt_tests::timing::Times;

const BATCH: usize = 256;
const STATE_DIM: usize = 51;

fn main() {
    let settings = settings();
    let rows = batch(BATCH);
    check(&settings, &rows);
    update(&settings, &rows);
    update_with_replay(&settings);
    parts(&settings, &rows);
    acting(&settings);
    autograd(&settings, &rows);
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.network.head = Head::Factored;
    settings.learner.batch = BATCH;
    settings
}

/// A plausible batch; no sample repeats another.
fn batch(rows: usize) -> BatchBuffers {
    let mut stream = Philox::new(9).stream(Purpose::Synthetic, 0, 0);
    let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.next_normal() as f32).collect() };
    let mut buffers = BatchBuffers::new(rows, STATE_DIM);
    buffers.states = normal(rows * STATE_DIM);
    buffers.next_states = normal(rows * STATE_DIM);
    buffers.rewards = normal(rows);
    buffers.actions = (0..rows as u32).map(|i| i * 7 % 45).collect();
    buffers.terminated = (0..rows).map(|i| if i % 50 == 0 { 1.0 } else { 0.0 }).collect();
    buffers.discounts = vec![0.97; rows];
    buffers.weights = (0..rows).map(|i| 0.3 + 0.7 * (i % 10) as f32 / 9.0).collect();
    buffers
}

/// The update's gradient equals candle's autograd before anything is timed.
fn check(settings: &Settings, rows: &BatchBuffers) {
    let mut learner = Learner::new(settings, STATE_DIM);
    let parameters = learner.network().parameters().to_vec();
    let report = learner.update(&[Batch::from(rows)]).unwrap();
    assert!(report.applied);
    let loss = report.loss;
    let (want_loss, want) = autograd_gradient(&learner, &parameters, &parameters, rows);
    assert!((loss - want_loss).abs() < 1e-5, "{loss} {want_loss}");
    let worst = learner.gradient().iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-6, "gradient differs by {worst}");
}

fn update(settings: &Settings, rows: &BatchBuffers) {
    let mut learner = Learner::new(settings, STATE_DIM);
    let n = learner.network().layout().layers().iter().map(|l| l.n_in * l.n_out).sum::<usize>();
    let first = learner.network().layout().layers()[0];
    let flop = 2.0 * BATCH as f64 * (5 * n - first.n_in * first.n_out) as f64;
    time("update", flop, 400, || {
        assert!(learner.update(&[Batch::from(rows)]).unwrap().applied);
    });
}

fn update_with_replay(settings: &Settings) {
    let capacity = 1 << 20;
    let replay = ReplaySettings { capacity, ..ReplaySettings::default() };
    let mut memory = ReplayMemory::new(&replay, STATE_DIM, 1).unwrap();
    let chunk = batch(4096);
    let fields = Rows {
        states: &chunk.states,
        next_states: &chunk.next_states,
        actions: &chunk.actions,
        rewards: &chunk.rewards,
        terminated: &chunk.terminated,
        discounts: &chunk.discounts,
    };
    for _ in 0..capacity / 4096 {
        memory.insert(&fields).unwrap();
    }
    let mut learner = Learner::new(settings, STATE_DIM);
    let mut rows = BatchBuffers::new(BATCH, STATE_DIM);
    time("update_with_replay", 0.0, 400, || {
        memory.sample(BATCH, &mut rows).unwrap();
        let report = learner.update(&[Batch::from(&rows)]).unwrap();
        assert!(report.applied);
        memory.update_priorities(&rows.indices, report.td).unwrap();
    });
}

/// What an update is made of, each on one thread unless it divides itself.
fn parts(settings: &Settings, rows: &BatchBuffers) {
    let learner = Learner::new(settings, STATE_DIM);
    let (layout, w) = (learner.network().layout().clone(), learner.network().parameters().to_vec());
    let macs = layout.layers().iter().map(|l| l.n_in * l.n_out).sum::<usize>();
    let first = layout.layers()[0].n_in * layout.layers()[0].n_out;
    let half = 128;
    let x = &rows.states[..half * STATE_DIM];
    let mut weights = PackedWeights::new(&layout, true);
    time("part_pack_pool", 0.0, 1000, || weights.pack(&layout, black_box(&w)));
    let mut acts = Activations::new(&layout, half);
    let mut deltas = Deltas::new(&layout, half);
    time("part_forward_128_rows", 2.0 * (half * macs) as f64, 1000, || {
        acts.set_states(0, black_box(x));
        forward(&layout, &w, &weights, half, &mut acts);
    });
    deltas.set_gradient(&layout, &vec![0.01; half * 45]);
    time("part_backward_128_rows", 2.0 * (half * (macs - first)) as f64, 1000, || {
        backward(&weights, black_box(&acts), half, &mut deltas);
    });
    let mut gradient = vec![0.0; layout.len()];
    let part = GradientPart { acts: &acts, deltas: &deltas, rows: half };
    time("part_gradient_256_rows_pool", 2.0 * (2 * half * macs) as f64, 1000, || {
        parameter_gradient(&layout, black_box(&[part, part]), &mut gradient, false);
    });
    let (mut a, mut m, mut v) = (w.clone(), w.clone(), vec![0.5; w.len()]);
    let params = foxhunt_ops::adam::AdamParams { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let scale = foxhunt_ops::adam::AdamScale::new(&params, 10, 1e-9, 1.0);
    time("part_adam_pool", 0.0, 1000, || {
        foxhunt_ops::adam::adam_step(&scale, &mut a, &mut m, &mut v, black_box(&gradient));
    });
    time("part_polyak_pool", 0.0, 1000, || foxhunt_ops::adam::polyak(&mut a, black_box(&w), 0.005));
    let mut norm = 0.0;
    time("part_norm", 0.0, 1000, || norm += foxhunt_ops::adam::global_norm(black_box(&gradient)));
    assert!(norm > 0.0);
    time("part_pool_round_trip", 0.0, 1000, || {
        rayon::join(|| black_box(1), || black_box(2));
    });
}

fn acting(settings: &Settings) {
    let mut learner = Learner::new(settings, STATE_DIM);
    let macs = learner.network().layout().layers().iter().map(|l| l.n_in * l.n_out).sum::<usize>();
    for rows in [1, 16, 64, 256] {
        let states = batch(rows).states;
        let mut q = vec![0.0; rows * 45];
        time(&format!("forward_{rows}"), 2.0 * (rows * macs) as f64, 1000, || {
            learner.network_mut().q_values(black_box(&states), &mut q).unwrap();
        });
    }
}

/// The same gradient by candle's autograd: why the backward pass is written by hand.
fn autograd(settings: &Settings, rows: &BatchBuffers) {
    let learner = Learner::new(settings, STATE_DIM);
    let parameters = learner.network().parameters().to_vec();
    time("candle_autograd_gradient", 0.0, 100, || {
        black_box(autograd_gradient(&learner, &parameters, &parameters, rows));
    });
}

fn autograd_gradient(
    learner: &Learner,
    online: &[f32],
    target: &[f32],
    rows: &BatchBuffers,
) -> (f32, Vec<f32>) {
    let layout = learner.network().layout();
    let (n, cpu) = (rows.actions.len(), &Device::Cpu);
    let tensor = |v: &[f32], width: usize| Tensor::from_slice(v, (n, width), cpu).unwrap();
    let w = Var::from_slice(online, layout.len(), cpu).unwrap();
    let fixed = Tensor::from_slice(online, layout.len(), cpu).unwrap();
    let w_target = Tensor::from_slice(target, layout.len(), cpu).unwrap();
    let next = tensor(&rows.next_states, STATE_DIM);
    let best = reference::forward(layout, &fixed, &next).unwrap().argmax_keepdim(D::Minus1).unwrap();
    let value = reference::forward(layout, &w_target, &next).unwrap().gather(&best, 1).unwrap();
    let go = (1.0 - tensor(&rows.terminated, 1)).unwrap();
    let y = (tensor(&rows.rewards, 1) + (tensor(&rows.discounts, 1) * go).unwrap() * value).unwrap();
    let actions = Tensor::from_slice(&rows.actions, (n, 1), cpu).unwrap();
    let q = reference::forward(layout, w.as_tensor(), &tensor(&rows.states, STATE_DIM)).unwrap();
    let delta = (q.gather(&actions, 1).unwrap() - y).unwrap();
    let size = delta.abs().unwrap();
    let small = size.minimum(1.0).unwrap();
    // Huber with delta 1: s (|x| - s / 2) with s = min(|x|, 1).
    let huber = (&small * (&size - (&small * 0.5).unwrap()).unwrap()).unwrap();
    let loss = (huber * tensor(&rows.weights, 1)).unwrap().mean_all().unwrap();
    let gradient = loss.backward().unwrap().remove(w.as_tensor()).unwrap();
    (loss.to_dtype(DType::F32).unwrap().to_scalar().unwrap(), gradient.to_vec1().unwrap())
}

fn time(part: &str, flop: f64, runs: usize, body: impl FnMut()) {
    let times = Times::of(runs, body);
    let (median, min) = (times.at(0.5), times.at(0.0));
    let gflops = flop / median / 1e3;
    println!(r#"{{"part": "{part}", "us_median": {median:.1}, "us_min": {min:.1}, "gflops": {gflops:.1}}}"#);
}
