//! A transition in 32 bytes, for environments whose state is a function of a bar and three portfolio inputs.
//!
//! Features of a bar never change, so a row stores where they stand and not what they are: the bar of its state, the
//! bars from there to its next state (the length of its window, from which its discount follows), and the portfolio
//! inputs of both. Whoever draws it looks the features up. Every value comes back with the bits it had.
//!
//! **Words**, u32 `[8]`, one sector of memory (`compact.cuh` reads the same):
//!
//! | word | low bits | high bits |
//! |---|---|---|
//! | 0 | 29: bar of the state | 3: action, upper half |
//! | 1 | 26: bars in position of the state | 3: action, lower half; 1: terminated; 2: steps - 1, upper part |
//! | 2 | 26: bars in position of the next state | 6: steps - 1, lower part |
//! | 3, 4 | exposure and unrealised return of the state, f32 | |
//! | 5, 6 | exposure and unrealised return of the next state, f32 | |
//! | 7 | reward, f32 | |
//!
//! The input "bars in position" is `n / (n + 16)`: 0, or from 1/17 to 1. Its f32 bits less those of 1/32, plus one, are
//! below 2^26; 0 stays 0.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use foxhunt_market::{Market, N_MARKET_FEATURES, STATE_DIM};

use crate::error::OpError;
use crate::n_step::MAX_N;

/// Words of a row.
pub const COMPACT_WORDS: usize = 8;
/// Most bars of a market whose rows can be compact.
pub const MAX_BARS: usize = 1 << BAR_BITS;

/// One row as it is stored.
pub type CompactRow = [u32; COMPACT_WORDS];

const BAR_BITS: u32 = 29;
const HELD_BITS: u32 = 26;
const HELD_MASK: u32 = (1 << HELD_BITS) - 1;
/// Bits of 1/32, below every input that is not 0.
const HELD_BASE: u32 = 0x3D00_0000;
/// Portfolio inputs of a state.
const INPUTS: usize = STATE_DIM - N_MARKET_FEATURES;

/// One transition, its market features left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// Bar of the state, below 2^29.
    pub bar: u32,
    /// Bars from the state to the next one, from 1 to 256.
    pub steps: u32,
    /// Action, below 64.
    pub action: u32,
    /// Whether nothing follows.
    pub terminated: bool,
    /// Portfolio inputs of the state, as [`crate::env_step::portfolio_inputs`] gives them.
    pub inputs: [f32; INPUTS],
    /// Portfolio inputs of the next state.
    pub next_inputs: [f32; INPUTS],
    /// n-step reward.
    pub reward: f32,
}

impl Transition {
    /// The row that stores it.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a field outside its range.
    pub fn pack(&self) -> Result<CompactRow, OpError> {
        let refuse = |what, value: String, rule| Err(OpError::InvalidArgument { what, value, rule });
        if self.bar as usize >= MAX_BARS {
            return refuse("bar", self.bar.to_string(), "below 2^29");
        }
        if !(1..=MAX_N as u32).contains(&self.steps) {
            return refuse("steps", self.steps.to_string(), "from 1 to 256");
        }
        if self.action >= 64 {
            return refuse("action", self.action.to_string(), "below 64");
        }
        let [exposure, unrealised, held] = self.inputs;
        let [next_exposure, next_unrealised, next_held] = self.next_inputs;
        let (steps, action) = (self.steps - 1, self.action);
        Ok([
            self.bar | action >> 3 << BAR_BITS,
            held_code(held)? | (action & 7) << 26 | u32::from(self.terminated) << 29 | steps >> 6 << 30,
            held_code(next_held)? | steps << 26,
            exposure.to_bits(),
            unrealised.to_bits(),
            next_exposure.to_bits(),
            next_unrealised.to_bits(),
            self.reward.to_bits(),
        ])
    }

    /// What [`Transition::pack`] packed.
    #[must_use]
    pub fn unpack(row: &CompactRow) -> Self {
        let value = |word: usize| f32::from_bits(row[word]);
        Self {
            bar: row[0] & (MAX_BARS as u32 - 1),
            steps: (row[1] >> 30 << 6 | row[2] >> 26) + 1,
            action: row[0] >> BAR_BITS << 3 | row[1] >> 26 & 7,
            terminated: row[1] >> 29 & 1 == 1,
            inputs: [value(3), value(4), held_of(row[1] & HELD_MASK)],
            next_inputs: [value(5), value(6), held_of(row[2] & HELD_MASK)],
            reward: value(7),
        }
    }

    /// Bar of the next state.
    #[must_use]
    pub fn next_bar(&self) -> u32 {
        self.bar + self.steps
    }
}

/// Whether `input` is what a state can hold for the bars in position, and so can be packed.
pub(crate) fn is_held(input: f32) -> bool {
    held_code(input).is_ok()
}

fn held_code(input: f32) -> Result<u32, OpError> {
    let bits = input.to_bits();
    match bits.checked_sub(HELD_BASE) {
        None if bits == 0 => Ok(0),
        Some(above) if above < HELD_MASK && input <= 1.0 => Ok(above + 1),
        _ => Err(OpError::InvalidArgument {
            what: "bars in position",
            value: input.to_string(),
            rule: "0, or from 1/17 to 1",
        }),
    }
}

fn held_of(code: u32) -> f32 {
    if code == 0 { 0.0 } else { f32::from_bits(code - 1 + HELD_BASE) }
}

/// Why a row is refused, if it is: its reward first, then its inputs. The other fields are finite by their form.
pub(super) fn non_finite(row: &CompactRow) -> [bool; 2] {
    let finite = |word: usize| f32::from_bits(row[word]).is_finite();
    [!finite(7), !(3..7).all(finite)]
}

/// f32 `[256]`: gamma^k at index k - 1, as [`crate::n_step`] makes them: successive products in f64, rounded once.
#[must_use]
pub fn discounts(gamma: f64) -> Vec<f32> {
    let powers = std::iter::successors(Some(gamma), |power| Some(power * gamma));
    powers.take(MAX_N).map(|power| power as f32).collect()
}

/// Where the rest of a state is found: the market's features, and gamma to the power of each window's length.
#[derive(Clone, Debug)]
pub struct StateSource {
    market: Arc<Market>,
    discounts: Arc<[f32]>,
}

impl StateSource {
    /// The source of the states that environments of `market` show, under a discount of `gamma` a step. Of a market of
    /// more than 2^29 bars only the first so many have rows.
    #[must_use]
    pub fn new(market: Arc<Market>, gamma: f64) -> Self {
        Self { market, discounts: discounts(gamma).into() }
    }

    /// The market.
    #[must_use]
    pub fn market(&self) -> &Arc<Market> {
        &self.market
    }

    /// f32 `[256]`: gamma^k at index k - 1.
    #[must_use]
    pub fn discounts(&self) -> &[f32] {
        &self.discounts
    }

    /// Discount of a window of `steps` steps, from 1 to 256.
    #[must_use]
    pub fn discount(&self, steps: u32) -> f32 {
        self.discounts[steps as usize - 1]
    }

    /// Writes the state at `bar` with these portfolio inputs, f32 `[51]`.
    ///
    /// # Panics
    /// When the market has no such bar or `out` another length.
    pub fn write_state(&self, bar: u32, inputs: &[f32; INPUTS], out: &mut [f32]) {
        out[..N_MARKET_FEATURES].copy_from_slice(self.market.feature_row(bar as usize));
        out[N_MARKET_FEATURES..].copy_from_slice(inputs);
    }

    /// Refuses rows that end behind the last bar.
    pub(super) fn check_bars(&self, rows: &[CompactRow]) -> Result<(), OpError> {
        let bars = self.market.len();
        let beyond = |row: &&CompactRow| Transition::unpack(row).next_bar() as usize >= bars;
        match rows.iter().find(beyond) {
            Some(row) => Err(OpError::InvalidArgument {
                what: "bar of the next state",
                value: Transition::unpack(row).next_bar().to_string(),
                rule: "inside the market",
            }),
            None => Ok(()),
        }
    }
}
