//! Dirty Parquet and DBN files from the generator of [`crate::dirt`], held against the same model.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, TimestampNanosecondArray};
use dbn::{OhlcvMsg, Schema, UNDEF_PRICE};
use foxhunt_core::settings::DataSettings;
use foxhunt_market::{BarArrays, BarSeries, MarketError, load};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

use crate::binary::{dbn_bytes, parquet_bytes, record};
use crate::dialects::series;
use crate::dirt::{Outcome, disordered, disorders, judge, names, outcome, repairs};
use crate::support::file;

/// A value in the place of another; none is a null.
#[derive(Clone, Copy, Debug)]
struct Planted {
    row: prop::sample::Index,
    /// Open, high, low, close, volume.
    column: usize,
    value: Option<f64>,
}

fn planted() -> impl Strategy<Value = Planted> {
    let values = vec![None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(-1.0)];
    (any::<prop::sample::Index>(), 0_usize..5, prop::sample::select(values))
        .prop_map(|(row, column, value)| Planted { row, column, value })
}

/// The columns of a file, in the order of its rows, with what was planted.
fn parquet(
    bars: &BarSeries,
    order: &[usize],
    planted: &[Planted],
    group: usize,
    compression: Compression,
) -> Vec<u8> {
    let volume = bars.volume.as_ref().unwrap();
    let columns = [&bars.open, &bars.high, &bars.low, &bars.close, volume];
    let mut values: Vec<Vec<Option<f64>>> =
        columns.iter().map(|column| order.iter().map(|&bar| Some(column[bar])).collect()).collect();
    for Planted { row, column, value } in planted {
        values[*column][row.index(order.len())] = *value;
    }
    let time = TimestampNanosecondArray::from_iter_values(order.iter().map(|&bar| bars.time[bar]))
        .with_timezone("UTC");
    let mut arrays: Vec<(&str, ArrayRef)> = vec![("time", Arc::new(time))];
    for (name, column) in ["open", "high", "low", "close", "volume"].into_iter().zip(values) {
        arrays.push((name, Arc::new(Float64Array::from(column))));
    }
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(group))
        .build();
    parquet_bytes(arrays, properties)
}

/// Fixed-point records of the bars, and the bars that those are.
fn fixed(bars: &BarSeries) -> (Vec<OhlcvMsg>, BarSeries) {
    let raw = |price: f64| (price * 1e9).round() as i64;
    let volume = bars.volume.as_ref().unwrap();
    let records: Vec<OhlcvMsg> = (0..bars.len())
        .map(|t| {
            let prices = [bars.open[t], bars.high[t], bars.low[t], bars.close[t]].map(raw);
            record(1, bars.time[t], prices, volume[t].round() as u64)
        })
        .collect();
    let price = |of: fn(&OhlcvMsg) -> i64| records.iter().map(|r| of(r) as f64 / 1e9).collect();
    let arrays = BarArrays {
        time: bars.time.clone(),
        open: price(|r| r.open),
        high: price(|r| r.high),
        low: price(|r| r.low),
        close: price(|r| r.close),
        volume: Some(records.iter().map(|r| r.volume as f64).collect()),
        spread: None,
    };
    // Without a mapping the instrument's number is its name.
    let read = BarSeries::from_arrays(Some("1".into()), arrays).unwrap();
    (records, read)
}

/// Rows of binary files are numbered from 1.
fn numbers(order: &[usize]) -> Vec<u64> {
    (1..=order.len() as u64).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parquet_rows_are_the_clean_ones_or_are_named(
        bars in series(),
        disorders in disorders(),
        planted in prop_oneof![Just(Vec::new()), prop::collection::vec(planted(), 1..4)],
        group in 1_usize..30,
        compression in prop::sample::select(vec![
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::LZ4_RAW,
            Compression::ZSTD(ZstdLevel::default()),
        ]),
        repair in repairs(),
    ) {
        let order = disordered(bars.len(), &disorders);
        let bytes = parquet(&bars, &order, &planted, group, compression);
        let settings = DataSettings { repair: repair.clone(), ..DataSettings::default() };
        let result = load(&file("bars.parquet", bytes).path, &settings);
        let rows = numbers(&order);
        if planted.is_empty() {
            return judge(result, (&bars, &order, &repair), &rows);
        }
        match result {
            Ok(loaded) => prop_assert!(false, "{} bars with {planted:?}", loaded.bars.len()),
            Err(error) if outcome(&order, &repair) == Outcome::OutOfOrder => names(&error, &rows)?,
            Err(error) => {
                let rows: Vec<u64> = planted.iter().map(|p| rows[p.row.index(order.len())]).collect();
                names(&error, &rows)?;
            }
        }
    }

    #[test]
    fn dbn_records_are_the_clean_ones_or_are_named(
        bars in series(),
        disorders in disorders(),
        planted in prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(
                (any::<prop::sample::Index>(), 0_usize..4, prop::sample::select(vec![UNDEF_PRICE, 0, -1, i64::MIN])),
                1..4,
            ),
        ],
        cut in prop::option::of(any::<prop::sample::Index>()),
        compressed: bool,
        repair in repairs(),
    ) {
        let (records, bars) = fixed(&bars);
        let order = disordered(bars.len(), &disorders);
        let mut written: Vec<OhlcvMsg> = order.iter().map(|&bar| records[bar].clone()).collect();
        for (row, column, value) in &planted {
            let record = &mut written[row.index(order.len())];
            match column {
                0 => record.open = *value,
                1 => record.high = *value,
                2 => record.low = *value,
                _ => record.close = *value,
            }
        }
        let whole = dbn_bytes(Schema::Ohlcv1H, vec![], &written);
        let mut bytes = whole.clone();
        if let Some(cut) = cut {
            // Anywhere but at the end of a record, where a file is a shorter file.
            let start = whole.len() - written.len() * size_of::<OhlcvMsg>();
            let at = 4 + cut.index(whole.len() - 4);
            prop_assume!(at < start || !(at - start).is_multiple_of(size_of::<OhlcvMsg>()));
            bytes.truncate(at);
        }
        if compressed {
            bytes = zstd::encode_all(&bytes[..], 1).unwrap();
        }
        let settings = DataSettings { repair: repair.clone(), ..DataSettings::default() };
        let result = load(&file("bars.dbn", bytes).path, &settings);
        let rows = numbers(&order);
        if cut.is_some() {
            // What stands before the cut may be refused first.
            match result {
                Ok(loaded) => prop_assert!(false, "{} bars of a file cut off", loaded.bars.len()),
                Err(MarketError::Corrupt { format: "DBN", .. }) => {}
                Err(error) => names(&error, &rows)?,
            }
        } else if planted.is_empty() {
            judge(result, (&bars, &order, &repair), &rows)?;
        } else {
            match result {
                Ok(loaded) => prop_assert!(false, "{} bars with {planted:?}", loaded.bars.len()),
                Err(error) if outcome(&order, &repair) == Outcome::OutOfOrder => names(&error, &rows)?,
                Err(error) => {
                    let rows: Vec<u64> = planted.iter().map(|(row, ..)| rows[row.index(order.len())]).collect();
                    names(&error, &rows)?;
                }
            }
        }
    }
}
