// Integer names, warp reductions, launch dependencies and ordered memory accesses shared by all kernels.
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL_LANES 0xffffffffu
#define F32_INFINITY __int_as_float(0x7f800000)

// A kernel launched programmatically starts before the one ahead of it is done: it must wait before it reads or
// writes anything that one writes or reads. The other call lets the kernel behind start its own preamble.
__device__ __forceinline__ void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void dependents_may_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Words that blocks of one launch pass to one another: never kept in L1, ordered with nothing else.
__device__ __forceinline__ u64 load_shared_word(const u64* p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared_word(u64* p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ u32 warp_min(u32 v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(ALL_LANES, v);
#else
  for (int k = 16; k; k >>= 1) v = min(v, __shfl_xor_sync(ALL_LANES, v, k));
  return v;
#endif
}
__device__ __forceinline__ u32 warp_max(u32 v) { return ~warp_min(~v); }
__device__ __forceinline__ u32 warp_sum(u32 v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(ALL_LANES, v);
#else
  for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(ALL_LANES, v, k);
  return v;
#endif
}
__device__ __forceinline__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
