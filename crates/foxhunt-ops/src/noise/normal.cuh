// Standard normal numbers from random words. Twin: foxhunt-ops/src/noise/normal.rs, the same operations in the same order.
#pragma once

__device__ __forceinline__ double step(double sum, double r, double c) { return add(mul(sum, r), c); }

// The quantile at (word + 1/2) / 2^32.
__device__ __forceinline__ double normal_of(u32 word) {
  double p = mul(add((double)word, 0.5), 1. / 4294967296.), q = add(p, -0.5);
  double over, under;
  if (fabs(q) <= 0.425) {
    double r = add(0.180625, -mul(q, q));
    over = 2.5090809287301226727e3;
    over = step(over, r, 3.3430575583588128105e4), over = step(over, r, 6.7265770927008700853e4);
    over = step(over, r, 4.5921953931549871457e4), over = step(over, r, 1.3731693765509461125e4);
    over = step(over, r, 1.9715909503065514427e3), over = step(over, r, 1.3314166789178437745e2);
    over = step(over, r, 3.387132872796366608);
    under = 5.2264952788528545610e3;
    under = step(under, r, 2.8729085735721942674e4), under = step(under, r, 3.9307895800092710610e4);
    under = step(under, r, 2.1213794301586595867e4), under = step(under, r, 5.3941960214247511077e3);
    under = step(under, r, 6.8718700749205790830e2), under = step(under, r, 4.2313330701600911252e1);
    under = step(under, r, 1.);
    return mul(q, __ddiv_rn(over, under));
  }
  double tail = q < 0. ? p : add(1., -p);
  double r = add(__dsqrt_rn(-ln_portable(tail)), -1.6);
  over = 7.74545014278341407640e-4;
  over = step(over, r, 2.27238449892691845833e-2), over = step(over, r, 2.41780725177450611770e-1);
  over = step(over, r, 1.27045825245236838258), over = step(over, r, 3.64784832476320460504);
  over = step(over, r, 5.76949722146069140550), over = step(over, r, 4.63033784615654529590);
  over = step(over, r, 1.42343711074968357734);
  under = 1.05075007164441684324e-9;
  under = step(under, r, 5.47593808499534494600e-4), under = step(under, r, 1.51986665636164571966e-2);
  under = step(under, r, 1.48103976427480074590e-1), under = step(under, r, 6.89767334985100004550e-1);
  under = step(under, r, 1.67638483018380384940), under = step(under, r, 2.05319162663775882187);
  under = step(under, r, 1.);
  double x = __ddiv_rn(over, under);
  return q < 0. ? -x : x;
}

// sgn(x) sqrt(|x|) of the normal number of a word.
__device__ __forceinline__ float factor_of(u32 word) {
  double x = normal_of(word), root = __dsqrt_rn(fabs(x));
  return __double2float_rn(x < 0. ? -root : root);
}
