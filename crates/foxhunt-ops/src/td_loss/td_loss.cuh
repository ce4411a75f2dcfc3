// The loss of one row by eight lanes of a warp; twin of foxhunt-ops/src/td_loss/cpu.rs, formulas in mod.rs. The way through a
// dueling head: foxhunt-ops/src/mlp/cpu.rs. Every sum is in the twin's order.
#pragma once
#include "q_from_head.cuh"
#include "power.cuh"
#include "munchausen.cuh"

// Words of one network's head outputs in shared memory: the most there are, and room against conflicts.
constexpr int HEAD_WORDS = 49;

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

// What a row has beside its states. Rows that there are not end at once.
struct RowFields {
  float reward = 0.f, terminated = 1.f, discount = 0.f, weight = 0.f;
  u32 action = 0, index = 0;
  u64 generation = 0;
  __device__ __forceinline__ void load(const LossArgs& a, u32 row) {
    reward = a.rewards[row], terminated = a.terminated[row], discount = a.discounts[row], weight = a.weights[row];
    action = a.actions[row], index = a.indices[row], generation = a.generations[row];
  }
};

// What is the same for all rows, apart from the arguments so that a kernel can know it when it is compiled: also the outputs of a head's ONLY branch,
// or 0 where it has several or that is not known.
template <u32 ONLY = 0>
struct LossShape {
  u32 n_branches;
  bool dueling, double_dqn, munchausen;
  __device__ __forceinline__ u32 start(const LossArgs& a, u32 branch) const { return ONLY ? 0 : a.start[branch]; }
  __device__ __forceinline__ u32 len(const LossArgs& a, u32 branch) const { return ONLY ? ONLY : a.len[branch]; }
  __device__ __forceinline__ float mean(const LossArgs& a, const float* outputs, u32 branch) const {
    if constexpr (ONLY > 0) return branch_mean<ONLY>(outputs + 1);
    else return branch_mean(outputs + 1 + a.start[branch], a.len[branch]);
  }
};

// What is found for a row.
struct RowLoss {
  float loss, td;
  // Weighted loss and |TD error|, and beside them index and generation, by one lane.
  __device__ __forceinline__ void store(const LossArgs& a, u32 row, const RowFields& of) const {
    a.losses[row] = loss, a.td[row] = td, a.indices_out[row] = of.index, a.generations_out[row] = of.generation;
  }
};

// From a row's head outputs of online(s), online(s') or, for Munchausen, target(s), and target(s') in shared memory: its weighted loss and
// |TD error|, and the gradient of the outputs to `dhead`, `n_outputs` words and one more for a value. All lanes of the warp come here; a row that
// there is not (`have`) writes nothing. A row without an index (nothing was drawn) or with an action outside the head has a NaN TD error, so that
// the update is refused.
template <u32 ONLY>
__device__ __forceinline__ RowLoss loss_of_row(const LossArgs& a, LossShape<ONLY> shape, bool have, const RowFields& of, const float (*outputs)[HEAD_WORDS],
                                               float (*means)[4], float* dhead) {
  u32 lane = threadIdx.x % 8;
  if (shape.dueling && have && lane < 3 && (lane != 1 || shape.double_dqn || shape.munchausen))
#pragma unroll 1
    for (u32 d = 0; d < shape.n_branches; d++) means[lane][d] = shape.mean(a, outputs[lane], d);
  __syncwarp();
  HeadRow online = {outputs[0], means[0], shape.dueling};
  HeadRow target = {outputs[2], means[2], shape.dueling};
  HeadRow other = {outputs[1], means[1], shape.dueling};
  bool valid = of.action < a.n_actions && of.index != ~0u;
  u32 action = valid ? of.action : 0;
  float branches = (float)shape.n_branches, y;
  if (shape.munchausen) {
    double paid = 0., next = 0.;
#pragma unroll 1
    for (u32 d = 0; d < shape.n_branches; d++) {
      u32 chosen = chosen_in_branch(shape.n_branches, action, d);
      paid = add(paid, bonus(other, d, shape.start(a, d), shape.len(a, d), lane, chosen, a.tau, a.floor));
      next = add(next, soft_value(target, d, shape.start(a, d), shape.len(a, d), lane, a.tau));
    }
    paid = add((double)of.reward, mul(a.alpha, __ddiv_rn(paid, (double)shape.n_branches)));
    next = mul((double)of.discount, __ddiv_rn(next, (double)shape.n_branches));
    y = __double2float_rn(of.terminated != 0.f ? paid : add(paid, next));
  } else {
    HeadRow chooser = shape.double_dqn ? other : target;
    float next = 0.f;
#pragma unroll 1
    for (u32 d = 0; d < shape.n_branches; d++) {
      u32 start = shape.start(a, d), len = shape.len(a, d), at = argmax(chooser, d, start, len, lane);
      next += at == len ? __int_as_float(0x7fc00000) : target.q(d, start + (at < len ? at : 0));
    }
    y = of.terminated != 0.f ? of.reward : of.reward + of.discount * (next / branches);
  }
  if (!have) return {};
  if (!valid) y = __int_as_float(0x7fc00000);
  float loss = 0.f, size = 0.f, total = 0.f;
#pragma unroll 1
  for (u32 d = 0; d < shape.n_branches; d++) {
    u32 chosen = chosen_in_branch(shape.n_branches, action, d), start = shape.start(a, d), len = shape.len(a, d);
    float delta = online.q(d, start + chosen) - y;
    loss += huber(delta, a.huber_delta);
    size += fabsf(delta);
    float g = of.weight * huber_slope(delta, a.huber_delta) * a.scale;
    if (shape.dueling) {
      float sum = 0.f + g, mean = sum / (float)len;  // all other entries of the branch are 0
#pragma unroll(ONLY ? TURNS : 1)
      for (u32 i = lane; i < len; i += 8) dhead[1 + start + i] = (i == chosen ? g : 0.f) - mean;
      total += sum;
    } else {
#pragma unroll(ONLY ? TURNS : 1)
      for (u32 i = lane; i < len; i += 8) dhead[start + i] = i == chosen ? g : 0.f;
    }
  }
  if (lane == 0 && shape.dueling) dhead[0] = total;
  return {of.weight * (loss / branches), size / branches};
}
