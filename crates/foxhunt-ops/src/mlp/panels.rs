//! Matrices cut into panels of sixteen columns, and the two products an update is made of.
//!
//! A [`Panels`] keeps sixteen columns of every row side by side: element `(r, c)` is `data[c / 16 * rows + r][c % 16]`.
//! Activations and weights are kept this way all along, so that no product has to repack its operands (packing
//! transposed weights for every product was half the time of an update).
//!
//! **Arithmetic.** Every output element is one chain `acc = fma(a_k, b_k, acc)` over k in order, starting from the
//! bias, from 0, or from what was there. It is the same chain whatever the number of rows, the tile or the vector
//! width, so a row's result does not depend on its batch, and any device with an f32 fma can equal it to the bit.
//!
//! The inner loops are plain Rust over arrays; `dispatch!` compiles them once for AVX2 with FMA and once for the
//! build's own target, and chooses at run time. That choice is the only `unsafe` of the CPU twins.
#![allow(unsafe_code)]

/// Runs a body compiled for AVX2 with FMA where the processor has both, else as the build compiles it.
macro_rules! dispatch {
    ($body:ident ( $($arg:ident : $ty:ty),* )) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma")]
            fn fast($($arg: $ty),*) {
                $body($($arg),*);
            }
            if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                // SAFETY: `fast` is an ordinary safe function but for the instructions it may use, and the line
                // above has just seen that this processor has them.
                unsafe { fast($($arg),*) };
                return;
            }
        }
        $body($($arg),*);
    }};
}

/// Columns a panel.
pub(super) const WIDTH: usize = 16;

/// A row-major matrix in panels of sixteen columns; columns beyond `cols` hold what was last written, 0 at first.
#[derive(Clone, Debug, Default)]
pub(super) struct Panels {
    /// f32 `[panels, rows, 16]`.
    data: Vec<[f32; WIDTH]>,
    rows: usize,
    cols: usize,
}

impl Panels {
    /// A zero matrix.
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        Self { data: vec![[0.0; WIDTH]; cols.div_ceil(WIDTH) * rows], rows, cols }
    }

    /// Rows allocated.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Copies row-major rows `[n, cols]` into rows `first..first + n`.
    pub(super) fn write_rows(&mut self, first: usize, values: &[f32]) {
        for (r, row) in values.chunks_exact(self.cols.max(1)).enumerate() {
            for (p, part) in row.chunks(WIDTH).enumerate() {
                self.data[p * self.rows + first + r][..part.len()].copy_from_slice(part);
            }
        }
    }

    /// Copies row `r` out, up to `out.len()` columns.
    pub(super) fn read_row(&self, r: usize, out: &mut [f32]) {
        for (p, part) in out.chunks_mut(WIDTH).enumerate() {
            part.copy_from_slice(&self.data[p * self.rows + r][..part.len()]);
        }
    }

    /// The rows of one panel.
    pub(super) fn panel(&self, p: usize) -> &[[f32; WIDTH]] {
        &self.data[p * self.rows..(p + 1) * self.rows]
    }

    /// Panels, each with its number, for packing in parallel.
    pub(super) fn panels_mut(&mut self) -> impl Iterator<Item = (usize, &mut [[f32; WIDTH]])> {
        self.data.chunks_mut(self.rows.max(1)).enumerate()
    }
}

/// Fills panel `p` of the `[k, n]` matrix whose transpose is the row-major `[n, k]` `source`.
pub(super) fn pack_transposed(panel: &mut [[f32; WIDTH]], p: usize, source: &[f32], k: usize) {
    dispatch!(pack_transposed_body(panel: &mut [[f32; WIDTH]], p: usize, source: &[f32], k: usize));
}

#[inline(always)]
fn pack_transposed_body(panel: &mut [[f32; WIDTH]], p: usize, source: &[f32], k: usize) {
    let rows = source[p * WIDTH * k..].chunks_exact(k).take(WIDTH);
    if rows.len() < WIDTH {
        panel.fill([0.0; WIDTH]);
    }
    for (c, row) in rows.enumerate() {
        for (slot, &value) in panel.iter_mut().zip(row) {
            slot[c] = value;
        }
    }
}

/// Fills panel `p` of the row-major `[k, n]` matrix `source`.
pub(super) fn pack_rows(panel: &mut [[f32; WIDTH]], p: usize, source: &[f32], n: usize) {
    let width = WIDTH.min(n - p * WIDTH);
    for (slot, row) in panel.iter_mut().zip(source.chunks_exact(n)) {
        slot[..width].copy_from_slice(&row[p * WIDTH..p * WIDTH + width]);
    }
}

/// What is done with a finished sum.
#[derive(Clone, Copy)]
pub(super) enum Finish<'a> {
    /// Nothing.
    Keep,
    /// relu that lets a NaN through.
    Relu,
    /// 0 where this matrix, of the shape of the product, is not above 0: the derivative of relu.
    Mask(&'a Panels),
}

/// `out[..rows] = finish(init + a[..rows] b)`, with `a` `[rows, k]` and `b` `[k, n]` in panels; `init` is a bias row
/// of `n` values, or none for 0.
///
/// # Panics
/// When the shapes do not fit.
pub(super) fn product(
    out: &mut Panels,
    rows: usize,
    a: &Panels,
    b: &Panels,
    init: Option<&[f32]>,
    finish: Finish<'_>,
) {
    assert!(
        a.cols == b.rows && b.cols == out.cols && rows <= a.rows && rows <= out.rows,
        "shapes of a product"
    );
    assert!(init.is_none_or(|bias| bias.len() == out.cols), "one bias for each column");
    dispatch!(product_body(
        out: &mut Panels,
        rows: usize,
        a: &Panels,
        b: &Panels,
        init: Option<&[f32]>,
        finish: Finish<'_>
    ));
}

#[inline(always)]
fn product_body(
    out: &mut Panels,
    rows: usize,
    a: &Panels,
    b: &Panels,
    init: Option<&[f32]>,
    finish: Finish<'_>,
) {
    let stride = out.rows.max(1);
    for (p, out) in out.data.chunks_exact_mut(stride).enumerate() {
        let panel = b.panel(p);
        let mut start = [0.0; WIDTH];
        if let Some(bias) = init {
            let part = &bias[p * WIDTH..bias.len().min((p + 1) * WIDTH)];
            start[..part.len()].copy_from_slice(part);
        }
        let mut r = 0;
        while r < rows {
            let out = &mut out[r..rows];
            r += match rows - r {
                1 => product_tile::<1>(out, p, r, a, panel, &start, finish),
                2 => product_tile::<2>(out, p, r, a, panel, &start, finish),
                3 => product_tile::<3>(out, p, r, a, panel, &start, finish),
                // 8 = 4 + 4, not 6 + 2: a tile of two rows waits for its own additions.
                4 | 5 | 8 => product_tile::<4>(out, p, r, a, panel, &start, finish),
                _ => product_tile::<6>(out, p, r, a, panel, &start, finish),
            };
        }
    }
}

#[inline(always)]
fn product_tile<const M: usize>(
    out: &mut [[f32; WIDTH]],
    p: usize,
    r: usize,
    a: &Panels,
    panel: &[[f32; WIDTH]],
    start: &[f32; WIDTH],
    finish: Finish<'_>,
) -> usize {
    let mut acc = [*start; M];
    for (q, b) in panel.chunks(WIDTH).enumerate() {
        let Some((a, _)) = a.data[q * a.rows + r..].split_first_chunk::<M>() else { return M };
        for c in 0..b.len().min(WIDTH) {
            for m in 0..M {
                let x = a[m][c];
                for n in 0..WIDTH {
                    acc[m][n] = x.mul_add(b[c][n], acc[m][n]);
                }
            }
        }
    }
    for (m, (out, acc)) in out.iter_mut().zip(acc).enumerate() {
        for n in 0..WIDTH {
            let x = acc[n];
            out[n] = match finish {
                Finish::Keep => x,
                Finish::Relu if x < 0.0 => 0.0,
                Finish::Relu => x,
                Finish::Mask(h) if h.data[p * h.rows + r + m][n] <= 0.0 => 0.0,
                Finish::Mask(_) => x,
            };
        }
    }
    M
}

/// Columns `16 p..` of `d` against all of `x`, over the first `rows` rows: `weight[o, i] (+)= sum_r d[r, o] x[r, i]`
/// and `bias[o] (+)= sum_r d[r, o]`. `weight` is row-major `[units, x.cols]` and holds at most sixteen units.
///
/// # Panics
/// When the shapes do not fit.
pub(super) fn outer(
    weight: &mut [f32],
    bias: &mut [f32],
    p: usize,
    d: &Panels,
    x: &Panels,
    rows: usize,
    accumulate: bool,
) {
    assert!(bias.len() <= WIDTH && weight.len() == bias.len() * x.cols, "shapes of an outer product");
    assert!(rows <= d.rows && rows <= x.rows, "rows of an outer product");
    if !accumulate {
        weight.fill(0.0);
        bias.fill(0.0);
    }
    dispatch!(outer_body(
        weight: &mut [f32],
        bias: &mut [f32],
        p: usize,
        d: &Panels,
        x: &Panels,
        rows: usize
    ));
}

#[inline(always)]
fn outer_body(weight: &mut [f32], bias: &mut [f32], p: usize, d: &Panels, x: &Panels, rows: usize) {
    let units = bias.len();
    let d = &d.panel(p)[..rows];
    let mut sums = [0.0; WIDTH];
    sums[..units].copy_from_slice(bias);
    for row in d {
        for n in 0..WIDTH {
            sums[n] += row[n];
        }
    }
    bias.copy_from_slice(&sums[..units]);
    for i in 0..x.cols.div_ceil(WIDTH) {
        let x_panel = &x.panel(i)[..rows];
        let first = i * WIDTH;
        let mut o = 0;
        while o < units {
            o += match units - o {
                1 => outer_tile::<1>(weight, x.cols, first, o, d, x_panel),
                2 => outer_tile::<2>(weight, x.cols, first, o, d, x_panel),
                3 => outer_tile::<3>(weight, x.cols, first, o, d, x_panel),
                4 | 5 | 8 => outer_tile::<4>(weight, x.cols, first, o, d, x_panel),
                _ => outer_tile::<6>(weight, x.cols, first, o, d, x_panel),
            };
        }
    }
}

#[inline(always)]
fn outer_tile<const M: usize>(
    weight: &mut [f32],
    cols: usize,
    first: usize,
    o: usize,
    d: &[[f32; WIDTH]],
    x: &[[f32; WIDTH]],
) -> usize {
    let width = WIDTH.min(cols - first);
    let mut acc = [[0.0; WIDTH]; M];
    for (m, acc) in acc.iter_mut().enumerate() {
        let at = (o + m) * cols + first;
        acc[..width].copy_from_slice(&weight[at..at + width]);
    }
    for (d, x) in d.iter().zip(x) {
        let Some(d) = d[o..].first_chunk::<M>() else { return M };
        for m in 0..M {
            for n in 0..WIDTH {
                acc[m][n] = d[m].mul_add(x[n], acc[m][n]);
            }
        }
    }
    for (m, acc) in acc.iter().enumerate() {
        let at = (o + m) * cols + first;
        weight[at..at + width].copy_from_slice(&acc[..width]);
    }
    M
}
