// The words of a row of 32 bytes. Twin, with a table of them: foxhunt-ops/src/ring/compact.rs.
#pragma once

constexpr u32 BAR_MASK = 0x1fffffffu, HELD_MASK = 0x3ffffffu, HELD_BASE = 0x3d000000u;

// The input "bars in position", between its bits and a code of 26 bits.
__device__ __forceinline__ u32 held_of(u32 code) { return code ? code - 1 + HELD_BASE : 0u; }
__device__ __forceinline__ u32 held_code(float input) {
  u32 bits = __float_as_uint(input);
  return bits ? bits - HELD_BASE + 1 : 0u;
}

// The row from `bar` to `next_bar`; x, y, z of the states are their portfolio inputs.
__device__ __forceinline__ void store_compact(u32* row, u32 bar, u32 next_bar, float4 state, float4 next, u32 action,
                                              bool terminated, float reward) {
  u32 before = next_bar - bar - 1;
  uint4* words = (uint4*)row;
  words[0] = make_uint4(bar | (action >> 3) << 29,
                        held_code(state.z) | (action & 7u) << 26 | (terminated ? 1u << 29 : 0u) | (before >> 6) << 30,
                        held_code(next.z) | before << 26, __float_as_uint(state.x));
  words[1] = make_uint4(__float_as_uint(state.y), __float_as_uint(next.x), __float_as_uint(next.y), __float_as_uint(reward));
}
