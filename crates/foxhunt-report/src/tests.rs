//! Whole reports of ordinary and of odd runs: nothing undefined gets out, nothing is fetched, nothing is too big.

use std::ops::Range;

use foxhunt::evaluation::{Evaluation, Verdict, evaluate_windows};
use foxhunt::ledger::Tried;
use foxhunt::run_folder::RunPaths;
use foxhunt::statistics::Trials;
use foxhunt::trainer::NeverStop;
use foxhunt::walk_forward::{FoldResult, Scores, SeedResult, WINDOW_NAME, WalkForwardOutcome};
use foxhunt_core::settings::EvaluationSettings;
use foxhunt_core::{Exposure, FactoredAction, OrderType, Settings, Urgency};
use foxhunt_market::synthetic::RandomWalk;
use foxhunt_market::{BarArrays, BarSeries, Market, Normalise, features};
use foxhunt_ops::env_step::EnvParams;
use serde_json::Value;

use super::*;

mod browser;

fn order(level: usize, kind: usize, urgency: usize) -> FactoredAction {
    FactoredAction {
        exposure: Exposure::ALL[level % 5],
        order_type: OrderType::ALL[kind % 3],
        urgency: Urgency::ALL[urgency % 3],
    }
}

fn walk(bars: usize) -> (Market, Range<usize>) {
    let execution = Settings::default().execution;
    let first = features::first_bar(&execution);
    let walk = RandomWalk { n_bars: first + bars, seed: 5, volatility: 0.002, start_price: 1.1 };
    let window = first..first + bars;
    (Market::prepare(walk.bars().unwrap(), &execution, Normalise::FitOn(window.clone())).unwrap(), window)
}

/// Cuts `window` into train, validation and test and evaluates a policy of the bar alone.
fn evaluate(
    market: &Market,
    window: &Range<usize>,
    params: &EnvParams,
    policies: u32,
    policy: impl Fn(usize) -> FactoredAction,
) -> Evaluation {
    let cut = |share: usize| window.start + window.len() * share / 10;
    let windows =
        [("train", window.start..cut(6)), ("validation", cut(6)..cut(8)), ("test", cut(8)..window.end)];
    let settings = EvaluationSettings { random_policies: policies, ..EvaluationSettings::default() };
    evaluate_windows(market, &windows, params, &settings, 1, &NeverStop, &mut |_, bar| Ok(policy(bar).into()))
        .unwrap()
}

fn busy(bar: usize) -> FactoredAction {
    order(bar / 9 * 7, bar / 9 * 5 + bar / 45, bar / 9 * 4 + bar / 27)
}

fn points(n: u64) -> Vec<TrainingPoint> {
    (1..=n)
        .map(|epoch| TrainingPoint {
            epoch,
            env_steps: epoch * 1024,
            updates: epoch * 128,
            loss: Some(1.0 / epoch as f64),
            td_error: Some(f64::NAN),
            max_q: (epoch > 2).then_some(0.5),
            grad_norm: Some(f64::INFINITY),
            env_steps_per_s: Some(12_000.0),
            ..TrainingPoint::default()
        })
        .collect()
}

/// Renders both and applies what must hold of every report.
fn render(market: &Market, evaluation: &Evaluation, training: &[TrainingPoint]) -> (String, Value) {
    render_whole(market, evaluation, training, None)
}

fn render_whole(
    market: &Market,
    evaluation: &Evaluation,
    training: &[TrainingPoint],
    walk_forward: Option<&WalkForwardOutcome>,
) -> (String, Value) {
    let provenance = Provenance::of_market("a <script> & \"b\".csv", market, 0.5);
    let notes = vec!["a note with <b>".to_owned()];
    let input = ReportInput {
        title: "20261130T091500Z-3f2a9c <i>",
        program: "foxhunt 0.1.0",
        created_ns: 1_796_000_000_000_000_000,
        engine: "cpu",
        seed: 1,
        settings_toml: "[run]\nseed = 1 # <u>",
        provenance: &provenance,
        bars: &market.bars,
        evaluation,
        training,
        notes: &notes,
        walk_forward,
    };
    let html = html::render(&input).unwrap();
    let json = json::render(&input).unwrap();
    check_page(&html);
    assert_eq!(html.contains("<svg"), !evaluation.windows.is_empty());
    let value: Value = serde_json::from_str(&json).unwrap();
    check_json(&value, "report");
    check_schema(&value);
    for window in &evaluation.windows {
        for text in [charts::equity(window, &market.bars).html(), charts::price(window, &market.bars).html()]
        {
            assert!(text.contains("aria-label=\""));
        }
    }
    let table = table::summary(evaluation);
    check_text(&table);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    (html, value)
}

/// The published schema holds every key there is, and no other.
fn check_schema(report: &Value) {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/report.schema.json")).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("report.schema.json", schema).unwrap();
    let index = compiler.compile("report.schema.json", &mut schemas).unwrap();
    if let Err(error) = schemas.validate(report, index) {
        panic!("{error:#}");
    }
}

/// A walk-forward run of two folds and three seeds: page, JSON, table.
fn walked() -> (String, Value, String) {
    let (market, window) = walk(900);
    let params = EnvParams::new(&Settings::default());
    let seeds: Vec<SeedResult> = [3, 7, 11]
        .map(|step: usize| {
            let windows = [(WINDOW_NAME, window.start + 400..window.end)];
            let rules = EvaluationSettings { random_policies: 2, ..EvaluationSettings::default() };
            let policy = &mut |_: &[f32], bar: usize| Ok(order(bar / step, 0, 1).into());
            let judged = evaluate_windows(&market, &windows, &params, &rules, 1, &NeverStop, policy);
            SeedResult { seed: step as u64, evaluation: judged.unwrap().windows.remove(0) }
        })
        .to_vec();
    let mut settings = Settings::default();
    settings.walk_forward.folds = 2;
    let folds = foxhunt::walk_forward::plan(market.len(), window.start, &settings).unwrap();
    let results: Vec<FoldResult> = folds
        .iter()
        .flat_map(|fold| seeds.iter().map(move |seed| (fold, seed)))
        .map(|(fold, seed)| FoldResult {
            fold: fold.clone(),
            seed: seed.seed,
            data_hash: String::new(),
            settings_hash: String::new(),
            engine: "cpu".into(),
            epochs: 4,
            updates: 80,
            best_epoch: (seed.seed != 3).then_some(2),
            train: seed.evaluation.agent.metrics.clone(),
            validation: seed.evaluation.agent.metrics.clone(),
            test: seed.evaluation.agent.metrics.clone(),
        })
        .collect();
    let mean_equity = seeds[1].evaluation.agent.backtest.equity.clone();
    let tried = Tried { trials: Trials { count: 12, variance: None }, unreadable_lines: 1 };
    let time = &market.bars.time[seeds[0].evaluation.bars.clone()];
    let outcome = WalkForwardOutcome {
        run: RunPaths::new("runs/x"),
        data_hash: String::new(),
        scores: Scores::of(&results, 3, 1),
        folds,
        results,
        median: 1,
        verdict: Verdict::of("mean of 3 seeds", &mean_equity, time, 0.0, &tried),
        mean_equity,
        seeds,
    };
    let evaluation = Evaluation {
        windows: vec![outcome.seeds[1].evaluation.clone()],
        verdict: Some(outcome.verdict.clone()),
    };
    let (html, json) = render_whole(&market, &evaluation, &[], Some(&outcome));
    (html, json, table::walk_forward(&outcome))
}

/// Every seed, fold and score on the page and in JSON, under the schema, with a verdict in words.
#[test]
fn folds_and_seeds() {
    let (html, json, text) = walked();
    for needed in ["Folds and seeds", "seed 7, shown below", "Not to be told from luck", "12 configurations"]
    {
        assert!(html.contains(needed), "{needed} is not on the page");
    }
    assert_eq!(json["walk_forward"]["runs"].as_array().unwrap().len(), 6);
    assert_eq!(json["walk_forward"]["runs"][0]["best_epoch"]["reason"], "no validation gave a score");
    assert_eq!(json["verdict"]["trials"], 12);
    check_text(&text);
    assert!(text.contains("seed 11") && text.contains("IQM"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 84), "{text}");
}

/// A schema that takes anything would prove nothing.
#[test]
fn the_schema_refuses_what_is_wrong() {
    let (market, window) = walk(400);
    let evaluation = evaluate(&market, &window, &EnvParams::new(&Settings::default()), 2, busy);
    let (_, json) = render(&market, &evaluation, &points(1));
    let wrong: [fn(&mut Value); 5] = [
        |r| drop(r.as_object_mut().unwrap().remove("windows")),
        |r| r["schema"] = "foxhunt-report/2".into(),
        |r| r["windows"][0]["agent"]["figures"]["sharpe"] = Value::Null,
        |r| r["windows"][0]["agent"]["figures"]["sharpe"] = serde_json::json!({"value": null}),
        |r| r["provenance"]["more"] = 1.into(),
    ];
    for (i, change) in wrong.into_iter().enumerate() {
        let mut report = json.clone();
        change(&mut report);
        assert!(std::panic::catch_unwind(|| check_schema(&report)).is_err(), "change {i} passes");
    }
}

fn check_text(text: &str) {
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        assert!(!["NaN", "nan", "inf", "Infinity", "null", "None"].contains(&word), "{word} in the text");
    }
}

fn check_page(html: &str) {
    check_text(&html.replace("display: none", "").replace("border: none", ""));
    for outside in
        ["http:", "https:", "src=", "url(", "@import", "<script", "<link", "//cdn", "<b>\n", "<i>&"]
    {
        assert!(!html.contains(outside), "{outside} in the page");
    }
    assert!(!html.contains("<u>") && html.contains("&lt;u&gt;"), "settings are escaped");
    assert!(html.contains("a &lt;script&gt; &amp; &quot;b&quot;.csv"), "the file name is escaped");
    assert!(html.len() < 5 << 20, "{} bytes", html.len());
    for needed in ["<html lang=\"en\">", "<main", "prefers-color-scheme: dark", "viewport", "class=\"skip\""]
    {
        assert!(html.contains(needed), "{needed} is missing");
    }
    assert_eq!(html.matches("<h1").count(), 1);
    assert_eq!(html.matches("<svg").count(), html.matches("role=\"img\" aria-label=\"").count());
    for (open, close) in
        [("<section", "</section>"), ("<table", "</table>"), ("<details", "</details>"), ("<td", "</td>")]
    {
        assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
    }
}

/// Every null is the value of a figure and has a reason beside it.
fn check_json(value: &Value, path: &str) {
    match value {
        Value::Null => panic!("a bare null at {path}"),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| check_json(item, &format!("{path}[{i}]")));
        }
        Value::Object(map) => {
            for (key, item) in map {
                if key == "value" && item.is_null() {
                    let reason = map.get("reason").and_then(Value::as_str).unwrap_or_default();
                    assert!(!reason.is_empty(), "no reason at {path}");
                } else {
                    check_json(item, &format!("{path}.{key}"));
                }
            }
        }
        _ => {}
    }
}

/// A run that trades in three windows, with training curves: page, JSON, evaluation.
fn ordinary() -> (String, Value, Evaluation) {
    let (market, window) = walk(4000);
    let params = EnvParams::new(&Settings::default());
    let evaluation = evaluate(&market, &window, &params, 20, busy);
    let (html, json) = render(&market, &evaluation, &points(30));
    (html, json, evaluation)
}

#[test]
fn an_ordinary_run() {
    let (html, json, evaluation) = ordinary();
    assert_eq!(json["schema"], json::SCHEMA);
    assert_eq!(json["windows"].as_array().unwrap().len(), 3);
    let test = &json["windows"][2];
    let agent = &evaluation.windows[2].agent;
    assert_eq!(test["agent"]["figures"]["net_return"]["value"].as_f64(), agent.metrics.net_return.value());
    assert_eq!(test["agent"]["figures"]["fee"]["value"].as_f64(), Some(agent.metrics.costs.fee));
    assert_eq!(test["random"]["policies"], 20);
    assert_eq!(test["ladder"].as_array().unwrap().len(), 4);
    assert_eq!(test["actions"]["counts"].as_array().unwrap().len(), 45);
    assert_eq!(test["series"]["bar"][0].as_u64(), Some(evaluation.windows[2].bars.start as u64));
    assert_eq!(test["series"]["equity"]["agent"][0].as_f64(), Some(100_000.0));
    assert_eq!(json["training"][3]["td_error"]["reason"], "not finite");
    assert_eq!(json["training"][0]["max_q"]["reason"], "no decision in this epoch");
    // What was held out comes first, and the plots that the page promises are there.
    let place = |id: &str| html.find(id).unwrap_or_else(|| panic!("{id}"));
    assert!(place("id=\"test-equity\"") < place("id=\"train-equity\""));
    for plot in ["equity", "underwater", "price", "actions"] {
        for name in ["train", "validation", "test"] {
            place(&format!("id=\"{name}-{plot}\""));
        }
    }
    for plot in ["loss", "td-error", "max-q", "grad-norm", "throughput"] {
        place(&format!("id=\"training-{plot}\""));
    }
}

/// The table as it is printed, to the letter, for a policy that never trades.
#[test]
fn table_to_the_letter() {
    let (market, window) = walk(500);
    let params = EnvParams::new(&Settings::default());
    let mut evaluation = evaluate(&market, &window, &params, 2, |_| order(2, 0, 1));
    evaluation.windows.truncate(1);
    let table = table::summary(&evaluation);
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "train: 300 bars, 2020-01-17 to 2020-01-30");
    let agent = lines.iter().find(|line| line.trim_start().starts_with("agent")).unwrap();
    assert_eq!(
        agent.split_whitespace().collect::<Vec<_>>(),
        ["agent", "0.00", "0.00", "n/a", "0.00", "0.0", "0", "0.00"]
    );
    assert!(lines.iter().any(|l| l.trim_start().starts_with("random x2")));
    assert!(table.contains("n/a for agent, Sharpe: returns do not vary."), "{table}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
    assert!(!table.contains('\u{1b}'));
}

/// A run of no trades, a ruined run and windows of two bars.
#[test]
fn odd_runs() {
    let (market, window) = walk(600);
    let params = EnvParams::new(&Settings::default());
    let flat = evaluate(&market, &window, &params, 3, |_| order(2, 0, 1));
    let (html, _) = render(&market, &flat, &[]);
    assert!(html.contains("made no trade") && html.contains("returns do not vary"));
    assert!(!html.contains("id=\"training\""));

    let levered = EnvParams { max_leverage: 100.0, ruin_equity: 50_000.0, ..params };
    let ruined = evaluate(&market, &window, &levered, 3, busy);
    assert!(ruined.windows.iter().any(|w| w.agent.metrics.ruined));
    let (html, json) = render(&market, &ruined, &points(1));
    assert!(html.contains("ruined"));
    assert!(json["windows"].as_array().unwrap().iter().any(|w| w["agent"]["ruined"] == true));

    let short = Evaluation {
        verdict: None,
        windows: ["train", "validation", "test"]
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let start = window.start + 2 * i;
                let windows = [(*name, start..start + 2)];
                let settings = EvaluationSettings { random_policies: 1, ..EvaluationSettings::default() };
                let policy = &mut |_: &[f32], _| Ok(order(4, 0, 1).into());
                evaluate_windows(&market, &windows, &params, &settings, 1, &NeverStop, policy)
                    .unwrap()
                    .windows
                    .remove(0)
            })
            .collect(),
    };
    let (html, _) = render(&market, &short, &points(2));
    assert!(html.contains("1 returns, needs 2"));
    let nothing = Evaluation { windows: Vec::new(), verdict: None };
    render(&market, &nothing, &[]);
}

/// Decisions that fell back are told where there were any, and only there.
#[test]
fn fallbacks_are_told() {
    let (market, window) = walk(400);
    let mut evaluation = evaluate(&market, &window, &EnvParams::new(&Settings::default()), 1, busy);
    let told = |evaluation: &Evaluation, epochs: &[TrainingPoint]| {
        let (html, json) = render(&market, evaluation, epochs);
        assert!(json["windows"][2]["agent"]["figures"]["fallbacks"]["value"].is_number());
        [html, table::summary(evaluation)].map(|text| text.matches("fell back to flat").count())
    };
    // The page defines the figure once.
    assert_eq!(told(&evaluation, &points(2)), [1, 0]);
    evaluation.windows[2].agent.metrics.fallbacks = 3;
    assert_eq!(told(&evaluation, &points(2)), [2, 1]);
    let epoch = TrainingPoint { fallback_decisions: 4, ..points(1)[0] };
    assert_eq!(told(&evaluation, &[epoch, epoch]), [3, 1]);
    assert!(table::summary(&evaluation).contains("3 decisions fell back"));
}

/// The schema document names every key of a report and every figure.
#[test]
fn the_schema_is_documented() {
    const DOCUMENT: &str = include_str!("../../../docs/report.md");
    let (market, window) = walk(400);
    let evaluation = evaluate(&market, &window, &EnvParams::new(&Settings::default()), 2, busy);
    let (_, json) = render(&market, &evaluation, &points(1));
    let mut keys: Vec<String> = Vec::new();
    let mut collect = |value: &Value| keys.extend(value.as_object().unwrap().keys().cloned());
    let window = &json["windows"][0];
    let parts =
        [&json, &json["provenance"], window, &window["agent"], &window["random"], &window["ladder"][0]];
    parts.into_iter().for_each(&mut collect);
    let more =
        [&window["actions"], &window["series"], &window["agent"]["figures"], &window["agent"]["orders"]];
    more.into_iter().for_each(&mut collect);
    collect(&window["series"]["equity"]);
    collect(&json["training"][0]);
    assert!(DOCUMENT.contains(json::SCHEMA));
    for key in keys {
        assert!(DOCUMENT.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

/// A NaN planted in every series by a careless caller does not get out.
#[test]
fn planted_nan_does_not_get_out() {
    let (market, window) = walk(400);
    let params = EnvParams::new(&Settings::default());
    let mut evaluation = evaluate(&market, &window, &params, 2, busy);
    let w = &mut evaluation.windows[2];
    w.agent.backtest.equity[7] = f64::NAN;
    w.agent.backtest.fills[0].price = f64::INFINITY;
    w.agent.metrics.turnover = f64::NAN;
    w.agent.metrics.final_equity = f64::NEG_INFINITY;
    w.agent.metrics.costs.fee = f64::NAN;
    w.random.equity_mean.fill(f64::NAN);
    w.random.turnover = f64::NAN;
    w.bars_per_year = Some(f64::INFINITY);
    let (_, json) = render(&market, &evaluation, &points(3));
    assert_eq!(json["windows"][2]["agent"]["figures"]["turnover"]["reason"], "not finite");
    assert!(json["windows"][2]["series"]["not_finite"].as_u64().unwrap() > 0);
}

/// The page stays under its bound for a million bars, with a fill at every other bar.
#[test]
fn a_million_bars() {
    let n = 1_000_000 + features::first_bar(&Settings::default().execution);
    let price = |i: usize| 100.0 + 10.0 * (i as f64 * 1e-3).sin() + (i % 7) as f64 * 0.01;
    let close: Vec<f64> = (0..n).map(price).collect();
    let open: Vec<f64> = std::iter::once(100.0).chain(close.iter().copied()).take(n).collect();
    let pick = |f: fn(f64, f64) -> f64| open.iter().zip(&close).map(|(o, c)| f(*o, *c)).collect();
    let arrays = BarArrays {
        time: (0..n as i64).map(|i| 1_500_000_000_000_000_000 + i * 1_000_000_000).collect(),
        high: pick(f64::max),
        low: pick(f64::min),
        open,
        close,
        ..BarArrays::default()
    };
    let execution = Settings::default().execution;
    let bars = BarSeries::from_arrays(None, arrays).unwrap();
    let window = n - 1_000_000..n;
    let market = Market::prepare(bars, &execution, Normalise::FitOn(window.clone())).unwrap();
    let params = EnvParams::new(&Settings::default()).with_cost_scale(0.0);
    let evaluation = evaluate(&market, &window, &params, 2, |bar| order(bar / 2, 0, 1));
    assert!(evaluation.windows[0].agent.backtest.fills.len() > 200_000);
    let (html, json) = render(&market, &evaluation, &points(2000));
    assert!(html.len() < 1_500_000, "{} bytes", html.len());
    assert!(json["windows"][0]["series"]["bar"].as_array().unwrap().len() <= 1002);
}

#[test]
fn a_window_outside_the_bars_is_refused() {
    let (market, window) = walk(300);
    let mut evaluation = evaluate(&market, &window, &EnvParams::new(&Settings::default()), 1, busy);
    evaluation.windows[0].bars = 0..usize::MAX;
    let provenance = Provenance::of_market("x.csv", &market, 0.5);
    let input = ReportInput {
        title: "t",
        program: "p",
        created_ns: 0,
        engine: "cpu",
        seed: 1,
        settings_toml: "",
        provenance: &provenance,
        bars: &market.bars,
        evaluation: &evaluation,
        training: &[],
        walk_forward: None,
        notes: &[],
    };
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(write(folder.path(), &input), Err(ReportError::Window { .. })));
    let nothing = Evaluation { windows: Vec::new(), verdict: None };
    write(folder.path(), &ReportInput { evaluation: &nothing, ..input }).unwrap();
    assert!(folder.path().join("report.html").exists() && folder.path().join("report.json").exists());
}

/// The tick size told is the one fills go by, not the one the file suggests.
#[test]
fn provenance_tells_the_tick_size_of_fills() {
    let (mut market, _) = walk(300);
    market.tick_size = 0.125;
    assert_eq!(Provenance::of_market("x.csv", &market, 0.5).tick_size, 0.125);
}
