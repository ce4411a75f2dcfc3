//! Looks for the future in what a decision sees: the whole way from bars to fills, run twice on different futures.
//!
//! What is known at the close of bar t must have the same bits whatever comes after t. So the way is walked on all bars
//! and again on bars that end at t (*truncation*) or go on differently after t (*perturbation*), for several t, and every
//! value up to t is compared: raw features, router inputs, half spreads, what was fitted on the training bars, the states
//! a policy was shown, its Q-values, and the fills, positions and equity of a policy whose every order depends on every
//! bit of its state. Two more checks see what those cannot. *Next bar*: an order decided at t must be filled at a
//! price of bar t + 1, so its price must move when bar t + 1 does. *Lag*: an edge beyond what a market gives that is gone
//! when decisions come one bar later was read off the next bar.
//!
//! A detector that finds nothing may be blind. So each run also plants one cheater of every kind ([`Plant`]), and a
//! cheater that is not caught is a failure like a leak. What is compared is bits; there is no tolerance.

mod compare;
mod futures;
mod lag;
mod way;

use std::collections::BTreeMap;
use std::ops::Range;

use foxhunt_core::Settings;
use foxhunt_market::{BarSeries, MarketError};
use serde::{Deserialize, Serialize};

use crate::MLError;
use crate::policy::Policy;
use crate::trainer::{Prepared, StopSignal};

use self::compare::Findings;
use self::way::Way;

/// Bars at which the future is changed for the pipeline as it is, unless a caller wants another number.
pub const DEFAULT_CUTS: usize = 6;
/// The same for each planted cheater.
const CHEATER_CUTS: usize = 2;
/// Leaks told one by one for each check; the rest is counted.
const TOLD_LEAKS: usize = 5;

/// A part of the way from bars to fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The market features before scaling.
    Features,
    /// Spread, volatility and their medians, and the half spread of fills.
    Router,
    /// Normaliser and tick size.
    Fitted,
    /// The states a policy is shown.
    States,
    /// Q-values and actions of a policy.
    Decisions,
    /// Fills, positions and equity.
    Fills,
}

impl Stage {
    /// All of them, in the order data walks through them.
    pub const ALL: [Self; 6] =
        [Self::Features, Self::Router, Self::Fitted, Self::States, Self::Decisions, Self::Fills];

    /// A short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Features => "market features",
            Self::Router => "router inputs, half spread",
            Self::Fitted => "normaliser, tick size",
            Self::States => "states",
            Self::Decisions => "Q-values, actions",
            Self::Fills => "fills, position, equity",
        }
    }
}

/// How the future was changed, or what else was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// There is none: bars end at t.
    Truncation,
    /// Every bar after t is another.
    Perturbation,
    /// Fills move with the bar after the decision.
    NextBar,
    /// Decisions come one bar later.
    Lag,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Truncation, Self::Perturbation, Self::NextBar, Self::Lag];

    /// A short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncation => "truncation",
            Self::Perturbation => "perturbation",
            Self::NextBar => "next bar",
            Self::Lag => "one-bar lag",
        }
    }
}

/// A planted cheater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plant {
    /// A feature that is the return of the next bar.
    Feature,
    /// A router that sees the volatility of the next bar.
    Router,
    /// A normaliser fitted on all bars.
    Normaliser,
    /// A policy that looks at the next close.
    Decision,
    /// Fills at the close the decision was made at.
    Fill,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Feature, Self::Router, Self::Normaliser, Self::Decision, Self::Fill];

    /// What it does, in words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Feature => "feature that is the next return",
            Self::Router => "router that sees the next volatility",
            Self::Normaliser => "normaliser fitted on all bars",
            Self::Decision => "policy that knows the next close",
            Self::Fill => "fill at the close of the decision",
        }
    }
}

/// One value that knew the future.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// Where.
    pub stage: Stage,
    /// Which check saw it.
    pub check: Check,
    /// What it is called.
    pub what: String,
    /// The bar whose value changed; none for what belongs to no bar.
    pub bar: Option<usize>,
    /// The last bar that was left as it is; none for the lag.
    pub cut: Option<usize>,
    /// The value with the file's future and with the other, or what else was seen.
    pub seen: String,
}

/// What one stage gave under one check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Values compared.
    pub compared: u64,
    /// Values that differed.
    pub leaks: u64,
}

/// The edge of decisions over the next bar, now and a bar late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LagFigures {
    /// Decisions.
    pub decisions: u64,
    /// Correlation of target exposure with the log return from open to close of the bar after the decision.
    pub at_once: f64,
    /// The same with the bar after that.
    pub one_late: f64,
}

/// A planted cheater and what caught it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cheater {
    /// Which.
    pub plant: Plant,
    /// The checks that saw it; none is a blind detector.
    pub caught_by: Vec<Check>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookaheadReport {
    /// Hash of the bars.
    pub data_hash: String,
    /// Bars after which the future was changed.
    pub cuts: Vec<usize>,
    /// What was compared and what differed, by stage and check; what a check does not look at is not there.
    pub tallies: Vec<(Stage, Check, Tally)>,
    /// The first few leaks of each stage and check.
    pub leaks: Vec<Leak>,
    /// The lag check; none where exposures or returns do not vary.
    pub lag: Option<LagFigures>,
    /// Every planted cheater.
    pub cheaters: Vec<Cheater>,
}

impl LookaheadReport {
    /// Whether no value knew the future and every cheater was caught.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.leaks.is_empty() && self.cheaters.iter().all(|cheater| !cheater.caught_by.is_empty())
    }
}

/// What to look at.
pub struct Subject<'a> {
    /// The settings of the way.
    pub settings: &'a Settings,
    /// The bars.
    pub bars: &'a BarSeries,
    /// A trained policy, whose normaliser and tick size are used; none for a fresh network.
    pub policy: Option<&'a Policy>,
    /// Bars at which the future is changed.
    pub cuts: usize,
    /// Plants this cheater in the pipeline itself, to see what a leak looks like.
    pub plant: Option<Plant>,
}

/// Looks for the future everywhere.
///
/// # Errors
/// [`MLError::Market`] when there are too few bars, [`MLError::Settings`], [`MLError::Interrupted`] when `stop` asks
/// for it.
pub fn check(subject: &Subject<'_>, stop: &dyn StopSignal) -> Result<LookaheadReport, MLError> {
    subject.settings.validate()?;
    let prepared = Prepared::fit(subject.bars.clone(), subject.settings)?;
    let train = prepared.split.train.clone();
    let cuts = cut_bars(train.end, subject.bars.len(), subject.cuts)?;
    let mut findings = Findings::default();
    let mut way = Way::new(subject, &train, subject.plant);
    futures::check(&mut way, subject.bars, &cuts, stop, &mut findings)?;
    futures::next_bar(&mut way, subject.bars, cuts[0], stop, &mut findings)?;
    let lag = lag::check(&mut way, subject.bars, stop, &mut findings)?;

    let mut cheaters = Vec::new();
    for plant in Plant::ALL {
        let mut caught = Findings::default();
        let mut way = Way::new(subject, &train, Some(plant));
        let few: Vec<usize> = cuts.iter().copied().take(CHEATER_CUTS).collect();
        futures::check(&mut way, subject.bars, &few, stop, &mut caught)?;
        futures::next_bar(&mut way, subject.bars, few[0], stop, &mut caught)?;
        lag::check(&mut way, subject.bars, stop, &mut caught)?;
        cheaters.push(Cheater { plant, caught_by: caught.checks() });
    }
    let Findings { tallies, leaks } = findings;
    Ok(LookaheadReport {
        data_hash: prepared.data_hash,
        cuts,
        tallies: tallies.into_iter().map(|((stage, check), tally)| (stage, check, tally)).collect(),
        leaks,
        lag,
        cheaters,
    })
}

/// Bars behind the training window, evenly spread, each with at least two bars after it. The normaliser is fitted
/// before all of them, so nothing up to one may change.
fn cut_bars(train_end: usize, n_bars: usize, n_cuts: usize) -> Result<Vec<usize>, MLError> {
    const AFTER: usize = 2;
    let room: Range<usize> = train_end..n_bars.saturating_sub(AFTER);
    if room.is_empty() {
        let need = train_end + AFTER + 1;
        return Err(MarketError::TooFewRows { need, have: n_bars }.into());
    }
    let n_cuts = n_cuts.clamp(1, room.len());
    let mut cuts: Vec<usize> =
        (1..=n_cuts).map(|i| room.start + (room.len() * i).div_ceil(n_cuts) - 1).collect();
    cuts.dedup();
    Ok(cuts)
}

type Tallies = BTreeMap<(Stage, Check), Tally>;

#[cfg(test)]
mod tests;
