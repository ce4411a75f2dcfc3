// Products of f32 matrices whose every element is one chain of fused multiply-adds over k in order, so that the result
// is the CPU's to the bit whatever the tile. Twin of foxhunt-ops/src/mlp/panels.rs.
//
// A block makes TILE_M x TILE_N elements, a thread THREAD_M x THREAD_N of them. Operands come through shared memory in
// slabs of SLAB values of k, STAGES of them in flight. The host picks the tile by measured times (tiles.rs).
//
// An operand lies row-major in memory either along k ([m][k]: states and weights on the way forward) or across it
// ([k][m]: both factors of a weight gradient).
#pragma once

constexpr int TX = TILE_N / THREAD_N, TY = TILE_M / THREAD_M, THREADS = TX * TY;
static_assert(TX * THREAD_N == TILE_N && TY * THREAD_M == TILE_M && TX % 8 == 0 && TY % 4 == 0 && SLAB % 4 == 0, "shape");

// Values of k in the unrolled body: about 500 multiply-adds, which the first instruction caches can follow.
constexpr int BODY = THREAD_M * THREAD_N > 32 ? 8 : THREAD_M * THREAD_N > 16 ? 16 : SLAB;
static_assert(SLAB % BODY == 0, "body");

// Where a thread stands among TX x TY. A warp covers 8 x 4 places, numbered so that lanes 2i and 2i + 1 share a column and
// lanes i and i ^ 2 a row: then a four-word load from shared memory takes two turns for either operand. With rows of
// eight consecutive lanes it takes two for one operand and four for the other.
__device__ __forceinline__ int thread_x() { return threadIdx.x / 32 % (TX / 8) * 8 + threadIdx.x % 16 / 2; }
__device__ __forceinline__ int thread_y() { return threadIdx.x / 32 / (TX / 8) * 4 + threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2; }

// ------------------------------------------------------------------------------------------------ copies

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

// A row-major matrix [rows, cols] with `stride` values from row to row.
struct Matrix {
  const float* at;
  u32 stride, rows, cols;
};

// Whether rows begin at 16-byte boundaries.
__device__ __forceinline__ bool is_wide(const float* at, u32 stride) { return ((u64)at & 15) == 0 && stride % 4 == 0; }

// ------------------------------------------------------------------------------------------------ fragments

__device__ __forceinline__ float load_1(u32 at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
  return v;
}
__device__ __forceinline__ float2 load_2(u32 at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
  return v;
}
__device__ __forceinline__ float4 load_4(u32 at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
  return v;
}

// One operand: TILE values of m (or n), T of them a thread, among P threads.
template <int TILE, int T, int P, bool ALONG_K>
struct Operand {
  static constexpr int STRIDE = ALONG_K ? SLAB + 4 : TILE;
  static constexpr int FLOATS = ALONG_K ? TILE * STRIDE : SLAB * STRIDE;

  // Where in the tile the i-th value of thread t is; chosen so that shared memory is read without conflicts.
  static __device__ __forceinline__ int place(int t, int i) {
    if (ALONG_K) return t + P * i;
    if (T % 4 == 0) return i / 4 * (4 * P) + t * 4 + i % 4;
    return t * T + i;
  }
  // One thread's part in copying slab after slab: always the same columns of every so many rows, four values at a time
  // where rows begin at 16-byte boundaries, else one. All that does not change from slab to slab is worked out once.
  struct Feed {
    static constexpr int R = ALONG_K ? TILE : SLAB, C = ALONG_K ? SLAB : TILE;
    const float* from;
    u64 stride;
    int rows_left, cols_left;
    u32 to;
    bool wide;

    __device__ __forceinline__ Feed(const Matrix& x, u32 first, u32 k) {
      wide = is_wide(x.at, x.stride);
      u32 v = wide ? 4 : 1, per_row = wide ? C / 4 : C;
      u32 r = threadIdx.x / per_row, c = threadIdx.x % per_row * v;
      u32 row = (ALONG_K ? first : k) + r, col = (ALONG_K ? k : first) + c;
      from = x.at + (u64)row * x.stride + col;
      stride = x.stride;
      rows_left = (int)x.rows - (int)row, cols_left = (int)x.cols - (int)col;
      to = once((r * STRIDE + c) * 4);
    }
    // Starts copying the next slab to `slab`; what lies outside the matrix becomes 0.
    __device__ __forceinline__ void next(u32 slab) {
      if (wide) turns<4>(slab + to);
      else turns<1>(slab + to);
      from += ALONG_K ? SLAB : SLAB * stride;
      if (ALONG_K) cols_left -= SLAB;
      else rows_left -= SLAB;
    }
    template <int V>
    __device__ __forceinline__ void turns(u32 at) const {
      constexpr int STEP = THREADS / (C / V), TURNS = (R + STEP - 1) / STEP;
      constexpr bool WHOLE = THREADS % (C / V) == 0 && R % STEP == 0;
      u32 r = threadIdx.x / (C / V);
      if (!WHOLE && r >= STEP) return;
      const float* p = from;
      if (V == 4 && WHOLE && cols_left >= 4 && rows_left > (TURNS - 1) * STEP) {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++, p += STEP * stride) copy_16(at + turn * STEP * STRIDE * 4, p);
        return;
      }
      u32 bytes = 4 * max(min(cols_left, V), 0);
#pragma unroll(V == 4 ? 2 : 4)
      for (int turn = 0; turn < TURNS; turn++, p += STEP * stride) {
        if (!WHOLE && r + turn * STEP >= R) break;
        u32 have = turn * STEP < rows_left ? bytes : 0;
        if (V == 4) copy_16(at + turn * STEP * STRIDE * 4, p, have);
        else copy_4(at + turn * STEP * STRIDE * 4, p, have);
      }
    }
  };
  // Shared memory is addressed by number: pointers into it are worked out anew wherever the compiler sees fit.
  static __device__ __forceinline__ u32 base(u32 slab, int t) {
    return slab + 4 * (ALONG_K ? t * STRIDE : t * (T % 4 == 0 ? 4 : T));
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

// The kernel ahead is waited for once a block, as late as possible. The kernel behind may start when a block's products
// are made and not before: its blocks would take the places where this one's work would be even.
struct Dependency {
  bool waited;
  __device__ __forceinline__ void wait() {
    if (!waited) {
      dependency_wait();
      waited = true;
    }
  }
};

template <bool A_ALONG_K, bool B_ALONG_K>
struct Product {
  using A = Operand<TILE_M, THREAD_M, TY, A_ALONG_K>;
  using B = Operand<TILE_N, THREAD_N, TX, B_ALONG_K>;
  static constexpr int STAGE = A::FLOATS + B::FLOATS;
  static_assert(STAGE * STAGES * 4 <= SHARED_BYTES, "shared memory");

  static __device__ __forceinline__ int m(int i) { return A::place(thread_y(), i); }
  static __device__ __forceinline__ int n(int j) { return B::place(thread_x(), j); }

  // acc[i][j] = fma(a[m, k], b[n, k], acc[i][j]) for k from `k_first` to below `k_end`. `early`: b is older than the
  // kernel ahead, so it is fetched before that one is done.
  static __device__ __forceinline__ void run(float (&acc)[THREAD_M][THREAD_N], const Matrix& a, const Matrix& b, u32 m0, u32 n0,
                             u32 k_first, u32 k_end, float* shared, bool early, Dependency& ahead) {
    u32 slabs = (k_end - k_first + SLAB - 1) / SLAB;
    u32 memory = once((u32)__cvta_generic_to_shared(shared));
    u32 a_base = once(A::base(memory, thread_y())), b_base = once(B::base(memory + A::FLOATS * 4, thread_x()));
    typename B::Feed feed_b(b, n0, k_first);
    // Early copies join the first group.
    early = early && !ahead.waited;
    if (early)
#pragma unroll 1
      for (u32 s = 0; s < STAGES - 1 && s < slabs; s++) feed_b.next(memory + (s * STAGE + A::FLOATS) * 4);
    typename A::Feed feed_a(a, m0, k_first);
    ahead.wait();
    // Slab s is fetched while slab s - (STAGES - 1) is used.
    u32 stage = 0, fill = 0;
#pragma unroll 1
    for (u32 s = 0; s < slabs + STAGES - 1; s++) {
      bool use = s >= STAGES - 1;
      if (use) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();  // the slab is there for all, and the place of the next one is free
      }
      if (s < slabs) {
        feed_a.next(memory + fill * STAGE * 4);
        if (use || !early) feed_b.next(memory + (fill * STAGE + A::FLOATS) * 4);
        fill = fill + 1 == STAGES ? 0 : fill + 1;
      }
      end_of_group();
      if (!use) continue;
      u32 as = a_base + stage * STAGE * 4, bs = b_base + stage * STAGE * 4;
      int count = min((u32)SLAB, k_end - (k_first + (s - (STAGES - 1)) * SLAB));
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
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    __syncthreads();
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
