//! The one error type of this crate.

/// What can go wrong in an operation on the CPU.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Host memory for a buffer could not be had.
    #[error("cannot allocate {bytes} bytes for {what}")]
    HostMemory {
        /// For what.
        what: &'static str,
        /// Bytes asked for; `u64::MAX` when the number itself does not fit.
        bytes: u64,
    },
    /// Fewer rows are stored than the operation needs.
    #[error("not enough data: {have} rows stored, {need} needed")]
    NotEnoughRows {
        /// Rows stored.
        have: usize,
        /// Rows needed.
        need: usize,
    },
    /// Every stored row has priority 0, so none can be drawn.
    #[error("all {rows} rows stored have priority 0, none can be drawn")]
    NoMass {
        /// Rows stored.
        rows: usize,
    },
    /// A slot outside the rows stored.
    #[error("row {index} is outside the {len} rows stored")]
    RowOutOfRange {
        /// The slot given.
        index: usize,
        /// Rows stored.
        len: usize,
    },
    /// A slice had another length than its neighbours ask for.
    #[error("{what}: {got} elements, expected {expected}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length asked for.
        expected: usize,
    },
    /// An argument outside its range.
    #[error("{what} = {value} is refused: it must be {rule}")]
    InvalidArgument {
        /// Which argument.
        what: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        rule: &'static str,
    },
}

/// A zeroed vector of `n` elements, or [`OpError::HostMemory`] with the bytes that could not be had.
pub(crate) fn try_zeroed<T: Clone + Default>(n: usize, what: &'static str) -> Result<Vec<T>, OpError> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(n)
        .map_err(|_| OpError::HostMemory { what, bytes: (n as u64).saturating_mul(size_of::<T>() as u64) })?;
    values.resize(n, T::default());
    Ok(values)
}

/// Refuses a slice whose length is not `expected`.
pub(crate) fn check_len(what: &'static str, got: usize, expected: usize) -> Result<(), OpError> {
    if got == expected { Ok(()) } else { Err(OpError::Length { what, got, expected }) }
}
