//! Rows on their way into a replay memory.

use super::Rows;
use crate::n_step::Row;

/// Rows of one vector step, fields apart; keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    states: Vec<f32>,
    next_states: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
    steps: Vec<u32>,
}

impl RowBuffer {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.states.clear();
        self.next_states.clear();
        self.actions.clear();
        self.rewards.clear();
        self.terminated.clear();
        self.discounts.clear();
        self.steps.clear();
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// u32 `[n]`: the length of each row's window.
    #[must_use]
    pub fn steps(&self) -> &[u32] {
        &self.steps
    }

    /// Adds a row behind the others.
    pub fn push(&mut self, row: &Row<'_>) {
        self.states.extend_from_slice(row.state);
        self.next_states.extend_from_slice(row.next_state);
        self.actions.push(row.action);
        self.rewards.push(row.reward);
        self.terminated.push(f32::from(u8::from(row.terminated)));
        self.discounts.push(row.discount);
        self.steps.push(row.steps);
    }

    /// The rows, to be inserted.
    #[must_use]
    pub fn as_rows(&self) -> Rows<'_> {
        Rows {
            states: &self.states,
            next_states: &self.next_states,
            actions: &self.actions,
            rewards: &self.rewards,
            terminated: &self.terminated,
            discounts: &self.discounts,
        }
    }
}
