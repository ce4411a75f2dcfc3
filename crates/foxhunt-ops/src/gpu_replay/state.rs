//! Counters, and what a checkpoint needs: everything that decides future draws, read back and put back.

use std::ops::Range;

use foxhunt_cuda::Stream;

use super::{GpuPrioritizedReplay, GpuReplayError};
use crate::error::{OpError, check_len};
use crate::priority_tree::PRIORITY_CAP;
use crate::priority_tree::device::{Control, place};
use crate::rank_sampler::{RankSampler, RankSamplerState};

/// Rows and leaves that are read back or written at once, so that a checkpoint needs little beside what it saves: 15 MB of
/// whole rows. A multiple of the nodes that [`place`] permutes among themselves.
pub const BLOCK_ROWS: usize = 1 << 15;

/// Counts that the device keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplayCounters {
    /// Rows stored.
    pub len: usize,
    /// Rows ever accepted.
    pub inserted: u64,
    /// Samples that returned rows; the number of the next sample.
    pub samples: u64,
    /// Beta of the next sample.
    pub beta: f32,
    /// The running maximum priority.
    pub max_priority: f32,
    /// Update entries refused for a non-finite TD error.
    pub refused: u64,
    /// Priorities stored as the cap.
    pub capped: u64,
    /// Update entries whose slot was overwritten after it was drawn.
    pub stale: u64,
    /// Update entries with a slot outside the rows stored.
    pub out_of_range: u64,
    /// Rows refused for a non-finite reward, terminated flag or discount.
    pub refused_rewards: u64,
    /// Rows refused for a non-finite state or next state.
    pub refused_states: u64,
    /// Samples that found nothing to draw.
    pub empty_samples: u64,
    /// Captured repairs of a rank order that met more changes than [`super::Resort::Repair`] named.
    pub order_overflows: u64,
}

/// Everything a replay memory is rebuilt from, but its rows ([`GpuPrioritizedReplay::rows`]).
#[derive(Clone, Debug, PartialEq)]
pub struct GpuReplayState {
    /// f32 `[len]`, priorities in slot order.
    pub priorities: Vec<f32>,
    /// The counts.
    pub counters: ReplayCounters,
    /// For rank-based sampling.
    pub order: Option<RankSamplerState>,
}

impl GpuPrioritizedReplay {
    /// Reads the counters back: one copy, for epoch boundaries.
    ///
    /// # Errors
    /// Driver errors.
    pub fn counters(&self, stream: &Stream) -> Result<ReplayCounters, GpuReplayError> {
        let c = stream.download(&self.control)?[0];
        Ok(ReplayCounters {
            len: c.len as usize,
            inserted: c.inserted,
            samples: c.step,
            beta: c.beta,
            max_priority: f32::from_bits(c.max_priority),
            refused: c.refused,
            capped: c.capped,
            stale: c.stale,
            out_of_range: c.out_of_range,
            refused_rewards: c.refused_rewards,
            refused_states: c.refused_states,
            empty_samples: c.empty_samples,
            order_overflows: c.order_overflows,
        })
    }

    /// Reads the priorities of the first `len` slots back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn priorities(&self, stream: &Stream) -> Result<Vec<f32>, GpuReplayError> {
        let len = self.counters(stream)?.len;
        let leaves = &self.tree.levels()[0];
        let mut priorities = Vec::with_capacity(len);
        for first in (0..len).step_by(BLOCK_ROWS) {
            let block = stream.download_range(leaves, first, BLOCK_ROWS.min(leaves.len() - first))?;
            let slots = first..len.min(first + BLOCK_ROWS);
            priorities.extend(slots.map(|slot| f32::from_bits(block[place(slot) - first] as u32)));
        }
        Ok(priorities)
    }

    /// Reads stored rows back, u32 `[range, row_words]` in slot order, laid out as in [`crate::ring`].
    ///
    /// # Errors
    /// [`foxhunt_cuda::CudaError::Length`] for rows beyond the capacity, and driver errors.
    pub fn rows(&self, stream: &Stream, range: Range<usize>) -> Result<Vec<u32>, GpuReplayError> {
        let stride = self.ring.stride;
        Ok(stream.download_range(&self.ring.words, range.start * stride, range.len() * stride)?)
    }

    /// Reads everything but the rows back.
    ///
    /// # Errors
    /// Driver errors.
    pub fn save(&self, stream: &Stream) -> Result<GpuReplayState, GpuReplayError> {
        let counters = self.counters(stream)?;
        let order = match &self.ranks {
            Some(ranks) => Some(RankSamplerState {
                order: if ranks.updates_since.is_some() { self.rank_order(stream)? } else { Vec::new() },
                updates_since_sort: ranks.updates_since.unwrap_or(0),
                sorts: ranks.sorts,
            }),
            None => None,
        };
        Ok(GpuReplayState { priorities: self.priorities(stream)?, counters, order })
    }

    /// Becomes the memory that was saved, made from the same configuration. `fill` writes the words of the rows it is asked
    /// for, as [`GpuPrioritizedReplay::rows`] gave them; it is asked for each once, in order. On a wrong argument nothing
    /// changes.
    ///
    /// # Errors
    /// [`OpError::Length`], [`OpError::InvalidArgument`] for a priority or an order that is none, and driver errors.
    pub fn restore(
        &mut self,
        stream: &Stream,
        state: &GpuReplayState,
        fill: &mut dyn FnMut(Range<usize>, &mut [u32]),
    ) -> Result<(), GpuReplayError> {
        let (capacity, n) = (self.config.capacity, state.counters.len);
        check_len("priorities", state.priorities.len(), n)?;
        check_len("rows", n, state.counters.inserted.min(capacity as u64) as usize)?;
        let range = 0.0..=PRIORITY_CAP;
        if let Some(p) =
            state.priorities.iter().chain([&state.counters.max_priority]).find(|p| !range.contains(*p))
        {
            let rule = "in [0, 32767.998]";
            return Err(OpError::InvalidArgument { what: "priority", value: p.to_string(), rule }.into());
        }
        if let Some(order) = &state.order {
            RankSampler::check(order, n)?;
        }
        let stride = self.ring.stride;
        let leaves = self.tree.leaves_mut();
        stream.fill_zero(leaves)?;
        let (mut block, mut words) = (Vec::new(), Vec::new());
        for first in (0..n).step_by(BLOCK_ROWS) {
            let slots = first..n.min(first + BLOCK_ROWS);
            block.clear();
            block.resize(BLOCK_ROWS.min(leaves.len() - first), 0);
            words.clear();
            words.resize(slots.len() * stride, 0);
            for slot in slots.clone() {
                block[place(slot) - first] = u64::from((state.priorities[slot] + 0.0).to_bits());
            }
            fill(slots, &mut words);
            stream.upload_at(leaves, first, &block)?;
            stream.upload_at(&mut self.ring.words, first * stride, &words)?;
        }
        self.kernels.rebuild(stream, &self.tree, false)?;
        let c = &state.counters;
        let mut control = Control::empty(c.beta);
        control.max_priority = c.max_priority.to_bits();
        control.cursor = (c.inserted % capacity as u64) as u32;
        control.len = n as u32;
        control.inserted = c.inserted;
        control.turns = c.inserted / capacity as u64;
        control.step = c.samples;
        control.refused = c.refused;
        control.capped = c.capped;
        control.stale = c.stale;
        control.out_of_range = c.out_of_range;
        control.refused_rewards = c.refused_rewards;
        control.refused_states = c.refused_states;
        control.empty_samples = c.empty_samples;
        control.order_overflows = c.order_overflows;
        control.sorted_len = state.order.as_ref().map_or(0, |state| state.order.len() as u32);
        stream.upload(&mut self.control, &[control])?;
        self.offered = c.inserted;
        self.epochs = 0;
        if let Some(ranks) = &mut self.ranks {
            let order = state.order.as_ref().filter(|state| !state.order.is_empty());
            ranks.updates_since = order.map(|state| state.updates_since_sort);
            ranks.sorts = state.order.as_ref().map_or(0, |state| state.sorts);
            // Which leaves changed since that order is not known, so the next one is sorted anew.
            ranks.changes_bound = usize::MAX;
            if let Some(state) = order {
                ranks.device.set_order(stream, &state.order)?;
            }
        }
        Ok(())
    }
}
