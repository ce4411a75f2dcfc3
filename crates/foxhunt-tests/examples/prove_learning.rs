//! Proof that training learns what can be learned, and finds nothing where there is nothing.
//!
//! Part one: a mean-reverting market whose best policy is known by value iteration. The trained greedy policy must
//! reach 80 % of that policy's net log return on unseen bars, under the same costs and fills, for five seeds of
//! five, each within two minutes. Part two: driftless random walks with costs, twenty markets and seeds. The test
//! is Student's, one-sided, at one per cent: the mean net log return on unseen bars must not be above zero.
//!
//! `cargo run --release -p foxhunt-tests --example prove_learning [-- --device cuda]`; exits with 1 when either part
//! fails. With `cuda` all runs share one device. With `--ablation` part one alone is run, once an algorithm of
//! [`ALGORITHMS`], and the table of docs/algorithms.md comes out.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use anyhow::Context as _;
use foxhunt::evaluation::{Backtest, backtest};
use foxhunt::trainer::NeverStop;
use foxhunt::{BarSeries, Settings, TrainOutcome, Trainer};
use foxhunt_core::settings::Device;
use foxhunt_core::{Exposure, FactoredAction, LinearSchedule, OrderType, Urgency};
use foxhunt_market::synthetic::{MeanReverting, RandomWalk};
use foxhunt_market::{Market, Normalise, OptimalPolicy};
use foxhunt_ops::env_step::EnvParams;

const REVERTING_SEEDS: u64 = 5;
const WALK_SEEDS: u64 = 20;
const SHARE_OF_OPTIMUM: f64 = 0.8;
const SECONDS: f64 = 120.0;
/// 99 % quantile of Student's t with 19 degrees of freedom.
const T_19_99: f64 = 2.539_483_19;

/// What part one is learned with instead of the defaults.
type Change = fn(&mut Settings);

/// The rows of the ablation.
const ALGORITHMS: [(&str, Change); 5] = [
    ("DQN (double, dueling)", |_| ()),
    ("C51, 51 atoms in [-5, 5]", |s| (s.network.c51_atoms, s.network.c51_range) = (51, [-5.0, 5.0])),
    ("QR-DQN, 32 quantiles", |s| s.network.quantiles = 32),
    ("Munchausen", |s| (s.learner.double, s.learner.munchausen) = (false, true)),
    ("noisy, epsilon 0", |s| {
        (s.network.noisy, s.exploration.epsilon) = (true, LinearSchedule::constant(0.0));
    }),
];

/// Which engine the runs use.
static DEVICE: OnceLock<Device> = OnceLock::new();

fn main() -> anyhow::Result<ExitCode> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let ablate = args.last().is_some_and(|last| last == "--ablation");
    args.truncate(args.len() - usize::from(ablate));
    let device = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--device", "cpu"] => Device::Cpu,
        ["--device", "cuda"] => Device::Cuda,
        _ => anyhow::bail!("usage: prove_learning [--device cpu|cuda] [--ablation]"),
    };
    DEVICE.get_or_init(|| device);
    if ablate {
        ablation()?;
        return Ok(ExitCode::SUCCESS);
    }
    let learned = mean_reverting()?;
    let honest = random_walks()?;
    Ok(if learned && honest { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Defaults but for what the size of the problem asks: a small network, a short horizon, many environments so that
/// the noise of a bar is not learned by heart. One thread a run, one run a core.
fn settings(seed: u64, epochs: u64) -> Settings {
    let mut settings = Settings::default();
    settings.run.seed = seed;
    settings.run.device = *DEVICE.get_or_init(|| Device::Cpu);
    settings.run.threads = 1;
    settings.network.hidden = vec![64, 64];
    settings.learner.batch = 256;
    settings.learner.learning_rate = LinearSchedule { start: 5e-4, end: 2e-5, steps: 4_500 };
    settings.learner.gamma = 0.9;
    settings.env.n_envs = 128;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.05, steps: 100_000 };
    settings.training.epochs = epochs;
    settings.training.patience = 0;
    settings.evaluation.random_policies = 1;
    settings
}

fn train(mut settings: Settings, bars: BarSeries) -> anyhow::Result<(TrainOutcome, f64)> {
    let folder = tempfile::tempdir()?;
    settings.run.dir = folder.path().to_path_buf();
    let start = Instant::now();
    let outcome = Trainer::new(&settings, bars)?.run()?;
    Ok((outcome, start.elapsed().as_secs_f64()))
}

fn test_backtest(outcome: &TrainOutcome) -> anyhow::Result<&Backtest> {
    let evaluation = outcome.evaluation.as_ref().context("no evaluation")?;
    Ok(&evaluation.window("test").context("no test window")?.agent.backtest)
}

struct Reverting {
    seed: u64,
    agent: f64,
    optimal: f64,
    seconds: f64,
}

impl Reverting {
    fn share(&self) -> f64 {
        self.agent / self.optimal
    }

    fn learned(seed: u64, change: Change) -> anyhow::Result<Self> {
        let market = MeanReverting { n_bars: 60_000, seed, phi: 0.9, volatility: 0.005, mean_price: 100.0 };
        let mut settings = settings(seed, 36);
        change(&mut settings);
        let (outcome, seconds) = train(settings.clone(), market.bars()?)?;
        let agent = test_backtest(&outcome)?;
        let optimal = optimal(&market, &settings, agent)?;
        Ok(Self { seed, agent: agent.net_log_return(), optimal, seconds })
    }
}

/// A line an algorithm: the share of the optimal return that each seed reaches on the test window.
fn ablation() -> anyhow::Result<()> {
    let seeds: String = (1..=REVERTING_SEEDS).map(|seed| format!(" seed {seed} |")).collect();
    println!(
        "| algorithm |{seeds} mean | seconds a seed |\n|---|{}",
        "---|".repeat(REVERTING_SEEDS as usize + 2)
    );
    for (name, change) in ALGORITHMS {
        let rows = in_parallel(REVERTING_SEEDS, |seed| Reverting::learned(seed, change))?;
        let shares: String = rows.iter().map(|row| format!(" {:.3} |", row.share())).collect();
        let mean = |of: fn(&Reverting) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        println!("| {name} |{shares} {:.3} | {:.1} |", mean(Reverting::share), mean(|row| row.seconds));
    }
    Ok(())
}

fn mean_reverting() -> anyhow::Result<bool> {
    let rows = in_parallel(REVERTING_SEEDS, |seed| Reverting::learned(seed, |_| ()))?;
    println!("mean-reverting market, net log return on the test window");
    println!("{:>4} {:>10} {:>10} {:>8} {:>9}", "seed", "agent", "optimal", "share", "seconds");
    let mut all = true;
    for row in &rows {
        let share = row.share();
        let passed = row.optimal > 0.0 && share >= SHARE_OF_OPTIMUM && row.seconds <= SECONDS;
        let mark = if passed { "" } else { "  FAILED" };
        println!(
            "{:>4} {:>10.4} {:>10.4} {share:>8.3} {:>9.1}{mark}",
            row.seed, row.agent, row.optimal, row.seconds
        );
        all &= passed;
    }
    Ok(all)
}

/// The optimal policy over the window of `agent`, with the same costs, fills and bars.
fn optimal(market: &MeanReverting, settings: &Settings, agent: &Backtest) -> anyhow::Result<f64> {
    let policy = OptimalPolicy::solve(market, &settings.execution, settings.env.max_leverage);
    let window = agent.window.clone();
    let prepared = Market::prepare(market.bars()?, &settings.execution, Normalise::FitOn(window.clone()))?;
    let mut level = Exposure::Flat;
    let record = backtest(&prepared, window, &EnvParams::new(settings), &NeverStop, &mut |_, bar| {
        level = policy.act(market.deviation(prepared.bars.close[bar]), level);
        let (order_type, urgency) = (OrderType::Market, Urgency::Normal);
        Ok(FactoredAction { exposure: level, order_type, urgency }.into())
    })?;
    Ok(record.net_log_return())
}

fn random_walks() -> anyhow::Result<bool> {
    let returns = in_parallel(WALK_SEEDS, |seed| {
        let market = RandomWalk { n_bars: 12_000, seed: 1_000 + seed, volatility: 0.002, start_price: 100.0 };
        let (outcome, _) = train(settings(seed, 12), market.bars()?)?;
        Ok(test_backtest(&outcome)?.net_log_return())
    })?;
    let n = returns.len() as f64;
    let mean = returns.iter().sum::<f64>() / n;
    let variance = returns.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Twenty agents that never trade have no spread; their mean is then 0 and not above it.
    let t = if variance > 0.0 { mean / (variance / n).sqrt() } else { 0.0 };
    let passed = t <= T_19_99;
    let positive = returns.iter().filter(|r| **r > 0.0).count();
    println!("\ndriftless random walks with costs, {} markets and seeds", returns.len());
    println!("mean net log return on the test window {mean:+.4}, {positive} of {} above zero", returns.len());
    println!("t = {t:+.2}, not above {T_19_99:.2}{}", if passed { "" } else { "  FAILED" });
    Ok(passed)
}

/// Runs `work` for seeds 1 to `n`, as many at once as there are cores, and returns the results in order.
fn in_parallel<T: Send>(n: u64, work: impl Fn(u64) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
    let next = AtomicU64::new(1);
    let done = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > n {
                        return;
                    }
                    let result = work(seed);
                    if let Ok(mut done) = done.lock() {
                        done.push((seed, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| anyhow::anyhow!("a run panicked"))?;
    done.sort_by_key(|(seed, _)| *seed);
    done.into_iter().map(|(_, result)| result).collect()
}
