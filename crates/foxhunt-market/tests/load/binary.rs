//! Parquet and DBN files, written here from the EUR/USD sample and by hand.

use std::sync::Arc;

use arrow_array::builder::{Decimal128Builder, Float64Builder};
use arrow_array::{
    ArrayRef, Date32Array, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use dbn::encode::EncodeRecord;
use dbn::{
    MappingInterval, MetadataBuilder, OhlcvMsg, RecordHeader, SType, Schema, SymbolMapping, UNDEF_PRICE,
};
use foxhunt_core::settings::{DataSettings, Repair};
use foxhunt_market::{BarSeries, Loaded, MarketError, load};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::support::{eurusd, file, load_plain};

pub(crate) fn sample() -> BarSeries {
    load_plain(&eurusd()).unwrap().bars
}

pub(crate) fn parquet_bytes(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

pub(crate) fn small_groups() -> WriterProperties {
    WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build()
}

pub(crate) fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

pub(crate) fn sample_columns(bars: &BarSeries) -> Vec<(&'static str, ArrayRef)> {
    vec![
        (
            "ts_event",
            Arc::new(TimestampNanosecondArray::from(bars.time.clone()).with_timezone("UTC")) as ArrayRef,
        ),
        ("ignored", Arc::new(StringArray::from(vec!["x"; bars.len()]))),
        ("Close", floats(&bars.close)),
        ("Open", floats(&bars.open)),
        ("High", floats(&bars.high)),
        ("Low", floats(&bars.low)),
        ("Volume", floats(bars.volume.as_ref().unwrap())),
    ]
}

/// Three daily bars with the given times (and other columns, if any).
fn three(times: Vec<(&'static str, ArrayRef)>) -> Vec<(&'static str, ArrayRef)> {
    let mut columns = times;
    columns.extend([
        ("open", floats(&[1.25, 1.5, 1.75])),
        ("high", floats(&[2.0, 2.0, 2.0])),
        ("low", floats(&[1.0, 1.0, 1.0])),
        ("close", floats(&[1.5, 1.75, 1.5])),
    ]);
    columns
}

fn read(columns: Vec<(&str, ArrayRef)>, settings: &DataSettings) -> Result<Loaded, MarketError> {
    load(&file("bars.parquet", parquet_bytes(columns, small_groups())).path, settings)
}

#[test]
fn parquet_equals_csv_in_every_compression() {
    let bars = sample();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
    ] {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(1000))
            .build();
        let bytes = parquet_bytes(sample_columns(&bars), properties);
        let loaded = load_plain(&file("bars.parquet", &bytes).path).unwrap();
        assert_eq!(loaded.bars, bars, "{compression}");
        assert_eq!(loaded.report.ignored_columns, ["ignored"]);
    }
}

/// Case G16: the same instant in every unit, with and without a zone; never read as another unit.
#[test]
fn case_g16_time_units() {
    const DAY: i64 = 86_400;
    let seconds = [1_577_836_800, 1_577_836_800 + DAY, 1_577_836_800 + 2 * DAY];
    let scaled = |scale: i64| seconds.map(|s| s * scale).to_vec();
    let days: Vec<i32> = seconds.iter().map(|s| (s / DAY) as i32).collect();
    let texts = |suffix: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(["01", "02", "03"].map(|d| format!("2020-01-{d}{suffix}"))))
    };
    let times: Vec<(&str, ArrayRef)> = vec![
        ("s", Arc::new(TimestampSecondArray::from(scaled(1)))),
        ("ms", Arc::new(TimestampMillisecondArray::from(scaled(1_000)))),
        ("us", Arc::new(TimestampMicrosecondArray::from(scaled(1_000_000)))),
        ("ns", Arc::new(TimestampNanosecondArray::from(scaled(1_000_000_000)))),
        ("ms utc", Arc::new(TimestampMillisecondArray::from(scaled(1_000)).with_timezone("UTC"))),
        ("us utc", Arc::new(TimestampMicrosecondArray::from(scaled(1_000_000)).with_timezone("+02:00"))),
        ("int64 s", Arc::new(Int64Array::from(scaled(1)))),
        ("int64 ms", Arc::new(Int64Array::from(scaled(1_000)))),
        ("int64 ns", Arc::new(Int64Array::from(scaled(1_000_000_000)))),
        ("uint64 us", Arc::new(UInt64Array::from(seconds.map(|s| s as u64 * 1_000_000).to_vec()))),
        ("int32 s", Arc::new(Int32Array::from(seconds.map(|s| s as i32).to_vec()))),
        ("float s", Arc::new(Float64Array::from(seconds.map(|s| s as f64).to_vec()))),
        ("date", Arc::new(Date32Array::from(days.clone()))),
        ("text date", texts("")),
        ("text", texts("T00:00:00Z")),
    ];
    for (name, time) in times {
        let loaded = read(three(vec![("time", time)]), &DataSettings::default());
        let bars = loaded.unwrap_or_else(|e| panic!("{name}: {e}")).bars;
        assert_eq!(bars.time, scaled(1_000_000_000), "{name}");
    }
    // A date and a time of day.
    let clock = Time64MicrosecondArray::from(vec![3_600_000_000_i64; 3]);
    let pair =
        three(vec![("date", Arc::new(Date32Array::from(days)) as ArrayRef), ("time", Arc::new(clock))]);
    let bars = read(pair, &DataSettings::default()).unwrap().bars;
    assert_eq!(bars.time[0], (seconds[0] + 3600) * 1_000_000_000);
    // Only times without a zone follow the setting.
    let zone = DataSettings { timezone: "America/New_York".into(), ..DataSettings::default() };
    let naive = Arc::new(TimestampMillisecondArray::from(scaled(1_000))) as ArrayRef;
    let aware = Arc::new(TimestampMillisecondArray::from(scaled(1_000)).with_timezone("UTC")) as ArrayRef;
    assert_eq!(
        read(three(vec![("time", naive)]), &zone).unwrap().bars.time[0],
        (seconds[0] + 5 * 3600) * 1_000_000_000
    );
    assert_eq!(read(three(vec![("time", aware)]), &zone).unwrap().bars.time[0], seconds[0] * 1_000_000_000);
}

/// Case G16: INT96 times of old files: a Julian day and nanoseconds of the day.
#[test]
fn case_g16_int96_times() {
    use parquet::data_type::{DoubleType, Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;

    let message = "message bars { required int96 time; required double open; required double high; \
                   required double low; required double close; }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(message).unwrap());
    let mut bytes = Vec::new();
    let mut file_writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = file_writer.next_row_group().unwrap();
    // Julian day 2,458,850 is 2020-01-01; half a day is 43,200e9 ns.
    let half_day = 43_200_000_000_000_u64;
    let times = [0, half_day, 2 * half_day - 1_000_000_000].map(|nanos| {
        let mut time = Int96::new();
        time.set_data(nanos as u32, (nanos >> 32) as u32, 2_458_850);
        time
    });
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&times, None, None).unwrap();
    column.close().unwrap();
    for prices in [[1.25, 1.5, 1.75], [2.0; 3], [1.0; 3], [1.5, 1.75, 1.5]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&prices, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file_writer.close().unwrap();
    let start = 1_577_836_800_000_000_000;
    let bars = load_plain(&file("bars.parquet", &bytes).path).unwrap().bars;
    assert_eq!(bars.time, [start, start + half_day as i64, start + 2 * half_day as i64 - 1_000_000_000]);
    assert_eq!((bars.open[0], bars.close[2]), (1.25, 1.5));
}

/// Case G16: the Arrow schema embedded in the file may lie about the unit; the column's own type decides.
#[test]
fn case_g16_embedded_schema_is_not_believed() {
    use parquet::file::metadata::KeyValue;
    let time = |unit_nanos: bool| -> ArrayRef {
        let millis = [1_577_836_800_000_i64, 1_577_923_200_000, 1_578_009_600_000];
        if unit_nanos {
            Arc::new(TimestampNanosecondArray::from(millis.to_vec()))
        } else {
            Arc::new(TimestampMillisecondArray::from(millis.to_vec()))
        }
    };
    // Take the embedded schema of a nanosecond file and put it into the millisecond file.
    let lying = parquet_bytes(three(vec![("time", time(true))]), small_groups());
    let metadata =
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file_of(&lying)).unwrap();
    let embedded = metadata
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .unwrap()
        .iter()
        .find(|pair| pair.key == "ARROW:schema")
        .unwrap()
        .clone();
    let batch = RecordBatch::try_from_iter(three(vec![("time", time(false))])).unwrap();
    let options = parquet::arrow::arrow_writer::ArrowWriterOptions::new()
        .with_skip_arrow_metadata(true)
        .with_properties(
            WriterProperties::builder()
                .set_key_value_metadata(Some(vec![KeyValue::new(embedded.key, embedded.value)]))
                .build(),
        );
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let bars = load_plain(&file("bars.parquet", &bytes).path).unwrap().bars;
    assert_eq!(bars.time[0], 1_577_836_800_000_000_000);
}

fn file_of(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    file
}

#[test]
fn prices_of_every_type() {
    let day = |n: usize| -> ArrayRef {
        Arc::new(Date32Array::from((0..n as i32).map(|d| 18_262 + d).collect::<Vec<_>>()))
    };
    let texts = |values: [&str; 3]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let decimals = {
        let mut builder = Decimal128Builder::new().with_precision_and_scale(12, 5).unwrap();
        [125_000, 150_000, 175_000].into_iter().for_each(|v| builder.append_value(v));
        Arc::new(builder.finish()) as ArrayRef
    };
    let columns = vec![
        ("date", day(3)),
        ("open", decimals),
        ("high", Arc::new(Int32Array::from(vec![2, 2, 2])) as ArrayRef),
        ("low", Arc::new(Float32Array::from(vec![1.05236_f32, 1.1, 1.3])) as ArrayRef),
        ("close", texts(["1.5", "1.75", "1.5"])),
        ("volume", Arc::new(UInt64Array::from(vec![7, 8, 9])) as ArrayRef),
    ];
    let bars = read(columns, &DataSettings::default()).unwrap().bars;
    assert_eq!(bars.open, [1.25, 1.5, 1.75]);
    assert_eq!(bars.high, [2.0, 2.0, 2.0]);
    assert_eq!(bars.low, [1.05236, 1.1, 1.3], "an f32 is the decimal it was written as");
    assert_eq!(bars.close, [1.5, 1.75, 1.5]);
    assert_eq!(bars.volume.unwrap(), [7.0, 8.0, 9.0]);

    let mut columns = three(vec![("date", day(3))]);
    columns[1].1 = Arc::new(arrow_array::BooleanArray::from(vec![true; 3]));
    match read(columns, &DataSettings::default()).unwrap_err() {
        MarketError::ColumnType { column, wanted, .. } => {
            assert_eq!((column.as_str(), wanted), ("open", "a number"))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn parquet_dirt_is_named_by_row_and_column() {
    let bars = sample();
    let replaced = |name: &str, array: ArrayRef| {
        let mut columns = sample_columns(&bars);
        columns.iter_mut().find(|(n, _)| *n == name).unwrap().1 = array;
        read(columns, &DataSettings::default()).unwrap_err()
    };
    let mut nulls = Float64Builder::new();
    bars.close.iter().enumerate().for_each(|(i, &v)| nulls.append_option((i != 4321).then_some(v)));
    match replaced("Close", Arc::new(nulls.finish())) {
        MarketError::MissingValue { place, .. } => {
            assert_eq!((place.row, place.column.as_str()), (4322, "Close"))
        }
        other => panic!("{other}"),
    }
    let mut high = bars.high.clone();
    high[5000] = f64::NAN;
    match replaced("High", floats(&high)) {
        MarketError::NotFinite { place, .. } => {
            assert_eq!((place.row, place.column.as_str()), (5001, "High"))
        }
        other => panic!("{other}"),
    }
    // The first row of a row group, against the last of the one before.
    let mut time = bars.time.clone();
    time[2000] = time[1999];
    match replaced("ts_event", Arc::new(TimestampNanosecondArray::from(time).with_timezone("UTC"))) {
        MarketError::Conflict { place, first_row, .. } => assert_eq!((place.row, first_row), (2001, 2000)),
        other => panic!("{other}"),
    }
}

#[test]
fn parquet_symbols_and_repairs() {
    let time = Arc::new(Date32Array::from(vec![18_264, 18_262, 18_263])) as ArrayRef;
    let symbol = Arc::new(StringArray::from(vec!["A", "B", "A"])) as ArrayRef;
    let columns = || three(vec![("date", Arc::clone(&time)), ("symbol", Arc::clone(&symbol))]);
    let unsorted = DataSettings { repair: vec![Repair::Unsorted], ..DataSettings::default() };
    assert!(matches!(
        read(columns(), &unsorted),
        Err(MarketError::SeveralSymbols { symbols, .. }) if symbols == ["A", "B"]
    ));
    let loaded = read(columns(), &DataSettings { symbol: Some("A".into()), ..unsorted }).unwrap();
    assert_eq!(loaded.bars.open, [1.75, 1.25]);
    assert_eq!((loaded.report.repaired.unsorted, loaded.report.rows_of_other_symbols), (1, 1));
}

#[test]
fn pandas_index_column() {
    let time = Arc::new(TimestampMicrosecondArray::from(vec![0, 60_000_000, 120_000_000])) as ArrayRef;
    assert_eq!(
        read(three(vec![("__index_level_0__", time)]), &DataSettings::default()).unwrap().bars.time[1],
        60_000_000_000
    );
}

/// Case G21: Parquet without its last bytes, at every short cut and many long ones.
#[test]
fn case_g21_cut_off_parquet() {
    let whole = parquet_bytes(sample_columns(&sample()), small_groups());
    assert!(load_plain(&file("bars.parquet", &whole).path).is_ok());
    let cuts = (whole.len() - 12..whole.len()).chain((5..whole.len()).step_by(whole.len() / 50));
    for length in cuts {
        match load_plain(&file("bars.parquet", &whole[..length]).path) {
            Err(error @ MarketError::Corrupt { format: "Parquet", .. }) => {
                assert!(error.to_string().contains("bars.parquet"), "{error}");
            }
            other => panic!("cut at {length}: {:?}", other.map(|l| l.bars.len())),
        }
    }
    let rows =
        RecordBatch::new_empty(RecordBatch::try_from_iter(sample_columns(&sample())).unwrap().schema());
    let mut bytes = Vec::new();
    let writer = ArrowWriter::try_new(&mut bytes, rows.schema(), None).unwrap();
    writer.close().unwrap();
    assert!(matches!(load_plain(&file("bars.parquet", &bytes).path), Err(MarketError::NoRows { .. })));
}

/// Damage anywhere is an error or other values, never a panic.
#[test]
fn damaged_parquet_never_panics() {
    let bars = sample();
    let whole = parquet_bytes(
        sample_columns(&bars),
        WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(3000))
            .build(),
    );
    // The footer is where damage is the most interesting.
    let footer = whole.len() - whole.len().min(6000);
    for step in 0..600_usize {
        let mut damaged = whole.clone();
        let at = if step % 2 == 0 {
            footer + step * 7 % (whole.len() - footer)
        } else {
            step * 7919 % whole.len()
        };
        damaged[at] ^= 1 << (step % 8);
        let _ = load_plain(&file("bars.parquet", &damaged).path);
    }
}

pub(crate) fn dbn_bytes(schema: Schema, mappings: Vec<SymbolMapping>, records: &[OhlcvMsg]) -> Vec<u8> {
    let metadata = MetadataBuilder::new()
        .dataset("GLBX.MDP3".to_owned())
        .schema(Some(schema))
        .start(0)
        .stype_in(Some(SType::RawSymbol))
        .stype_out(SType::InstrumentId)
        .symbols(mappings.iter().map(|m| m.raw_symbol.clone()).collect())
        .mappings(mappings)
        .build();
    let mut bytes = Vec::new();
    let mut encoder = dbn::encode::DbnEncoder::new(&mut bytes, &metadata).unwrap();
    for record in records {
        encoder.encode_record(record).unwrap();
    }
    bytes
}

pub(crate) fn record(instrument_id: u32, time: i64, prices: [i64; 4], volume: u64) -> OhlcvMsg {
    OhlcvMsg {
        hd: RecordHeader::new::<OhlcvMsg>(dbn::rtype::OHLCV_1H, 1, instrument_id, time as u64),
        open: prices[0],
        high: prices[1],
        low: prices[2],
        close: prices[3],
        volume,
    }
}

fn mapping(symbol: &str, ids: &[u32]) -> SymbolMapping {
    let day = |n: usize| time::Date::from_ordinal_date(2017, 1 + n as u16).unwrap();
    let intervals = ids.iter().enumerate().map(|(n, id)| MappingInterval {
        start_date: if n == 0 { time::Date::from_ordinal_date(1970, 1).unwrap() } else { day(60 * n) },
        end_date: if n + 1 == ids.len() {
            time::Date::from_ordinal_date(2030, 1).unwrap()
        } else {
            day(60 * (n + 1))
        },
        symbol: id.to_string(),
    });
    SymbolMapping { raw_symbol: symbol.into(), intervals: intervals.collect() }
}

fn sample_records(instrument_id: u32) -> Vec<OhlcvMsg> {
    let bars = sample();
    let fixed = |x: f64| (x * 1e5).round() as i64 * 10_000;
    (0..bars.len())
        .map(|t| {
            let prices = [bars.open[t], bars.high[t], bars.low[t], bars.close[t]].map(fixed);
            record(instrument_id, bars.time[t], prices, bars.volume.as_ref().unwrap()[t].round() as u64)
        })
        .collect()
}

#[test]
fn dbn_equals_csv_plain_and_compressed() {
    let bars = sample();
    let bytes = dbn_bytes(Schema::Ohlcv1H, vec![mapping("6E", &[7])], &sample_records(7));
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    for content in [bytes, zstd] {
        let loaded = load_plain(&file("bars", &content).path).unwrap();
        assert_eq!(loaded.bars.symbol.as_deref(), Some("6E"));
        assert_eq!(
            (&loaded.bars.time, &loaded.bars.open, &loaded.bars.close),
            (&bars.time, &bars.open, &bars.close)
        );
        assert_eq!((&loaded.bars.high, &loaded.bars.low), (&bars.high, &bars.low));
        assert_eq!(loaded.bars.volume.unwrap()[3], bars.volume.as_ref().unwrap()[3].round());
        assert!(loaded.report.format.contains("ohlcv-1h"), "{}", loaded.report.format);
    }
}

/// Case G18: prices are whole numbers of 1e-9 and keep every digit.
#[test]
fn case_g18_price_scale() {
    let raw = [3_906_250, 7_812_500, 15_625_000, 5_432_250_000_000];
    let records: Vec<OhlcvMsg> =
        (0..).zip(raw).map(|(t, p)| record(1, t * 3_600_000_000_000, [p; 4], 1)).collect();
    let bars = load_plain(&file("bars.dbn", dbn_bytes(Schema::Ohlcv1H, vec![], &records)).path).unwrap().bars;
    assert_eq!(bars.close, [0.00390625, 0.0078125, 0.015625, 5432.25]);
    assert_eq!(bars.tick_size, 0.00390625);
    assert_eq!(bars.symbol.as_deref(), Some("1"), "without a mapping the instrument's number stands in");
}

#[test]
fn dbn_undefined_prices_symbols_and_schemas() {
    let hour = 3_600_000_000_000;
    let one = 1_000_000_000;
    let records = [record(1, 0, [one; 4], 1), record(1, hour, [one, UNDEF_PRICE, one, one], 1)];
    match load_plain(&file("bars.dbn", dbn_bytes(Schema::Ohlcv1H, vec![], &records)).path).unwrap_err() {
        MarketError::MissingValue { place, .. } => {
            assert_eq!((place.row, place.column.as_str()), (2, "high"))
        }
        other => panic!("{other}"),
    }
    // Two instruments are two symbols, unless one symbol maps to both in turn.
    let two = [record(1, 0, [one; 4], 1), record(2, hour, [one; 4], 1), record(1, 2 * hour, [one; 4], 1)];
    let both =
        file("bars.dbn", dbn_bytes(Schema::Ohlcv1H, vec![mapping("A", &[1]), mapping("B", &[2])], &two));
    match load_plain(&both.path).unwrap_err() {
        MarketError::SeveralSymbols { symbols, .. } => assert_eq!(symbols, ["A", "B"]),
        other => panic!("{other}"),
    }
    let select = DataSettings { symbol: Some("A".into()), ..DataSettings::default() };
    assert_eq!(load(&both.path, &select).unwrap().bars.len(), 2);
    let trades = dbn_bytes(Schema::Trades, vec![], &[]);
    assert!(matches!(load_plain(&file("t.dbn", trades).path), Err(MarketError::UnknownFormat { .. })));
    let none = dbn_bytes(Schema::Ohlcv1H, vec![], &[]);
    assert!(matches!(load_plain(&file("n.dbn", none).path), Err(MarketError::NoRows { .. })));
}

#[test]
fn dbn_roll_of_one_symbol_over_instruments() {
    let day = 86_400_000_000_000_i64;
    let start = 1_483_228_800_000_000_000;
    let records: Vec<OhlcvMsg> = (0..4)
        .map(|n| record(if n < 2 { 5 } else { 6 }, start + 40 * n * day, [1_000_000_000; 4], 1))
        .collect();
    let bytes = dbn_bytes(Schema::Ohlcv1H, vec![mapping("ES.c.0", &[5, 6])], &records);
    let bars = load_plain(&file("bars.dbn", bytes).path).unwrap().bars;
    assert_eq!((bars.len(), bars.symbol.as_deref()), (4, Some("ES.c.0")));
}

/// Case G21: DBN without its last bytes, plain and compressed: an error with an offset, never fewer bars.
#[test]
fn case_g21_cut_off_dbn() {
    let whole = dbn_bytes(Schema::Ohlcv1H, vec![mapping("6E", &[7])], &sample_records(7)[..50]);
    let metadata = whole.len() - 50 * 56;
    for length in (4..whole.len()).filter(|n| *n < metadata || !(n - metadata).is_multiple_of(56)) {
        match load_plain(&file("bars.dbn", &whole[..length]).path) {
            Err(MarketError::Corrupt { format: "DBN", offset, .. }) => assert!(offset <= length as u64),
            other => panic!("cut at {length}: {:?}", other.map(|l| l.bars.len())),
        }
    }
    let zstd = zstd::encode_all(&whole[..], 1).unwrap();
    for length in 5..zstd.len() {
        match load_plain(&file("bars.dbn", &zstd[..length]).path) {
            Err(MarketError::Corrupt { format: "zstd" | "DBN", .. }) => {}
            other => panic!("zstd cut at {length}: {:?}", other.map(|l| l.bars.len())),
        }
    }
}

#[test]
fn damaged_dbn_never_panics() {
    let whole = dbn_bytes(Schema::Ohlcv1H, vec![mapping("6E", &[7])], &sample_records(7)[..20]);
    for at in 3..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let _ = load_plain(&file("bars.dbn", &damaged).path);
        }
    }
}

/// What the fuzzer of binary files starts from loads; `FOXHUNT_BLESS=1` writes it anew.
#[test]
fn seeds_of_the_fuzzer_load() {
    let text: Vec<String> =
        std::fs::read_to_string(eurusd()).unwrap().lines().take(13).map(str::to_owned).collect();
    let bars = load_plain(&file("bars.csv", text.join("\n")).path).unwrap().bars;
    let of = |compression| WriterProperties::builder().set_compression(compression).build();
    let texts = |column: &[f64]| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(column.iter().map(ToString::to_string)))
    };
    let mut written = sample_columns(&bars);
    for (name, array) in &mut written {
        match *name {
            "Close" => *array = texts(&bars.close),
            "Low" => *array = Arc::new(Float32Array::from_iter_values(bars.low.iter().map(|x| *x as f32))),
            _ => {}
        }
    }
    let dbn = dbn_bytes(Schema::Ohlcv1H, vec![mapping("6E", &[7])], &sample_records(7)[..bars.len()]);
    let seeds = [
        ("plain.parquet", parquet_bytes(sample_columns(&bars), of(Compression::UNCOMPRESSED))),
        ("snappy.parquet", parquet_bytes(sample_columns(&bars), of(Compression::SNAPPY))),
        ("zstd.parquet", parquet_bytes(sample_columns(&bars), of(Compression::ZSTD(ZstdLevel::default())))),
        ("gzip.parquet", parquet_bytes(written, of(Compression::GZIP(Default::default())))),
        ("hours.dbn.zst", zstd::encode_all(&dbn[..], 1).unwrap()),
        ("hours.dbn", dbn),
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, bytes) in seeds {
        if std::env::var_os("FOXHUNT_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        let loaded = load_plain(&folder.join(name)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((&loaded.bars.time, &loaded.bars.close), (&bars.time, &bars.close), "{name}");
    }
}
