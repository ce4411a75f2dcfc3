//! The table a run ends with: agent and baselines, one block a window, readable in 80 columns and in a pipe.
//!
//! Plain text without colour or escape codes. What the columns mean is told once under the table. A figure that
//! does not exist is `n/a` in its cell, with the reason below.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use foxhunt::evaluation::{Evaluation, Measure, Metrics, WindowEvaluation};
use foxhunt::walk_forward::WalkForwardOutcome;

use crate::html::{verdict, walk};
use crate::number::{count, grouped, or_na, percent};
use crate::time::date;

/// Characters of a line of prose.
const WIDTH: usize = 80;
const HEADER: [&str; 8] = ["", "net %", "a year %", "Sharpe", "drawdown %", "turnover", "trades", "costs %"];

/// The comparison as text, at most about 80 columns wide, without a final newline.
#[must_use]
pub fn summary(evaluation: &Evaluation) -> String {
    let mut out = String::new();
    let mut reasons: Vec<(String, String)> = Vec::new();
    for window in &evaluation.windows {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "{}: {} bars, {} to {}",
            window.name,
            count(window.bars.len() as u64),
            date(window.first_ns),
            date(window.last_ns)
        );
        let _ = writeln!(out, "{}", block(window, &mut reasons));
        if window.agent.metrics.ruined {
            out.push_str("  The agent was ruined in this window; its equity stays where it ended.\n");
        }
        let fallbacks = window.agent.metrics.fallbacks;
        if fallbacks > 0 {
            let _ =
                writeln!(out, "  {} decisions fell back to flat: no Q-value was a number.", count(fallbacks));
        }
        if !window.random.matched {
            let _ = writeln!(
                out,
                "  Random turnover is {} where the agent's is {}.",
                grouped(window.random.turnover, 1),
                grouped(window.random.target_turnover, 1)
            );
        }
    }
    for (what, reason) in reasons {
        let _ = writeln!(out, "n/a for {what}: {reason}.");
    }
    if let Some(verdict) = &evaluation.verdict {
        out.push('\n');
        out.push_str(&wrapped(&verdict::sentence(verdict), WIDTH));
        for (label, text) in verdict::rows(verdict) {
            out.push_str(&wrapped(&format!("  {label}: {text}"), WIDTH));
        }
        out.push('\n');
    }
    out.push_str(
        "Net of all costs; costs are fees, spread and impact over start equity. random:\n\
         mean of policies with the agent's turnover. foresight: the best found by one\n\
         who knows every bar. A year has the bars seen in each window.",
    );
    out
}

/// Folds and seeds as text: scores with intervals, and what each seed ended with.
#[must_use]
pub fn walk_forward(outcome: &WalkForwardOutcome) -> String {
    let mut out = format!(
        "{} folds, {} seeds; {} of {} test windows ended with a profit after costs.\n",
        outcome.folds.len(),
        outcome.seeds.len(),
        outcome.scores.profitable,
        outcome.scores.runs
    );
    for line in walk::lines(outcome) {
        out.push_str(&wrapped(&format!("  {line}"), WIDTH));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    let mut reasons = Vec::new();
    for seed in &outcome.seeds {
        table.add_row(row(&format!("seed {}", seed.seed), &seed.evaluation.agent.metrics, &mut reasons));
    }
    align(&mut table);
    let _ = write!(out, "{table}");
    out
}

fn block(window: &WindowEvaluation, reasons: &mut Vec<(String, String)>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    table.add_row(row("agent", &window.agent.metrics, reasons));
    for baseline in &window.baselines {
        table.add_row(row(&baseline.name, &baseline.metrics, reasons));
    }
    table.add_row(random_row(window));
    if let Some(foresight) = &window.foresight {
        table.add_row(row("foresight", &foresight.metrics, reasons));
    }
    align(&mut table);
    table
}

fn align(table: &mut Table) {
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((2, 0));
        column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
}

fn row(name: &str, m: &Metrics, reasons: &mut Vec<(String, String)>) -> Vec<String> {
    for (what, measure) in [
        ("net return", &m.net_return),
        ("a year", &m.annual_return),
        ("Sharpe", &m.sharpe),
        ("drawdown", &m.max_drawdown),
    ] {
        if let Some(reason) = measure.reason() {
            let entry = (format!("{name}, {what}"), reason.to_owned());
            if !reasons.contains(&entry) {
                reasons.push(entry);
            }
        }
    }
    vec![
        name.to_owned(),
        or_na(&m.net_return, percent),
        or_na(&m.annual_return, percent),
        or_na(&m.sharpe, two),
        or_na(&m.max_drawdown, |v| grouped(v * 100.0, 2)),
        few(m.turnover),
        count(m.trades as u64),
        or_na(&m.cost_share, |v| two(v * 100.0)),
    ]
}

fn random_row(window: &WindowEvaluation) -> Vec<String> {
    let mean = |figure: fn(&Metrics) -> Measure| window.random.summary(figure).mean;
    vec![
        format!("random x{}", window.random.runs.len()),
        or_na(&mean(|m| m.net_return.clone()), percent),
        or_na(&mean(|m| m.annual_return.clone()), percent),
        or_na(&mean(|m| m.sharpe.clone()), two),
        or_na(&mean(|m| m.max_drawdown.clone()), |v| grouped(v * 100.0, 2)),
        few(window.random.turnover),
        or_na(&mean(|m| Measure::of(m.trades as f64)), few),
        or_na(&mean(|m| m.cost_share.clone()), |v| two(v * 100.0)),
    ]
}

/// `text` in lines of at most `width` characters, each with a line end; further lines are indented by four. Plain ASCII.
fn wrapped(text: &str, width: usize) -> String {
    let text = text.replace('\u{a0}', " ");
    let indent = text.len() - text.trim_start().len();
    let mut out = " ".repeat(indent);
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column + 1 + length > width {
            out.push_str("\n    ");
            column = 4;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// Two decimals, none from a hundred on, powers of ten from a hundred thousand on: who knows every bar earns such figures.
fn two(value: f64) -> String {
    match value.abs() {
        size if size < 100.0 => grouped(value, 2),
        size if size < 1e5 => grouped(value, 0),
        _ => format!("{value:.1e}"),
    }
}

/// One decimal, and none from a thousand on.
fn few(value: f64) -> String {
    grouped(value, usize::from(value < 1000.0))
}
