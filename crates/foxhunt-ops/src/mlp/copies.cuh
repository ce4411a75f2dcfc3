// Copies to shared memory that run beside the block, in groups that are waited for.
#pragma once

// Copies `bytes` (0 to 16, or 0 or 4) to shared memory and sets the rest to 0; with 0 bytes the source is not looked at.
__device__ __forceinline__ void copy_16(u32 to, const float* from, u32 bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  float* at = (float*)__cvta_shared_to_generic(to);
  for (u32 i = 0; i < 4; i++) at[i] = 4 * i < bytes ? from[i] : 0.f;
#endif
}
// The same for 16 bytes that are all there, which takes a fraction of the instructions.
__device__ __forceinline__ void copy_16(u32 to, const float* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
  *(float4*)__cvta_shared_to_generic(to) = *(const float4*)from;
#endif
}
__device__ __forceinline__ void copy_4(u32 to, const float* from, u32 bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  *(float*)__cvta_shared_to_generic(to) = bytes ? *from : 0.f;
#endif
}
__device__ __forceinline__ void end_of_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT>
__device__ __forceinline__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// A value that is worked out here and kept, instead of again in every turn of a loop.
__device__ __forceinline__ u32 once(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}
