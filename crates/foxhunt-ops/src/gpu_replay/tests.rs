use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::CudaError;
use foxhunt_cuda::nvrtc::compile;

use super::{GpuReplayConfig, GpuSampling};
use crate::priority_tree::cuda::programs;
use crate::priority_tree::device::{level_nodes, place};

/// Eight lanes read a node of 64 children in 16-byte pairs: `place` is a permutation of each node, and lane l finds
/// children 8 l .. 8 l + 7 at 16 k + 2 l.
#[test]
fn place_permutes_each_node() {
    let mut seen = vec![false; 256];
    for i in 0..256 {
        let at = place(i);
        assert_eq!(at / 64, i / 64);
        assert!(!std::mem::replace(&mut seen[at], true));
    }
    for lane in 0..8 {
        for k in 0..4 {
            assert_eq!(place(8 * lane + 2 * k), 16 * k + 2 * lane);
            assert_eq!(place(8 * lane + 2 * k + 1), 16 * k + 2 * lane + 1);
        }
    }
}

/// Case A08: every capacity gets levels that cover it, and the top never has more than 256 nodes.
#[test]
fn levels_cover_every_capacity() {
    for (capacity, want) in [
        (1, vec![1, 1]),
        (3, vec![3, 1]),
        (1000, vec![1000, 16]),
        (16_384, vec![16_384, 256]),
        (16_385, vec![16_385, 257, 5]),
        (1 << 20, vec![1 << 20, 16_384, 256]),
        ((1 << 20) + 1, vec![(1 << 20) + 1, 16_385, 257, 5]),
    ] {
        assert_eq!(level_nodes(capacity), want);
    }
    assert!(level_nodes(1 << 31).len() <= 6);
}

/// The memory is planned before it is taken: an absurd capacity is seen in the number.
#[test]
fn bytes_are_planned() {
    let config = GpuReplayConfig::new(1 << 20, 51);
    assert_eq!(config.bytes(), (448 << 20) + 8 * ((1 << 20) + 16_384 + 256 + 3 * 256));
    let compact = GpuReplayConfig { storage: ReplayStorage::Compact, ..config };
    assert_eq!(config.bytes() - compact.bytes(), (448 - 32) << 20);
    let ranked = GpuReplayConfig { sampling: GpuSampling::RankBased { resort_every: 1 }, ..config };
    assert!(ranked.bytes() > config.bytes() + (40 << 20));
    assert!(GpuReplayConfig::new(1 << 31, 4096).bytes() > 1 << 45);
}

/// The kernels compile for the oldest and the newest target; needs NVRTC, no device. `cargo xtask kernels` covers every
/// target and shape.
#[test]
fn kernels_compile() {
    for storage in [ReplayStorage::Rows, ReplayStorage::Compact] {
        for program in programs(51, 1 << 20, storage) {
            for target in ["sm_75", "sm_100"] {
                match compile(&program, target, None) {
                    Err(CudaError::NoCompiler { .. }) => {
                        assert!(std::env::var_os("FOXHUNT_REQUIRE_NVRTC").is_none(), "NVRTC is required");
                        println!("SKIP: no NVRTC");
                        return;
                    }
                    Err(error) => panic!("{error}"),
                    Ok(image) => assert!(image.bytes().len() > 1000),
                }
            }
        }
    }
}
