// Blocks of a cluster: how they meet, and how one hands the others what lies in its shared memory; for compute capability 9.0 and up.
#pragma once
#include "barrier.cuh"

// All threads of the cluster meet. Nothing is ordered by it but barriers, what was read before, and the end of the kernel.
__device__ __forceinline__ void cluster_arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in the shared memory of another block.
__device__ __forceinline__ u32 in_block(u32 at, u32 rank) {
  u32 to;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at), "r"(rank));
  return to;
}

// The copy engine brings `bytes`, in sixteens, to place `to` of a block and tells the barrier there that expects them.
__device__ __forceinline__ void hand(u32 to, u32 from, u32 bytes, u32 barrier, u32 rank) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(in_block(to, rank)), "r"(from), "r"(bytes),
               "r"(in_block(barrier, rank))
               : "memory");
}

// As `wait_for`, of what comes from other blocks; all lanes of a warp.
__device__ __forceinline__ void wait_for_blocks(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  __syncwarp();
}
