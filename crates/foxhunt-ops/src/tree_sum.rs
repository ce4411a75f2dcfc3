//! Sums of f64 in one fixed tree, so that every engine gives the same bits at full speed.
//!
//! **Contract.** Value `i` is added to running sum `i % 256`, each of which starts at 0 and takes its values in order;
//! then the upper half of the running sums is added to the lower half, from 128 down to 1. A processor adds a vector at
//! a time, a block of 256 threads adds a value a thread, and neither the number of threads nor a launch shape shows in
//! the result. `tree_sum.cuh` is the CUDA twin.

/// Running sums.
pub const LANES: usize = 256;

/// CUDA twin of this module, for inclusion by kernels under the name `tree_sum.cuh`.
pub const TREE_SUM_CUH: &str = include_str!("tree_sum.cuh");

/// A sum that values are added to one by one.
#[derive(Clone, Debug)]
pub struct TreeSum {
    lanes: [f64; LANES],
    next: usize,
}

impl Default for TreeSum {
    fn default() -> Self {
        Self { lanes: [0.0; LANES], next: 0 }
    }
}

impl TreeSum {
    /// Adds the next value.
    pub fn add(&mut self, value: f64) {
        self.lanes[self.next % LANES] += value;
        self.next += 1;
    }

    /// The sum of the values so far.
    #[must_use]
    pub fn total(&self) -> f64 {
        fold(self.lanes)
    }
}

/// The sum of `value` over `values`.
#[must_use]
pub fn tree_sum(values: &[f32], value: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    for chunk in values.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += value(f64::from(x));
        }
    }
    fold(lanes)
}

fn fold(mut lanes: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers add exactly in any order; one by one and all at once are the same bits for what does not.
    #[test]
    fn every_value_is_added_once_and_in_one_order() {
        for n in [0_usize, 1, 2, 255, 256, 257, 1000, 4097] {
            let whole: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(tree_sum(&whole, |x| x), (n * n.saturating_sub(1) / 2) as f64, "n {n}");
            let rough: Vec<f32> = (0..n).map(|i| ((i * 37 % 1009) as f32).sqrt() - 9.7).collect();
            let mut one_by_one = TreeSum::default();
            rough.iter().for_each(|&x| one_by_one.add(f64::from(x) * 1.1));
            let at_once = tree_sum(&rough, |x| x * 1.1);
            assert_eq!(at_once.to_bits(), one_by_one.total().to_bits(), "n {n}");
            let plain: f64 = rough.iter().map(|&x| f64::from(x) * 1.1).sum();
            assert!((at_once - plain).abs() <= 1e-12 * n as f64 * 30.0);
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert!(tree_sum(&[1.0, f32::NAN, 2.0], |x| x).is_nan());
        assert_eq!(tree_sum(&[1.0, f32::INFINITY], |x| x), f64::INFINITY);
    }
}
