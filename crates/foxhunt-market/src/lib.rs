//! Bar files to checked bars to features; fill rules, portfolio and ratios, in f64.
//!
//! A file is read once into checked arrays ([`load()`]); everything after it trusts them. There is no network and no
//! GPU here.

pub mod bars;
pub mod error;

pub use bars::{BarArrays, BarSeries};
pub use error::{MarketError, Place};
