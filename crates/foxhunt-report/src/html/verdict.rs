//! The verdict in words and figures: is it more than luck?

use foxhunt::evaluation::{CONFIDENCE, Measure, Verdict};
use serde::Serialize;

use crate::number::{count, grouped, or_reason, typographic};

#[derive(Serialize)]
pub(super) struct VerdictSection {
    sentence: String,
    rows: Vec<(&'static str, String)>,
}

impl VerdictSection {
    pub(super) fn of(v: &Verdict) -> Self {
        let rows = rows(v).into_iter().map(|(label, text)| (label, typographic(&text))).collect();
        Self { sentence: typographic(&sentence(v)), rows }
    }
}

/// One sentence, the same on the page and on the terminal.
#[must_use]
pub fn sentence(v: &Verdict) -> String {
    let tries = match v.trials {
        1 => "the only configuration tried on these bars".to_owned(),
        n => format!("one of {} configurations tried on these bars", count(n)),
    };
    match (v.dsr.value(), v.dsr.reason()) {
        (Some(dsr), _) if dsr >= CONFIDENCE => format!(
            "More than luck, as far as the ledger knows: {} likely to have an edge as {tries}.",
            chance(dsr)
        ),
        (Some(dsr), _) => format!(
            "Not to be told from luck: {} likely to have an edge as {tries}; 95\u{a0}% would be needed.",
            chance(dsr)
        ),
        (None, reason) => format!("No verdict: {}.", reason.unwrap_or("not known")),
    }
}

/// Label and text of each figure.
#[must_use]
pub fn rows(v: &Verdict) -> Vec<(&'static str, String)> {
    let ratio = |m: &Measure| or_reason(m, |v| grouped(v, 2));
    let interval = match (v.sharpe_low.value(), v.sharpe_high.value()) {
        (Some(low), Some(high)) => {
            format!(", 95\u{a0}% interval {} to {}", grouped(low, 2), grouped(high, 2))
        }
        _ => String::new(),
    };
    let deflated = format!(
        "{}; the best of {} worthless configurations would show a ratio of {}",
        or_reason(&v.dsr, chance),
        count(v.trials),
        ratio(&v.luck)
    );
    let years = |m: &Measure| or_reason(m, |v| format!("{} years", grouped(v, 2)));
    let mut rows = vec![
        ("Judged", format!("{}, {} returns over {}", v.what, count(v.n_returns as u64), years(&v.years))),
        ("Sharpe ratio", format!("{}{interval}", ratio(&v.sharpe))),
        ("Sharpe ratio of days", ratio(&v.sharpe_daily)),
        ("Probabilistic (PSR)", or_reason(&v.psr, chance)),
        ("Deflated (DSR)", deflated),
        ("Minimum track record", years(&v.min_track_record_years)),
    ];
    if v.unreadable_ledger_lines > 0 {
        let lines = count(v.unreadable_ledger_lines);
        rows.push(("Ledger", format!("{lines} lines could not be read and were not counted")));
    }
    rows
}

/// A chance; a certainty would be a rounding error.
fn chance(share: f64) -> String {
    match share {
        v if v > 0.999 => "over 99.9\u{a0}%".to_owned(),
        v if v < 0.001 => "under 0.1\u{a0}%".to_owned(),
        v => format!("{}\u{a0}%", grouped(v * 100.0, 1)),
    }
}
