// Gradients of all weights and biases in one launch, on the tensor cores of a Hopper warpgroup.
//
//   weight_gradient     of each layer and segment of rows
//
// In: images, k along the rows, of each layer's inputs (network_pass.cu) and of the gradients of its outputs (network_back.cu). Out: f32
// [splits, split_stride], laid out as the parameters. A block has two warpgroups with TILE outputs each and up to 128 inputs, and one
// that has operands brought. Weights are sums of a tensor core in f32 over the rows of a segment, biases f32 sums, both in one order.
// Moved: rows * (outputs + inputs) values a block and segment through L2, and a gradient a segment.
//
//   WIDTHS   values of a state, units of each hidden layer, outputs
#include "common.cuh"
#include "shared_structs.cuh"
#include "warpgroup.cuh"

extern __shared__ __align__(1024) unsigned char shared[];

__host__ __device__ constexpr int width(int i) {
  constexpr int all[] = {WIDTHS};
  return i < 0 ? sizeof(all) / sizeof(int) : all[i];
}
constexpr int LAYERS = width(-1) - 1;

// Of layer l: lines of both images, pieces of inputs and of outputs that a block has, blocks of a segment.
__host__ __device__ constexpr int lines_in(int l) { return rounded_up(width(l), 16); }
__host__ __device__ constexpr int lines_out(int l) { return rounded_up(width(l + 1), TILE); }
__host__ __device__ constexpr int pieces_in(int l) { return (lines_in(l) + 127) / 128; }
__host__ __device__ constexpr int each_in(int l) { return rounded_up(lines_in(l) / pieces_in(l), 8); }
__host__ __device__ constexpr int pieces_out(int l) { return (lines_out(l) + 2 * TILE - 1) / (2 * TILE); }
__host__ __device__ constexpr int blocks(int l) { return pieces_in(l) * pieces_out(l); }

constexpr int A_BYTES = WORKERS * TILE * 128, STAGE_BYTES = A_BYTES + PARTS * 128 * 128;
using Operands = Ring<STAGES, STAGE_BYTES, WORKERS * GROUP / 32>;
static_assert(Operands::BYTES_OF_ALL <= SHARED_BYTES, "shared memory");

// The sum of a line of an image in shared memory.
__device__ __forceinline__ float line_sum(u32 at, u32 line) {
  float sum = 0.f;
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    u32 x, y, z, w;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(at + line * 128 + ((i ^ line % 8) << 4)));
    if (BYTES == 4) {
      sum += (__uint_as_float(x) + __uint_as_float(y)) + (__uint_as_float(z) + __uint_as_float(w));
    } else {
      auto both = [](u32 v) { return __uint_as_float(v << 16) + __uint_as_float(v & 0xffff0000u); };
      sum += (both(x) + both(y)) + (both(z) + both(w));
    }
  }
  return sum;
}

template <int L>
__device__ __forceinline__ void layer(const GradientArgs& a, u32 block, Operands& ring) {
  if constexpr (L < LAYERS) {
    u32 of_layer = blocks(L) * a.splits;
    if (block >= of_layer) {
      layer<L + 1>(a, block - of_layer, ring);
      return;
    }
    constexpr int N = each_in(L), OUT = width(L + 1), IN = width(L);
    u32 split = block / blocks(L), n0 = block % pieces_in(L) * N, m0 = block % blocks(L) / pieces_in(L) * (WORKERS * TILE);
    u32 begin = split * a.segment, end = min(begin + a.segment, a.rows);
    u32 slab0 = begin / LINE, slabs = (end - begin + TILE - 1) / TILE * (TILE / LINE);
    u32 have_out = min((u32)(WORKERS * TILE), lines_out(L) - m0);
    u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0), t = threadIdx.x % GROUP;
    dependency_wait();
    dependents_may_start();
    if (group == WORKERS) {
      if (t) return;
      const unsigned char* d = a.gradients[L] + ((u64)slab0 * lines_out(L) + m0) * 128;
      const unsigned char* x = a.inputs[L] + ((u64)slab0 * PARTS * lines_in(L) + n0 / PARTS) * 128;
      for (u32 slab = 0; slab < slabs; slab++) {
        ring.expect((have_out + PARTS * N) * 128);
        ring.fetch(0, d, have_out * 128);
        // Of each slab of a right operand, each part.
#pragma unroll
        for (int i = 0; i < PARTS * PARTS; i++) ring.fetch(A_BYTES + i * N * (128 / PARTS), x + i * lines_in(L) * (128 / PARTS), N * (128 / PARTS));
        ring.advance();
        d += lines_out(L) * 128, x += PARTS * lines_in(L) * 128;
      }
      return;
    }
    if (group * TILE >= have_out) {
      for (u32 slab = 0; slab < slabs; slab++) {
        ring.wait_full();
        ring.release(ring.at);
        ring.advance();
      }
      return;
    }
    float acc[N / 2] = {}, bias = 0.f;
    pin(acc);
#pragma unroll 1
    for (u32 slab = 0; slab < slabs; slab++) {
      ring.wait_full();
      u32 mine = ring.stage() + group * TILE * 128;
#if PRECISION == 1
      if (n0 == 0 && t < TILE) bias += line_sum(mine, t);
#pragma unroll 1
      for (u32 half = 0; half < 2; half++) {
        u32 x = ring.stage() + A_BYTES + half * N * 128;
        Split d;
        d.load(mine + (t / 32 * 16 + t % 32 / 4) * 128, half);
        multiply_split<0, N>(acc, d, x, x + N * 64);
      }
      ring.release(ring.at);
      ring.advance();
    }
#else
      u64 d = operand(mine), x = operand(ring.stage() + A_BYTES);
      begin_products();
#pragma unroll
      for (int step = 0; step < LINE / STEP; step++) multiply<N>(acc, d + step * 2, x + step * 2);
      end_of_products();
      if (n0 == 0 && t < TILE) bias += line_sum(mine, t);
      wait_for_products<1>();
      if (slab > 0) ring.release_before();
      ring.advance();
    }
    wait_for_products<0>();
    pin(acc);
#endif
    float* gradient = a.gradient + split * a.split_stride;
    u32 lane = t % 32, o = m0 + group * TILE + t / 32 * 16 + lane / 4;
    if (n0 == 0 && t < TILE && m0 + group * TILE + t < OUT) gradient[a.bias[L] + m0 + group * TILE + t] = bias;
    gradient += a.weight[L];
    bool pairs = IN % 2 == 0 && ((u64)gradient & 7) == 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        u32 n = n0 + 8 * j + 2 * (lane % 4);
        float* to = gradient + (u64)(o + 8 * half) * IN + n;
        float v = acc[4 * j + 2 * half], w = acc[4 * j + 2 * half + 1];
        if (o + 8 * half >= OUT) continue;
        if (pairs && n + 2 <= IN) {
          *(float2*)to = make_float2(v, w);
        } else {
          if (n < IN) to[0] = v;
          if (n + 1 < IN) to[1] = w;
        }
      }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) weight_gradient(const __grid_constant__ GradientArgs a) {
  Operands ring(shared_address(shared));
  ring.begin();
  layer<0>(a, blockIdx.x, ring);
}
