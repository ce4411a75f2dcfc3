// What a Hopper warpgroup multiplies with: operands in shared memory, stages that a copy engine fills, products that run on their own.
//
//   PRECISION 1  tf32x3  x = hi + lo, both tf32; a b = lo hi + hi lo + hi hi. Each 16 values of k are summed apart and added with one
//                        rounding, because a tensor core cuts its own sums off instead of rounding them
//             2  tf32    values of 4 bytes, 8 of k a step, rounded to nearest even where they are stored
//             3  bf16    values of 2 bytes, 16 of k a step, rounded likewise
//
// Operands lie along k in lines of 128 bytes, sixteen bytes number i of line r at place i ^ r % 8, eight lines 1,024 bytes apart: what PTX
// calls K-major with a swizzle of 128 bytes. With tf32x3 so lies the left operand, as f32, and is split when a thread takes it. The right one
// lies split in lines of 64 bytes, all high parts of a slab in front of all low ones, sixteen bytes number i of line r at place
// i ^ r / 2 % 4. Products of each shape come as `Product<N>` in front of this text (cuda.rs).
#pragma once
#include "barrier.cuh"

constexpr int BYTES = PRECISION == 3 ? 2 : 4;
// Values of k in a step, in a line of a left operand, and in one of a right operand; parts that a right operand has. A slab of either is
// 128 bytes a line.
constexpr int STEP = 32 / BYTES, LINE = 128 / BYTES, PARTS = PRECISION == 1 ? 2 : 1, RIGHT_LINE = LINE / PARTS;
// Threads of a warpgroup, those of a block that multiply, and rows that one has.
constexpr int GROUP = 128, WORKERS = 2, THREADS = (WORKERS + 1) * GROUP, TILE = 64;

__host__ __device__ constexpr int rounded_up(int n, int to) { return (n + to - 1) / to * to; }

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// ------------------------------------------------------------------------------------------------ products

// Eight lines of 128, 64 or 32 bytes make a pattern, of which 1, 2 and 3 stand for these.
template <int LINE_BYTES = 128>
__device__ __forceinline__ u64 operand(u32 at) {
  constexpr u64 PATTERN = LINE_BYTES == 128 ? 1 : LINE_BYTES == 64 ? 2 : 3;
  return (u64)(at >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(8 * LINE_BYTES >> 4) << 32 | PATTERN << 62;
}

// Products write registers on their own: between two pins nothing else touches them.
template <int COUNT>
__device__ __forceinline__ void pin(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_of_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ void group_barrier(u32 group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

__device__ __forceinline__ float load_float(u32 at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
  return v;
}

#if PRECISION == 1
// What a thread has of 16 values of k of a left operand.
struct Split {
  u32 hi[2][4], lo[2][4];
  // `row`: where this thread's row begins in a slab, and `slab` which half of a line.
  __device__ __forceinline__ void load(u32 row, u32 half) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      u32 step = i / 4, k = i % 4 / 2, below = i % 2;
      float x = load_float(row + below * 1024 + ((half * 4 + step * 2 + k ^ lane / 4) << 4) + lane % 4 * 4);
      asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(hi[step][i % 4]) : "f"(x));
      // What is left has at most 12 bits, of which the multiplier takes the first 11.
      lo[step][i % 4] = __float_as_uint(x - __uint_as_float(hi[step][i % 4]));
    }
  }
};

// acc += a b for 16 values of k and lines FIRST and up of N; high parts begin at `b`, low ones at `low`. Fewer lines at once than PIECE would
// take as long, as the left operand comes from registers.
constexpr int PIECE = 128;
template <int FIRST, int N, int COUNT>
__device__ __forceinline__ void multiply_split(float (&acc)[COUNT], const Split& a, u32 b, u32 low) {
  if constexpr (FIRST < N) {
    constexpr int HERE = N - FIRST < PIECE ? N - FIRST : PIECE;
    u64 high = operand<64>(b + FIRST * 64), rest = operand<64>(low + FIRST * 64);
    float part[HERE / 2];
    begin_products();
    // The smallest first.
    Product<HERE>::first(part, a.lo[0], high);
    Product<HERE>::run(part, a.lo[1], high + 2);
    Product<HERE>::run(part, a.hi[0], rest);
    Product<HERE>::run(part, a.hi[1], rest + 2);
    Product<HERE>::run(part, a.hi[0], high);
    Product<HERE>::run(part, a.hi[1], high + 2);
    end_of_products();
    wait_for_products<0>();
    pin(part);
#pragma unroll
    for (int i = 0; i < HERE / 2; i++) acc[FIRST / 2 + i] += part[i];
    multiply_split<FIRST + PIECE, N>(acc, a, b, low);
  }
}
#else
// d += a b for a step of k; a has TILE lines, b has N.
template <int N>
__device__ __forceinline__ void multiply(float (&d)[N / 2], u64 a, u64 b) { Product<N>::run(d, a, b); }
#endif

// Registers change hands between the warpgroups of a block of three, of which one fills stages and needs few.
__device__ __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }

// ------------------------------------------------------------------------------------------------ values

// Where a value of k lies in lines of 128 bytes, in bytes.
__device__ __forceinline__ u32 place(u32 line, u32 k) { return line * 128 + ((k * BYTES / 16 ^ line % 8) << 4) + k * BYTES % 16; }
// The same in a right operand, of its high part.
__device__ __forceinline__ u32 right_place(u32 line, u32 k) {
  return PARTS == 1 ? place(line, k) : line * 64 + ((k / 4 ^ line / 2 % 4) << 4) + k % 4 * 4;
}

// In an image of a batch k is the row. The rows of a tile are in such an order that the two which a thread has of an element lie side by
// side: row r of a tile is number `of_row(r)`.
__device__ __forceinline__ u32 of_row(u32 row) { return row / 16 * 16 + row % 8 * 2 + row / 8 % 2; }
// In bytes from the beginning of an image of `lines` lines, of a left and of a right operand.
__device__ __forceinline__ u64 image_place(u32 tile, u32 number, u32 line, u32 lines) {
  return (u64)(tile * (TILE / LINE) + number / LINE) * lines * 128 + place(line, number % LINE);
}
__device__ __forceinline__ u64 right_image_place(u32 tile, u32 number, u32 line, u32 lines) {
  return (u64)(tile * (TILE / RIGHT_LINE) + number / RIGHT_LINE) * lines * 128 + right_place(line, number % RIGHT_LINE);
}

__device__ __forceinline__ u32 to_tf32(float x) {
  u32 v;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
  return v;
}
// As a value of 4 bytes is kept.
__device__ __forceinline__ u32 rounded(float x) { return PRECISION == 1 ? __float_as_uint(x) : to_tf32(x); }
__device__ __forceinline__ u32 two_rounded(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
// max(x, 0) as it is kept, or before it is where that takes two of them; a NaN stays one.
__device__ __forceinline__ float above_0(float x) {
  if (PRECISION == 2) {
    u32 v;
    asm("cvt.rn.relu.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
    return __uint_as_float(v);
  }
  float v;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(v) : "f"(x));
  return v;
}

// Values as they are stored: one, or two side by side, in shared memory or (by address) in memory.
__device__ __forceinline__ void store_rounded(u32 at, float x) {
  if (BYTES == 4) asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(rounded(x)) : "memory");
  else asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"((unsigned short)two_rounded(x, 0.f)) : "memory");
}
__device__ __forceinline__ void store_rounded(unsigned char* at, float x) {
  if (BYTES == 4) *(u32*)at = rounded(x);
  else *(unsigned short*)at = (unsigned short)two_rounded(x, 0.f);
}
__device__ __forceinline__ void store_pair(u32 at, float x, float y) {
  if (BYTES == 4) asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(rounded(x)), "r"(rounded(y)) : "memory");
  else asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(two_rounded(x, y)) : "memory");
}
__device__ __forceinline__ void store_pair(unsigned char* at, float x, float y) {
  if (BYTES == 4) *(uint2*)at = make_uint2(rounded(x), rounded(y));
  else *(u32*)at = two_rounded(x, y);
}
// Values that are rounded to tf32 already.
__device__ __forceinline__ void store_kept(u32 at, float x) {
  if (BYTES == 4) asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
  else store_rounded(at, x);
}
__device__ __forceinline__ void store_rounded_pair(u32 at, float x, float y) {
  if (BYTES == 4) asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(__float_as_uint(x)), "r"(__float_as_uint(y)) : "memory");
  else store_pair(at, x, y);
}
__device__ __forceinline__ void store_rounded_pair(unsigned char* at, float x, float y) {
  if (BYTES == 4) *(uint2*)at = make_uint2(__float_as_uint(x), __float_as_uint(y));
  else store_pair(at, x, y);
}
// Sixteen bytes of values.
__device__ __forceinline__ void store_sixteen(u32 at, const float (&v)[16 / BYTES]) {
  u32 w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = BYTES == 4 ? rounded(v[i]) : two_rounded(v[2 * i % (16 / BYTES)], v[(2 * i + 1) % (16 / BYTES)]);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
// Values of a right operand of `lines` lines, which are rounded already with tf32 and bf16: high parts, and low ones behind them.
__device__ __forceinline__ void store_right(unsigned char* at, float x, u32 lines) {
  if (PARTS == 1) {
    store_rounded(at, x);
  } else {
    u32 hi = to_tf32(x);
    *(u32*)at = hi;
    *(float*)(at + lines * 64) = x - __uint_as_float(hi);
  }
}
__device__ __forceinline__ void store_right_pair(unsigned char* at, float x, float y, u32 lines) {
  if (PARTS == 1) {
    store_rounded_pair(at, x, y);
  } else {
    u32 hi = to_tf32(x), other = to_tf32(y);
    *(uint2*)at = make_uint2(hi, other);
    *(float2*)(at + lines * 64) = make_float2(x - __uint_as_float(hi), y - __uint_as_float(other));
  }
}

// ------------------------------------------------------------------------------------------------ stages

// DEPTH pieces of shared memory that the copy engine fills and USERS warps empty, in the same order.
template <int DEPTH, int EACH, int USERS>
struct Ring {
  static constexpr int BYTES_OF_ALL = DEPTH * (EACH + 16);
  u32 stages, barriers, at = 0, parity = 0;
  __device__ __forceinline__ explicit Ring(u32 memory) : stages(memory), barriers(memory + DEPTH * EACH) {}
  __device__ __forceinline__ u32 full(u32 i) const { return barriers + 16 * i; }
  __device__ __forceinline__ u32 empty(u32 i) const { return barriers + 16 * i + 8; }
  __device__ __forceinline__ u32 stage() const { return stages + at * EACH; }
  __device__ __forceinline__ void advance() {
    if (++at == DEPTH) at = 0, parity ^= 1;
  }
  // All threads of the block come here first.
  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      for (u32 i = 0; i < DEPTH; i++) make_barrier(full(i), 1), make_barrier(empty(i), USERS);
      barriers_are_made();
    }
    __syncthreads();
  }

  // The one thread that fills: first how much a stage gets, then its parts, then the next stage.
  __device__ __forceinline__ void expect(u32 bytes) const {
    wait_for(empty(at), parity ^ 1);
    expect_bytes(full(at), bytes);
  }
  __device__ __forceinline__ void fetch(u32 offset, const void* from, u32 bytes) const { bring(stage() + offset, from, bytes, full(at)); }

  // Those that empty.
  __device__ __forceinline__ void wait_full() const { wait_for(full(at), parity); }
  __device__ __forceinline__ void release(u32 i) const {
    __syncwarp();  // no lane reads it any more
    if (threadIdx.x % 32 == 0) arrive(empty(i));
  }
  __device__ __forceinline__ void release_before() const { release(at ? at - 1 : DEPTH - 1); }
};
