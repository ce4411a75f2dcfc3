//! The result of the look-ahead detector as text for a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use foxhunt::lookahead::{Check, LookaheadReport, Stage};

use crate::number::{count, grouped};

/// The tables of checks and cheaters, the leaks, and the verdict in the last line; without a final newline.
#[must_use]
pub fn text(report: &LookaheadReport) -> String {
    let mut out = checks(report).to_string();
    if let Some(lag) = &report.lag {
        let _ = write!(
            out,
            "\n\nexposure against the next bar's return: correlation {} at once, {} a bar late, {} decisions",
            grouped(lag.at_once, 3),
            grouped(lag.one_late, 3),
            count(lag.decisions)
        );
    }
    let _ = write!(out, "\n\n{}", cheaters(report));
    for leak in &report.leaks {
        let bar = leak.bar.map_or_else(String::new, |bar| format!(" at bar {bar}"));
        let cut = leak.cut.map_or_else(String::new, |cut| format!(", bars after {cut} changed"));
        let _ = write!(
            out,
            "\nleak: {}, {}: {}{bar}{cut}: {}",
            leak.stage.label(),
            leak.check.label(),
            leak.what,
            leak.seen
        );
    }
    let missed = report.cheaters.iter().filter(|cheater| cheater.caught_by.is_empty()).count();
    let leaks: u64 = report.tallies.iter().map(|(_, _, tally)| tally.leaks).sum();
    let verdict = match (leaks, missed) {
        (0, 0) => format!(
            "No value knew the future, after {} changes of it; every planted cheater was caught.",
            count(2 * report.cuts.len() as u64)
        ),
        (0, missed) => format!("{missed} planted cheaters were not caught: this detector is blind."),
        (leaks, _) => format!("{} values knew the future.", count(leaks)),
    };
    let _ = write!(out, "\n\n{verdict}");
    out
}

fn checks(report: &LookaheadReport) -> Table {
    let mut table = table();
    table.set_header(std::iter::once("").chain(Check::ALL.map(Check::label)));
    for stage in Stage::ALL {
        let cell = |check: Check| {
            let tally = report.tallies.iter().find(|(s, c, _)| (*s, *c) == (stage, check));
            tally.map_or_else(String::new, |(_, _, tally)| match tally.leaks {
                0 => format!("ok, {} values", count(tally.compared)),
                leaks => format!("LEAK, {} of {}", count(leaks), count(tally.compared)),
            })
        };
        table.add_row(std::iter::once(stage.label().to_owned()).chain(Check::ALL.map(cell)));
    }
    table
}

fn cheaters(report: &LookaheadReport) -> Table {
    let mut table = table();
    table.set_header(["planted cheater", "caught by"]);
    for cheater in &report.cheaters {
        let by: Vec<&str> = cheater.caught_by.iter().map(|check| check.label()).collect();
        let by = if by.is_empty() { "NOT CAUGHT".to_owned() } else { by.join(", ") };
        table.add_row([cheater.plant.label().to_owned(), by]);
    }
    table
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_cell_alignment(CellAlignment::Left);
    }
    table
}
