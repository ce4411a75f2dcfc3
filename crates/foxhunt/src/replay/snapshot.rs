//! Replay memory to named arrays and back, to the bit.
//!
//! Rows leave in slot order and without padding, so a snapshot does not depend on how an engine lays out its rows: fields
//! apart where they are stored whole, eight words a row where they are stored compact. A memory of either form goes on from
//! both. Sums are not saved: they are exact, so building them again gives the same ones.

use std::borrow::Cow;

use foxhunt_ops::OpError;
use foxhunt_ops::priority_tree::PriorityTreeState;
use foxhunt_ops::rank_sampler::{RankSampler, RankSamplerState};
use foxhunt_ops::ring::{
    BatchBuffers, COMPACT_WORDS, CompactRow, Rows, StateSource, Transition, check_compact,
};

use super::ReplayMemory;
use super::convert::{StoredRows, as_rows, to_compact, to_whole};
use crate::MLError;
use crate::engine::arrays::check_counts;
use crate::engine::{Array, ArrayData, Snapshot};

/// What a restore had to put up with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The snapshot had no count of samples, so random numbers and beta start again from 0 (case E02).
    pub missing_rng: bool,
}

/// Everything of a memory but its rows.
pub(super) struct Frame {
    /// Rows it can hold, values in a state.
    pub(super) shape: [u64; 2],
    pub(super) inserted: u64,
    /// Seed, samples taken.
    pub(super) rng: Option<[u64; 2]>,
    /// Refused rewards, refused states, refused TD errors, capped priorities, stale updates.
    pub(super) counters: [u64; 5],
    pub(super) priorities: Option<PriorityTreeState>,
    pub(super) order: Option<RankSamplerState>,
}

impl Frame {
    /// Adds its arrays.
    pub(super) fn save(self, snapshot: &mut Snapshot) {
        put(snapshot, "shape", vec![2], ArrayData::U64(self.shape.to_vec()));
        put(snapshot, "inserted", vec![1], ArrayData::U64(vec![self.inserted]));
        if let Some(rng) = self.rng {
            put(snapshot, "rng", vec![2], ArrayData::U64(rng.to_vec()));
        }
        put(snapshot, "counters", vec![5], ArrayData::U64(self.counters.to_vec()));
        if let Some(state) = self.priorities {
            put(snapshot, "priority", vec![state.priorities.len()], ArrayData::F32(state.priorities));
            put(snapshot, "max_priority", vec![1], ArrayData::F32(vec![state.max_priority]));
        }
        if let Some(state) = self.order {
            let counts = vec![state.updates_since_sort, state.sorts];
            put(snapshot, "rank_order", vec![state.order.len()], ArrayData::U32(state.order));
            put(snapshot, "rank_counts", vec![2], ArrayData::U64(counts));
        }
    }

    /// Reads and checks what a memory of `shape` needs: with priorities or without, with a rank order if it must have one.
    pub(super) fn load(
        snapshot: &Snapshot,
        shape: [u64; 2],
        prioritised: bool,
        ranked: bool,
    ) -> Result<(Self, StoredRows<'_>), MLError> {
        let get = Getter(snapshot);
        let theirs = get.u64s("shape", Some(2))?;
        if theirs != shape {
            let (rows, values, [capacity, dim]) = (theirs[0], theirs[1], shape);
            return Err(misfit(format!(
                "replay memory of {rows} rows and {values} state values, this one has {capacity} and {dim}"
            )));
        }
        let counters = get.counts("counters", Some(5))?;
        let counters = std::array::from_fn(|k| counters[k]);
        let inserted = get.counts("inserted", Some(1))?[0];
        let rows = get.rows()?;
        let n = rows.len();
        if !prioritised && get.has("priority") {
            return Err(misfit("it has priorities, this memory draws uniformly".into()));
        }
        let priorities = match prioritised {
            true => {
                let state = PriorityTreeState {
                    priorities: get.f32s("priority", Some(n))?.to_vec(),
                    max_priority: get.f32s("max_priority", Some(1))?[0],
                    refused: counters[2],
                    capped: counters[3],
                };
                state.check(usize::try_from(shape[0]).unwrap_or(usize::MAX)).map_err(refused)?;
                Some(state)
            }
            false => None,
        };
        let order = if ranked || (get.has("rank_order") && prioritised) {
            let counts = get.counts("rank_counts", Some(2))?;
            let order = get.u32s("rank_order")?.to_vec();
            let state = RankSamplerState { order, updates_since_sort: counts[0], sorts: counts[1] };
            RankSampler::check(&state, n).map_err(refused)?;
            Some(state)
        } else {
            None
        };
        let rng = if get.has("rng") { Some(get.u64s("rng", Some(2))?) } else { None };
        if rng.is_none() {
            tracing::warn!("the snapshot has no replay.rng: replay draws and beta start again from sample 0");
        }
        // The first is a seed, which can be any number.
        rng.map_or(Ok(()), |rng| check_counts("replay.rng", &rng[1..]))?;
        let rng = rng.map(|rng| [rng[0], rng[1]]);
        Ok((Self { shape, inserted, rng, counters, priorities, order }, rows))
    }

    /// Rows refused for their reward and for their states.
    pub(super) fn refused_rows(&self) -> [u64; 2] {
        [self.counters[0], self.counters[1]]
    }
}

/// Adds the arrays of whole rows.
pub(super) fn put_whole(snapshot: &mut Snapshot, dim: usize, rows: BatchBuffers) {
    let n = rows.actions.len();
    put(snapshot, "state", vec![n, dim], ArrayData::F32(rows.states));
    put(snapshot, "next_state", vec![n, dim], ArrayData::F32(rows.next_states));
    put(snapshot, "action", vec![n], ArrayData::U32(rows.actions));
    put(snapshot, "reward", vec![n], ArrayData::F32(rows.rewards));
    put(snapshot, "terminated", vec![n], ArrayData::F32(rows.terminated));
    put(snapshot, "discount", vec![n], ArrayData::F32(rows.discounts));
}

/// Adds the array of compact rows, u32 `[n * 8]`.
pub(super) fn put_compact(snapshot: &mut Snapshot, words: Vec<u32>) {
    put(snapshot, "compact", vec![words.len() / COMPACT_WORDS, COMPACT_WORDS], ArrayData::U32(words));
}

fn put(snapshot: &mut Snapshot, name: &str, shape: Vec<usize>, data: ArrayData) {
    snapshot.arrays.insert(format!("replay.{name}"), Array { shape, data });
}

/// `rows` as compact ones of `source`, checked.
pub(super) fn compact_of<'a>(
    rows: StoredRows<'a>,
    source: &StateSource,
    frame: &Frame,
) -> Result<Cow<'a, [CompactRow]>, MLError> {
    let rows: Cow<'a, [CompactRow]> = match rows {
        StoredRows::Compact(rows) => rows.into(),
        StoredRows::Whole(rows) => {
            rows.check(foxhunt_market::STATE_DIM).map_err(refused)?;
            let unplaced = |row| misfit(format!("replay row {row} shows no states of this market"));
            to_compact(&rows, source).map_err(unplaced)?.into()
        }
    };
    let capacity = usize::try_from(frame.shape[0]).unwrap_or(usize::MAX);
    check_compact(&rows, source, capacity, frame.inserted).map_err(refused)?;
    Ok(rows)
}

/// `rows` as whole ones; what they are when they are whole already. Compact ones are checked, whole ones are not.
pub(super) fn whole_of<'a>(
    rows: StoredRows<'a>,
    source: Option<&StateSource>,
    frame: &Frame,
) -> Result<Whole<'a>, MLError> {
    match (rows, source) {
        (StoredRows::Whole(rows), _) => Ok(Whole::Stored(rows)),
        (StoredRows::Compact(rows), Some(source)) => {
            let capacity = usize::try_from(frame.shape[0]).unwrap_or(usize::MAX);
            check_compact(rows, source, capacity, frame.inserted).map_err(refused)?;
            Ok(Whole::Made(Box::new(to_whole(rows, source))))
        }
        (StoredRows::Compact(_), None) => {
            Err(misfit("its rows are compact, and this memory knows no market to complete them from".into()))
        }
    }
}

/// Whole rows, borrowed from a snapshot or made.
pub(super) enum Whole<'a> {
    Stored(Rows<'a>),
    Made(Box<BatchBuffers>),
}

impl Whole<'_> {
    pub(super) fn rows(&self) -> Rows<'_> {
        match self {
            Self::Stored(rows) => *rows,
            Self::Made(rows) => as_rows(rows),
        }
    }
}

impl ReplayMemory {
    /// Everything it holds, as arrays named `replay.*`: `shape` u64 `[capacity, state_dim]`, `inserted` u64 `[1]`,
    /// `rng` u64 `[seed, samples taken]`, `counters` u64 [refused rewards, refused states, refused TD errors, capped
    /// priorities, stale updates], then in slot order, with n rows stored, `state` and `next_state` f32 [n,
    /// state_dim], `action` u32 `[n]`, `reward`, `terminated`, `discount` f32 `[n]`, or instead of these six `compact` u32
    /// `[n, 8]` ([`foxhunt_ops::ring::compact`]), and where there are priorities
    /// `priority` f32 `[n]` and `max_priority` f32 `[1]`, and where there is a rank order `rank_order` u32 [rows at the last
    /// sort] and `rank_counts` u64 `[updates since that sort, sorts]`.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let c = self.counters();
        let frame = Frame {
            shape: self.shape(),
            inserted: self.ring.inserted(),
            rng: Some([self.seed, self.samples_taken]),
            counters: [
                c.refused_rewards,
                c.refused_states,
                c.refused_td_errors,
                c.capped_priorities,
                c.stale_updates,
            ],
            priorities: self.tree.as_ref().map(|tree| tree.save()),
            order: self.rank.as_ref().map(|rank| rank.state().clone()),
        };
        frame.save(&mut snapshot);
        match self.ring.source() {
            Some(_) => put_compact(&mut snapshot, self.ring.save_compact().as_flattened().to_vec()),
            None => put_whole(&mut snapshot, self.state_dim(), self.ring.save()),
        }
        snapshot
    }

    /// Becomes the memory that was saved, seed and sample number included; other arrays of the snapshot are not
    /// looked at. A snapshot without `replay.rng` is taken with a warning, everything else must be there.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] naming the array that is missing or does not fit this memory, also when its rows are
    /// compact and this memory stores whole ones. Nothing changes then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<RestoreReport, MLError> {
        self.restore_with(snapshot, None)
    }

    /// As [`ReplayMemory::restore`], with what completes compact rows.
    ///
    /// # Errors
    /// As [`ReplayMemory::restore`], compact rows that fit excepted.
    pub fn restore_from(
        &mut self,
        snapshot: &Snapshot,
        source: &StateSource,
    ) -> Result<RestoreReport, MLError> {
        self.restore_with(snapshot, Some(source))
    }

    fn restore_with(
        &mut self,
        snapshot: &Snapshot,
        source: Option<&StateSource>,
    ) -> Result<RestoreReport, MLError> {
        // Everything is checked before anything changes.
        let (frame, rows) = Frame::load(snapshot, self.shape(), self.tree.is_some(), self.rank.is_some())?;
        let n = rows.len();
        let new_rank = match (&frame.order, &self.rank) {
            (Some(_), None) => Some(RankSampler::new(self.capacity(), self.alpha, self.resort_every)?),
            _ => None,
        };
        match self.ring.source().cloned() {
            Some(source) => {
                let rows = compact_of(rows, &source, &frame)?;
                self.ring.restore_compact(&rows, frame.inserted, frame.refused_rows())
            }
            None => {
                let whole = whole_of(rows, source, &frame)?;
                self.ring.restore(&whole.rows(), frame.inserted, frame.refused_rows())
            }
        }
        .map_err(refused)?;

        self.rank = new_rank.or(self.rank.take());
        if let (Some(tree), Some(state)) = (&mut self.tree, &frame.priorities) {
            tree.restore(state).map_err(refused)?;
        }
        if let (Some(rank), Some(state)) = (&mut self.rank, &frame.order) {
            rank.restore(state, n).map_err(refused)?;
        }
        self.stale_updates = frame.counters[4];
        match frame.rng {
            Some([seed, samples]) => (self.seed, self.samples_taken) = (seed, samples),
            None => self.samples_taken = 0,
        }
        Ok(RestoreReport { missing_rng: frame.rng.is_none() })
    }

    fn shape(&self) -> [u64; 2] {
        [self.capacity() as u64, self.state_dim() as u64]
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

/// Refuses stored rows with an action that a head of `n_actions` does not have: a memory of its own takes any.
///
/// # Errors
/// [`MLError::Checkpoint`] naming array and row.
pub(crate) fn check_actions(snapshot: &Snapshot, n_actions: usize) -> Result<(), MLError> {
    let foreign = |action: u32| action as usize >= n_actions;
    let (name, found) = match Getter(snapshot).rows()? {
        StoredRows::Whole(rows) => {
            let mut actions = rows.actions.iter().copied().enumerate();
            ("action", actions.find(|(_, action)| foreign(*action)))
        }
        StoredRows::Compact(rows) => {
            let mut actions = rows.iter().map(|row| Transition::unpack(row).action).enumerate();
            ("compact", actions.find(|(_, action)| foreign(*action)))
        }
    };
    match found {
        Some((row, action)) => {
            Err(misfit(format!("replay.{name}: action {action} in row {row} is not below {n_actions}")))
        }
        None => Ok(()),
    }
}

pub(super) fn refused(error: OpError) -> MLError {
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

    fn counts(&self, name: &str, len: Option<usize>) -> Result<&'a [u64], MLError> {
        let counts = self.u64s(name, len)?;
        check_counts(&format!("replay.{name}"), counts)?;
        Ok(counts)
    }

    fn rows(&self) -> Result<StoredRows<'a>, MLError> {
        if self.has("compact") {
            let words = self.u32s("compact")?;
            let (rows, rest) = words.as_chunks::<COMPACT_WORDS>();
            return match rest {
                [] => Ok(StoredRows::Compact(rows)),
                _ => {
                    Err(misfit(format!("replay.compact has {} values, which are no rows of 8", words.len())))
                }
            };
        }
        Ok(StoredRows::Whole(Rows {
            states: self.f32s("state", None)?,
            next_states: self.f32s("next_state", None)?,
            actions: self.u32s("action")?,
            rewards: self.f32s("reward", None)?,
            terminated: self.f32s("terminated", None)?,
            discounts: self.f32s("discount", None)?,
        }))
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
