//! Repairs: nothing without being asked, each kind alone, counted; conflicts never.

use foxhunt_core::settings::{DataSettings, Repair};
use foxhunt_market::{Loaded, MarketError};

use crate::support::{load_text, load_text_with, minute, minutes};

fn repairing(text: &str, kinds: &[Repair]) -> Result<Loaded, MarketError> {
    load_text_with(text, &DataSettings { repair: kinds.to_vec(), ..DataSettings::default() })
}

fn with_rows(rows: &[usize]) -> String {
    let rows: Vec<String> = rows.iter().map(|&t| minute(t)).collect();
    format!("time,open,high,low,close,volume\n{}\n", rows.join("\n"))
}

#[test]
fn clean_files_are_not_touched() {
    let plain = load_text(minutes(50)).unwrap();
    let repaired = repairing(&minutes(50), &[Repair::Unsorted, Repair::Duplicates, Repair::Gaps]).unwrap();
    assert_eq!(plain.report.hash, repaired.report.hash);
    assert_eq!(repaired.report.repaired, Default::default());
}

#[test]
fn unsorted_rows() {
    let text = with_rows(&[0, 1, 4, 2, 3, 5]);
    match repairing(&text, &[Repair::Duplicates, Repair::Gaps]).unwrap_err() {
        MarketError::Unsorted { place, time, previous, .. } => {
            assert_eq!((place.row, place.column.as_str()), (5, "time"));
            assert_eq!((time.as_str(), previous.as_str()), ("2024-01-02T00:02:00Z", "2024-01-02T00:04:00Z"));
        }
        other => panic!("{other}"),
    }
    let loaded = repairing(&text, &[Repair::Unsorted]).unwrap();
    assert_eq!(loaded.report.repaired.unsorted, 2);
    assert_eq!(loaded.report.hash, load_text(minutes(6)).unwrap().report.hash);
    // A file with the newest row first.
    let loaded = repairing(&with_rows(&[5, 4, 3, 2, 1, 0]), &[Repair::Unsorted]).unwrap();
    assert_eq!(loaded.report.repaired.unsorted, 5);
    assert_eq!(loaded.report.hash, load_text(minutes(6)).unwrap().report.hash);
}

#[test]
fn duplicates() {
    let text = with_rows(&[0, 1, 1, 1, 2]);
    match load_text(&text).unwrap_err() {
        MarketError::Duplicate { place, first_row, .. } => assert_eq!((place.row, first_row), (4, 3)),
        other => panic!("{other}"),
    }
    let loaded = repairing(&text, &[Repair::Duplicates]).unwrap();
    assert_eq!(loaded.report.repaired.duplicates, 2);
    assert_eq!((loaded.report.rows_read, loaded.report.rows_kept), (5, 3));
    // Far apart, they are found by sorting only.
    let text = with_rows(&[0, 1, 2, 1]);
    assert!(matches!(repairing(&text, &[Repair::Duplicates]), Err(MarketError::Unsorted { .. })));
    match repairing(&text, &[Repair::Unsorted]).unwrap_err() {
        MarketError::Duplicate { place, first_row, .. } => assert_eq!((place.row, first_row), (5, 3)),
        other => panic!("{other}"),
    }
    let loaded = repairing(&text, &[Repair::Unsorted, Repair::Duplicates]).unwrap();
    assert_eq!((loaded.report.repaired.unsorted, loaded.report.repaired.duplicates), (1, 1));
    assert_eq!(loaded.report.hash, load_text(minutes(3)).unwrap().report.hash);
}

#[test]
fn conflicts_are_refused_whatever_is_repaired() {
    let other = minute(1).trim_end_matches("10").to_owned() + "11";
    let text =
        format!("time,open,high,low,close,volume\n{}\n{}\n{other}\n{}\n", minute(0), minute(1), minute(2));
    for kinds in [
        &[][..],
        &[Repair::Duplicates],
        &[Repair::Unsorted],
        &[Repair::Unsorted, Repair::Duplicates, Repair::Gaps],
    ] {
        match repairing(&text, kinds).unwrap_err() {
            MarketError::Conflict { place, first_row, value, first_value, .. } => {
                assert_eq!((place.row, place.column.as_str(), first_row), (4, "volume", 3), "{kinds:?}");
                assert_eq!((value, first_value), (11.0, 10.0));
            }
            other => panic!("{kinds:?}: {other}"),
        }
    }
}

#[test]
fn gaps_are_filled_flat_when_asked() {
    let text = with_rows(&[0, 1, 2, 5, 6]);
    let plain = load_text(&text).unwrap();
    assert_eq!((plain.report.gaps.gaps, plain.report.gaps.missing_bars), (1, 2), "reported, not filled");
    assert_eq!(plain.bars.len(), 5);
    let loaded = repairing(&text, &[Repair::Gaps]).unwrap();
    let bars = &loaded.bars;
    assert_eq!((bars.len(), loaded.report.repaired.gaps, loaded.report.gaps.gaps), (7, 2, 0));
    for t in [3, 4] {
        assert_eq!([bars.open[t], bars.high[t], bars.low[t], bars.close[t]], [bars.close[2]; 4]);
        assert_eq!(bars.volume.as_ref().unwrap()[t], 0.0);
    }
    assert_eq!(bars.made, [false, false, false, true, true, false, false]);
    let told = |loaded: &foxhunt_market::Loaded| {
        loaded.report.assumptions.iter().any(|note| note.contains("no order fills in them"))
    };
    assert!(told(&loaded) && !told(&plain) && plain.bars.made.is_empty());
    assert!(bars.time.windows(2).all(|pair| pair[1] - pair[0] == 60_000_000_000));
}

/// A weekend is not a gap: the sample of 52 weekends is not filled over them.
#[test]
fn weekends_are_not_filled() {
    let settings = DataSettings { repair: vec![Repair::Gaps], ..DataSettings::default() };
    let loaded = foxhunt_market::load(&crate::support::eurusd(), &settings).unwrap();
    assert_eq!(loaded.report.gaps.longest_seconds, 50.0 * 3600.0);
    assert_eq!(loaded.report.gaps.session_breaks, 50);
    // Christmas lacks 14 hours that are usually open, too long to be a hole inside a session; one weekend begins an
    // hour early.
    assert_eq!((loaded.report.gaps.gaps, loaded.report.gaps.missing_bars), (2, 15));
    assert_eq!(loaded.report.repaired.gaps, 0);
    assert_eq!(loaded.bars.len(), 6225);
}
