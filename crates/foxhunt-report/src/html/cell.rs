//! Cells and rows of the page's tables.

use foxhunt::evaluation::{Measure, Metrics};
use serde::Serialize;

use crate::figures::Figure;
use crate::number::{or_na, typographic};

/// A cell: its text, and the reason when there is no figure.
#[derive(Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) reason: Option<String>,
    /// `up`, `down` or nothing.
    pub(super) tone: &'static str,
}

impl Cell {
    pub(super) fn of(figure: &Figure, metrics: &Metrics) -> Self {
        Self::measured(figure, &(figure.of)(metrics))
    }

    pub(super) fn measured(figure: &Figure, measure: &Measure) -> Self {
        let tone = match measure.value() {
            Some(v) if figure.key == "net_return" && v > 0.0 => "up",
            Some(v) if figure.key == "net_return" && v < 0.0 => "down",
            _ => "",
        };
        Self {
            text: typographic(&or_na(measure, |v| figure.unit.write(v))),
            reason: measure.reason().map(str::to_owned),
            tone,
        }
    }

    /// The measure through `format`, without a tone.
    pub(super) fn written(measure: &Measure, format: impl FnOnce(f64) -> String) -> Self {
        Self {
            text: typographic(&or_na(measure, format)),
            reason: measure.reason().map(str::to_owned),
            tone: "",
        }
    }

    /// No figure, and why.
    pub(super) fn missing(reason: &str) -> Self {
        Self { text: "n/a".into(), reason: Some(reason.into()), tone: "" }
    }

    pub(super) fn plain(text: impl AsRef<str>) -> Self {
        Self { text: typographic(text.as_ref()), reason: None, tone: "" }
    }
}

#[derive(Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) class: &'static str,
    pub(super) cells: Vec<Cell>,
}

/// The style class of a policy by its name.
pub(super) fn class_of(name: &str) -> &'static str {
    match name {
        "agent" => "agent",
        "buy and hold" => "hold",
        "always short" => "shorts",
        _ => "flat",
    }
}
