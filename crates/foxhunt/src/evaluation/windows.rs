//! The full judgement: agent and baselines on each window under the same costs, and the cost ladder.
//!
//! Which bars are training, validation and test is decided by the split; when the test window may be looked at is
//! the trainer's business.

use std::ops::Range;

use foxhunt_core::settings::EvaluationSettings;
use foxhunt_market::Market;
use foxhunt_ops::env_step::EnvParams;
use serde::{Deserialize, Serialize};

use super::baselines::{Fixed, RandomBaseline, fixed, random};
use super::{ActionTable, Backtest, Metrics, PolicyFn, Verdict, backtest, foresight};
use crate::MLError;
use crate::trainer::StopSignal;

/// Cost multiples of the ladder.
pub const LADDER: [f64; 4] = [0.0, 0.5, 1.0, 2.0];

/// A policy judged on several windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// In the order given, usually train, validation, test.
    pub windows: Vec<WindowEvaluation>,
    /// What the held-out window is worth, where the run ledger tells how many configurations were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Evaluation {
    /// The window of that name.
    #[must_use]
    pub fn window(&self, name: &str) -> Option<&WindowEvaluation> {
        self.windows.iter().find(|window| window.name == name)
    }
}

/// A policy judged on one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowEvaluation {
    /// `train`, `validation`, `test`, or what the caller called it.
    pub name: String,
    /// Bars of the market, start included, end excluded.
    pub bars: Range<usize>,
    /// Time of the first bar, ns UTC.
    pub first_ns: i64,
    /// Time of the last bar, ns UTC.
    pub last_ns: i64,
    /// Bars a year as observed in this window; what annual figures use.
    pub bars_per_year: Option<f64>,
    /// The agent.
    pub agent: PolicyResult,
    /// Flat, buy and hold, always short.
    pub baselines: Vec<PolicyResult>,
    /// Random policies with the agent's turnover.
    pub random: RandomBaseline,
    /// The best way found by one who knows every bar; none for windows of more than [`super::MOST_BARS`] bars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foresight: Option<PolicyResult>,
    /// The agent's policy run again at other costs; see [`LADDER`].
    pub ladder: Vec<LadderRung>,
    /// The agent's decisions.
    pub actions: ActionTable,
}

impl WindowEvaluation {
    /// Random policies that ended with less equity than the agent.
    #[must_use]
    pub fn random_policies_beaten(&self) -> usize {
        let agent = self.agent.metrics.final_equity;
        self.random.runs.iter().filter(|run| run.final_equity < agent).count()
    }
}

/// One policy on one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// `agent` or the label of a baseline.
    pub name: String,
    /// Its figures.
    pub metrics: Metrics,
    /// Its record.
    pub backtest: Backtest,
}

/// The agent at a multiple of all costs: half spread, impact and both fees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LadderRung {
    /// What every cost was multiplied by.
    pub multiple: f64,
    /// The figures at that cost.
    pub metrics: Metrics,
}

/// Judges `policy` on each of `windows` (name and bars). The policy must answer the same state at the same bar
/// with the same action every time, because the ladder runs it again.
///
/// Random baselines are seeded with `seed`; a window at another place draws other words.
///
/// # Errors
/// As [`backtest`].
pub fn evaluate_windows(
    market: &Market,
    windows: &[(&str, Range<usize>)],
    params: &EnvParams,
    settings: &EvaluationSettings,
    seed: u64,
    stop: &dyn StopSignal,
    policy: &mut PolicyFn<'_>,
) -> Result<Evaluation, MLError> {
    let windows = windows
        .iter()
        .map(|(name, bars)| {
            let mut run = |params: &EnvParams| backtest(market, bars.clone(), params, stop, policy);
            evaluate_window(market, name, params, settings, seed, stop, &mut run)
        })
        .collect::<Result<_, _>>()?;
    Ok(Evaluation { windows, verdict: None })
}

/// Decisions that [`evaluate_windows`] asks a policy for, where no account is ruined: one a bar but the last, for every
/// rung of the ladder.
#[must_use]
pub fn decisions<'a>(windows: impl IntoIterator<Item = &'a Range<usize>>) -> u64 {
    let once: usize = windows.into_iter().map(|bars| bars.len().saturating_sub(1)).sum();
    (LADDER.len() * once) as u64
}

/// Runs the agent over one window at given costs; how an engine that evaluates by itself takes part.
pub type RunAgent<'a> = dyn FnMut(&EnvParams) -> Result<Backtest, MLError> + 'a;

/// Judges one window; `agent` runs the agent over it and is called once a rung of the ladder.
///
/// # Errors
/// Those of `agent`, and as [`backtest`].
pub fn evaluate_window(
    market: &Market,
    name: &str,
    params: &EnvParams,
    settings: &EvaluationSettings,
    seed: u64,
    stop: &dyn StopSignal,
    agent: &mut RunAgent<'_>,
) -> Result<WindowEvaluation, MLError> {
    let record = agent(params)?;
    let bars = record.window.clone();
    let bars_per_year = market.bars.bars_per_year(bars.clone());
    let time = &market.bars.time[bars.clone()];
    let risk_free = settings.risk_free_rate;
    let judge = |backtest: &Backtest| {
        Metrics::of(backtest, bars_per_year, risk_free).with_days(backtest, time, risk_free)
    };
    let result = |name: &str, backtest: Backtest| PolicyResult {
        name: name.into(),
        metrics: judge(&backtest),
        backtest,
    };

    let baselines = Fixed::ALL
        .into_iter()
        .map(|which| Ok(result(which.label(), fixed(market, bars.clone(), params, stop, which)?)))
        .collect::<Result<_, MLError>>()?;
    let random = random(market, &record, params, settings.random_policies, seed, stop, &judge)?;
    let foresight =
        foresight(market, bars.clone(), params, stop)?.map(|backtest| result("perfect foresight", backtest));
    let actions = ActionTable::of(&record);
    let agent_result = result("agent", record);
    let ladder = LADDER
        .into_iter()
        .map(|multiple| {
            let metrics = if multiple == 1.0 {
                agent_result.metrics.clone()
            } else {
                judge(&agent(&params.with_cost_scale(multiple))?)
            };
            Ok(LadderRung { multiple, metrics })
        })
        .collect::<Result<_, MLError>>()?;
    Ok(WindowEvaluation {
        name: name.into(),
        first_ns: market.bars.time[bars.start],
        last_ns: market.bars.time[bars.end - 1],
        bars,
        bars_per_year,
        agent: agent_result,
        baselines,
        random,
        foresight,
        ladder,
        actions,
    })
}
