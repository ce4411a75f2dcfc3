//! Tests of the replay memory, its snapshot, and its tensor face.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use foxhunt_core::settings::{ReplayKind, ReplaySettings};
use parking_lot::Mutex;

use super::*;
use crate::MLError;
use crate::engine::{ArrayData, Snapshot};

const DIM: usize = 3;
const KINDS: [ReplayKind; 3] = [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased];

fn settings(kind: ReplayKind, capacity: usize) -> ReplaySettings {
    ReplaySettings {
        kind,
        capacity,
        alpha: 1.0,
        epsilon: 0.0,
        beta_annealing_steps: 100,
        resort_every: 3,
        ..ReplaySettings::default()
    }
}

fn memory(kind: ReplayKind, capacity: usize) -> ReplayMemory {
    ReplayMemory::new(&settings(kind, capacity), DIM, 7).unwrap()
}

/// Stores one row per id; state, next state and reward tell the id.
fn add(memory: &mut ReplayMemory, ids: std::ops::Range<u32>) -> InsertReport {
    let n = ids.len();
    let states: Vec<f32> = ids.clone().flat_map(|id| [id as f32; DIM]).collect();
    let next_states: Vec<f32> = states.iter().map(|s| s + 0.5).collect();
    let rewards: Vec<f32> = ids.clone().map(|id| id as f32).collect();
    let rows = Rows {
        states: &states,
        next_states: &next_states,
        actions: &ids.collect::<Vec<_>>(),
        rewards: &rewards,
        terminated: &vec![0.0; n],
        discounts: &vec![0.9; n],
    };
    memory.insert(&rows).unwrap()
}

fn sample(memory: &mut ReplayMemory, batch: usize) -> BatchBuffers {
    let mut out = BatchBuffers::default();
    memory.sample(batch, &mut out).unwrap();
    out
}

/// Draws, updates and inserts for a while; what was drawn, to compare runs by.
fn work(memory: &mut ReplayMemory, rounds: u32) -> Vec<BatchBuffers> {
    (0..rounds)
        .map(|round| {
            let batch = sample(memory, 33);
            let tds: Vec<f32> =
                batch.indices.iter().map(|&i| if i == 5 { f32::NAN } else { (i * 37 % 11) as f32 }).collect();
            memory.update_priorities(&batch.indices, &tds).unwrap();
            add(memory, 1000 * round..1000 * round + 7);
            batch
        })
        .collect()
}

/// Rows come back whole, with the indices they are stored under.
#[test]
fn a_batch_holds_the_rows_its_indices_name() {
    for kind in KINDS {
        let mut memory = memory(kind, 50);
        add(&mut memory, 0..80);
        for batch in [1, 31, 32, 33, 255, 256, 257] {
            let out = sample(&mut memory, batch);
            assert_eq!(out.len(), batch);
            let rows = memory.rows();
            for b in 0..batch {
                let slot = out.indices[b] as usize;
                assert_eq!(out.actions[b], rows.actions[slot]);
                assert_eq!(out.states[b * DIM..][..DIM], [out.actions[b] as f32; DIM]);
                assert_eq!(out.next_states[b * DIM..][..DIM], [out.actions[b] as f32 + 0.5; DIM]);
                assert_eq!((out.rewards[b], out.discounts[b]), (out.actions[b] as f32, 0.9));
                assert_eq!(out.generations[b], memory.ring().generation(slot));
            }
        }
        assert_eq!(memory.samples_taken(), 7);
    }
}

/// Case A11: nothing stored is an error at once, one row fills any batch.
#[test]
fn empty_and_single() {
    for kind in KINDS {
        let mut memory = memory(kind, 4);
        let refused = memory.sample(1, &mut BatchBuffers::default());
        assert!(matches!(refused, Err(MLError::NotEnoughData { have: 0, need: 1 })));
        assert_eq!(memory.samples_taken(), 0);
        add(&mut memory, 0..1);
        let out = sample(&mut memory, 4);
        assert_eq!((out.indices, out.weights), (vec![0; 4], vec![1.0; 4]));
    }
    let mut dead = memory(ReplayKind::Proportional, 4);
    add(&mut dead, 0..2);
    dead.update_priorities(&[0, 1], &[0.0, 0.0]).unwrap();
    assert!(matches!(dead.sample(1, &mut BatchBuffers::default()), Err(MLError::NoMass { rows: 2 })));
    assert_eq!(dead.samples_taken(), 0);
}

/// Case A26: a TD error for a row that was overwritten meanwhile is left out and counted.
#[test]
fn a_late_update_does_not_touch_the_new_row() {
    let mut memory = memory(ReplayKind::Proportional, 2);
    add(&mut memory, 0..2);
    assert_eq!(memory.ring().generation(0), 0);
    add(&mut memory, 2..4);
    assert_eq!(memory.ring().generation(0), 1);
    let report = memory.update_priorities_of(&[0], &[0], &[9.0]).unwrap();
    assert_eq!((report.applied, report.stale), (0, 1));
    assert_eq!(memory.priorities().unwrap().priority(0), 1.0);
    let report = memory.update_priorities_of(&[0, 1], &[1, 0], &[9.0, 8.0]).unwrap();
    assert_eq!((report.applied, report.stale), (1, 1));
    assert_eq!([0, 1].map(|s| memory.priorities().unwrap().priority(s)), [9.0, 1.0]);
    assert_eq!(memory.counters().stale_updates, 2);
    assert!(memory.update_priorities_of(&[0], &[], &[9.0]).is_err());
}

/// Case A29: beta moves with the samples taken, linearly, and stays at its end.
#[test]
fn beta_counts_samples_and_stays() {
    let mut memory = memory(ReplayKind::Proportional, 4);
    add(&mut memory, 0..4);
    let mut out = BatchBuffers::default();
    for (samples, want) in [(0, 0.4), (50, 0.7), (100, 1.0), (250, 1.0)] {
        while memory.samples_taken() < samples {
            memory.sample(2, &mut out).unwrap();
        }
        assert!((memory.beta() - want).abs() < 1e-12, "after {samples}: {}", memory.beta());
    }
}

/// Case A29: the weights use the beta of their sample: P(1)/P(0) = 3, so the weight of row 1 is 3^-beta.
#[test]
fn weights_follow_beta() {
    let mut memory = memory(ReplayKind::Proportional, 2);
    add(&mut memory, 0..2);
    memory.update_priorities(&[0, 1], &[1.0, 3.0]).unwrap();
    for _ in 0..130 {
        let beta = memory.beta();
        let out = sample(&mut memory, 4);
        let want = 3_f64.powf(-beta);
        assert_eq!(out.indices, [0, 1, 1, 1]);
        assert!((f64::from(out.weights[1]) - want).abs() < 1e-6);
    }
}

/// Case C11: the count of refused rows is there to read, and refused TD errors beside it.
#[test]
fn refusals_are_counted() {
    let mut memory = memory(ReplayKind::Proportional, 4);
    let one = |reward: f32| Rows {
        states: &[0.0; DIM],
        next_states: &[0.0; DIM],
        actions: &[1],
        rewards: if reward.is_nan() { &[f32::NAN] } else { &[1.0] },
        terminated: &[0.0],
        discounts: &[1.0],
    };
    memory.insert(&one(f32::NAN)).unwrap();
    assert_eq!((memory.len(), memory.counters().refused_rewards), (0, 1));
    memory.insert(&one(1.0)).unwrap();
    assert_eq!((memory.len(), memory.counters().refused_rewards), (1, 1));
    memory.update_priorities(&[0, 0], &[f32::NAN, 1e9]).unwrap();
    let counters = memory.counters();
    assert_eq!((counters.refused_td_errors, counters.capped_priorities), (1, 1));
}

/// Case D05: empty batches are fine, count for nothing, and the next real call works.
#[test]
fn empty_batches() {
    for kind in KINDS {
        let mut memory = memory(kind, 4);
        assert_eq!(add(&mut memory, 0..0), InsertReport::default());
        assert_eq!(memory.update_priorities(&[], &[]).unwrap(), UpdateReport::default());
        assert!(sample(&mut memory, 0).is_empty());
        add(&mut memory, 0..2);
        assert!(sample(&mut memory, 0).is_empty());
        assert_eq!(memory.samples_taken(), 0);
        assert_eq!(sample(&mut memory, 5).len(), 5);
    }
}

/// Same seed, same bits; another seed, other draws.
#[test]
fn runs_repeat_to_the_bit() {
    for kind in KINDS {
        let run = |seed| {
            let mut memory = ReplayMemory::new(&settings(kind, 64), DIM, seed).unwrap();
            add(&mut memory, 0..50);
            work(&mut memory, 12)
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}

/// Cases E02 and A35: what is saved and loaded goes on exactly as if it had never stopped; a fresh one does not.
#[test]
fn restored_memory_goes_on_the_same() {
    for kind in KINDS {
        for rows in [5, 63, 64, 200] {
            let mut memory = memory(kind, 64);
            add(&mut memory, 0..rows);
            work(&mut memory, 5);
            let snapshot = memory.snapshot();
            let went_on = work(&mut memory, 9);
            let mut loaded = ReplayMemory::new(&settings(kind, 64), DIM, 99).unwrap();
            assert_eq!(loaded.restore(&snapshot).unwrap(), RestoreReport { missing_rng: false });
            assert_eq!(loaded.snapshot(), snapshot);
            assert_eq!(work(&mut loaded, 9), went_on);
            assert_eq!(loaded.snapshot(), memory.snapshot());
            assert_eq!(loaded.counters(), memory.counters());

            let mut fresh = ReplayMemory::new(&settings(kind, 64), DIM, 7).unwrap();
            add(&mut fresh, 0..rows);
            assert_ne!(work(&mut fresh, 9), went_on);
        }
    }
}

/// Case E02: a snapshot without the count of samples is taken, and says so.
#[test]
fn a_missing_rng_entry_is_reported() {
    let mut memory = memory(ReplayKind::Proportional, 8);
    add(&mut memory, 0..8);
    sample(&mut memory, 4);
    let mut snapshot = memory.snapshot();
    snapshot.arrays.remove("replay.rng");
    assert_eq!(memory.restore(&snapshot).unwrap(), RestoreReport { missing_rng: true });
    assert_eq!(memory.samples_taken(), 0);
}

/// A snapshot that does not fit is refused by name, and nothing changes.
#[test]
fn a_misfit_snapshot_changes_nothing() {
    for kind in KINDS {
        let mut saved = memory(kind, 8);
        add(&mut saved, 0..11);
        work(&mut saved, 2);
        let good = saved.snapshot();
        let mut memory = memory(kind, 8);
        add(&mut memory, 0..3);
        let before = memory.snapshot();
        let mut refuse = |snapshot: &Snapshot, why: &str| {
            assert!(matches!(memory.restore(snapshot), Err(MLError::Checkpoint { .. })), "{kind:?}: {why}");
            assert_eq!(memory.snapshot(), before, "{kind:?}: {why}");
        };
        for name in good.arrays.keys().filter(|name| *name != "replay.rng") {
            let mut snapshot = good.clone();
            snapshot.arrays.remove(name);
            refuse(&snapshot, name);
            let mut snapshot = good.clone();
            snapshot.arrays.get_mut(name).unwrap().data = ArrayData::F64(vec![1.0]);
            refuse(&snapshot, name);
            let mut snapshot = good.clone();
            match &mut snapshot.arrays.get_mut(name).unwrap().data {
                ArrayData::F32(values) => drop(values.pop()),
                ArrayData::U32(values) => values.push(0),
                ArrayData::U64(values) => drop(values.pop()),
                ArrayData::F64(_) => {}
            }
            refuse(&snapshot, name);
        }
        let mut snapshot = good.clone();
        if let ArrayData::F32(values) = &mut snapshot.arrays.get_mut("replay.state").unwrap().data {
            values[4] = f32::NAN;
        }
        refuse(&snapshot, "a state that is not finite");
        let other = ReplayMemory::new(&settings(kind, 9), DIM, 7).unwrap().snapshot();
        refuse(&other, "another capacity");
        memory.restore(&good).unwrap();
    }
}

#[test]
fn settings_outside_their_range_are_refused() {
    let base = settings(ReplayKind::RankBased, 4);
    for bad in [
        ReplaySettings { capacity: 0, ..base.clone() },
        ReplaySettings { alpha: 1.5, ..base.clone() },
        ReplaySettings { epsilon: -1.0, ..base.clone() },
        ReplaySettings { beta_start: -0.1, ..base.clone() },
        ReplaySettings { beta_start: f64::NAN, ..base.clone() },
        ReplaySettings { beta_start: 0.5, beta_max: 0.4, ..base.clone() },
        ReplaySettings { resort_every: 0, ..base.clone() },
    ] {
        let refused = ReplayMemory::new(&bad, DIM, 1);
        assert!(matches!(refused, Err(MLError::InvalidArgument { .. })), "{bad:?}");
    }
    let huge = ReplaySettings { capacity: 1 << 31, ..base };
    assert!(ReplayMemory::bytes(&huge, 1 << 24) > 1 << 57);
    // Of every kind at once: the rows are asked for before the priorities, which alone would fill a large machine.
    for kind in [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased] {
        match ReplayMemory::new(&ReplaySettings { kind, ..huge.clone() }, 1 << 24, 1) {
            Err(MLError::HostMemory { bytes, .. }) => assert!(bytes > 1 << 57),
            other => panic!("{kind:?}: {:?}", other.map(|m| m.len())),
        }
    }
}

fn buffer(capacity: usize) -> GpuReplayBuffer {
    let config = GpuReplayBufferConfig {
        capacity,
        state_dim: DIM,
        alpha: 1.0,
        beta_start: 0.4,
        beta_max: 1.0,
        beta_annealing_steps: 100,
        epsilon: 0.0,
    };
    GpuReplayBuffer::new(config, &Device::Cpu).unwrap()
}

/// States, next states, actions, rewards, dones of rows `ids`.
fn tensors(ids: std::ops::Range<u32>) -> [Tensor; 5] {
    let n = ids.len();
    let states: Vec<f32> = ids.clone().flat_map(|id| [id as f32; DIM]).collect();
    let states = Tensor::from_vec(states, (n, DIM), &Device::Cpu).unwrap();
    let dones: Vec<f32> = ids.clone().map(|id| (id % 2) as f32).collect();
    let rewards: Vec<f32> = ids.clone().map(|id| id as f32 * 2.0).collect();
    [
        states.clone(),
        (&states + 0.5).unwrap(),
        Tensor::from_vec(ids.collect::<Vec<u32>>(), n, &Device::Cpu).unwrap(),
        Tensor::from_vec(rewards, n, &Device::Cpu).unwrap(),
        Tensor::from_vec(dones, n, &Device::Cpu).unwrap(),
    ]
}

fn insert(buffer: &mut GpuReplayBuffer, [s, n, a, r, d]: &[Tensor; 5]) -> Result<(), MLError> {
    buffer.insert_batch(s, n, a, r, d)
}

/// The tensors of a batch hold what was inserted, with shapes and dtypes as documented, drawn either way.
#[test]
fn tensors_come_back_as_they_went_in() {
    let mut buffer = buffer(10);
    assert!(buffer.is_empty() && !buffer.can_sample(1));
    insert(&mut buffer, &tensors(0..10)).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (10, 10));
    assert!(buffer.can_sample(10) && !buffer.can_sample(11));
    for rank_based in [false, true] {
        let batch =
            if rank_based { buffer.sample_rank_based(33) } else { buffer.sample_proportional(33) }.unwrap();
        assert_eq!(batch.states.dims(), [33, DIM]);
        for tensor in [&batch.actions, &batch.indices] {
            assert_eq!((tensor.dims(), tensor.dtype()), (&[33][..], DType::U32));
        }
        for tensor in [&batch.rewards, &batch.dones, &batch.weights] {
            assert_eq!((tensor.dims(), tensor.dtype()), (&[33][..], DType::F32));
        }
        let ids = batch.actions.to_vec1::<u32>().unwrap();
        assert_eq!(ids, batch.indices.to_vec1::<u32>().unwrap());
        let want = |f: &dyn Fn(u32) -> f32| ids.iter().map(|&id| f(id)).collect::<Vec<f32>>();
        assert_eq!(batch.rewards.to_vec1::<f32>().unwrap(), want(&|id| id as f32 * 2.0));
        assert_eq!(batch.dones.to_vec1::<f32>().unwrap(), want(&|id| (id % 2) as f32));
        for (b, row) in batch.next_states.to_vec2::<f32>().unwrap().iter().enumerate() {
            assert_eq!(row, &[ids[b] as f32 + 0.5; DIM]);
        }
        buffer.update_priorities_gpu(&batch.indices, &batch.rewards).unwrap();
    }
    let drawn = buffer.sample_proportional(1000).unwrap().indices.to_vec1::<u32>().unwrap();
    let nines = drawn.iter().filter(|&&i| i == 9).count();
    assert!((199..=201).contains(&nines), "9 of 45 parts of the mass, stratified: {nines}");
}

/// Views that are not contiguous, and flags as bytes, are read in their own order.
#[test]
fn strided_tensors_and_byte_flags() {
    let mut buffer = buffer(10);
    let [_, next_states, actions, rewards, dones] = tensors(0..4);
    let columns: Vec<f32> = (0..DIM).flat_map(|j| (0..4).map(move |id| (id * 10 + j) as f32)).collect();
    let states = Tensor::from_vec(columns, (DIM, 4), &Device::Cpu).unwrap().t().unwrap();
    assert!(!states.is_contiguous());
    let dones = dones.to_dtype(DType::U8).unwrap();
    buffer.insert_batch(&states, &next_states, &actions, &rewards, &dones).unwrap();
    let rows = buffer.memory().unwrap().rows();
    assert_eq!(rows.states[3..6], [10.0, 11.0, 12.0]);
    assert_eq!(rows.terminated, [0.0, 1.0, 0.0, 1.0]);
    // A window into a larger tensor.
    let wide = Tensor::arange(0_f32, 40.0, &Device::Cpu).unwrap().reshape((10, 4)).unwrap();
    let states = wide.narrow(1, 1, DIM).unwrap().narrow(0, 2, 4).unwrap();
    buffer.insert_batch(&states, &next_states, &actions, &rewards, &dones).unwrap();
    assert_eq!(buffer.memory().unwrap().rows().states[12..18], [9.0, 10.0, 11.0, 13.0, 14.0, 15.0]);
}

/// Case D08: another shape, dtype or device is a typed error at the first call, and nothing is stored.
#[test]
fn wrong_tensors_are_refused() {
    let mut buffer = buffer(10);
    let good = tensors(0..4);
    let names = ["states", "next_states", "actions", "rewards", "dones"];
    for i in 0..5 {
        let mut bad = good.clone();
        bad[i] = bad[i].to_dtype(DType::F64).unwrap();
        match insert(&mut buffer, &bad) {
            Err(MLError::DType { what, got, .. }) => assert_eq!((what, got.as_str()), (names[i], "f64")),
            other => panic!("{other:?}"),
        }
        for shape in [vec![2, 2], vec![3], vec![4, DIM + 1], vec![4, 1]] {
            bad[i] = Tensor::zeros(shape, good[i].dtype(), &Device::Cpu).unwrap();
            assert!(matches!(insert(&mut buffer, &bad), Err(MLError::Shape { .. })), "{}", names[i]);
        }
    }
    assert!(buffer.is_empty());
    insert(&mut buffer, &good).unwrap();
    let indices = Tensor::from_vec(vec![0_u32, 4], 2, &Device::Cpu).unwrap();
    let tds = Tensor::from_vec(vec![1.0_f32, 2.0], 2, &Device::Cpu).unwrap();
    let refused = buffer.update_priorities_gpu(&indices, &tds);
    assert!(matches!(refused, Err(MLError::RowOutOfRange { index: 4, len: 4 })));
    let refused = buffer.update_priorities_gpu(&tds, &tds);
    assert!(matches!(refused, Err(MLError::DType { what: "indices", .. })));
    let refused = buffer.update_priorities_gpu(&indices.narrow(0, 0, 1).unwrap(), &tds);
    assert!(matches!(refused, Err(MLError::Shape { what: "td_errors", .. })));
}

/// Case D05, on tensors.
#[test]
fn empty_tensors() {
    let mut buffer = buffer(10);
    let none = tensors(0..0);
    insert(&mut buffer, &none).unwrap();
    buffer.update_priorities_gpu(&none[2], &none[3]).unwrap();
    assert_eq!(buffer.sample_proportional(0).unwrap().states.dims(), [0, DIM]);
    assert_eq!(buffer.sample_rank_based(0).unwrap().indices.dims(), [0]);
    assert!(matches!(buffer.sample_proportional(1), Err(MLError::NotEnoughData { have: 0, need: 1 })));
    insert(&mut buffer, &tensors(0..2)).unwrap();
    assert_eq!(buffer.sample_rank_based(3).unwrap().states.dims(), [3, DIM]);
}

fn experience(id: u32) -> Experience {
    let state = vec![id as f32; DIM];
    Experience { next_state: state.clone(), state, action: id, reward: id as f32, done: id % 2 == 1 }
}

/// The three kinds behind one face, shared by clones.
#[test]
fn one_face_for_all_kinds() {
    let gpu = ReplayBufferType::GpuPrioritized(Arc::new(Mutex::new(buffer(8))));
    let on_slices = |kind| ReplayBufferType::new(&settings(kind, 8), DIM, 7).unwrap();
    let mut replays: Vec<ReplayBufferType> = KINDS.map(on_slices).into();
    assert!(matches!(replays[0], ReplayBufferType::Uniform(_)));
    assert!(matches!(replays[2], ReplayBufferType::Prioritized(_)));
    replays.push(gpu);
    for replay in replays {
        assert!(matches!(replay.sample(1), Err(MLError::NotEnoughData { have: 0, need: 1 })));
        assert_eq!(replay.sample(0).unwrap().indices.len(), 0);
        replay.add_batch(&[]).unwrap();
        replay.add(Experience { reward: f32::NAN, ..experience(1) }).unwrap();
        assert_eq!((replay.len(), replay.dropped().unwrap()), (0, 1));
        replay.add(experience(0)).unwrap();
        replay.clone().add_batch(&(1..20).map(experience).collect::<Vec<_>>()).unwrap();
        assert_eq!((replay.len(), replay.capacity(), replay.can_sample(8)), (8, 8, true));
        let wrong = Experience { state: vec![0.0; DIM + 1], ..experience(1) };
        assert!(matches!(replay.add(wrong), Err(MLError::Shape { what: "state", .. })));

        let sample = replay.sample(16).unwrap();
        assert_eq!((sample.indices.len(), sample.weights.len()), (16, 16));
        let actions: Vec<u32> = match &sample.gpu_batch {
            Some(batch) => {
                assert!(sample.experiences.is_empty());
                batch.actions.to_vec1().unwrap()
            }
            None => {
                assert!(sample.experiences.iter().all(|e| *e == experience(e.action)));
                sample.experiences.iter().map(|e| e.action).collect()
            }
        };
        for (action, index) in actions.iter().zip(&sample.indices) {
            assert_eq!(*action as usize % 8, *index);
        }
        replay.update_priorities(&sample.indices, &[1.0; 16]).unwrap();
        let indices = Tensor::from_vec(vec![3_u32], 1, &Device::Cpu).unwrap();
        let tds = Tensor::from_vec(vec![1000.0_f32], 1, &Device::Cpu).unwrap();
        replay.update_priorities_gpu(&indices, &tds).unwrap();
        let threes = replay.sample(1000).unwrap().indices.iter().filter(|&&i| i == 3).count();
        match replay {
            ReplayBufferType::Uniform(_) => assert!(threes < 200, "{threes}"),
            ReplayBufferType::Prioritized(ref memory) if memory.lock().kind() == ReplayKind::RankBased => {
                // Rank order is as of the first sample here; it is renewed every third update.
                assert!(threes < 500, "{threes}");
            }
            _ => assert!(threes > 980, "{threes}"),
        }
    }
}
