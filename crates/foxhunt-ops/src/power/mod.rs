//! Powers, logarithms and exponentials that are the same bits on every engine: `x^a` for priorities and importance
//! weights, `ln x` for rewards, `e^x` and `ln x` for softmax policies and distributions.
//!
//! The library `powf` of a CPU and of a GPU differ in the last places, and one differing place moves a mass, so
//! sampled indices would drift apart. Here `2^x` and `log2` are short polynomials in f64, written as plain
//! additions and multiplications in one fixed order. IEEE 754 defines each of those, so Rust and CUDA
//! (`power.cuh`, which uses `__dadd_rn` and `__dmul_rn` so that nothing is contracted) agree to the bit. The
//! relative error is below 5e-12, so the f32 result is nearly always the correctly rounded one. It does not
//! replace `powf` elsewhere.
//!
//! The coefficients interpolate `log2(1 + t) / t` on `[1/sqrt(2) - 1, sqrt(2) - 1]` and `(2^f - 1) / f` on
//! `[-1/2, 1/2]` at Chebyshev nodes, computed with 60 digits.

#[cfg(test)]
mod tests;

use std::f64::consts::{LN_2, LOG2_E};

/// CUDA twin of this module, for inclusion by kernels under the name `power.cuh`.
pub const POWER_CUH: &str = include_str!("power.cuh");

const LOG2: [f64; 14] = [
    1.4426950408862034,
    -0.7213475203430864,
    0.4808983490727961,
    -0.36067378977100695,
    0.28853876232996745,
    -0.24044662677727305,
    0.20610869528306625,
    -0.18043268521020117,
    0.16018226130296026,
    -0.14252340755410017,
    0.13062890256021095,
    -0.13478928738366042,
    0.13113743753686682,
    -0.06806287590390596,
];

const EXP2: [f64; 8] = [
    0.6931471805568324,
    0.24022650695888503,
    0.055504109063258665,
    0.00961812913523614,
    0.0013333478473685416,
    0.00015403475186530786,
    1.5303700711365693e-05,
    1.325080551750225e-06,
];

const TWO_54: f64 = 18_014_398_509_481_984.0;

/// Bits of 1/sqrt(2), where the mantissa range starts.
const LOW: i64 = 0x3FE6_A09E_667F_3BCD;

/// `log2(x)` for a positive, normal, finite `x`; any positive f32, turned into f64, is one. Exact for powers of two.
#[must_use]
pub fn log2_portable(x: f64) -> f64 {
    let bits = x.to_bits() as i64;
    let exponent = (bits - LOW) >> 52;
    let t = f64::from_bits((bits - (exponent << 52)) as u64) - 1.0;
    let c = &LOG2;
    let t2 = t * t;
    let t4 = t2 * t2;
    let low =
        ((c[0] + c[1] * t) + (c[2] + c[3] * t) * t2) + ((c[4] + c[5] * t) + (c[6] + c[7] * t) * t2) * t4;
    let high = ((c[8] + c[9] * t) + (c[10] + c[11] * t) * t2) + (c[12] + c[13] * t) * t4;
    exponent as f64 + (low + high * (t4 * t4)) * t
}

/// `ln(x)` for any `x`: the base-2 logarithm times ln 2, exactly 0 at 1; NaN below zero, as the library's.
#[must_use]
pub fn ln_portable(x: f64) -> f64 {
    if (f64::MIN_POSITIVE..f64::INFINITY).contains(&x) {
        return log2_portable(x) * LN_2;
    }
    if x > 0.0 {
        // Infinity stays; a subnormal number is made normal first.
        return if x == f64::INFINITY { x } else { (log2_portable(x * TWO_54) - 54.0) * LN_2 };
    }
    if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN }
}

/// `2^x` for `x` in [-1000, 1000]. Exact for integers.
#[must_use]
pub fn exp2_portable(x: f64) -> f64 {
    let whole = x.round_ties_even();
    let f = x - whole;
    let c = &EXP2;
    let f2 = f * f;
    let sum = ((c[0] + c[1] * f) + (c[2] + c[3] * f) * f2)
        + ((c[4] + c[5] * f) + (c[6] + c[7] * f) * f2) * (f2 * f2);
    (1.0 + f * sum) * f64::from_bits(((whole as i64 + 1023) << 52) as u64)
}

/// `e^x` for any `x`, exactly 1 at 0: the power of 2 of `x log2 e`. 0 below -690 and infinite above 690, so that every
/// other result is a normal number; NaN stays NaN.
#[must_use]
pub fn exp_portable(x: f64) -> f64 {
    if x < -690.0 {
        return 0.0;
    }
    if x > 690.0 {
        return f64::INFINITY;
    }
    if x.is_nan() { x } else { exp2_portable(x * LOG2_E) }
}

/// `x^a` for finite `x >= 0` and `a` in [0, 4]; `0^0` is 1 and `0^a` is 0. `x^1` is `x` to the bit.
#[must_use]
pub fn pow_portable(x: f32, a: f32) -> f32 {
    if a == 0.0 {
        return 1.0;
    }
    if x == 0.0 {
        return 0.0;
    }
    exp2_portable(f64::from(a) * log2_portable(f64::from(x))) as f32
}

/// Importance weight over the batch maximum: `(w_min / w)^beta` for integer masses `w >= w_min >= 1`, each rounded
/// to f32 first (`u64 as f32`, to nearest, ties to even). Exactly 1 when the two are equal.
#[must_use]
pub fn weight_portable(w_min: f32, w: f32, beta: f32) -> f32 {
    exp2_portable(f64::from(beta) * (log2_portable(f64::from(w_min)) - log2_portable(f64::from(w)))) as f32
}
