use foxhunt_core::settings::TargetUpdate;

use super::*;

const PARAMS: AdamParams = AdamParams { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

/// Case C18: ten gradients of 1, then -2, with and without the state that a resume must bring back.
#[test]
fn moments_and_step_count_make_the_eleventh_step() {
    let (mut w, mut m, mut v) = ([0.0_f32], [0.0_f32], [0.0_f32]);
    for t in 1..=10 {
        adam_step(&AdamScale::new(&PARAMS, t, 1e-3, 1.0), &mut w, &mut m, &mut v, &[1.0]);
    }
    assert!((m[0] - 0.651_321_56).abs() < 2e-7, "{}", m[0]);
    assert!((v[0] - 0.009_955_12).abs() < 2e-8, "{}", v[0]);
    let eleventh = |mut m: [f32; 1], mut v: [f32; 1], t| {
        let mut w = [0.0_f32];
        adam_step(&AdamScale::new(&PARAMS, t, 1e-3, 1.0), &mut w, &mut m, &mut v, &[-2.0]);
        -w[0]
    };
    assert!((eleventh(m, v, 11) - 4.986e-4).abs() < 1e-8, "{}", eleventh(m, v, 11));
    assert!((eleventh([0.0], [0.0], 1) + 1e-3).abs() < 1e-8, "all state lost");
    assert!((eleventh(m, v, 1) - 1.034_16e-3).abs() < 1e-8, "step count lost: {}", eleventh(m, v, 1));
}

/// Each squaring doubles the relative error so far and rounds once: `exponent` roundings at most.
#[test]
fn powers_are_those_of_the_library_within_a_rounding_a_factor() {
    for base in [0.0, 0.5, 0.9, 0.999, 1.0 - 1e-9] {
        for exponent in [0, 1, 2, 3, 7, 64, 1000, 123_456_789, u64::MAX] {
            let (got, want) = (power(base, exponent), base.powf(exponent as f64));
            let bound = want * (exponent as f64 + 1.0) * f64::EPSILON;
            // Below the normal numbers nothing is left of a relative error.
            assert!((got - want).abs() <= bound || want < 1e-300, "{base}^{exponent}: {got}, not {want}");
        }
    }
    assert_eq!((power(0.9, 1), power(0.5, 10), power(0.0, 0)), (0.9, 1.0 / 1024.0, 1.0));
}

/// Case C03: a norm that is not finite has no clip coefficient.
#[test]
fn a_norm_that_is_not_finite_cannot_clip() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let norm = global_norm(&[1.0, bad]);
        assert!(!norm.is_finite());
        assert_eq!(clip_coefficient(norm, 1.0), None);
    }
    // Large finite gradients are finite: squares are summed in f64.
    assert!((global_norm(&[3e38, 3e38]) / (3e38 * 2_f64.sqrt()) - 1.0).abs() < 1e-6);
}

/// Case C05: zero norm, zero limit, and norm equal to the limit.
#[test]
fn clipping_never_divides_zero_by_zero() {
    assert_eq!(clip_coefficient(0.0, 1.0), Some(1.0));
    assert_eq!(clip_coefficient(0.0, 0.0), Some(1.0));
    assert_eq!(clip_coefficient(5.0, 5.0), Some(1.0));
    assert_eq!(clip_coefficient(5.0, 0.0), Some(0.0));
    assert_eq!(clip_coefficient(global_norm(&[3.0, 4.0]), 1.0), Some(0.2));
    let (mut w, mut m, mut v) = ([1.0_f32], [0.0_f32], [0.0_f32]);
    adam_step(&AdamScale::new(&PARAMS, 1, 1e-3, 0.0), &mut w, &mut m, &mut v, &[7.0]);
    assert_eq!((w, m, v), ([1.0], [0.0], [0.0]));
}

/// Case B09: the target has its own memory and stays where it was.
#[test]
fn the_target_does_not_move_with_the_online_network() {
    let (mut online, mut target) = ([1.0_f32], [0.0_f32]);
    hard_sync(&mut target, &online);
    assert_ne!(online.as_ptr(), target.as_ptr());
    online[0] -= 0.1 * 1.0;
    assert_eq!((online[0], target[0]), (0.9, 1.0));
    polyak(&mut target, &online, 0.5);
    assert!((target[0] - 0.95).abs() < 1e-7);
}

/// Cases B10 and B13: the interval counts applied updates and nothing else; the first copy is at update N.
#[test]
fn hard_sync_happens_every_n_updates_first_at_n() {
    let syncs = |every, updates: u64| -> Vec<u64> {
        (0..=updates).filter(|&u| hard_sync_due(TargetUpdate::Hard { every }, u)).collect()
    };
    assert_eq!(syncs(501, 5010), (1..=10).map(|k| 501 * k).collect::<Vec<_>>());
    // 40,000 env steps with one update per 4 are 10,000 updates; 10,000 env steps are 2,500 updates.
    assert_eq!(syncs(2_500, 40_000 / 4).len(), 4);
    assert!(!hard_sync_due(TargetUpdate::Polyak { tau: 0.5 }, 4));
}

/// Sizes around every block edge, against a plain f64 loop.
#[test]
fn every_size_equals_a_plain_loop() {
    for n in [1, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 100_003] {
        let value = |i: usize, k: usize| ((i * 37 + k * 11) % 201) as f32 / 100.0 - 1.0;
        let g: Vec<f32> = (0..n).map(|i| value(i, 1)).collect();
        let norm: f64 = g.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!((global_norm(&g) / norm - 1.0).abs() < 1e-12, "n {n}");
        let mut w: Vec<f32> = (0..n).map(|i| value(i, 2)).collect();
        let mut m: Vec<f32> = (0..n).map(|i| value(i, 3)).collect();
        let mut v: Vec<f32> = (0..n).map(|i| value(i, 4).abs() + 0.01).collect();
        let (w0, m0, v0) = (w.clone(), m.clone(), v.clone());
        adam_step(&AdamScale::new(&PARAMS, 7, 1e-3, 0.5), &mut w, &mut m, &mut v, &g);
        for i in 0..n {
            let g = 0.5 * f64::from(g[i]);
            let m1 = 0.9 * f64::from(m0[i]) + 0.1 * g;
            let v1 = 0.999 * f64::from(v0[i]) + 0.001 * g * g;
            let hat = (m1 / (1.0 - 0.9_f64.powi(7))) / ((v1 / (1.0 - 0.999_f64.powi(7))).sqrt() + 1e-8);
            // A few roundings of values of size one.
            assert!(
                (f64::from(m[i]) - m1).abs() < 3e-7 && (f64::from(v[i]) - v1).abs() < 3e-7,
                "n {n} i {i}"
            );
            assert!((f64::from(w[i]) - (f64::from(w0[i]) - 1e-3 * hat)).abs() < 3e-7, "n {n} i {i}");
        }
    }
}
