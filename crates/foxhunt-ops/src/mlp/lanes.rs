//! Sixteen f32 at a time: what the inner loops of the products are made of.
//!
//! One trait with a portable implementation and one of two AVX2 registers; both round once a fused multiply-add, so
//! they agree to the bit. The loops name the lanes rather than trusting the compiler to find them, because whether
//! it does changed with the optimisation level by a factor of fifteen. That the processor has AVX2 and FMA is
//! carried by the type: only a check of the processor makes one.

/// Columns a panel.
pub(super) const WIDTH: usize = 16;

/// A way to compute on sixteen lanes.
pub(super) trait Lanes: Copy {
    /// Sixteen running sums.
    type Sums: Copy;
    /// Reads sixteen values.
    fn load(self, from: &[f32; WIDTH]) -> Self::Sums;
    /// Writes sixteen values.
    fn store(self, sums: Self::Sums, to: &mut [f32; WIDTH]);
    /// `sums + x * y` in each lane, rounded once.
    fn fma(self, sums: Self::Sums, x: f32, y: Self::Sums) -> Self::Sums;
}

/// Any processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    type Sums = [f32; WIDTH];

    #[inline(always)]
    fn load(self, from: &[f32; WIDTH]) -> Self::Sums {
        *from
    }

    #[inline(always)]
    fn store(self, sums: Self::Sums, to: &mut [f32; WIDTH]) {
        *to = sums;
    }

    #[inline(always)]
    fn fma(self, mut sums: Self::Sums, x: f32, y: Self::Sums) -> Self::Sums {
        for (sum, y) in sums.iter_mut().zip(y) {
            *sum = x.mul_add(y, *sum);
        }
        sums
    }
}

/// A processor with AVX2 and FMA: two registers of eight.
#[cfg(target_arch = "x86_64")]
impl Lanes for pulp::x86::V3 {
    type Sums = [pulp::f32x8; 2];

    #[inline(always)]
    fn load(self, from: &[f32; WIDTH]) -> Self::Sums {
        pulp::cast(*from)
    }

    #[inline(always)]
    fn store(self, sums: Self::Sums, to: &mut [f32; WIDTH]) {
        *to = pulp::cast(sums);
    }

    #[inline(always)]
    fn fma(self, sums: Self::Sums, x: f32, y: Self::Sums) -> Self::Sums {
        let x = self.splat_f32x8(x);
        [self.mul_add_f32x8(x, y[0], sums[0]), self.mul_add_f32x8(x, y[1], sums[1])]
    }
}
