//! Which tile a product runs on: the tiles there are, and the host's estimate of their time.
//!
//! The tile never shows in a result, so the estimate only has to rank. It is made of three measured figures a tile (one
//! H200, every tile on 42 products of 64 to 65,536 rows): with them the tile chosen took 2.7 % longer than the quickest
//! of 48 that were tried, on average, and 14 % at worst. Blocks on their own are slower than what a multiprocessor full of
//! them does on average, because a lone warp waits for every latency.

/// A tile: `m` by `n` elements a block, `thread` elements a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) thread: [u32; 2],
    /// Values of k a slab.
    pub(crate) slab: u32,
    /// Slabs in flight.
    pub(crate) stages: u32,
    /// Measured cycles for a value of k of a block alone, of one among many, and a block's cycles beside its products.
    cost: [f64; 3],
}

const fn tile(m: u32, n: u32, thread: [u32; 2], slab: u32, stages: u32, cost: [f64; 3]) -> Tile {
    Tile { m, n, thread, slab, stages, cost }
}

/// From the smallest to the largest.
pub(crate) const TILES: [Tile; 8] = [
    tile(16, 16, [1, 2], 64, 3, [7.6, 5.5, 587.0]),
    tile(16, 16, [2, 2], 64, 3, [10.6, 5.1, 659.0]),
    tile(16, 32, [2, 2], 64, 3, [11.9, 9.0, 850.0]),
    tile(16, 32, [2, 2], 128, 2, [9.5, 8.3, 1502.0]),
    tile(48, 32, [3, 4], 64, 2, [28.7, 22.4, 1181.0]),
    tile(64, 32, [4, 4], 64, 2, [32.9, 29.8, 1806.0]),
    tile(48, 64, [6, 4], 64, 2, [47.2, 44.8, 1936.0]),
    tile(64, 64, [8, 4], 32, 2, [63.8, 44.5, 2087.0]),
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
        let [alone, busy, fixed] = self.cost;
        let (mut blocks, mut total, mut longest) = (Vec::new(), 0.0, 0.0_f64);
        for product in work {
            let [a, b] = self.count(product.rows, product.cols);
            let (k, count) = (product.k as f64, product.times as u64 * u64::from(a) * u64::from(b.max(1)));
            let mut cycles = k * busy + fixed;
            if product.cols == 0 {
                cycles = k * busy.min(8.0) + fixed.min(800.0);
            } else {
                longest = longest.max(k * alone + 800.0);
            }
            total += count as f64 * cycles;
            blocks.push((cycles, count));
        }
        let even = total / f64::from(processors);
        if blocks.iter().map(|(_, count)| count).sum::<u64>() > MANY {
            return even.max(longest);
        }
        even.max(longest).max(makespan(&blocks, processors))
    }
}

/// A product of a launch: `times` of `[rows, cols]` elements over `k`. Without columns: sums over `k`, one a row.
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

/// When blocks of these lengths are done: in turn on the multiprocessors while all find room at once, then each on the
/// one with the least work.
fn makespan(blocks: &[(f64, u64)], processors: u32) -> f64 {
    let mut load = vec![0.0_f64; processors as usize];
    let all_at_once = blocks.iter().map(|(_, count)| count).sum::<u64>() <= 2 * u64::from(processors);
    let mut next = 0;
    for &(cycles, count) in blocks {
        if all_at_once {
            for _ in 0..count {
                load[next % processors as usize] += cycles;
                next += 1;
            }
            continue;
        }
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
        assert_eq!(one(65_536, 256, 256).thread, [8, 4]);
        assert_eq!(makespan(&[(10.0, 5)], 4), 20.0);
        assert_eq!(makespan(&[(10.0, 4), (3.0, 1)], 4), 13.0);
        assert_eq!(makespan(&[(10.0, 9)], 4), 30.0);
        assert_eq!(makespan(&[(10.0, 6), (3.0, 6)], 4), 23.0);
    }
}
