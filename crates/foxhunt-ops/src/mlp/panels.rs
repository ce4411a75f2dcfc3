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
//! The inner loops are written over [`Lanes`] and compiled twice; [`dispatch!`] chooses at run time by what the
//! processor has.

use std::ops::Range;

use super::lanes::{Lanes, Portable};

pub(super) use super::lanes::WIDTH;

/// Moved into a closure, it makes it one that can be called once only.
struct Once;

/// Runs a body with AVX2 lanes where the processor has AVX2 and FMA, else with portable ones.
///
/// The closure is one for a single call: a closure that could be called again is reached through a shim that builds
/// without link-time optimisation do not inline, and outside the vectorised function every lane operation is a call.
macro_rules! dispatch {
    ($body:ident ( $($arg:ident),* )) => {{
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = pulp::x86::V3::try_new() {
            let once = Once;
            return lanes.vectorize(
                #[inline(always)]
                move || {
                    let _once: Once = once;
                    $body(lanes, $($arg),*);
                },
            );
        }
        $body(Portable, $($arg),*);
    }};
}

/// Sixteen columns of one row, in one cache line, so that no load touches two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line([f32; WIDTH]);

/// A row-major matrix in panels of sixteen columns; columns beyond `cols` hold what was last written, 0 at first.
#[derive(Clone, Debug, Default)]
pub(super) struct Panels {
    /// f32 `[panels, rows, 16]`.
    data: Vec<Line>,
    rows: usize,
    cols: usize,
}

impl Panels {
    /// A zero matrix.
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        Self { data: vec![Line([0.0; WIDTH]); cols.div_ceil(WIDTH) * rows], rows, cols }
    }

    /// Rows allocated.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Copies row-major rows `[n, cols]` into rows `first..first + n`.
    pub(super) fn write_rows(&mut self, first: usize, values: &[f32]) {
        for (r, row) in values.chunks_exact(self.cols.max(1)).enumerate() {
            for (p, part) in row.chunks(WIDTH).enumerate() {
                self.data[p * self.rows + first + r].0[..part.len()].copy_from_slice(part);
            }
        }
    }

    /// Copies row `r` out, up to `out.len()` columns.
    pub(super) fn read_row(&self, r: usize, out: &mut [f32]) {
        for (p, part) in out.chunks_mut(WIDTH).enumerate() {
            part.copy_from_slice(&self.data[p * self.rows + r].0[..part.len()]);
        }
    }

    /// The rows of one panel.
    pub(super) fn panel(&self, p: usize) -> &[Line] {
        &self.data[p * self.rows..(p + 1) * self.rows]
    }

    /// Panels, each with its number, for packing in parallel.
    pub(super) fn panels_mut(&mut self) -> impl Iterator<Item = (usize, &mut [Line])> {
        self.data.chunks_mut(self.rows.max(1)).enumerate()
    }
}

/// Fills panel `p` of the `[k, n]` matrix whose transpose is the row-major `[n, k]` `source`.
pub(super) fn pack_transposed(panel: &mut [Line], p: usize, source: &[f32], k: usize) {
    let rows = source[p * WIDTH * k..].chunks_exact(k).take(WIDTH);
    for (c, row) in rows.enumerate() {
        for (slot, &value) in panel.iter_mut().zip(row) {
            slot.0[c] = value;
        }
    }
}

/// Fills panel `p` of the row-major `[k, n]` matrix `source`.
pub(super) fn pack_rows(panel: &mut [Line], p: usize, source: &[f32], n: usize) {
    let width = WIDTH.min(n - p * WIDTH);
    for (slot, row) in panel.iter_mut().zip(source.chunks_exact(n)) {
        slot.0[..width].copy_from_slice(&row[p * WIDTH..p * WIDTH + width]);
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
    dispatch!(product_body(out, rows, a, b, init, finish));
}

#[inline(always)]
fn product_body<L: Lanes>(
    lanes: L,
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
                1 => product_tile::<L, 1>(lanes, out, p, r, a, panel, &start, finish),
                2 => product_tile::<L, 2>(lanes, out, p, r, a, panel, &start, finish),
                3 => product_tile::<L, 3>(lanes, out, p, r, a, panel, &start, finish),
                // 8 = 4 + 4, not 6 + 2: a tile of two rows waits for its own additions.
                4 | 5 | 8 => product_tile::<L, 4>(lanes, out, p, r, a, panel, &start, finish),
                _ => product_tile::<L, 6>(lanes, out, p, r, a, panel, &start, finish),
            };
        }
    }
}

/// Rows `r..r + M` of panel `p`; gives M.
#[inline(always)]
fn product_tile<L: Lanes, const M: usize>(
    lanes: L,
    out: &mut [Line],
    p: usize,
    r: usize,
    a: &Panels,
    panel: &[Line],
    start: &[f32; WIDTH],
    finish: Finish<'_>,
) -> usize {
    let mut acc = [lanes.load(start); M];
    let (whole, rest) = panel.as_chunks::<WIDTH>();
    for (q, b) in whole.iter().enumerate() {
        let Some(a) = a.data[q * a.rows + r..].first_chunk::<M>() else { return M };
        for c in 0..WIDTH {
            let b = lanes.load(&b[c].0);
            for m in 0..M {
                acc[m] = lanes.fma(acc[m], a[m].0[c], b);
            }
        }
    }
    if let Some(a) = a.data[a.data.len().min(whole.len() * a.rows + r)..].first_chunk::<M>() {
        for (c, b) in rest.iter().enumerate() {
            let b = lanes.load(&b.0);
            for m in 0..M {
                acc[m] = lanes.fma(acc[m], a[m].0[c], b);
            }
        }
    }
    for (m, (out, acc)) in out.iter_mut().zip(acc).enumerate() {
        lanes.store(acc, &mut out.0);
        match finish {
            Finish::Keep => {}
            Finish::Relu => out.0.iter_mut().for_each(|x| *x = if *x < 0.0 { 0.0 } else { *x }),
            Finish::Mask(h) => {
                for (x, &h) in out.0.iter_mut().zip(&h.data[p * h.rows + r + m].0) {
                    *x = if h <= 0.0 { 0.0 } else { *x };
                }
            }
        }
    }
    M
}

/// Columns `16 p..` of `d` against all of `x`, over `rows`: `weight[o, i] (+)= sum_r d[r, o] x[r, i]`
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
    rows: Range<usize>,
    accumulate: bool,
) {
    assert!(bias.len() <= WIDTH && weight.len() == bias.len() * x.cols, "shapes of an outer product");
    assert!(rows.end <= d.rows && rows.end <= x.rows, "rows of an outer product");
    if !accumulate {
        weight.fill(0.0);
        bias.fill(0.0);
    }
    dispatch!(outer_body(weight, bias, p, d, x, rows));
}

#[inline(always)]
fn outer_body<L: Lanes>(
    lanes: L,
    weight: &mut [f32],
    bias: &mut [f32],
    p: usize,
    d: &Panels,
    x: &Panels,
    rows: Range<usize>,
) {
    let units = bias.len();
    let d = &d.panel(p)[rows.clone()];
    let mut sums = [0.0; WIDTH];
    sums[..units].copy_from_slice(bias);
    for row in d {
        for n in 0..WIDTH {
            sums[n] += row.0[n];
        }
    }
    bias.copy_from_slice(&sums[..units]);
    for i in 0..x.cols.div_ceil(WIDTH) {
        let x_panel = &x.panel(i)[rows.clone()];
        // Sixteen units are 6 + 6 + 4; units beyond those of the layer are summed and dropped.
        outer_tile::<L, 6, 0>(lanes, weight, x.cols, i * WIDTH, d, x_panel);
        outer_tile::<L, 6, 6>(lanes, weight, x.cols, i * WIDTH, d, x_panel);
        outer_tile::<L, 4, 12>(lanes, weight, x.cols, i * WIDTH, d, x_panel);
    }
}

/// Units `O..O + M` of a panel of `d` against one panel of `x`, whose first column is `first`.
#[inline(always)]
fn outer_tile<L: Lanes, const M: usize, const O: usize>(
    lanes: L,
    weight: &mut [f32],
    cols: usize,
    first: usize,
    d: &[Line],
    x: &[Line],
) {
    let width = WIDTH.min(cols - first);
    let mut acc = [lanes.load(&[0.0; WIDTH]); M];
    for m in 0..M {
        let at = (O + m) * cols + first;
        // A whole panel of a unit that exists is read and written where it lies; edges go through a copy.
        if let Some(whole) = weight.get(at..at + width).and_then(|row| row.first_chunk()) {
            acc[m] = lanes.load(whole);
        } else if let Some(part) = weight.get(at..at + width) {
            let mut sums = [0.0; WIDTH];
            sums[..width].copy_from_slice(part);
            acc[m] = lanes.load(&sums);
        }
    }
    for (d, x) in d.iter().zip(x) {
        let x = lanes.load(&x.0);
        for m in 0..M {
            acc[m] = lanes.fma(acc[m], d.0[O + m], x);
        }
    }
    for (m, acc) in acc.into_iter().enumerate() {
        let at = (O + m) * cols + first;
        let Some(row) = weight.get_mut(at..at + width) else { return };
        if let Some(whole) = row.first_chunk_mut() {
            lanes.store(acc, whole);
        } else {
            let mut sums = [0.0; WIDTH];
            lanes.store(acc, &mut sums);
            row.copy_from_slice(&sums[..width]);
        }
    }
}
