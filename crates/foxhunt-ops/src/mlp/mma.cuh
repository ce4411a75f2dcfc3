// Products on tensor cores, with the face of `Product` in tiles.cuh and the arithmetic of tensor.cuh.
//
// A warp makes WARP_M x WARP_N elements from 16 values of k at a time; with WARPS_K > 1 so many warps share the elements,
// each takes every WARPS_K-th 16 values, and their sums are added in order. So bits depend on WARPS_K, which is a
// function of sizes and device (tiles.rs), and on nothing else.
#pragma once

constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N, THREADS = 32 * WARPS_M * WARPS_N * WARPS_K;
// Fragments of 16 rows and of 8 columns a warp, and elements a thread.
constexpr int ROWS = WARP_M / 16, COLS = WARP_N / 8, THREAD_M = 2 * ROWS, THREAD_N = 2 * COLS;
static_assert(ROWS * 16 * WARPS_M == TILE_M && COLS * 8 * WARPS_N == TILE_N && SLAB % 16 == 0, "shape");
static_assert((ROWS == 1 || ROWS % 2 == 0) && (COLS <= 2 || COLS % 4 == 0), "fragments");
static_assert(THREADS >= 64 && THREADS <= 256 && THREADS >= TILE_M, "sums over rows take a thread an output");
// Steps of 16 values in the unrolled body: more than one where that is fewer than some 200 instructions.
constexpr int UNROLL = ROWS * COLS <= 2 ? 4 : ROWS * COLS <= 8 && PRECISION != 1 ? 2 : 1;
#include "feed.cuh"
#include "tensor.cuh"

__device__ __forceinline__ int warp_m() { return threadIdx.x / 32 % WARPS_M; }
__device__ __forceinline__ int warp_n() { return threadIdx.x / 32 / WARPS_M % WARPS_N; }
__device__ __forceinline__ int warp_k() { return threadIdx.x / 32 / (WARPS_M * WARPS_N); }
// ------------------------------------------------------------------------------------------------ fragments

// Rows of a slab are 4 words apart in banks along k and 8 across it: neither kind of load below meets a bank twice.
template <int TILE, bool ALONG_K>
using Padded = Slab<TILE, ALONG_K, ALONG_K ? SLAB + 4 : TILE + 8>;

// The left operand: ROWS fragments of 16 values of m by 8 of k, (row, col) (row + 8, col) (row, col + 4) (row + 8, col + 4).
template <bool ALONG_K>
struct Left : Padded<TILE_M, ALONG_K> {
  static constexpr int STRIDE = Padded<TILE_M, ALONG_K>::STRIDE;
  // Across k a thread's values of m lie side by side in memory, SIDE of them.
  static constexpr int SIDE = ROWS % 2 == 0 ? 4 : 2;

  static __device__ __forceinline__ u32 base() {
    u32 lane = threadIdx.x % 32, first = warp_m() * WARP_M;
    return 4 * (ALONG_K ? (first + lane % 16) * STRIDE + lane / 16 * 4 : lane_col() * STRIDE + first + SIDE * lane_row());
  }
  static __device__ __forceinline__ int place(int i) {
    int m = ALONG_K ? i / 2 * 16 + i % 2 * 8 + lane_row() : i / SIDE * (8 * SIDE) + SIDE * lane_row() + i % SIDE;
    return warp_m() * WARP_M + m;
  }
  static __device__ __forceinline__ void load(u32 at, float (&f)[ROWS][4]) {
    if (ALONG_K) {
#pragma unroll
      for (int r = 0; r < ROWS; r++) load_matrices(at + 4 * (16 * r * STRIDE), f[r]);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int r = 0; r < ROWS; r += SIDE / 2) {
        u32 from = at + 4 * (4 * half * STRIDE + 16 * r);
        if (SIDE == 4) {
          float4 v = load_4(from);
          f[r][2 * half] = v.x, f[r][2 * half + 1] = v.y, f[r + SIDE / 4][2 * half] = v.z, f[r + SIDE / 4][2 * half + 1] = v.w;
        } else {
          float2 v = load_2(from);
          f[r][2 * half] = v.x, f[r][2 * half + 1] = v.y;
        }
      }
  }
};

// The right operand: COLS fragments of 8 values of n by 8 of k, (col, row) (col + 4, row).
template <bool ALONG_K>
struct Right : Padded<TILE_N, ALONG_K> {
  static constexpr int STRIDE = Padded<TILE_N, ALONG_K>::STRIDE;
  static constexpr int SIDE = COLS % 4 == 0 ? 4 : COLS;

  static __device__ __forceinline__ u32 base() {
    u32 lane = threadIdx.x % 32, first = warp_n() * WARP_N;
    return 4 * (ALONG_K ? (first + lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 4 : lane_col() * STRIDE + first + SIDE * lane_row());
  }
  // Where the j-th column of a thread is, and which of them the b-th of fragment c is.
  static __device__ __forceinline__ int place(int j) {
    int in = j % (2 * SIDE);
    int n = ALONG_K ? j / 2 * 8 + 2 * lane_col() + j % 2 : j / (2 * SIDE) * (8 * SIDE) + SIDE * (2 * lane_col() + in / SIDE) + in % SIDE;
    return warp_n() * WARP_N + n;
  }
  static __device__ __forceinline__ constexpr int column(int c, int b) {
    return ALONG_K ? 2 * c + b : c / SIDE * (2 * SIDE) + b * SIDE + c % SIDE;
  }
  static __device__ __forceinline__ void load(u32 at, float (&f)[COLS][2]) {
    if (ALONG_K && COLS == 1) {
      load_matrices(at, f[0]);
    } else if (ALONG_K) {
#pragma unroll
      for (int c = 0; c < COLS; c += 2) {
        float v[4];
        load_matrices(at + 4 * (8 * c * STRIDE), v);
        f[c][0] = v[0], f[c][1] = v[1], f[(c + 1) % COLS][0] = v[2], f[(c + 1) % COLS][1] = v[3];
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int c = 0; c < COLS; c += SIDE) {
          u32 from = at + 4 * (4 * half * STRIDE + 8 * c);
          if (SIDE == 4) {
            float4 v = load_4(from);
            f[c][half] = v.x, f[(c + 1) % COLS][half] = v.y, f[(c + 2) % COLS][half] = v.z, f[(c + 3) % COLS][half] = v.w;
          } else if (SIDE == 2) {
            float2 v = load_2(from);
            f[c][half] = v.x, f[(c + 1) % COLS][half] = v.y;
          } else {
            f[c][half] = load_1(from);
          }
        }
    }
  }
};

// ------------------------------------------------------------------------------------------------ product

template <bool A_ALONG_K, bool B_ALONG_K>
struct Product {
  using A = Left<A_ALONG_K>;
  using B = Right<B_ALONG_K>;
  // Values that lie side by side in a row, from every RUN-th on.
  static constexpr int RUN = B_ALONG_K || COLS == 1 ? 2 : 4;
  static_assert((WARPS_K - 1) * TILE_M * TILE_N * 4 <= SHARED_BYTES, "shared memory");

  static __device__ __forceinline__ int m(int i) { return A::place(i); }
  // Sums end in the first of the warps that share elements; to the others none belongs.
  static __device__ __forceinline__ int n(int j) { return WARPS_K > 1 && warp_k() ? 1 << 30 : B::place(j); }

  // acc[i][j] += sum of a[m, k] b[n, k] for k from `k_first` to below `k_end`; the rest as `for_each_slab` has it.
  static __device__ __forceinline__ void run(float (&acc)[THREAD_M][THREAD_N], const Matrix& a, const Matrix& b, u32 m0, u32 n0,
                                             u32 k_first, u32 k_end, float* shared, bool early, Dependency& ahead) {
    constexpr int A_STEP = 4 * (A_ALONG_K ? 1 : A::STRIDE), B_STEP = 4 * (B_ALONG_K ? 1 : B::STRIDE);
    u32 a_base = once(A::base() + 16 * warp_k() * A_STEP), b_base = once(B::base() + 16 * warp_k() * B_STEP);
    // Of each fragment, in the order a tensor core has them.
    float sums[ROWS][COLS][4];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int c = 0; c < COLS; c++)
#pragma unroll
        for (int q = 0; q < 4; q++) sums[r][c][q] = acc[2 * r + q / 2][B::column(c, q % 2)];
    for_each_slab<A, B>(a, b, m0, n0, k_first, k_end, shared, early, ahead, [&](u32 as, u32 bs, int count) {
      as += a_base, bs += b_base;
#pragma unroll UNROLL
      for (int k = 16 * warp_k(); k < count; k += 16 * WARPS_K, as += 16 * WARPS_K * A_STEP, bs += 16 * WARPS_K * B_STEP) {
        FragmentA fa[ROWS];
        FragmentB fb[COLS];
#pragma unroll
        for (int part = 0; part < 2; part++) {
          float x[ROWS][4], y[COLS][2];
          A::load(as + 8 * part * A_STEP, x);
          B::load(bs + 8 * part * B_STEP, y);
#pragma unroll
          for (int r = 0; r < ROWS; r++) fa[r].set(part, x[r]);
#pragma unroll
          for (int c = 0; c < COLS; c++) fb[c].set(part, y[c]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int c = 0; c < COLS; c++) multiply(sums[r][c], fa[r], fb[c]);
      }
    });
    if (WARPS_K > 1) join(sums, shared);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int c = 0; c < COLS; c++)
#pragma unroll
        for (int q = 0; q < 4; q++) acc[2 * r + q / 2][B::column(c, q % 2)] = sums[r][c][q];
  }

  // Adds the sums of the warps that share elements, in order, in the first of them.
  static __device__ __forceinline__ void join(float (&sums)[ROWS][COLS][4], float* shared) {
    constexpr int SHARERS = 32 * WARPS_M * WARPS_N, EACH = ROWS * COLS * 4;
    u32 k = warp_k(), t = threadIdx.x % SHARERS;
    float* flat = &sums[0][0][0];
    if (k)
#pragma unroll
      for (int e = 0; e < EACH; e++) shared[((k - 1) * EACH + e) * SHARERS + t] = flat[e];
    __syncthreads();
    if (!k)
#pragma unroll
      for (int other = 0; other < WARPS_K - 1; other++)
#pragma unroll
        for (int e = 0; e < EACH; e++) flat[e] += shared[(other * EACH + e) * SHARERS + t];
    __syncthreads();
  }
};
