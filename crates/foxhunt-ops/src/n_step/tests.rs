use foxhunt_core::record::FaultKind;
use proptest::prelude::*;

use super::*;

/// A row over one-number states, owned.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    from: f32,
    to: f32,
    action: u32,
    reward: f32,
    terminated: bool,
    discount: f32,
}

impl From<Row<'_>> for Owned {
    fn from(row: Row<'_>) -> Self {
        Self {
            from: row.state[0],
            to: row.next_state[0],
            action: row.action,
            reward: row.reward,
            terminated: row.terminated,
            discount: row.discount,
        }
    }
}

fn push(
    acc: &mut NStep,
    from: f32,
    to: f32,
    reward: f32,
    end: (bool, bool),
    rows: &mut Vec<Owned>,
) -> Pushed {
    let (state, next_state) = ([from], [to]);
    let step = Step {
        state: &state,
        action: from as u32,
        reward,
        next_state: &next_state,
        terminated: end.0,
        truncated: end.1,
    };
    acc.push(0, &step, |row| rows.push(row.into()))
}

/// Case B01: a window cut after two of three steps bootstraps with gamma^2.
#[test]
fn a_cut_window_is_discounted_by_its_own_length() {
    let mut acc = NStep::new(1, 1, 3, 0.9);
    let mut rows = Vec::new();
    push(&mut acc, 0.0, 1.0, 1.0, (false, false), &mut rows);
    assert!(rows.is_empty());
    push(&mut acc, 1.0, 2.0, 1.0, (false, true), &mut rows);
    let target = |row: &Owned, q: f32| row.reward + row.discount * q;
    assert!((target(&rows[0], 10.0) - 10.0).abs() < 1e-6, "{rows:?}");
    assert!((target(&rows[1], 10.0) - 10.0).abs() < 1e-6, "1 + 0.9 * 10: {rows:?}");
    assert_eq!((rows.len(), rows[0].to, rows[1].to), (2, 2.0, 2.0));
    assert!(rows.iter().all(|row| !row.terminated));
    assert_eq!(acc.pending(), 0);
}

/// Case B04: truncation bootstraps, termination does not.
#[test]
fn truncation_bootstraps_and_termination_does_not() {
    for (end, want) in [((false, true), 5.95), ((true, false), 1.0), ((true, true), 1.0)] {
        let mut acc = NStep::new(1, 1, 1, 0.99);
        let mut rows = Vec::new();
        push(&mut acc, 0.0, 1.0, 1.0, end, &mut rows);
        let row = &rows[0];
        let bootstrap = if row.terminated { 0.0 } else { row.discount * 5.0 };
        assert!((row.reward + bootstrap - want).abs() < 1e-6);
    }
}

/// Case B03: rows in a full ring of five hold windows of consecutive times, wherever the ring's head is.
#[test]
fn no_window_crosses_the_ring_head() {
    let mut acc = NStep::new(1, 1, 3, 1.0);
    let mut ring: std::collections::VecDeque<Owned> = std::collections::VecDeque::new();
    for t in 0..40 {
        let mut rows = Vec::new();
        push(&mut acc, t as f32, t as f32 + 1.0, t as f32, (false, false), &mut rows);
        for row in rows {
            if ring.len() == 5 {
                ring.pop_front();
            }
            ring.push_back(row);
        }
        for row in &ring {
            assert_eq!(row.to - row.from, 3.0);
            assert_eq!(row.reward, 3.0 * row.from + 3.0);
        }
    }
}

/// Case B06: the last transition of an episode goes to its own last state, never to the reset state.
#[test]
fn the_last_transition_keeps_the_state_before_the_reset() {
    let mut acc = NStep::new(1, 1, 1, 0.9);
    let mut rows = Vec::new();
    for _episode in 0..2 {
        for t in 0..4 {
            push(&mut acc, t as f32, t as f32 + 1.0, 0.0, (false, t == 3), &mut rows);
        }
    }
    let pairs: Vec<_> = rows.iter().map(|row| (row.from, row.to)).collect();
    let episode = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)];
    assert_eq!(pairs, [episode, episode].concat());
}

/// Case B07: three steps, a reset from outside, three more: six transitions, none joins the two parts.
#[test]
fn a_reset_from_outside_joins_nothing() {
    for n in [1, 3, 5] {
        let mut acc = NStep::new(1, 1, n, 0.5);
        let mut rows = Vec::new();
        for start in [0.0, 100.0] {
            for t in 0..3 {
                push(&mut acc, start + t as f32, start + t as f32 + 1.0, 1.0, (false, false), &mut rows);
            }
            acc.cut(0, |row| rows.push(row.into()));
        }
        assert_eq!(rows.len(), 6);
        for row in &rows {
            assert!(
                !row.terminated && (row.to - row.from) <= n as f32 && row.to - row.from >= 1.0,
                "{row:?}"
            );
        }
        assert_eq!((rows[2].to, rows[5].to), (3.0, 103.0));
    }
}

/// Case C11: a NaN reward is refused and counted; the windows before it keep their own rewards.
#[test]
fn a_bad_step_costs_one_transition() {
    let mut acc = NStep::new(1, 1, 3, 1.0);
    let mut rows = Vec::new();
    assert_eq!(
        push(&mut acc, 0.0, 1.0, f32::NAN, (false, false), &mut rows).refused,
        Some(FaultKind::NonFiniteReward)
    );
    assert!(rows.is_empty());
    push(&mut acc, 1.0, 2.0, 1.0, (false, false), &mut rows);
    push(&mut acc, 2.0, 3.0, 1.0, (false, false), &mut rows);
    let pushed = push(&mut acc, 3.0, f32::INFINITY, 1.0, (false, false), &mut rows);
    assert_eq!(pushed, Pushed { rows: 2, refused: Some(FaultKind::NonFiniteState) });
    assert_eq!((rows[0].reward, rows[0].to, rows[1].reward, rows[1].to), (2.0, 3.0, 1.0, 3.0));
    push(&mut acc, 5.0, 6.0, 1.0, (false, true), &mut rows);
    assert_eq!((rows.len(), rows[2].from, rows[2].reward), (3, 5.0, 1.0));
}

#[test]
fn restore_continues_to_the_bit_and_refuses_other_shapes() {
    let run = |acc: &mut NStep, from: usize, to: usize| {
        let mut rows = Vec::new();
        for t in from..to {
            push(acc, t as f32, t as f32 + 1.0, (t as f32).sin(), (false, t % 7 == 6), &mut rows);
        }
        rows
    };
    let mut acc = NStep::new(1, 1, 4, 0.97);
    run(&mut acc, 0, 10);
    let saved = acc.state().clone();
    let want = run(&mut acc, 10, 30);
    let mut fresh = NStep::new(1, 1, 4, 0.97);
    assert!(fresh.restore(&saved));
    assert_eq!(run(&mut fresh, 10, 30), want);
    assert!(!NStep::new(1, 1, 3, 0.97).restore(&saved));
    let mut torn = saved.clone();
    torn.lens[0] = 4;
    assert!(!fresh.restore(&torn));
}

proptest! {
    /// Against the definition: any episode, any n, every step leaves exactly once with its own return.
    #[test]
    fn equals_the_definition(
        n in 1_usize..9,
        gamma in 0.0_f64..=1.0,
        rewards in proptest::collection::vec(-10.0_f32..10.0, 1..40),
        terminated: bool,
    ) {
        let mut acc = NStep::new(1, 1, n, gamma);
        let mut rows = Vec::new();
        let last = rewards.len() - 1;
        for (t, &r) in rewards.iter().enumerate() {
            let end = (t == last && terminated, t == last && !terminated);
            push(&mut acc, t as f32, t as f32 + 1.0, r, end, &mut rows);
        }
        prop_assert_eq!(rows.len(), rewards.len());
        for (t, row) in rows.iter().enumerate() {
            let k = n.min(rewards.len() - t);
            let want: f64 = (0..k).map(|i| gamma.powi(i as i32) * f64::from(rewards[t + i])).sum();
            prop_assert!((f64::from(row.reward) - want).abs() < 1e-4, "t {} got {} want {}", t, row.reward, want);
            prop_assert!((f64::from(row.discount) - gamma.powi(k as i32)).abs() < 1e-6);
            prop_assert_eq!((row.from, row.to), (t as f32, (t + k) as f32));
            prop_assert_eq!(row.terminated, terminated && t + k > last);
        }
    }
}
