//! Dirty files from a generator, held against a model of what is in them: a file is refused with its name, the row and
//! a short text, or its bars are the clean rows and every repair is counted. Nothing is lost in silence.

use std::collections::BTreeMap;
use std::io::Write as _;

use foxhunt_core::settings::{DataSettings, Repair};
use foxhunt_market::{BarArrays, BarSeries, Loaded, MarketError, load};
use proptest::prelude::*;

use crate::dialects::{series, write_time};
use crate::support::file;

/// Longest text of an error, bytes, however large the value it is about.
const MAX_ERROR_BYTES: usize = 1000;

/// What happens to the order and number of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disorder {
    Swap(prop::sample::Index, prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
    Drop(prop::sample::Index),
}

/// What makes one row no bar.
#[derive(Clone, Debug)]
enum Spoil {
    /// Another text in a price or volume.
    Field(usize, &'static str),
    /// The highest or lowest price on the wrong side.
    Upside,
    Downside,
    Time(&'static str),
    /// Bytes that are no UTF-8, in any column.
    Bytes(usize),
    /// A field of so many digits.
    Huge(usize, usize),
    MissingField,
    SurplusField,
    OtherSeparator,
    OpenQuote(usize),
    /// The line ends with a carriage return where the file has line feeds.
    CarriageReturn,
    Zero,
    /// A zero byte inside a value.
    ZeroByte(usize),
}

/// How the file is written, all of it harmless.
#[derive(Clone, Copy, Debug)]
struct Hand {
    separator: char,
    time: usize,
    bom: bool,
    /// Two ends that lines take in turn.
    ends: [&'static str; 2],
    quotes: usize,
    blank_every: usize,
    spaces: bool,
    final_end: bool,
    surplus_blank: bool,
    compression: u8,
}

fn spoils() -> impl Strategy<Value = Spoil> {
    let words = vec![
        "NaN",
        "inf",
        "-Infinity",
        "1e999",
        "",
        "  ",
        "-",
        "n/a",
        "null",
        "abc",
        "1.2.3",
        "0x10",
        "1_000",
        "--1",
        "-1",
        "\u{0661}",
        "1 000",
        "$5",
        "1,5",
        "=A1",
        "#REF!",
        "true",
    ];
    let times = vec![
        "2024-02-30 00:00:00",
        "",
        "yesterday",
        "2024-01-01 25:00",
        "32503680000",
        "12345678901234567890",
        "\u{fffd}",
    ];
    prop_oneof![
        6 => (1_usize..6, prop::sample::select(words)).prop_map(|(column, word)| Spoil::Field(column, word)),
        1 => Just(Spoil::Upside),
        1 => Just(Spoil::Downside),
        1 => Just(Spoil::Zero),
        2 => prop::sample::select(times).prop_map(Spoil::Time),
        2 => (0_usize..6).prop_map(Spoil::Bytes),
        1 => (1_usize..6, prop::sample::select(vec![400, 70_000, 1_100_000])).prop_map(|(c, n)| Spoil::Huge(c, n)),
        1 => Just(Spoil::MissingField),
        1 => Just(Spoil::SurplusField),
        1 => Just(Spoil::OtherSeparator),
        1 => (0_usize..6).prop_map(Spoil::OpenQuote),
        2 => Just(Spoil::CarriageReturn),
        2 => (0_usize..6).prop_map(Spoil::ZeroByte),
    ]
}

pub(crate) fn disorders() -> impl Strategy<Value = Vec<Disorder>> {
    let any = prop_oneof![
        any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(a, b)| Disorder::Swap(a, b)),
        any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(a, b)| Disorder::Repeat(a, b)),
        any::<prop::sample::Index>().prop_map(Disorder::Drop),
    ];
    prop_oneof![Just(Vec::new()), prop::collection::vec(any, 1..5)]
}

prop_compose! {
    fn hands()(
        separator in prop::sample::select(vec![',', ';', '\t']),
        time in 0..7_usize,
        bom: bool,
        ends in prop::sample::select(vec![["\n", "\n"], ["\r\n", "\r\n"], ["\n", "\r\n"]]),
        quotes in 0..4_usize,
        blank_every in 0..4_usize,
        spaces: bool,
        final_end: bool,
        surplus_blank: bool,
        compression in 0..3_u8,
    ) -> Hand {
        Hand { separator, time, bom, ends, quotes, blank_every, spaces, final_end, surplus_blank, compression }
    }
}

/// Bars in file order, with what disorder there is.
pub(crate) fn disordered(n_bars: usize, disorders: &[Disorder]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n_bars).collect();
    for disorder in disorders {
        match disorder {
            Disorder::Swap(a, b) => {
                let (a, b) = (a.index(order.len()), b.index(order.len()));
                order.swap(a, b);
            }
            Disorder::Repeat(from, to) => {
                let bar = order[from.index(order.len())];
                order.insert(to.index(order.len() + 1), bar);
            }
            Disorder::Drop(at) => {
                let at = at.index(order.len());
                let left = order.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, bar)| *bar);
                if left.collect::<std::collections::BTreeSet<_>>().len() >= 2 {
                    order.remove(at);
                }
            }
        }
    }
    order
}

/// What must come of rows in this order, when each of them is a bar.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Bars { kept: Vec<usize>, unsorted: u64, duplicates: u64 },
    OutOfOrder,
}

pub(crate) fn outcome(order: &[usize], repair: &[Repair]) -> Outcome {
    let (sort, dedup) = (repair.contains(&Repair::Unsorted), repair.contains(&Repair::Duplicates));
    let mut latest = 0;
    let unsorted = order.iter().filter(|&&bar| {
        let late = bar < latest;
        latest = latest.max(bar);
        late
    });
    let unsorted = unsorted.count() as u64;
    let mut kept = order.to_vec();
    kept.sort_unstable();
    kept.dedup();
    let duplicates = (order.len() - kept.len()) as u64;
    if (unsorted > 0 && !sort) || (duplicates > 0 && !dedup) {
        return Outcome::OutOfOrder;
    }
    Outcome::Bars { kept, unsorted, duplicates }
}

/// The rows as bytes, and the line number of each.
fn write(bars: &BarSeries, order: &[usize], spoiled: &[(usize, Spoil)], hand: &Hand) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = if hand.bom { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
    let (mut line, mut lines) = (1, Vec::new());
    let separator = hand.separator.to_string();
    bytes.extend(["time", "open", "high", "low", "close", "volume"].join(&separator).as_bytes());
    bytes.extend(hand.ends[0].as_bytes());
    for (at, &bar) in order.iter().enumerate() {
        line += 1;
        lines.push(line);
        let mut fields: Vec<Vec<u8>> = vec![write_time(bars.time[bar], hand.time).into_bytes()];
        let volume = bars.volume.as_ref().unwrap()[bar];
        for value in [bars.open[bar], bars.high[bar], bars.low[bar], bars.close[bar], volume] {
            fields.push(value.to_string().into_bytes());
        }
        if hand.spaces {
            fields.iter_mut().skip(1).for_each(|field| field.insert(0, b' '));
        }
        let quoted = hand.quotes > 0 && at % hand.quotes == 0;
        let mut separator = hand.separator;
        let mut end = hand.ends[at % 2];
        for (_, spoil) in spoiled.iter().filter(|(row, _)| *row == at) {
            let mut put = |column: usize, text: &[u8]| {
                // A row that lost a field is spoiled already.
                if let Some(field) = fields.get_mut(column) {
                    *field = text.to_vec();
                }
            };
            match spoil {
                Spoil::Field(column, word) => put(*column, word.as_bytes()),
                Spoil::Upside => put(2, (0.5 * bars.low[bar]).to_string().as_bytes()),
                Spoil::Downside => put(3, (2.0 * bars.high[bar]).to_string().as_bytes()),
                Spoil::Zero => put(4, b"0"),
                Spoil::Time(text) => put(0, text.as_bytes()),
                Spoil::Bytes(column) => put(*column, b"1\xff\xfe"),
                Spoil::Huge(column, digits) => put(*column, &vec![b'7'; *digits]),
                Spoil::OpenQuote(column) => put(*column, b"\"1"),
                Spoil::MissingField => drop(fields.pop()),
                Spoil::SurplusField => fields.push(b"x".to_vec()),
                Spoil::OtherSeparator => separator = if hand.separator == ';' { '\t' } else { ';' },
                Spoil::CarriageReturn => end = "\r",
                Spoil::ZeroByte(column) => put(*column, b"1\x000"),
            }
        }
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                write!(&mut bytes, "{separator}").unwrap();
            }
            // What holds a separator has to be quoted, whoever writes it.
            let needs_quotes = field.contains(&(separator as u8)) && !field.contains(&b'"');
            let quote: &[u8] = if (quoted && !field.contains(&b'"')) || needs_quotes { b"\"" } else { b"" };
            bytes.extend([quote, field, quote].concat());
        }
        if hand.surplus_blank && end != "\r" {
            write!(&mut bytes, "{separator} ").unwrap();
        }
        if at + 1 < order.len() || hand.final_end {
            bytes.extend(end.as_bytes());
        }
        if hand.blank_every > 0 && at % hand.blank_every == 0 && at + 1 < order.len() && end != "\r" {
            bytes.extend(hand.ends[1].as_bytes());
            line += 1;
        }
    }
    (bytes, lines)
}

fn compressed(bytes: &[u8], how: u8) -> Vec<u8> {
    match how {
        1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        2 => zstd::encode_all(bytes, 1).unwrap(),
        _ => bytes.to_vec(),
    }
}

/// The bars of a series at those places.
fn picked(bars: &BarSeries, kept: &[usize]) -> BarSeries {
    let of = |column: &[f64]| kept.iter().map(|&bar| column[bar]).collect::<Vec<_>>();
    let arrays = BarArrays {
        time: kept.iter().map(|&bar| bars.time[bar]).collect(),
        open: of(&bars.open),
        high: of(&bars.high),
        low: of(&bars.low),
        close: of(&bars.close),
        volume: bars.volume.as_deref().map(of),
        spread: None,
    };
    BarSeries::from_arrays(bars.symbol.clone(), arrays).unwrap()
}

/// The bars are those that must come of the order, and the report says what was done.
pub(crate) fn judge(
    result: Result<Loaded, MarketError>,
    (bars, order, repair): (&BarSeries, &[usize], &[Repair]),
    rows: &[u64],
) -> Result<(), TestCaseError> {
    match (result, outcome(order, repair)) {
        (Ok(loaded), Outcome::Bars { kept, unsorted, duplicates }) => {
            prop_assert_eq!(&loaded.bars, &picked(bars, &kept));
            let report = loaded.report;
            prop_assert_eq!(report.rows_read, order.len() as u64);
            prop_assert_eq!(report.rows_kept, kept.len() as u64);
            prop_assert_eq!((report.repaired.unsorted, report.repaired.duplicates), (unsorted, duplicates));
        }
        (Err(error), Outcome::OutOfOrder) => {
            let kind = matches!(error, MarketError::Unsorted { .. } | MarketError::Duplicate { .. });
            prop_assert!(kind, "{error}");
            names(&error, rows)?;
        }
        (result, want) => prop_assert!(false, "{:?}, not {want:?}", result.map(|l| l.report)),
    }
    Ok(())
}

/// The error is one short text that names the file and one of the rows.
pub(crate) fn names(error: &MarketError, rows: &[u64]) -> Result<(), TestCaseError> {
    let text = error.to_string();
    prop_assert!(text.contains("bars"), "no file: {text}");
    prop_assert!(text.len() < MAX_ERROR_BYTES, "{} bytes of error", text.len());
    let named = |row: &u64| {
        let name = format!("row {row}");
        text.split(&name).skip(1).any(|after| !after.starts_with(|c: char| c.is_ascii_digit()))
    };
    prop_assert!(rows.iter().any(named), "none of the rows {rows:?} is named: {text}");
    Ok(())
}

pub(crate) fn repairs() -> impl Strategy<Value = Vec<Repair>> {
    prop::sample::subsequence(vec![Repair::Unsorted, Repair::Duplicates], 0..=2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// However a file is written and whatever order its rows have: the clean rows, counted, or an error about order.
    #[test]
    fn disorder_is_repaired_and_counted_or_refused(
        bars in series(),
        disorders in disorders(),
        hand in hands(),
        repair in repairs(),
    ) {
        let order = disordered(bars.len(), &disorders);
        let (bytes, lines) = write(&bars, &order, &[], &hand);
        let settings = DataSettings { repair: repair.clone(), ..DataSettings::default() };
        let result = load(&file("bars.csv", compressed(&bytes, hand.compression)).path, &settings);
        judge(result, (&bars, &order, &repair), &lines)?;
    }

    /// One to three rows that are no bars, in whatever file: refused, and one of those rows is named.
    #[test]
    fn spoiled_rows_are_refused_and_named(
        bars in series(),
        disorders in disorders(),
        spoiled in prop::collection::vec((any::<prop::sample::Index>(), spoils()), 1..4),
        hand in hands(),
        repair in repairs(),
    ) {
        let order = disordered(bars.len(), &disorders);
        // One of a row: a second can undo the first, as a missing field does a surplus one.
        let by_row: BTreeMap<usize, Spoil> =
            spoiled.into_iter().map(|(at, spoil)| (at.index(order.len()), spoil)).collect();
        let spoiled: Vec<(usize, Spoil)> = by_row
            .into_iter()
            // At the end of the file it is an end like any other.
            .filter(|(at, spoil)| !matches!(spoil, Spoil::CarriageReturn) || at + 1 < order.len())
            .collect();
        // A block is searched for zero bytes first, and a row joined to the one before is no line of its own.
        let joined = spoiled.iter().any(|(_, spoil)| matches!(spoil, Spoil::CarriageReturn));
        let spoiled: Vec<_> =
            spoiled.into_iter().filter(|(_, s)| !(joined && matches!(s, Spoil::ZeroByte(_)))).collect();
        prop_assume!(!spoiled.is_empty());
        let (bytes, lines) = write(&bars, &order, &spoiled, &hand);
        let settings = DataSettings { repair: repair.clone(), ..DataSettings::default() };
        let result = load(&file("bars.csv", compressed(&bytes, hand.compression)).path, &settings);
        let context = || format!("{spoiled:?}\n{}", String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]));
        match result {
            Ok(loaded) => prop_assert!(false, "{} bars of it\n{}", loaded.bars.len(), context()),
            Err(error) => {
                let mut rows: Vec<u64> = spoiled.iter().map(|(at, _)| lines[*at]).collect();
                // A file that is out of order as well may be refused for that.
                if outcome(&order, &repair) == Outcome::OutOfOrder {
                    rows = lines;
                }
                names(&error, &rows).map_err(|e| TestCaseError::fail(format!("{e}\n{}", context())))?;
                // Where there is nothing else to tell, the byte is told that nobody can see.
                let unseen = match spoiled[..] {
                    [(_, Spoil::CarriageReturn)] => Some("a carriage return inside the line"),
                    [(_, Spoil::ZeroByte(_))] => Some("a zero byte"),
                    _ => None,
                };
                let orderly = outcome(&order, &repair) != Outcome::OutOfOrder;
                if let (Some(unseen), true) = (unseen, orderly) {
                    prop_assert!(error.to_string().contains(unseen), "{error}\n{}", context());
                }
            }
        }
    }

    /// A compressed file that ends early is damaged, whatever is in it; no bars come of its beginning.
    #[test]
    fn a_compressed_file_that_ends_early_is_damaged(bars in series(), hand in hands(), keep in 5_usize..1000) {
        let order: Vec<usize> = (0..bars.len()).collect();
        let (bytes, _) = write(&bars, &order, &[], &hand);
        let whole = compressed(&bytes, 1 + hand.compression % 2);
        let cut = keep * (whole.len() - 1) / 1000;
        prop_assume!(cut > 4);
        match load(&file("bars.csv", &whole[..cut]).path, &DataSettings::default()) {
            Err(error @ MarketError::Corrupt { .. }) => prop_assert!(error.to_string().contains("bars.csv")),
            other => prop_assert!(false, "{:?}", other.map(|loaded| loaded.report)),
        }
    }
}
