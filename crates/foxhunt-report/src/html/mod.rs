//! The report as one self-contained page: no script, no network, inline SVG, light and dark.
//!
//! The page is the template `template.html` with the style sheet `style.css`; here is only what fills it. The
//! template escapes every text by itself; only plots, which escape their own texts, go in as they are.

mod cell;
mod summary;
pub mod verdict;
pub mod walk;
mod window;

use foxhunt::evaluation::{Measure, WindowEvaluation};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use self::summary::{Compared, Gap, Headline, compared, gap};
use self::verdict::VerdictSection;
use self::walk::WalkSection;
use self::window::Section;
use crate::figures::FIGURES;
use crate::input::{FILL_RULE, Provenance, ReportInput};
use crate::number::{count, or_reason, short};
use crate::{ReportError, charts, time};

const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");

/// What the template is filled with.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    program: &'a str,
    created: String,
    engine: &'a str,
    seed: u64,
    headline: Option<Headline>,
    verdict: Option<VerdictSection>,
    walk: Option<WalkSection>,
    compared: Compared,
    windows: Vec<Section>,
    gap: Option<Gap>,
    training: Vec<String>,
    training_line: Option<String>,
    data: Vec<(&'static str, String)>,
    data_notes: &'a [String],
    fill_rule: &'static str,
    settings: &'a str,
    notes: &'a [String],
    definitions: Vec<(&'static str, &'static str)>,
}

/// The page as text.
///
/// # Errors
/// [`ReportError::Template`]; [`ReportError::Window`] when a window does not lie inside the bars.
pub fn render(input: &ReportInput<'_>) -> Result<String, ReportError> {
    input.check()?;
    let mut environment = Environment::new();
    // The name ends in .html, which turns escaping on.
    environment.add_template("report.html", TEMPLATE)?;
    let windows = &input.evaluation.windows;
    // What was held out comes first.
    let order = |w: &&WindowEvaluation| match w.name.as_str() {
        "test" => 0,
        "validation" => 1,
        "train" => 2,
        _ => 0,
    };
    let mut shown: Vec<&WindowEvaluation> = windows.iter().collect();
    shown.sort_by_key(order);
    let page = Page {
        style: STYLE,
        title: input.title,
        program: input.program,
        created: time::minute(input.created_ns),
        engine: input.engine,
        seed: input.seed,
        headline: shown.first().map(|w| Headline::of(w)),
        verdict: input.evaluation.verdict.as_ref().map(VerdictSection::of),
        walk: input.walk_forward.map(|walk| WalkSection::of(walk, input)),
        compared: compared(&shown),
        windows: shown.iter().map(|w| Section::of(w, input)).collect::<Vec<_>>(),
        gap: gap(input),
        training: charts::training(input.training).iter().map(|plot| plot.html()).collect::<Vec<_>>(),
        training_line: training_line(input),
        data: data_rows(input.provenance),
        data_notes: &input.provenance.notes,
        fill_rule: FILL_RULE,
        settings: input.settings_toml,
        notes: input.notes,
        definitions: FIGURES.iter().map(|f| (f.label, f.definition)).collect::<Vec<_>>(),
    };
    Ok(environment.get_template("report.html")?.render(Serde(page))?)
}

fn training_line(input: &ReportInput<'_>) -> Option<String> {
    let last = input.training.last()?;
    let mut line = format!(
        "{} epochs, {} env steps, {} updates",
        count(input.training.len() as u64),
        count(last.env_steps),
        count(last.updates)
    );
    if last.skipped_updates > 0 {
        line.push_str(&format!(
            ", {} updates skipped because something was not finite",
            count(last.skipped_updates)
        ));
    } else {
        line.push_str(", no update skipped");
    }
    let fallbacks: u64 = input.training.iter().map(|point| point.fallback_decisions).sum();
    if fallbacks > 0 {
        line.push_str(&format!(
            ", {} decisions fell back to flat, no Q-value being a number",
            count(fallbacks)
        ));
    }
    Some(line)
}

fn data_rows(p: &Provenance) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("File", p.file.clone()),
        ("Symbol", p.symbol.clone().unwrap_or_else(|| "not named in the file".into())),
        ("Bars", format!("{} of {}", count(p.bars), time::span(p.bar_ns))),
        ("Range", format!("{} to {} UTC (bar opens)", time::minute(p.first_ns), time::minute(p.last_ns))),
        (
            "Bars a year",
            or_reason(&Measure::of_option(p.bars_per_year, "fewer than 2 bars"), |n| {
                format!("{} as observed", count(n.round().max(0.0) as u64))
            }),
        ),
        ("Tick size", or_reason(&Measure::of(p.tick_size), short)),
        ("Half spread", p.spread_source.clone()),
    ];
    if !p.format.is_empty() {
        rows.insert(1, ("Format", p.format.clone()));
    }
    let repairs = if p.repairs.is_empty() {
        "none".into()
    } else {
        p.repairs
            .iter()
            .map(|(kind, rows)| format!("{kind}: {}", count(*rows)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    rows.push(("Repairs", repairs));
    rows.push(("BLAKE3 of the bars", p.data_hash.clone()));
    rows
}
