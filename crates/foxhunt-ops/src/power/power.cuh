// Powers that are the same bits on every engine. Twin of foxhunt-ops/src/power/mod.rs: the same additions and
// multiplications in the same order, each rounded on its own (no fused multiply-add).
#pragma once

__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double line(double c0, double c1, double t) { return add(c0, mul(c1, t)); }

// log2(x) for a positive, normal, finite x. Exact for powers of two.
__device__ __forceinline__ double log2_portable(double x) {
  long long bits = __double_as_longlong(x);
  long long exponent = (bits - 0x3FE6A09E667F3BCDll) >> 52;
  double t = add(__longlong_as_double(bits - exponent * (1ll << 52)), -1.0);
  double t2 = mul(t, t), t4 = mul(t2, t2);
  double q0 = line(1.4426950408862034, -0.7213475203430864, t);
  double q1 = line(0.4808983490727961, -0.36067378977100695, t);
  double q2 = line(0.28853876232996745, -0.24044662677727305, t);
  double q3 = line(0.20610869528306625, -0.18043268521020117, t);
  double q4 = line(0.16018226130296026, -0.14252340755410017, t);
  double q5 = line(0.13062890256021095, -0.13478928738366042, t);
  double q6 = line(0.13113743753686682, -0.06806287590390596, t);
  double low = add(add(q0, mul(q1, t2)), mul(add(q2, mul(q3, t2)), t4));
  double high = add(add(q4, mul(q5, t2)), mul(q6, t4));
  return add((double)exponent, mul(add(low, mul(high, mul(t4, t4))), t));
}

// ln(x) for any x: exactly 0 at 1, NaN below zero.
__device__ __forceinline__ double ln_portable(double x) {
  const double ln_2 = 0.6931471805599453, infinity = __longlong_as_double(0x7ff0000000000000ll);
  if (x >= 2.2250738585072014e-308 && x < infinity) return mul(log2_portable(x), ln_2);
  if (x > 0.0) return x == infinity ? x : mul(add(log2_portable(mul(x, 18014398509481984.0)), -54.0), ln_2);
  return x == 0.0 ? -infinity : __longlong_as_double(0x7ff8000000000000ll);
}

// 2^x for x in [-1000, 1000]. Exact for integers.
__device__ __forceinline__ double exp2_portable(double x) {
  double whole = rint(x), f = add(x, -whole);
  double f2 = mul(f, f);
  double q0 = line(0.6931471805568324, 0.24022650695888503, f);
  double q1 = line(0.055504109063258665, 0.00961812913523614, f);
  double q2 = line(0.0013333478473685416, 0.00015403475186530786, f);
  double q3 = line(1.5303700711365693e-05, 1.325080551750225e-06, f);
  double sum = add(add(q0, mul(q1, f2)), mul(add(q2, mul(q3, f2)), mul(f2, f2)));
  double power = __longlong_as_double(((long long)whole + 1023) << 52);
  return mul(add(1.0, mul(f, sum)), power);
}

// e^x for any x: exactly 1 at 0, 0 below -690, infinite above 690.
__device__ __forceinline__ double exp_portable(double x) {
  if (x < -690.) return 0.;
  if (x > 690.) return __longlong_as_double(0x7ff0000000000000ll);
  return x != x ? x : exp2_portable(mul(x, 1.4426950408889634));
}

// x^a for finite x >= 0 and a in [0, 4]; 0^0 is 1, 0^a is 0.
__device__ __forceinline__ float pow_portable(float x, float a) {
  if (a == 0.f) return 1.f;
  if (x == 0.f) return 0.f;
  return __double2float_rn(exp2_portable(mul((double)a, log2_portable((double)x))));
}

// (w_min / w)^beta; log2_w is log2_portable of w.
__device__ __forceinline__ float weight_portable(float w_min, double log2_w, float beta) {
  double gap = add(log2_portable((double)w_min), -log2_w);
  return __double2float_rn(exp2_portable(mul((double)beta, gap)));
}
