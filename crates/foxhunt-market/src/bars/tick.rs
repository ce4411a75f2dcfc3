//! The smallest price step, read off prices.
//!
//! It is a guess from what was traded; a setting overrides it.

/// Prices looked at, spread evenly over the series.
const SAMPLE_BARS: usize = 65_536;

/// Most decimals a price grid may have.
const MAX_DECIMALS: i32 = 10;

/// The greatest common step of all prices looked at, up to 65,536 evenly spaced bars of each column.
///
/// Prices are put on the coarsest decimal grid that holds all of them, and the step is the greatest common divisor
/// on that grid, so quarters give 0.25. Prices on no grid of up to ten decimals (adjusted or synthetic ones) give a
/// millionth of the lowest price.
#[must_use]
pub fn infer_tick_size(columns: &[&[f64]]) -> f64 {
    let sample = || {
        columns.iter().flat_map(|values| {
            let stride = values.len().div_ceil(SAMPLE_BARS).max(1);
            values.iter().step_by(stride).copied()
        })
    };
    let Some(decimals) = (0..=MAX_DECIMALS).find(|&d| sample().all(|price| on_grid(price, d).is_some()))
    else {
        return 1e-6 * sample().fold(f64::INFINITY, f64::min);
    };
    let step = sample().filter_map(|price| on_grid(price, decimals)).fold(0, greatest_common_divisor);
    step.max(1) as f64 / 10_f64.powi(decimals)
}

/// The price in units of `10^-decimals`, if it is a whole number of them up to rounding.
fn on_grid(price: f64, decimals: i32) -> Option<u64> {
    let scale = 10_f64.powi(decimals);
    let units = (price * scale).round();
    // A decimal price and its grid point are the same float or neighbours (a mid price is a rounded average).
    let same = (units / scale - price).abs() <= 2.0 * f64::EPSILON * price;
    (same && (0.0..9_007_199_254_740_992.0).contains(&units)).then_some(units as u64)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_recognised() {
        for (want, prices) in [
            (0.25, [4000.25, 4000.5, 4001.0, 3999.75]),
            (1e-5, [1.05236, 1.05253, 1.05221, 1.05227]),
            (0.01, [118.56, 132.06, 118.5, 130.31]),
            (5e-6, [1.052365, 1.05237, 1.05238, 1.0524]),
            (1e-8, [9.12e-6, 9.13e-6, 9.11e-6, 9.1e-6 + 1e-8]),
            (1.0 / 256.0, [100.0, 100.00390625, 100.0078125, 100.015625]),
            (5.0, [20_000.0, 20_005.0, 20_015.0, 20_010.0]),
        ] {
            let got = infer_tick_size(&[&prices]);
            assert!((got - want).abs() <= 1e-12 * want, "{prices:?}: {got}, not {want}");
        }
    }

    #[test]
    fn prices_on_no_grid_give_a_millionth() {
        let got = infer_tick_size(&[&[3.301_592_653_589_79, 2.701_281_828_459_04]]);
        assert!((got - 2.701_281_828_459_04e-6).abs() < 1e-18, "{got}");
    }
}
