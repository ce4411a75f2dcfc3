//! A candle training loop of one's own with Foxhunt's replay buffer, guard, monitor and action kernels on the GPU.
//!
//! A bandit with 51 inputs and 5 arms: the best arm is the largest of the first five inputs, the reward its value. Nothing
//! in the loop waits for the device until an epoch ends.
//!
//! `cargo run --release -p foxhunt --features candle-cuda --example candle_cuda`
#![allow(clippy::print_stdout)]

use candle_core::{D, DType, Device, Result, Tensor, Var};
use foxhunt::actions::{Explore, select_actions};
use foxhunt::guard::GpuTrainingGuard;
use foxhunt::monitor::QValueMonitor;
use foxhunt::replay::{GpuReplayBuffer, GpuReplayBufferConfig};
use foxhunt_core::Philox;

const STATE_DIM: usize = 51;
const N_ENVS: usize = 256;
const BATCH: usize = 256;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Device::new_cuda(0)?;
    let config = GpuReplayBufferConfig {
        capacity: 1 << 16,
        state_dim: STATE_DIM,
        alpha: 0.6,
        beta_start: 0.4,
        beta_max: 1.0,
        beta_annealing_steps: 2000,
        epsilon: 1e-6,
    };
    let mut replay = GpuReplayBuffer::new(config, &device)?;
    let mut guard = GpuTrainingGuard::new(&device)?;
    let mut monitor = QValueMonitor::new(&device)?;
    let weights = Var::randn(0.0_f32, 0.05, (STATE_DIM, 5), &device)?;
    let not_done = Tensor::zeros(N_ENVS, DType::F32, &device)?;

    for epoch in 0..10_u64 {
        for step in 0..200_u64 {
            let vector_step = epoch * 200 + step;
            let states = Tensor::randn(0.0_f32, 1.0, (N_ENVS, STATE_DIM), &device)?;
            let epsilon = 1.0 - epoch as f32 / 10.0;
            let explore = Explore { philox: Philox::new(1), vector_step, first_env: 0, epsilon };
            let actions = select_actions(&states.matmul(&weights)?, None, &explore)?;
            let rewards = of_actions(&states, &actions)?;
            replay.insert_batch(&states, &states, &actions, &rewards, &not_done)?;

            let batch = replay.sample_proportional(BATCH)?;
            let q = batch.states.matmul(&weights)?;
            let td_errors = (of_actions(&q, &batch.actions)? - &batch.rewards)?;
            let loss = (td_errors.sqr()? * &batch.weights)?.mean_all()?;
            let mut gradients = loss.backward()?;
            let Some(gradient) = gradients.remove(&weights) else { continue };
            let norm = gradient.sqr()?.sum_all()?.sqrt()?;
            // The newest judgement that has arrived, without a wait.
            let judged = guard.check(&loss, &norm, 1e-9, epoch == 0)?;
            if judged.halt_nan {
                return Err(format!("update {} was not finite", judged.step).into());
            }
            guard.accumulate(&loss, &norm)?;
            monitor.accumulate(&q)?;
            weights.set(&(weights.as_tensor() - (gradient * 0.1)?)?)?;
            replay.update_priorities_gpu(&batch.indices, &td_errors)?;
        }
        let ((loss, norm), max_q) = (guard.read_accumulators()?, monitor.read_average()?);
        println!("epoch {epoch}: loss {loss:.5}, gradient norm {norm:.4}, mean max-Q {max_q:.3}");
        guard.reset_accumulators()?;
        monitor.reset()?;
    }
    Ok(())
}

/// Column `actions[b]` of row `b`.
fn of_actions(values: &Tensor, actions: &Tensor) -> Result<Tensor> {
    values.narrow(D::Minus1, 0, 5)?.contiguous()?.gather(&actions.unsqueeze(1)?, 1)?.squeeze(1)
}
