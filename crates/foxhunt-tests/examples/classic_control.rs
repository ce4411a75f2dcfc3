//! The learner on problems whose scores everybody knows: CartPole-v1, MountainCar-v0, Acrobot-v1.
//!
//! Five seeds each. Training ends when the greedy policy is well beyond the known score over a hundred episodes, or when the
//! env steps are used up. Then a hundred other episodes judge, once: the seed is solved when their mean reaches the score.
//!
//! `cargo run --release -p foxhunt-tests --example classic_control [-- NAME]`; exits with 1 when a seed is not solved.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use foxhunt::environment::classic::{Acrobot, CartPole, MountainCar};
use foxhunt::environment::{Agent, Environment};
use foxhunt_core::settings::{ReplayKind, TargetUpdate};
use foxhunt_core::{LinearSchedule, Settings};
use rayon::prelude::*;

const SEEDS: u64 = 5;

/// A problem, what counts as solved, and what it is learned with.
struct Problem {
    name: &'static str,
    solved: f64,
    /// Mean return that ends training.
    enough: f64,
    n_envs: usize,
    env_steps: u64,
    settings: Settings,
}

fn main() -> anyhow::Result<ExitCode> {
    let wanted = std::env::args().nth(1);
    let mut known = 0;
    let mut all_solved = true;
    let mut wants = |name: &str| {
        let yes = wanted.as_deref().is_none_or(|wanted| wanted == name);
        known += u32::from(yes);
        yes
    };
    if wants("CartPole") {
        all_solved &= run::<CartPole>(&cart_pole())?;
    }
    if wants("MountainCar") {
        all_solved &= run::<MountainCar>(&mountain_car())?;
    }
    if wants("Acrobot") {
        all_solved &= run::<Acrobot>(&acrobot())?;
    }
    if known == 0 {
        bail!("usage: classic_control [CartPole | MountainCar | Acrobot]");
    }
    Ok(if all_solved { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn common() -> Settings {
    let mut settings = Settings::default();
    settings.network.hidden = vec![128, 128];
    settings.learner.n_step = 1;
    settings.learner.gamma = 0.99;
    settings.replay.kind = ReplayKind::Uniform;
    settings.training.collect = 32;
    settings
}

fn cart_pole() -> Problem {
    let mut settings = common();
    settings.learner.batch = 64;
    settings.learner.learning_rate = LinearSchedule { start: 1e-3, end: 1e-4, steps: 20_000 };
    settings.learner.target = TargetUpdate::Hard { every: 100 };
    settings.replay.capacity = 100_000;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.04, steps: 8_000 };
    settings.training.warmup_env_steps = 1_000;
    settings.training.updates_per_epoch = 128;
    Problem { name: "CartPole-v1", solved: 475.0, enough: 490.0, n_envs: 8, env_steps: 100_000, settings }
}

fn mountain_car() -> Problem {
    let mut settings = common();
    settings.learner.batch = 128;
    settings.learner.gamma = 0.98;
    settings.learner.n_step = 3;
    settings.learner.learning_rate = LinearSchedule { start: 4e-3, end: 5e-4, steps: 60_000 };
    settings.learner.target = TargetUpdate::Hard { every: 600 };
    settings.replay.capacity = 20_000;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.07, steps: 24_000 };
    settings.training.warmup_env_steps = 1_000;
    settings.training.updates_per_epoch = 128;
    Problem {
        name: "MountainCar-v0",
        solved: -110.0,
        enough: -104.0,
        n_envs: 8,
        env_steps: 200_000,
        settings,
    }
}

fn acrobot() -> Problem {
    let mut settings = common();
    settings.learner.batch = 128;
    settings.learner.learning_rate = LinearSchedule { start: 1e-3, end: 1e-4, steps: 30_000 };
    settings.learner.target = TargetUpdate::Hard { every: 250 };
    settings.replay.capacity = 100_000;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.05, steps: 20_000 };
    settings.training.warmup_env_steps = 2_000;
    settings.training.updates_per_epoch = 64;
    Problem { name: "Acrobot-v1", solved: -100.0, enough: -88.0, n_envs: 8, env_steps: 200_000, settings }
}

/// A seed's end.
struct Row {
    seed: u64,
    score: f64,
    env_steps: u64,
    updates: u64,
    seconds: f64,
}

/// Trains all seeds, prints a line each, tells whether all are solved.
fn run<E: Environment + Clone + Default + Send>(problem: &Problem) -> anyhow::Result<bool> {
    println!("{} is solved at {}", problem.name, problem.solved);
    let rows =
        (1..=SEEDS).into_par_iter().map(|seed| train::<E>(problem, seed)).collect::<Result<Vec<_>, _>>()?;
    let mut all = true;
    for row in rows {
        let verdict = if row.score >= problem.solved { "solved" } else { "NOT solved" };
        all &= row.score >= problem.solved;
        println!(
            "  seed {}: {:8.1} over 100 episodes, {verdict} after {} env steps, {} updates, {:.0} s",
            row.seed, row.score, row.env_steps, row.updates, row.seconds
        );
    }
    Ok(all)
}

fn train<E: Environment + Clone + Default>(problem: &Problem, seed: u64) -> anyhow::Result<Row> {
    let start = Instant::now();
    let mut settings = problem.settings.clone();
    settings.run.seed = seed;
    let mut agent = Agent::new(&settings, vec![E::default(); problem.n_envs])?;
    let (mut updates, mut epoch) = (0, 0);
    while agent.env_steps() < problem.env_steps {
        updates += agent.epoch()?.updates;
        epoch += 1;
        if epoch % 10 != 0 {
            continue;
        }
        let returns = agent.evaluate(&mut E::default(), 100)?;
        if mean(&returns) >= problem.enough {
            break;
        }
    }
    // Behind the hundred that chose.
    let score = mean(&agent.evaluate(&mut E::default(), 200)?[100..]);
    let seconds = start.elapsed().as_secs_f64();
    Ok(Row { seed, score, env_steps: agent.env_steps(), updates, seconds })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
