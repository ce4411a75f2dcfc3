// Statistics of one row of Q-values. Twin: foxhunt-ops/src/q_monitor/cpu.rs.
// Needs common.cuh.
#pragma once

// Order of f32 without NaN as an order of integers; -0 stands below +0.
__device__ __forceinline__ u32 order_key(float x) {
  u32 bits = __float_as_uint(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_order_key(u32 key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// Finite values of a row: smallest and largest as keys (0xffffffff and 0 where there is none), sum in order, counts.
struct RowRange {
  double sum;
  u32 low, high, finite, non_finite;
};
__device__ __forceinline__ RowRange row_range(const float* q, u32 n) {
  RowRange r = {0.0, ALL_LANES, 0u, 0u, 0u};
#pragma unroll
  for (u32 i = 0; i < n; i++) {
    float value = q[i];
    bool finite = is_finite(value);
    u32 key = order_key(value);
    r.low = min(r.low, finite ? key : ALL_LANES);
    r.high = max(r.high, finite ? key : 0u);
    r.sum = r.sum + (finite ? (double)value : 0.0);  // the sum is never -0, so adding 0 changes nothing
    r.finite += finite;
  }
  r.non_finite = n - r.finite;
  return r;
}

// Largest value that is not NaN; NaN when there is none.
__device__ __forceinline__ float largest(const float* q, u32 n) {
  float top = __uint_as_float(0x7fffffffu);
#pragma unroll
  for (u32 i = 0; i < n; i++) {
    float value = q[i];
    top = value == value && !(value <= top) ? value : top;
  }
  return top;
}

// Sum over the 32 lanes in a fixed tree: lane i takes i + 16, then i + 8, down to i + 1. All lanes must call.
__device__ __forceinline__ double warp_tree_sum(double v) {
#pragma unroll
  for (int k = 16; k; k >>= 1) v = v + __shfl_xor_sync(ALL_LANES, v, k);
  return v;
}
