use super::*;

fn words(loss: f32, norm: f32) -> GuardWords {
    check(loss, norm, 1e-7, 1e6, false, 1)
}

/// Case C03: a NaN or an infinity in loss or norm halts, and its value is reported as it was.
#[test]
fn what_is_not_finite_halts() {
    for (loss, norm) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (1.0, f32::NEG_INFINITY)] {
        let w = words(loss, norm);
        assert!(w.halt_nan && !w.halt_grad_collapse | (norm == f32::NEG_INFINITY), "{loss} {norm}");
        assert_eq!((w.raw_loss.to_bits(), w.raw_grad_norm.to_bits()), (loss.to_bits(), norm.to_bits()));
    }
    assert!(words(f32::NAN, 1.0).clipped_loss.is_nan());
    assert!(!words(1.0, 1.0).halt_nan);
}

#[test]
fn the_loss_threshold_is_exclusive() {
    assert!(!words(1e6, 1.0).halt_loss_clip);
    let over = words(1.1e6, 1.0);
    assert!(over.halt_loss_clip && over.clipped_loss == 1e6 && over.raw_loss == 1.1e6);
}

#[test]
fn warm_up_hides_a_collapse() {
    assert!(check(1.0, 0.0, 1e-7, 1e6, false, 1).halt_grad_collapse);
    assert!(!check(1.0, 0.0, 1e-7, 1e6, true, 1).halt_grad_collapse);
    assert!(!check(1.0, 1e-7, 1e-7, 1e6, false, 1).halt_grad_collapse);
}

/// Case C17: three zeros trip; a NaN halts and neither counts nor resets; a healthy norm resets.
#[test]
fn collapse_needs_patience_and_nan_is_no_collapse() {
    let run = |norms: &[f32]| {
        let mut counter = CollapseCounter::default();
        let mut seen = Vec::new();
        for &norm in norms {
            let w = words(1.0, norm);
            seen.push((w.halt_nan, counter.observe(&w, 3)));
        }
        seen
    };
    assert_eq!(run(&[0.0, 0.0, 0.0]), [(false, false), (false, false), (false, true)]);
    assert_eq!(run(&[0.0, f32::NAN, 0.0]), [(false, false), (true, false), (false, false)]);
    assert!(run(&[0.0, 1.0, 0.0, 0.0]).iter().all(|&(nan, trip)| !nan && !trip));
    // The NaN did not reset: two zeros before it and one after are three.
    assert!(run(&[0.0, 0.0, f32::NAN, 0.0])[3].1);
}

#[test]
fn sums_leave_out_and_count_what_is_not_finite() {
    let mut sums = GuardSums::default();
    assert_eq!(sums.means(), (None, None));
    sums.add(1.0, 2.0);
    sums.add(f32::NAN, 4.0);
    sums.add(3.0, f32::INFINITY);
    assert_eq!(sums.means(), (Some(2.0), Some(3.0)));
    assert_eq!(sums.non_finite, 2);
}

#[test]
fn words_survive_the_round_trip_with_a_distinct_value_each() {
    let w = GuardWords {
        halt_nan: false,
        halt_loss_clip: true,
        halt_grad_collapse: false,
        clipped_loss: 3.5,
        raw_loss: 4.5,
        raw_grad_norm: 5.5,
        step: 7 << 32 | 6,
    };
    assert_eq!(w.to_words()[6..], [6, 7]);
    assert_eq!(w.to_words()[1], 1.0_f32.to_bits());
    assert_eq!(GuardWords::from_words(w.to_words()), w);
}

#[test]
fn non_finite_values_are_counted() {
    assert_eq!(count_non_finite(&[1.0, f32::NAN, f32::INFINITY, -0.0, f32::MAX]), 2);
    assert_eq!(count_non_finite(&[]), 0);
}
