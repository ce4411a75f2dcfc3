//! Decisions for an account that trades by a policy, outside of training and backtests.
//!
//! [`Policy::market`] makes of bars what the policy sees, [`Policy::decide`] answers for one bar of it and what is held
//! then. Loading bars, sending orders and keeping the account are the caller's.

use foxhunt_market::{BarSeries, Market, N_MARKET_FEATURES, Normalise, STATE_DIM};
use foxhunt_ops::env_step::{EnvParams, EnvState, portfolio_inputs};

use super::{Policy, greedy};
use crate::MLError;
use crate::evaluation::Decision;

/// What an account holds at the close of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holding {
    /// Units held, negative when short, 0 without a position.
    pub units: f64,
    /// Average price the position was opened at, price units, above 0; of no meaning without a position.
    pub entry_price: f64,
    /// Net equity marked at the close of the bar, account currency, above 0.
    pub equity: f64,
    /// Bars the position has been held with its present sign.
    pub bars_held: u32,
}

impl Holding {
    /// All cash.
    #[must_use]
    pub const fn flat(equity: f64) -> Self {
        Self { units: 0.0, entry_price: 0.0, equity, bars_held: 0 }
    }

    fn check(&self) -> Result<(), MLError> {
        let refuse =
            |what, value: f64, rule| Err(MLError::InvalidArgument { what, value: value.to_string(), rule });
        if !self.units.is_finite() {
            return refuse("units held", self.units, "finite");
        }
        if !(self.equity > 0.0 && self.equity.is_finite()) {
            return refuse("equity", self.equity, "a finite number above 0");
        }
        if self.units != 0.0 && !(self.entry_price > 0.0 && self.entry_price.is_finite()) {
            return refuse("entry price", self.entry_price, "a finite number above 0");
        }
        Ok(())
    }
}

impl Policy {
    /// Bars as this policy sees them: scaled by its normaliser, with its execution settings and its tick size (the bars'
    /// own where it is not known). Nothing is fitted.
    ///
    /// # Errors
    /// [`MLError::Market`] when there are fewer bars than the features look back on.
    pub fn market(&self, bars: BarSeries) -> Result<Market, MLError> {
        let mut execution = self.settings.execution.clone();
        execution.tick_size = self.tick_size.or(execution.tick_size);
        Ok(Market::prepare(bars, &execution, Normalise::With(self.normaliser.clone()))?)
    }

    /// The greedy decision at the close of `bar` of `market`, holding `holding`: observed as in training, answered by
    /// the network's head, and completed by the router where the head decides exposure alone.
    ///
    /// # Errors
    /// [`MLError::InvalidArgument`] for a bar that is not there or before every look-back is full, a market scaled by another normaliser
    /// ([`Policy::market`] takes the right one), and an account that is not sound.
    pub fn decide(&mut self, market: &Market, bar: usize, holding: &Holding) -> Result<Decision, MLError> {
        if !(market.first_bar..market.len()).contains(&bar) {
            let rule = "a bar of the market with full look-backs";
            return Err(MLError::InvalidArgument { what: "bar", value: bar.to_string(), rule });
        }
        if market.normaliser != self.normaliser {
            let rule = "scaled by the policy's own normaliser";
            return Err(MLError::InvalidArgument { what: "market", value: "another scale".into(), rule });
        }
        holding.check()?;
        let account = EnvState {
            position: holding.units,
            entry_price: holding.entry_price,
            equity: holding.equity,
            bars_in_position: holding.bars_held,
            ..EnvState::default()
        };
        // The floor under equity is for ruined environments; an account may be of any size.
        let params = EnvParams { equity_floor: 0.0, ..self.params };
        let mut state = [0.0; STATE_DIM];
        state[..N_MARKET_FEATURES].copy_from_slice(market.feature_row(bar));
        state[N_MARKET_FEATURES..].copy_from_slice(&portfolio_inputs(
            &params,
            &account,
            market.bars.close[bar],
        ));
        self.q_values(&state)?;
        greedy(self.settings.network.head, &self.q, market, bar)
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::{Head, Settings};
    use foxhunt_market::synthetic::RandomWalk;
    use foxhunt_ops::env_step::observe;

    use super::*;
    use crate::policy::{named, network_layout};

    /// A policy and a market as it sees it.
    fn served(head: Head, seed: u64) -> (Policy, Market) {
        let mut settings = Settings::default();
        (settings.network.head, settings.network.hidden) = (head, vec![16]);
        let walk = RandomWalk { n_bars: 700, seed, volatility: 0.002, start_price: 1.1 };
        let bars = walk.bars().unwrap();
        let fit = Normalise::FitOn(560..700);
        let fitted = Market::prepare(bars.clone(), &settings.execution, fit).unwrap();
        let layout = network_layout(&settings);
        let arrays = named(&layout, &layout.init(7));
        let policy = Policy::new(&settings, fitted.normaliser.clone(), Some(0.01), &arrays).unwrap();
        let market = policy.market(bars).unwrap();
        assert_eq!((&market.features, market.tick_size), (&fitted.features, 0.01));
        (policy, market)
    }

    /// A served decision is the backtest's, for every head, long, short and flat, whatever the size of the account.
    #[test]
    fn decisions_are_those_of_a_backtest() {
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            let (mut policy, market) = served(head, 1);
            let params = EnvParams::new(policy.settings());
            let mut seen = std::collections::HashSet::new();
            let mut state = [0.0; STATE_DIM];
            for (i, bar) in (market.first_bar..market.len()).enumerate() {
                let units = [0.0, 4e4, -9e4, 7e4][i % 4];
                let account = EnvState {
                    position: units,
                    entry_price: if units == 0.0 { 0.0 } else { 1.1 },
                    equity: 1e5,
                    bar: bar as u32,
                    bars_in_position: i as u32 % 4,
                    ..EnvState::default()
                };
                observe(&market, &params, &account, &mut state);
                let want = policy.act(&market, &state, bar).unwrap();
                for scale in [1.0, 0.25, 1.0 / 1024.0] {
                    let holding = Holding {
                        units: scale * units,
                        entry_price: account.entry_price,
                        equity: scale * account.equity,
                        bars_held: account.bars_in_position,
                    };
                    assert_eq!(
                        policy.decide(&market, bar, &holding).unwrap(),
                        want,
                        "{head:?} {bar} {scale}"
                    );
                }
                seen.insert(want.action.index());
            }
            assert!(seen.len() > 1, "{head:?} decides by what it sees");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (mut policy, market) = served(Head::Exposure, 1);
        let flat = Holding::flat(1e5);
        let bar = market.first_bar;
        policy.decide(&market, bar, &flat).unwrap();
        let mut refused = |market: &Market, bar, holding: Holding| match policy
            .decide(market, bar, &holding)
            .unwrap_err()
        {
            MLError::InvalidArgument { what, .. } => what,
            other => panic!("{other}"),
        };
        assert_eq!(refused(&market, bar - 1, flat), "bar");
        assert_eq!(refused(&market, market.len(), flat), "bar");
        for equity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(&market, bar, Holding::flat(equity)), "equity");
        }
        for units in [f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(refused(&market, bar, Holding { units, ..flat }), "units held");
        }
        for entry_price in [0.0, -1.0, f64::NAN] {
            assert_eq!(refused(&market, bar, Holding { units: 1.0, entry_price, ..flat }), "entry price");
        }
        let (_, other) = served(Head::Exposure, 2);
        assert_eq!(refused(&other, bar, flat), "market");
    }
}
