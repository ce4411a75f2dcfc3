// Targets, loss, |TD error| and the gradient with respect to the head's outputs, one launch a sub-batch.
//
// In: head outputs of online(s), online(s') (double DQN) and target(s'), f32 [rows, head_stride]; the batch's fields.
// Out: f32 [rows] weighted losses and TD errors, f32 [rows, head_stride] head gradient; indices and generations of the
// rows, beside their TD errors, for the priorities. Formulas and twin: foxhunt-ops/src/td_loss/mod.rs, cpu.rs; the way
// through a dueling head: foxhunt-ops/src/mlp/cpu.rs. Eight lanes a row, eight rows a block; every sum is in the twin's
// order. A row without an index (nothing was drawn) or with an action outside the head has a NaN TD error, so that
// the update is refused. Moved: rows * (4 head_stride + 12) words.
#include "common.cuh"
#include "shared_structs.cuh"
#include "q_from_head.cuh"

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ float huber(float x, float delta) {
  float size = fabsf(x);
  return size <= delta ? 0.5f * x * x : delta * (size - 0.5f * delta);
}
__device__ __forceinline__ float huber_slope(float x, float delta) { return x > delta ? delta : x < -delta ? -delta : x; }

// The index of the largest of `len` values, the lowest of equals; `len` when one is NaN.
__device__ __forceinline__ u32 argmax(const HeadRow& row, u32 branch, u32 start, u32 len, u32 lane) {
  float best = -F32_INFINITY;
  u32 at = ~0u;
  bool nan = false;
#pragma unroll
  for (int k = 0; k < TURNS; k++) {
    u32 i = lane + 8 * k;
    if (i >= len) break;
    float q = row.q(branch, start + i);
    nan |= q != q;
    if (at == ~0u || q > best) best = q, at = i;
  }
  for (int k = 4; k; k >>= 1) {
    float other = __shfl_xor_sync(ALL_LANES, best, k);
    u32 other_at = __shfl_xor_sync(ALL_LANES, at, k);
    bool other_nan = __shfl_xor_sync(ALL_LANES, nan, k);
    nan |= other_nan;
    if (other_at != ~0u && (at == ~0u || other > best || (other == best && other_at < at))) best = other, at = other_at;
  }
  return nan ? len : at;
}

__device__ __forceinline__ u32 chosen_in_branch(u32 n_branches, u32 action, u32 d) {
  if (n_branches == 1) return action;
  return d == 0 ? action / 9 : d == 1 ? action / 3 % 3 : action % 3;
}

// ------------------------------------------------------------------------------------------------ kernel

extern "C" __global__ void __launch_bounds__(64) td_loss(LossArgs a) {
  __shared__ float outputs[8][3][49];
  __shared__ float means[8][3][4];
  u32 r = threadIdx.x / 8, lane = threadIdx.x % 8, row = blockIdx.x * 8 + r;
  bool have = row < a.rows;
  u32 n_head = a.n_outputs + a.dueling;
  dependency_wait();
  dependents_may_start();
  float reward = 0.f, terminated = 1.f, discount = 0.f, weight = 0.f;
  u32 action = 0, index = 0;
  if (have) {
    float v[3][TURNS];
#pragma unroll
    for (int net = 0; net < 3; net++)
#pragma unroll
      for (int k = 0; k < TURNS; k++)
        if ((net != 1 || a.double_dqn) && lane + 8 * k < n_head)
          v[net][k] = a.heads[net][(u64)row * a.head_stride + lane + 8 * k];
    reward = a.rewards[row], terminated = a.terminated[row], discount = a.discounts[row], weight = a.weights[row];
    action = a.actions[row], index = a.indices[row];
#pragma unroll
    for (int net = 0; net < 3; net++)
#pragma unroll
      for (int k = 0; k < TURNS; k++) outputs[r][net][lane + 8 * k] = v[net][k];
  }
  __syncwarp();
  if (a.dueling && have && lane < 3 && (lane != 1 || a.double_dqn))
    for (u32 d = 0; d < a.n_branches; d++)
      means[r][lane][d] = branch_mean(outputs[r][lane] + 1 + a.start[d], a.len[d]);
  __syncwarp();
  HeadRow online = {outputs[r][0], means[r][0], a.dueling != 0};
  HeadRow target = {outputs[r][2], means[r][2], a.dueling != 0};
  u32 by = a.double_dqn ? 1 : 2;
  HeadRow chooser = {outputs[r][by], means[r][by], a.dueling != 0};
  float branches = (float)a.n_branches, next = 0.f;
  for (u32 d = 0; d < a.n_branches; d++) {
    u32 at = argmax(chooser, d, a.start[d], a.len[d], lane);
    next += at == a.len[d] ? __int_as_float(0x7fc00000) : target.q(d, a.start[d] + (at < a.len[d] ? at : 0));
  }
  if (!have) return;
  float y = terminated != 0.f ? reward : reward + discount * (next / branches);
  bool valid = action < a.n_actions && index != ~0u;
  if (!valid) y = __int_as_float(0x7fc00000), action = 0;
  float loss = 0.f, size = 0.f, total = 0.f;
  float* dhead = a.dhead + (u64)row * a.head_stride;
  for (u32 d = 0; d < a.n_branches; d++) {
    u32 chosen = chosen_in_branch(a.n_branches, action, d);
    float delta = online.q(d, a.start[d] + chosen) - y;
    loss += huber(delta, a.huber_delta);
    size += fabsf(delta);
    float g = weight * huber_slope(delta, a.huber_delta) * a.scale;
    if (a.dueling) {
      float sum = 0.f + g, mean = sum / (float)a.len[d];  // all other entries of the branch are 0
      for (u32 i = lane; i < a.len[d]; i += 8) dhead[1 + a.start[d] + i] = (i == chosen ? g : 0.f) - mean;
      total += sum;
    } else {
      for (u32 i = lane; i < a.len[d]; i += 8) dhead[a.start[d] + i] = i == chosen ? g : 0.f;
    }
  }
  if (lane == 0) {
    if (a.dueling) dhead[0] = total;
    a.losses[row] = weight * (loss / branches);
    a.td[row] = size / branches;
    a.indices_out[row] = index;
    a.generations_out[row] = a.generations[row];
  }
}
