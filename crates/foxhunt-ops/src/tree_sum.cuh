// Sums of f64 in one fixed tree. Twin of foxhunt-ops/src/tree_sum.rs; for blocks of 256 threads or more,
// of which the first 256 are lanes.
#pragma once

// Folds one running sum a thread; every thread of the block gets the total. `shared` holds 256 values.
__device__ __forceinline__ double fold_lanes(double lane, double* shared) {
  u32 t = threadIdx.x;
  if (t < 256) shared[t] = lane;
  __syncthreads();
  if (t < 128) shared[t] = lane = __dadd_rn(lane, shared[t + 128]);
  __syncthreads();
  if (t < 64) shared[t] = lane = __dadd_rn(lane, shared[t + 64]);
  __syncthreads();
  if (t < 32) {
    lane = __dadd_rn(lane, shared[t + 32]);
    for (int half = 16; half; half >>= 1) lane = __dadd_rn(lane, __shfl_down_sync(ALL_LANES, lane, half));
    if (t == 0) shared[0] = lane;
  }
  __syncthreads();
  lane = shared[0];
  __syncthreads();
  return lane;
}
