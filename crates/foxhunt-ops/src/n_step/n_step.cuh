// One environment's n-step accumulator on the device. Twin: foxhunt-ops/src/n_step/cpu.rs.
//
// A pending step is {portfolio inputs, action} and a reward; its market features are those of its bar, which is its
// distance behind the environment's bar, so they are not stored. Slot-major, so that neighbours are neighbours.
// R and gamma^k run from the newest reward back; the windows of all pending steps are the partial results of one pass.
// Compiled with --fmad=false: one multiplication, one addition.
#pragma once

struct NStepRing {
  float4* pending;   // [n, n_envs]: three portfolio inputs, bits of the action
  float* rewards;    // [n, n_envs]
  u32 n, n_envs;
  double gamma;
};

// The rewards of the newest steps pending, loaded long before they are needed; older ones are loaded on the way.
constexpr u32 RECENT = 3;

// Rows that leave, and the slot of the first; the head and length afterwards.
struct Pushed {
  u32 rows, first_slot, head, len;
};

__device__ __forceinline__ u32 slot_after(u32 head, u32 k, u32 n) {
  u32 slot = head + k;
  return slot < n ? slot : slot - n;
}

__device__ __forceinline__ float pending_reward(const NStepRing& ring, u32 env, u32 head, u32 k) {
  return ring.rewards[(u64)slot_after(head, k, ring.n) * ring.n_envs + env];
}

// recent[j] = reward of the j-th newest pending step, where there is one.
__device__ __forceinline__ void load_recent(const NStepRing& ring, u32 env, u32 head, u32 len, float recent[RECENT]) {
#pragma unroll
  for (u32 j = 0; j < RECENT; j++) recent[j] = j < len ? pending_reward(ring, env, head, len - 1 - j) : 0.f;
}

// Adds a step (unless it is refused) and lets every window that is now complete leave; `leaves` is told number, R and discount of each row, the newest
// first. A refused step ends the windows before it.
template <typename Leaves>
__device__ __forceinline__ Pushed n_step_push(const NStepRing& ring, u32 env, u32 head, u32 was, const float recent[RECENT],
                                              bool refused, bool ended, float4 step, float reward, Leaves&& leaves) {
  u32 n = ring.n, len = was;
  if (!refused) {
    u64 at = (u64)slot_after(head, was, n) * ring.n_envs + env;
    ring.pending[at] = step;
    ring.rewards[at] = reward;
    len++;
  }
  bool flush = refused || ended;
  u32 rows = flush ? len : len == n;
  if (rows) {
    double sum = (double)(refused ? recent[0] : reward), discount = ring.gamma;
    for (u32 k = len - 1;; k--) {
      if (k < rows) leaves(k, __double2float_rn(sum), __double2float_rn(discount));
      if (k == 0) break;
      u32 j = was - k;  // the step before this one is the j-th newest of those that were pending
      float older = j == 0 ? recent[0] : j == 1 ? recent[1] : j == 2 ? recent[2] : pending_reward(ring, env, head, k - 1);
      sum = (double)older + ring.gamma * sum;
      discount = discount * ring.gamma;
    }
  }
  Pushed out;
  out.rows = rows;
  out.first_slot = head;
  out.head = flush ? 0 : slot_after(head, rows, n);
  out.len = len - rows;
  return out;
}
