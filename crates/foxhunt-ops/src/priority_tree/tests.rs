//! Tests of the priority tree: published cases, exactness, distribution, golden values.

use foxhunt_core::Philox;
use proptest::prelude::*;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::*;
use crate::OpError;

const RAW: PriorityParams = PriorityParams { alpha: 1.0, epsilon: 0.0 };

/// A full tree with the given priorities (alpha 1, epsilon 0).
fn tree_of(priorities: &[f32]) -> PriorityTree {
    tree_in(priorities.len(), priorities)
}

fn tree_in(capacity: usize, priorities: &[f32]) -> PriorityTree {
    let mut tree = PriorityTree::new(capacity, RAW).unwrap();
    tree.insert(0, priorities.len());
    let slots: Vec<u32> = (0..priorities.len() as u32).collect();
    tree.update(&slots, priorities).unwrap();
    tree
}

fn locate(tree: &SumTree, target: u64) -> u32 {
    let (mut targets, mut slots, mut masses) = ([target], [0], [0]);
    tree.locate(&mut targets, &mut slots, &mut masses);
    assert_eq!(masses[0], tree.masses()[slots[0] as usize]);
    slots[0]
}

fn sample(tree: &mut PriorityTree, seed: u64, step: u64, beta: f32, batch: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut slots, mut weights) = (vec![0; batch], vec![0.0; batch]);
    tree.sample(&Philox::new(seed), step, beta, &mut slots, &mut weights).unwrap();
    (slots, weights)
}

fn assert_root_is_sum(tree: &PriorityTree) {
    let scale = mass_scale(tree.capacity());
    let sum: u64 = (0..tree.capacity()).map(|s| mass(tree.priority(s), scale)).sum();
    assert_eq!(tree.sums().total(), sum);
    assert_eq!(tree.sums().masses().iter().sum::<u64>(), sum);
}

#[test]
fn masses_round_to_nearest_ties_to_even_and_never_vanish() {
    assert_eq!((0..4).map(|c| ceil_log2([1, 2, 3, 1025][c])).collect::<Vec<_>>(), [0, 1, 2, 11]);
    assert_eq!(mass_exponent(1), 48);
    assert_eq!(mass_exponent(1 << 20), 28);
    assert_eq!(mass_exponent((1 << 20) + 1), 27);
    assert_eq!(mass_exponent(MAX_CAPACITY), 17);
    let got: Vec<u64> =
        [0.0, 1e-30, 0.5, 1.5, 2.5, 3.5, 8_388_607.5, 8_388_609.0].map(|p| mass(p, 1.0)).to_vec();
    assert_eq!(got, [0, 1, 1, 2, 2, 4, 8_388_608, 8_388_609]);
    // The largest total there can be stays below 2^63.
    for capacity in [1, 2, 3, 1 << 20, MAX_CAPACITY] {
        let total = u128::from(mass(PRIORITY_CAP, mass_scale(capacity))) * capacity as u128;
        assert!(total < 1 << 63, "capacity {capacity}");
    }
}

/// Case A01: the sums of a shrunk leaf are exact, and a million updates leave the root equal to the leaves.
#[test]
fn nothing_drifts() {
    let mut tree = tree_of(&[1e8, 1.0]);
    tree.update(&[0], &[0.0]).unwrap();
    assert_eq!(tree.sums().total(), mass(1.0, mass_scale(2)));
    for x in [0, 1, u64::MAX / 2, u64::MAX] {
        assert_eq!(locate(tree.sums(), target(fraction(0, x, stratum_width(1)), tree.sums().total())), 1);
    }

    let mut stream = Philox::new(1).stream(Purpose::Bootstrap, 0, 0);
    for (capacity, batch) in [(4, 1), (1000, 8), (5000, 100)] {
        let mut tree = tree_of(&vec![1.0; capacity]);
        for _ in 0..1_000_000 / batch {
            let slots: Vec<u32> = (0..batch).map(|_| stream.next_below(capacity as u32)).collect();
            let tds: Vec<f32> = (0..batch)
                .map(|_| match stream.next_below(50) {
                    0 => f32::NAN,
                    1 => 0.0,
                    2 => 1e9,
                    _ => 0.1 + 4.9 * stream.next_f32(),
                })
                .collect();
            tree.update(&slots, &tds).unwrap();
        }
        assert_root_is_sum(&tree);
    }
}

/// Case A02: a small mass beside one of 2^24 times its size is still drawn; counts past 2^24 are exact.
#[test]
fn no_prefix_stalls_at_2_pow_24() {
    let unit = 1.0 / 1024.0;
    let tree = tree_of(&[16_777_216.0 * unit, unit, unit, unit]);
    let w = mass(unit, mass_scale(4));
    assert_eq!(tree.sums().total(), 16_777_219 * w);
    let prefix: Vec<u64> = (1..=4).map(|s| tree.sums().prefix(s) / w).collect();
    assert_eq!(prefix, [16_777_216, 16_777_217, 16_777_218, 16_777_219]);
    assert_eq!(locate(tree.sums(), 16_777_217 * w + w / 2), 2);

    let capacity = (1 << 24) + 4;
    let mut tree = PriorityTree::new(capacity, RAW).unwrap();
    tree.insert(0, capacity);
    let w = mass(1.0, mass_scale(capacity));
    assert_eq!(tree.sums().total(), 16_777_220 * w);
    assert_eq!(locate(tree.sums(), 16_777_219 * w), 16_777_219);
}

/// Case A04: the largest random word draws the last row written and nothing beyond.
#[test]
fn the_largest_draw_is_the_last_row() {
    for capacity in [3, 8, 1000] {
        let tree = tree_in(capacity, &[2.0, 1.0, 1.0]);
        let total = tree.sums().total();
        let t = target(fraction(0, u64::MAX, stratum_width(1)), total);
        assert!(t < total);
        assert_eq!(locate(tree.sums(), t), 2);
    }
}

/// Case A05: intervals are half-open.
#[test]
fn a_boundary_belongs_to_the_right_neighbour() {
    let tree = tree_of(&[10.0, 5.0, 2.0]);
    let w = mass(1.0, mass_scale(3));
    let mut hits = [0; 3];
    for t in 0..17 {
        hits[locate(tree.sums(), t * w) as usize] += 1;
    }
    assert_eq!(hits, [10, 5, 2]);
    assert_eq!(locate(tree.sums(), 10 * w - 1), 0);
    assert_eq!(locate(tree.sums(), 10 * w), 1);
}

/// Case A07: the newest row has its mass.
#[test]
fn the_newest_row_counts() {
    let tree = tree_of(&[1.0, 1.0, 2.0]);
    let w = mass(1.0, mass_scale(3));
    assert_eq!(tree.sums().total(), 4 * w);
    assert_eq!(tree.sums().masses()[2] * 2, tree.sums().total());
    assert_eq!(locate(tree.sums(), (0.99 * 4.0 * w as f64) as u64), 2);
}

/// Case A08: slots come in order at capacities that are no power of two.
#[test]
fn slots_keep_their_order_at_any_capacity() {
    let tree = tree_of(&[1.0, 2.0, 3.0]);
    let w = mass(1.0, mass_scale(3)) as f64;
    let at = |u: f64| locate(tree.sums(), (u * w) as u64);
    assert_eq!([0.5, 1.5, 2.99, 3.0, 5.9].map(at), [0, 1, 1, 2, 2]);
    for capacity in [1, 2, 3, 5, 6, 7, 1000, 64, 65, 256, 257, 4096, 4097, 16_384, 16_385, 16_449] {
        let tree = tree_of(&vec![1.0; capacity]);
        let w = mass(1.0, mass_scale(capacity));
        for slot in 0..capacity as u64 {
            assert_eq!(u64::from(locate(tree.sums(), slot * w + w / 2)), slot, "capacity {capacity}");
            assert_eq!(tree.sums().prefix(slot as usize), slot * w);
        }
    }
}

/// Case A10: one slot.
#[test]
fn capacity_one() {
    let mut tree = PriorityTree::new(1, PriorityParams { alpha: 0.6, epsilon: 0.0 }).unwrap();
    tree.insert(0, 1);
    tree.update(&[0], &[3.0]).unwrap();
    assert_eq!(sample(&mut tree, 7, 0, 0.4, 4), (vec![0; 4], vec![1.0; 4]));
    tree.insert(0, 1);
    assert_eq!(tree.len(), 1);
    assert_eq!(sample(&mut tree, 7, 1, 0.4, 4), (vec![0; 4], vec![1.0; 4]));
}

/// Case A11: an empty tree is an error at once; more draws than rows repeat them; a lone live slot takes every stratum.
#[test]
fn empty_small_and_lopsided() {
    let mut tree = PriorityTree::new(4, RAW).unwrap();
    let sampled = tree.sample(&Philox::new(1), 0, 1.0, &mut [0], &mut [0.0]);
    assert_eq!(sampled, Err(OpError::NotEnoughRows { have: 0, need: 1 }));
    tree.insert(0, 1);
    assert_eq!(sample(&mut tree, 1, 0, 1.0, 4), (vec![0; 4], vec![1.0; 4]));
    tree.insert(1, 3);
    tree.update(&[0, 1, 2, 3], &[0.0, 0.0, 5.0, 0.0]).unwrap();
    assert_eq!(sample(&mut tree, 1, 0, 1.0, 6).0, vec![2; 6]);
    tree.update(&[2], &[0.0]).unwrap();
    let sampled = tree.sample(&Philox::new(1), 0, 1.0, &mut [0], &mut [0.0]);
    assert_eq!(sampled, Err(OpError::NoMass { rows: 4 }));
}

/// Case A13: with alpha 0 a NaN is still refused and counted, and 0^0 is 1.
#[test]
fn alpha_zero_does_not_hide_nan() {
    let mut tree = PriorityTree::new(3, PriorityParams { alpha: 0.0, epsilon: 0.0 }).unwrap();
    tree.insert(0, 3);
    let report = tree.update(&[0, 1, 2], &[0.0, f32::NAN, 5.0]).unwrap();
    assert_eq!(report, UpdateReport { applied: 2, refused: 1, ..UpdateReport::default() });
    assert_eq!(tree.refused(), 1);
    assert_eq!([0, 1, 2].map(|s| tree.priority(s)), [1.0; 3]);
    for td in [f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(tree.update(&[0], &[td]).unwrap().refused, 1);
    }
    assert_eq!(tree.refused(), 3);
}

/// Case A13: a refused entry leaves the old priority, also beside an applied one for the same slot.
#[test]
fn a_refused_entry_changes_nothing() {
    let mut tree = tree_of(&[3.0, 4.0]);
    let before = tree.sums().masses().to_vec();
    tree.update(&[0, 1], &[f32::NAN, f32::INFINITY]).unwrap();
    assert_eq!(tree.sums().masses(), before);
    assert_eq!((tree.priority(0), tree.max_priority()), (3.0, 4.0));
    tree.update(&[0, 0, 0], &[f32::NAN, 2.0, f32::NAN]).unwrap();
    assert_eq!(tree.priority(0), 2.0);
    assert_root_is_sum(&tree);
}

/// Case A14: huge priorities are stored as the cap and counted; the total is finite and exact.
#[test]
fn large_priorities_are_capped_and_counted() {
    let mut tree = tree_of(&[1.0, 1.0, 1.0]);
    let report = tree.update(&[0, 1, 2], &[2e38, 2e38, 1.0]).unwrap();
    assert_eq!((report.applied, report.capped, tree.capped()), (3, 2, 2));
    assert_eq!([0, 1, 2].map(|s| tree.priority(s)), [PRIORITY_CAP, PRIORITY_CAP, 1.0]);
    assert_eq!(PRIORITY_CAP.to_bits() + 1, 32_768_f32.to_bits());
    assert_root_is_sum(&tree);
    let hits = (0..1000).flat_map(|step| sample(&mut tree, 3, step, 1.0, 2).0).filter(|&s| s == 0).count();
    assert_eq!(hits, 1000, "each of the two takes one stratum");
}

/// Case A16: the sign of a TD error does not matter.
#[test]
fn td_errors_count_absolute() {
    let mut tree = tree_of(&[1.0, 1.0]);
    tree.update(&[0, 1], &[-2.0, 2.0]).unwrap();
    assert_eq!([0, 1].map(|s| tree.priority(s)), [2.0, 2.0]);
}

/// Epsilon is added after the power (SPEC 12).
#[test]
fn epsilon_is_added_after_the_power() {
    let mut tree = PriorityTree::new(2, PriorityParams { alpha: 0.5, epsilon: 0.25 }).unwrap();
    tree.insert(0, 2);
    tree.update(&[0, 1], &[4.0, 0.0]).unwrap();
    assert_eq!([0, 1].map(|s| tree.priority(s)), [2.25, 0.25]);
}

/// Cases A17 and A19: weights over the batch maximum; unwritten slots have no say in them.
#[test]
fn importance_weights() {
    let close = |got: &[f32], want: &[f64]| {
        for (g, w) in got.iter().zip(want) {
            assert!((f64::from(*g) - w).abs() < 1e-6, "{got:?}, not {want:?}");
        }
    };
    for (beta, want) in [(1.0, [1.0, 0.333_333_3]), (0.5, [1.0, 0.577_350_3]), (0.0, [1.0, 1.0])] {
        let mut tree = tree_of(&[1.0, 3.0]);
        // Strata of 4: the first is row 0, the others row 1.
        let (slots, weights) = sample(&mut tree, 1, 0, beta, 4);
        assert_eq!(slots, [0, 1, 1, 1]);
        close(&weights, &[want[0], want[1], want[1], want[1]]);
        assert_eq!(weights[0], 1.0);
    }
    let mut tree = tree_in(8, &[1.0, 3.0, 4.0]);
    let (slots, weights) = sample(&mut tree, 1, 0, 1.0, 8);
    assert_eq!(slots, [0, 1, 1, 1, 2, 2, 2, 2]);
    close(&weights, &[1.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.25, 0.25, 0.25, 0.25]);
}

/// Cases A20, A22 and A23: a new row gets the largest stored priority so far, as stored, starting at 1.
#[test]
fn new_rows_get_the_running_maximum() {
    let mut tree = PriorityTree::new(4, PriorityParams { alpha: 0.5, epsilon: 0.0 }).unwrap();
    tree.insert(0, 1);
    assert_eq!(tree.priority(0), 1.0);
    tree.update(&[0], &[4.0]).unwrap();
    tree.insert(1, 1);
    assert_eq!(tree.priority(1), 2.0, "the power is not taken twice");

    let mut tree = PriorityTree::new(2, RAW).unwrap();
    tree.insert(0, 1);
    assert_eq!(tree.priority(0), 1.0);
    tree.update(&[0], &[5.0]).unwrap();
    tree.insert(1, 1);
    assert_eq!(tree.priority(1), 5.0);

    let mut tree = tree_of(&[100.0, 1.0]);
    tree.insert(0, 1);
    tree.update(&[0], &[2.0]).unwrap();
    tree.insert(1, 1);
    assert_eq!(tree.priority(1), 100.0, "the maximum is historical");
}

/// Case A25: a repeated slot ends at the largest of its new priorities, and the sums see it once.
#[test]
fn a_repeated_slot_takes_the_largest() {
    for _ in 0..1000 {
        for td in [[5.0, 2.0], [2.0, 5.0]] {
            let mut tree = tree_of(&[1.0; 4]);
            tree.update(&[3, 3], &td).unwrap();
            assert_eq!(tree.priority(3), 5.0);
            assert_eq!(tree.sums().total(), 8 * mass(1.0, mass_scale(4)));
        }
    }
    // The old priority is no candidate.
    let mut tree = tree_of(&[9.0, 1.0]);
    tree.update(&[0, 0], &[0.0, 0.5]).unwrap();
    assert_eq!(tree.priority(0), 0.5);
    tree.update(&[0, 0], &[0.0, 0.0]).unwrap();
    assert_eq!(tree.priority(0).to_bits(), 0);
}

/// Case A28: the last target of every batch size lies below the total.
#[test]
fn no_target_reaches_the_total() {
    for batch in (1..=300).chain([8192, 1_000_003, u32::MAX]) {
        let inv = stratum_width(batch);
        for total in [1, 3, 1 << 40, (1 << 63) - 1] {
            let last = target(fraction(batch - 1, u64::MAX, inv), total);
            assert!(last < total, "batch {batch}, total {total}");
            assert_eq!(target(fraction(0, 0, inv), total), 0);
        }
    }
}

/// Case A32: equal priorities of 0.1 give one total and the same draws every time.
#[test]
fn equal_priorities_draw_the_same_bits() {
    let mut a = tree_of(&vec![0.1; 250_000]);
    let mut b = tree_of(&vec![0.1; 250_000]);
    assert_eq!(sample(&mut a, 5, 9, 0.5, 4096), sample(&mut b, 5, 9, 0.5, 4096));
    let total = a.sums().total() as f64 / f64::from(mass_scale(250_000));
    assert!((total / 25_000.000_37 - 1.0).abs() < 1e-6, "{total}");
    let mut previous = 0;
    for slot in 1..=250_000 {
        let prefix = a.sums().prefix(slot);
        assert!(prefix >= previous);
        previous = prefix;
    }
}

/// Case D05: empty batches are fine and change nothing.
#[test]
fn empty_batches() {
    let mut tree = PriorityTree::new(3, RAW).unwrap();
    assert_eq!(tree.update(&[], &[]).unwrap(), UpdateReport::default());
    tree.sample(&Philox::new(1), 0, 1.0, &mut [], &mut []).unwrap();
    tree.insert(0, 0);
    assert!(tree.is_empty());
    tree.insert(0, 2);
    assert_eq!(sample(&mut tree, 1, 0, 1.0, 2).0, [0, 1]);
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    let refused =
        |result: Result<PriorityTree, OpError>| matches!(result, Err(OpError::InvalidArgument { .. }));
    assert!(refused(PriorityTree::new(0, RAW)));
    assert!(refused(PriorityTree::new(MAX_CAPACITY + 1, RAW)));
    for alpha in [-0.1, 1.1, f32::NAN] {
        assert!(refused(PriorityTree::new(1, PriorityParams { alpha, ..RAW })));
    }
    for epsilon in [-1e-9, f32::INFINITY, f32::NAN] {
        assert!(refused(PriorityTree::new(1, PriorityParams { epsilon, ..RAW })));
    }
    let mut tree = tree_in(8, &[1.0, 2.0]);
    let before = (tree.save(), tree.sums().masses().to_vec());
    assert_eq!(tree.update(&[0, 2], &[5.0, 5.0]), Err(OpError::RowOutOfRange { index: 2, len: 2 }));
    assert!(matches!(tree.update(&[0], &[]), Err(OpError::Length { .. })));
    assert!(matches!(tree.sample(&Philox::new(1), 0, 1.0, &mut [0], &mut []), Err(OpError::Length { .. })));
    assert_eq!((tree.save(), tree.sums().masses().to_vec()), before);
}

/// Every capacity and batch against a search of the plain prefix sums, before and after updates.
#[test]
fn draws_equal_a_plain_search() {
    for capacity in
        [1, 2, 3, 5, 6, 7, 1000, 64, 65, 256, 257, 4096, 4097, 16_384, 16_385, 1 << 18, (1 << 18) + 1]
    {
        let written = capacity - capacity / 3;
        let mut stream = Philox::new(2).stream(Purpose::Bootstrap, capacity as u32, 0);
        let tds: Vec<f32> = (0..written).map(|_| (stream.next_f32() * 20.0 - 12.0).exp2()).collect();
        let mut tree = tree_in(capacity, &tds);
        let zeros: Vec<u32> = (0..written as u32).filter(|s| s % 7 == 3).collect();
        tree.update(&zeros, &vec![0.0; zeros.len()]).unwrap();
        assert_root_is_sum(&tree);
        let mut prefix = vec![0];
        for &m in tree.sums().masses() {
            prefix.push(prefix[prefix.len() - 1] + m);
        }
        let total = tree.sums().total();
        for (step, batch) in [1, 31, 32, 33, 255, 256, 257, 8192].into_iter().enumerate() {
            let (slots, weights) = sample(&mut tree, 4, step as u64, 0.5, batch);
            let min = slots.iter().map(|&s| tree.sums().masses()[s as usize]).min().unwrap();
            for b in 0..batch {
                let x = random_bits(&Philox::new(4), step as u64, b as u32);
                let t = target(fraction(b as u32, x, stratum_width(batch as u32)), total);
                let want = prefix.partition_point(|&p| p <= t) - 1;
                assert_eq!(slots[b] as usize, want, "capacity {capacity}, batch {batch}, draw {b}");
                assert!(want < written && tree.priority(want) > 0.0);
                assert_eq!(weights[b], weight(min, tree.sums().masses()[want], 0.5));
            }
            assert_eq!(weights.iter().copied().fold(0.0, f32::max), 1.0);
        }
    }
}

/// Chi-square of `draws` batches against the exact masses; the probability of a statistic as large, and as small.
fn chi_square(tree: &mut PriorityTree, seed: u64, draws: u64, batch: usize) -> (f64, f64) {
    let mut hits = vec![0_u64; tree.capacity()];
    for step in 0..draws {
        for slot in sample(tree, seed, step, 0.0, batch).0 {
            hits[slot as usize] += 1;
        }
    }
    let (n, total) = ((draws * batch as u64) as f64, tree.sums().total() as f64);
    let (mut statistic, mut cells) = (0.0, 0);
    for (&hit, &mass) in hits.iter().zip(tree.sums().masses()) {
        let expected = n * mass as f64 / total;
        assert!(mass > 0 || hit == 0);
        if mass > 0 {
            assert!(expected > 5.0, "too few draws for a chi-square");
            statistic += (hit as f64 - expected).powi(2) / expected;
            cells += 1;
        }
    }
    let law = ChiSquared::new(f64::from(cells - 1)).unwrap();
    (law.sf(statistic), law.cdf(statistic))
}

/// Single draws follow the exact probabilities: both tails of the chi-square above 1e-4 (fixed seeds, so no chance
/// of a false alarm in a later run). Stratified batches vary less than independent draws, so only the upper tail says
/// something there.
#[test]
fn draws_follow_the_masses() {
    for (capacity, seed) in [(5, 1), (100, 2), (1000, 3)] {
        let mut stream = Philox::new(seed).stream(Purpose::Bootstrap, 0, 1);
        let tds: Vec<f32> = (0..capacity).map(|_| (stream.next_f32() * 5.0).exp2()).collect();
        let mut tree = tree_of(&tds);
        tree.update(&[2], &[0.0]).unwrap();
        let (upper, lower) = chi_square(&mut tree, seed, 400_000, 1);
        assert!(upper > 1e-4 && lower > 1e-4, "capacity {capacity}: {upper} {lower}");
        let (upper, _) = chi_square(&mut tree, seed, 4000, 100);
        assert!(upper > 1e-4, "capacity {capacity}, stratified: {upper}");
    }
}

/// Case E02: draws are a function of seed and sample number.
#[test]
fn draws_depend_on_seed_and_step_alone() {
    let tds: Vec<f32> = (1..1000).map(|i| i as f32).collect();
    let mut tree = tree_of(&tds);
    let first = sample(&mut tree, 7, 5, 0.4, 64);
    assert_eq!(first, sample(&mut tree, 7, 5, 0.4, 64));
    assert_ne!(first.0, sample(&mut tree, 8, 5, 0.4, 64).0);
    assert_ne!(first.0, sample(&mut tree, 7, 6, 0.4, 64).0);
}

#[test]
fn restore_rebuilds_the_same_tree() {
    let mut tree = tree_in(1000, &(0..700).map(|i| i as f32 * 0.37).collect::<Vec<_>>());
    tree.update(&[5, 6], &[f32::NAN, 1e30]).unwrap();
    let saved = tree.save();
    let mut other = PriorityTree::new(1000, RAW).unwrap();
    other.insert(0, 1000);
    other.restore(&saved).unwrap();
    assert_eq!(other.save(), saved);
    assert_eq!(other.sums(), tree.sums());
    assert_eq!(sample(&mut other, 1, 2, 0.4, 99), sample(&mut tree, 1, 2, 0.4, 99));
    let before = (other.save(), other.sums().masses().to_vec());
    for bad in [f32::NAN, -1.0, 32_768.0] {
        assert!(other.restore(&PriorityTreeState { priorities: vec![1.0, bad], ..saved.clone() }).is_err());
        assert!(other.restore(&PriorityTreeState { max_priority: bad, ..saved.clone() }).is_err());
    }
    assert!(other.restore(&PriorityTreeState { priorities: vec![1.0; 1001], ..saved }).is_err());
    assert_eq!((other.save(), other.sums().masses().to_vec()), before);
}

/// Priorities, probabilities and weights of an independent NumPy implementation in f64 (`golden/golden.py`).
#[test]
fn golden_values() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("golden/golden.json")).unwrap();
    let list = |v: &serde_json::Value| -> Vec<f64> {
        v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    // Priorities are f32 (relative 2^-24) and masses at least 2^18 units here: 1e-5 covers both twice over.
    let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-5 * want.abs(), "{got}, not {want}");
    for case in golden["cases"].as_array().unwrap() {
        let f = |key: &str| case[key].as_f64().unwrap() as f32;
        let tds: Vec<f32> = list(&case["td_errors"]).iter().map(|&x| x as f32).collect();
        let n = tds.len();
        let params = PriorityParams { alpha: f("alpha"), epsilon: f("epsilon") };
        let mut tree = PriorityTree::new(n, params).unwrap();
        tree.insert(0, n);
        let slots: Vec<u32> = (0..n as u32).collect();
        tree.update(&slots, &tds).unwrap();
        let masses = tree.sums().masses();
        let mut weights = vec![0.0; n];
        write_weights(masses, f("beta"), &mut weights);
        for i in 0..n {
            close(f64::from(tree.priority(i)), list(&case["priorities"])[i]);
            close(masses[i] as f64 / tree.sums().total() as f64, list(&case["probabilities"])[i]);
            close(f64::from(weights[i]), list(&case["weights"])[i]);
        }
    }
}

proptest! {
    /// Any updates against a plain model: largest of the new priorities, old kept where all are refused, sums exact.
    #[test]
    fn updates_equal_a_plain_model(
        capacity in 1_usize..700,
        updates in prop::collection::vec(prop::collection::vec((any::<u32>(), -50.0_f32..50.0, 0_u8..10), 0..40), 1..20),
    ) {
        let mut tree = tree_of(&vec![1.0; capacity]);
        let mut model = vec![1.0_f32; capacity];
        for update in updates {
            let slots: Vec<u32> = update.iter().map(|u| u.0 % capacity as u32).collect();
            let tds: Vec<f32> = update.iter().map(|u| if u.2 == 0 { f32::NAN } else { u.1 }).collect();
            tree.update(&slots, &tds).unwrap();
            let mut new = vec![None; capacity];
            for (&slot, &td) in slots.iter().zip(&tds) {
                if td.is_finite() {
                    let best = &mut new[slot as usize];
                    *best = Some(best.unwrap_or(0.0_f32).max(td.abs()));
                }
            }
            for (old, new) in model.iter_mut().zip(new) {
                *old = new.unwrap_or(*old);
            }
            for (slot, want) in model.iter().enumerate() {
                prop_assert_eq!(tree.priority(slot).to_bits(), want.to_bits());
            }
            assert_root_is_sum(&tree);
        }
    }

    /// Range writes equal single writes, sums included.
    #[test]
    fn range_writes_equal_single_writes(
        len in 1_usize..20_000, first in any::<u32>(), count in any::<u32>(), seed in any::<u64>(),
    ) {
        let mut stream = Philox::new(seed).stream(Purpose::Bootstrap, 0, 0);
        let first = first as usize % len;
        let count = count as usize % (len - first + 1);
        let (mut ranged, mut single) = (SumTree::new(len).unwrap(), SumTree::new(len).unwrap());
        for _ in 0..20 {
            let (slot, mass) = (stream.next_below(len as u32) as usize, u64::from(stream.next_u32()));
            ranged.set(slot, mass);
            single.set(slot, mass);
        }
        let masses: Vec<u64> = (0..count).map(|_| u64::from(stream.next_u32())).collect();
        ranged.set_range(first, masses.iter().copied());
        for (i, &mass) in masses.iter().enumerate() {
            single.set(first + i, mass);
        }
        prop_assert_eq!(ranged, single);
    }
}
