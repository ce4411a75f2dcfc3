use super::*;

#[test]
fn max_q_is_averaged_over_rows_and_branches() {
    let mut sums = MaxQSums::default();
    assert_eq!(sums.mean(), None);
    sums.accumulate(&[1.0, 3.0, -5.0, -4.0], &[2]);
    assert_eq!(sums.mean(), Some(-0.5));
    let mut branching = MaxQSums::default();
    branching.accumulate(&[1.0, 2.0, 10.0, 4.0], &[2, 2]);
    assert_eq!(branching.mean(), Some(6.0));
}

#[test]
fn a_row_that_is_not_finite_is_left_out_and_counted() {
    let mut sums = MaxQSums::default();
    let nan = f32::NAN;
    sums.accumulate(&[nan, 2.0, nan, nan, f32::INFINITY, 0.0, 4.0, 1.0], &[2]);
    assert_eq!((sums.rows, sums.non_finite_rows, sums.mean()), (2, 2, Some(3.0)));
}

#[test]
fn divergence_is_beyond_the_threshold_or_not_finite() {
    let calm = divergence(&[-2.0, 4.0, 1.0], 10_000.0);
    assert_eq!(calm, QRange { min: -2.0, max: 4.0, mean: 1.0, finite: 3, non_finite: 0, diverged: false });
    assert!(!divergence(&[10_000.0, -10_000.0], 10_000.0).diverged);
    assert!(divergence(&[10_001.0], 10_000.0).diverged);
    assert!(divergence(&[-10_001.0], 10_000.0).diverged);
    let bad = divergence(&[f32::NAN, 1.0, f32::NEG_INFINITY], 10_000.0);
    assert_eq!((bad.min, bad.max, bad.mean, bad.non_finite, bad.diverged), (1.0, 1.0, 1.0, 2, true));
    let none = divergence(&[f32::NAN], 10_000.0);
    assert!(none.diverged && none.min.is_nan() && none.mean.is_nan());
}

#[test]
fn keys_order_as_values_do_and_come_back() {
    let values =
        [f32::MIN, -1.5, -f32::MIN_POSITIVE, -f32::from_bits(1), -0.0, 0.0, f32::from_bits(1), 2.0, f32::MAX];
    for pair in values.windows(2) {
        assert!(order_key(pair[0]) < order_key(pair[1]), "{pair:?}");
    }
    for value in values {
        assert_eq!(from_order_key(order_key(value)).to_bits(), value.to_bits());
    }
    let range = row_range(&[f32::NAN, 3.0, -2.0, f32::INFINITY]);
    assert_eq!((from_order_key(range.low), from_order_key(range.high), range.sum), (-2.0, 3.0, 1.0));
    assert_eq!((range.finite, range.non_finite), (2, 2));
}
