//! Properties: a clean series written in any dialect loads back equal; each kind of dirt is its own error.

use foxhunt_core::settings::DataSettings;
use foxhunt_market::{BarArrays, BarSeries, MarketError};
use proptest::prelude::*;

use crate::support::load_text_with;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    separator: char,
    names: usize,
    time: usize,
    bom: bool,
    line_end: &'static str,
    quotes: bool,
    decimal_comma: bool,
    blank_every: usize,
    final_line_end: bool,
    volume: bool,
    extra_column: bool,
}

const NAMES: [[&str; 6]; 5] = [
    ["timestamp", "open", "high", "low", "close", "volume"],
    [" Date ", "Open", "High", "Low", "Close", "Vol"],
    ["TS", "O", "H", "L", "C", "V"],
    ["open_time", "open_price", "high_price", "low_price", "close_price", "tick_volume"],
    ["Gmt time", "OPEN", "HIGH", "LOW", "CLOSE", "Volume USDT"],
];

const N_TIMES: usize = 9;

/// The times of the series are whole seconds, so that every layout can hold them.
pub(crate) fn write_time(ns: i64, layout: usize) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap();
    let local = jiff::tz::TimeZone::UTC.to_datetime(time);
    let (date, clock) = (local.date(), local.time());
    let (y, m, d) = (date.year(), date.month(), date.day());
    let (hour, minute, second) = (clock.hour(), clock.minute(), clock.second());
    match layout {
        0 => time.to_string(),
        1 => format!("{y:04}-{m:02}-{d:02} {hour:02}:{minute:02}:{second:02}"),
        2 => format!("{y:04}-{m:02}-{d:02} {hour:02}:{minute:02}:{second:02}+00:00"),
        3 => format!("{d:02}.{m:02}.{y:04} {hour:02}:{minute:02}:{second:02}.000"),
        4 => format!("{m}/{d}/{y:04} {hour}:{minute:02}:{second:02}"),
        5 => format!("{y:04}{m:02}{d:02} {hour:02}{minute:02}{second:02}"),
        6 => (ns / 1_000_000_000).to_string(),
        7 => (ns / 1_000_000).to_string(),
        _ => ns.to_string(),
    }
}

fn write(bars: &BarSeries, dialect: &Dialect) -> String {
    let mut rows = Vec::new();
    let row = |mut fields: Vec<String>| {
        if !dialect.volume {
            fields.remove(5);
        }
        if dialect.extra_column {
            fields.push("note; \"x\"".replace([';', '"'], ""));
        }
        let fields = fields.into_iter().map(|field| {
            let quoted = dialect.quotes || field.contains(dialect.separator);
            if quoted { format!("\"{field}\"") } else { field }
        });
        fields.collect::<Vec<_>>().join(&dialect.separator.to_string())
    };
    rows.push(row(NAMES[dialect.names].map(str::to_owned).to_vec()));
    for t in 0..bars.len() {
        let number = |value: f64| {
            let text = value.to_string();
            if dialect.decimal_comma { text.replace('.', ",") } else { text }
        };
        rows.push(row(vec![
            write_time(bars.time[t], dialect.time),
            number(bars.open[t]),
            number(bars.high[t]),
            number(bars.low[t]),
            number(bars.close[t]),
            number(bars.volume.as_ref().unwrap()[t]),
        ]));
        if dialect.blank_every > 0 && t % dialect.blank_every == 0 {
            rows.push(String::new());
        }
    }
    let mut text = rows.join(dialect.line_end);
    if dialect.final_line_end {
        text += dialect.line_end;
    }
    if dialect.bom { format!("\u{feff}{text}") } else { text }
}

fn settings(dialect: &Dialect) -> DataSettings {
    DataSettings { decimal_comma: dialect.decimal_comma, ..DataSettings::default() }
}

prop_compose! {
    fn dialects()(
        separator in prop::sample::select(vec![',', ';', '\t']),
        names in 0..NAMES.len(),
        time in 0..N_TIMES,
        bom: bool,
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        quotes: bool,
        decimal_comma: bool,
        blank_every in 0..4_usize,
        final_line_end: bool,
        volume: bool,
        extra_column: bool,
    ) -> Dialect {
        Dialect {
            separator, names, time, bom, line_end, quotes, decimal_comma, blank_every, final_line_end, volume,
            extra_column,
        }
    }
}

prop_compose! {
    /// Between 2001 and 2033, a second to some days apart, prices of up to six decimals.
    pub(crate) fn series()(
        start in 1_000_000_000_i64..2_000_000_000,
        steps in prop::collection::vec((1_i64..200_000, 1_u32..100_000_000, 0_u32..1000, 0_u32..1000, 0_u32..1000, 0_u32..1_000_000), 2..60),
        decimals in 0_i32..7,
    ) -> BarSeries {
        let scale = 10_f64.powi(decimals);
        let mut arrays = BarArrays { volume: Some(Vec::new()), ..BarArrays::default() };
        let mut now = start;
        for (step, base, a, b, c, volume) in steps {
            now += step;
            let price = |units: u32| f64::from(units) / scale;
            arrays.time.push(now * 1_000_000_000);
            arrays.low.push(price(base));
            arrays.open.push(price(base + a));
            arrays.close.push(price(base + b));
            arrays.high.push(price(base + a.max(b) + c));
            arrays.volume.as_mut().unwrap().push(f64::from(volume) / 8.0);
        }
        BarSeries::from_arrays(None, arrays).unwrap()
    }
}

/// A kind of dirt, put into one row.
#[derive(Clone, Copy, Debug)]
enum Dirt {
    NotANumber,
    NotFinite,
    Missing,
    NotPositive,
    HighTooLow,
    LowTooHigh,
    NegativeVolume,
    BadTime,
    Unsorted,
    Duplicate,
    Conflict,
    FieldCount,
    DecimalComma,
}

const DIRT: [Dirt; 13] = [
    Dirt::NotANumber,
    Dirt::NotFinite,
    Dirt::Missing,
    Dirt::NotPositive,
    Dirt::HighTooLow,
    Dirt::LowTooHigh,
    Dirt::NegativeVolume,
    Dirt::BadTime,
    Dirt::Unsorted,
    Dirt::Duplicate,
    Dirt::Conflict,
    Dirt::FieldCount,
    Dirt::DecimalComma,
];

/// Writes a plain file with dirt in bar `at` (not the first), and says what the error must be, and where.
fn soil(
    bars: &BarSeries,
    dirt: Dirt,
    at: usize,
    column: usize,
) -> (String, fn(&MarketError) -> bool, u64, &'static str) {
    let names = NAMES[0];
    let mut rows: Vec<Vec<String>> = (0..bars.len())
        .map(|t| {
            let numbers =
                [bars.open[t], bars.high[t], bars.low[t], bars.close[t], bars.volume.as_ref().unwrap()[t]];
            let mut row = vec![write_time(bars.time[t], 1)];
            row.extend(numbers.map(|x| x.to_string()));
            row
        })
        .collect();
    let row = at as u64 + 2;
    let mut where_ = (row, names[column]);
    let check: fn(&MarketError) -> bool = match dirt {
        Dirt::NotANumber => {
            rows[at][column] = "12x".into();
            |e| matches!(e, MarketError::NotANumber { value, .. } if value == "12x")
        }
        Dirt::NotFinite => {
            rows[at][column] = "NaN".into();
            |e| matches!(e, MarketError::NotFinite { .. })
        }
        Dirt::Missing => {
            rows[at][column] = String::new();
            |e| matches!(e, MarketError::MissingValue { .. })
        }
        Dirt::NotPositive => {
            where_.1 = "low";
            rows[at][3] = "-1".into();
            |e| matches!(e, MarketError::NotPositive { .. })
        }
        Dirt::HighTooLow => {
            where_.1 = "high";
            let bound = bars.open[at].max(bars.close[at]);
            rows[at][2] = (bound * 0.5).to_string();
            |e| matches!(e, MarketError::HighTooLow { .. })
        }
        Dirt::LowTooHigh => {
            where_.1 = "low";
            let bound = bars.open[at].min(bars.close[at]);
            rows[at][3] = (bound * 1.5).to_string();
            |e| matches!(e, MarketError::LowTooHigh { .. })
        }
        Dirt::NegativeVolume => {
            where_.1 = "volume";
            rows[at][5] = "-1".into();
            |e| matches!(e, MarketError::Negative { .. })
        }
        Dirt::BadTime => {
            where_.1 = "timestamp";
            rows[at][0] = "2024-02-30 00:00:00".into();
            |e| matches!(e, MarketError::BadTime { .. })
        }
        Dirt::Unsorted => {
            where_.1 = "timestamp";
            rows[at][0] = write_time(bars.time[0] - 1_000_000_000, 1);
            |e| matches!(e, MarketError::Unsorted { .. })
        }
        Dirt::Duplicate => {
            where_.1 = "timestamp";
            rows[at] = rows[at - 1].clone();
            |e| matches!(e, MarketError::Duplicate { .. })
        }
        Dirt::Conflict => {
            where_.1 = "volume";
            rows[at] = rows[at - 1].clone();
            rows[at][5] = "123456789".into();
            |e| matches!(e, MarketError::Conflict { .. })
        }
        Dirt::FieldCount => {
            where_.1 = "";
            rows[at].pop();
            |e| matches!(e, MarketError::FieldCount { .. })
        }
        Dirt::DecimalComma => {
            rows[at][column] = "\"1,5\"".into();
            |e| matches!(e, MarketError::DecimalComma { .. })
        }
    };
    let body: String = rows.iter().map(|row| row.join(",") + "\n").collect();
    (format!("{}\n{body}", names.join(",")), check, where_.0, where_.1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_dialect_loads_back_equal(bars in series(), dialect in dialects()) {
        let text = write(&bars, &dialect);
        let loaded = load_text_with(&text, &settings(&dialect));
        let loaded = loaded.map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let mut want = bars;
        if !dialect.volume {
            want.volume = None;
        }
        prop_assert_eq!(loaded.bars, want);
    }

    #[test]
    fn each_kind_of_dirt_is_its_own_error(
        bars in series(),
        dirt in prop::sample::select(DIRT.to_vec()),
        place in any::<prop::sample::Index>(),
        column in 1_usize..5,
    ) {
        let at = 1 + place.index(bars.len() - 1);
        let (text, is_right, row, column) = soil(&bars, dirt, at, column);
        match load_text_with(&text, &DataSettings::default()) {
            Ok(_) => prop_assert!(false, "{dirt:?} was loaded\n{text}"),
            Err(error) => {
                prop_assert!(is_right(&error), "{dirt:?}: {error}\n{text}");
                let message = error.to_string();
                prop_assert!(message.contains(&format!("row {row}")), "{message}");
                prop_assert!(column.is_empty() || message.contains(&format!("column {column}")), "{message}");
            }
        }
    }

    /// Bytes at random are refused or read, never a panic.
    #[test]
    fn random_bytes_never_panic(
        start in prop::sample::select(vec![&b""[..], b"time,open,high,low,close\n", b"PAR1", b"DBN\x02", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = load_text_with([start, &bytes].concat(), &DataSettings::default());
    }

    /// Text of the characters bar files are made of is refused or read, never a panic.
    #[test]
    fn random_text_never_panics(text in "(time,open,high,low,close\n)?[0-9,.;:\"\n\r\t /TZ+eE-]{0,200}") {
        let _ = load_text_with(text, &DataSettings::default());
    }
}
