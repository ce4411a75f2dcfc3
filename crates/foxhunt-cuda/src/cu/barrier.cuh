// Barriers in shared memory that count arrivals and bytes, and copies that tell them; for compute capability 9.0 and up. Places in shared
// memory are numbers (`__cvta_generic_to_shared`).
#pragma once

__device__ __forceinline__ void make_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Behind the making of barriers, before the copy engine or another block tells them anything.
__device__ __forceinline__ void barriers_are_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// An arrival that tells of bytes to come.
__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of a barrier's first, third ... phase with parity 0, of the others with 1.
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

// The copy engine brings `bytes`, in sixteens, to shared memory and tells a barrier that expects them.
__device__ __forceinline__ void bring(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// What this thread wrote to shared memory may be read by the copy engine and by products, and what it wrote or read may be overwritten by them.
__device__ __forceinline__ void shared_memory_is_ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
