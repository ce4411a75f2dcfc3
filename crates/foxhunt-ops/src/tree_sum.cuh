// Sums of f64 in one fixed tree. Twin of foxhunt-ops/src/tree_sum.rs; lanes are the first 256 threads of
// a block that has so many.
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

// The sum of `n` values, for a block of any size; every thread gets it. `shared` holds 256 values.
__device__ __forceinline__ double sum_in_tree(const double* values, u64 n, double* shared) {
  for (u32 lane = threadIdx.x; lane < 256; lane += blockDim.x) {
    double sum = 0.;
    for (u64 i = lane; i < n; i += 256) sum = __dadd_rn(sum, values[i]);
    shared[lane] = sum;
  }
  __syncthreads();
  for (u32 half = 128; half; half >>= 1) {
    for (u32 i = threadIdx.x; i < half; i += blockDim.x) shared[i] = __dadd_rn(shared[i], shared[i + half]);
    __syncthreads();
  }
  return shared[0];
}
