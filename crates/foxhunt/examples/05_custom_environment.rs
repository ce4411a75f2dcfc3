//! An environment of one's own, learned on the CPU with the replay memory, the learner and the guard of the trading engine.
//!
//! `cargo run -p foxhunt --example 05_custom_environment`
//!
//! A thermostat: a room cools towards the weather outside, which changes; a heater is off, on half or on full, and the room
//! should be at 20 degrees for little heat. A few seconds of training beat leaving the heater on half.
#![allow(clippy::print_stdout)]

use foxhunt::environment::{Agent, Environment, Outcome};
use foxhunt::{MLError, Settings};
use foxhunt_core::{LinearSchedule, Philox, PhiloxStream, Purpose};

/// Steps of an episode, ten minutes each.
const STEPS: u32 = 72;

#[derive(Clone, Copy, Debug, Default)]
struct Thermostat {
    inside: f32,
    outside: f32,
    step: u32,
}

impl Thermostat {
    /// What the agent sees: both temperatures, about -1 to 1.
    fn show(&self, state: &mut [f32]) {
        state[0] = (self.inside - 20.0) / 10.0;
        state[1] = self.outside / 10.0;
    }
}

impl Environment for Thermostat {
    fn state_dim(&self) -> usize {
        2
    }

    fn n_actions(&self) -> usize {
        3
    }

    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
        let mut between = |low: f32, high: f32| low + (high - low) * random.next_f32();
        *self = Self { inside: between(15.0, 25.0), outside: between(-8.0, 8.0), step: 0 };
        self.show(state);
    }

    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
        let heat = 0.5 * action as f32;
        self.inside += 0.1 * (self.outside - self.inside) + 4.0 * heat;
        self.step += 1;
        self.show(next_state);
        let cold_or_hot = ((self.inside - 20.0) / 10.0).abs();
        // The day is cut, not over: what comes after it would still have a value.
        Outcome { reward: -cold_or_hot - 0.05 * heat, terminated: false, truncated: self.step == STEPS }
    }
}

fn main() -> Result<(), MLError> {
    let (learned, half) = train_and_compare()?;
    println!("mean return of 50 days: learned {learned:.2}, heater on half {half:.2}");
    Ok(())
}

/// Mean returns of 50 days: of the learned policy, and of a heater that stays on half.
fn train_and_compare() -> Result<(f64, f64), MLError> {
    let mut settings = Settings::default();
    settings.network.hidden = vec![32, 32];
    settings.learner.gamma = 0.9;
    settings.training.warmup_env_steps = 1_000;
    settings.training.updates_per_epoch = 128;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.05, steps: 4_000 };
    let mut agent = Agent::new(&settings, vec![Thermostat::default(); 16])?;
    for epoch in 1..=10 {
        let report = agent.epoch()?;
        println!("epoch {epoch}: {} updates, loss {:?}", report.updates, report.loss);
    }
    let learned = mean(&agent.evaluate(&mut Thermostat::default(), 50)?);
    Ok((learned, heater_on_half()))
}

/// Fifty days without a choice.
fn heater_on_half() -> f64 {
    let (mut room, mut state) = (Thermostat::default(), [0.0; 2]);
    let day = |episode| {
        room.reset(&mut Philox::new(7).stream(Purpose::EnvReset, 0, episode), &mut state);
        (0..STEPS).map(|_| f64::from(room.step(1, &mut state).reward)).sum()
    };
    mean(&(0..50).map(day).collect::<Vec<f64>>())
}

fn mean(returns: &[f64]) -> f64 {
    returns.iter().sum::<f64>() / returns.len() as f64
}

#[test]
fn it_learns_to_heat() {
    let (learned, half) = train_and_compare().unwrap();
    assert!(learned > 0.6 * half, "{learned} against {half}");
}
