// Rows of the ring: layout and the fields of a batch. Twin: foxhunt-ops/src/ring/mod.rs (RowLayout).
// Needs STATE_DIM and COMPACT. A row is state, next_state, action, reward, terminated, discount, padded to 16 words; with
// COMPACT it is the eight words of compact.rs.
#pragma once

#if COMPACT  // packed rows, moved as they are
constexpr u32 ROW_USED = 8, ROW_STRIDE = 8;
#else
constexpr u32 ROW_USED = 2 * STATE_DIM + 4;
constexpr u32 ROW_STRIDE = (ROW_USED + 15) / 16 * 16;
#endif
constexpr u32 ROW_CHUNKS = (ROW_USED + 31) / 32;  // a warp moves a row in this many accesses of 32 words

// Word `word` of row `slot` in the store; 64-bit.
__device__ __forceinline__ u64 row_offset(u64 slot) { return slot * ROW_STRIDE; }

// Where word `word` of batch row `b` lies among separate fields, and how far the same word of row b + 1 is from it.
// Both structs of fields start with the same six pointers.
template <class Fields>
__device__ __forceinline__ u32* field_word(const Fields& f, u32 word, u32 b, u32* stride) {
#if COMPACT
  *stride = ROW_STRIDE;
  return (u32*)f.states + (u64)b * ROW_STRIDE + word;
#else
  if (word < STATE_DIM) {
    *stride = STATE_DIM;
    return (u32*)f.states + (u64)b * STATE_DIM + word;
  }
  if (word < 2 * STATE_DIM) {
    *stride = STATE_DIM;
    return (u32*)f.next_states + (u64)b * STATE_DIM + (word - STATE_DIM);
  }
  *stride = 1;
  u32 k = word - 2 * STATE_DIM;
  u32* p = k == 0 ? (u32*)f.actions : k == 1 ? (u32*)f.rewards : k == 2 ? (u32*)f.terminated : (u32*)f.discounts;
  return p + b;
#endif
}

// Which of its words make a row refused when they are not finite.
__device__ __forceinline__ bool is_state_word(u32 word) { return COMPACT ? word >= 3 && word < 7 : word < 2 * STATE_DIM; }
__device__ __forceinline__ bool is_reward_word(u32 word) {
  return COMPACT ? word == 7 : word > 2 * STATE_DIM;  // the word between is the action
}
