//! `metrics.jsonl` under its published schema: every line of real runs, good and bad.

use foxhunt::{Settings, Trainer};
use foxhunt_core::settings::NanPolicy;
use serde_json::{Value, json};

use crate::support::{bars, tiny};

const SCHEMA: &str = include_str!("../../../../docs/metrics.schema.json");

/// Whether `line` is one of the schema's; the schema names every key there is, and no other.
fn valid(line: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("metrics.schema.json", schema).unwrap();
    let index = compiler.compile("metrics.schema.json", &mut schemas).unwrap();
    schemas.validate(line, index).map_err(|error| format!("{error:#}"))
}

fn lines(settings: &Settings) -> Vec<Value> {
    let trainer = Trainer::new(settings, bars(1)).unwrap();
    let path = trainer.run_folder().paths().metrics();
    trainer.run().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A run as it should be, and one whose every update is skipped.
fn runs() -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let mut all = lines(&tiny(dir.path()));
    let mut bad = tiny(dir.path());
    (bad.env.reward_scale, bad.learner.huber_delta) = (1e30, 1e35);
    (bad.guard.nan_policy, bad.guard.max_skips_in_row) = (NanPolicy::Skip, 1_000_000);
    all.extend(lines(&bad));
    all
}

#[test]
fn every_line_of_a_run_is_valid() {
    let all = runs();
    for line in &all {
        valid(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for kind in ["epoch", "validation", "checkpoint", "warning"] {
        assert!(all.iter().any(|line| line["kind"] == kind), "no line of kind {kind}");
    }
    assert!(all.iter().any(|line| !line["faults"].as_array().is_none_or(Vec::is_empty)), "no fault");
}

/// A schema that takes anything would prove nothing: each key alone is missed, an unknown one is seen, and so is a
/// value that cannot be.
#[test]
fn the_schema_refuses_what_is_wrong() {
    let all = runs();
    for kind in ["epoch", "validation", "checkpoint", "warning"] {
        let line = all.iter().find(|line| line["kind"] == kind).unwrap();
        for key in line.as_object().unwrap().keys() {
            let mut less = line.clone();
            less.as_object_mut().unwrap().remove(key);
            assert!(valid(&less).is_err(), "{kind} without {key} passes");
            let mut other = line.clone();
            other[key] = json!({ "not": "this" });
            assert!(valid(&other).is_err(), "{kind} with any {key} passes");
        }
        let mut more = line.clone();
        more["surprise"] = json!(1);
        assert!(valid(&more).is_err(), "{kind} with an unknown key passes");
    }
}

/// The page for people names every key of the schema.
#[test]
fn every_key_is_documented() {
    let page = include_str!("../../../../docs/metrics.md");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (kind, definition) in schema["$defs"].as_object().unwrap() {
        for key in definition["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{key}`")), "{kind}.{key}");
        }
    }
    let text = foxhunt_report::prometheus::RunMetrics::default().text().unwrap();
    for name in text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next()) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
        let dashboard = include_str!("../../../../docs/grafana.json");
        let drawn = ["loss", "grad_norm", "q_max", "healthy", "updates_per_second", "skipped_updates_total"];
        if drawn.iter().any(|d| name == format!("foxhunt_{d}")) {
            assert!(dashboard.contains(name), "{name} is not in the dashboard");
        }
    }
}

/// The dashboard draws only what is served.
#[test]
fn the_dashboard_names_no_other_series() {
    let text = foxhunt_report::prometheus::RunMetrics::default().text().unwrap();
    let dashboard: Value = serde_json::from_str(include_str!("../../../../docs/grafana.json")).unwrap();
    let mut drawn = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            for name in expression.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
                if name.starts_with("foxhunt_") {
                    assert!(text.contains(&format!("\n{name} ")), "{expression}");
                    drawn += 1;
                }
            }
        }
    }
    assert!(drawn > 15, "{drawn}");
}
