//! A safe face for the matrix product of the `gemm` crate: strided views in, a row-major product out.
//!
//! The only `unsafe` of the CPU twins is here: `gemm` takes raw pointers, this function takes slices and checks
//! that every index lies inside. It runs on the calling thread; who calls it divides the work.
#![allow(unsafe_code)]

use gemm::Parallelism;

/// A matrix inside a slice: element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> View<'a> {
    /// Row-major `rows` by `cols`, rows `stride` apart.
    pub(super) fn row_major(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        let view = Self { data, rows, cols, row_stride: stride, col_stride: 1 };
        assert!(view.last().is_none_or(|last| last < data.len()), "the view leaves its slice");
        view
    }

    /// The transpose, of the same elements.
    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    fn last(&self) -> Option<usize> {
        (self.rows > 0 && self.cols > 0)
            .then(|| (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride)
    }
}

/// `dst = lhs rhs`, or `dst += lhs rhs` when `accumulate`; `dst` is row-major `lhs.rows` by `rhs.cols`.
///
/// # Panics
/// When the shapes do not fit.
pub(super) fn matmul(dst: &mut [f32], lhs: View<'_>, rhs: View<'_>, accumulate: bool) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    assert_eq!(k, rhs.rows, "inner sizes");
    assert_eq!(dst.len(), m * n, "dst must be [{m}, {n}]");
    if k == 0 {
        if !accumulate {
            dst.fill(0.0);
        }
        return;
    }
    // SAFETY: gemm reads element (i, j) of each input at i * row_stride + j * col_stride and writes dst at
    // i * n + j, for i and j below the sizes given. `View` is only built (and transposed) with its last element
    // inside its slice, and dst has m * n elements, so every access is inside a live slice; dst is borrowed
    // mutably, so it overlaps no input. Strides fit isize because they index slices of f32.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr(),
            1,
            n as isize,
            accumulate,
            lhs.data.as_ptr(),
            lhs.col_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.col_stride as isize,
            rhs.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
