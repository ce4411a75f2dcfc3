//! The CPU twin of the priority tree.

use foxhunt_core::Philox;

use super::{
    PRIORITY_CAP, PriorityParams, SumTree, UpdateReport, fraction, mass, mass_scale, priority, random_bits,
    stratum_width, target, weight,
};
use crate::error::{OpError, check_len};
use crate::pages::Pages;
use crate::ring::check_capacity;

/// Marks a slot that the running update has touched. Priorities are not negative, so the sign bit is free.
const TOUCHED: u32 = 1 << 31;

/// Priorities of the slots of a ring. See [`crate::priority_tree`] for every formula.
#[derive(Debug)]
pub struct PriorityTree {
    params: PriorityParams,
    scale: f32,
    /// u32 `[capacity]`, bits of the f32 priorities; 0 where no row was written.
    priorities: Pages<u32>,
    tree: SumTree,
    len: usize,
    max_priority: f32,
    refused: u64,
    capped: u64,
    /// Scratch: targets and masses of a sample, touched priority words and mass changes of an update.
    targets: Vec<u64>,
    masses: Vec<u64>,
    new_words: Vec<u32>,
    changes: Vec<(u32, u64)>,
}

/// What a [`PriorityTree`] is rebuilt from.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityTreeState {
    /// f32 `[rows stored]`, in slot order.
    pub priorities: Vec<f32>,
    /// The running maximum.
    pub max_priority: f32,
    /// TD errors ever refused.
    pub refused: u64,
    /// Priorities ever capped.
    pub capped: u64,
}

impl PriorityTreeState {
    /// Refuses a state that no tree over `capacity` slots can be in.
    ///
    /// # Errors
    /// [`OpError::Length`] for more rows than slots, [`OpError::InvalidArgument`] for a priority that is none.
    pub fn check(&self, capacity: usize) -> Result<(), OpError> {
        let n = self.priorities.len();
        if n > capacity {
            return Err(OpError::Length { what: "priorities", got: n, expected: capacity });
        }
        let range = 0.0..=PRIORITY_CAP;
        if let Some(p) = self.priorities.iter().chain([&self.max_priority]).find(|p| !range.contains(*p)) {
            let rule = "in [0, 32767.998]";
            return Err(OpError::InvalidArgument { what: "priority", value: p.to_string(), rule });
        }
        Ok(())
    }
}

impl PriorityTree {
    /// A tree over `capacity` unwritten slots.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a capacity outside 1..=2^31, alpha outside [0, 1] or a negative or
    /// non-finite epsilon, [`OpError::HostMemory`].
    pub fn new(capacity: usize, params: PriorityParams) -> Result<Self, OpError> {
        check_capacity(capacity)?;
        let refuse =
            |what, value: f32, rule| Err(OpError::InvalidArgument { what, value: value.to_string(), rule });
        if !(0.0..=1.0).contains(&params.alpha) {
            return refuse("alpha", params.alpha, "in [0, 1]");
        }
        if !(0.0..=PRIORITY_CAP).contains(&params.epsilon) {
            return refuse("epsilon", params.epsilon, "in [0, 32767.998]");
        }
        Ok(Self {
            params,
            scale: mass_scale(capacity),
            priorities: Pages::zeroed(capacity, "priorities")?,
            tree: SumTree::new(capacity)?,
            len: 0,
            max_priority: 1.0,
            refused: 0,
            capped: 0,
            targets: Vec::new(),
            masses: Vec::new(),
            new_words: Vec::new(),
            changes: Vec::new(),
        })
    }

    /// Slots it covers.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.priorities.len()
    }

    /// Slots written: the first `len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stored priority of a slot; 0 where none was written.
    #[must_use]
    pub fn priority(&self, slot: usize) -> f32 {
        f32::from_bits(self.priorities[slot])
    }

    /// The largest priority an update ever stored, at least 1: what new rows get.
    #[must_use]
    pub fn max_priority(&self) -> f32 {
        self.max_priority
    }

    /// TD errors refused since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Priorities capped since the start.
    #[must_use]
    pub fn capped(&self) -> u64 {
        self.capped
    }

    /// The masses and their sums.
    #[must_use]
    pub fn sums(&self) -> &SumTree {
        &self.tree
    }

    /// Gives `count` rows from `first_slot` on, wrapping, the running maximum. `count` is at most the capacity and
    /// slots below the ones given must have been written before, as a ring does.
    pub fn insert(&mut self, first_slot: usize, count: usize) {
        let capacity = self.capacity();
        let before_end = count.min(capacity - first_slot);
        let mass = mass(self.max_priority, self.scale);
        for (first, n) in [(first_slot, before_end), (0, count - before_end)] {
            self.priorities[first..first + n].fill(self.max_priority.to_bits());
            self.tree.set_range(first, std::iter::repeat_n(mass, n));
            self.len = self.len.max(first + n);
        }
    }

    /// Sets priorities from TD errors; entries with the same slot leave the largest.
    ///
    /// # Errors
    /// [`OpError::Length`] and [`OpError::RowOutOfRange`]; nothing changes then.
    pub fn update(&mut self, slots: &[u32], td_errors: &[f32]) -> Result<UpdateReport, OpError> {
        check_len("td_errors", td_errors.len(), slots.len())?;
        let largest = slots.iter().copied().max().unwrap_or(0) as usize;
        if !slots.is_empty() && largest >= self.len {
            return Err(OpError::RowOutOfRange { index: largest, len: self.len });
        }
        let mut report = UpdateReport::default();
        let mut max = self.max_priority;
        // Powers, priorities, sums: short passes, because each then keeps many cache misses in flight.
        self.new_words.clear();
        self.new_words.extend(td_errors.iter().map(|&td_error| match priority(td_error, &self.params) {
            Some((p, capped)) => {
                report.capped += usize::from(capped);
                max = max.max(p);
                p.to_bits() | TOUCHED
            }
            None => {
                report.refused += 1;
                0
            }
        }));
        let priorities = &mut *self.priorities;
        for (&slot, &new) in slots.iter().zip(&self.new_words) {
            let word = &mut priorities[slot as usize];
            // As integers, touched words rank above untouched ones and among themselves by priority.
            let best = (*word & touched_mask(*word)).max(new);
            *word = if new == 0 { *word } else { best };
        }
        self.changes.clear();
        for &slot in slots {
            let word = &mut priorities[slot as usize];
            if *word & TOUCHED != 0 {
                *word &= !TOUCHED;
                self.changes.push((slot, mass(f32::from_bits(*word), self.scale)));
            }
        }
        self.tree.set_many(&mut self.changes);
        report.applied = slots.len() - report.refused;
        self.max_priority = max;
        self.refused += report.refused as u64;
        self.capped += report.capped as u64;
        Ok(report)
    }

    /// Draws `slots.len()` rows with sample number `step` and writes their slots and importance weights.
    /// An empty batch is fine and draws nothing.
    ///
    /// # Errors
    /// [`OpError::NotEnoughRows`] when nothing is stored, [`OpError::NoMass`] when every priority is 0.
    pub fn sample(
        &mut self,
        philox: &Philox,
        step: u64,
        beta: f32,
        slots: &mut [u32],
        weights: &mut [f32],
    ) -> Result<(), OpError> {
        check_len("weights", weights.len(), slots.len())?;
        if slots.is_empty() {
            return Ok(());
        }
        if self.len == 0 {
            return Err(OpError::NotEnoughRows { have: 0, need: 1 });
        }
        let total = self.tree.total();
        if total == 0 {
            return Err(OpError::NoMass { rows: self.len });
        }
        draw_targets(philox, step, total, slots.len(), &mut self.targets);
        self.masses.resize(slots.len(), 0);
        self.tree.locate(&mut self.targets, slots, &mut self.masses);
        write_weights(&self.masses, beta, weights);
        Ok(())
    }

    /// What to save.
    #[must_use]
    pub fn save(&self) -> PriorityTreeState {
        PriorityTreeState {
            priorities: self.priorities[..self.len].iter().map(|&p| f32::from_bits(p)).collect(),
            max_priority: self.max_priority,
            refused: self.refused,
            capped: self.capped,
        }
    }

    /// Whether [`PriorityTree::restore`] would take `state`.
    ///
    /// # Errors
    /// As [`PriorityTreeState::check`].
    pub fn check(&self, state: &PriorityTreeState) -> Result<(), OpError> {
        state.check(self.capacity())
    }

    /// Becomes the tree that was saved. On an error nothing changes.
    ///
    /// # Errors
    /// As [`PriorityTree::check`].
    pub fn restore(&mut self, state: &PriorityTreeState) -> Result<(), OpError> {
        self.check(state)?;
        self.priorities.fill(0);
        for (word, p) in self.priorities.iter_mut().zip(&state.priorities) {
            // Adding zero turns -0 into 0 and leaves the rest.
            *word = (p + 0.0).to_bits();
        }
        let scale = self.scale;
        self.tree.set_range(0, self.priorities.iter().map(|&p| mass(f32::from_bits(p), scale)));
        self.len = state.priorities.len();
        self.max_priority = state.max_priority;
        self.refused = state.refused;
        self.capped = state.capped;
        Ok(())
    }
}

/// All ones for a touched word, else zero.
#[inline]
fn touched_mask(word: u32) -> u32 {
    (word >> 31).wrapping_neg()
}

/// The targets of a batch, rising.
pub(crate) fn draw_targets(philox: &Philox, step: u64, total: u64, batch: usize, targets: &mut Vec<u64>) {
    let inv = stratum_width(batch as u32);
    targets.clear();
    targets.extend((0..batch as u32).map(|b| target(fraction(b, random_bits(philox, step, b), inv), total)));
}

/// Importance weights over the batch maximum.
pub(crate) fn write_weights(masses: &[u64], beta: f32, weights: &mut [f32]) {
    let min = masses.iter().copied().min().unwrap_or(1);
    for (out, &mass) in weights.iter_mut().zip(masses) {
        *out = weight(min, mass, beta);
    }
}
