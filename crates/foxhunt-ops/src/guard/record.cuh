// A record in pinned host memory that a reader never sees half of. Host side: foxhunt-ops/src/guard/record.rs.
//
// Three slots of sixteen u64 in pinned memory, used in turn; words as in the contract, the u64 step number at
// [3], counts behind it. A slot is marked (its number is NOT_A_STEP) or whole. The slot of a step was marked one step
// before, ahead of that step's system fence, so whoever sees a word of the new record sees the mark too. The writer fills
// the slot, marks the next one, and writes the number behind the fence; the slot of the step before stays whole all the
// while. A reader reads the number, the words and the number again, and takes the record when both are one step.
#pragma once

constexpr u64 NOT_A_STEP = ~0ull;
constexpr u32 RECORD_WORDS = 16;

__device__ __forceinline__ void tell(u64* to, u64 word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ u64 hear(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ u64 two(float low, float high) { return (u64)__float_as_uint(high) << 32 | __float_as_uint(low); }

// `write_words`, then a system fence, then `publish_record`.
__device__ __forceinline__ void write_words(u64* record, u64 step, const u64 (&words)[3], const u64* counts, u32 n_counts) {
  u64 *slot = record + step % 3 * RECORD_WORDS, *next = record + (step + 1) % 3 * RECORD_WORDS;
#pragma unroll
  for (u32 i = 0; i < 3; i++) tell(slot + i, words[i]);
  for (u32 i = 0; i < n_counts; i++) tell(slot + 4 + i, counts[i]);
  tell(next + 3, NOT_A_STEP);
}
__device__ __forceinline__ void publish_record(u64* record, u64 step) { tell(record + step % 3 * RECORD_WORDS + 3, step); }
