//! Text files: dialects by example, files that are no bar files, limits.

use foxhunt_core::settings::{DataSettings, StampAt};
use foxhunt_market::MarketError;

use crate::support::{file, load_plain, load_text, load_text_with, minutes, refused};

#[test]
fn binance_klines_without_header() {
    let row = |t: i64| format!("{t},1.5,2.5,1.0,2.0,10.5,{},21.0,7,5.0,10.0,0\n", t + 59_999);
    let text: String = (0..3).map(|i| row(1_704_067_200_000 + 60_000 * i)).collect();
    let loaded = load_text(text).unwrap();
    assert_eq!(loaded.bars.len(), 3, "the first row is data");
    assert_eq!(loaded.bars.time[0], 1_704_067_200_000_000_000);
    assert_eq!(loaded.bars.volume.unwrap()[0], 10.5);
    assert!(loaded.report.format.contains("Binance"), "{}", loaded.report.format);
}

#[test]
fn histdata_without_header() {
    let text =
        "20120201 000000;1.3066;1.3067;1.3065;1.3066;0\n20120201 000100;1.3066;1.3067;1.3065;1.3066;0\n";
    let zone = DataSettings { timezone: "Etc/GMT+5".into(), ..DataSettings::default() };
    let bars = load_text_with(text, &zone).unwrap().bars;
    assert_eq!(bars.time[0], 1_328_072_400_000_000_000, "midnight five hours west of UTC");
}

#[test]
fn other_files_without_header_are_told_so() {
    assert!(matches!(refused("2024-01-02,1,2,1,2\n2024-01-03,1,2,1,2\n"), MarketError::NoHeader { .. }));
}

#[test]
fn metatrader_export() {
    let text = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\n\
                2024.01.02\t00:00:00\t1.1\t1.2\t1.0\t1.15\t10\t0\n2024.01.02\t01:00:00\t1.1\t1.2\t1.0\t1.15\t10\t0\n";
    let loaded = load_text(text).unwrap();
    assert_eq!(loaded.bars.time[1], 1_704_157_200_000_000_000);
    assert_eq!(loaded.report.columns["time"], "<DATE> + <TIME>");
    assert_eq!(loaded.report.columns["volume"], "<VOL>");
    assert_eq!(loaded.report.ignored_columns, ["<TICKVOL>"]);
    let points = text.replace("TICKVOL", "SPREAD");
    assert!(matches!(refused(points), MarketError::SpreadTooLarge { .. }), "points are no price units");
}

#[test]
fn date_and_time_columns() {
    let text = |clock: &str| {
        format!("Date,Time,Open,High,Low,Close\n20240102,{clock},1,2,1,2\n20240103,{clock},1,2,1,2\n")
    };
    for clock in ["09:30", "093000", "9:30:00", "09:30:00.000", "0930"] {
        assert_eq!(load_text(text(clock)).unwrap().bars.time[0], 1_704_187_800_000_000_000, "{clock}");
    }
    for (clock, column) in [("25:00", "Date + Time"), ("", "Date + Time")] {
        let error = refused(text(clock)).to_string();
        assert!(error.contains("row 2") && error.contains(column), "{error}");
    }
}

#[test]
fn quotes_become_mid_and_spread() {
    let sides = "bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close";
    let text = format!(
        "time,{sides}\n2024-01-02,1.0,2.0,0.5,1.5,1.5,2.5,1.0,1.625\n2024-01-03,1.0,2.0,0.5,1.5,1.5,2.5,1.0,1.5\n"
    );
    let bars = load_text(&text).unwrap().bars;
    assert_eq!((bars.open[0], bars.high[0], bars.low[0], bars.close[0]), (1.25, 2.25, 0.75, 1.5625));
    assert_eq!(bars.spread.unwrap(), [0.125, 0.0]);
    match refused(text.replace("1.0,1.5\n", "1.0,1.25\n")) {
        MarketError::Negative { place, .. } => {
            assert_eq!((place.row, place.column.as_str()), (3, "ask_close - bid_close"))
        }
        other => panic!("{other}"),
    }
    match refused(text.replace("2024-01-03,1.0,2.0", "2024-01-03,1.0,0.9")) {
        MarketError::HighTooLow { place, .. } => {
            assert_eq!((place.row, place.column.as_str()), (3, "bid_high"))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn spread_column() {
    let text = "time,open,high,low,close,spread\n2024-01-02,1,2,1,2,0.02\n2024-01-03,1,2,1,2,0\n";
    assert_eq!(load_text(text).unwrap().bars.spread.unwrap(), [0.02, 0.0]);
    match refused(text.replace("0.02", "-0.02")) {
        MarketError::Negative { place, .. } => assert_eq!((place.row, place.column.as_str()), (2, "spread")),
        other => panic!("{other}"),
    }
}

#[test]
fn stamps_at_the_close_move_back_by_one_bar() {
    let settings = DataSettings { stamp: StampAt::Close, ..DataSettings::default() };
    let open = load_text(minutes(5)).unwrap().bars.time;
    let close = load_text_with(minutes(5), &settings).unwrap().bars.time;
    assert!(open.iter().zip(&close).all(|(o, c)| o - c == 60_000_000_000));
}

#[test]
fn a_spreadsheet_may_announce_its_separator() {
    let text = "sep=;\ndate;open;high;low;close\n2024-01-02;1;2;1;2\n2024-01-03;1;2;1;2\n";
    assert_eq!(load_text(text).unwrap().bars.len(), 2);
}

#[test]
fn symbols_in_one_file() {
    let text =
        "symbol,date,open,high,low,close\nA,2024-01-02,1,2,1,2\nB,2024-01-02,3,4,3,4\nA,2024-01-03,1,2,1,2\n";
    match refused(text) {
        MarketError::SeveralSymbols { symbols, .. } => assert_eq!(symbols, ["A", "B"]),
        other => panic!("{other}"),
    }
    let select = |symbol: &str| DataSettings { symbol: Some(symbol.into()), ..DataSettings::default() };
    let loaded = load_text_with(text, &select("A")).unwrap();
    assert_eq!((loaded.bars.len(), loaded.report.rows_of_other_symbols), (2, 1));
    assert!(matches!(load_text_with(text, &select("C")), Err(MarketError::UnknownSymbol { .. })));
    assert!(matches!(load_text_with(minutes(3), &select("A")), Err(MarketError::NoSymbolColumn { .. })));
    let one = text.replace("B,2024-01-02,3,4,3,4\n", "");
    assert_eq!(load_text(one).unwrap().bars.symbol.as_deref(), Some("A"));
    // Another symbol's dirt is not this symbol's fault.
    let dirty = text.replace("B,2024-01-02,3,4,3,4", "B,2024-01-02,3,nan,3,4");
    assert_eq!(load_text_with(dirty, &select("A")).unwrap().bars.len(), 2);
}

#[test]
fn fields_too_many_or_too_few() {
    for (row, found) in [("2024-01-03,1,2,1", 4), ("2024-01-03,1,2,1,2,3", 6)] {
        match refused(format!("date,open,high,low,close\n2024-01-02,1,2,1,2\n{row}\n")) {
            MarketError::FieldCount { row: 3, expected: 5, found: f, .. } => assert_eq!(f, found),
            other => panic!("{other}"),
        }
    }
    // Blank surplus at the end is how some programs end a line.
    assert!(load_text("date,open,high,low,close\n2024-01-02,1,2,1,2,\n2024-01-03,1,2,1,2,,\n").is_ok());
}

#[test]
fn things_that_are_no_bar_files() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load_plain(folder.path()), Err(MarketError::NotAFile { kind: "a directory", .. })));
    assert!(matches!(
        load_plain(&folder.path().join("none.csv")),
        Err(MarketError::Io { action: "read", .. })
    ));
    if cfg!(unix) {
        assert!(matches!(
            load_plain(std::path::Path::new("/dev/zero")),
            Err(MarketError::NotAFile { kind: "a device", .. })
        ));
        let pipe = folder.path().join("pipe");
        if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
            assert!(matches!(load_plain(&pipe), Err(MarketError::NotAFile { kind: "a pipe", .. })));
        }
    }
    for content in [
        &b"\x7fELF\x02\x01\x01\0\0\0\0\0"[..],
        b"\xff\xfet\0i\0m\0e\0",
        b"\x89PNG\r\n\x1a\n\0\0\0\r",
        b"PAR1",
        b"DBN\x03",
        b"DBN\x03\xff\xff\xff\xff",
        b"DBN\x01\x10\0\0\0garbagegarbagegarbage",
        b"\x1f\x8b",
        b"\x1f\x8b\x08\0\0\0\0\0",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\0\0\0\0\0",
        b"hello",
        b"\xff\xff\xff\xff\xff",
        b"time,\xff\xfe,open,high,low,close\n1,2,3,4,5,6\n",
        b"\"",
        b"a,\"b\nc",
        b"<html><body>not found</body></html>",
        b"{\"time\": 1}",
    ] {
        let error = load_plain(&file("bars", content).path).expect_err("no bar file");
        assert!(error.to_string().contains("bars"), "{error}");
    }
}

#[test]
fn invalid_utf8_is_named_where_it_stands() {
    let text = b"date,open,high,low,close\n2024-01-02,1,2,1,2\n2024-01-03,1,\xff,1,2\n";
    match refused(text) {
        MarketError::NotANumber { place, value } => {
            assert_eq!((place.row, place.column.as_str(), value.as_str()), (3, "high", "\u{fffd}"));
        }
        other => panic!("{other}"),
    }
    let text = b"symbol,date,open,high,low,close\n\xff,2024-01-02,1,2,1,2\n";
    assert!(matches!(refused(text), MarketError::InvalidUtf8 { .. }));
}

/// A byte that cannot be seen is named with its row, wherever it stands: in the header, in the first bar, in a column
/// that nobody reads, in a later block.
#[test]
fn unseen_bytes_are_named_with_their_row() {
    let header = "time,open,high,low,close,note\n";
    let row = |t: usize, note: &str| {
        let time = 1_700_000_000 + 60 * t;
        format!("{time},1,2,1,2,{note}\n")
    };
    let many: String = (0..400_000).map(|t| row(t, "none")).collect();
    assert!(many.len() > 8 << 20, "more than a block");
    let ends = |text: &str| text.replace('\n', "\r");
    let (first, second, third) = (row(0, "a"), row(1, "b"), row(2, "c"));
    for (text, want, what) in [
        (format!("ti\0me,open,high,low,close\n{first}"), 1, "a zero byte"),
        (format!("{header}{}{second}", row(0, "\0")), 2, "a zero byte"),
        (format!("{header}{first}{}{third}", row(1, "x\0y")), 3, "a zero byte"),
        (format!("{header}{first}\n\0\n{second}"), 4, "a zero byte"),
        (format!("{header}{many}{}", row(400_000, "\0")), 400_002, "a zero byte"),
        // Lines of a program of old, joined to those of another.
        (format!("{}{first}{second}", ends(header)), 1, "a carriage return"),
        (format!("{header}{}", ends(&format!("{first}{second}{third}"))), 2, "a carriage return"),
        (format!("{header}{first}{}{third}", ends(&second)), 3, "a carriage return"),
        (format!("{header}{first}{}", ends(&many)), 3, "a carriage return"),
        (format!("{header}{many}{}", ends(&many)), 400_002, "a carriage return"),
        (format!("{}{}{third}", ends(header), ends(&first)), 1, "a carriage return"),
        (format!("{}{}{first}{second}", ends(header), ends(&many)), 400_002, "a line feed"),
    ] {
        for (name, content) in
            [("plain", text.clone().into_bytes()), ("zstd", zstd::encode_all(text.as_bytes(), 1).unwrap())]
        {
            let start = &text[..text.len().min(80)];
            match refused(content) {
                MarketError::StrayByte { path, row, what: told } => {
                    assert!(path.ends_with("bars.csv"), "{}", path.display());
                    assert!(
                        row == want && told.starts_with(what),
                        "{name} {start:?}: row {row} holds {told}"
                    );
                }
                other => panic!("{name} {start:?}: {other}"),
            }
        }
    }
    // Text whose every second byte is zero is told what it is, compressed or not.
    let wide = [b"\xff\xfe".to_vec(), header.bytes().flat_map(|byte| [byte, 0]).collect()].concat();
    for content in [wide.clone(), zstd::encode_all(&wide[..], 1).unwrap()] {
        let error = refused(content).to_string();
        assert!(error.ends_with("it is UTF-16 text; save it as UTF-8"), "{error}");
    }
    // Where a quoted text holds it and every value can be read, there is nothing wrong with it.
    let quoted = format!("{header}{}{}", row(0, "\"a\rb\""), row(1, "c"));
    assert_eq!(load_text(quoted).unwrap().bars.len(), 2);
}

/// A header of any length is told in few words.
#[test]
fn a_long_header_is_told_in_few_words() {
    let names: Vec<String> = (0..500).map(|i| format!("column{i}{}", "x".repeat(100))).collect();
    let error = refused(format!("{}\n1,2\n", names.join(","))).to_string();
    assert!(error.len() < 1_000 && error.contains("column0x") && error.ends_with("and 484 more"), "{error}");
}

/// A line without an end is given up early, not read into memory.
#[test]
fn endless_lines_are_bounded() {
    let long = vec![b'7'; 40 << 20];
    assert!(matches!(refused(&long), MarketError::LineTooLong { row: 1, .. }));
    let mut text = minutes(3).into_bytes();
    text.extend(vec![b'7'; 40 << 20]);
    assert!(matches!(refused(&text), MarketError::LineTooLong { row: 5, .. }));
    let mut text = minutes(3).into_bytes();
    text.extend(vec![b'7'; 2 << 20]);
    assert!(matches!(refused(&text), MarketError::LineTooLong { row: 5, .. }));
}

/// A file of several blocks is the same as its rows one by one, and errors count lines across blocks.
#[test]
fn blocks_join_without_seams() {
    let n_rows = 400_000;
    let mut text = String::from("timestamp,open,high,low,close,volume\n");
    for t in 0..n_rows {
        text += &format!("{},{t}.5,{t}.75,{t}.25,{t}.5,{}\n", 1_000_000_000 + 60 * t, t % 97);
    }
    text = text.replacen(",0.5,0.75,0.25,0.5,", ",1,1,1,1,", 1);
    assert!(text.len() > 2 * (8 << 20), "more than two blocks");
    let loaded = load_text(&text).unwrap();
    assert_eq!(loaded.bars.len(), n_rows);
    for t in (1..n_rows).step_by(977) {
        assert_eq!(loaded.bars.time[t], (1_000_000_000 + 60 * t as i64) * 1_000_000_000);
        assert_eq!(loaded.bars.close[t], t as f64 + 0.5);
        assert_eq!(loaded.bars.volume.as_ref().unwrap()[t], (t % 97) as f64);
    }
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    assert_eq!(load_plain(&file("bars.csv", zstd).path).unwrap().report.hash, loaded.report.hash);
    let bad_row = 399_000;
    let wanted = format!("\n{},", 1_000_000_000 + 60 * (bad_row - 2));
    match refused(text.replacen(&wanted, "\nbad,", 1)) {
        MarketError::BadTime { place, value, .. } => {
            assert_eq!((place.row, value.as_str()), (bad_row, "bad"))
        }
        other => panic!("{other}"),
    }
}
