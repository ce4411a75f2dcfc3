// Choosing actions on the device. Twins: foxhunt-ops/src/select_actions/cpu.rs and foxhunt-core/src/action.rs.
// Needs common.cuh and philox.cuh. A mask of 0 (null) forbids nothing.
#pragma once

#define PURPOSE_EXPLORE 2u
#define FLAT 2u
#define FLAT_FACTORED 19u
#define N_EXPOSURES 5u
#define N_FACTORED 45u
#define N_BRANCHING 11u

typedef const unsigned char* Mask;

__device__ __forceinline__ u32 below(u32 bits, u32 n) { return __umulhi(bits, n); }

// Whether decision of environment `env` at vector step `step` is random, and the word that numbers its action.
__device__ __forceinline__ bool explore_coin(u64 seed, u32 env, u64 step, float epsilon, u32* word) {
  if (!(epsilon > 0.f)) return false;
  u64 words = philox_u64(seed, PURPOSE_EXPLORE, env, step);
  *word = (u32)words;
  return __fmul_rn((float)(u32)(words >> 40), 1.f / 16777216.f) < epsilon;
}

// Index of the largest legal value that is not NaN, the lowest on ties; n when there is none.
__device__ __forceinline__ u32 argmax(const float* q, Mask mask, u32 n) {
  u32 best = n;
  float top = __uint_as_float(0x7fffffffu);
#pragma unroll
  for (u32 i = 0; i < n; i++) {
    float value = q[i];
    bool better = (!mask || mask[i]) && value == value && !(value <= top);
    best = better ? i : best;
    top = better ? value : top;
  }
  return best;
}

__device__ __forceinline__ u32 legal_count(Mask mask, u32 n) {
  if (!mask) return n;
  u32 count = 0;
  for (u32 i = 0; i < n; i++) count += mask[i] != 0;
  return count;
}

// The k-th legal index, counted from 0; n when there is none.
__device__ __forceinline__ u32 kth_legal(Mask mask, u32 n, u32 k) {
  if (!mask) return min(k, n);
  for (u32 i = 0; i < n; i++) {
    if (!mask[i]) continue;
    if (k == 0) return i;
    k--;
  }
  return n;
}

// One decision of the exposure head (n = 5) or the factored head (n = 45).
__device__ __forceinline__ u32 select_action(const float* q, Mask mask, u32 n, bool random, u32 word, bool* fell_back) {
  u32 choice = random ? kth_legal(mask, n, below(word, legal_count(mask, n))) : argmax(q, mask, n);
  *fell_back = choice == n;
  if (choice == n) choice = n == N_FACTORED ? FLAT_FACTORED : min(FLAT, n - 1);
  return choice;
}

// One decision of the branching head: 5 + 3 + 3 values, a factored index.
__device__ __forceinline__ u32 select_branching(const float* q, Mask mask, bool random, u32 word, bool* fell_back) {
  constexpr u32 starts[3] = {0, 5, 8}, lens[3] = {5, 3, 3};
  u32 parts[3] = {FLAT, 0, 1}, counts[3];
  bool missing = false;
#pragma unroll
  for (int d = 0; d < 3; d++) {
    Mask legal = mask ? mask + starts[d] : nullptr;
    if (random) {
      counts[d] = legal_count(legal, lens[d]);
      missing |= counts[d] == 0;
    } else {
      u32 index = argmax(q + starts[d], legal, lens[d]);
      if (index == lens[d]) missing = true;
      else parts[d] = index;
    }
  }
  if (random && !missing) {
    u32 rest = below(word, counts[0] * counts[1] * counts[2]);
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      parts[d] = kth_legal(mask ? mask + starts[d] : nullptr, lens[d], rest % counts[d]);
      rest /= counts[d];
    }
  }
  *fell_back = missing;
  return parts[0] * 9 + parts[1] * 3 + parts[2];
}

// order_type * 3 + urgency.
__device__ __forceinline__ u32 route(float spread, float median_spread, float volatility, float median_volatility) {
  u32 order_type = median_spread <= 0.f ? 0u : spread < median_spread ? 1u : spread > __fmul_rn(2.f, median_spread) ? 0u : 2u;
  u32 urgency = median_volatility <= 0.f                               ? 1u
                : volatility > __fmul_rn(1.5f, median_volatility) ? 2u
                : volatility < __fmul_rn(0.5f, median_volatility) ? 0u
                                                                  : 1u;
  return order_type * 3 + urgency;
}
