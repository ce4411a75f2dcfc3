//! The way from bars to fills, honest or with a cheater in it.
//!
//! Everything is the production code: [`Market::prepare`], the policy's network, [`backtest`]. A cheater changes
//! what comes out of a part, or what goes into it.

use std::ops::Range;

use foxhunt_core::settings::ExecutionSettings;
use foxhunt_core::{Exposure, FactoredAction, OrderType, Settings, Urgency};
use foxhunt_market::{BarSeries, Market, N_MARKET_FEATURES, Normalise, RawFeatures, raw_features};
use foxhunt_ops::env_step::EnvParams;

use super::{Plant, Subject};
use crate::MLError;
use crate::evaluation::{Backtest, Decision, backtest};
use crate::policy::{Policy, named, network_layout};
use crate::trainer::StopSignal;

/// The way of one subject.
pub(super) struct Way<'a> {
    pub(super) settings: &'a Settings,
    policy: Option<&'a Policy>,
    train: Range<usize>,
    plant: Option<Plant>,
}

/// What some bars become.
pub(super) struct Seen {
    pub(super) raw: RawFeatures,
    pub(super) market: Market,
}

/// What a policy was shown and answered, and what came of it.
pub(super) struct Walk {
    /// f32 `[decisions, 51]`, row-major.
    pub(super) states: Vec<f32>,
    /// f32 `[decisions, n_outputs]`, row-major; empty for the policy that has no network.
    pub(super) q: Vec<f32>,
    pub(super) backtest: Backtest,
}

/// Which policy walks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walker {
    /// The network.
    Network,
    /// A policy that has no sense, but whose every order depends on every bit of the state.
    Hash,
    /// A market order at every bar, long and short in turn.
    Market,
}

impl<'a> Way<'a> {
    pub(super) fn new(subject: &Subject<'a>, train: &Range<usize>, plant: Option<Plant>) -> Self {
        Self { settings: subject.settings, policy: subject.policy, train: train.clone(), plant }
    }

    /// Features and market of `bars`, fitted on the training bars alone; as [`crate::trainer::Prepared`] does it, with the
    /// training window held where it is when bars are cut off.
    pub(super) fn see(&self, bars: BarSeries) -> Result<Seen, MLError> {
        let raw = raw_features(&bars, &self.settings.execution);
        let fit_on = match self.plant {
            Some(Plant::Normaliser) => self.train.start..bars.len(),
            _ => self.train.clone(),
        };
        let normalise = match self.policy {
            Some(policy) if self.plant != Some(Plant::Normaliser) => {
                Normalise::With(policy.normaliser().clone())
            }
            _ => Normalise::FitOn(fit_on),
        };
        let known = self.settings.execution.tick_size.or_else(|| self.policy?.tick_size());
        let tick_size = known.unwrap_or_else(|| bars.tick_size_of(0..self.train.end));
        let execution = ExecutionSettings { tick_size: Some(tick_size), ..self.settings.execution.clone() };
        let market = Market::prepare(bars, &execution, normalise)?;
        let mut seen = Seen { raw, market };
        match self.plant {
            Some(Plant::Feature) => plant_feature(&mut seen),
            Some(Plant::Router) => {
                let volatility = &mut seen.market.volatility;
                volatility.rotate_left(1);
            }
            _ => {}
        }
        Ok(seen)
    }

    /// Walks over `window` of what was seen.
    pub(super) fn walk(
        &self,
        seen: &Seen,
        window: Range<usize>,
        walker: Walker,
        stop: &dyn StopSignal,
    ) -> Result<Walk, MLError> {
        let params = EnvParams::new(self.settings);
        let market = &seen.market;
        let mut network = match walker {
            Walker::Network => Some(self.network(market)?),
            Walker::Hash | Walker::Market => None,
        };
        let (mut states, mut q) = (Vec::new(), Vec::new());
        let plant = self.plant;
        let mut decide = |state: &[f32], bar: usize| -> Result<Decision, MLError> {
            states.extend_from_slice(state);
            let mut decision = match (&mut network, walker) {
                (Some(network), _) => {
                    q.extend_from_slice(network.q_values(state)?);
                    network.act(market, state, bar)?
                }
                (None, Walker::Market) => alternate(bar).into(),
                (None, _) => hashed(state)?.into(),
            };
            if plant == Some(Plant::Decision) && walker != Walker::Market {
                decision.action = knowing(market, bar);
            }
            Ok(decision)
        };
        let backtest = if plant == Some(Plant::Fill) {
            // The bar after the decision opens where the decision was made.
            let mut early = market.clone();
            let close = market.bars.close.clone();
            early.bars.open[1..].copy_from_slice(&close[..close.len() - 1]);
            backtest(&early, window, &params, stop, &mut decide)?
        } else {
            backtest(market, window, &params, stop, &mut decide)?
        };
        Ok(Walk { states, q, backtest })
    }

    /// The trained policy, or a fresh network of the settings.
    fn network(&self, market: &Market) -> Result<Policy, MLError> {
        if let Some(policy) = self.policy {
            return Ok(policy.clone());
        }
        let layout = network_layout(self.settings);
        let arrays = named(&layout, &layout.init(self.settings.run.seed));
        Policy::new(self.settings, market.normaliser.clone(), Some(market.tick_size), &arrays)
    }
}

fn plant_feature(seen: &mut Seen) {
    let close = &seen.market.bars.close;
    for bar in 0..close.len() - 1 {
        let next = close[bar + 1] / close[bar] - 1.0;
        seen.raw.values[bar * N_MARKET_FEATURES] = next;
        seen.market.features[bar * N_MARKET_FEATURES] = (next * 100.0) as f32;
    }
}

/// A market order towards where the next close lies.
fn knowing(market: &Market, bar: usize) -> FactoredAction {
    let next = market.bars.close.get(bar + 1).copied().unwrap_or(0.0);
    let exposure = if next > market.bars.close[bar] { Exposure::Long } else { Exposure::Short };
    FactoredAction { exposure, order_type: OrderType::Market, urgency: Urgency::Normal }
}

fn alternate(bar: usize) -> FactoredAction {
    let exposure = if bar.is_multiple_of(2) { Exposure::Long } else { Exposure::Short };
    FactoredAction { exposure, order_type: OrderType::Market, urgency: Urgency::Normal }
}

/// One of the 45 actions by the hash of the state's bits.
fn hashed(state: &[f32]) -> Result<FactoredAction, MLError> {
    let mut hasher = blake3::Hasher::new();
    for value in state {
        hasher.update(&value.to_bits().to_le_bytes());
    }
    let bytes = *hasher.finalize().as_bytes();
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(FactoredAction::from_index(foxhunt_core::philox::below(word, 45))?)
}
