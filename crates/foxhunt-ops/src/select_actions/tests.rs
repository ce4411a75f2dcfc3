use foxhunt_core::philox::{below, unit_f32};
use foxhunt_core::{FactoredAction, Philox, Purpose};

use super::*;

fn greedy(q: &[f32]) -> u32 {
    let mut out = [0];
    select_actions(q, q.len(), None, &Explore::greedy(), &mut out);
    out[0]
}

fn explore(epsilon: f32, vector_step: u64) -> Explore {
    Explore { philox: Philox::new(3), vector_step, first_env: 0, epsilon }
}

/// Case B21: ties go to the lowest index, every run the same.
#[test]
fn ties_go_to_the_lowest_index() {
    assert_eq!(greedy(&[2.0, 2.0, 1.0]), 0);
    assert_eq!(greedy(&[1.0, 2.0, 2.0]), 1);
    assert_eq!(greedy(&[0.0, -0.0, 0.0]), 0);
}

/// Case B22: all values negative, and the first of a falling row.
#[test]
fn negative_values_have_a_maximum() {
    assert_eq!(greedy(&[-2.0, -3.0, -1.0]), 2);
    let falling: Vec<f32> = (1..=10).map(|i| -(i as f32)).collect();
    assert_eq!(greedy(&falling), 0);
    assert_eq!(greedy(&[f32::NEG_INFINITY, f32::NEG_INFINITY]), 0);
}

#[test]
fn nan_never_wins_and_an_all_nan_row_falls_back_to_flat() {
    let nan = f32::NAN;
    let mut out = [9; 3];
    let q = [nan, 1.0, 2.0, nan, 0.0, nan, nan, nan, nan, nan, 5.0, nan, nan, nan, nan];
    assert_eq!(select_actions(&q, 5, None, &Explore::greedy(), &mut out), 1);
    assert_eq!(out, [2, 2, 0]);
    let mut out = [0];
    assert_eq!(select_actions(&[nan; 45], 45, None, &Explore::greedy(), &mut out), 1);
    assert_eq!(FactoredAction::from_index(out[0]).unwrap().exposure, foxhunt_core::Exposure::Flat);
    assert_eq!(out[0], 19);
}

#[test]
fn branching_takes_one_argmax_a_branch_and_falls_back_by_branch() {
    let nan = f32::NAN;
    let mut out = [0; 2];
    let q = [
        0.0, 1.0, 2.0, 9.0, 9.0, -3.0, -1.0, -2.0, 5.0, 5.0, 5.0, //
        0.0, 9.0, 2.0, 3.0, 4.0, nan, nan, nan, nan, 0.0, 1.0,
    ];
    assert_eq!(select_actions_branching(&q, None, &Explore::greedy(), &mut out), 1);
    assert_eq!(out, [3 * 9 + 3, 9 + 2]);
}

/// The coin is word 0 and the action word 1 of the environment's block, so any device can draw the same.
#[test]
fn one_coin_a_decision_decides_with_documented_words() {
    let (rows, epsilon) = (257, 0.3);
    let q: Vec<f32> = (0..rows * 45).map(|i| ((i * 7919) % 101) as f32).collect();
    let mut out = vec![0; rows];
    select_actions(&q, 45, None, &explore(epsilon, 77), &mut out);
    let mut random = 0;
    for (b, &action) in out.iter().enumerate() {
        let [coin, word, ..] = Philox::new(3).block(Purpose::Explore, b as u32, 77, 0);
        let want = if unit_f32(coin) < epsilon {
            random += 1;
            below(word, 45)
        } else {
            argmax(&q[b * 45..(b + 1) * 45], None).unwrap()
        };
        assert_eq!(action, want, "row {b}");
    }
    assert!((50..110).contains(&random), "{random} of {rows} at epsilon {epsilon}");
}

#[test]
fn random_actions_are_uniform_over_the_joint_actions() {
    for branching in [false, true] {
        let mut counts = [0_u32; 45];
        let steps = 20_000_u64;
        let q = [0.0; 45];
        for step in 0..steps {
            let mut out = [0];
            if branching {
                select_actions_branching(&q[..11], None, &explore(1.0, step), &mut out);
            } else {
                select_actions(&q, 45, None, &explore(1.0, step), &mut out);
            }
            counts[out[0] as usize] += 1;
        }
        let want = steps as f64 / 45.0;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - want).powi(2) / want).sum();
        // 44 degrees of freedom: 99.99 % of draws are below 87.
        assert!(chi < 87.0, "chi-square {chi}, branching {branching}");
    }
}

#[test]
fn epsilon_zero_is_greedy_and_one_is_always_random() {
    let q: Vec<f32> = (0..1000 * 5).map(|i| if i % 5 == 4 { 1.0 } else { 0.0 }).collect();
    let mut out = vec![0; 1000];
    select_actions(&q, 5, None, &explore(0.0, 0), &mut out);
    assert!(out.iter().all(|&a| a == 4));
    select_actions(&q, 5, None, &explore(1.0, 0), &mut out);
    let greedy = out.iter().filter(|&&a| a == 4).count();
    assert!((120..280).contains(&greedy), "{greedy} of 1000 random actions were the greedy one");
}

#[test]
fn a_mask_binds_greedy_and_random_choices() {
    let mask = [0, 1, 0, 1, 0];
    let q = [9.0, 1.0, 9.0, 2.0, 9.0];
    let mut out = [0];
    select_actions(&q, 5, Some(&mask), &Explore::greedy(), &mut out);
    assert_eq!(out, [3]);
    let mut seen = [0; 5];
    for step in 0..500 {
        select_actions(&q, 5, Some(&mask), &explore(1.0, step), &mut out);
        seen[out[0] as usize] += 1;
    }
    assert!(seen[1] > 180 && seen[3] > 180 && seen[1] + seen[3] == 500, "{seen:?}");
    // Nothing legal: the fallback, counted, whether the coin explores or not.
    assert_eq!(select_actions(&q, 5, Some(&[0; 5]), &Explore::greedy(), &mut out), 1);
    assert_eq!(out, [2]);
    assert_eq!(select_actions(&q, 5, Some(&[0; 5]), &explore(1.0, 0), &mut out), 1);
    assert_eq!(out, [2]);

    let mask = [0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1];
    let mut seen = std::collections::BTreeMap::new();
    for step in 0..400 {
        select_actions_branching(&[0.0; 11], Some(&mask), &explore(1.0, step), &mut out);
        *seen.entry(out[0]).or_insert(0) += 1;
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [29, 35, 38, 44]);
    assert!(seen.values().all(|&n| n > 60), "{seen:?}");
}

#[test]
fn routing_takes_one_value_or_one_a_row() {
    let exposures = [0, 4, 2];
    let mut scalar = [0; 3];
    let router =
        Router { spread: &[0.5], median_spread: &[1.0], volatility: &[2.0], median_volatility: &[1.0] };
    batch_route_exposure_to_factored(&exposures, &router, &mut scalar).unwrap();
    assert_eq!(scalar, [5, 41, 23]);
    let mut rows = [0; 3];
    let router = Router {
        spread: &[0.5, 1.0, 3.0],
        median_spread: &[1.0; 3],
        volatility: &[2.0, 1.0, 0.1],
        median_volatility: &[1.0],
    };
    batch_route_exposure_to_factored(&exposures, &router, &mut rows).unwrap();
    assert_eq!(rows, [5, 36 + 6 + 1, 18]);
    assert!(batch_route_exposure_to_factored(&[5], &router, &mut [0]).is_err());

    let q = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    let mut routed = [0; 3];
    select_actions_routed(&q, None, &Explore::greedy(), &router, &mut routed);
    assert_eq!(routed, rows);
}
