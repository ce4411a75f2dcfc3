// Q-values of few rows in one launch; how clusters go about it: acting.cuh.
//
// In: states f32 [rows, n_in]; the online network's weight image (pack_weights.cu); its biases among the flat parameters. Out: Q-values f32
// [rows, n_outputs], or head outputs f32 [rows, out_stride].
// Moved: an image once a cluster, then rows * (n_in * BLOCKS + n_outputs) words through L2.
#include "common.cuh"
#include "shared_structs.cuh"
#include "acting.cuh"

static_assert(SHARED == SHARED_BYTES, "shared memory");

// States as a right operand; rows that are not there are 0.
__device__ __forceinline__ void load_states(const ActingArgs& a, u32 base, u32 first, u32 count) {
  constexpr u32 EACH = 16 / BYTES, CHUNKS = depth(0) / EACH;
  u32 t = threadIdx.x;
  const float* from = a.states + (u64)first * IN;
  if (count == ROWS) {
    if (t == 0) {
      expect_bytes(states_are_there(base), ROWS * IN * 4);
      bring(base + FETCHED, from, ROWS * IN * 4, states_are_there(base));
    }
    wait_for(states_are_there(base), 0);
  } else {
    float* to = (float*)(shared + FETCHED);
#pragma unroll 4
    for (u32 i = t; i < ROWS * IN; i += ALL) to[i] = i < count * IN ? __ldcg(from + i) : 0.f;
    __syncthreads();
  }
#pragma unroll 2
  for (u32 i = t; i < CHUNKS * ROWS; i += ALL) {
    u32 row = i % ROWS, k = i / ROWS * EACH;
    float v[EACH];
#pragma unroll
    for (u32 n = 0; n < EACH; n++) v[n] = k + n < IN ? load_float(base + FETCHED + (row * IN + k + n) * 4) : 0.f;
    store_sixteen(base + k / LINE * SLAB + place(row, k % LINE), v);
  }
  rows_are_stored();
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ALL, 1) acting_pass(const __grid_constant__ ActingArgs a) {
  u32 base = shared_address(shared), rank = blockIdx.x % BLOCKS;
  // The same for a whole warp, as the compiler is to know.
  u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0);
  bool early = a.ahead >= AHEAD_LEAVES_PARAMETERS, beside = a.ahead >= AHEAD_LEAVES_ALL;
  Here at = {a.image, base, rank, group, 0};
  if (threadIdx.x == 0) {
    make_barriers(base);
    expect_blocks(base, rank);
    barriers_are_made();
  }
  __syncthreads();
  if (!early) dependency_wait();
  bring_layers<0>(at);
  load_biases(a.parameters, a.bias, rank);
  if (early && !beside) dependency_wait();
  dependents_may_start();
  u32 first = blockIdx.x / BLOCKS * ROWS;
  load_states(a, base, first, min((u32)ROWS, a.rows - first));
  layer<0>(at);
  wait_for_blocks(parts_are_there(base), 0);
  cluster_arrive();  // a block's memory is there until all others have what it gave them
  finish_rows(a.head, a.head.q, rank, [&](u32 own, u32 o, float v) {
    u32 row = first + rank * OWN + own;
    if (row >= a.rows) return;
    if (a.head.q) a.head.q[(u64)row * (HEAD_WIDTH - 1) + o] = v;
    else a.out[(u64)row * a.out_stride + o] = v;
  });
  cluster_wait();
  if (beside) dependency_wait();
}
