//! Typed access to the arrays of a snapshot, with errors that name the array.

use std::path::PathBuf;

use foxhunt_core::record::{Fault, FaultKind};

use crate::MLError;
use crate::engine::{Array, ArrayData, Snapshot};

/// No run gets so far; a count beyond it is none, and sums with those below it fit.
pub(crate) const MAX_COUNT: u64 = 1 << 62;

/// Refuses counts that no run reaches.
///
/// # Errors
/// [`MLError::Checkpoint`] naming the array.
pub(crate) fn check_counts(name: &str, counts: &[u64]) -> Result<(), MLError> {
    match counts.iter().find(|count| **count > MAX_COUNT) {
        Some(count) => Err(misfit(format!("{name} counts to {count}, which no run reaches"))),
        None => Ok(()),
    }
}

/// An array of counts, each one that a run can reach.
///
/// # Errors
/// As [`get_u64`] and [`check_counts`].
pub(crate) fn get_counts<'a>(
    snapshot: &'a Snapshot,
    name: &str,
    len: Option<usize>,
) -> Result<&'a [u64], MLError> {
    let counts = get_u64(snapshot, name, len)?;
    check_counts(name, counts)?;
    Ok(counts)
}

/// The error of a snapshot that does not fit this engine.
pub(crate) fn misfit(reason: String) -> MLError {
    MLError::Checkpoint { path: PathBuf::from("engine"), reason }
}

macro_rules! typed {
    ($put:ident, $get:ident, $variant:ident, $type:ty) => {
        /// Adds an array of one dimension.
        pub(crate) fn $put(snapshot: &mut Snapshot, name: &str, values: Vec<$type>) {
            let array = Array { shape: vec![values.len()], data: ArrayData::$variant(values) };
            snapshot.arrays.insert(name.to_owned(), array);
        }

        /// The array of that name, if it has that type, and that length where one is given.
        pub(crate) fn $get<'a>(
            snapshot: &'a Snapshot,
            name: &str,
            len: Option<usize>,
        ) -> Result<&'a [$type], MLError> {
            match snapshot.arrays.get(name).map(|array| &array.data) {
                Some(ArrayData::$variant(values)) if len.is_none_or(|len| len == values.len()) => Ok(values),
                Some(ArrayData::$variant(values)) => {
                    let wanted = len.unwrap_or_default();
                    Err(misfit(format!("{name} has {} values, expected {wanted}", values.len())))
                }
                Some(_) => Err(misfit(format!("{name} is not {}", stringify!($type)))),
                None => Err(misfit(format!("{name} is missing"))),
            }
        }
    };
}

typed!(put_f32, get_f32, F32, f32);
typed!(put_f64, get_f64, F64, f64);
typed!(put_u32, get_u32, U32, u32);
typed!(put_u64, get_u64, U64, u64);

/// Faults as three words each.
pub(crate) fn fault_words(faults: &[Fault]) -> Vec<u64> {
    faults.iter().flat_map(|f| [f.step, u64::from(f.kind as u32), u64::from(f.count)]).collect()
}

/// The faults that an array of [`fault_words`] holds.
pub(crate) fn faults_of(snapshot: &Snapshot, name: &str) -> Result<Vec<Fault>, MLError> {
    let fault = |words: &[u64]| match *words {
        [step, kind, count] => match (fault_kind(kind), u32::try_from(count)) {
            (Some(kind), Ok(count)) => Ok(Fault { step, kind, count }),
            _ => Err(misfit(format!("{name} has a fault of kind {kind}, {count} times"))),
        },
        _ => Err(misfit(format!("{name} is cut off"))),
    };
    get_counts(snapshot, name, None)?.chunks(3).map(fault).collect()
}

fn fault_kind(word: u64) -> Option<FaultKind> {
    use FaultKind::{NonFiniteGradNorm, NonFiniteLoss, NonFiniteReward, NonFiniteState, NonFiniteTdError};
    [NonFiniteLoss, NonFiniteGradNorm, NonFiniteTdError, NonFiniteReward, NonFiniteState]
        .into_iter()
        .find(|kind| u64::from(*kind as u32) == word)
}
