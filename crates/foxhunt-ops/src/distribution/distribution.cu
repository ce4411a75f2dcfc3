// Distributions of the return: Q-values from heads, and targets, loss, TD error and the gradient of the head.
//
//   expectations        for acting. In: f32 [rows, head_stride]. Out: f32 [rows, n_outputs].
//   distribution_loss   one launch a sub-batch. In: head outputs of online(s), online(s') (double DQN) and target(s'), f32
//                       [rows, head_stride]; the batch's fields. Out: as td_loss.cu.
//
// Formulas and twins: foxhunt-ops/src/distribution/mod.rs, cpu.rs, categorical.rs, quantiles.rs; the way through a dueling
// head: foxhunt-ops/src/mlp/cpu.rs. A block of four warps a row: a warp an action where atoms are summed up, a thread an
// atom elsewhere. Sums over atoms are lane sums and a butterfly, which is the twin's tree; probability that moves to a
// neighbour is gathered in the order of where it comes from. A row without an index or with an action outside the head
// has a NaN TD error. Moved: rows * (4 head_stride + 12) words, advantages twice.
#include "common.cuh"
#include "power.cuh"
#include "shared_structs.cuh"
#include "td_loss.cuh"

constexpr u32 THREADS = 128, WARPS = THREADS / 32, BRANCHES = 4, ATOMS = 256;

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ double clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// The tree of `sum` in cpu.rs: running sum of this lane to the sum of all, for every lane.
__device__ __forceinline__ double sum_of_lanes(double v) {
  for (int k = 16; k; k >>= 1) v = add(v, __shfl_xor_sync(ALL_LANES, v, k));
  return v;
}

// One row of a head. `means` are those of the advantages, [branch, atom], in shared memory.
struct Head {
  const float* outputs;
  const float* means;
  u32 atoms;
  bool dueling;
  __device__ __forceinline__ float at(u32 branch, u32 action, u32 atom) const {
    if (!dueling) return outputs[action * atoms + atom];
    return outputs[atom] + (outputs[(1 + action) * atoms + atom] - means[branch * atoms + atom]);
  }
};

// The mean of each atom over the advantages of each branch, summed in order; all threads of the block.
__device__ __forceinline__ void mean_advantages(const HeadShape& s, const float* outputs, float* means) {
#pragma unroll 1
  for (u32 k = threadIdx.x; k < s.n_branches * s.atoms; k += THREADS) {
    u32 branch = k / s.atoms, atom = k % s.atoms;
    const float* advantage = outputs + (1 + s.start[branch]) * s.atoms + atom;
    float sum = *advantage;
    for (u32 i = 1; i < s.len[branch]; i++) sum += advantage[i * s.atoms];
    means[k] = sum / (float)s.len[branch];
  }
}

__device__ __forceinline__ u32 branch_of(const HeadShape& s, u32 action) {
  u32 branch = 0;
  while (branch + 1 < s.n_branches && action >= s.start[branch + 1]) branch++;
  return branch;
}

__device__ __forceinline__ double return_of(const HeadShape& s, u32 j) { return add(s.v_min, mul((double)j, s.step)); }

// What softmax subtracts and divides by.
struct Scale {
  double largest, total;
  __device__ __forceinline__ double power(float logit) const { return exp_portable(add((double)logit, -largest)); }
};

// The largest logit of an action; a NaN is none.
__device__ __forceinline__ double largest_of(const Head& head, u32 branch, u32 action, u32 lane) {
  float largest = -F32_INFINITY;
  for (u32 j = lane; j < head.atoms; j += 32) {
    float x = head.at(branch, action, j);
    largest = x > largest ? x : largest;
  }
  for (int k = 16; k; k >>= 1) {
    float other = __shfl_xor_sync(ALL_LANES, largest, k);
    largest = other > largest ? other : largest;
  }
  return (double)largest;
}

__device__ __forceinline__ Scale scale_of(const Head& head, u32 branch, u32 action, u32 lane) {
  Scale scale = {largest_of(head, branch, action, lane), 0.};
  double total = 0.;
#pragma unroll 1
  for (u32 j = lane; j < head.atoms; j += 32) total = add(total, scale.power(head.at(branch, action, j)));
  scale.total = sum_of_lanes(total);
  return scale;
}

// The mean of an action's distribution; a warp.
__device__ __forceinline__ float expectation(const HeadShape& s, const Head& head, u32 branch, u32 action, u32 lane) {
  double sum = 0.;
  if (s.categorical) {
    Scale scale = {largest_of(head, branch, action, lane), 0.};
#pragma unroll 1
    for (u32 j = lane; j < s.atoms; j += 32) {
      double power = scale.power(head.at(branch, action, j));
      scale.total = add(scale.total, power);
      sum = add(sum, mul(power, return_of(s, j)));
    }
    return __double2float_rn(quotient(sum_of_lanes(sum), sum_of_lanes(scale.total)));
  }
  for (u32 j = lane; j < s.atoms; j += 32) sum = add(sum, (double)head.at(branch, action, j));
  return __double2float_rn(quotient(sum_of_lanes(sum), (double)s.atoms));
}

// The index of the first of the largest; `len` when one is NaN.
__device__ __forceinline__ u32 argmax(const float* values, u32 len) {
  u32 best = 0;
  for (u32 i = 0; i < len; i++) {
    if (values[i] != values[i]) return len;
    if (values[i] > values[best]) best = i;
  }
  return best;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(THREADS) expectations(ExpectationArgs a) {
  __shared__ float means[BRANCHES * ATOMS];
  const HeadShape& s = a.shape;
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x;
  const float* outputs = a.head + (u64)row * s.head_stride;
  dependency_wait();
  dependents_may_start();
  if (s.dueling) mean_advantages(s, outputs, means);
  __syncthreads();
  Head head = {outputs, means, s.atoms, s.dueling != 0};
#pragma unroll 1
  for (u32 action = warp; action < s.n_outputs; action += WARPS) {
    float q = expectation(s, head, branch_of(s, action), action, lane);
    if (lane == 0) a.q[(u64)row * s.n_outputs + action] = q;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) distribution_loss(DistributionLossArgs args) {
  __shared__ float means[3][BRANCHES * ATOMS];
  __shared__ float gradient[BRANCHES * ATOMS], losses[BRANCHES * ATOMS];
  __shared__ double p[ATOMS], above[ATOMS], m[ATOMS];
  __shared__ u32 low[ATOMS];
  __shared__ float y[ATOMS], q_next[64];
  __shared__ Scale scales[BRANCHES];
  __shared__ u32 best[BRANCHES];
  __shared__ float loss_of[BRANCHES], td_of[BRANCHES];
  const HeadShape& s = args.shape;
  const LossArgs& a = args.loss;
  const double nan = __longlong_as_double(0x7ff8000000000000ll);
  u32 t = threadIdx.x, warp = t / 32, lane = t % 32, row = blockIdx.x;
  const float* outputs[3];
  for (int net = 0; net < 3; net++) outputs[net] = a.heads[net] + (u64)row * s.head_stride;
  dependency_wait();
  dependents_may_start();
  float reward = a.rewards[row], discount = a.discounts[row], weight = a.weights[row];
  bool ends = a.terminated[row] != 0.f;
  u32 action = a.actions[row], index = a.indices[row];
  bool valid = action < a.n_actions && index != ~0u;
  if (!valid) action = 0;
  if (s.dueling)
    for (int net = 0; net < 3; net++)
      if (net != 1 || a.double_dqn) mean_advantages(s, outputs[net], means[net]);
  __syncthreads();
  Head online = {outputs[0], means[0], s.atoms, s.dueling != 0};
  Head target = {outputs[2], means[2], s.atoms, s.dueling != 0};
  Head chooser = target;
  if (a.double_dqn) chooser.outputs = outputs[1], chooser.means = means[1];

  // The best action of each branch, and what its probabilities are scaled by.
  if (!ends) {
#pragma unroll 1
    for (u32 i = warp; i < s.n_outputs; i += WARPS) {
      float q = expectation(s, chooser, branch_of(s, i), i, lane);
      if (lane == 0) q_next[i] = q;
    }
    __syncthreads();
    if (t < s.n_branches) best[t] = argmax(q_next + s.start[t], s.len[t]);
    __syncthreads();
    for (u32 d = 0; d < s.n_branches; d++) valid &= best[d] < s.len[d];
    if (s.categorical && valid && warp < s.n_branches) {
      Scale scale = scale_of(target, warp, s.start[warp] + best[warp], lane);
      if (lane == 0) scales[warp] = scale;
    }
    __syncthreads();
  }

  // The target: m or y.
  u32 points = ends ? 1 : s.atoms;
  if (s.categorical) {
#pragma unroll 1
    for (u32 j = t; j < points && valid; j += THREADS) {
      double mass = ends ? 1. : 0., value = (double)reward;
      if (!ends) {
#pragma unroll 1
        for (u32 d = 0; d < s.n_branches; d++)
          mass = add(mass, quotient(scales[d].power(target.at(d, s.start[d] + best[d], j)), scales[d].total));
        mass = quotient(mass, (double)s.n_branches);
        value = add(value, mul((double)discount, return_of(s, j)));
      }
      double position = quotient(add(clamped(value, s.v_min, s.v_max), -s.v_min), s.step);
      position = clamped(position, 0., (double)(s.atoms - 1));
      // A NaN turned into an integer is not 0 here.
      low[j] = position == position ? (u32)position : 0;
      above[j] = add(position, -(double)low[j]);
      p[j] = mass;
    }
    __syncthreads();
    for (u32 i = t; i < s.atoms; i += THREADS) {
      double sum = valid ? 0. : nan;
      for (u32 j = 0; j < points && valid; j++) {
        if (low[j] == i) sum = add(sum, mul(p[j], add(1., -above[j])));
        if (low[j] + 1 == i) sum = add(sum, mul(p[j], above[j]));
      }
      m[i] = sum;
    }
  } else {
    for (u32 j = t; j < s.atoms; j += THREADS) {
      float next = 0.f;
      for (u32 d = 0; d < s.n_branches && !ends && valid; d++) next += target.at(d, s.start[d] + best[d], j);
      float bootstrapped = reward + discount * (next / (float)s.n_branches);
      y[j] = !valid ? (float)nan : ends ? reward : bootstrapped;
    }
  }
  __syncthreads();

  // Loss, TD error and gradient of each branch.
  if (s.categorical) {
    if (warp < s.n_branches) {
      u32 d = warp, taken = s.start[d] + chosen_in_branch(s.n_branches, action, d);
      Scale scale = scale_of(online, d, taken, lane);
      double log_total = ln_portable(scale.total), entropy = 0., divergence = 0.;
#pragma unroll 1
      for (u32 j = lane; j < s.atoms; j += 32) {
        float x = online.at(d, taken, j);
        double log_p = add(add((double)x, -scale.largest), -log_total), mass = m[j];
        entropy = add(entropy, mul(mass, log_p));
        if (mass != 0.) divergence = add(divergence, mul(mass, add(ln_portable(mass), -log_p)));
        float g = __double2float_rn(add(quotient(scale.power(x), scale.total), -mass));
        gradient[d * s.atoms + j] = weight * g * a.scale;
      }
      entropy = sum_of_lanes(entropy), divergence = sum_of_lanes(divergence);
      if (lane == 0) {
        loss_of[d] = __double2float_rn(-entropy);
        td_of[d] = divergence < 0. ? 0.f : __double2float_rn(divergence);
      }
    }
  } else {
#pragma unroll 1
    for (u32 k = t; k < s.n_branches * s.atoms; k += THREADS) {
      u32 d = k / s.atoms, i = k % s.atoms;
      float x = online.at(d, s.start[d] + chosen_in_branch(s.n_branches, action, d), i);
      float tau = (float)(2 * i + 1) / (float)(2 * s.atoms), loss = 0.f, g = 0.f;
      for (u32 j = 0; j < s.atoms; j++) {
        float u = y[j] - x, share = u < 0.f ? 1.f - tau : tau;
        loss += share * huber(u, a.huber_delta);
        g += share * huber_slope(u, a.huber_delta);
      }
      losses[k] = loss;
      gradient[k] = weight * -(g / (float)s.atoms) * a.scale;
    }
    __syncthreads();
    if (warp < s.n_branches) {
      u32 d = warp, taken = s.start[d] + chosen_in_branch(s.n_branches, action, d);
      double loss = 0., td = 0.;
#pragma unroll 1
      for (u32 j = lane; j < s.atoms; j += 32) {
        loss = add(loss, (double)losses[d * s.atoms + j]);
        td = add(td, (double)fabsf(y[j] - online.at(d, taken, j)));
      }
      loss = sum_of_lanes(loss), td = sum_of_lanes(td);
      if (lane == 0) {
        loss_of[d] = __double2float_rn(quotient(loss, (double)s.atoms));
        td_of[d] = __double2float_rn(quotient(td, (double)s.atoms));
      }
    }
  }
  __syncthreads();

  // All other actions of a branch have no gradient; a dueling head takes the mean from each.
  float* dhead = a.dhead + (u64)row * s.head_stride;
#pragma unroll 1
  for (u32 i = warp; i < s.n_outputs; i += WARPS) {
    u32 d = branch_of(s, i);
    bool taken = i - s.start[d] == chosen_in_branch(s.n_branches, action, d);
#pragma unroll 1
    for (u32 j = lane; j < s.atoms; j += 32) {
      float g = gradient[d * s.atoms + j], own = taken ? g : 0.f;
      if (s.dueling) dhead[(1 + i) * s.atoms + j] = own - (0.f + g) / (float)s.len[d];
      else dhead[i * s.atoms + j] = own;
    }
  }
  if (s.dueling)
    for (u32 j = t; j < s.atoms; j += THREADS) {
      float total = 0.f;
      for (u32 d = 0; d < s.n_branches; d++) total += 0.f + gradient[d * s.atoms + j];
      dhead[j] = total;
    }
  if (t) return;
  float loss = 0.f, size = 0.f, branches = (float)s.n_branches;
  for (u32 d = 0; d < s.n_branches; d++) loss += loss_of[d], size += td_of[d];
  a.losses[row] = weight * (loss / branches);
  a.td[row] = size / branches;
  a.indices_out[row] = index;
  a.generations_out[row] = a.generations[row];
}
