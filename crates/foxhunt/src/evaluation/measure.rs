//! A figure that may not exist: a finite number, or the reason why there is none.
//!
//! Nothing else can be built, so nothing that holds measures can carry a NaN into a table, a page or JSON. How
//! a figure is computed is not told here.

use foxhunt_market::ratios::Undefined;
use serde::{Deserialize, Serialize};

/// A finite f64, or a reason. As JSON `{"value": 1.5}` or `{"value": null, "reason": "fewer than 2 returns"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Measure(Result<f64, String>);

impl Measure {
    /// The number, or "not finite" when it is NaN or infinite.
    #[must_use]
    pub fn of(value: f64) -> Self {
        if value.is_finite() { Self(Ok(value)) } else { Self::undefined("not finite") }
    }

    /// The number, or `reason` where there is none; a NaN or infinity is undefined all the same.
    #[must_use]
    pub fn of_option(value: Option<f64>, reason: &str) -> Self {
        value.map_or_else(|| Self::undefined(reason), Self::of)
    }

    /// No number, and why.
    #[must_use]
    pub fn undefined(reason: impl Into<String>) -> Self {
        Self(Err(reason.into()))
    }

    /// The number, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.0.as_ref().ok().copied()
    }

    /// Why there is no number, if there is none.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// A function of the number; the reason stays when there is none.
    #[must_use]
    pub fn map(&self, f: impl FnOnce(f64) -> f64) -> Self {
        match &self.0 {
            Ok(value) => Self::of(f(*value)),
            Err(reason) => Self::undefined(reason.clone()),
        }
    }

    /// A function of both numbers; the first reason stays when one is missing.
    #[must_use]
    pub fn zip(&self, other: &Self, f: impl FnOnce(f64, f64) -> f64) -> Self {
        match (&self.0, &other.0) {
            (Ok(a), Ok(b)) => Self::of(f(*a, *b)),
            (Err(reason), _) | (_, Err(reason)) => Self::undefined(reason.clone()),
        }
    }
}

impl From<Result<f64, Undefined>> for Measure {
    fn from(result: Result<f64, Undefined>) -> Self {
        match result {
            Ok(value) => Self::of(value),
            Err(reason) => Self::undefined(reason.to_string()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Parts {
    value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<Measure> for Parts {
    fn from(measure: Measure) -> Self {
        match measure.0 {
            Ok(value) => Self { value: Some(value), reason: None },
            Err(reason) => Self { value: None, reason: Some(reason) },
        }
    }
}

impl TryFrom<Parts> for Measure {
    type Error = String;

    fn try_from(parts: Parts) -> Result<Self, String> {
        match (parts.value, parts.reason) {
            (Some(value), None) => Ok(Self::of(value)),
            (None, Some(reason)) => Ok(Self::undefined(reason)),
            _ => Err("a measure needs either a value or a reason".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_undefined_and_survives_json_with_its_reason() {
        for planted in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let measure = Measure::of(planted);
            assert_eq!(measure.value(), None);
            let json = serde_json::to_string(&measure).unwrap();
            assert_eq!(json, r#"{"value":null,"reason":"not finite"}"#);
            assert_eq!(serde_json::from_str::<Measure>(&json).unwrap(), measure);
        }
        assert_eq!(Measure::of(2.0).map(|x| x / 0.0).reason(), Some("not finite"));
        assert_eq!(serde_json::to_string(&Measure::of(0.5)).unwrap(), r#"{"value":0.5}"#);
        assert!(serde_json::from_str::<Measure>(r#"{"value":null}"#).is_err());
    }

    #[test]
    fn zip_keeps_the_first_reason() {
        let (a, b) = (Measure::undefined("a"), Measure::undefined("b"));
        assert_eq!(a.zip(&b, |x, y| x + y).reason(), Some("a"));
        assert_eq!(Measure::of(1.0).zip(&b, |x, y| x + y).reason(), Some("b"));
        assert_eq!(Measure::of(1.0).zip(&Measure::of(2.0), |x, y| x + y).value(), Some(3.0));
    }
}
