//! Prioritised replay on candle tensors: fill it, draw by priority, weigh the loss, give the TD errors back.
//!
//! `cargo run -p foxhunt --example 01_replay_on_tensors`
//!
//! The "agent" is one number a state that learns a known value. A tenth of the states is surprising (their rewards are
//! large), and the memory draws them more often as long as they are not learned.
#![allow(clippy::print_stdout)]

use candle_core::{DType, Device, Tensor};
use foxhunt::MLError;
use foxhunt::replay::{GpuReplayBuffer, GpuReplayBufferConfig};

const ROWS: usize = 1_000;
const BATCH: usize = 64;

fn main() -> Result<(), MLError> {
    let (first, last) = surprise(400)?;
    println!("share of surprising rows in the first batch {first:.2}, in the last {last:.2}; stored 0.10");
    Ok(())
}

/// Share of surprising rows in the first batch after priorities are known, and in the last batch.
fn surprise(updates: usize) -> Result<(f64, f64), MLError> {
    let device = Device::Cpu;
    let config = GpuReplayBufferConfig {
        capacity: ROWS,
        state_dim: 1,
        alpha: 0.6,
        beta_start: 0.4,
        beta_max: 1.0,
        beta_annealing_steps: updates,
        epsilon: 1e-6,
    };
    let mut replay = GpuReplayBuffer::new(config, &device)?;

    // A state is its own number; every tenth pays 10 instead of 0.1.
    let states = Tensor::arange(0.0_f32, ROWS as f32, &device)?.reshape((ROWS, 1))?;
    let actions = Tensor::zeros(ROWS, DType::U32, &device)?;
    let rewards: Vec<f32> = (0..ROWS).map(|i| if i % 10 == 0 { 10.0 } else { 0.1 }).collect();
    let rewards = Tensor::new(rewards, &device)?;
    // Every transition is the last of its episode: nothing is bootstrapped.
    let dones = Tensor::ones(ROWS, DType::F32, &device)?;
    replay.insert_batch(&states, &states, &actions, &rewards, &dones)?;

    let mut values = vec![0.0_f32; ROWS];
    let mut shares = Vec::new();
    for _ in 0..updates {
        let batch = replay.sample_proportional(BATCH)?;
        let rewards: Vec<f32> = batch.rewards.to_vec1()?;
        let weights: Vec<f32> = batch.weights.to_vec1()?;
        let rows: Vec<usize> =
            batch.states.flatten_all()?.to_vec1::<f32>()?.iter().map(|&s| s as usize).collect();
        let td: Vec<f32> = (0..BATCH).map(|b| rewards[b] - values[rows[b]]).collect();
        for b in 0..BATCH {
            values[rows[b]] += 0.3 * weights[b] * td[b];
        }
        replay.update_priorities_gpu(&batch.indices, &Tensor::new(td, &device)?)?;
        shares.push(rows.iter().filter(|&&row| row % 10 == 0).count() as f64 / BATCH as f64);
    }
    // New rows have the largest priority, so the first batches look at every row; then surprise counts.
    let seen = shares.len().min(ROWS / BATCH * 2);
    Ok((shares[seen], shares[shares.len() - 1]))
}

#[test]
fn surprising_rows_come_more_often_until_they_are_learned() {
    let (early, late) = surprise(400).unwrap();
    assert!(early > 0.15, "{early}");
    assert!(late < early, "{late} after {early}");
}
