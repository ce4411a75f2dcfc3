//! The one table of market features: name, formula, look-back, source. Code, state layout and `docs/features.md`
//! all come from it.
//!
//! It only describes; [`super::formula`] computes.

use super::formula::Formula;
use super::formula::Formula::*;

/// One market feature.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Name, as in reports and in the normaliser saved with a model.
    pub name: &'static str,
    /// Bars before t that the value needs. Values of earlier bars are 0 and never used.
    pub look_back: usize,
    /// Whether older bars still have a fading weight (recursive averages).
    pub recursive: bool,
    /// What is computed, in words and symbols.
    pub text: &'static str,
    /// Where the formula comes from.
    pub source: &'static str,
    pub(super) formula: Formula,
}

/// Number of market features.
pub const N_MARKET_FEATURES: usize = 48;

const fn feature(
    name: &'static str,
    formula: Formula,
    look_back: usize,
    text: &'static str,
    source: &'static str,
) -> Feature {
    Feature { name, look_back, recursive: false, text, source, formula }
}

const fn recursive(
    name: &'static str,
    formula: Formula,
    look_back: usize,
    text: &'static str,
    source: &'static str,
) -> Feature {
    Feature { name, look_back, recursive: true, text, source, formula }
}

const OWN: &str = "definition";
const WILDER: &str = "Wilder, New Concepts in Technical Trading Systems (1978)";
const APPEL: &str = "Appel, The Moving Average Convergence-Divergence Method (1979)";
const LANE: &str = "Lane, Lane's Stochastics (1984)";
const BOLLINGER: &str = "Bollinger, Bollinger on Bollinger Bands (2001)";
const PARKINSON: &str = "Parkinson, J. Business 53 (1980)";
const GARMAN_KLASS: &str = "Garman and Klass, J. Business 53 (1980)";

/// The market features in state order.
pub const FEATURES: [Feature; N_MARKET_FEATURES] = [
    feature("return_1", Return(1), 1, "ln c(t) - ln c(t-1)", OWN),
    feature("return_2", Return(2), 2, "ln c(t) - ln c(t-2)", OWN),
    feature("return_4", Return(4), 4, "ln c(t) - ln c(t-4)", OWN),
    feature("return_8", Return(8), 8, "ln c(t) - ln c(t-8)", OWN),
    feature("return_16", Return(16), 16, "ln c(t) - ln c(t-16)", OWN),
    feature("return_32", Return(32), 32, "ln c(t) - ln c(t-32)", OWN),
    feature("return_64", Return(64), 64, "ln c(t) - ln c(t-64)", OWN),
    feature("return_128", Return(128), 128, "ln c(t) - ln c(t-128)", OWN),
    feature("gap", Gap, 1, "ln o(t) - ln c(t-1)", OWN),
    feature("body", Body, 0, "ln c - ln o", OWN),
    feature("range", Range, 0, "ln h - ln l", OWN),
    feature("upper_shadow", UpperShadow, 0, "ln h - max(ln o, ln c)", OWN),
    feature("lower_shadow", LowerShadow, 0, "min(ln o, ln c) - ln l", OWN),
    feature("close_location", CloseLocation, 0, "((c - l) - (h - c)) / (h - l), 0 without range", OWN),
    feature("volatility_8", Volatility(8), 8, "population std of the last 8 return_1", OWN),
    feature("volatility_32", Volatility(32), 32, "population std of the last 32 return_1", OWN),
    feature("volatility_128", Volatility(128), 128, "population std of the last 128 return_1", OWN),
    feature(
        "volatility_ratio",
        VolatilityRatio(8, 128),
        128,
        "ln(volatility_8 / volatility_128), clipped to +-5, 0 if either is 0",
        OWN,
    ),
    feature("parkinson_32", Parkinson(32), 31, "sqrt(mean over 32 of (ln h - ln l)^2 / (4 ln 2))", PARKINSON),
    feature(
        "garman_klass_32",
        GarmanKlass(32),
        31,
        "sqrt(mean over 32 of (ln h - ln l)^2 / 2 - (2 ln 2 - 1) (ln c - ln o)^2)",
        GARMAN_KLASS,
    ),
    feature("z_8", ZScore(8), 7, "(ln c - mean) / population std of ln c over 8 bars, 0 if std is 0", OWN),
    feature("z_16", ZScore(16), 15, "as z_8 over 16 bars", OWN),
    feature("z_32", ZScore(32), 31, "as z_8 over 32 bars", OWN),
    feature("z_64", ZScore(64), 63, "as z_8 over 64 bars", OWN),
    feature("z_128", ZScore(128), 127, "as z_8 over 128 bars", OWN),
    feature("z_256", ZScore(256), 255, "as z_8 over 256 bars", OWN),
    feature("mean_distance_32", MeanDistance(32), 31, "ln c - mean of ln c over 32 bars", OWN),
    feature("mean_distance_128", MeanDistance(128), 127, "ln c - mean of ln c over 128 bars", OWN),
    feature("mean_distance_256", MeanDistance(256), 255, "ln c - mean of ln c over 256 bars", OWN),
    recursive("ema_distance_12", EmaDistance(12), 48, "ln c - EMA of ln c, span 12", OWN),
    recursive("ema_distance_64", EmaDistance(64), 256, "ln c - EMA of ln c, span 64", OWN),
    recursive("rsi_14", Rsi(14), 98, "(RSI - 50) / 50, 0 if nothing moved", WILDER),
    recursive("macd", Macd, 104, "(EMA 12 of c - EMA 26 of c) / c", APPEL),
    recursive("macd_histogram", MacdHistogram, 140, "(MACD line - its EMA of span 9) / c", APPEL),
    feature(
        "stochastic_k",
        StochasticK(14),
        13,
        "2 (c - lowest l) / (highest h - lowest l) - 1 over 14 bars, 0 without range",
        LANE,
    ),
    feature("stochastic_d", StochasticD(14, 3), 15, "mean of the last 3 stochastic_k", LANE),
    feature(
        "bollinger_b",
        BollingerB(20),
        19,
        "(c - mean) / (2 population std) of c over 20 bars, 0 if std is 0",
        BOLLINGER,
    ),
    feature(
        "bollinger_width",
        BollingerWidth(20),
        19,
        "4 population std of c / mean of c over 20 bars",
        BOLLINGER,
    ),
    recursive("atr_14", Atr(14), 98, "average true range / c", WILDER),
    feature(
        "channel_128",
        StochasticK(128),
        127,
        "2 (c - lowest l) / (highest h - lowest l) - 1 over 128 bars, 0 without range",
        "Donchian channel",
    ),
    feature(
        "volume_z_32",
        VolumeZ(32),
        31,
        "z-score of ln(1 + volume) over 32 bars, 0 if std is 0 or without volume",
        OWN,
    ),
    feature(
        "flow_32",
        Flow(32),
        32,
        "sum of volume sign(return_1) / sum of volume over 32 bars, 0 without volume",
        OWN,
    ),
    feature("spread", Spread, 0, "spread / c, 0 without spread", OWN),
    feature(
        "spread_z_64",
        SpreadZ(64),
        63,
        "z-score of spread / c over 64 bars, 0 if std is 0 or without spread",
        OWN,
    ),
    feature("day_sin", DaySin, 0, "sin(2 pi x share of the UTC day passed at the bar's open)", OWN),
    feature("day_cos", DayCos, 0, "cos of the same angle", OWN),
    feature("week_sin", WeekSin, 0, "sin(2 pi x share of the week passed since Monday 00:00 UTC)", OWN),
    feature("week_cos", WeekCos, 0, "cos of the same angle", OWN),
];

/// The longest look-back of the table: the first bar whose features are all defined.
pub const LONGEST_LOOK_BACK: usize = {
    let mut longest = 0;
    let mut i = 0;
    while i < N_MARKET_FEATURES {
        if FEATURES[i].look_back > longest {
            longest = FEATURES[i].look_back;
        }
        i += 1;
    }
    longest
};

/// `docs/features.md`, made from the table.
#[must_use]
pub fn features_markdown() -> String {
    let mut text = String::from(
        "# Market features\n\n\
         Made from the table in `crates/foxhunt-market/src/features/table.rs`; a test keeps them equal\n\
         (`FOXHUNT_BLESS=1 cargo test -p foxhunt-market features_md` writes this file anew).\n\n\
         o, h, l, c are open, high, low and close of bar t. A feature of bar t uses bar t and bars before it, never a\n\
         later one. \"Look-back\" is how many bars before t it needs; \"fading\" means that still older bars keep a\n\
         small, shrinking weight. Before its look-back is full a feature is 0, and no environment starts there.\n\
         Prices enter as logarithms or ratios, so every value is finite for every bar that loading accepts; a value\n\
         that overflows all the same becomes 0. A feature that does not vary in the training split is 0 everywhere.\n\n\
         The network sees z = (value - mean) / std with mean and population std of the training split, clipped to\n\
         +-10, as f32. After the 48 features the state holds exposure, unrealised return and bars in position; see\n\
         `foxhunt_ops::env_step::observe`.\n\n\
         | # | name | formula | look-back | source |\n|---|---|---|---|---|\n",
    );
    for (i, f) in FEATURES.iter().enumerate() {
        let fading = if f.recursive { ", fading" } else { "" };
        text += &format!("| {i} | {} | {} | {}{fading} | {} |\n", f.name, f.text, f.look_back, f.source);
    }
    text
}
