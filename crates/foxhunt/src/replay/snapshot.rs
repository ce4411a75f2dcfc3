//! Replay memory to named arrays and back, to the bit.
//!
//! Rows leave in slot order, fields apart and without padding, so a snapshot does not depend on how an engine lays
//! out its rows. Sums are not saved: they are exact, so building them again gives the same ones.

use foxhunt_ops::OpError;
use foxhunt_ops::priority_tree::PriorityTreeState;
use foxhunt_ops::rank_sampler::{RankSampler, RankSamplerState};
use foxhunt_ops::ring::{BatchBuffers, Rows};

use super::ReplayMemory;
use crate::MLError;
use crate::engine::{Array, ArrayData, Snapshot};

/// What a restore had to put up with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The snapshot had no count of samples, so random numbers and beta start again from 0 (case E02).
    pub missing_rng: bool,
}

impl ReplayMemory {
    /// Everything it holds, as arrays named `replay.*`: `shape` u64 `[capacity, state_dim]`, `inserted` u64 `[1]`,
    /// `rng` u64 `[seed, samples taken]`, `counters` u64 [refused rewards, refused states, refused TD errors, capped
    /// priorities, stale updates], then in slot order, with n rows stored, `state` and `next_state` f32 [n,
    /// state_dim], `action` u32 `[n]`, `reward`, `terminated`, `discount` f32 `[n]`, and where there are priorities
    /// `priority` f32 `[n]` and `max_priority` f32 `[1]`, and where there is a rank order `rank_order` u32 [rows at the last
    /// sort] and `rank_counts` u64 `[updates since that sort, sorts]`.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut put = |name: &str, shape: Vec<usize>, data| {
            snapshot.arrays.insert(format!("replay.{name}"), Array { shape, data });
        };
        let (n, dim) = (self.len(), self.state_dim());
        let c = self.counters();
        let counters =
            [c.refused_rewards, c.refused_states, c.refused_td_errors, c.capped_priorities, c.stale_updates];
        put("shape", vec![2], ArrayData::U64(vec![self.capacity() as u64, dim as u64]));
        put("inserted", vec![1], ArrayData::U64(vec![self.ring.inserted()]));
        put("rng", vec![2], ArrayData::U64(vec![self.seed, self.samples_taken]));
        put("counters", vec![5], ArrayData::U64(counters.to_vec()));
        let rows = self.ring.save();
        put("state", vec![n, dim], ArrayData::F32(rows.states));
        put("next_state", vec![n, dim], ArrayData::F32(rows.next_states));
        put("action", vec![n], ArrayData::U32(rows.actions));
        put("reward", vec![n], ArrayData::F32(rows.rewards));
        put("terminated", vec![n], ArrayData::F32(rows.terminated));
        put("discount", vec![n], ArrayData::F32(rows.discounts));
        if let Some(tree) = &self.tree {
            let state = tree.save();
            put("priority", vec![n], ArrayData::F32(state.priorities));
            put("max_priority", vec![1], ArrayData::F32(vec![state.max_priority]));
        }
        if let Some(rank) = &self.rank {
            let state = rank.state();
            put("rank_order", vec![state.order.len()], ArrayData::U32(state.order.clone()));
            put("rank_counts", vec![2], ArrayData::U64(vec![state.updates_since_sort, state.sorts]));
        }
        snapshot
    }

    /// Becomes the memory that was saved, seed and sample number included; other arrays of the snapshot are not
    /// looked at. A snapshot without `replay.rng` is taken with a warning, everything else must be there.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] naming the array that is missing or does not fit this memory. Nothing changes then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<RestoreReport, MLError> {
        let get = Getter(snapshot);
        let shape = get.u64s("shape", Some(2))?;
        let ours = [self.capacity() as u64, self.state_dim() as u64];
        if shape != ours {
            let (rows, values, [capacity, dim]) = (shape[0], shape[1], ours);
            return Err(misfit(format!(
                "replay memory of {rows} rows and {values} state values, this one has {capacity} and {dim}"
            )));
        }
        let counters = get.u64s("counters", Some(5))?;
        let rows = Rows {
            states: get.f32s("state", None)?,
            next_states: get.f32s("next_state", None)?,
            actions: get.u32s("action")?,
            rewards: get.f32s("reward", None)?,
            terminated: get.f32s("terminated", None)?,
            discounts: get.f32s("discount", None)?,
        };
        let n = rows.len();

        // Everything is checked before anything changes.
        let inserted = get.u64s("inserted", Some(1))?[0];
        self.ring.check(&rows, inserted).map_err(refused)?;
        let tree_state = match &self.tree {
            Some(tree) => {
                let state = PriorityTreeState {
                    priorities: get.f32s("priority", Some(n))?.to_vec(),
                    max_priority: get.f32s("max_priority", Some(1))?[0],
                    refused: counters[2],
                    capped: counters[3],
                };
                tree.check(&state).map_err(refused)?;
                Some(state)
            }
            None if get.has("priority") => {
                return Err(misfit("it has priorities, this memory draws uniformly".into()));
            }
            None => None,
        };
        let rank_state = if self.rank.is_some() || (get.has("rank_order") && self.tree.is_some()) {
            let counts = get.u64s("rank_counts", Some(2))?;
            let order = get.u32s("rank_order")?.to_vec();
            let state = RankSamplerState { order, updates_since_sort: counts[0], sorts: counts[1] };
            RankSampler::check(&state, n).map_err(refused)?;
            Some(state)
        } else {
            None
        };
        let rng = if get.has("rng") { Some(get.u64s("rng", Some(2))?) } else { None };
        if rank_state.is_some() && self.rank.is_none() {
            self.rank = Some(RankSampler::new(self.capacity(), self.alpha, self.resort_every)?);
        }

        self.ring.restore(&rows, inserted, [counters[0], counters[1]]).map_err(refused)?;
        if let (Some(tree), Some(state)) = (&mut self.tree, &tree_state) {
            tree.restore(state).map_err(refused)?;
        }
        if let (Some(rank), Some(state)) = (&mut self.rank, &rank_state) {
            rank.restore(state, n).map_err(refused)?;
        }
        self.stale_updates = counters[4];
        match rng {
            Some(rng) => (self.seed, self.samples_taken) = (rng[0], rng[1]),
            None => {
                tracing::warn!(
                    "the snapshot has no replay.rng: replay draws and beta start again from sample 0"
                );
                self.samples_taken = 0;
            }
        }
        Ok(RestoreReport { missing_rng: rng.is_none() })
    }

    /// All stored rows in slot order, as a batch with weights 1.
    #[must_use]
    pub fn rows(&self) -> BatchBuffers {
        self.ring.save()
    }
}

/// The capacity of the memory that a snapshot was made from, if it tells one.
pub(crate) fn stored_capacity(snapshot: &Snapshot) -> Option<usize> {
    let shape = Getter(snapshot).u64s("shape", Some(2)).ok()?;
    usize::try_from(shape[0]).ok().filter(|&capacity| capacity > 0)
}

fn refused(error: OpError) -> MLError {
    misfit(error.to_string())
}

fn misfit(reason: String) -> MLError {
    MLError::Checkpoint { path: "replay".into(), reason }
}

/// Typed access to the arrays of a snapshot.
struct Getter<'a>(&'a Snapshot);

impl<'a> Getter<'a> {
    fn has(&self, name: &str) -> bool {
        self.0.arrays.contains_key(&format!("replay.{name}"))
    }

    fn data(&self, name: &str) -> Result<&'a ArrayData, MLError> {
        let array = self.0.arrays.get(&format!("replay.{name}"));
        array.map(|a| &a.data).ok_or_else(|| misfit(format!("replay.{name} is missing")))
    }

    fn f32s(&self, name: &str, len: Option<usize>) -> Result<&'a [f32], MLError> {
        match self.data(name)? {
            ArrayData::F32(values) => sized(name, values, len),
            _ => Err(misfit(format!("replay.{name} is not f32"))),
        }
    }

    fn u64s(&self, name: &str, len: Option<usize>) -> Result<&'a [u64], MLError> {
        match self.data(name)? {
            ArrayData::U64(values) => sized(name, values, len),
            _ => Err(misfit(format!("replay.{name} is not u64"))),
        }
    }

    fn u32s(&self, name: &str) -> Result<&'a [u32], MLError> {
        match self.data(name)? {
            ArrayData::U32(values) => Ok(values),
            _ => Err(misfit(format!("replay.{name} is not u32"))),
        }
    }
}

fn sized<'a, T>(name: &str, values: &'a [T], len: Option<usize>) -> Result<&'a [T], MLError> {
    match len {
        Some(len) if len != values.len() => {
            Err(misfit(format!("replay.{name} has {} values, expected {len}", values.len())))
        }
        _ => Ok(values),
    }
}
