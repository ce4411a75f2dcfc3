//! The plots of the page, made from the evaluation, the bars and the training curves.
//!
//! What each shows and how it is described to those who cannot see it is decided here; how shapes are written is
//! `plot`'s business.

use foxhunt::evaluation::WindowEvaluation;
use foxhunt::walk_forward::WalkForwardOutcome;
use foxhunt_core::Exposure;
use foxhunt_market::BarSeries;

use crate::input::TrainingPoint;
use crate::number::{count, percent, short, typographic};
use crate::plot::{Kind, Plot, Scale, across};
use crate::time;

/// Ticks along the time axis at the most.
const TIME_TICKS: usize = 7;
/// Columns of the action map at the most.
const MAP_COLUMNS: usize = 120;

/// The style class of a policy by its name.
fn class_of(name: &str) -> &'static str {
    match name {
        "agent" => "agent",
        "buy and hold" => "hold",
        "always short" => "shorts",
        "random" => "random",
        _ => "flat",
    }
}

fn percent_sign(share: f64) -> String {
    format!("{}\u{202f}%", typographic(&percent(share)))
}

/// An axis label of a share: no more decimals than the ticks need.
fn percent_tick(share: f64) -> String {
    let text = short(share * 100.0);
    format!("{}\u{202f}%", typographic(&text))
}

fn time_labels(w: &WindowEvaluation, bars: &BarSeries) -> Vec<(f64, String)> {
    let times = &bars.time[w.bars.clone()];
    let place = |tick: time::Tick| (across(tick.index, times.len()), tick.label);
    time::ticks(times, TIME_TICKS).into_iter().map(place).collect()
}

fn share_of_start(equity: &[f64]) -> Vec<f64> {
    let start = equity.first().copied().unwrap_or(1.0);
    equity.iter().map(|e| e / start - 1.0).collect()
}

fn last(values: &[f64]) -> f64 {
    values.last().copied().unwrap_or_default()
}

/// Net return of agent and baselines.
#[must_use]
pub fn equity(w: &WindowEvaluation, bars: &BarSeries) -> Plot {
    let agent = share_of_start(&w.agent.backtest.equity);
    let [mean, low, high] =
        [&w.random.equity_mean, &w.random.equity_low, &w.random.equity_high].map(|e| share_of_start(e));
    let others: Vec<(&str, Vec<f64>)> = w
        .baselines
        .iter()
        .filter(|b| b.name != "flat")
        .map(|b| (b.name.as_str(), share_of_start(&b.backtest.equity)))
        .collect();
    let all = agent.iter().chain(&low).chain(&high).chain(others.iter().flat_map(|(_, values)| values));
    let scale = Scale::fit(all.copied(), Some(0.0), Kind::Linear);
    let told: Vec<String> = std::iter::once(("agent", &agent))
        .chain(others.iter().map(|(name, values)| (*name, values)))
        .chain(std::iter::once(("random on average", &mean)))
        .map(|(name, values)| format!("{name} {}", percent_sign(last(values))))
        .collect();
    let mut plot = Plot::new(&format!("{}-equity", w.name), "Equity", scale, percent_tick)
        .note("net return since the first bar, after all costs")
        .alt(format!("At the end: {}; flat stays at 0 %.", told.join(", ")))
        .x_labels(time_labels(w, bars));
    plot.band("random", &low, &high);
    plot.rule("flat", 0.0);
    plot.line("random", &mean);
    plot.key("agent", "line", format!("agent {}", percent_sign(last(&agent))));
    for (name, values) in &others {
        plot.line(class_of(name), values);
        plot.key(class_of(name), "line", format!("{name} {}", percent_sign(last(values))));
    }
    plot.line("agent", &agent);
    plot.key("random", "line", format!("random mean {}", percent_sign(last(&mean))));
    plot.key("random", "band", format!("range of {} random policies", w.random.runs.len()));
    plot.key("flat", "line", "flat");
    plot
}

/// Net return of every seed over the stitched test windows, and of their mean.
#[must_use]
pub fn seeds(walk: &WalkForwardOutcome, bars: &BarSeries) -> Plot {
    let w = &walk.seeds[walk.median].evaluation;
    let mean = share_of_start(&walk.mean_equity);
    let all: Vec<Vec<f64>> =
        walk.seeds.iter().map(|seed| share_of_start(&seed.evaluation.agent.backtest.equity)).collect();
    let hold =
        w.baselines.iter().find(|b| b.name == "buy and hold").map(|b| share_of_start(&b.backtest.equity));
    let values = mean.iter().chain(all.iter().flatten()).chain(hold.iter().flatten());
    let scale = Scale::fit(values.copied(), Some(0.0), Kind::Linear);
    let ends: Vec<String> = all.iter().map(|values| percent_sign(last(values))).collect();
    let mut plot = Plot::new("walk-forward-seeds", "Every seed", scale, percent_tick)
        .note("net return over the test windows, one account a seed, after all costs")
        .alt(format!("At the end: seeds {}; their mean {}.", ends.join(", "), percent_sign(last(&mean))))
        .x_labels(time_labels(w, bars));
    plot.rule("flat", 0.0);
    if let Some(hold) = &hold {
        plot.line("hold", hold);
        plot.key("hold", "line", format!("buy and hold {}", percent_sign(last(hold))));
    }
    for values in &all {
        plot.line("random", values);
    }
    plot.line("agent", &mean);
    plot.key("agent", "line", format!("mean of seeds {}", percent_sign(last(&mean))));
    plot.key("random", "line", format!("{} seeds", all.len()));
    plot
}

/// How far below its former peak the agent's equity is, and buy and hold's beside it.
#[must_use]
pub fn underwater(w: &WindowEvaluation, bars: &BarSeries) -> Plot {
    let fall = |equity: &[f64]| -> Vec<f64> {
        let mut peak = f64::NEG_INFINITY;
        equity
            .iter()
            .map(|e| {
                peak = peak.max(*e);
                e / peak - 1.0
            })
            .collect()
    };
    let agent = fall(&w.agent.backtest.equity);
    let hold = w.baselines.iter().find(|b| b.name == "buy and hold").map(|b| fall(&b.backtest.equity));
    let all = agent.iter().chain(hold.iter().flatten()).copied();
    let scale = Scale::fit(all, Some(0.0), Kind::Linear);
    let worst = agent.iter().copied().fold(0.0, f64::min);
    let mut plot = Plot::new(&format!("{}-underwater", w.name), "Underwater", scale, percent_tick)
        .note("fall of equity below its former peak")
        .alt(format!("The agent's deepest fall is {}.", percent_sign(worst)))
        .class("short")
        .x_labels(time_labels(w, bars));
    plot.area("agent", &agent, 0.0);
    plot.line("agent thin", &agent);
    plot.key("agent", "band", format!("agent, deepest {}", percent_sign(worst)));
    if let Some(hold) = &hold {
        plot.line("hold", hold);
        let deepest = hold.iter().copied().fold(0.0, f64::min);
        plot.key("hold", "line", format!("buy and hold, deepest {}", percent_sign(deepest)));
    }
    plot
}

/// Closing price with the agent's fills.
#[must_use]
pub fn price(w: &WindowEvaluation, bars: &BarSeries) -> Plot {
    let close = &bars.close[w.bars.clone()];
    let fills = &w.agent.backtest.fills;
    let at = |long: bool| -> Vec<(usize, f64)> {
        fills.iter().filter(|f| (f.units > 0.0) == long).map(|f| (f.bar - w.bars.start, f.price)).collect()
    };
    let (buys, sells) = (at(true), at(false));
    let prices = close.iter().copied().chain(fills.iter().map(|f| f.price));
    let scale = Scale::fit(prices, None, Kind::Linear);
    let mut plot = Plot::new(&format!("{}-price", w.name), "Price and fills", scale, price_tick)
        .alt(format!("{} buys and {} sells on the closing price.", buys.len(), sells.len()))
        .x_labels(time_labels(w, bars));
    plot.line("price", close);
    let drawn = plot.marks("buy", &buys, close.len()) + plot.marks("sell", &sells, close.len());
    plot.key("price", "line", "close");
    plot.key("buy", "dot", format!("{} buys", count(buys.len() as u64)));
    plot.key("sell", "square", format!("{} sells", count(sells.len() as u64)));
    if drawn < fills.len() {
        plot.note(format!(
            "price units; fills that would cover each other are drawn once, {} marks",
            count(drawn as u64)
        ))
    } else {
        plot.note("price units; each fill at its price, half spread and impact included")
    }
}

fn price_tick(price: f64) -> String {
    // Enough digits for a currency pair, no more than its ticks.
    let text = if price.abs() < 10.0 { format!("{price:.4}") } else { short_price(price) };
    typographic(&text)
}

fn short_price(price: f64) -> String {
    let decimals = if price.abs() < 1000.0 { 2 } else { 0 };
    crate::number::grouped(price, decimals)
}

/// Share of decisions for each target exposure along time.
#[must_use]
pub fn action_map(w: &WindowEvaluation, bars: &BarSeries) -> Plot {
    let actions = &w.agent.backtest.actions;
    let columns = MAP_COLUMNS.min(actions.len()).max(1);
    let mut rows = vec![vec![0.0; columns]; Exposure::ALL.len()];
    let range = |column: usize| column * actions.len() / columns..(column + 1) * actions.len() / columns;
    for (column, range) in (0..columns).map(|column| (column, range(column))) {
        let weight = 1.0 / range.len().max(1) as f64;
        for &action in &actions[range] {
            // Long at the top.
            let row = 4 - usize::from(action / 9).min(4);
            rows[row][column] += weight;
        }
    }
    let shares = w.actions.by_exposure();
    let total = w.actions.total().max(1) as f64;
    let told: Vec<String> = Exposure::ALL
        .into_iter()
        .zip(shares)
        .map(|(e, n)| format!("{} {:.0} %", e.label(), n as f64 / total * 100.0))
        .collect();
    let labels = Exposure::ALL.into_iter().rev().enumerate();
    let labels = labels.map(|(row, e)| ((row as f64 + 0.5) / 5.0, e.label().to_owned())).collect();
    let scale = Scale::fit([0.0, 1.0], None, Kind::Linear);
    let mut x_labels = time_labels(w, bars);
    if w.agent.backtest.terminated {
        // The map ends at ruin, and so do its dates.
        x_labels.clear();
    }
    let mut plot = Plot::new(&format!("{}-actions", w.name), "Action map", scale, short)
        .note("share of decisions for each target exposure; darker is more")
        .alt(format!("Decisions by target: {}.", told.join(", ")))
        .class("short map")
        .y_labels(labels)
        .x_labels(x_labels);
    plot.cells("heat", &rows);
    plot
}

/// The training curves: loss, TD error, max-Q, gradient norm, returns and throughput, one plot each. Empty
/// without training.
#[must_use]
pub fn training(points: &[TrainingPoint]) -> Vec<Plot> {
    if points.is_empty() {
        return Vec::new();
    }
    type Get = fn(&TrainingPoint) -> Option<f64>;
    let one = |id: &str, title: &str, note: &str, kind: Kind, get: Get| {
        curve(points, id, title, note, kind, &[("agent", "", get)])
    };
    vec![
        one("loss", "Loss", "mean Huber loss an epoch", Kind::Log, |p| p.loss),
        one("td-error", "TD error", "mean |TD error| an epoch", Kind::Log, |p| p.td_error),
        one("max-q", "Max Q", "mean over decisions of the largest Q-value", Kind::Linear, |p| p.max_q),
        one("grad-norm", "Gradient norm", "before clipping, mean an epoch", Kind::Log, |p| p.grad_norm),
        curve(
            points,
            "returns",
            "Log return",
            "training episodes (exploring) and the validation window (greedy)",
            Kind::Linear,
            &[
                ("hold", "training episodes", |p| p.episode_log_return),
                ("agent", "validation", |p| p.validation_log_return),
            ],
        ),
        curve(
            points,
            "throughput",
            "Throughput",
            "a second",
            Kind::Log,
            &[("agent", "env steps", |p| p.env_steps_per_s), ("hold", "updates", |p| p.updates_per_s)],
        ),
    ]
}

type Curve<'a> = (&'static str, &'a str, fn(&TrainingPoint) -> Option<f64>);

fn curve(
    points: &[TrainingPoint],
    id: &str,
    title: &str,
    note: &str,
    kind: Kind,
    curves: &[Curve<'_>],
) -> Plot {
    let (first, end) = (points[0].epoch, points[points.len() - 1].epoch);
    let span = end.saturating_sub(first).max(1) as f64;
    let x = |epoch: u64| epoch.saturating_sub(first) as f64 / span;
    let series: Vec<Vec<(f64, f64)>> = curves
        .iter()
        .map(|(_, _, get)| {
            points.iter().filter_map(|p| Some((x(p.epoch), get(p).filter(|v| v.is_finite())?))).collect()
        })
        .collect();
    let values = || series.iter().flatten().map(|(_, value)| *value);
    let wide = values().all(|v| v > 0.0)
        && values().fold(0.0, f64::max) > 20.0 * values().fold(f64::INFINITY, f64::min);
    let kind = if wide { kind } else { Kind::Linear };
    let scale = Scale::fit(values(), None, kind);
    let told: Vec<String> = curves
        .iter()
        .zip(&series)
        .map(|((_, label, _), points)| match (points.first(), points.last()) {
            (Some((_, from)), Some((_, to))) => format!("{label} from {} to {}", short(*from), short(*to)),
            _ => format!("{label} no values"),
        })
        .collect();
    let steps = 4.min(end.saturating_sub(first)).max(1);
    let labels = (0..=steps).map(|i| first + (end - first) * i / steps);
    let mut labels: Vec<(f64, String)> = labels.map(|epoch| (x(epoch), count(epoch))).collect();
    labels.dedup_by(|a, b| a.1 == b.1);
    let mut note = note.to_owned();
    if kind == Kind::Log {
        note.push_str(", log scale");
    }
    if values().next().is_none() {
        note = "n/a (nothing was recorded)".into();
    }
    let mut plot = Plot::new(&format!("training-{id}"), title, scale, |v| typographic(&short(v)))
        .note(note)
        .alt(format!("Over epochs {first} to {end}:{}.", told.join("; ")))
        .class("short")
        .x_labels(labels);
    for ((class, label, _), points) in curves.iter().zip(&series) {
        plot.line_at(class, &thin(points));
        if !label.is_empty() {
            plot.key(class, "line", *label);
        }
    }
    plot
}

/// At most about a thousand points, extremes kept.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    crate::plot::sample::min_max(&values, 480).into_iter().map(|i| points[i]).collect()
}
