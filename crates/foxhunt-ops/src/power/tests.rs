use super::{exp_portable, exp2_portable, ln_portable, log2_portable, pow_portable, weight_portable};
use foxhunt_core::philox::{Philox, Purpose};

/// Against the library's f64 functions over the whole range that priorities and weights use.
#[test]
fn close_to_the_library() {
    let mut draws = Philox::new(3).stream(Purpose::Bootstrap, 0, 0);
    for _ in 0..200_000 {
        let x = (draws.next_f64() * 280.0 - 149.0).exp2();
        assert!((log2_portable(x) - x.log2()).abs() < 3e-12 + 3e-16 * x.log2().abs(), "log2 of {x:e}");
        let y = draws.next_f64() * 300.0 - 150.0;
        assert!((exp2_portable(y) / y.exp2() - 1.0).abs() < 4e-12, "2^{y}");
    }
}

/// Cases A13, A16: the edges are exact, so alpha 0 and alpha 1 lose nothing.
#[test]
fn exact_where_it_must_be() {
    for a in [0.25, 0.5, 0.6, 1.0] {
        assert_eq!(pow_portable(0.0, a), 0.0);
        assert_eq!(pow_portable(1.0, a), 1.0);
    }
    assert_eq!(pow_portable(0.0, 0.0), 1.0);
    assert_eq!(pow_portable(4.0, 0.5), 2.0);
    assert_eq!(weight_portable(7.0, 7.0, 0.43), 1.0);
    assert_eq!(weight_portable(1.0, 3.0, 0.0), 1.0);
    assert_eq!(weight_portable(1.0, 4.0, 0.5), 0.5);
    let mut draws = Philox::new(4).stream(Purpose::Bootstrap, 0, 0);
    for _ in 0..100_000 {
        let x = f32::from_bits(draws.next_below(0x7f80_0000));
        assert_eq!(pow_portable(x, 1.0), x);
    }
    assert_eq!(pow_portable(f32::from_bits(1), 1.0), f32::from_bits(1));
    assert_eq!(pow_portable(f32::MAX, 1.0), f32::MAX);
}

/// The order of f32 powers is kept: a larger TD error never gets a smaller priority.
#[test]
fn keeps_order() {
    let mut draws = Philox::new(5).stream(Purpose::Bootstrap, 0, 0);
    for _ in 0..200_000 {
        let bits = draws.next_below(0x7f7f_fff0);
        let (x, y) = (f32::from_bits(bits), f32::from_bits(bits + 1 + draws.next_below(8)));
        assert!(pow_portable(x, 0.6) <= pow_portable(y, 0.6), "{x} and {y}");
    }
}

#[test]
fn logarithms_are_those_of_the_library_and_exact_at_one() {
    assert_eq!(ln_portable(1.0).to_bits(), 0);
    for i in 0..200_000_u32 {
        let x = 0.01 + f64::from(i) * 1e-5;
        let want = x.ln();
        // Relative to the result: a reward near zero keeps its digits.
        assert!((ln_portable(x) - want).abs() <= 1e-11 * want.abs(), "ln({x})");
    }
    for x in [1e-320, f64::MIN_POSITIVE, 3e-200, 7e299, f64::MAX] {
        assert!((ln_portable(x) - x.ln()).abs() <= 1e-11 * x.ln().abs(), "ln({x})");
    }
    assert_eq!(ln_portable(f64::INFINITY), f64::INFINITY);
    assert_eq!([ln_portable(0.0), ln_portable(-0.0)], [f64::NEG_INFINITY; 2]);
    assert!(
        ln_portable(-1.0).is_nan()
            && ln_portable(f64::NAN).is_nan()
            && ln_portable(f64::NEG_INFINITY).is_nan()
    );
}

#[test]
fn exponentials_are_those_of_the_library_and_exact_at_zero() {
    assert_eq!([exp_portable(0.0), exp_portable(-0.0)], [1.0; 2]);
    let mut draws = Philox::new(6).stream(Purpose::Bootstrap, 0, 0);
    for i in 0..200_000 {
        // Half of them where a softmax has its mass.
        let reach = if i % 2 == 0 { 690.0 } else { 20.0 };
        let x = (draws.next_f64() * 2.0 - 1.0) * reach;
        assert!((exp_portable(x) / x.exp() - 1.0).abs() < 5e-12, "e^{x}");
        assert!((ln_portable(exp_portable(x)) - x).abs() < 1e-11 * (1.0 + x.abs()), "ln e^{x}");
    }
    for x in [-690.0, 690.0] {
        assert!(exp_portable(x).is_normal());
    }
    assert_eq!([exp_portable(-691.0), exp_portable(f64::NEG_INFINITY)], [0.0; 2]);
    assert_eq!([exp_portable(691.0), exp_portable(f64::INFINITY)], [f64::INFINITY; 2]);
    assert!(exp_portable(f64::NAN).is_nan());
}
