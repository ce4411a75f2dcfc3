//! Counting, sharing and surviving.

use std::fs;

use super::*;

fn settings(batch: usize) -> Settings {
    let mut settings = Settings::default();
    settings.learner.batch = batch;
    settings
}

fn sharpe(ratio: f64) -> Option<SharpeEstimate> {
    Some(SharpeEstimate { ratio, n_returns: 100, skewness: 0.0, kurtosis: 3.0 })
}

/// A configuration counts once however often it ran, on its own bars alone, and its newest ratio is the one that counts.
#[test]
fn distinct_configurations_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::in_folder(&dir.path().join("runs"));
    assert_eq!(ledger.tried("a", &settings(1)).unwrap().trials, Trials::ONE, "an empty ledger");
    for (data, batch, ratio) in [
        ("a", 1, None),
        ("a", 1, sharpe(0.5)),
        ("a", 2, sharpe(0.1)),
        ("b", 3, sharpe(9.0)),
        ("a", 1, sharpe(0.3)),
        ("a", 1, None),
    ] {
        ledger.append(&Entry::now("train", data, &settings(batch), ratio)).unwrap();
    }
    let tried = ledger.tried("a", &settings(2)).unwrap();
    assert_eq!((tried.trials.count, tried.unreadable_lines), (2, 0));
    assert!((tried.trials.variance.unwrap() - 0.02).abs() < 1e-15, "of 0.3 and 0.1");
    assert_eq!(ledger.tried("a", &settings(7)).unwrap().trials.count, 3, "what is judged counts");
    assert_eq!(ledger.tried("b", &settings(3)).unwrap().trials, Trials { count: 1, variance: None });
}

#[test]
fn a_configuration_is_what_can_change_a_result() {
    let base = Settings::default();
    let mut elsewhere = base.clone();
    elsewhere.run.dir = "elsewhere".into();
    elsewhere.run.threads = 3;
    elsewhere.run.device = Device::Cpu;
    elsewhere.checkpoint.keep = 9;
    assert_eq!(config_hash(&elsewhere), config_hash(&base));
    let mut seed = base.clone();
    seed.run.seed += 1;
    assert_ne!(config_hash(&seed), config_hash(&base));
}

/// Torn at every byte of its last line, a ledger keeps the lines before, counts the stump, and takes new lines whole.
#[test]
fn a_torn_line_is_passed_over_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::in_folder(dir.path());
    let entry = |batch| Entry::now("train", "a", &settings(batch), sharpe(0.1));
    ledger.append(&entry(1)).unwrap();
    let first = fs::read(ledger.path()).unwrap().len();
    ledger.append(&entry(2)).unwrap();
    let whole = fs::read(ledger.path()).unwrap();
    for cut in first..whole.len() {
        fs::write(ledger.path(), &whole[..cut]).unwrap();
        ledger.append(&entry(3)).unwrap();
        let (entries, unreadable) = ledger.read().unwrap();
        // Without its line end alone, the line is still whole.
        let kept = if cut == whole.len() - 1 {
            vec![entry(1), entry(2), entry(3)]
        } else {
            vec![entry(1), entry(3)]
        };
        let hashes = |entries: &[Entry]| entries.iter().map(|e| e.config_hash.clone()).collect::<Vec<_>>();
        assert_eq!(hashes(&entries), hashes(&kept), "cut at {cut}");
        let stump = u64::from(cut > first && cut < whole.len() - 1);
        assert_eq!(unreadable, stump, "cut at {cut}");
    }
    fs::write(ledger.path(), "\u{0}\u{0}\n{}\nnot json\n").unwrap();
    assert_eq!(ledger.tried("a", &settings(1)).unwrap().unreadable_lines, 3);
}

/// Eight writers at once lose and mix nothing.
#[test]
fn writers_do_not_mix_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::in_folder(dir.path());
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let ledger = &ledger;
            scope.spawn(move || {
                for i in 0..25 {
                    let entry = Entry::now("train", "a", &settings(1 + writer * 25 + i), None);
                    ledger.append(&entry).unwrap();
                }
            });
        }
    });
    let (entries, unreadable) = ledger.read().unwrap();
    assert_eq!((entries.len(), unreadable), (200, 0));
    assert_eq!(ledger.tried("a", &settings(1)).unwrap().trials.count, 200);
}

#[test]
fn a_ledger_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let ledger = Ledger::in_folder(&dir.path().join("file"));
    let error = ledger.append(&Entry::now("train", "a", &settings(1), None)).unwrap_err();
    assert!(matches!(error, MLError::Io { .. }), "{error}");
}
