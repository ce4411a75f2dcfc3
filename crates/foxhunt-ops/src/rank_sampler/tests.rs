//! Tests of the rank sampler: order, masses, when it sorts, distribution, golden values.

use foxhunt_core::{Philox, Purpose};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::*;
use crate::OpError;
use crate::priority_tree::{PriorityParams, PriorityTree, write_weights};

const RAW: PriorityParams = PriorityParams { alpha: 1.0, epsilon: 0.0 };

fn tree_in(capacity: usize, tds: &[f32]) -> PriorityTree {
    let mut tree = PriorityTree::new(capacity, RAW).unwrap();
    tree.insert(0, tds.len());
    tree.update(&(0..tds.len() as u32).collect::<Vec<_>>(), tds).unwrap();
    tree
}

fn sample(rank: &mut RankSampler, tree: &PriorityTree, step: u64, batch: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut slots, mut weights) = (vec![0; batch], vec![0.0; batch]);
    rank.sample(tree, &Philox::new(5), step, 0.5, &mut slots, &mut weights).unwrap();
    (slots, weights)
}

/// Rank masses are exact up to one unit in 2^(62 - ceil(log2 N)) and fall with the rank.
#[test]
fn masses_follow_the_power_law() {
    for (alpha, capacity) in [(0.0, 10), (0.5, 1000), (1.0, 4097)] {
        let first = rank_mass(1, alpha, capacity) as f64;
        let mut previous = u64::MAX;
        for r in 1..=capacity as u64 {
            let mass = rank_mass(r, alpha, capacity);
            let want = first * (r as f64).powf(-alpha);
            assert!((mass as f64 - want).abs() <= 0.5 + want * 1e-15, "rank {r}");
            assert!(mass <= previous);
            previous = mass;
        }
    }
    assert!(rank_mass(1 << 31, 1.0, 1 << 31) >= 1);
    let total: u128 = u128::from(rank_mass(1, 0.0, 1 << 31)) << 31;
    assert!(total < 1 << 63);
}

/// Descending priority, ties to the lower slot, zeros last but drawn.
#[test]
fn order_is_by_priority_then_slot() {
    let tree = tree_in(6, &[2.0, 7.0, 0.0, 2.0, 7.0, 0.5]);
    let mut rank = RankSampler::new(6, 0.7, 1).unwrap();
    let (slots, weights) = sample(&mut rank, &tree, 0, 4000);
    assert_eq!(rank.state().order, [1, 4, 0, 3, 5, 2]);
    assert!(slots.contains(&2), "a rank has mass whatever its priority");
    // The last rank is the least likely, so its weight is the batch maximum.
    let last = slots.iter().position(|&s| s == 2).unwrap();
    assert_eq!(weights[last], 1.0);
    let first = slots.iter().position(|&s| s == 1).unwrap();
    assert!((f64::from(weights[first]) - 6_f64.powf(-0.35)).abs() < 1e-6);
}

/// Case A31: a NaN never gets as far as the sort; the ranks of the rest are [1, -, 2].
#[test]
fn nan_does_not_reach_the_sort() {
    let mut tree = PriorityTree::new(3, RAW).unwrap();
    tree.insert(0, 3);
    let report = tree.update(&[0, 1, 2], &[1.0, f32::NAN, 0.5]).unwrap();
    assert_eq!(report.refused, 1);
    let mut rank = RankSampler::new(3, 1.0, 1).unwrap();
    sample(&mut rank, &tree, 0, 1);
    // The refused row keeps its priority of 1 and stands between the others by the tie rule.
    assert_eq!(rank.state().order, [0, 1, 2]);
}

/// It sorts at the first sample and then at most once every `resort_every` updates.
#[test]
fn sorts_exactly_when_due() {
    let mut tree = tree_in(4, &[1.0, 2.0, 3.0, 4.0]);
    let mut rank = RankSampler::new(4, 1.0, 3).unwrap();
    let mut sorts = Vec::new();
    for update in 0..10_u32 {
        sample(&mut rank, &tree, u64::from(update), 2);
        sample(&mut rank, &tree, u64::from(update), 2);
        sorts.push(rank.state().sorts);
        tree.update(&[update % 4], &[10.0 + update as f32]).unwrap();
        rank.note_update();
    }
    assert_eq!(sorts, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]);
    // Inserts never make it sort.
    for _ in 0..100 {
        tree.insert(0, 4);
        sample(&mut rank, &tree, 0, 2);
    }
    assert_eq!(rank.state().sorts, 4);
}

/// Between sorts fresh slots come first in slot order and overwritten slots keep their place.
#[test]
fn rows_since_the_last_sort_have_a_place() {
    let mut tree = tree_in(5, &[1.0, 3.0, 2.0]);
    let mut rank = RankSampler::new(5, 1.0, 100).unwrap();
    sample(&mut rank, &tree, 0, 1);
    assert_eq!(rank.state().order, [1, 2, 0]);
    tree.insert(3, 2);
    let order = rank.state().order.clone();
    assert_eq!((0..5).map(|r| slot_at(&order, r, 5)).collect::<Vec<_>>(), [3, 4, 1, 2, 0]);
    let (slots, _) = sample(&mut rank, &tree, 1, 5000);
    let hits = |slot| slots.iter().filter(|&&s| s == slot).count() as f64;
    // Ranks 1 to 5 of five rows at alpha 1: 1/r over 137/60.
    for (slot, r) in [(3, 1.0), (4, 2.0), (1, 3.0), (2, 4.0), (0, 5.0)] {
        assert!((hits(slot) / 5000.0 - 60.0 / 137.0 / r).abs() < 0.001, "slot {slot}");
    }
    tree.insert(0, 5);
    assert_eq!(rank.state().order, order);
}

/// Single draws follow 1/rank^alpha exactly: both tails of the chi-square above 1e-4, fixed seed.
#[test]
fn draws_follow_the_ranks() {
    let n = 300;
    let mut stream = Philox::new(3).stream(Purpose::Bootstrap, 0, 0);
    let tds: Vec<f32> = (0..n).map(|_| stream.next_f32()).collect();
    let tree = tree_in(n + 77, &tds);
    let mut rank = RankSampler::new(n + 77, 0.7, 1).unwrap();
    let mut hits = vec![0_u32; n];
    let draws = 400_000;
    for step in 0..draws {
        hits[sample(&mut rank, &tree, step, 1).0[0] as usize] += 1;
    }
    let mut by_priority: Vec<usize> = (0..n).collect();
    by_priority.sort_by(|&a, &b| tds[b].total_cmp(&tds[a]).then(a.cmp(&b)));
    let norm: f64 = (1..=n).map(|r| (r as f64).powf(-0.7)).sum();
    let mut statistic = 0.0;
    for (r, &slot) in by_priority.iter().enumerate() {
        let expected = draws as f64 * ((r + 1) as f64).powf(-0.7) / norm;
        statistic += (f64::from(hits[slot]) - expected).powi(2) / expected;
    }
    let law = ChiSquared::new((n - 1) as f64).unwrap();
    assert!(law.sf(statistic) > 1e-4 && law.cdf(statistic) > 1e-4, "{statistic}");
}

#[test]
fn wrong_arguments_are_refused() {
    assert!(matches!(RankSampler::new(0, 0.5, 1), Err(OpError::InvalidArgument { .. })));
    assert!(matches!(RankSampler::new(1, f32::NAN, 1), Err(OpError::InvalidArgument { .. })));
    assert!(matches!(RankSampler::new(1, 0.5, 0), Err(OpError::InvalidArgument { .. })));
    let empty = PriorityTree::new(2, RAW).unwrap();
    let mut rank = RankSampler::new(2, 0.5, 1).unwrap();
    let sampled = rank.sample(&empty, &Philox::new(1), 0, 1.0, &mut [0], &mut [0.0]);
    assert_eq!(sampled, Err(OpError::NotEnoughRows { have: 0, need: 1 }));
    rank.sample(&empty, &Philox::new(1), 0, 1.0, &mut [], &mut []).unwrap();
}

#[test]
fn a_restored_sampler_goes_on_the_same() {
    let mut tree = tree_in(50, &(0..40).map(|i| (i * 7 % 40) as f32).collect::<Vec<_>>());
    let mut rank = RankSampler::new(50, 0.6, 5).unwrap();
    sample(&mut rank, &tree, 0, 8);
    rank.note_update();
    tree.insert(40, 5);
    let mut other = RankSampler::new(50, 0.6, 5).unwrap();
    other.restore(rank.state(), tree.len()).unwrap();
    for step in 1..20 {
        assert_eq!(sample(&mut rank, &tree, step, 33), sample(&mut other, &tree, step, 33));
        tree.update(&[step as u32], &[step as f32 * 3.0]).unwrap();
        rank.note_update();
        other.note_update();
    }
    assert_eq!(rank.state(), other.state());
    for order in [vec![0, 0], vec![1], vec![0, 5], (0..46).collect()] {
        let state = RankSamplerState { order, ..RankSamplerState::default() };
        assert!(other.restore(&state, 45).is_err());
    }
    assert_eq!(rank.state(), other.state());
}

/// Ranks, probabilities and weights of the independent NumPy implementation.
#[test]
fn golden_values() {
    let golden = include_str!("../priority_tree/golden/golden.json");
    let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let list = |key: &str| -> Vec<f64> {
            case[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let f = |key: &str| case[key].as_f64().unwrap() as f32;
        let tds: Vec<f32> = list("td_errors").iter().map(|&x| x as f32).collect();
        let n = tds.len();
        let mut tree =
            PriorityTree::new(n, PriorityParams { alpha: f("alpha"), epsilon: f("epsilon") }).unwrap();
        tree.insert(0, n);
        tree.update(&(0..n as u32).collect::<Vec<_>>(), &tds).unwrap();
        let mut rank = RankSampler::new(n, f("alpha"), 1).unwrap();
        sample(&mut rank, &tree, 0, 1);
        let masses: Vec<u64> = (1..=n as u64).map(|r| rank_mass(r, f("alpha").into(), n)).collect();
        let total: u64 = masses.iter().sum();
        let mut weights = vec![0.0; n];
        write_weights(&masses, f("beta"), &mut weights);
        let (ranks, probabilities, want) = (list("ranks"), list("rank_probabilities"), list("rank_weights"));
        for (r, &slot) in rank.state().order.iter().enumerate() {
            let slot = slot as usize;
            assert_eq!(ranks[slot], (r + 1) as f64);
            // Alpha is an f32 here: 0.6f32 differs from 0.6 by 4e-8 relative, times ln(rank) < 5.
            let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-6 * want, "{got}, not {want}");
            close(masses[r] as f64 / total as f64, probabilities[slot]);
            close(f64::from(weights[r]), want[slot]);
        }
    }
}
