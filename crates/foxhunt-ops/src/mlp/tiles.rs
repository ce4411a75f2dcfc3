//! Which tile a product runs on: the tiles there are, and the host's estimate of their time.
//!
//! The tile never shows in a result, so the estimate only has to rank. What it counts, for each k of a tile, was measured
//! on an H200: the words its warps read from shared memory (one a lane and cycle), the instructions of its warps (four a
//! cycle, less a tenth), and that a warp alone on its scheduler takes about two cycles an instruction.

/// A tile: `m` by `n` elements a block, `thread` elements a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) thread: [u32; 2],
    /// Values of k a slab.
    pub(crate) slab: u32,
    /// Slabs in flight.
    pub(crate) stages: u32,
}

const fn tile(m: u32, n: u32, thread: [u32; 2], slab: u32, stages: u32) -> Tile {
    Tile { m, n, thread, slab, stages }
}

/// From the smallest to the largest.
pub(crate) const TILES: [Tile; 8] = [
    tile(16, 16, [2, 2], 32, 4),
    tile(16, 32, [2, 4], 32, 4),
    tile(32, 32, [2, 4], 32, 3),
    tile(32, 32, [4, 4], 32, 3),
    tile(48, 32, [3, 4], 32, 3),
    tile(64, 32, [4, 4], 32, 3),
    tile(64, 64, [8, 4], 32, 3),
    tile(128, 64, [8, 8], 16, 3),
];

/// Above this many blocks, the time is the work divided by the multiprocessors.
const MANY: u64 = 20_000;

impl Tile {
    pub(crate) fn threads(self) -> u32 {
        self.m / self.thread[0] * (self.n / self.thread[1])
    }

    /// Shared memory of a block: both operands along k, the larger layout.
    pub(crate) fn shared_bytes(self) -> u32 {
        4 * self.stages * (self.m + self.n) * (self.slab + 4)
    }

    /// Tiles over `[rows, cols]`.
    pub(crate) fn count(self, rows: usize, cols: usize) -> [u32; 2] {
        [rows.div_ceil(self.m as usize) as u32, cols.div_ceil(self.n as usize) as u32]
    }

    /// Estimated cycles of a launch on `processors` multiprocessors.
    fn cycles(self, work: &[Product], processors: u32) -> f64 {
        let warps = f64::from(self.threads()) / 32.0;
        let [m, n] = self.thread.map(f64::from);
        // Loads take four k at a time; the rest is loop and copies.
        let instructions = m * n + (m + n) / 4.0 + 1.2;
        let busy = (warps * (m + n)).max(warps / 4.0 * instructions * 1.1);
        let alone = busy.max(1.8 * instructions);
        let (mut blocks, mut total, mut longest) = (Vec::new(), 0.0, 0.0_f64);
        for product in work {
            let [a, b] = self.count(product.rows, product.cols);
            let count = product.times as u64 * u64::from(a) * u64::from(b);
            let cycles = product.k as f64 * busy + 200.0;
            total += count as f64 * cycles;
            longest = longest.max(product.k as f64 * alone + 800.0);
            blocks.push((cycles, count));
        }
        let even = total / f64::from(processors);
        if blocks.iter().map(|(_, count)| count).sum::<u64>() > MANY {
            return even.max(longest);
        }
        even.max(longest).max(makespan(&blocks, processors))
    }
}

/// A product of a launch: `times` of `[rows, cols]` elements over `k`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) times: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) k: usize,
}

/// The number of the tile with the shortest estimate.
pub(crate) fn best(work: &[Product], processors: u32) -> usize {
    let time = |i: usize| TILES[i].cycles(work, processors.max(1));
    (0..TILES.len()).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(0)
}

/// When blocks of these lengths are done, each given to the multiprocessor with the least work.
fn makespan(blocks: &[(f64, u64)], processors: u32) -> f64 {
    let mut load = vec![0.0_f64; processors as usize];
    for &(cycles, count) in blocks {
        // The even part first, then the rest one by one.
        let each = count / u64::from(processors);
        load.iter_mut().for_each(|l| *l += each as f64 * cycles);
        load.sort_by(f64::total_cmp);
        load.iter_mut().take((count % u64::from(processors)) as usize).for_each(|l| *l += cycles);
    }
    load.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_whole_warps_and_fit_shared_memory() {
        for tile in TILES {
            assert_eq!(tile.threads() % 32, 0, "{tile:?}");
            assert!(tile.m.is_multiple_of(tile.thread[0]) && tile.n.is_multiple_of(tile.thread[1]));
            assert!(tile.shared_bytes() <= 64 * 1024, "{tile:?}");
        }
    }

    #[test]
    fn small_products_take_small_tiles_and_large_ones_large() {
        let one = |rows, cols, k| TILES[best(&[Product { times: 3, rows, cols, k }], 132)];
        assert!(one(64, 46, 256).m <= 16);
        assert_eq!(one(65_536, 256, 256).thread, [8, 8]);
        assert_eq!(makespan(&[(10.0, 5)], 4), 20.0);
        assert_eq!(makespan(&[(10.0, 4), (3.0, 1)], 4), 13.0);
    }
}
