//! Bits against bits, and what came of it.

use super::{Check, Leak, Stage, TOLD_LEAKS, Tallies};

/// Everything found.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) tallies: Tallies,
    pub(super) leaks: Vec<Leak>,
}

/// Where values are compared.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) stage: Stage,
    pub(super) check: Check,
    pub(super) cut: usize,
}

/// A number whose bits count: -0 is not 0, and one NaN is not another.
pub(super) trait Bits: Copy {
    fn bits(self) -> u64;
    fn told(self) -> f64;
}

impl Bits for f32 {
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn told(self) -> f64 {
        f64::from(self)
    }
}

impl Bits for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn told(self) -> f64 {
        self
    }
}

impl Findings {
    /// Compares two series that should be one; value i is called `name(i)` and belongs to `bar(i)`. A length that
    /// differs is a leak.
    pub(super) fn compare<T: Bits>(
        &mut self,
        place: Place,
        base: &[T],
        other: &[T],
        name: impl Fn(usize) -> (String, Option<usize>),
    ) {
        let Place { stage, check, cut } = place;
        self.tallies.entry((stage, check)).or_default().compared += base.len() as u64;
        if base.len() != other.len() {
            let seen = format!("{} values and {}", base.len(), other.len());
            let (what, bar) = name(0);
            self.found(Leak { stage, check, what, bar, cut: Some(cut), seen });
        }
        for (i, (a, b)) in base.iter().zip(other).enumerate() {
            if a.bits() != b.bits() {
                let (what, bar) = name(i);
                let seen = format!("{} and {}", a.told(), b.told());
                self.found(Leak { stage, check, what, bar, cut: Some(cut), seen });
            }
        }
    }

    /// Counts what was looked at by other means than a comparison of series.
    pub(super) fn looked(&mut self, stage: Stage, check: Check, compared: u64) {
        self.tallies.entry((stage, check)).or_default().compared += compared;
    }

    pub(super) fn found(&mut self, leak: Leak) {
        let key = (leak.stage, leak.check);
        let tally = self.tallies.entry(key).or_default();
        tally.leaks += 1;
        if tally.leaks <= TOLD_LEAKS as u64 {
            self.leaks.push(leak);
        }
    }

    /// The checks that found something.
    pub(super) fn checks(&self) -> Vec<Check> {
        let found = |check: &Check| self.leaks.iter().any(|leak| leak.check == *check);
        Check::ALL.into_iter().filter(found).collect()
    }
}
