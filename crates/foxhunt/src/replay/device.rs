//! Between a replay memory here and one on a device: the same rows, priorities and counts.

use foxhunt_core::settings::{ReplayKind, ReplaySettings};
use foxhunt_ops::gpu_replay::{GpuReplayState, ReplayCounters};
use foxhunt_ops::priority_tree::PriorityTreeState;
use foxhunt_ops::ring::{BatchBuffers, RowLayout, Rows};

use super::{ReplayMemory, beta_schedule};
use crate::MLError;

impl ReplayMemory {
    /// The memory that `state` was read from, made with the same settings.
    pub(crate) fn from_device(
        settings: &ReplaySettings,
        state_dim: usize,
        seed: u64,
        state: &GpuReplayState,
    ) -> Result<Self, MLError> {
        let mut memory = Self::new(settings, state_dim, seed)?;
        let counters = &state.counters;
        let rows = unpack(memory.ring.layout(), &state.words);
        let refused = [counters.refused_rewards, counters.refused_states];
        memory.ring.restore(&as_rows(&rows), counters.inserted, refused)?;
        if let Some(tree) = &mut memory.tree {
            tree.restore(&PriorityTreeState {
                priorities: state.priorities.clone(),
                max_priority: counters.max_priority,
                refused: counters.refused,
                capped: counters.capped,
            })?;
        }
        if let (Some(rank), Some(order)) = (&mut memory.rank, &state.order) {
            rank.restore(order, counters.len)?;
        }
        memory.samples_taken = counters.samples;
        memory.stale_updates = counters.stale;
        Ok(memory)
    }

    /// What a memory on a device, made with `settings`, becomes this one from.
    pub(crate) fn to_device(&self, settings: &ReplaySettings) -> GpuReplayState {
        let counters = self.counters();
        let tree = self.tree.as_ref().map(|tree| tree.save());
        let (priorities, max_priority) = match tree {
            Some(tree) => (tree.priorities, tree.max_priority),
            // Rows drawn alike have no priorities; those of new rows do no harm.
            None => (vec![1.0; self.len()], 1.0),
        };
        let rows = self.ring.save();
        GpuReplayState {
            words: pack(self.ring.layout(), &rows),
            priorities,
            counters: ReplayCounters {
                len: self.len(),
                inserted: self.ring.inserted(),
                samples: self.samples_taken,
                beta: beta_schedule(settings).at(self.samples_taken) as f32,
                max_priority,
                refused: counters.refused_td_errors,
                capped: counters.capped_priorities,
                stale: counters.stale_updates,
                refused_rewards: counters.refused_rewards,
                refused_states: counters.refused_states,
                ..ReplayCounters::default()
            },
            order: match settings.kind {
                ReplayKind::RankBased => self.rank.as_ref().map(|rank| rank.state().clone()),
                ReplayKind::Uniform | ReplayKind::Proportional => None,
            },
        }
    }
}

fn as_rows(rows: &BatchBuffers) -> Rows<'_> {
    Rows {
        states: &rows.states,
        next_states: &rows.next_states,
        actions: &rows.actions,
        rewards: &rows.rewards,
        terminated: &rows.terminated,
        discounts: &rows.discounts,
    }
}

/// Rows as words, u32 `[n, stride]`.
fn pack(layout: RowLayout, rows: &BatchBuffers) -> Vec<u32> {
    let (dim, stride) = (layout.state_dim, layout.stride());
    let mut words = vec![0; rows.len() * stride];
    for (i, row) in words.chunks_exact_mut(stride).enumerate() {
        let states = rows.states[i * dim..(i + 1) * dim].iter();
        let next_states = rows.next_states[i * dim..(i + 1) * dim].iter();
        for (word, value) in row.iter_mut().zip(states.chain(next_states)) {
            *word = value.to_bits();
        }
        let rest = [rows.rewards[i], rows.terminated[i], rows.discounts[i]].map(f32::to_bits);
        row[layout.action()] = rows.actions[i];
        row[layout.action() + 1..layout.used()].copy_from_slice(&rest);
    }
    words
}

/// What [`pack`] packed.
fn unpack(layout: RowLayout, words: &[u32]) -> BatchBuffers {
    let (dim, stride) = (layout.state_dim, layout.stride());
    let mut rows = BatchBuffers::new(words.len() / stride, dim);
    for (i, row) in words.chunks_exact(stride).enumerate() {
        for k in 0..dim {
            rows.states[i * dim + k] = f32::from_bits(row[k]);
            rows.next_states[i * dim + k] = f32::from_bits(row[layout.next_state() + k]);
        }
        let rest = &row[layout.action()..layout.used()];
        rows.actions[i] = rest[0];
        rows.rewards[i] = f32::from_bits(rest[1]);
        rows.terminated[i] = f32::from_bits(rest[2]);
        rows.discounts[i] = f32::from_bits(rest[3]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Snapshot;

    /// A memory of each kind, past its first turn, with refusals and sorts: there and back it is the same, and draws
    /// the same next.
    #[test]
    fn there_and_back_is_the_same_memory() {
        for kind in [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased] {
            let settings = ReplaySettings { kind, capacity: 7, resort_every: 2, ..ReplaySettings::default() };
            let mut memory = ReplayMemory::new(&settings, 3, 5).unwrap();
            let mut batch = BatchBuffers::default();
            for turn in 0..6_u32 {
                let x = turn as f32;
                let states = [x, 0.5, -x, if turn == 4 { f32::NAN } else { 1.0 }, 2.0, 3.0];
                let rewards = [if turn == 2 { f32::INFINITY } else { x }, 0.25];
                let rows = Rows {
                    states: &states,
                    next_states: &states,
                    actions: &[turn, 44],
                    rewards: &rewards,
                    terminated: &[1.0, 0.0],
                    discounts: &[0.9, 0.81],
                };
                memory.insert(&rows).unwrap();
                memory.sample(4, &mut batch).unwrap();
                memory.update_priorities(&batch.indices, &[x, 0.1, f32::NAN, 1e9]).unwrap();
            }
            let there = memory.to_device(&settings);
            let mut back = ReplayMemory::from_device(&settings, 3, 5, &there).unwrap();
            let same: fn(&ReplayMemory) -> Snapshot = ReplayMemory::snapshot;
            assert_eq!(same(&back), same(&memory), "{kind:?}");
            assert_eq!(back.to_device(&settings), there);
            let mut other = BatchBuffers::default();
            memory.sample(5, &mut batch).unwrap();
            back.sample(5, &mut other).unwrap();
            assert_eq!(batch, other, "{kind:?}");
        }
    }

    #[test]
    fn words_that_do_not_fit_are_refused() {
        let settings = ReplaySettings { capacity: 4, ..ReplaySettings::default() };
        let mut memory = ReplayMemory::new(&settings, 2, 0).unwrap();
        memory
            .insert(&Rows {
                states: &[1.0, 2.0],
                next_states: &[3.0, 4.0],
                actions: &[1],
                rewards: &[1.0],
                terminated: &[0.0],
                discounts: &[0.5],
            })
            .unwrap();
        let mut state = memory.to_device(&settings);
        state.words[0] = f32::NAN.to_bits();
        assert!(ReplayMemory::from_device(&settings, 2, 0, &state).is_err());
        let mut state = memory.to_device(&settings);
        state.counters.inserted = 3;
        assert!(ReplayMemory::from_device(&settings, 2, 0, &state).is_err());
    }
}
