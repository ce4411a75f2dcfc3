// Products of f32 matrices whose every element is one chain of fused multiply-adds over k in order, so that the result
// is the CPU's to the bit whatever the tile. Twin of foxhunt-ops/src/mlp/panels.rs.
//
// A block makes TILE_M x TILE_N elements, a thread THREAD_M x THREAD_N of them. The host picks the tile by measured times
// (tiles.rs).
#pragma once

constexpr int TX = TILE_N / THREAD_N, TY = TILE_M / THREAD_M, THREADS = TX * TY;
static_assert(TX * THREAD_N == TILE_N && TY * THREAD_M == TILE_M && TX % 8 == 0 && TY % 4 == 0 && SLAB % 4 == 0, "shape");
#include "feed.cuh"

// Values of k in the unrolled body: at most about 500 multiply-adds, which the first instruction caches can follow, and few where
// a block makes few, as then fetching the instructions takes longer than what they do.
constexpr int BODY = THREAD_M * THREAD_N > 32 ? 8 : 16;
static_assert(SLAB % BODY == 0, "body");

// Where a thread stands among TX x TY. A warp covers 8 x 4 places, numbered so that lanes 2i and 2i + 1 share a column and
// lanes i and i ^ 2 a row: then a four-word load from shared memory takes two turns for either operand. With rows of
// eight consecutive lanes it takes two for one operand and four for the other.
__device__ __forceinline__ int thread_x() { return threadIdx.x / 32 % (TX / 8) * 8 + threadIdx.x % 16 / 2; }
__device__ __forceinline__ int thread_y() { return threadIdx.x / 32 / (TX / 8) * 4 + threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2; }

// One operand: TILE values of m (or n), T of them a thread, among P threads.
template <int TILE, int T, int P, bool ALONG_K>
struct Operand : Slab<TILE, ALONG_K, ALONG_K ? SLAB + 4 : TILE> {
  static constexpr int STRIDE = Slab<TILE, ALONG_K, ALONG_K ? SLAB + 4 : TILE>::STRIDE;

  // Where in the tile the i-th value of thread t is; chosen so that shared memory is read without conflicts.
  static __device__ __forceinline__ int place(int t, int i) {
    if (ALONG_K) return t + P * i;
    if (T % 4 == 0) return i / 4 * (4 * P) + t * 4 + i % 4;
    return t * T + i;
  }
  // Shared memory is addressed by number: pointers into it are worked out anew wherever the compiler sees fit.
  static __device__ __forceinline__ u32 base(int t) {
    return 4 * (ALONG_K ? t * STRIDE : t * (T % 4 == 0 ? 4 : T));
  }
  static __device__ __forceinline__ u32 offset(int i, int k) {
    return 4 * (ALONG_K ? P * i * STRIDE + k : k * STRIDE + (T % 4 == 0 ? i / 4 * (4 * P) + i % 4 : i));
  }
  // Values of four k from `k` on.
  static __device__ __forceinline__ void four(u32 base, int k, float (&f)[T][4]) {
    if (ALONG_K) {
#pragma unroll
      for (int i = 0; i < T; i++) {
        float4 v = load_4(base + offset(i, k));
        f[i][0] = v.x, f[i][1] = v.y, f[i][2] = v.z, f[i][3] = v.w;
      }
    } else {
#pragma unroll
      for (int q = 0; q < 4; q++) {
        if (T % 4 == 0) {
#pragma unroll
          for (int i = 0; i < T; i += 4) {
            float4 v = load_4(base + offset(i, k + q));
            f[i][q] = v.x, f[i + 1][q] = v.y, f[i + 2][q] = v.z, f[i + 3][q] = v.w;
          }
        } else if (T % 2 == 0) {
#pragma unroll
          for (int i = 0; i < T; i += 2) {
            float2 v = load_2(base + offset(i, k + q));
            f[i][q] = v.x, f[i + 1][q] = v.y;
          }
        } else {
#pragma unroll
          for (int i = 0; i < T; i++) f[i][q] = load_1(base + offset(i, k + q));
        }
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ product

template <bool A_ALONG_K, bool B_ALONG_K>
struct Product {
  using A = Operand<TILE_M, THREAD_M, TY, A_ALONG_K>;
  using B = Operand<TILE_N, THREAD_N, TX, B_ALONG_K>;
  // Values that lie side by side in a row, from every RUN-th on.
  static constexpr int RUN = B_ALONG_K ? 1 : THREAD_N % 4 == 0 ? 4 : THREAD_N % 2 == 0 ? 2 : 1;

  static __device__ __forceinline__ int m(int i) { return A::place(thread_y(), i); }
  static __device__ __forceinline__ int n(int j) { return B::place(thread_x(), j); }

  // acc[i][j] = fma(a[m, k], b[n, k], acc[i][j]) for k from `k_first` to below `k_end`; the rest as `for_each_slab` has it.
  static __device__ __forceinline__ void run(float (&acc)[THREAD_M][THREAD_N], const Matrix& a, const Matrix& b, u32 m0, u32 n0,
                                             u32 k_first, u32 k_end, float* shared, bool early, Dependency& ahead) {
    u32 a_base = once(A::base(thread_y())), b_base = once(B::base(thread_x()));
    for_each_slab<A, B>(a, b, m0, n0, k_first, k_end, shared, early, ahead, [&](u32 as, u32 bs, int count) {
      as += a_base, bs += b_base;
      if (count == SLAB) {
#pragma unroll 1
        for (int k = 0; k < SLAB; k += BODY, as += A::offset(0, BODY), bs += B::offset(0, BODY))
#pragma unroll
          for (int q = 0; q < BODY; q += 4) multiply_four(acc, as, bs, q);
      } else {
        int k = 0;
#pragma unroll 1
        for (; k + 4 <= count; k += 4) multiply_four(acc, as + A::offset(0, k), bs + B::offset(0, k), 0);
#pragma unroll 1
        for (; k < count; k++) {
          float a1[THREAD_M], b1[THREAD_N];
#pragma unroll
          for (int i = 0; i < THREAD_M; i++) a1[i] = load_1(as + A::offset(i, k));
#pragma unroll
          for (int j = 0; j < THREAD_N; j++) b1[j] = load_1(bs + B::offset(j, k));
#pragma unroll
          for (int i = 0; i < THREAD_M; i++)
#pragma unroll
            for (int j = 0; j < THREAD_N; j++) acc[i][j] = fmaf(a1[i], b1[j], acc[i][j]);
        }
      }
    });
  }

  static __device__ __forceinline__ void multiply_four(float (&acc)[THREAD_M][THREAD_N], u32 as, u32 bs, int k) {
    float a[THREAD_M][4], b[THREAD_N][4];
    A::four(as, k, a);
    B::four(bs, k, b);
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
      for (int i = 0; i < THREAD_M; i++)
#pragma unroll
        for (int j = 0; j < THREAD_N; j++) acc[i][j] = fmaf(a[i][q], b[j][q], acc[i][j]);
  }
};
