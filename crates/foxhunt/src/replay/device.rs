//! Between a replay memory on a device and a snapshot: the arrays of [`super::snapshot`], which the CPU engine's memory
//! makes too.
//!
//! Rows go from one to the other a block at a time, so that host memory holds them once.

use std::borrow::Cow;
use std::ops::Range;

use foxhunt_core::settings::{ReplayKind, ReplaySettings, ReplayStorage};
use foxhunt_cuda::Stream;
use foxhunt_market::STATE_DIM;
use foxhunt_ops::gpu_replay::{BLOCK_ROWS, GpuPrioritizedReplay, GpuReplayState, ReplayCounters};
use foxhunt_ops::priority_tree::PriorityTreeState;
use foxhunt_ops::ring::{BatchBuffers, CompactRow, RowLayout, StateSource, check_whole};

use super::beta_schedule;
use super::snapshot::{Frame, Whole, compact_of, put_compact, put_whole, refused, whole_of};
use crate::MLError;
use crate::engine::Snapshot;

/// How a whole row of an engine's memory is laid out.
const LAYOUT: RowLayout = RowLayout { state_dim: STATE_DIM };

/// Everything that `replay` holds. Waits.
pub(crate) fn save(
    replay: &GpuPrioritizedReplay,
    stream: &Stream,
    settings: &ReplaySettings,
    seed: u64,
) -> Result<Snapshot, MLError> {
    let settings = ReplaySettings { capacity: replay.capacity(), ..settings.clone() };
    let layout = RowLayout { state_dim: replay.config().state_dim };
    snapshot_of(&settings, layout, seed, replay.save(stream)?, &mut |rows| Ok(replay.rows(stream, rows)?))
}

/// Makes `replay` the memory that was saved, by this engine or another. On a wrong snapshot nothing changes.
pub(crate) fn restore(
    replay: &mut GpuPrioritizedReplay,
    stream: &Stream,
    settings: &ReplaySettings,
    snapshot: &Snapshot,
    source: &StateSource,
) -> Result<(), MLError> {
    let settings = ReplaySettings { capacity: replay.capacity(), ..settings.clone() };
    let (state, rows) = state_of(&settings, snapshot, source)?;
    Ok(replay.restore(stream, &state, &mut |range, words| rows.write(range, words))?)
}

/// The snapshot of a device's memory of which `read` reads rows.
fn snapshot_of(
    settings: &ReplaySettings,
    layout: RowLayout,
    seed: u64,
    state: GpuReplayState,
    read: &mut dyn FnMut(Range<usize>) -> Result<Vec<u32>, MLError>,
) -> Result<Snapshot, MLError> {
    let mut snapshot = Snapshot::default();
    let GpuReplayState { priorities, counters, order } = state;
    match settings.storage {
        ReplayStorage::Compact => put_compact(&mut snapshot, read(0..counters.len)?),
        ReplayStorage::Rows => {
            let n = counters.len;
            let mut rows = BatchBuffers {
                states: vec![0.0; n * layout.state_dim],
                next_states: vec![0.0; n * layout.state_dim],
                actions: vec![0; n],
                rewards: vec![0.0; n],
                terminated: vec![0.0; n],
                discounts: vec![0.0; n],
                ..BatchBuffers::default()
            };
            for first in (0..n).step_by(BLOCK_ROWS) {
                let words = read(first..n.min(first + BLOCK_ROWS))?;
                for (i, row) in (first..).zip(words.chunks_exact(layout.stride())) {
                    layout.unpack(row, i, &mut rows);
                }
            }
            put_whole(&mut snapshot, layout.state_dim, rows);
        }
    }
    Frame {
        shape: [settings.capacity as u64, layout.state_dim as u64],
        inserted: counters.inserted,
        rng: Some([seed, counters.samples]),
        counters: [
            counters.refused_rewards,
            counters.refused_states,
            counters.refused,
            counters.capped,
            counters.stale,
        ],
        priorities: (settings.kind != ReplayKind::Uniform).then_some(PriorityTreeState {
            priorities,
            max_priority: counters.max_priority,
            refused: counters.refused,
            capped: counters.capped,
        }),
        order: order.filter(|_| settings.kind == ReplayKind::RankBased),
    }
    .save(&mut snapshot);
    Ok(snapshot)
}

/// Rows on their way to a device.
enum Rows<'a> {
    Whole(Whole<'a>),
    Compact(Cow<'a, [CompactRow]>),
}

impl Rows<'_> {
    /// Writes the words of the rows `range`, u32 `[range, stride]`.
    fn write(&self, range: Range<usize>, words: &mut [u32]) {
        match self {
            Self::Compact(rows) => words.copy_from_slice(rows[range].as_flattened()),
            Self::Whole(whole) => {
                let rows = whole.rows();
                for (i, row) in range.zip(words.chunks_exact_mut(LAYOUT.stride())) {
                    LAYOUT.pack(&rows, i, row);
                }
            }
        }
    }
}

/// What a device's memory is restored from.
fn state_of<'a>(
    settings: &ReplaySettings,
    snapshot: &'a Snapshot,
    source: &StateSource,
) -> Result<(GpuReplayState, Rows<'a>), MLError> {
    let ranked = settings.kind == ReplayKind::RankBased;
    let shape = [settings.capacity as u64, STATE_DIM as u64];
    let (frame, rows) = Frame::load(snapshot, shape, settings.kind != ReplayKind::Uniform, ranked)?;
    let len = rows.len();
    let rows = match settings.storage {
        ReplayStorage::Compact => Rows::Compact(compact_of(rows, source, &frame)?),
        ReplayStorage::Rows => {
            let whole = whole_of(rows, Some(source), &frame)?;
            check_whole(&whole.rows(), STATE_DIM, settings.capacity, frame.inserted).map_err(refused)?;
            Rows::Whole(whole)
        }
    };
    let samples = frame.rng.map_or(0, |[_, samples]| samples);
    // Rows drawn alike have no priorities; those of new rows do no harm.
    let (priorities, max_priority) =
        frame.priorities.map_or_else(|| (vec![1.0; len], 1.0), |tree| (tree.priorities, tree.max_priority));
    let [refused_rewards, refused_states, refused, capped, stale] = frame.counters;
    let state = GpuReplayState {
        priorities,
        counters: ReplayCounters {
            len,
            inserted: frame.inserted,
            samples,
            beta: beta_schedule(settings).at(samples) as f32,
            max_priority,
            refused,
            capped,
            stale,
            refused_rewards,
            refused_states,
            ..ReplayCounters::default()
        },
        order: frame.order.filter(|_| ranked),
    };
    Ok((state, rows))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use foxhunt_core::Settings;
    use foxhunt_market::synthetic::RandomWalk;
    use foxhunt_market::{Market, Normalise, features::first_bar};
    use foxhunt_ops::ring::Transition;

    use super::*;
    use crate::replay::ReplayMemory;
    use crate::replay::convert::{as_rows, to_whole};

    const KINDS: [ReplayKind; 3] = [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased];

    fn source() -> StateSource {
        let walk = RandomWalk { n_bars: 600, seed: 3, volatility: 0.02, start_price: 30.0 };
        let execution = Settings::default().execution;
        let fit = Normalise::FitOn(first_bar(&execution)..600);
        let market = Market::prepare(walk.bars().unwrap(), &execution, fit).unwrap();
        StateSource::new(Arc::new(market), 0.9)
    }

    fn settings(kind: ReplayKind, storage: ReplayStorage) -> ReplaySettings {
        ReplaySettings { kind, storage, capacity: 7, resort_every: 2, ..ReplaySettings::default() }
    }

    /// A memory past its first turn, with refusals and sorts.
    fn lived(settings: &ReplaySettings, source: &StateSource) -> ReplayMemory {
        let mut memory = ReplayMemory::of_market(settings, source, 5).unwrap();
        let mut batch = BatchBuffers::default();
        for turn in 0..6_u32 {
            let x = turn as f32;
            let row = |action, reward, exposure| Transition {
                bar: 500 + turn,
                steps: turn + 1,
                action,
                terminated: turn % 2 == 1,
                inputs: [exposure, -x, 0.0],
                next_inputs: [x, 0.5, 0.5],
                reward,
            };
            let reward = if turn == 2 { f32::INFINITY } else { x };
            let exposure = if turn == 4 { f32::NAN } else { 1.0 };
            let rows = [row(turn, reward, 0.25), row(44, 0.25, exposure)].map(|row| row.pack().unwrap());
            match settings.storage {
                ReplayStorage::Compact => memory.insert_compact(&rows).unwrap(),
                ReplayStorage::Rows => memory.insert(&as_rows(&to_whole(&rows, source))).unwrap(),
            };
            memory.sample(4, &mut batch).unwrap();
            memory.update_priorities(&batch.indices, &[x, 0.1, f32::NAN, 1e9]).unwrap();
        }
        memory
    }

    /// Through what a device holds and back it is the same snapshot, whichever form the device and the snapshot have.
    #[test]
    fn there_and_back_is_the_same_memory() {
        let source = source();
        for kind in KINDS {
            for from in [ReplayStorage::Rows, ReplayStorage::Compact] {
                let memory = lived(&settings(kind, from), &source);
                let saved = memory.snapshot();
                for to in [ReplayStorage::Rows, ReplayStorage::Compact] {
                    let on_device = settings(kind, to);
                    let (state, rows) = state_of(&on_device, &saved, &source).unwrap();
                    let stride = if to == ReplayStorage::Compact { 8 } else { LAYOUT.stride() };
                    let back = snapshot_of(&on_device, LAYOUT, 5, state, &mut |range| {
                        let mut words = vec![0; range.len() * stride];
                        rows.write(range, &mut words);
                        Ok(words)
                    })
                    .unwrap();
                    if from == to {
                        assert_eq!(back, saved, "{kind:?} {from:?}");
                    }
                    let mut restored = ReplayMemory::of_market(&settings(kind, from), &source, 1).unwrap();
                    restored.restore_from(&back, &source).unwrap();
                    assert_eq!(restored.snapshot(), saved, "{kind:?} {from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn snapshots_that_do_not_fit_are_refused() {
        let source = source();
        for storage in [ReplayStorage::Rows, ReplayStorage::Compact] {
            let settings = settings(ReplayKind::Proportional, storage);
            let saved = lived(&settings, &source).snapshot();
            assert!(state_of(&settings, &saved, &source).is_ok());
            let refused = |what: &str, change: &dyn Fn(&mut Snapshot)| {
                let mut snapshot = saved.clone();
                change(&mut snapshot);
                let error = state_of(&settings, &snapshot, &source).err();
                assert!(matches!(error, Some(MLError::Checkpoint { .. })), "{storage:?} without {what}");
            };
            for name in saved.arrays.keys().filter(|name| *name != "replay.rng") {
                refused(name, &|snapshot| drop(snapshot.arrays.remove(name)));
            }
            refused("its count", &|snapshot| {
                use crate::engine::ArrayData;
                snapshot.arrays.get_mut("replay.inserted").unwrap().data = ArrayData::U64(vec![3]);
            });
        }
    }

    /// A memory that knows no market takes no compact rows, and says why.
    #[test]
    fn a_memory_without_a_market_takes_no_compact_rows() {
        let source = source();
        let compact = settings(ReplayKind::Proportional, ReplayStorage::Compact);
        let saved = lived(&compact, &source).snapshot();
        let mut plain = ReplayMemory::new(&compact, STATE_DIM, 1).unwrap();
        let error = plain.restore(&saved).unwrap_err().to_string();
        assert!(error.contains("knows no market"), "{error}");
        assert!(plain.insert_compact(&[[0; 8]]).is_err());
        plain.restore_from(&saved, &source).unwrap();
        let mut other = ReplayMemory::of_market(&compact, &source, 1).unwrap();
        assert!(other.insert(&as_rows(&plain.rows())).is_err());
    }
}
