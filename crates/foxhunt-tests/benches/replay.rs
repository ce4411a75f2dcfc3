//! Times the CPU replay memory: sample with gather and weights, update, insert, and sample and update in turn.
//!
//! 2^20 rows of state dimension 51, alpha 0.6, beta 0.4, batches of 256 and 8192, inserts of 1024. Before anything is timed the
//! draws are checked: rows are the ones their indices name, and their frequencies follow the priorities.
//! Output is one JSON line a part: `{"impl", "part", "batch", "us_median", "us_p10", "us_p90"}`. `replay.sh` runs it in turns with
//! `peers/replay_peers.py` and prints the ratios.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use foxhunt::replay::{BatchBuffers, ReplayMemory, Rows};
use foxhunt_core::settings::{ReplayKind, ReplaySettings};
use foxhunt_core::{Philox, PhiloxStream, Purpose};
use foxhunt_tests::timing::Times;

const CAPACITY: usize = 1 << 20;
const STATE_DIM: usize = 51;
const INSERT: usize = 1024;

fn main() {
    check();
    let mut stream = Philox::new(9).stream(Purpose::Synthetic, 0, 0);
    let mut memory = ReplayMemory::new(&settings(CAPACITY), STATE_DIM, 1).unwrap();
    let chunk = rows(&mut stream, INSERT);
    let fill = |memory: &mut ReplayMemory, stream: &mut PhiloxStream| {
        for _ in 0..CAPACITY / INSERT {
            memory.insert(&fields(&chunk)).unwrap();
        }
        let slots: Vec<u32> = (0..CAPACITY as u32).collect();
        memory.update_priorities(&slots, &td_errors(stream, CAPACITY)).unwrap();
    };
    fill(&mut memory, &mut stream);
    time("insert", INSERT, 2000, || {
        memory.insert(&fields(&chunk)).unwrap();
    });
    for batch in [256, 8192] {
        fill(&mut memory, &mut stream);
        let runs = if batch > 1000 { 400 } else { 4000 };
        let mut out = BatchBuffers::new(batch, STATE_DIM);
        time("sample", batch, runs, || memory.sample(batch, &mut out).unwrap());
        let drawn: Vec<(Vec<u32>, Vec<f32>)> = (0..8)
            .map(|_| {
                memory.sample(batch, &mut out).unwrap();
                (out.indices.clone(), td_errors(&mut stream, batch))
            })
            .collect();
        let mut turn = 0;
        time("update", batch, runs, || {
            turn = (turn + 1) % 8;
            memory.update_priorities(&drawn[turn].0, &drawn[turn].1).unwrap();
        });
        time("sample+update", batch, runs, || {
            turn = (turn + 1) % 8;
            memory.sample(batch, &mut out).unwrap();
            memory.update_priorities(&out.indices, &drawn[turn].1).unwrap();
        });
    }
}

fn settings(capacity: usize) -> ReplaySettings {
    ReplaySettings { kind: ReplayKind::Proportional, capacity, beta_max: 0.4, ..ReplaySettings::default() }
}

/// 2^-5 to 2^3, evenly in the exponent.
fn td_errors(stream: &mut PhiloxStream, n: usize) -> Vec<f32> {
    (0..n).map(|_| (stream.next_f32() * 8.0 - 5.0).exp2()).collect()
}

fn rows(stream: &mut PhiloxStream, n: usize) -> BatchBuffers {
    let mut rows = BatchBuffers::new(n, STATE_DIM);
    for value in rows.states.iter_mut().chain(&mut rows.next_states).chain(&mut rows.rewards) {
        *value = stream.next_normal() as f32;
    }
    rows.actions.iter_mut().zip(0..).for_each(|(action, i)| *action = i % 45);
    rows.discounts.fill(0.97);
    rows
}

fn fields(rows: &BatchBuffers) -> Rows<'_> {
    Rows {
        states: &rows.states,
        next_states: &rows.next_states,
        actions: &rows.actions,
        rewards: &rows.rewards,
        terminated: &rows.terminated,
        discounts: &rows.discounts,
    }
}

/// Gathered rows are the ones named, and 400,000 draws from 1,000 rows follow p = |td|^0.6 + 1e-6. Stratified draws
/// vary less than independent ones, so chi-square per degree of freedom lies below 1.15 if the law is right.
fn check() {
    let n = 1000;
    let mut stream = Philox::new(3).stream(Purpose::Synthetic, 0, 0);
    let mut memory = ReplayMemory::new(&settings(n), STATE_DIM, 2).unwrap();
    let mut stored = rows(&mut stream, n);
    stored.actions.iter_mut().zip(0..).for_each(|(action, i)| *action = i);
    memory.insert(&fields(&stored)).unwrap();
    let tds = td_errors(&mut stream, n);
    memory.update_priorities(&(0..n as u32).collect::<Vec<_>>(), &tds).unwrap();
    let p: Vec<f64> = tds.iter().map(|&td| f64::from(td).powf(0.6) + 1e-6).collect();
    let total: f64 = p.iter().sum();
    let mut hits = vec![0_u32; n];
    let mut out = BatchBuffers::default();
    for _ in 0..400 {
        memory.sample(1000, &mut out).unwrap();
        assert_eq!(out.actions, out.indices);
        let smallest = out.indices.iter().map(|&i| p[i as usize]).fold(f64::INFINITY, f64::min);
        for (b, &i) in out.indices.iter().enumerate() {
            let i = i as usize;
            hits[i] += 1;
            assert_eq!(out.states[b * STATE_DIM..][..STATE_DIM], stored.states[i * STATE_DIM..][..STATE_DIM]);
            assert!((f64::from(out.weights[b]) - (smallest / p[i]).powf(0.4)).abs() < 1e-5);
        }
    }
    let chi: f64 = (0..n)
        .map(|i| {
            let expected = 400_000.0 * p[i] / total;
            (f64::from(hits[i]) - expected).powi(2) / expected
        })
        .sum();
    let per_degree = chi / (n - 1) as f64;
    assert!(per_degree < 1.15, "chi-square per degree of freedom {per_degree}");
}

fn time(part: &str, batch: usize, runs: usize, body: impl FnMut()) {
    let times = Times::of(runs, body);
    let (median, p10, p90) = (times.at(0.5), times.at(0.1), times.at(0.9));
    println!(
        r#"{{"impl": "foxhunt", "part": "{part}", "batch": {batch}, "us_median": {median:.1}, "us_p10": {p10:.1}, "us_p90": {p90:.1}}}"#
    );
}
