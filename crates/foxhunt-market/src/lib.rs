//! Bar files to checked bars to features; fill rules, portfolio and ratios, in f64.
//!
//! A file is read once into checked arrays ([`load()`]); everything after it trusts them. There is no network and no
//! GPU here.

pub mod bars;
pub mod error;
pub mod features;
pub mod fills;
pub mod inspect;
pub mod load;
pub mod market;
pub mod normaliser;
pub mod optimal;
pub mod portfolio;
pub mod ratios;
pub mod sessions;
pub mod split;
pub mod synthetic;

pub use bars::{BarArrays, BarSeries};
pub use error::{MarketError, Place};
pub use features::{
    FEATURES, LONGEST_LOOK_BACK, N_MARKET_FEATURES, RawFeatures, STATE_DIM, raw_features, router_inputs,
};
pub use fills::{BarContext, FeeRates, Fill, Order, fill};
pub use inspect::{Inspection, Jump, SpreadStatistics, inspect};
pub use load::{DataReport, Loaded, Repairs, check_timezone, load, panic_is_caught};
pub use market::{Market, Normalise};
pub use normaliser::Normaliser;
pub use optimal::OptimalPolicy;
pub use portfolio::Portfolio;
pub use ratios::{Drawdown, Undefined};
pub use sessions::GapSummary;
pub use split::Split;
