// Forward passes through a whole network in one launch, on the tensor cores of a Hopper warpgroup.
//
//   network_pass     up to three jobs (online(s), online(s') or target(s), target(s')), or one for acting: head outputs or Q-values, and for
//                    the first job of an update what the way back wants
//
// In: states f32 [rows, n_in]; a weight image a job (pack_weights.cu); biases among the flat parameters. Out: head outputs f32
// [rows, out_stride], or Q-values f32 [rows, n_outputs]; of the first job, states and hidden units as images with k along the rows, and
// which units are above 0. What is not finite in states, rewards and ends is counted.
// Elements are sums of a tensor core in f32 from the bias on, over k in order; a row's do not depend on other rows.
// Moved: rows * (n_in + n_out) words a job, rows * (n_in + units) values for what is kept, and an image once a block and round through L2.
#include "common.cuh"
#include "shared_structs.cuh"
#include "chain.cuh"
#include "q_from_head.cuh"

extern __shared__ __align__(1024) unsigned char shared[];

constexpr int HEAD = width(PRODUCTS), HEAD_STRIDE = lines(PRODUCTS - 1) + 1;
static_assert(TILE * (HEAD_STRIDE + 4) * 4 <= UNITS_BYTES, "the head's outputs and means take the place of units");

constexpr int IN = width(0), LINES_IN = rounded_up(IN, 16);

// States fetched as they lie take the place behind the first layer's units, where there is room for them.
constexpr int FETCHED = unit_slabs(0) * SLAB_BYTES;
constexpr bool ROOM = FETCHED + TILE * IN * 4 <= UNITS_BYTES;

// A whole tile: the copy engine brings the rows, and a thread rounds half a row. Gives what is not finite.
__device__ __forceinline__ u32 load_whole(const PassArgs& a, const Tile& tile, u32 barrier, u32 parity, unsigned char* image) {
  constexpr int EACH = 16 / BYTES, CHUNKS = (padded(0) + EACH - 1) / EACH;
  u32 t = threadIdx.x % GROUP, row = t % TILE, bad = 0, from = tile.units + FETCHED + row * IN * 4;
  if (t == 0) {
    expect_bytes(barrier, TILE * IN * 4);
    bring(tile.units + FETCHED, a.x[tile.job] + (u64)tile.first * IN, TILE * IN * 4, barrier);
  }
  wait_for(barrier, parity);
#pragma unroll 2
  for (u32 chunk = t / TILE; chunk < CHUNKS; chunk += GROUP / TILE) {
    float v[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
      v[i] = chunk * EACH + i < IN ? load_float(from + (chunk * EACH + i) * 4) : 0.f;
      bad += !is_finite(v[i]);
    }
    store_sixteen(unit(tile, row, chunk * EACH), v);
    if (image)
#pragma unroll
      for (u32 i = 0; i < EACH; i++)
        if (chunk * EACH + i < IN) store_right(image + right_image_place(tile.number, of_row(row), chunk * EACH + i, LINES_IN), v[i], LINES_IN);
  }
  return bad;
}

// The last tile, or rows too long for that: a value a thread.
__device__ __forceinline__ u32 load_part(const PassArgs& a, const Tile& tile, unsigned char* image) {
  constexpr int PADDED = padded(0), BATCH = 4;
  u32 bad = 0;
  const float* x = a.x[tile.job] + (u64)tile.first * IN;
#pragma unroll 1
  for (u32 first = threadIdx.x % GROUP; first < TILE * PADDED; first += BATCH * GROUP) {
    float v[BATCH];
#pragma unroll
    for (u32 i = 0; i < BATCH; i++) {
      u32 e = first + i * GROUP, row = e / PADDED, k = e % PADDED;
      v[i] = row < tile.count && k < IN ? x[(u64)row * IN + k] : 0.f;
    }
#pragma unroll
    for (u32 i = 0; i < BATCH; i++) {
      u32 e = first + i * GROUP, row = e / PADDED, k = e % PADDED;
      if (e >= TILE * PADDED) break;
      bad += !is_finite(v[i]);
      store_rounded(unit(tile, row, k), v[i]);
      if (image && k < IN) store_right(image + right_image_place(tile.number, of_row(row), k, LINES_IN), v[i], LINES_IN);
    }
  }
  return bad;
}

// The states of a tile; counts what is not finite.
__device__ __forceinline__ void load_states(const PassArgs& a, const Tile& tile, u32 barrier, u32& parity) {
  unsigned char* image = tile.job == 0 ? a.kept[0] : nullptr;
  u32 t = threadIdx.x % GROUP, bad, bad_rewards = 0;
  if (ROOM && tile.count == TILE) {
    bad = load_whole(a, tile, barrier, parity, image);
    parity ^= 1;
  } else {
    bad = load_part(a, tile, image);
  }
  if (!a.inspect || (tile.job != 0 && tile.job + 1 != a.jobs)) return;
  if (tile.job == 0 && t < tile.count) bad_rewards = !is_finite(a.rewards[tile.first + t]) + !is_finite(a.terminated[tile.first + t]);
  bad = warp_sum(bad), bad_rewards = warp_sum(bad_rewards);
  if (t % 32 == 0) {
    if (bad) atomicAdd(&a.state->bad_states, bad);
    if (bad_rewards) atomicAdd(&a.state->bad_rewards, bad_rewards);
  }
}

// Head outputs in shared memory to memory, or to Q-values on the way.
__device__ __forceinline__ void finish_head(const PassArgs& a, const Tile& tile) {
  float* heads = (float*)(shared + (tile.units - shared_address(shared)));
  float* means = heads + TILE * HEAD_STRIDE;
  u32 t = threadIdx.x % GROUP, group = threadIdx.x / GROUP;
  const HeadArgs& h = a.head;
  constexpr int Q = HEAD > 1 ? HEAD - 1 : 1;
  if (h.q) {
    for (u32 i = t; i < TILE * h.n_branches; i += GROUP)
      means[i] = branch_mean(heads + i % TILE * HEAD_STRIDE + 1 + h.start[i / TILE], h.len[i / TILE]);
    group_barrier(group);
    float* q = h.q + (u64)tile.first * Q;
#pragma unroll 4
    for (u32 e = t; e < tile.count * Q; e += GROUP) {
      u32 row = e / Q, n = e % Q, branch = 0;
      while (branch + 1 < h.n_branches && n >= h.start[branch + 1]) branch++;
      q[e] = heads[row * HEAD_STRIDE] + (heads[row * HEAD_STRIDE + 1 + n] - means[branch * TILE + row]);
    }
    return;
  }
  float* out = a.out[tile.job] + (u64)tile.first * a.out_stride;
#pragma unroll 4
  for (u32 e = t; e < tile.count * HEAD; e += GROUP) out[e / HEAD * a.out_stride + e % HEAD] = heads[e / HEAD * HEAD_STRIDE + e % HEAD];
}

// A layer of a tile and all behind it.
template <int L>
__device__ __forceinline__ void layer(const PassArgs& a, const Tile& tile, Weights& ring) {
  constexpr int OUT = width(L + 1), N = lines(L);
  u32 group = threadIdx.x / GROUP, lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane / 4;
  const float* bias = a.parameters[tile.job] + a.bias[L];
  float acc[N / 2];
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int q = 0; q < 2; q++) {
      u32 n = 8 * j + 2 * (lane % 4) + q;
      acc[4 * j + q] = acc[4 * j + 2 + q] = n < OUT ? bias[n] : 0.f;
    }
  product<L>(acc, tile, ring);
  if constexpr (L + 1 == PRODUCTS) {
    float* heads = (float*)(shared + (tile.units - shared_address(shared)));
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int q = 0; q < 4; q++) heads[(row + q / 2 * 8) * HEAD_STRIDE + 8 * j + 2 * (lane % 4) + q % 2] = acc[4 * j + q];
    group_barrier(group);
    finish_head(a, tile);
    shared_memory_is_ready();
    group_barrier(group);
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; i++) acc[i] = above_0(acc[i]);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_rounded_pair(unit(tile, row + 8 * half, 8 * j + 2 * (lane % 4)), acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]);
    shared_memory_is_ready();
    group_barrier(group);
    if (tile.job == 0 && a.kept[L + 1]) {
      u32 mask[mask_words(OUT)] = {};
#pragma unroll
      for (int i = 0; i < N / 2; i++) mask[i / 32] |= acc[i] > 0.f ? 1u << i % 32 : 0;
#pragma unroll
      for (int w = 0; w < mask_words(OUT); w++) a.masks[L][(tile.number * mask_words(OUT) + w) * GROUP + threadIdx.x % GROUP] = mask[w];
      store_image<true>(a.kept[L + 1], tile, N, acc);
    }
    layer<L + 1>(a, tile, ring);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) network_pass(const __grid_constant__ PassArgs a) {
  // A barrier for the states of each group, behind those of the weights.
  u32 barrier = shared_address(shared) + BARRIERS + threadIdx.x / GROUP * 8, parity = 0;
  if (threadIdx.x < WORKERS * GROUP && threadIdx.x % GROUP == 0) make_barrier(barrier, 1);
  rounds(a.deal, gridDim.x, shared, a.ahead >= AHEAD_LEAVES_PARAMETERS, a.ahead >= AHEAD_LEAVES_ALL, [&](u32 job) { return a.images[job]; },
         [&](const Tile& tile, Weights& ring) {
           load_states(a, tile, barrier, parity);
           shared_memory_is_ready();
           group_barrier(threadIdx.x / GROUP);
           layer<0>(a, tile, ring);
         });
}
