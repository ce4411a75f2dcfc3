//! Tests of the ring: published cases and a plain model.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::OpError;

/// Rows whose every value tells which row it is.
struct Made {
    states: Vec<f32>,
    next_states: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
}

fn make(ids: &[u32], dim: usize) -> Made {
    let value = |id: u32, j: usize| id as f32 * 16.0 + j as f32;
    Made {
        states: ids.iter().flat_map(|&id| (0..dim).map(move |j| value(id, j))).collect(),
        next_states: ids.iter().flat_map(|&id| (0..dim).map(move |j| -value(id, j))).collect(),
        actions: ids.to_vec(),
        rewards: ids.iter().map(|&id| id as f32 + 0.5).collect(),
        terminated: ids.iter().map(|&id| f32::from(u8::from(id % 3 == 0))).collect(),
        discounts: ids.iter().map(|&id| 0.9_f32.powi(1 + id as i32 % 3)).collect(),
    }
}

impl Made {
    fn rows(&self) -> Rows<'_> {
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

fn add(ring: &mut Ring, ids: &[u32]) -> InsertReport {
    ring.insert(&make(ids, ring.layout().state_dim).rows()).unwrap()
}

/// The ids stored, in slot order; checks that every field of a row belongs to its id.
fn ids(ring: &Ring) -> Vec<u32> {
    let saved = ring.save();
    let want = make(&saved.actions, ring.layout().state_dim);
    assert_eq!(saved.states, want.states);
    assert_eq!(saved.next_states, want.next_states);
    assert_eq!(saved.rewards, want.rewards);
    assert_eq!(saved.terminated, want.terminated);
    assert_eq!(saved.discounts, want.discounts);
    saved.actions
}

/// Case A34: of a batch larger than the ring the last rows stay, each in the slot it would have had.
#[test]
fn a_batch_larger_than_the_ring() {
    let mut ring = Ring::new(4, 3).unwrap();
    let report = add(&mut ring, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(ids(&ring), [4, 5, 2, 3]);
    assert_eq!((ring.cursor(), ring.len(), ring.inserted()), (2, 4, 6));
    assert_eq!((report.first_slot, report.written, report.accepted), (2, 4, 6));
    add(&mut ring, &[6]);
    assert_eq!(ids(&ring), [4, 5, 6, 3]);
}

/// Case A35: an exactly full ring is saved and restored whole, and knows that it is full.
#[test]
fn exactly_full_is_not_empty() {
    let mut ring = Ring::new(5, 2).unwrap();
    add(&mut ring, &[0, 1, 2, 3, 4]);
    assert_eq!((ring.cursor(), ring.len()), (0, 5));
    let saved = make(&ring.save().actions, 2);
    let mut other = Ring::new(5, 2).unwrap();
    other.restore(&saved.rows(), ring.inserted(), [0, 0]).unwrap();
    assert_eq!(ids(&other), [0, 1, 2, 3, 4]);
    assert_eq!((other.cursor(), other.len(), other.generation(0)), (0, 5, 0));
    add(&mut other, &[5]);
    assert_eq!(ids(&other), [5, 1, 2, 3, 4]);
    assert!(other.restore(&saved.rows(), 4, [0, 0]).is_err(), "five rows are not four");
    assert_eq!(ids(&other), [5, 1, 2, 3, 4]);
}

/// Cases A37 and B03: rows carry their own next state and discount, so the row before the write head, and a row
/// beside memory never written, are whole.
#[test]
fn nothing_is_read_across_the_head() {
    let mut ring = Ring::new(5, 2).unwrap();
    add(&mut ring, &[0, 1, 2]);
    assert_eq!(ids(&ring), [0, 1, 2]);
    add(&mut ring, &[3, 4, 5, 6]);
    assert_eq!(ring.cursor(), 2);
    assert_eq!(ids(&ring), [5, 6, 2, 3, 4]);
    let mut batch = BatchBuffers::new(1, 2);
    batch.indices[0] = 1;
    ring.gather(&mut batch).unwrap();
    assert_eq!(batch.next_states, make(&[6], 2).next_states, "not the state in slot 2");
    assert_eq!(batch.discounts, make(&[6], 2).discounts);
}

/// Case C11: a row that is not finite is refused and counted, the next one is stored.
#[test]
fn rows_that_are_not_finite_are_refused_and_counted() {
    let mut ring = Ring::new(4, 3).unwrap();
    let mut bad = make(&[1], 3);
    bad.rewards[0] = f32::NAN;
    assert_eq!(ring.insert(&bad.rows()).unwrap().refused_rewards, 1);
    assert_eq!((ring.len(), ring.refused_rewards()), (0, 1));
    add(&mut ring, &[1]);
    assert_eq!((ring.len(), ring.refused_rewards()), (1, 1));

    let mut mixed = make(&[2, 3, 4, 5, 6, 7], 3);
    mixed.states[3 + 2] = f32::INFINITY; // row 3
    mixed.next_states[2 * 3] = f32::NAN; // row 4
    mixed.discounts[3] = f32::NAN; // row 5
    mixed.terminated[4] = f32::NEG_INFINITY; // row 6, whose state is bad as well
    mixed.states[4 * 3] = f32::NAN;
    let report = ring.insert(&mixed.rows()).unwrap();
    let want = InsertReport { first_slot: 1, written: 2, accepted: 2, refused_rewards: 2, refused_states: 2 };
    assert_eq!(report, want);
    assert_eq!(ids(&ring), [1, 2, 7]);
    assert_eq!((ring.refused_rewards(), ring.refused_states()), (3, 2));
}

/// Case D11: offsets need more than 32 bits.
#[test]
fn offsets_are_64_bit() {
    assert_eq!(row_offset(39_768_216, 54), 2_147_483_664);
    assert_eq!(row_offset(39_768_215, 54), 2_147_483_610);
    assert_eq!(row_offset(239_674, 8960) + 8959, 2_147_487_999);
    assert_eq!(row_offset((1 << 31) - 1, 112), 240_518_168_464);
    assert_eq!(RowLayout { state_dim: 51 }.bytes(1 << 31), 448 << 31);
    assert_eq!(RowLayout { state_dim: 1 << 40 }.bytes(1 << 31), u64::MAX);
}

/// Case D05: empty batches are fine.
#[test]
fn empty_batches() {
    let mut ring = Ring::new(2, 3).unwrap();
    assert_eq!(add(&mut ring, &[]), InsertReport::default());
    assert!(ring.is_empty());
    let mut batch = BatchBuffers::new(0, 3);
    ring.gather(&mut batch).unwrap();
    assert!(batch.is_empty() && ring.save().is_empty());
    add(&mut ring, &[1]);
    assert_eq!(ids(&ring), [1]);
}

#[test]
fn layout_is_whole_cache_lines() {
    let layout = RowLayout { state_dim: 51 };
    assert_eq!((layout.next_state(), layout.action(), layout.used(), layout.stride()), (51, 102, 106, 112));
    assert_eq!(RowLayout { state_dim: 6 }.stride(), 16);
    assert_eq!(RowLayout { state_dim: 7 }.stride(), 32);
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    assert!(matches!(Ring::new(0, 3), Err(OpError::InvalidArgument { what: "capacity", .. })));
    assert!(matches!(Ring::new(3, 0), Err(OpError::InvalidArgument { what: "state_dim", .. })));
    // 2^31 rows of 2^24 values are 2^58 bytes and a little: no machine has them.
    let bytes = RowLayout { state_dim: 1 << 24 }.bytes(1 << 31);
    match Ring::new(1 << 31, 1 << 24) {
        Err(OpError::HostMemory { bytes: asked, .. }) => assert_eq!(asked, bytes),
        other => panic!("{other:?}"),
    }
    let mut ring = Ring::new(3, 2).unwrap();
    add(&mut ring, &[1]);
    for field in 0..5 {
        let mut rows = make(&[2, 3], 2);
        match field {
            0 => drop(rows.states.pop()),
            1 => drop(rows.next_states.pop()),
            2 => drop(rows.rewards.pop()),
            3 => drop(rows.terminated.pop()),
            _ => drop(rows.discounts.pop()),
        }
        assert!(matches!(ring.insert(&rows.rows()), Err(OpError::Length { .. })));
    }
    assert_eq!(ids(&ring), [1]);
    let mut batch = BatchBuffers::new(1, 2);
    batch.indices[0] = 1;
    assert_eq!(ring.gather(&mut batch), Err(OpError::RowOutOfRange { index: 1, len: 1 }));
    batch.states.pop();
    assert!(matches!(ring.gather(&mut batch), Err(OpError::Length { .. })));
}

/// Uniform draws name every slot and none beyond.
#[test]
fn uniform_slots_cover_the_rows() {
    assert_eq!(uniform_slot(0, 7), 0);
    assert_eq!(uniform_slot(u64::MAX, 7), 6);
    assert_eq!(uniform_slot(u64::MAX, 1), 0);
    assert_eq!(uniform_slot(u64::MAX, 1 << 31), (1 << 31) - 1);
    assert_eq!(uniform_slot(1 << 63, 10), 5);
}

proptest! {
    /// Any batches, rows that are refused among them, against a deque of the last `capacity` accepted rows.
    #[test]
    fn ring_equals_a_deque(
        capacity in 1_usize..40,
        dim in 1_usize..9,
        batches in prop::collection::vec(prop::collection::vec(0_u8..12, 0..90), 0..12),
    ) {
        let mut ring = Ring::new(capacity, dim).unwrap();
        let mut model: VecDeque<(u32, u64)> = VecDeque::new();
        let (mut next_id, mut accepted, mut refused) = (0, 0_u64, 0_u64);
        for batch in batches {
            let row_ids: Vec<u32> = (next_id..next_id + batch.len() as u32).collect();
            next_id += batch.len() as u32;
            let mut rows = make(&row_ids, dim);
            for (i, &kind) in batch.iter().enumerate() {
                match kind {
                    0 => rows.rewards[i] = f32::NAN,
                    1 => rows.states[i * dim + dim - 1] = f32::INFINITY,
                    2 => rows.next_states[i * dim] = f32::NAN,
                    _ => {
                        model.push_back((row_ids[i], accepted));
                        accepted += 1;
                    }
                }
                refused += u64::from(kind < 3);
            }
            while model.len() > capacity {
                model.pop_front();
            }
            ring.insert(&rows.rows()).unwrap();
            prop_assert_eq!(ring.len(), model.len());
            prop_assert_eq!(ring.inserted(), accepted);
            prop_assert_eq!(ring.refused_rewards() + ring.refused_states(), refused);
            let stored = ids(&ring);
            for &(id, number) in &model {
                let slot = (number % capacity as u64) as usize;
                prop_assert_eq!(stored[slot], id);
                prop_assert_eq!(ring.generation(slot), number / capacity as u64);
            }
            let saved = ring.save();
            for (slot, generation) in saved.generations.iter().enumerate() {
                prop_assert_eq!(*generation, ring.generation(slot));
            }
        }
    }
}

/// Case D11 in memory: a ring of more than 2^31 words is filled, turns over, and its last rows are those written there.
#[test]
#[ignore = "takes 9 GB; cargo test -p foxhunt-ops --lib -- --ignored a_ring_of_more"]
fn a_ring_of_more_than_2_31_words() {
    const DIM: usize = 51;
    const BLOCK: u32 = 4096;
    let stride = RowLayout { state_dim: DIM }.stride();
    let capacity = (1_usize << 31).div_ceil(stride) + 1000;
    let mut ring = Ring::new(capacity, DIM).unwrap();
    let last = (capacity as u32 + 10).div_ceil(BLOCK);
    // The same states in every row but for the first, which tells the block; ids are told by the action.
    let mut made = make(&vec![0; BLOCK as usize], DIM);
    for block in 0..last {
        made.actions = (block * BLOCK..(block + 1) * BLOCK).collect();
        made.states.chunks_exact_mut(DIM).for_each(|state| state[DIM - 1] = block as f32);
        made.next_states.chunks_exact_mut(DIM).for_each(|state| state[0] = -(block as f32));
        ring.insert(&made.rows()).unwrap();
    }
    let inserted = u64::from(last * BLOCK);
    assert_eq!((ring.inserted(), ring.len()), (inserted, capacity));
    // Slots on both sides of word 2^31 and of the head, and the ends.
    let head = ring.cursor();
    let border = (1 << 31) / stride;
    let slots = [0, 1, head - 1, head, head + 1, border - 1, border, border + 1, capacity - 2, capacity - 1];
    let mut batch = BatchBuffers::new(slots.len(), DIM);
    batch.indices = slots.map(|slot| slot as u32).to_vec();
    ring.gather(&mut batch).unwrap();
    for (i, slot) in slots.into_iter().enumerate() {
        let id = if slot < head { slot + capacity } else { slot } as u32;
        assert_eq!(batch.actions[i], id, "slot {slot}");
        assert_eq!(batch.states[i * DIM + DIM - 1], (id / BLOCK) as f32, "slot {slot}");
        assert_eq!(batch.next_states[i * DIM], -((id / BLOCK) as f32), "slot {slot}");
    }
}
