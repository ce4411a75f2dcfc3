// The guard's judgement and how it reaches the host without a wait. Twin of `check` and the sums: foxhunt-ops/src/guard.
// Needs record.cuh.
//
// **Faults.** A ring of {step, kind | count << 32} in pinned memory behind a head of eight u64: [0] records written,
// published behind a system fence, [1] records lost, [2] step of the last one lost, [3] records the host has taken.
// A record that finds no room is counted as lost, never written over one that the host has not taken.
#pragma once

constexpr u32 RING_HEAD = 8;

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

// `write_record`, then a system fence, then `publish_record`.
__device__ __forceinline__ void write_record(u64* record, const Judgement& j, const u64* counts, u32 n_counts) {
  u64 words[3] = {two(j.halt_nan, j.halt_loss_clip), two(j.halt_grad_collapse, j.clipped_loss), two(j.loss, j.norm)};
  write_words(record, j.step, words, counts, n_counts);
}

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
