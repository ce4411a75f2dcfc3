//! The rules of one bar.
//!
//! They look at one bar only; the order of bars is checked where bars are put together.

use crate::error::{MarketError, Place};

/// A numeric column of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Column {
    Open,
    High,
    Low,
    Close,
    Volume,
    Spread,
}

/// The four prices in the order bars keep them.
pub(crate) const PRICES: [Column; 4] = [Column::Open, Column::High, Column::Low, Column::Close];

impl Column {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::High => "high",
            Self::Low => "low",
            Self::Close => "close",
            Self::Volume => "volume",
            Self::Spread => "spread",
        }
    }
}

/// A broken rule, without its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Violation {
    NotFinite(Column, f64),
    NotPositive(Column, f64),
    Negative(Column, f64),
    HighTooLow { value: f64, other: &'static str, bound: f64 },
    LowTooHigh { value: f64, other: &'static str, bound: f64 },
    SpreadTooLarge { value: f64, price: f64 },
}

impl Violation {
    /// The column the value stands in.
    pub(crate) fn column(self) -> Column {
        match self {
            Self::NotFinite(column, _) | Self::NotPositive(column, _) | Self::Negative(column, _) => column,
            Self::HighTooLow { .. } => Column::High,
            Self::LowTooHigh { .. } => Column::Low,
            Self::SpreadTooLarge { .. } => Column::Spread,
        }
    }

    pub(crate) fn into_error(self, place: Place) -> MarketError {
        match self {
            Self::NotFinite(_, value) => MarketError::NotFinite { place, value: value.to_string() },
            Self::NotPositive(_, value) => MarketError::NotPositive { place, value },
            Self::Negative(_, value) => MarketError::Negative { place, value },
            Self::HighTooLow { value, other, bound } => {
                MarketError::HighTooLow { place, value, other, bound }
            }
            Self::LowTooHigh { value, other, bound } => {
                MarketError::LowTooHigh { place, value, other, bound }
            }
            Self::SpreadTooLarge { value, price } => MarketError::SpreadTooLarge { place, value, price },
        }
    }
}

/// Checks one bar: `prices` is open, high, low, close.
#[inline]
pub(crate) fn check_bar(prices: [f64; 4], volume: Option<f64>, spread: Option<f64>) -> Result<(), Violation> {
    for (column, value) in PRICES.into_iter().zip(prices) {
        if !value.is_finite() {
            return Err(Violation::NotFinite(column, value));
        }
        if value <= 0.0 {
            return Err(Violation::NotPositive(column, value));
        }
    }
    let [open, high, low, close] = prices;
    for (other, bound) in [("open", open), ("close", close)] {
        if high < bound {
            return Err(Violation::HighTooLow { value: high, other, bound });
        }
        if low > bound {
            return Err(Violation::LowTooHigh { value: low, other, bound });
        }
    }
    for (column, value) in [(Column::Volume, volume), (Column::Spread, spread)] {
        let Some(value) = value else { continue };
        if !value.is_finite() {
            return Err(Violation::NotFinite(column, value));
        }
        if value < 0.0 {
            return Err(Violation::Negative(column, value));
        }
    }
    match spread {
        // Points or pips in place of price units would make every fill absurd without being visibly wrong.
        Some(value) if value > 0.1 * close => Err(Violation::SpreadTooLarge { value, price: close }),
        _ => Ok(()),
    }
}
