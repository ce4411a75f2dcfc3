//! Everything the page tells about one window.

use foxhunt::evaluation::{Measure, OrderCounts, WindowEvaluation};
use foxhunt_core::{Exposure, OrderType, Urgency};
use serde::Serialize;

use super::cell::{Cell, Row};
use crate::figures::{FIGURES, Figure, Unit, figure};
use crate::number::{count, or_na, or_reason, short};
use crate::{ReportInput, charts, time};

/// Everything about one window.
#[derive(Serialize)]
pub(super) struct Section {
    name: String,
    span: String,
    open: bool,
    warnings: Vec<String>,
    equity: String,
    plots: Vec<String>,
    policies: Vec<String>,
    figures: Vec<Row>,
    /// Reason, and the figures that have none for it.
    reasons: Vec<(String, String)>,
    ladder: Vec<Row>,
    ladder_figures: Vec<&'static str>,
    actions: Vec<ActionRow>,
    action_totals: Vec<String>,
    order_types: Vec<String>,
    urgencies: Vec<String>,
    marginals: Vec<Marginal>,
    decisions: String,
    holds: String,
    orders: Vec<OrderRow>,
    orders_total: Vec<String>,
}

#[derive(Serialize)]
struct ActionRow {
    name: &'static str,
    cells: Vec<(String, u32)>,
    total: String,
}

#[derive(Serialize)]
struct Marginal {
    name: &'static str,
    parts: Vec<(String, String, f64)>,
}

#[derive(Serialize)]
struct OrderRow {
    order_type: &'static str,
    urgency: &'static str,
    cells: Vec<String>,
}

impl Section {
    pub(super) fn of(w: &WindowEvaluation, input: &ReportInput<'_>) -> Self {
        let bars = input.bars;
        let mut warnings = Vec::new();
        if w.agent.metrics.ruined {
            warnings.push(
                "The agent was ruined in this window: its position was closed, and its equity stays.".into(),
            );
        }
        let fallbacks = w.agent.metrics.fallbacks;
        if fallbacks > 0 {
            warnings
                .push(format!("{} decisions fell back to flat: no Q-value was a number.", count(fallbacks)));
        }
        if w.agent.metrics.trades == 0 {
            warnings.push("The agent made no trade in this window.".into());
        }
        if !w.random.matched {
            warnings.push(format!(
                "The random policies have a turnover of {} where the agent has {}; their comparison is not like for like.",
                short(w.random.turnover),
                short(w.random.target_turnover)
            ));
        }
        let year = w.bars_per_year.map_or_else(|| "n/a".into(), |n| count(n.round().max(0.0) as u64));
        let (actions, action_totals) = action_rows(w);
        let (orders, orders_total) = order_rows(&w.agent.metrics.orders);
        let policies = std::iter::once(w.agent.name.clone())
            .chain(w.baselines.iter().map(|b| b.name.clone()))
            .chain([format!("random, mean of {}", w.random.runs.len()), "random, sd".into()]);
        let ladder_figures: Vec<&Figure> = ["net_return", "sharpe", "max_drawdown", "trades", "cost_share"]
            .iter()
            .filter_map(|k| figure(k))
            .collect();
        Self {
            name: w.name.clone(),
            span: format!(
                "{} bars, {} to {} UTC, {year} bars a year as observed",
                count(w.bars.len() as u64),
                time::minute(w.first_ns),
                time::minute(w.last_ns)
            ),
            open: !matches!(w.name.as_str(), "train" | "validation"),
            warnings,
            equity: charts::equity(w, bars).html(),
            plots: [charts::underwater(w, bars), charts::price(w, bars), charts::action_map(w, bars)]
                .iter()
                .map(|plot| plot.html())
                .collect(),
            policies: policies.collect(),
            reasons: reasons(w),
            figures: figure_rows(w),
            ladder: w
                .ladder
                .iter()
                .map(|rung| Row {
                    name: format!("{}\u{d7}", rung.multiple),
                    class: if rung.multiple == 1.0 { "agent" } else { "" },
                    cells: ladder_figures.iter().map(|f| Cell::of(f, &rung.metrics)).collect(),
                })
                .collect(),
            ladder_figures: ladder_figures.iter().map(|f| f.label).collect(),
            actions,
            action_totals,
            order_types: OrderType::ALL.map(|t| t.label().to_owned()).to_vec(),
            urgencies: Urgency::ALL.map(|u| u.label().to_owned()).to_vec(),
            marginals: marginals(w),
            decisions: count(w.actions.total()),
            holds: count(w.actions.holds),
            orders,
            orders_total,
        }
    }
}

fn figure_rows(w: &WindowEvaluation) -> Vec<Row> {
    FIGURES
        .iter()
        .map(|f| {
            let random = w.random.summary(f.of);
            let spread = match f.unit {
                Unit::Count => or_na(&random.sd, short),
                unit => or_na(&random.sd, |v| unit.write(v).trim_start_matches('+').to_owned()),
            };
            let mut cells: Vec<Cell> =
                std::iter::once(&w.agent).chain(&w.baselines).map(|p| Cell::of(f, &p.metrics)).collect();
            cells.push(match f.unit {
                // A mean of counts is not a count.
                Unit::Count => Cell::written(&random.mean, short),
                _ => Cell::measured(f, &random.mean),
            });
            cells.push(Cell::written(&random.sd, |_| spread));
            Row { name: f.label.into(), class: "", cells }
        })
        .collect()
}

/// Why figures of agent and baselines are missing, each reason once.
fn reasons(w: &WindowEvaluation) -> Vec<(String, String)> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for policy in std::iter::once(&w.agent).chain(&w.baselines) {
        let mut of_policy: Vec<(String, Vec<&str>)> = Vec::new();
        for f in FIGURES {
            if let Some(reason) = (f.of)(&policy.metrics).reason() {
                match of_policy.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, labels)) => labels.push(f.label),
                    None => of_policy.push((reason.to_owned(), vec![f.label])),
                }
            }
        }
        for (reason, labels) in of_policy {
            let told = format!("{} of {}", labels.join(", "), policy.name);
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, all)) => all.push(told),
                None => reasons.push((reason, vec![told])),
            }
        }
    }
    reasons.into_iter().map(|(reason, all)| (reason, all.join("; "))).collect()
}

fn action_rows(w: &WindowEvaluation) -> (Vec<ActionRow>, Vec<String>) {
    let largest = w.actions.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let sums = w.actions.by_exposure();
    let rows = Exposure::ALL.into_iter().rev().map(|exposure| {
        let mut cells = Vec::with_capacity(9);
        for order_type in OrderType::ALL {
            for urgency in Urgency::ALL {
                let n = w.actions.get(exposure, order_type, urgency);
                // The root keeps rare actions visible.
                let shade = ((n as f64 / largest).sqrt() * 8.0).ceil() as u32;
                cells.push((count(n), shade));
            }
        }
        ActionRow { name: exposure.label(), cells, total: count(sums[exposure.index() as usize]) }
    });
    let mut totals = Vec::with_capacity(10);
    for order_type in OrderType::ALL {
        for urgency in Urgency::ALL {
            totals
                .push(count(Exposure::ALL.into_iter().map(|e| w.actions.get(e, order_type, urgency)).sum()));
        }
    }
    totals.push(count(w.actions.total()));
    (rows.collect(), totals)
}

fn marginals(w: &WindowEvaluation) -> Vec<Marginal> {
    let total = w.actions.total().max(1) as f64;
    let parts = |labels: Vec<&'static str>, sums: Vec<u64>| {
        let part = |(label, n): (&'static str, u64)| {
            let share = n as f64 / total * 100.0;
            (label.to_owned(), format!("{} ({share:.1}\u{a0}%)", count(n)), share)
        };
        labels.into_iter().zip(sums).map(part).collect()
    };
    vec![
        Marginal {
            name: "Exposure",
            parts: parts(Exposure::ALL.map(Exposure::label).to_vec(), w.actions.by_exposure().to_vec()),
        },
        Marginal {
            name: "Order type",
            parts: parts(OrderType::ALL.map(OrderType::label).to_vec(), w.actions.by_order_type().to_vec()),
        },
        Marginal {
            name: "Urgency",
            parts: parts(Urgency::ALL.map(Urgency::label).to_vec(), w.actions.by_urgency().to_vec()),
        },
    ]
}

fn order_rows(orders: &OrderCounts) -> (Vec<OrderRow>, Vec<String>) {
    let row = |sent: u64, filled: u64, partial: u64, cancelled: u64| {
        let rate =
            Measure::of_option((sent > 0).then(|| (filled + partial) as f64 / sent as f64), "no orders");
        vec![
            count(sent),
            count(filled),
            count(partial),
            count(cancelled),
            or_reason(&rate, |v| format!("{:.1}\u{a0}%", v * 100.0)),
        ]
    };
    let mut rows = Vec::with_capacity(9);
    for order_type in OrderType::ALL {
        for urgency in Urgency::ALL {
            let i = OrderCounts::slot(order_type, urgency);
            rows.push(OrderRow {
                order_type: order_type.label(),
                urgency: urgency.label(),
                cells: row(orders.sent[i], orders.filled[i], orders.partial[i], orders.cancelled[i]),
            });
        }
    }
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    let total = row(sum(&orders.sent), sum(&orders.filled), sum(&orders.partial), sum(&orders.cancelled));
    (rows, total)
}
