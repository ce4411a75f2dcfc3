// How operands come to shared memory, whatever multiplies them there: slabs of SLAB values of k, STAGES of them in flight.
//
// An operand lies row-major in memory either along k ([m][k]: states and weights on the way forward) or across it
// ([k][m]: both factors of a weight gradient), and the same way in a slab. THREADS is the block's.
#pragma once
#include "copies.cuh"

// A row-major matrix [rows, cols] with `stride` values from row to row.
struct Matrix {
  const float* at;
  u32 stride, rows, cols;
};

// Whether rows begin at 16-byte boundaries.
__device__ __forceinline__ bool is_wide(const float* at, u32 stride) { return ((u64)at & 15) == 0 && stride % 4 == 0; }

// RUN values side by side, from number `n` of a row on, of those below `end`. `wide`: rows begin at 16-byte boundaries.
template <int RUN>
__device__ __forceinline__ void load_run(const float* row, u32 n, u32 end, bool wide, float (&v)[RUN]) {
  bool whole = wide && n + RUN <= end;
  if (RUN == 4 && whole) {
    float4 x = *(const float4*)(row + n);
    v[0] = x.x, v[1 % RUN] = x.y, v[2 % RUN] = x.z, v[3 % RUN] = x.w;
  } else if (RUN == 2 && whole) {
    float2 x = *(const float2*)(row + n);
    v[0] = x.x, v[1 % RUN] = x.y;
  } else {
#pragma unroll
    for (int q = 0; q < RUN; q++) v[q] = n + q < end ? row[n + q] : 0.f;
  }
}
template <int RUN>
__device__ __forceinline__ void store_run(float* row, u32 n, u32 end, bool wide, const float (&v)[RUN]) {
  bool whole = wide && n + RUN <= end;
  if (RUN == 4 && whole) {
    *(float4*)(row + n) = make_float4(v[0], v[1 % RUN], v[2 % RUN], v[3 % RUN]);
  } else if (RUN == 2 && whole) {
    *(float2*)(row + n) = make_float2(v[0], v[1 % RUN]);
  } else {
#pragma unroll
    for (int q = 0; q < RUN; q++)
      if (n + q < end) row[n + q] = v[q];
  }
}

// ------------------------------------------------------------------------------------------------ operands

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

// One operand's slab in shared memory: rows of STRIDE values, TILE of them along k or SLAB of them across.
template <int TILE, bool ALONG_K, int ROW>
struct Slab {
  static constexpr int STRIDE = ROW;
  static constexpr int FLOATS = (ALONG_K ? TILE : SLAB) * STRIDE;

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
};

// ------------------------------------------------------------------------------------------------ slab after slab

// The kernel ahead is waited for once a block, as late as possible. The kernel behind may start when a block's products
// are made and not before, as its blocks would crowd where this one has none; but where there are fewer blocks than
// multiprocessors (`lonely`) nothing crowds, and it may start at once.
struct Dependency {
  bool lonely, waited;
  __device__ __forceinline__ explicit Dependency(bool few, bool beside = false) : lonely(few), waited(beside) {
    if (beside && lonely) dependents_may_start();
  }
  __device__ __forceinline__ void wait() {
    if (!waited) {
      dependency_wait();
      waited = true;
      if (lonely) dependents_may_start();
    }
  }
};

// Hands each slab of k from `k_first` to below `k_end` to `use(a, b, count)`: where both operands are and how many values
// of k count; those behind are 0. `early`: b is older than the kernel ahead, so it is fetched before that one is done.
template <class A, class B, class Use>
__device__ __forceinline__ void for_each_slab(const Matrix& a, const Matrix& b, u32 m0, u32 n0, u32 k_first, u32 k_end, float* shared,
                                              bool early, Dependency& ahead, Use use) {
  constexpr int STAGE = A::FLOATS + B::FLOATS;
  static_assert(STAGE * STAGES * 4 <= SHARED_BYTES, "shared memory");
  u32 slabs = (k_end - k_first + SLAB - 1) / SLAB;
  u32 memory = once((u32)__cvta_generic_to_shared(shared));
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
    bool in_use = s >= STAGES - 1;
    if (in_use) {
      wait_for_groups<STAGES - 2>();
      __syncthreads();  // the slab is there for all, and the place of the next one is free
    }
    if (s < slabs) {
      feed_a.next(memory + fill * STAGE * 4);
      if (in_use || !early) feed_b.next(memory + (fill * STAGE + A::FLOATS) * 4);
      fill = fill + 1 == STAGES ? 0 : fill + 1;
    }
    end_of_group();
    if (!in_use) continue;
    u32 from = memory + stage * STAGE * 4;
    use(from, from + A::FLOATS * 4, (int)min((u32)SLAB, k_end - (k_first + (s - (STAGES - 1)) * SLAB)));
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  __syncthreads();
}
