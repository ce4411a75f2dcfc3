//! Column names to what they mean.
//!
//! Names are compared trimmed, without case, with spaces and hyphens as underscores and without angle brackets. Two
//! columns that could be the same thing are an error: nothing is picked silently.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bars::{Column, PRICES};
use crate::error::MarketError;

const TIME_NAMES: [&str; 11] = [
    "timestamp",
    "time",
    "date",
    "datetime",
    "date_time",
    "open_time",
    "ts_event",
    "ts",
    "t",
    "gmt_time",
    "local_time",
];

/// Names that are times only when nothing else is: a blank first header and its name in Parquet files of pandas.
const FALLBACK_TIME_NAMES: [&str; 2] = ["", "__index_level_0__"];

const VOLUME_NAMES: [&str; 5] = ["v", "vol", "volume", "tick_volume", "volume_usdt"];
const SYMBOL_NAMES: [&str; 3] = ["ticker", "symbol", "instrument"];

/// Where the time of a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeColumns {
    One(usize),
    Pair { date: usize, time: usize },
}

/// Where the prices of a row stand; indices are open, high, low, close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriceColumns {
    Plain([usize; 4]),
    BidAsk { bid: [usize; 4], ask: [usize; 4] },
}

/// Where the spread of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpreadColumn {
    None,
    Column(usize),
    /// Ask minus bid at the close.
    Difference {
        bid: usize,
        ask: usize,
    },
}

/// The meaning of the columns of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Names as written, trimmed.
    pub(super) names: Vec<String>,
    pub(super) time: TimeColumns,
    pub(super) prices: PriceColumns,
    pub(super) volume: Option<usize>,
    pub(super) spread: SpreadColumn,
    pub(super) symbol: Option<usize>,
}

impl Layout {
    /// Works out the meaning of a header.
    pub(super) fn resolve(path: &Path, names: &[String]) -> Result<Self, MarketError> {
        let keys: Vec<String> = names.iter().map(|name| normalise(name)).collect();
        let finder = Finder { path, names, keys: &keys };

        let volume = finder.one("volume", &VOLUME_NAMES)?;
        let symbol = finder.one("symbol", &SYMBOL_NAMES)?;
        let spread = finder.one("spread", &["spread"])?;
        let plain = finder.quote("")?;
        let bid = finder.quote("bid_")?;
        let ask = finder.quote("ask_")?;
        let time = finder.time()?;

        let mut missing = Vec::new();
        if time.is_none() {
            missing.push("time".to_owned());
        }
        let prices = match (whole(plain), whole(bid), whole(ask)) {
            (Some(plain), _, _) => Some(PriceColumns::Plain(plain)),
            (None, Some(bid), Some(ask)) => Some(PriceColumns::BidAsk { bid, ask }),
            _ => {
                // Name what the nearest of the two layouts lacks.
                let quoted = bid.iter().chain(&ask).any(Option::is_some) && plain.iter().all(Option::is_none);
                let layouts: &[(&str, [Option<usize>; 4])] =
                    if quoted { &[("bid_", bid), ("ask_", ask)] } else { &[("", plain)] };
                for (prefix, found) in layouts {
                    for (column, index) in PRICES.iter().zip(found) {
                        if index.is_none() {
                            missing.push(format!("{prefix}{}", column.name()));
                        }
                    }
                }
                None
            }
        };
        let (Some(time), Some(prices), true) = (time, prices, missing.is_empty()) else {
            return Err(MarketError::MissingColumns { path: path.into(), missing, found: names.to_vec() });
        };

        let spread = match (spread, bid[3], ask[3]) {
            (Some(column), Some(bid), Some(_)) => {
                return Err(finder.two("spread", column, bid));
            }
            (Some(column), _, _) => SpreadColumn::Column(column),
            (None, Some(bid), Some(ask)) => SpreadColumn::Difference { bid, ask },
            (None, _, _) => SpreadColumn::None,
        };
        Ok(Self { names: names.to_vec(), time, prices, volume, spread, symbol })
    }

    /// The header-less layouts: Binance klines of 12 columns, and HistData bars of 6 behind `YYYYMMDD HHMMSS`.
    pub(super) fn headerless(first_line: &[&str]) -> Option<(Self, &'static str)> {
        let numbers =
            |fields: &[&str]| fields.iter().all(|f| f.trim().parse::<f64>().is_ok_and(f64::is_finite));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let klines = ["open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume"];
        let (names, what): (Vec<String>, _) = match first_line {
            [time, rest @ ..] if first_line.len() == 12 && digits(time.trim()) && numbers(rest) => {
                let more = ["trades", "taker_base_volume", "taker_quote_volume", "ignore"];
                (
                    klines.iter().chain(&more).map(ToString::to_string).collect(),
                    "Binance klines without header",
                )
            }
            [time, rest @ ..]
                if first_line.len() == 6
                    && time.split_once(' ').is_some_and(|(date, clock)| {
                        date.len() == 8 && clock.len() == 6 && digits(date) && digits(clock)
                    })
                    && numbers(rest) =>
            {
                (klines[..6].iter().map(ToString::to_string).collect(), "HistData bars without header")
            }
            _ => return None,
        };
        let layout = Self {
            names,
            time: TimeColumns::One(0),
            prices: PriceColumns::Plain([1, 2, 3, 4]),
            volume: Some(5),
            spread: SpreadColumn::None,
            symbol: None,
        };
        Some((layout, what))
    }

    /// The name of the column a value of a bar came from.
    pub(super) fn name_of(&self, column: Column) -> String {
        let name = |index: usize| self.names.get(index).cloned().unwrap_or_default();
        let price = |which: usize| match self.prices {
            PriceColumns::Plain(columns) => name(columns[which]),
            PriceColumns::BidAsk { bid, ask } => format!("{} and {}", name(bid[which]), name(ask[which])),
        };
        match column {
            Column::Open => price(0),
            Column::High => price(1),
            Column::Low => price(2),
            Column::Close => price(3),
            Column::Volume => self.volume.map(name).unwrap_or_default(),
            Column::Spread => match self.spread {
                SpreadColumn::None => String::new(),
                SpreadColumn::Column(index) => name(index),
                SpreadColumn::Difference { bid, ask } => format!("{} - {}", name(ask), name(bid)),
            },
        }
    }

    /// The name of the time column.
    pub(super) fn time_name(&self) -> String {
        let name = |index: usize| self.names.get(index).cloned().unwrap_or_default();
        match self.time {
            TimeColumns::One(index) => name(index),
            TimeColumns::Pair { date, time } => format!("{} + {}", name(date), name(time)),
        }
    }

    /// Numbers of the columns used, ascending.
    pub(super) fn used(&self) -> Vec<usize> {
        let mut used = match self.time {
            TimeColumns::One(column) => vec![column],
            TimeColumns::Pair { date, time } => vec![date, time],
        };
        match self.prices {
            PriceColumns::Plain(columns) => used.extend(columns),
            PriceColumns::BidAsk { bid, ask } => used.extend(bid.into_iter().chain(ask)),
        }
        match self.spread {
            SpreadColumn::None => {}
            SpreadColumn::Column(column) => used.push(column),
            SpreadColumn::Difference { bid, ask } => used.extend([bid, ask]),
        }
        used.extend(self.volume);
        used.extend(self.symbol);
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Names of the columns not used.
    pub(super) fn ignored(&self) -> Vec<String> {
        let used = self.used();
        let names = self.names.iter().enumerate();
        names.filter(|(index, _)| !used.contains(index)).map(|(_, name)| name.clone()).collect()
    }

    /// Role to column name, for the data report.
    pub(super) fn mapping(&self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::from([("time".to_owned(), self.time_name())]);
        for column in PRICES {
            map.insert(column.name().into(), self.name_of(column));
        }
        for (column, there) in
            [(Column::Volume, self.volume.is_some()), (Column::Spread, self.spread != SpreadColumn::None)]
        {
            if there {
                map.insert(column.name().into(), self.name_of(column));
            }
        }
        if let Some(index) = self.symbol {
            map.insert("symbol".into(), self.names[index].clone());
        }
        map
    }
}

struct Finder<'a> {
    path: &'a Path,
    names: &'a [String],
    keys: &'a [String],
}

impl Finder<'_> {
    /// The one column whose key is among `wanted`.
    fn one(&self, role: &'static str, wanted: &[&str]) -> Result<Option<usize>, MarketError> {
        let mut found = (0..self.keys.len()).filter(|&i| wanted.contains(&self.keys[i].as_str()));
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => Err(self.two(role, first, second)),
            (first, _) => Ok(first),
        }
    }

    fn two(&self, role: &'static str, first: usize, second: usize) -> MarketError {
        MarketError::TwoColumns {
            path: self.path.into(),
            role,
            first: self.names[first].clone(),
            second: self.names[second].clone(),
        }
    }

    fn quote(&self, prefix: &str) -> Result<[Option<usize>; 4], MarketError> {
        let mut found = [None; 4];
        for (slot, column) in found.iter_mut().zip(PRICES) {
            let name = column.name();
            let wanted = [
                format!("{prefix}{}", &name[..1]),
                format!("{prefix}{name}"),
                format!("{prefix}{name}_price"),
            ];
            *slot = self.one(name, &wanted.each_ref().map(String::as_str))?;
        }
        Ok(found)
    }

    fn time(&self) -> Result<Option<TimeColumns>, MarketError> {
        let found: Vec<usize> =
            (0..self.keys.len()).filter(|&i| TIME_NAMES.contains(&self.keys[i].as_str())).collect();
        match found[..] {
            [] => {
                let fallback = self.keys.iter().position(|key| FALLBACK_TIME_NAMES.contains(&key.as_str()));
                // A blank header further right is no index.
                Ok(fallback.filter(|&i| i == 0 || !self.keys[i].is_empty()).map(TimeColumns::One))
            }
            [one] => Ok(Some(TimeColumns::One(one))),
            [first, second] => match (self.keys[first].as_str(), self.keys[second].as_str()) {
                ("date", "time") => Ok(Some(TimeColumns::Pair { date: first, time: second })),
                ("time", "date") => Ok(Some(TimeColumns::Pair { date: second, time: first })),
                _ => Err(self.two("time", first, second)),
            },
            [first, second, ..] => Err(self.two("time", first, second)),
        }
    }
}

fn whole(found: [Option<usize>; 4]) -> Option<[usize; 4]> {
    match found {
        [Some(open), Some(high), Some(low), Some(close)] => Some([open, high, low, close]),
        _ => None,
    }
}

fn normalise(name: &str) -> String {
    let name = name.trim();
    let name = name.strip_prefix('<').and_then(|n| n.strip_suffix('>')).unwrap_or(name);
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(header: &str) -> Result<Layout, MarketError> {
        let names: Vec<String> = header.split(',').map(|n| n.trim().to_owned()).collect();
        Layout::resolve(Path::new("x.csv"), &names)
    }

    /// Case G19: cases, spaces and aliases are one name; volume may be missing.
    #[test]
    fn case_g19_header_names() {
        for header in [
            "Date,Open,High,Low, Close ,Volume",
            "TIMESTAMP,OPEN,HIGH,LOW,CLOSE,VOL",
            "ts,o,h,l,c,v",
            "open_time,open_price,high_price,low_price,close_price,tick_volume",
            "Gmt time,Open,High,Low,Close,Volume USDT",
            "Local time,Open,High,Low,Close,Volume",
            ",Open,High,Low,Close,Volume",
            "<DATE>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>",
            "ts_event,open,high,low,close,volume",
        ] {
            let layout = resolve(header).unwrap();
            assert_eq!(layout.time, TimeColumns::One(0), "{header}");
            assert_eq!(layout.prices, PriceColumns::Plain([1, 2, 3, 4]), "{header}");
            assert_eq!(layout.volume, Some(5), "{header}");
        }
        assert_eq!(resolve("time,open,high,low,close").unwrap().volume, None);
        let pair = resolve("Time,Date,Open,High,Low,Close").unwrap();
        assert_eq!(pair.time, TimeColumns::Pair { date: 1, time: 0 });
        // The blank index of a data frame gives way to a named time.
        assert_eq!(resolve(",date,open,high,low,close").unwrap().time, TimeColumns::One(1));
        assert_eq!(resolve("Ticker,Date,Open,High,Low,Close,Volume,Adj Close").unwrap().symbol, Some(0));
    }

    /// Case G19: two matches name both columns; a missing column lists what was found.
    #[test]
    fn case_g19_two_matches_and_none() {
        for (header, role, a, b) in [
            ("time,open,high,low,close,Close", "close", "close", "Close"),
            ("time,timestamp,open,high,low,close", "time", "time", "timestamp"),
            ("date,time,ts,open,high,low,close", "time", "date", "time"),
            ("t,open,high,low,close,Vol,volume", "volume", "Vol", "volume"),
            ("t,symbol,ticker,open,high,low,close", "symbol", "symbol", "ticker"),
        ] {
            match resolve(header) {
                Err(MarketError::TwoColumns { role: r, first, second, .. }) => {
                    assert_eq!((r, first.as_str(), second.as_str()), (role, a, b), "{header}");
                }
                other => panic!("{header}: {other:?}"),
            }
        }
        match resolve("when,open,high,close") {
            Err(MarketError::MissingColumns { missing, found, .. }) => {
                assert_eq!(missing, ["time", "low"]);
                assert_eq!(found, ["when", "open", "high", "close"]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn quotes_give_mid_and_spread() {
        let sides = "bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close";
        let layout = resolve(&format!("time,{sides}")).unwrap();
        assert_eq!(layout.prices, PriceColumns::BidAsk { bid: [1, 2, 3, 4], ask: [5, 6, 7, 8] });
        assert_eq!(layout.spread, SpreadColumn::Difference { bid: 4, ask: 8 });
        let layout = resolve(&format!("time,open,high,low,close,{sides}")).unwrap();
        assert_eq!(layout.prices, PriceColumns::Plain([1, 2, 3, 4]));
        assert_eq!(layout.spread, SpreadColumn::Difference { bid: 8, ask: 12 });
        assert!(matches!(
            resolve(&format!("time,{sides},spread")),
            Err(MarketError::TwoColumns { role: "spread", .. })
        ));
        match resolve("time,bid_open,bid_high,bid_low,bid_close,ask_close") {
            Err(MarketError::MissingColumns { missing, .. }) => {
                assert_eq!(missing, ["ask_open", "ask_high", "ask_low"]);
            }
            other => panic!("{other:?}"),
        }
    }
}
