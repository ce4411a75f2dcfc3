//! Known faults of loaders: the cases of kind G that concern text files, and F29 and F35.

use foxhunt_core::settings::DataSettings;
use foxhunt_market::MarketError;

use crate::support::{eurusd, file, load_plain, load_text, load_text_with, minutes, refused};

/// Case G01: a byte-order mark before a plain and before a quoted first header.
#[test]
fn case_g01_byte_order_mark() {
    for header in ["timestamp,open,high,low,close", "\"timestamp\",\"open\",high,low,close"] {
        let text = format!("\u{feff}{header}\n2024-01-02,1,2,1,2\n2024-01-03,1,2,1,2\n");
        let loaded = load_text(text).unwrap();
        assert_eq!(loaded.report.columns["time"].as_bytes(), b"timestamp", "{header}");
        assert_eq!(loaded.bars.len(), 2);
    }
}

/// Case G03: blank lines in the middle and at the end, and no final newline.
#[test]
fn case_g03_blank_lines() {
    let rows = ["2024-01-02,1,2,1,2", "2024-01-03,1,2,1,2", "2024-01-04,1,2,1,2"];
    let header = "date,open,high,low,close";
    for text in [
        format!("{header}\n{}\n\n\n", rows.join("\n")),
        format!("{header}\n{}", rows.join("\n")),
        format!("{header}\n{}", rows.join("\n\n")),
        format!("\n  \n{header}\r\n\r\n{}\r\n \r\n", rows.join("\r\n")),
        format!("{header}\r{}\r", rows.join("\r")),
    ] {
        assert_eq!(load_text(&text).unwrap().bars.len(), 3, "{text:?}");
    }
}

/// Case G03: rows are numbered by line, blank ones included.
#[test]
fn case_g03_rows_are_lines_of_the_file() {
    let text = "date,open,high,low,close\n2024-01-02,1,2,1,2\n\n\n2024-01-03,1,x,1,2\n";
    let error = refused(text).to_string();
    assert!(error.ends_with("bars.csv: row 5, column high: `x` is not a number"), "{error}");
}

/// Case G04: decimal commas with another separator or in quotes; without the option an error that names the comma.
#[test]
fn case_g04_decimal_comma() {
    let comma = DataSettings { decimal_comma: true, ..DataSettings::default() };
    let semicolons = "date;open;high;low;close;volume\n\
                      2024-01-02;10,20;10,5;4,5;4,5;0,1\n2024-01-03;10;10,5;4,5;4.5;7\n";
    let quoted = semicolons.replace(',', "\u{1}").replace(';', ",");
    let quoted: String = quoted
        .lines()
        .map(|line| {
            let fields = line.split(',').map(|f| {
                if f.contains('\u{1}') { format!("\"{}\"", f.replace('\u{1}', ",")) } else { f.to_owned() }
            });
            fields.collect::<Vec<_>>().join(",") + "\n"
        })
        .collect();
    for text in [semicolons, &quoted] {
        let bars = load_text_with(text, &comma).unwrap().bars;
        assert_eq!((bars.open[0], bars.close[0], bars.close[1]), (10.2, 4.5, 4.5), "{text}");
        assert_eq!(bars.volume.unwrap(), [0.1, 7.0]);
        match refused(text) {
            MarketError::DecimalComma { place, value } => {
                assert_eq!((place.row, place.column.as_str(), value.as_str()), (2, "open", "10,20"));
            }
            other => panic!("{other}"),
        }
    }
    // Commas as separator and as decimal mark at once can only be refused.
    let hopeless = "date,open,high,low,close\n2024-01-02,10,20,10,5,4,5,4,5\n";
    match load_text_with(hopeless, &comma).unwrap_err() {
        MarketError::FieldCount { row: 2, expected: 5, found: 9, hint, .. } => assert!(!hint.is_empty()),
        other => panic!("{other}"),
    }
}

/// Case G04: no column type is guessed from the first rows, so a hundred missing marks do not change what follows.
#[test]
fn case_g04_missing_marks_are_named_where_they_stand() {
    let mut text = String::from("date;open;high;low;close;note\n");
    for minute in 0..100 {
        text += &format!("2024-01-02 10:{:02}:{:02};1;2;1;2;-\n", minute / 60, minute % 60);
    }
    text += "2024-01-02 12:00:00;0,1;0,1;0,1;0,1;-\n";
    let comma = DataSettings { decimal_comma: true, ..DataSettings::default() };
    assert_eq!(load_text_with(&text, &comma).unwrap().bars.close[100], 0.1);
    let text = text.replace(";0,1;0,1;0,1;0,1;", ";0,1;0,1;0,1;-;");
    match load_text_with(&text, &comma).unwrap_err() {
        MarketError::MissingValue { place, value } => {
            assert_eq!((place.row, place.column.as_str(), value.as_str()), (102, "close", "-"));
        }
        other => panic!("{other}"),
    }
}

/// Case G06: whole numbers first, a decimal later.
#[test]
fn case_g06_whole_numbers_first() {
    let mut text = String::from("date,open,high,low,close\n");
    for second in 0..150 {
        text += &format!("2024-01-02 10:{:02}:{:02},1,1,1,1\n", second / 60, second % 60);
    }
    text += "2024-01-02 11:00:00,2.1,2.1,2.1,2.1\n";
    let bars = load_text(text).unwrap().bars;
    assert_eq!((bars.len(), bars.close[150]), (151, 2.1));
}

/// Case G07: nothing, a header only, one row.
#[test]
fn case_g07_nothing_header_one_row() {
    let header = "time,open,high,low,close,volume";
    for text in ["", "\n\n", header, &format!("{header}\n"), &format!("{header}\n\n  \n"), "\u{feff}"] {
        let error = refused(text);
        assert!(matches!(error, MarketError::NoRows { .. }), "{text:?}: {error}");
        let error = error.to_string();
        assert!(error.contains("bars.csv") && error.ends_with("0 rows"), "{error}");
    }
    match refused(minutes(1)) {
        error @ MarketError::TooFewRows { need: 2, have: 1 } => {
            assert_eq!(error.to_string(), "needs at least 2 rows, has 1");
        }
        other => panic!("{other}"),
    }
}

/// Cases G09 and F29: a NaN, an infinity and missing words are refused with row and column, in every price column.
#[test]
fn case_g09_f29_words_for_numbers() {
    for (word, is_missing) in [
        ("NaN", false),
        ("inf", false),
        ("-Infinity", false),
        ("1e999", false),
        ("NA", true),
        ("", true),
        ("null", true),
    ] {
        for (index, column) in ["open", "high", "low", "close", "volume"].iter().enumerate() {
            let mut fields = ["2024-01-04", "100", "101", "99", "100", "100"];
            fields[index + 1] = word;
            let text = format!(
                "time,open,high,low,close,volume\n2024-01-02,100,101,99,100,100\n2024-01-03,100,101,99,101,100\n{}\n",
                fields.join(",")
            );
            match (refused(text), is_missing) {
                (MarketError::NotFinite { place, value }, false)
                | (MarketError::MissingValue { place, value }, true) => {
                    assert_eq!((place.row, place.column.as_str(), value.as_str()), (4, *column, word));
                }
                (other, _) => panic!("{word} in {column}: {other}"),
            }
        }
    }
}

/// Case F35: a price of zero or below has no log return and is refused with its row.
#[test]
fn case_f35_negative_prices() {
    for price in ["-2", "0", "-0.0"] {
        let text =
            format!("date,open,high,low,close\n2020-04-17,10,10,10,10\n2020-04-20,10,10,{price},{price}\n");
        match refused(text) {
            MarketError::NotPositive { place, value } => {
                assert_eq!((place.row, place.column.as_str()), (3, "low"));
                assert_eq!(value, price.parse::<f64>().unwrap());
            }
            other => panic!("{other}"),
        }
    }
}

/// Case G10: all four epoch units are the same instant; a change inside the file is an error.
#[test]
fn case_g10_epoch_units() {
    for zeros in ["", "000", "000000", "000000000"] {
        let text =
            format!("timestamp,open,high,low,close\n1772452800{zeros},1,2,1,2\n1772452860{zeros},1,2,1,2\n");
        let bars = load_text(text).unwrap().bars;
        assert_eq!(bars.time[0], 1_772_452_800_000_000_000);
        assert_eq!(bars.bar_ns, 60_000_000_000);
    }
    match refused("timestamp,open,high,low,close\n1772452800,1,2,1,2\n1772452860000,1,2,1,2\n") {
        MarketError::TimeUnitChanged { place, value, was, now } => {
            assert_eq!((place.row, place.column.as_str()), (3, "timestamp"));
            assert_eq!(value, "1772452860000");
            assert!(was.starts_with("seconds") && now.starts_with("milliseconds"), "{was} {now}");
        }
        other => panic!("{other}"),
    }
}

/// Case G12: offsets that change inside the file.
#[test]
fn case_g12_offsets_change() {
    let text =
        "date,open,high,low,close\n2024-11-03T01:30:00-04:00,1,2,1,2\n2024-11-03T01:30:00-05:00,1,2,1,2\n";
    let bars = load_text(text).unwrap().bars;
    assert_eq!(bars.time, [1_730_611_800_000_000_000, 1_730_615_400_000_000_000]);
}

/// Case G13: local times are UTC unless a zone is set, and the computer's zone never matters.
#[test]
fn case_g13_local_times() {
    let rows = |times: &[&str]| {
        let rows: String = times.iter().map(|t| format!("{t},1,2,1,2\n")).collect();
        format!("date,open,high,low,close\n{rows}")
    };
    let plain = rows(&["2024-03-10T01:59", "2024-03-10T02:30", "2024-03-10T03:00"]);
    let loaded = load_text(&plain).unwrap();
    assert_eq!(loaded.bars.time[1], 1_710_037_800_000_000_000);
    assert!(loaded.report.assumptions.iter().any(|a| a.contains("read as UTC")));

    let zone = DataSettings { timezone: "America/New_York".into(), ..DataSettings::default() };
    match load_text_with(&plain, &zone).unwrap_err() {
        MarketError::TimeSkipped { place, value, zone } => {
            assert_eq!(
                (place.row, value.as_str(), zone.as_str()),
                (3, "2024-03-10T02:30", "America/New_York")
            );
        }
        other => panic!("{other}"),
    }
    let bars = load_text_with(rows(&["2024-03-10T01:59", "2024-03-10T03:00"]), &zone).unwrap().bars;
    assert_eq!(bars.bar_ns, 60_000_000_000);
    match load_text_with(rows(&["2024-11-03T00:30", "2024-11-03T01:30"]), &zone).unwrap_err() {
        MarketError::TimeAmbiguous { place, .. } => assert_eq!(place.row, 3),
        other => panic!("{other}"),
    }
    let mars = DataSettings { timezone: "Mars/Olympus".into(), ..DataSettings::default() };
    assert!(load_plain(&eurusd()).is_ok());
    assert!(matches!(load_text_with(minutes(3), &mars), Err(MarketError::UnknownTimezone { .. })));
}

/// Case G15: 71 hours over the weekend of the clock change are accepted between daily bars.
#[test]
fn case_g15_short_day() {
    let text = "timestamp,open,high,low,close\n1583418600,1,2,1,2\n1583505000,1,2,1,2\n1583760600,1,2,1,2\n";
    let loaded = load_text(text).unwrap();
    assert_eq!(loaded.bars.time[2] - loaded.bars.time[1], 255_600_000_000_000);
    assert_eq!(loaded.report.gaps.gaps, 0, "{:?}", loaded.report.gaps);
    let per_year = loaded.bars.bars_per_year(0..3).unwrap();
    assert!((per_year - 2.0 / (342_000.0 / (365.25 * 86_400.0))).abs() < 1e-9, "bars are counted, not hours");
}

/// Case G19: two columns that could be the close are named; a missing one lists what was found.
#[test]
fn case_g19_headers() {
    assert!(load_text("Date, Open ,HIGH,low, Close \n2024-01-02,1,2,1,2\n2024-01-03,1,2,1,2\n").is_ok());
    let error = refused("date,open,high,low,close,Close\n2024-01-02,1,2,1,2,2\n").to_string();
    assert!(error.contains("`close` and `Close`"), "{error}");
    let error = refused("date,open,high,low,last\n2024-01-02,1,2,1,2\n").to_string();
    assert!(
        error.contains("no column for close") && error.contains("date, open, high, low, last"),
        "{error}"
    );
}

/// Case G21: a compressed file cut at half is an error with path and offset, never fewer rows.
#[test]
fn case_g21_cut_off_compression() {
    let text = minutes(1000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for (name, whole) in [("gzip", gzip), ("zstd", zstd)] {
        assert_eq!(load_plain(&file("bars", &whole).path).unwrap().bars.len(), 1000, "{name}");
        for length in (1..whole.len()).step_by(7).chain(whole.len() - 10..whole.len()).filter(|&n| n > 4) {
            match load_plain(&file("bars", &whole[..length]).path) {
                Err(MarketError::Corrupt { path, format, offset, .. }) => {
                    assert_eq!(format, name);
                    assert!(path.ends_with("bars"));
                    assert!(offset <= length as u64);
                }
                other => panic!("{name} cut at {length}: {:?}", other.map(|l| l.bars.len())),
            }
        }
    }
}
