//! The market in device memory: features and bars as environments read them, uploaded once.
//!
//! A bar is one line of 64 bytes: two lines, the bar decided at and the one after it, are all that a step reads beside
//! the features. What the router makes of a bar does not depend on the exposure, so it is stored as its answer.

use foxhunt_core::Exposure;
use foxhunt_cuda::{CudaError, DeviceBuffer, DevicePtr, Launch, Stream, shared_struct};
use foxhunt_market::Market as HostMarket;

/// Text of `env_step.cuh`.
pub const ENV_STEP_CUH: &str = include_str!("env_step.cuh");

shared_struct! {
    /// One bar, 64 bytes.
    pub struct Bar {
        /// Price units; NaN, as high and low, in a bar made to fill a gap, so that nothing fills in it.
        pub open: f64,
        /// Price units.
        pub high: f64,
        /// Price units.
        pub low: f64,
        /// Price units.
        pub close: f64,
        /// Units; infinity where the file has none.
        pub volume: f64,
        /// Price units.
        pub half_spread: f64,
        /// Order type and urgency that the router chooses: `order_type * 3 + urgency`.
        pub route: u32,
        /// Features of the bar that are not finite; 0 in every prepared market.
        pub bad_features: u32,
        pad: u64,
    }
}

shared_struct! {
    /// The market, as kernels take it.
    pub(crate) struct Market {
        bars: DevicePtr<Bar>,
        features: DevicePtr<f32>,
        tick_size: f64,
        n_bars: u64,
    }
}

/// Features and bars in device memory, never changed.
#[derive(Debug)]
pub struct DeviceMarket {
    /// [`Bar`] `[n_bars]`.
    bars: DeviceBuffer<Bar>,
    /// f32 `[n_bars, 48]`, row-major.
    features: DeviceBuffer<f32>,
    tick_size: f64,
}

impl DeviceMarket {
    /// Device bytes that a market of `n_bars` bars takes, to print before they are taken.
    #[must_use]
    pub fn bytes_for(n_bars: usize) -> u64 {
        let row = size_of::<Bar>() + foxhunt_market::N_MARKET_FEATURES * size_of::<f32>();
        n_bars as u64 * row as u64
    }

    /// Copies `market` to the device.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] with bytes asked and free, and driver errors.
    pub fn upload(stream: &Stream, market: &HostMarket) -> Result<Self, CudaError> {
        let (bytes, (free, _)) = (Self::bytes_for(market.len()), stream.device().memory()?);
        if bytes > free {
            return Err(CudaError::OutOfMemory { what: "the market", bytes, free });
        }
        let bars: Vec<Bar> = (0..market.len()).map(|bar| pack(market, bar)).collect();
        Ok(Self {
            bars: stream.upload_new("market bars", &bars)?,
            features: stream.upload_new("market features", &market.features)?,
            tick_size: market.tick_size,
        })
    }

    /// Number of bars.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bars.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    /// Bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bars.bytes() + self.features.bytes()
    }

    /// f32 `[n_bars, 48]` on the device.
    pub(crate) fn features(&self) -> DevicePtr<f32> {
        self.features.ptr()
    }

    pub(crate) fn view(&self) -> Market {
        Market {
            bars: self.bars.ptr(),
            features: self.features.ptr(),
            tick_size: self.tick_size,
            n_bars: self.len() as u64,
        }
    }

    pub(crate) fn keep<'k>(&self, launch: Launch<'k>) -> Launch<'k> {
        launch.keep(&self.bars).keep(&self.features)
    }
}

fn pack(market: &HostMarket, bar: usize) -> Bar {
    let bars = &market.bars;
    let [open, high, low] = market.fill_prices(bar);
    Bar {
        open,
        high,
        low,
        close: bars.close[bar],
        volume: bars.volume.as_ref().map_or(f64::INFINITY, |volume| volume[bar]),
        half_spread: market.half_spread[bar],
        // Exposure number 0 leaves order type and urgency alone in the index.
        route: market.route(bar, Exposure::Short).index(),
        bad_features: crate::guard::count_non_finite(market.feature_row(bar)),
        pad: 0,
    }
}

#[cfg(test)]
mod tests {
    use foxhunt_core::Settings;
    use foxhunt_market::synthetic::RandomWalk;
    use foxhunt_market::{N_MARKET_FEATURES, Normalise};

    use super::*;

    /// A bar on the device says what the environment of the CPU reads: prices to fill at, volume, spread, route.
    #[test]
    fn a_packed_bar_says_what_the_market_does() {
        let walk = RandomWalk { n_bars: 900, seed: 2, volatility: 0.01, start_price: 9.0 };
        let execution = Settings::default().execution;
        let first = foxhunt_market::features::first_bar(&execution);
        let mut market =
            HostMarket::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(first..900)).unwrap();
        market.features[700 * N_MARKET_FEATURES + 3] = f32::NAN;
        market.bars.made = (0..900).map(|bar| bar % 50 == 0).collect();
        for bar in first..899 {
            let (now, next) = (pack(&market, bar), pack(&market, bar + 1));
            let context = market.bar_context(bar, 1.0, 0.0, true);
            let want = [context.next_open, context.next_high, context.next_low, context.next_volume];
            let got = [next.open, next.high, next.low, next.volume];
            assert_eq!(got.map(f64::to_bits), want.map(f64::to_bits), "bar {bar}");
            assert_eq!((now.close, now.half_spread), (context.close, context.half_spread));
            assert_eq!(now.route, market.route(bar, Exposure::Flat).index() - 18);
            assert_eq!(now.bad_features, u32::from(bar == 700));
        }
    }
}
