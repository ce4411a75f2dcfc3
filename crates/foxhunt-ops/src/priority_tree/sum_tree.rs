//! Exact sums over integer masses, and the search for the slot that holds a target.
//!
//! It knows nothing of priorities; the rank sampler keeps its static masses in one too.

use super::{FAN_OUT, MAX_TOP};
use crate::error::OpError;
use crate::pages::Pages;

/// Masses with their sums by 64, 64 * 64, ... up to the first level of at most 256 nodes.
#[derive(Debug, PartialEq)]
pub struct SumTree {
    /// u64; level 0 holds the masses, each level above the sums of 64 neighbours. Padded with zeros to whole nodes.
    levels: Vec<Pages<u64>>,
    len: usize,
}

impl SumTree {
    /// A tree of `len` zero masses, `len` at least 1.
    ///
    /// # Errors
    /// [`OpError::HostMemory`].
    pub fn new(len: usize) -> Result<Self, OpError> {
        let mut levels = Vec::new();
        let mut nodes = len;
        loop {
            levels.push(Pages::zeroed(nodes.next_multiple_of(FAN_OUT), "priority sums")?);
            if nodes <= MAX_TOP {
                return Ok(Self { levels, len });
            }
            nodes = nodes.div_ceil(FAN_OUT);
        }
    }

    /// Bytes of a tree of `len` masses.
    #[must_use]
    pub fn bytes(len: usize) -> u64 {
        let (mut bytes, mut nodes) = (0_u64, len);
        loop {
            let padded = (nodes as u64).checked_next_multiple_of(FAN_OUT as u64).unwrap_or(u64::MAX);
            bytes = bytes.saturating_add(padded.saturating_mul(8));
            if nodes <= MAX_TOP {
                return bytes;
            }
            nodes = nodes.div_ceil(FAN_OUT);
        }
    }

    /// Number of masses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sum of all masses: the sum of the top level, never stored.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.top().iter().sum()
    }

    /// The masses in slot order.
    #[must_use]
    pub fn masses(&self) -> &[u64] {
        &self.levels[0][..self.len]
    }

    /// Sets one mass and corrects the sums above it, exactly.
    #[inline]
    pub fn set(&mut self, slot: usize, mass: u64) {
        let change = mass.wrapping_sub(self.levels[0][slot]);
        let mut node = slot;
        for level in &mut self.levels {
            level[node] = level[node].wrapping_add(change);
            node /= FAN_OUT;
        }
    }

    /// Sets the masses of distinct slots, given as (slot, mass), and corrects the sums above them; the masses are
    /// used up as scratch. It goes level by level, so that the cache misses of the batch overlap.
    pub fn set_many(&mut self, changes: &mut [(u32, u64)]) {
        let mut shift = 0;
        for level in &mut self.levels {
            let level = &mut **level;
            for (slot, change) in &mut *changes {
                let node = &mut level[*slot as usize >> shift];
                if shift == 0 {
                    (*node, *change) = (*change, change.wrapping_sub(*node));
                } else {
                    *node = node.wrapping_add(*change);
                }
            }
            shift += FAN_OUT.trailing_zeros();
        }
    }

    /// Sets the masses from `first` on and corrects the sums above them, each once.
    pub fn set_range(&mut self, first: usize, masses: impl ExactSizeIterator<Item = u64>) {
        let (mut from, mut to) = (first, first + masses.len());
        if from == to {
            return;
        }
        for (slot, mass) in self.levels[0][from..to].iter_mut().zip(masses) {
            *slot = mass;
        }
        for l in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(l);
            (from, to) = (from / FAN_OUT, (to - 1) / FAN_OUT + 1);
            for node in from..to {
                above[0][node] = below[l - 1][node * FAN_OUT..(node + 1) * FAN_OUT].iter().sum();
            }
        }
    }

    /// Sum of the masses below `slot`.
    #[must_use]
    pub fn prefix(&self, slot: usize) -> u64 {
        let (mut sum, mut node) = (0, slot);
        for level in &self.levels[..self.levels.len() - 1] {
            sum += level[node / FAN_OUT * FAN_OUT..node].iter().sum::<u64>();
            node /= FAN_OUT;
        }
        sum + self.top()[..node].iter().sum::<u64>()
    }

    /// Finds the slot of every target: `slots[b]` with `prefix(slots[b]) <= targets[b] < prefix(slots[b] + 1)`,
    /// and its mass. Targets must rise (equal neighbours allowed) and lie below the total; they are used up as
    /// scratch. The batch goes down level by level, so that the cache misses of its rows overlap.
    pub fn locate(&self, targets: &mut [u64], slots: &mut [u32], masses: &mut [u64]) {
        let top = self.top();
        let (mut node, mut before) = (0, 0);
        for ((rest, slot), mass) in targets.iter_mut().zip(slots.iter_mut()).zip(masses.iter_mut()) {
            while *rest - before >= top[node] {
                before += top[node];
                node += 1;
            }
            (*rest, *slot, *mass) = (*rest - before, node as u32, top[node]);
        }
        for level in self.levels.iter().rev().skip(1) {
            for ((rest, slot), mass) in targets.iter_mut().zip(slots.iter_mut()).zip(masses.iter_mut()) {
                let (children, _) =
                    level[*slot as usize * FAN_OUT..].split_first_chunk().expect("levels are padded");
                let (child, left) = find(children, *rest);
                (*rest, *slot, *mass) = (left, *slot * FAN_OUT as u32 + child as u32, children[child]);
            }
        }
    }

    fn top(&self) -> &[u64] {
        self.levels.last().expect("a tree has at least one level")
    }
}

/// The child whose interval holds `rest`, and how far into it. Eight sums of eight first, then the eight of one
/// of them; comparisons are counted, not branched on, because a draw is unpredictable by design.
#[inline]
fn find(children: &[u64; FAN_OUT], rest: u64) -> (usize, u64) {
    let (groups, _) = children.as_chunks::<8>();
    let mut sums = [0; 8];
    for (sum, group) in sums.iter_mut().zip(groups) {
        *sum = group.iter().sum();
    }
    let (group, rest) = find8(&sums, rest);
    let (child, rest) = find8(&groups[group], rest);
    (group * 8 + child, rest)
}

#[inline]
fn find8(parts: &[u64; 8], rest: u64) -> (usize, u64) {
    let (mut end, mut before, mut count) = (0, 0, 0);
    for part in &parts[..7] {
        end += part;
        let passed = end <= rest;
        count += usize::from(passed);
        before = if passed { end } else { before };
    }
    (count, rest - before)
}
