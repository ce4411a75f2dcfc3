//! How a learner leaves and enters a snapshot, the same for every engine.

use foxhunt_ops::learner::{LearnerCounts, LearnerState};
use foxhunt_ops::mlp::MlpLayout;

use super::network::{read_flat, unfit, write_flat};
use crate::MLError;
use crate::engine::arrays::check_counts;
use crate::engine::{Array, ArrayData, Snapshot};

const COUNTS: &str = "learner.counts";
/// The last good copy carries this before its arrays.
const GOOD: &str = "good.";
const GOOD_STEPS: &str = "good.adam_t";

/// Writes state and counts: `online.*`, `target.*`, `adam_m.*`, `adam_v.*` and `learner.counts`.
pub(crate) fn write(layout: &MlpLayout, state: &LearnerState, counts: &LearnerCounts, to: &mut Snapshot) {
    write_parts(layout, state, "", to);
    let values =
        [state.adam_t, counts.updates, counts.skipped, counts.skipped_in_row, counts.collapsed_in_row];
    put(to, COUNTS, &values);
}

/// Reads what [`write`] wrote.
pub(crate) fn read(layout: &MlpLayout, from: &Snapshot) -> Result<(LearnerState, LearnerCounts), MLError> {
    let [adam_t, updates, skipped, skipped_in_row, collapsed_in_row] = get(from, COUNTS)?;
    let state = read_parts(layout, from, "", adam_t)?;
    Ok((state, LearnerCounts { updates, skipped, skipped_in_row, collapsed_in_row }))
}

/// Writes what a rollback goes back to: the arrays of [`write`] under `good.*`.
pub(crate) fn write_good(layout: &MlpLayout, state: &LearnerState, to: &mut Snapshot) {
    write_parts(layout, state, GOOD, to);
    put(to, GOOD_STEPS, &[state.adam_t]);
}

/// Reads what [`write_good`] wrote.
pub(crate) fn read_good(layout: &MlpLayout, from: &Snapshot) -> Result<LearnerState, MLError> {
    let [adam_t] = get(from, GOOD_STEPS)?;
    read_parts(layout, from, GOOD, adam_t)
}

fn write_parts(layout: &MlpLayout, state: &LearnerState, prefix: &str, to: &mut Snapshot) {
    let parts =
        [("online", &state.online), ("target", &state.target), ("adam_m", &state.m), ("adam_v", &state.v)];
    for (part, values) in parts {
        write_flat(layout, values, to, &format!("{prefix}{part}."));
    }
}

fn read_parts(
    layout: &MlpLayout,
    from: &Snapshot,
    prefix: &str,
    adam_t: u64,
) -> Result<LearnerState, MLError> {
    let part = |part: &str| {
        let values = read_flat(layout, from, &format!("{prefix}{part}."))?;
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(unfit(format!("{prefix}{part} holds a value that is not finite"))),
        }
    };
    let v = part("adam_v")?;
    if v.iter().any(|v| *v < 0.0) {
        return Err(unfit(format!("{prefix}adam_v holds a mean of squares below 0")));
    }
    Ok(LearnerState { online: part("online")?, target: part("target")?, m: part("adam_m")?, v, adam_t })
}

fn put(to: &mut Snapshot, name: &str, values: &[u64]) {
    let array = Array { shape: vec![values.len()], data: ArrayData::U64(values.to_vec()) };
    to.arrays.insert(name.into(), array);
}

fn get<const N: usize>(from: &Snapshot, name: &str) -> Result<[u64; N], MLError> {
    let Some(Array { data: ArrayData::U64(values), .. }) = from.arrays.get(name) else {
        return Err(unfit(format!("array {name} is missing or not u64")));
    };
    check_counts(name, values)?;
    let count = values.len();
    values.as_slice().try_into().map_err(|_| unfit(format!("array {name} has {count} values, expected {N}")))
}
