//! What a learner is made of between two updates, and how it leaves and enters a snapshot.

use foxhunt_ops::mlp::MlpLayout;

use super::network::{read_flat, unfit, write_flat};
use crate::MLError;
use crate::engine::{Array, ArrayData, Snapshot};

const COUNTS: &str = "learner.counts";

/// Everything an update changes: the parameters with all that Adam and the target network keep beside them.
/// A copy of it is what a rollback goes back to.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnerState {
    /// Online parameters, f32 `[layout.len()]`.
    pub online: Vec<f32>,
    /// Target parameters, same layout, memory of their own.
    pub target: Vec<f32>,
    /// Adam's first moments, same layout.
    pub m: Vec<f32>,
    /// Adam's second moments, same layout.
    pub v: Vec<f32>,
    /// Steps that the moments hold.
    pub adam_t: u64,
}

/// Counts that only ever grow, or restart at every healthy update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnerCounts {
    /// Applied updates: what the learning rate and hard synchronisation go by.
    pub updates: u64,
    /// Skipped updates.
    pub skipped: u64,
    /// Updates skipped one after the other up to now.
    pub skipped_in_row: u64,
    /// Updates with a collapsed gradient one after the other up to now; a skipped one neither counts nor resets.
    pub collapsed_in_row: u64,
}

/// Writes state and counts: `online.*`, `target.*`, `adam_m.*`, `adam_v.*` and `learner.counts`.
pub(super) fn write(layout: &MlpLayout, state: &LearnerState, counts: &LearnerCounts, to: &mut Snapshot) {
    write_flat(layout, &state.online, to, "online.");
    write_flat(layout, &state.target, to, "target.");
    write_flat(layout, &state.m, to, "adam_m.");
    write_flat(layout, &state.v, to, "adam_v.");
    let values =
        [state.adam_t, counts.updates, counts.skipped, counts.skipped_in_row, counts.collapsed_in_row];
    let array = Array { shape: vec![values.len()], data: ArrayData::U64(values.to_vec()) };
    to.arrays.insert(COUNTS.into(), array);
}

/// Reads what [`write`] wrote.
pub(super) fn read(layout: &MlpLayout, from: &Snapshot) -> Result<(LearnerState, LearnerCounts), MLError> {
    let Some(Array { data: ArrayData::U64(values), .. }) = from.arrays.get(COUNTS) else {
        return Err(unfit(format!("array {COUNTS} is missing or not u64")));
    };
    let &[adam_t, updates, skipped, skipped_in_row, collapsed_in_row] = values.as_slice() else {
        return Err(unfit(format!("array {COUNTS} has {} values, expected 5", values.len())));
    };
    let state = LearnerState {
        online: read_flat(layout, from, "online.")?,
        target: read_flat(layout, from, "target.")?,
        m: read_flat(layout, from, "adam_m.")?,
        v: read_flat(layout, from, "adam_v.")?,
        adam_t,
    };
    for (what, values) in
        [("online", &state.online), ("target", &state.target), ("adam_m", &state.m), ("adam_v", &state.v)]
    {
        if values.iter().any(|v| !v.is_finite()) {
            return Err(unfit(format!("{what} holds a value that is not finite")));
        }
    }
    Ok((state, LearnerCounts { updates, skipped, skipped_in_row, collapsed_in_row }))
}
