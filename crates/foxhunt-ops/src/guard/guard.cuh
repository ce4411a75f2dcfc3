// The guard's judgement and how it reaches the host without a wait. Twin of `check` and the sums: foxhunt-ops/src/guard.
//
// **Record.** Three slots of sixteen u64 in pinned memory, used in turn; words as in the contract, the u64 step number at
// [3], counts behind it. A slot is marked (its number is NOT_A_STEP) or whole. The slot of a step was marked one step
// before, ahead of that step's system fence, so whoever sees a word of the new record sees the mark too. The writer fills
// the slot, marks the next one, and writes the number behind the fence; the slot of the step before stays whole all the
// while. A reader reads the number, the words and the number again, and takes the record when both are one step.
//
// **Faults.** A ring of {step, kind | count << 32} in pinned memory behind a head of eight u64: [0] records written,
// published behind a system fence, [1] records lost, [2] step of the last one lost, [3] records the host has taken.
// A record that finds no room is counted as lost, never written over one that the host has not taken.
#pragma once

constexpr u64 NOT_A_STEP = ~0ull;
constexpr u32 RECORD_WORDS = 16, RING_HEAD = 8;

struct Judgement {
  bool halt_nan, halt_loss_clip, halt_grad_collapse;
  float clipped_loss, loss, norm;
  u64 step;
};

__device__ __forceinline__ Judgement judge(float loss, float norm, float collapse_threshold, float loss_threshold, bool warmup,
                                           u64 step) {
  Judgement j;
  j.halt_nan = !(is_finite(loss) && is_finite(norm));
  j.halt_loss_clip = loss > loss_threshold;
  j.halt_grad_collapse = !warmup && norm < collapse_threshold;
  j.clipped_loss = j.halt_loss_clip ? loss_threshold : loss;
  j.loss = loss, j.norm = norm, j.step = step;
  return j;
}

// Adds to the sums of an epoch; what is not finite is left out and counted.
__device__ __forceinline__ void add_to_sums(GuardState* g, float loss, float norm) {
  if (is_finite(loss)) g->loss_sum = __dadd_rn(g->loss_sum, (double)loss), g->losses++;
  else g->non_finite++;
  if (is_finite(norm)) g->norm_sum = __dadd_rn(g->norm_sum, (double)norm), g->norms++;
  else g->non_finite++;
}

__device__ __forceinline__ void tell(u64* to, u64 word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ u64 hear(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ u64 two(float low, float high) { return (u64)__float_as_uint(high) << 32 | __float_as_uint(low); }

// `write_record`, then a system fence, then `publish_record`.
__device__ __forceinline__ void write_record(u64* record, const Judgement& j, const u64* counts, u32 n_counts) {
  u64 *slot = record + j.step % 3 * RECORD_WORDS, *next = record + (j.step + 1) % 3 * RECORD_WORDS;
  tell(slot + 0, two(j.halt_nan, j.halt_loss_clip));
  tell(slot + 1, two(j.halt_grad_collapse, j.clipped_loss));
  tell(slot + 2, two(j.loss, j.norm));
  for (u32 i = 0; i < n_counts; i++) tell(slot + 4 + i, counts[i]);
  tell(next + 3, NOT_A_STEP);
}
__device__ __forceinline__ void publish_record(u64* record, u64 step) { tell(record + step % 3 * RECORD_WORDS + 3, step); }

// Writes one fault, or counts it as lost. Then a system fence, then `publish_faults`.
__device__ __forceinline__ void record_fault(FaultState* f, u64* ring, u32 capacity, u64 taken, u64 step, u32 kind, u32 count) {
  if (!count) return;
  if (f->written - taken < capacity) {
    u64* at = ring + RING_HEAD + 2 * (f->written % capacity);
    tell(at, step);
    tell(at + 1, (u64)count << 32 | kind);
    f->written++;
  } else {
    f->lost++;
    f->last_lost = step;
    tell(ring + 1, f->lost);
    tell(ring + 2, step);
  }
}
__device__ __forceinline__ void publish_faults(const FaultState* f, u64* ring) { tell(ring, f->written); }
