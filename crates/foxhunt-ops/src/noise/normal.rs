//! Standard normal numbers that are the same bits on every engine, and what NoisyNet makes of them.
//!
//! The quantile function of the normal distribution by Wichura's algorithm AS 241 (PPND16, Applied Statistics 37, 1988):
//! ratios of polynomials, beside a root and a [portable logarithm](crate::power) in the tails. Every operation is rounded
//! on its own, so Rust and CUDA (`normal.cuh`) agree to the bit. One 32-bit word makes one number, between -6.3 and 6.3.

use crate::power::ln_portable;

type Ratio = [[f64; 8]; 2];

/// Where the density is high, in 0.180625 - q^2.
const MIDDLE: Ratio = [
    [
        3.3871328727963665,
        133.14166789178438,
        1971.5909503065513,
        13731.69376550946,
        45921.95393154987,
        67265.7709270087,
        33430.57558358813,
        2509.0809287301227,
    ],
    [
        1.0,
        42.31333070160091,
        687.1870074920579,
        5394.196021424751,
        21213.794301586597,
        39307.89580009271,
        28729.085735721943,
        5226.495278852854,
    ],
];

/// In the tails to `sqrt(-ln p)` = 5, which no 32-bit word goes beyond, in `sqrt(-ln p)` - 1.6.
const TAIL: Ratio = [
    [
        1.4234371107496835,
        4.630337846156546,
        5.769497221460691,
        3.6478483247632045,
        1.2704582524523684,
        0.2417807251774506,
        0.022723844989269184,
        0.0007745450142783414,
    ],
    [
        1.0,
        2.053191626637759,
        1.6763848301838038,
        0.6897673349851,
        0.14810397642748008,
        0.015198666563616457,
        0.0005475938084995345,
        1.0507500716444169e-09,
    ],
];

/// The normal number of a random word: the quantile at `(word + 1/2) / 2^32`.
#[must_use]
pub fn normal_of(word: u32) -> f64 {
    let p = (f64::from(word) + 0.5) * (1.0 / 4_294_967_296.0);
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(&MIDDLE, 0.180625 - q * q);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let x = ratio(&TAIL, (-ln_portable(tail)).sqrt() - 1.6);
    if q < 0.0 { -x } else { x }
}

/// `f(x) = sgn(x) sqrt(|x|)` of [`normal_of`], the factor that a unit's noise is (arXiv 1706.10295, section 3).
#[must_use]
pub fn factor_of(word: u32) -> f32 {
    let x = normal_of(word);
    let root = x.abs().sqrt();
    (if x < 0.0 { -root } else { root }) as f32
}

fn ratio([over, under]: &Ratio, r: f64) -> f64 {
    horner(over, r) / horner(under, r)
}

fn horner(c: &[f64; 8], r: f64) -> f64 {
    c[..7].iter().rev().fold(c[7], |sum, c| sum * r + c)
}
