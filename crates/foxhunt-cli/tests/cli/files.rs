//! Bar files of every format, later files, reports.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, TimestampNanosecondArray, UInt64Array};
use dbn::encode::EncodeRecord as _;
use dbn::{MetadataBuilder, OhlcvMsg, RecordHeader, SType, Schema};
use serde_json::Value;

use crate::support::{Bar, Done, Place, bars, csv, foxhunt, policy_bytes, run, state_bytes, table};

pub(crate) fn parquet_bytes(bars: &[Bar]) -> Vec<u8> {
    let price = |k: usize| -> ArrayRef {
        Arc::new(bars.iter().map(|bar| bar.1[k] as f64 / 100.0).collect::<Float64Array>())
    };
    let time = bars.iter().map(|bar| bar.0 * 1_000_000_000).collect::<Vec<_>>();
    let volume = bars.iter().map(|bar| bar.2).collect::<Vec<_>>();
    let batch = RecordBatch::try_from_iter([
        ("ts", Arc::new(TimestampNanosecondArray::from(time).with_timezone("UTC")) as ArrayRef),
        ("close", price(3)),
        ("open", price(0)),
        ("high", price(1)),
        ("low", price(2)),
        ("volume", Arc::new(UInt64Array::from(volume))),
    ])
    .unwrap();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

pub(crate) fn dbn_bytes(bars: &[Bar]) -> Vec<u8> {
    let metadata = MetadataBuilder::new()
        .dataset("GLBX.MDP3".to_owned())
        .schema(Some(Schema::Ohlcv1H))
        .start(0)
        .stype_in(Some(SType::RawSymbol))
        .stype_out(SType::InstrumentId)
        .build();
    let mut bytes = Vec::new();
    let mut encoder = dbn::encode::DbnEncoder::new(&mut bytes, &metadata).unwrap();
    for (time, prices, volume) in bars {
        let [open, high, low, close] = prices.map(|cents| cents * 10_000_000);
        let time = *time as u64 * 1_000_000_000;
        let hd = RecordHeader::new::<OhlcvMsg>(dbn::rtype::OHLCV_1H, 1, 7, time);
        encoder.encode_record(&OhlcvMsg { hd, open, high, low, close, volume: *volume }).unwrap();
    }
    bytes
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// The same bars in four formats train the same policy to the bit, whatever their files are called.
#[test]
fn one_market_in_every_format() {
    let place = Place::new();
    let market = bars(700, 1);
    let (done, want) = place.trained("bars.csv", "csv", &[]);
    for (name, content) in [
        ("bars.parquet", parquet_bytes(&market)),
        ("bars.dbn", dbn_bytes(&market)),
        ("bars.csv.gz", gzip(&csv(&market))),
        ("bars", dbn_bytes(&market)),
    ] {
        place.write(name, content);
        let out = format!("runs-{name}");
        let (same, run) = place.trained(name, &out, &[]);
        assert!(policy_bytes(&run) == policy_bytes(&want), "{name}");
        assert!(state_bytes(&run) == state_bytes(&want), "{name}");
        assert_eq!(table(&same.out), table(&done.out), "{name}");
    }
}

/// The stocks sample holds several symbols: one must be chosen, and a wrong choice lists what there is.
#[test]
fn one_symbol_of_several() {
    let place = Place::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/us_stocks_1d_2000_2013.csv.gz");
    fs::copy(sample, place.path("stocks.csv.gz")).unwrap();
    let (done, run) = place.trained("stocks.csv.gz", "runs", &["--symbol", "IBM"]);
    assert!(done.out.contains("buy and hold"), "{}", done.out);
    let note: Value = serde_json::from_slice(&fs::read(run.join("data_report.json")).unwrap()).unwrap();
    assert_eq!(note["report"]["symbol"], "IBM", "{note}");
    for more in [&[][..], &["--symbol", "IBMM"]] {
        let refused = Done::from(place.train("stocks.csv.gz", "none", more).output().unwrap()).expect(1);
        assert!(refused.err.contains("stocks.csv.gz") && refused.err.contains("IBM"), "{}", refused.err);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        assert!(!place.path("none").exists(), "no run was begun");
    }
}

/// A trained policy is tested on later bars: as a table, as JSON that any program reads, and as a report.
#[test]
fn a_policy_is_evaluated_on_a_later_file() {
    let place = Place::new();
    let (_, run_folder) = place.trained("bars.csv", "runs", &[]);
    let later: Vec<Bar> = bars(300, 2).into_iter().map(|(time, p, v)| (time + 86_400 * 365, p, v)).collect();
    let file = place.write("later.csv", csv(&later));
    let folder = run_folder.to_str().unwrap();

    let done = run(&["evaluate", folder, &file]).expect(0);
    assert!(done.out.contains("buy and hold") && done.out.starts_with("file: "), "{}", done.out);
    assert_eq!(run(&["evaluate", folder, &file]).expect(0).out, done.out, "twice the same");
    assert_eq!(run(&["evaluate", &format!("{folder}/policy"), &file]).expect(0).out, done.out);

    let json = run(&["evaluate", folder, &file, "--json"]).expect(0).out;
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["windows"].as_array().unwrap().len(), 1);
    assert_eq!(value["windows"][0]["name"], "file");
    assert_only_explained_nulls(&json);

    let report = place.text("report/deep");
    let done = run(&["evaluate", folder, &file, "--report", &report]).expect(0);
    assert!(done.err.contains("report.html"), "{}", done.err);
    let html = fs::read_to_string(place.path("report/deep/report.html")).unwrap();
    assert!(html.contains("later.csv") && !html.contains("NaN"));
    let _: Value = serde_json::from_slice(&fs::read(place.path("report/deep/report.json")).unwrap()).unwrap();
}

/// Fills of an evaluation go by the tick size trained with, not by what a later file suggests.
/// A report takes the place of a report alone, and only when it is whole.
#[test]
fn a_report_costs_no_other_file() {
    let place = Place::new();
    let (done, folder) = place.trained("bars.csv", "runs", &[]);
    assert!(done.err.contains("Training ended after its last epoch"), "{}", done.err);
    let (run_folder, reports) = (folder.to_str().unwrap(), place.text("reports"));
    let bars = place.text("bars.csv");
    let of_training = fs::read(folder.join("report.json")).unwrap();
    let done = run(&["evaluate", run_folder, &bars, "--report", run_folder]).expect(1);
    assert!(done.err.contains("it is a run's folder"), "{}", done.err);
    assert_eq!(fs::read(folder.join("report.json")).unwrap(), of_training);
    run(&["evaluate", run_folder, &bars, "--report", &reports]).expect(0);
    let before =
        ["report.json", "report.html"].map(|name| fs::read(place.path("reports").join(name)).unwrap());
    assert!(before.iter().all(|report| report.len() > 1_000));
    // The second of the two finds no room.
    fs::write(place.path("reports").join("report.json"), "the one before").unwrap();
    fs::create_dir(place.path("reports").join("report.html.tmp")).unwrap();
    run(&["evaluate", run_folder, &bars, "--report", &reports]).expect(1);
    assert_eq!(fs::read(place.path("reports").join("report.json")).unwrap(), b"the one before");
    assert_eq!(fs::read(place.path("reports").join("report.html")).unwrap(), before[1]);
    assert!(!place.path("reports").join("report.json.tmp").exists());
}

#[test]
fn an_evaluation_keeps_the_tick_size_of_training() {
    let place = Place::new();
    let (_, run_folder) = place.trained("bars.csv", "runs", &[]);
    let quarters: Vec<Bar> =
        bars(300, 2).into_iter().map(|(time, p, v)| (time, p.map(|cents| cents / 25 * 25), v)).collect();
    let file = place.write("coarse.csv", csv(&quarters));
    let inspected: Value = serde_json::from_str(&run(&["inspect", &file, "--json"]).expect(0).out).unwrap();
    assert_eq!(inspected["report"]["tick_size"], 0.25);
    run(&["evaluate", run_folder.to_str().unwrap(), &file, "--report", &place.text("report")]).expect(0);
    let report: Value = serde_json::from_slice(&fs::read(place.path("report/report.json")).unwrap()).unwrap();
    assert_eq!(report["provenance"]["tick_size"]["value"], 0.01);
}

/// Flat bars, on which no ratio is defined: every one is `n/a` with its reason, in the table and in JSON.
#[test]
fn undefined_ratios_stay_words() {
    let place = Place::new();
    let (_, run_folder) = place.trained("bars.csv", "runs", &[]);
    let flat: Vec<Bar> = (0..300).map(|t| (1_700_000_000 + 3_600 * t, [10_000; 4], 0)).collect();
    let file = place.write("flat.csv", csv(&flat));
    let folder = run_folder.to_str().unwrap();
    let done = run(&["evaluate", folder, &file]).expect(0);
    assert!(done.out.contains("n/a") && !done.out.contains("NaN"), "{}", done.out);
    let json = run(&["evaluate", folder, &file, "--json"]).expect(0).out;
    let _: Value = serde_json::from_str(&json).unwrap();
    assert!(json.contains("returns do not vary"), "{json}");
    assert_only_explained_nulls(&json);
}

/// No number that is none, and no missing figure without its reason.
fn assert_only_explained_nulls(json: &str) {
    for word in ["NaN", "nan", "Infinity", "inf,"] {
        assert!(!json.contains(word), "{word} in {json}");
    }
    assert!(!json.replace("null,\"reason\":\"", "").contains("null"), "{json}");
}

/// Case G13: times without an offset are the same instants in whatever zone the computer stands.
#[test]
fn the_computers_zone_does_not_matter() {
    let place = Place::new();
    let rows = "2024-03-10T01:30,1,2,1,2\n2024-03-10T02:30,1,2,1,2\n2024-03-10T03:30,1,2,1,2\n";
    let file = place.write("local.csv", format!("date,open,high,low,close\n{rows}"));
    let inspect = |zone: &str| {
        let output = foxhunt().args(["inspect", &file, "--json"]).env("TZ", zone).output();
        Done::from(output.unwrap()).expect(0).out
    };
    let utc = inspect("UTC");
    assert!(utc.contains("2024-03-10T02:30:00Z") || utc.contains("2024-03-10T01:30:00Z"), "{utc}");
    for zone in ["Asia/Tokyo", "America/New_York"] {
        assert_eq!(inspect(zone), utc, "{zone}");
    }
    // Its own zone, when set: 02:30 does not exist there on that day.
    let refused = run(&["inspect", &file, "--timezone", "America/New_York"]).expect(1);
    assert!(refused.err.contains("row 3") && refused.err.contains("02:30"), "{}", refused.err);
}

/// A name that the files of a run cannot hold is refused before there is a run, with what it was given for.
#[cfg(unix)]
#[test]
fn names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let odd = |name: &[u8]| place.path("").join(std::ffi::OsStr::from_bytes(name));
    for command in ["train", "walk-forward"] {
        let begin = |bars: &Path, out: &Path| -> Done {
            let mut foxhunt = foxhunt();
            foxhunt.arg(command).arg(bars).arg("--config").arg(place.path("tiny.toml")).arg("--out").arg(out);
            foxhunt.output().unwrap().into()
        };
        let out = odd(b"runs-\xff");
        let done = begin(&place.path("bars.csv"), &out).expect(2);
        assert!(done.err.contains("--out") && done.err.contains("UTF-8"), "{}", done.err);
        assert!(!out.exists(), "{command}: no run was begun");

        // Not every file system takes such a name.
        let file = odd(b"bars-\xff.csv");
        if fs::copy(place.path("bars.csv"), &file).is_ok() {
            let done = begin(&file, &place.path("runs")).expect(2);
            assert!(done.err.contains("bar file") && done.err.contains("UTF-8"), "{}", done.err);
            assert!(!place.path("runs").exists(), "{command}: no run was begun");
        }
    }
}
