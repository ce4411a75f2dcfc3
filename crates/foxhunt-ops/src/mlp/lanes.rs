//! Sixteen f32 at a time: what the inner loops of the products are made of.
//!
//! One trait with a portable implementation and one of two AVX2 registers; both round once a fused multiply-add, so
//! they agree to the bit. The loops name the lanes rather than trusting the compiler to find them, because whether
//! it does changed with the optimisation level by a factor of fifteen.
#![allow(unsafe_code)]

/// Columns a panel.
pub(super) const WIDTH: usize = 16;

/// Sixteen running sums.
pub(super) trait Lanes: Copy {
    /// Reads sixteen values.
    fn load(from: &[f32; WIDTH]) -> Self;
    /// Writes sixteen values.
    fn store(self, to: &mut [f32; WIDTH]);
    /// `self + x * y` in each lane, rounded once.
    fn fma(self, x: f32, y: Self) -> Self;
}

/// Any processor.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; WIDTH]);

impl Lanes for Portable {
    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        *to = self.0;
    }

    #[inline(always)]
    fn fma(mut self, x: f32, y: Self) -> Self {
        for (sum, y) in self.0.iter_mut().zip(y.0) {
            *sum = x.mul_add(y, *sum);
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::{__m256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps};

    use super::{Lanes, WIDTH};

    /// Two registers of eight. Only code that has seen AVX2 and FMA on this processor may use it: `dispatch!` of the
    /// products is that code, and the type is not visible elsewhere.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256, __m256);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn load(from: &[f32; WIDTH]) -> Self {
            let from = from.as_ptr();
            // SAFETY: the array has sixteen floats, so eight can be read at 0 and at 8, at any alignment. AVX is
            // there: see the type.
            unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f32; WIDTH]) {
            let to = to.as_mut_ptr();
            // SAFETY: as in `load`, for writing; the borrow is exclusive.
            unsafe {
                _mm256_storeu_ps(to, self.0);
                _mm256_storeu_ps(to.add(8), self.1);
            }
        }

        #[inline(always)]
        fn fma(self, x: f32, y: Self) -> Self {
            // SAFETY: FMA is there: see the type. The instructions touch no memory.
            unsafe {
                let x = _mm256_set1_ps(x);
                Self(_mm256_fmadd_ps(x, y.0, self.0), _mm256_fmadd_ps(x, y.1, self.1))
            }
        }
    }
}
