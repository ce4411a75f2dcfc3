// Munchausen targets. Twin: foxhunt-ops/src/td_loss/munchausen.rs; f64, one rounding an operation, all eight lanes of a row.
#pragma once

// tau ln sum exp(q / tau) over the `len` actions of a branch, the same in every lane.
__device__ __forceinline__ double soft_value(const HeadRow& row, u32 branch, u32 start, u32 len, u32 lane, double tau) {
  float most = -F32_INFINITY;
#pragma unroll
  for (int k = 0; k < TURNS; k++) {
    u32 i = lane + 8 * k;
    if (i >= len) break;
    float q = row.q(branch, start + i);
    if (q > most) most = q;
  }
  for (int k = 4; k; k >>= 1) {
    float other = __shfl_xor_sync(ALL_LANES, most, k);
    if (other > most) most = other;
  }
  double sum = 0.;
#pragma unroll 1
  for (u32 i = lane; i < len; i += 8)
    sum = add(sum, exp_portable(__ddiv_rn(add((double)row.q(branch, start + i), -(double)most), tau)));
  for (int k = 4; k; k >>= 1) sum = add(sum, __shfl_xor_sync(ALL_LANES, sum, k));
  return add((double)most, mul(tau, ln_portable(sum)));
}

// tau ln pi(action|s) between the floor and 0; NaN stays NaN.
__device__ __forceinline__ double bonus(const HeadRow& row, u32 branch, u32 start, u32 len, u32 lane, u32 action, double tau, double floor) {
  double log_policy = add((double)row.q(branch, start + action), -soft_value(row, branch, start, len, lane, tau));
  return log_policy < floor ? floor : log_policy > 0. ? 0. : log_policy;
}
