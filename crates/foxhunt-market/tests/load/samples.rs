//! The two sample files.

use foxhunt_core::settings::DataSettings;
use foxhunt_market::{MarketError, inspect, load};

use crate::support::{eurusd, load_plain, stocks};

#[test]
fn eurusd_is_understood() {
    let loaded = load_plain(&eurusd()).unwrap();
    let bars = &loaded.bars;
    assert_eq!(bars.len(), 6225);
    assert_eq!(bars.time[0], 1_483_308_000_000_000_000);
    assert_eq!(bars.time[6224], 1_514_581_200_000_000_000);
    assert_eq!(
        (bars.open[0], bars.high[0], bars.low[0], bars.close[0]),
        (1.05236, 1.05253, 1.05221, 1.05227)
    );
    assert_eq!(bars.volume.as_ref().unwrap()[0], 143_539_993.3);
    assert_eq!(bars.bar_ns, 3_600_000_000_000);
    assert!((bars.tick_size - 1e-5).abs() < 1e-17, "{}", bars.tick_size);
    let per_year = bars.bars_per_year(0..bars.len()).unwrap();
    assert!((per_year - 6280.6).abs() < 0.05, "{per_year}");
    assert_eq!(loaded.report.gaps.longest_seconds, 50.0 * 3600.0);
    assert_eq!(loaded.report.columns["time"], "Time");
    assert_eq!(loaded.report.rows_read, 6225);
    assert!(
        loaded.report.assumptions.iter().any(|a| a.contains("read as UTC")),
        "{:?}",
        loaded.report.assumptions
    );
}

#[test]
fn stocks_need_a_symbol_and_keep_it() {
    match load_plain(&stocks()).unwrap_err() {
        MarketError::SeveralSymbols { symbols, .. } => assert_eq!(symbols, ["AAPL", "IBM", "MSFT"]),
        other => panic!("{other}"),
    }
    for (symbol, first_close) in [("AAPL", 130.31), ("IBM", 100.25), ("MSFT", 90.81)] {
        let settings = DataSettings { symbol: Some(symbol.into()), ..DataSettings::default() };
        let loaded = load(&stocks(), &settings).unwrap();
        assert_eq!(loaded.bars.len(), 3270, "{symbol}");
        assert_eq!(loaded.bars.close[0], first_close, "{symbol}");
        assert_eq!(loaded.bars.symbol.as_deref(), Some(symbol));
        assert_eq!(loaded.report.rows_of_other_symbols, 2 * 3270);
        assert_eq!(loaded.bars.bar_ns, 86_400_000_000_000);
        assert_eq!(loaded.report.columns["close"], "Close", "the adjusted close is not used silently");
    }
    let settings = DataSettings { symbol: Some("TSLA".into()), ..DataSettings::default() };
    match load(&stocks(), &settings).unwrap_err() {
        MarketError::UnknownSymbol { symbol, found, .. } => {
            assert_eq!((symbol.as_str(), found.len()), ("TSLA", 3));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn splits_are_pointed_at() {
    let settings = DataSettings { symbol: Some("AAPL".into()), ..DataSettings::default() };
    let inspection = inspect(&load(&stocks(), &settings).unwrap());
    let days: Vec<&str> = inspection.jumps.iter().map(|jump| &jump.time[..10]).collect();
    for day in ["2000-06-21", "2005-02-28", "2000-09-29"] {
        assert!(days.contains(&day), "{day} not in {days:?}");
    }
    let text = inspection.to_string();
    assert!(text.contains("split"), "{text}");
    assert!(inspection.warnings.iter().any(|w| w.contains("Adj Close")), "{:?}", inspection.warnings);
    let eurusd = inspect(&load_plain(&eurusd()).unwrap());
    assert!(eurusd.jumps.is_empty(), "{:?}", eurusd.jumps);
}
