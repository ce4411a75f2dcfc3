//! The launcher of `insert_rows`, and the texts of the ring's kernels. Kernel: `ring.cu`; buffers: `device.rs`.
#![allow(unsafe_code)] // Launches; each names the signature it matches.

use foxhunt_cuda::{CudaError, DeviceBuffer, Kernel, Launch, Stream};

pub(crate) use super::device::{Batch, Incoming, Ring, Rows, RowsRoom};
pub use super::device::{DeviceBatch, DeviceCompactRows, DeviceRing, DeviceRows, DeviceSource};
use crate::priority_tree::device::{ChangeLog, Control, DeviceTree};

/// Text of `ring.cu`.
pub(crate) const RING_CU: &str = include_str!("ring.cu");
/// Text of `ring.cuh`.
pub(crate) const RING_CUH: &str = include_str!("ring.cuh");
/// Text of `compact.cuh`.
pub(crate) const COMPACT_CUH: &str = include_str!("compact.cuh");
/// Text of `complete.cuh`.
pub(crate) const COMPLETE_CUH: &str = include_str!("complete.cuh");

/// Most blocks of an insert: they meet at a counter, so all must be resident.
const MAX_BLOCKS: u32 = 128;
/// Most rows a block takes.
const MAX_ROWS_A_BLOCK: u32 = 1024;
/// Fewest rows of a block: a warp each.
const MIN_ROWS_A_BLOCK: u32 = 8;
/// Threads of a block that moves few rows, and of one that moves many; the kernel knows both.
const THREADS: [u32; 2] = [288, 640];
/// Rows a block above which they are many.
const FEW_ROWS: u32 = 32;

/// Inserts the first `n` of `rows`, or with `counted` as many of them as that word says. Slices too large for one launch follow one another, which gives the same rows in
/// the same slots as one call of the CPU twin.
#[allow(clippy::too_many_arguments)] // The parts of a replay memory, each with its own owner.
pub(crate) fn insert(
    stream: &Stream,
    kernel: &Kernel,
    tree: &DeviceTree,
    ring: &DeviceRing,
    control: &DeviceBuffer<Control>,
    changes: &ChangeLog,
    rows: Incoming<'_>,
    n: usize,
    counted: Option<&DeviceBuffer<u32>>,
    programmatic: bool,
) -> Result<(), CudaError> {
    if let Some(counted) = counted {
        counted.holds(1)?;
    }
    rows.holds(n, ring.layout.state_dim)?;
    let max_blocks = stream.device().info().multiprocessors.clamp(1, MAX_BLOCKS);
    let mut first = 0;
    while first < n {
        let count = (n - first).min((max_blocks * MAX_ROWS_A_BLOCK) as usize) as u32;
        let rows_a_block = count.div_ceil(max_blocks).max(MIN_ROWS_A_BLOCK);
        let threads = THREADS[usize::from(rows_a_block > FEW_ROWS)];
        let launch = Launch::new(kernel, count.div_ceil(rows_a_block), threads)
            .programmatic(programmatic)
            .value(tree.view())
            .value(ring.view())
            .value(rows.view(first, ring.layout.state_dim))
            .buffer(control)
            .value(count)
            .value(rows_a_block)
            .value(changes.view());
        let launch = match counted {
            Some(counted) => launch.buffer(counted),
            None => launch.value(0_u64),
        };
        let launch = launch.value(first as u32);
        let launch = rows.keep(ring.keep(tree.keep(launch)));
        // SAFETY: insert_rows(Tree, Ring, Rows, Control*, u32, u32, Changes, u32*, u32). The rows hold `first + count`
        // rows (checked above) and the word only lowers that; slots are taken modulo the capacity of tree and ring, which their owner made alike; a block takes at
        // most 1024 rows, and at most as many blocks as multiprocessors run, so all are resident. The kernel was compiled for
        // rows of the form that ring and rows have (checked by their owner). Everything is kept.
        unsafe { changes.keep(launch).launch(stream)? };
        first += count as usize;
    }
    Ok(())
}
