//! Tables inside a section that may be given in part: a key left out keeps the section's default.
//!
//! Sections themselves do this by `serde(default)`. A table inside one has no default of its own (two schedules
//! begin at different values), so the field that holds it names a function of this file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{ExplorationSettings, LearnerSettings, TargetUpdate};
use crate::LinearSchedule;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of start, end and steps")]
struct PartialSchedule {
    start: Option<f64>,
    end: Option<f64>,
    steps: Option<u64>,
}

impl PartialSchedule {
    fn over(self, default: LinearSchedule) -> LinearSchedule {
        LinearSchedule {
            start: self.start.unwrap_or(default.start),
            end: self.end.unwrap_or(default.end),
            steps: self.steps.unwrap_or(default.steps),
        }
    }
}

/// `learner.learning_rate`.
pub(super) fn learning_rate<'de, D: Deserializer<'de>>(from: D) -> Result<LinearSchedule, D::Error> {
    Ok(PartialSchedule::deserialize(from)?.over(LearnerSettings::default().learning_rate))
}

/// `exploration.epsilon`.
pub(super) fn epsilon<'de, D: Deserializer<'de>>(from: D) -> Result<LinearSchedule, D::Error> {
    Ok(PartialSchedule::deserialize(from)?.over(ExplorationSettings::default().epsilon))
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TargetKind {
    Hard,
    Polyak,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of kind, and of every or tau")]
struct PartialTarget {
    kind: Option<TargetKind>,
    every: Option<u64>,
    tau: Option<f64>,
}

/// `learner.target`. Another kind than the default's has nothing to fall back on and must be given whole.
pub(super) fn target<'de, D: Deserializer<'de>>(from: D) -> Result<TargetUpdate, D::Error> {
    let PartialTarget { kind, every, tau } = PartialTarget::deserialize(from)?;
    let (default_kind, default_every, default_tau) = match LearnerSettings::default().target {
        TargetUpdate::Hard { every } => (TargetKind::Hard, Some(every), None),
        TargetUpdate::Polyak { tau } => (TargetKind::Polyak, None, Some(tau)),
    };
    match (kind.unwrap_or(default_kind), every, tau) {
        (TargetKind::Hard, _, Some(_)) => Err(D::Error::unknown_field("tau", &["kind", "every"])),
        (TargetKind::Polyak, Some(_), _) => Err(D::Error::unknown_field("every", &["kind", "tau"])),
        (TargetKind::Hard, every, None) => {
            let every = every.or(default_every).ok_or_else(|| D::Error::missing_field("every"))?;
            Ok(TargetUpdate::Hard { every })
        }
        (TargetKind::Polyak, None, tau) => {
            let tau = tau.or(default_tau).ok_or_else(|| D::Error::missing_field("tau"))?;
            Ok(TargetUpdate::Polyak { tau })
        }
    }
}
