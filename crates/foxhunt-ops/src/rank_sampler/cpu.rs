//! The CPU twin of the rank sampler: it sorts anew when the contract says so.

use foxhunt_core::Philox;

use super::{rank_mass, slot_at, sort_key};
use crate::error::{OpError, check_len, try_zeroed};
use crate::priority_tree::{PriorityTree, SumTree, draw_targets, write_weights};
use crate::ring::check_capacity;

/// Draws rows by the rank of their priority. See [`crate::rank_sampler`] for every formula.
#[derive(Debug)]
pub struct RankSampler {
    /// Mass of rank r + 1 at index r.
    masses: SumTree,
    resort_every: u64,
    state: RankSamplerState,
    keys: Vec<u64>,
    targets: Vec<u64>,
    drawn: Vec<u64>,
}

/// What a [`RankSampler`] is rebuilt from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSamplerState {
    /// u32 `[rows at the last sort]`: slots by rank; empty before the first sort.
    pub order: Vec<u32>,
    /// Updates since the last sort.
    pub updates_since_sort: u64,
    /// Sorts since the start.
    pub sorts: u64,
}

impl RankSampler {
    /// A sampler for up to `capacity` rows.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] for a capacity outside 1..=2^31, alpha outside [0, 1] or `resort_every` 0,
    /// [`OpError::HostMemory`].
    pub fn new(capacity: usize, alpha: f32, resort_every: u64) -> Result<Self, OpError> {
        check_capacity(capacity)?;
        if !(0.0..=1.0).contains(&alpha) {
            return Err(OpError::InvalidArgument {
                what: "alpha",
                value: alpha.to_string(),
                rule: "in [0, 1]",
            });
        }
        if resort_every == 0 {
            let value = "0".into();
            return Err(OpError::InvalidArgument { what: "resort_every", value, rule: "at least 1" });
        }
        let mut masses = SumTree::new(capacity)?;
        masses.set_range(0, (0..capacity).map(|r| rank_mass(r as u64 + 1, f64::from(alpha), capacity)));
        let mut order: Vec<u32> = try_zeroed(capacity, "rank order")?;
        order.clear();
        let mut keys: Vec<u64> = try_zeroed(capacity, "rank keys")?;
        keys.clear();
        let state = RankSamplerState { order, ..RankSamplerState::default() };
        Ok(Self { masses, resort_every, state, keys, targets: Vec::new(), drawn: Vec::new() })
    }

    /// Order and counters as they stand.
    #[must_use]
    pub fn state(&self) -> &RankSamplerState {
        &self.state
    }

    /// Takes note of one update of at least one entry.
    pub fn note_update(&mut self) {
        self.state.updates_since_sort = self.state.updates_since_sort.saturating_add(1);
    }

    /// Draws `slots.len()` rows with sample number `step` and writes their slots and importance weights; sorts
    /// first when it is due. An empty batch is fine, draws nothing and sorts nothing.
    ///
    /// # Errors
    /// [`OpError::NotEnoughRows`] when nothing is stored.
    pub fn sample(
        &mut self,
        priorities: &PriorityTree,
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
        let len = priorities.len();
        if len == 0 {
            return Err(OpError::NotEnoughRows { have: 0, need: 1 });
        }
        if self.state.order.is_empty() || self.state.updates_since_sort >= self.resort_every {
            self.sort(priorities);
        }
        let total = self.masses.prefix(len);
        draw_targets(philox, step, total, slots.len(), &mut self.targets);
        self.drawn.resize(slots.len(), 0);
        self.masses.locate(&mut self.targets, slots, &mut self.drawn);
        for slot in slots.iter_mut() {
            *slot = slot_at(&self.state.order, *slot, len);
        }
        write_weights(&self.drawn, beta, weights);
        Ok(())
    }

    /// Whether `state` can belong to a memory of `len` rows.
    ///
    /// # Errors
    /// [`OpError::InvalidArgument`] when the order is no permutation of its first slots or is longer than `len`.
    pub fn check(state: &RankSamplerState, len: usize) -> Result<(), OpError> {
        let mut seen = vec![false; state.order.len()];
        let distinct = state
            .order
            .iter()
            .all(|&slot| seen.get_mut(slot as usize).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !distinct || state.order.len() > len {
            let value = format!("{} slots", state.order.len());
            let rule = "a permutation of slots that hold rows";
            return Err(OpError::InvalidArgument { what: "rank order", value, rule });
        }
        Ok(())
    }

    /// Takes up a saved state. On an error nothing changes.
    ///
    /// # Errors
    /// As [`RankSampler::check`].
    pub fn restore(&mut self, state: &RankSamplerState, len: usize) -> Result<(), OpError> {
        Self::check(state, len)?;
        self.state.order.clear();
        self.state.order.extend_from_slice(&state.order);
        self.state.updates_since_sort = state.updates_since_sort;
        self.state.sorts = state.sorts;
        Ok(())
    }

    fn sort(&mut self, priorities: &PriorityTree) {
        self.keys.clear();
        self.keys.extend((0..priorities.len() as u32).map(|s| sort_key(priorities.priority(s as usize), s)));
        // Keys differ in their slots, so an unstable sort has one result.
        self.keys.sort_unstable();
        self.state.order.clear();
        self.state.order.extend(self.keys.iter().map(|&key| key as u32));
        self.state.updates_since_sort = 0;
        self.state.sorts += 1;
    }
}
