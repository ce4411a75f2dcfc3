// Fragments of f32 matrices on tensor cores: rounded where they are used, f32 sums.
//
//   PRECISION 1  tf32x3  x = hi + lo, both tf32; a b = lo hi + hi lo + hi hi. Each 16 values of k are summed apart and
//                        added with one rounding, because a tensor core cuts its own sums off instead of rounding them
//             2  tf32    rounded to nearest, 10 bits behind the first; ties to even, before compute capability 9.0 away from 0
//             3  bf16    rounded to nearest even, 7 bits behind the first
//
// A value above the largest tf32 or bf16 (3.39e38) becomes infinite; what is not finite stays so and reaches the sums.
#pragma once

// A lane's row and column of a fragment.
__device__ __forceinline__ int lane_row() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int lane_col() { return threadIdx.x % 4; }

// Matrices of 8 rows of 16 bytes; a thread gets word `lane_col` of row `lane_row` of each.
__device__ __forceinline__ void load_matrices(u32 at, float (&v)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at));
}
__device__ __forceinline__ void load_matrices(u32 at, float (&v)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(at));
}

__device__ __forceinline__ u32 to_tf32(float x) {
  u32 v;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
#endif
  return v;
}
// What is left of x beside `hi` has at most 12 bits, of which the multiplier takes the first 11.
__device__ __forceinline__ void split(float x, u32& hi, u32& lo) {
  hi = to_tf32(x);
  lo = __float_as_uint(x - __uint_as_float(hi));
}
__device__ __forceinline__ u32 to_bf16(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ void multiply_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void multiply_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// d = d + a b for 16 values of k, in two fragments of 8 each.
#if PRECISION == 1
struct FragmentA {
  u32 hi[2][4], lo[2][4];
  __device__ __forceinline__ void set(int part, const float (&x)[4]) {
#pragma unroll
    for (int q = 0; q < 4; q++) split(x[q], hi[part][q], lo[part][q]);
  }
};
struct FragmentB {
  u32 hi[2][2], lo[2][2];
  __device__ __forceinline__ void set(int part, const float (&x)[2]) {
#pragma unroll
    for (int q = 0; q < 2; q++) split(x[q], hi[part][q], lo[part][q]);
  }
};
__device__ __forceinline__ void multiply(float (&d)[4], const FragmentA& a, const FragmentB& b) {
  float sum[4] = {};
#pragma unroll
  for (int part = 0; part < 2; part++) {
    multiply_tf32(sum, a.lo[part], b.hi[part], sum);
    multiply_tf32(sum, a.hi[part], b.lo[part], sum);
  }
#pragma unroll
  for (int part = 0; part < 2; part++) multiply_tf32(sum, a.hi[part], b.hi[part], sum);
#pragma unroll
  for (int q = 0; q < 4; q++) d[q] += sum[q];
}
#elif PRECISION == 2
struct FragmentA {
  u32 x[2][4];
  __device__ __forceinline__ void set(int part, const float (&v)[4]) {
#pragma unroll
    for (int q = 0; q < 4; q++) x[part][q] = to_tf32(v[q]);
  }
};
struct FragmentB {
  u32 x[2][2];
  __device__ __forceinline__ void set(int part, const float (&v)[2]) {
#pragma unroll
    for (int q = 0; q < 2; q++) x[part][q] = to_tf32(v[q]);
  }
};
__device__ __forceinline__ void multiply(float (&d)[4], const FragmentA& a, const FragmentB& b) {
#pragma unroll
  for (int part = 0; part < 2; part++) multiply_tf32(d, a.x[part], b.x[part], d);
}
#else
// A pair of k in one word is (col, col + 4) on both sides.
struct FragmentA {
  u32 x[4];
  __device__ __forceinline__ void set(int part, const float (&v)[4]) {
    x[2 * part] = to_bf16(v[0], v[2]), x[2 * part + 1] = to_bf16(v[1], v[3]);
  }
};
struct FragmentB {
  u32 x[2];
  __device__ __forceinline__ void set(int part, const float (&v)[2]) { x[part] = to_bf16(v[0], v[1]); }
};
__device__ __forceinline__ void multiply(float (&d)[4], const FragmentA& a, const FragmentB& b) { multiply_bf16(d, a.x, b.x, d); }
#endif
