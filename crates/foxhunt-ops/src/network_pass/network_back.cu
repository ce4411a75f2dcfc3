// The way back through all layers but the first in one launch, on the tensor cores of a Hopper warpgroup.
//
//   network_back     from the gradient of the head's outputs to those of all hidden units; one more block sums the losses
//
// In: f32 [rows, stride] gradient of the head's outputs; the weight image for the way back; which units were above 0, as the way forward
// left it. Out: images of the gradients of outputs and of hidden units with k along the rows, from which weight_gradient.cu makes the rest.
// Elements are sums of a tensor core in f32 over outputs in order, 0 where a unit was not above 0.
// Moved: rows * (n_out + units) values, and the image once a block and round through L2.
#include "common.cuh"
#include "shared_structs.cuh"
#include "chain.cuh"
#include "step.cuh"

extern __shared__ __align__(1024) unsigned char shared[];

// Gradients of the head's outputs of a tile: a thread has some of a row, so that lanes have rows side by side.
__device__ __forceinline__ void load_head(const BackArgs& a, const Tile& tile) {
  constexpr int OUT = width(0), EACH = 16 / BYTES, CHUNKS = (padded(0) + EACH - 1) / EACH, MINE = (CHUNKS + 1) / 2;
  u32 t = threadIdx.x % GROUP, row = t % TILE;
  const float4* d = (const float4*)(a.dhead + (u64)(tile.first + row) * a.dhead_stride);
  float v[MINE][EACH];
#pragma unroll
  for (u32 c = 0; c < MINE; c++)
#pragma unroll
    for (u32 i = 0; i < EACH; i += 4) {
      u32 k = (2 * c + t / TILE) * EACH + i;
      float4 x = row < tile.count && k < OUT ? d[k / 4] : make_float4(0.f, 0.f, 0.f, 0.f);
      v[c][i] = x.x, v[c][i + 1] = k + 1 < OUT ? x.y : 0.f, v[c][i + 2] = k + 2 < OUT ? x.z : 0.f, v[c][i + 3] = k + 3 < OUT ? x.w : 0.f;
    }
#pragma unroll
  for (u32 c = 0; c < MINE; c++) {
    u32 k = (2 * c + t / TILE) * EACH;
    if (k >= CHUNKS * EACH) break;
    store_sixteen(unit(tile, row, k), v[c]);
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
      store_rounded(a.gradients[PRODUCTS] + image_place(tile.number, of_row(row), k + i, rounded_up(OUT, TILE)), v[c][i]);
  }
}

// One layer back, and all before it. Product p gives the gradient of hidden units number PRODUCTS - p, counted from 1.
template <int P>
__device__ __forceinline__ void layer(const BackArgs& a, const Tile& tile, Weights& ring) {
  constexpr int UNITS = width(P + 1), N = lines(P), HIDDEN = PRODUCTS - 1 - P;
  u32 group = threadIdx.x / GROUP, lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane / 4;
  u32 mask[mask_words(UNITS)];
#pragma unroll
  for (int w = 0; w < mask_words(UNITS); w++) mask[w] = a.masks[HIDDEN][(tile.number * mask_words(UNITS) + w) * GROUP + threadIdx.x % GROUP];
  float acc[N / 2] = {};
  product<P>(acc, tile, ring);
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    acc[i] = mask[i / 32] & 1u << i % 32 ? __uint_as_float(BYTES == 4 ? rounded(acc[i]) : __float_as_uint(acc[i])) : 0.f;
  if (P + 1 < PRODUCTS) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_rounded_pair(unit(tile, row + 8 * half, 8 * j + 2 * (lane % 4)), acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]);
  }
  store_image<false>(a.gradients[HIDDEN], tile, rounded_up(UNITS, TILE), acc);
  if constexpr (P + 1 < PRODUCTS) {
    shared_memory_is_ready();
    group_barrier(group);
    layer<P + 1>(a, tile, ring);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) network_back(const __grid_constant__ BackArgs a, const __grid_constant__ SumArgs sums) {
  if (blockIdx.x + 1 == gridDim.x) {
    dependency_wait();
    dependents_may_start();
    sum_up(sums, a.deal.rows, (double*)shared);
    return;
  }
  rounds(a.deal, gridDim.x - 1, shared, true, false, [&](u32) { return a.image; },
         [&](const Tile& tile, Weights& ring) {
           load_head(a, tile);
           shared_memory_is_ready();
           group_barrier(threadIdx.x / GROUP);
           layer<0>(a, tile, ring);
         });
}
