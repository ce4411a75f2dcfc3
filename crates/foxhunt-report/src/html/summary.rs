//! What stands above the windows and beside them: headline, comparison, train against test.

use foxhunt::evaluation::{Metrics, WindowEvaluation};
use serde::Serialize;

use super::cell::{Cell, Row, class_of};
use crate::ReportInput;
use crate::figures::{Figure, figure};
use crate::number::{count, or_na, or_reason, percent, short, signed, typographic};

/// Figures of the comparison at the top, a column each within a window: key and short name.
const COMPARED: [(&str, &str); 3] =
    [("net_return", "Net"), ("sharpe", "Sharpe"), ("max_drawdown", "Drawdown")];
/// Figures of the table of train against test.
const GAP: [&str; 8] = [
    "annual_return",
    "volatility",
    "sharpe",
    "max_drawdown",
    "turnover_per_year",
    "win_rate",
    "profit_factor",
    "time_in_market",
];

/// Why there is no perfect foresight.
const TOO_LONG: &str = "the window is too long to work it out";

#[derive(Serialize)]
struct Card {
    label: &'static str,
    cell: Cell,
    under: String,
}

/// The sentence and the cards at the top, about the first window shown.
#[derive(Serialize)]
pub(super) struct Headline {
    window: String,
    sentence: String,
    cards: Vec<Card>,
}

impl Headline {
    pub(super) fn of(w: &WindowEvaluation) -> Self {
        let m = &w.agent.metrics;
        let net = |m: &Metrics| or_reason(&m.net_return, |v| format!("{}\u{a0}%", percent(v)));
        let hold = w.baselines.iter().find(|b| b.name == "buy and hold");
        let mut sentence = format!("{} net over {} bars", net(m), count(m.bars as u64));
        if let Some(hold) = hold {
            sentence.push_str(&format!("; buy and hold {}", net(&hold.metrics)));
        }
        sentence.push_str(&format!(
            "; better than {} of {} random policies with {} turnover.",
            w.random_policies_beaten(),
            w.random.runs.len(),
            if w.random.matched { "the same" } else { "less" },
        ));
        if m.ruined {
            sentence.push_str(" The account was ruined.");
        }
        let card = |key: &str, under: String| {
            let label = |f: &Figure| if key == "cost_share" { "Costs paid" } else { f.label };
            figure(key).map(|f| Card { label: label(f), cell: Cell::of(f, m), under: typographic(&under) })
        };
        let a_year = or_reason(&m.annual_return, |v| format!("{}\u{a0}% a year", percent(v)));
        // A certainty would be a rounding error.
        let psr = or_reason(&m.psr, |v| match v {
            v if v > 0.99 => "over 99\u{a0}% likely above 0".into(),
            v if v < 0.01 => "under 1\u{a0}% likely above 0".into(),
            v => format!("{:.0}\u{a0}% likely above 0", v * 100.0),
        });
        let calmar = or_reason(&m.calmar, |v| format!("Calmar {}", signed(v, 2)));
        let wins = or_reason(&m.win_rate, |v| format!("{:.0}\u{a0}% won", v * 100.0));
        let costs = m.costs;
        let split = format!(
            "fee {}, spread {}, impact {}",
            short(costs.fee),
            short(costs.spread),
            short(costs.impact)
        );
        let year = or_reason(&m.turnover_per_year, |v| format!("{} a year", short(v)));
        Self {
            window: w.name.clone(),
            sentence: typographic(&sentence),
            cards: [
                card("net_return", a_year),
                card("sharpe", psr),
                card("max_drawdown", calmar),
                card("trades", wins),
                card("turnover", year),
                card("cost_share", split),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }
}

/// The comparison: a row a policy, three figures a window.
#[derive(Serialize)]
pub(super) struct Compared {
    windows: Vec<(String, usize)>,
    figures: Vec<&'static str>,
    rows: Vec<Row>,
}

pub(super) fn compared(windows: &[&WindowEvaluation]) -> Compared {
    let figures: Vec<&Figure> = COMPARED.iter().filter_map(|(key, _)| figure(key)).collect();
    let mut rows = Vec::new();
    if let Some(first) = windows.first() {
        let names = std::iter::once("agent").chain(first.baselines.iter().map(|b| b.name.as_str()));
        for name in names {
            let mut cells = Vec::new();
            for w in windows {
                let all = std::iter::once(&w.agent).chain(&w.baselines);
                let found = all.into_iter().find(|p| p.name == name);
                for f in &figures {
                    cells.push(found.map_or_else(|| Cell::plain("n/a"), |p| Cell::of(f, &p.metrics)));
                }
            }
            rows.push(Row { name: name.into(), class: class_of(name), cells });
        }
        if windows.iter().any(|w| w.foresight.is_some()) {
            let cells = windows.iter().flat_map(|w| {
                let cell = |f: &&Figure| {
                    w.foresight.as_ref().map_or_else(|| Cell::missing(TOO_LONG), |p| Cell::of(f, &p.metrics))
                };
                figures.iter().map(cell).collect::<Vec<_>>()
            });
            rows.push(Row { name: "perfect foresight".into(), class: "flat", cells: cells.collect() });
        }
        let mean = windows.iter().flat_map(|w| {
            figures.iter().map(|f| Cell::measured(f, &w.random.summary(f.of).mean)).collect::<Vec<_>>()
        });
        rows.push(Row { name: "random, mean".into(), class: "random", cells: mean.collect() });
    }
    Compared {
        windows: windows.iter().map(|w| (w.name.clone(), figures.len())).collect(),
        figures: windows.iter().flat_map(|_| COMPARED.map(|(_, label)| label)).collect(),
        rows,
    }
}

#[derive(Serialize)]
pub(super) struct Gap {
    rows: Vec<Row>,
}

/// Train against test, when both are there.
pub(super) fn gap(input: &ReportInput<'_>) -> Option<Gap> {
    let (train, test) = (input.evaluation.window("train")?, input.evaluation.window("test")?);
    let validation = input.evaluation.window("validation");
    let rows = GAP.iter().filter_map(|key| figure(key)).map(|f| {
        let (a, b) = ((f.of)(&train.agent.metrics), (f.of)(&test.agent.metrics));
        let mut cells = vec![Cell::of(f, &train.agent.metrics)];
        cells.push(validation.map_or_else(|| Cell::plain("n/a"), |v| Cell::of(f, &v.agent.metrics)));
        cells.push(Cell::of(f, &test.agent.metrics));
        let difference = a.zip(&b, |a, b| b - a);
        let text = or_na(&difference, |v| {
            let text = f.unit.write(v);
            if v > 0.0 && !text.starts_with('+') { format!("+{text}") } else { text }
        });
        cells.push(Cell {
            text: typographic(&text).replace('%', "pp"),
            reason: difference.reason().map(str::to_owned),
            tone: "",
        });
        Row { name: f.label.into(), class: "", cells }
    });
    Some(Gap { rows: rows.collect() })
}
