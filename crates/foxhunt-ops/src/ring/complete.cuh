// A drawn batch of compact rows completed from the market's features. Twin: Ring::gather in foxhunt-ops/src/ring/cpu.rs.
#pragma once
#include "compact.cuh"

constexpr u32 MARKET_FEATURES = 48, OBSERVED = 51;

// `word` is word `lane & 7` of the row drawn for batch row first + lane / 8; all lanes call. Each lane reads three features
// of each row, of all four rows before it writes one, and writes what its own word holds.
__device__ __forceinline__ void complete_rows(const Ring& ring, const Batch& out, u32 word, u32 first, u32 batch) {
  u32 lane = threadIdx.x & 31, sub = lane & 7, own = lane & 24;
  u32 w0 = __shfl_sync(ALL_LANES, word, own), w1 = __shfl_sync(ALL_LANES, word, own + 1), w2 = __shfl_sync(ALL_LANES, word, own + 2);
  u32 before = (w1 >> 30) << 6 | w2 >> 26;  // steps - 1
  u32 bar = min(w0 & BAR_MASK, ring.last_bar), next = min((w0 & BAR_MASK) + before + 1, ring.last_bar);
  float v[4][3];
#pragma unroll
  for (u32 k = 0; k < 4; k++) {
    const float* from = ring.features + (u64)__shfl_sync(ALL_LANES, bar, 8 * k) * MARKET_FEATURES;
    const float* to = ring.features + (u64)__shfl_sync(ALL_LANES, next, 8 * k) * MARKET_FEATURES;
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
      u32 i = 32 * j + lane;
      v[k][j] = __ldg(i < MARKET_FEATURES ? from + i : to + (i - MARKET_FEATURES));
    }
  }
  u64 b = first + (lane >> 3);
  if (b < batch) {
    float* state = out.states + b * OBSERVED + MARKET_FEATURES;
    float* reached = out.next_states + b * OBSERVED + MARKET_FEATURES;
    if (sub == 0) {
      out.actions[b] = (w0 >> 29) << 3 | ((w1 >> 26) & 7u);
      out.terminated[b] = (w1 >> 29) & 1u ? 1.f : 0.f;
      out.discounts[b] = __ldg(ring.discounts + before);
    } else if (sub == 7) {
      out.rewards[b] = __uint_as_float(word);
    } else {  // 1, 3, 4 are of the state, 2, 5, 6 of the next
      float* to = sub == 1 || sub == 3 || sub == 4 ? state : reached;
      u32 column = sub < 3 ? 2 : (sub - 3) & 1;
      to[column] = __uint_as_float(sub < 3 ? held_of(word & HELD_MASK) : word);
    }
  }
#pragma unroll
  for (u32 k = 0; k < 4; k++) {
    if (first + k >= batch) break;
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
      u32 i = 32 * j + lane;
      float* to = i < MARKET_FEATURES ? out.states + i : out.next_states + (i - MARKET_FEATURES);
      to[(u64)(first + k) * OBSERVED] = v[k][j];
    }
  }
}
