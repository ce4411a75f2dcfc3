// Norm, clip, gate, Adam, target: the end of an update.
//
//   sum_squares    joins the gradient's segments where there are several, and sums squares by blocks of 1,024 values
//   apply_update   the norm, the guard's judgement, and, unless refused, one step on every parameter; then the state of
//                  the learner moves on and the host is told
//
// In both f64 sums run in the tree of foxhunt-ops/src/tree_sum.rs; elements are the operations of the twin,
// foxhunt-ops/src/adam/cpu.rs, each rounded on its own. A thread an element, blocks in strides, any n.
// The state of the learner moves on in a block of its own, beside the others, which it waits for only to have read.
// Moved: 8 bytes a parameter and segment, then 36 bytes a parameter.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree_sum.cuh"
#include "record.cuh"
#include "guard.cuh"
#define WITH_DECISION
#include "step.cuh"

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(256) sum_squares(SquaresArgs a) {
  __shared__ double lanes[256];
  dependency_wait();
  dependents_may_start();
  for (u64 block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    u64 first = block * 1024 + threadIdx.x;
    float g[4] = {};
    if (a.segments) {
#pragma unroll 4
      for (u32 s = 0; s < a.segments; s++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
          u64 i = first + k * 256;
          if (i >= a.n) continue;
          float part = a.parts[s * a.stride + i];
          g[k] = s > 0 ? g[k] + part : a.add ? a.gradient[i] + part : part;
        }
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (first + k * 256 < a.n) a.gradient[first + k * 256] = g[k];
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (first + k * 256 < a.n) g[k] = a.gradient[first + k * 256];
    }
    double sum = 0.;
#pragma unroll
    for (int k = 0; k < 4; k++) sum = __dadd_rn(sum, __dmul_rn((double)g[k], (double)g[k]));
    sum = fold_lanes(sum, lanes);
    if (threadIdx.x == 0) a.sums[block] = sum;
  }
}

__device__ __forceinline__ void step_element(const ApplyArgs& a, const Decision& d, float& w, float& m, float& v, float g) {
  g = d.clip * g;
  m = m + a.one_minus_beta1 * (g - m);
  v = a.beta2 * v + a.one_minus_beta2 * (g * g);
  w = w - d.step_size * (m / (sqrtf(v) * d.root_factor + a.epsilon));
}

extern "C" __global__ void __launch_bounds__(256) apply_update(ApplyArgs a) {
  __shared__ double lanes[256];
  __shared__ Decision shared_decision;
  u32 steppers = gridDim.x - 1;  // the last block keeps the books
  dependency_wait();
  dependents_may_start();
  StepState before;
  if (threadIdx.x == 0) before = *a.state;
  double sum = 0.;
  for (u64 block = threadIdx.x; block < a.blocks; block += 256) sum = __dadd_rn(sum, a.sums[block]);
  sum = fold_lanes(sum, lanes);
  if (threadIdx.x == 0) shared_decision = decide(a, before, sum);
  __syncthreads();
  Decision d = shared_decision;
  if (blockIdx.x == steppers) {
    if (threadIdx.x == 0) move_on(a, before, d, steppers);
    return;
  }
  // What this block reads of the state it has read.
  if (threadIdx.x == 0) atomicAdd(&a.state->ticket, 1);
  if (d.apply) {
    u64 fours = a.n / 4;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < fours; i += (u64)steppers * 256) {
      float4 g = ((const float4*)a.gradient)[i];
      float4 w = ((float4*)a.online)[i], m = ((float4*)a.m)[i], v = ((float4*)a.v)[i], t;
      if (a.polyak) t = ((float4*)a.target)[i];
      step_element(a, d, w.x, m.x, v.x, g.x);
      step_element(a, d, w.y, m.y, v.y, g.y);
      step_element(a, d, w.z, m.z, v.z, g.z);
      step_element(a, d, w.w, m.w, v.w, g.w);
      ((float4*)a.online)[i] = w, ((float4*)a.m)[i] = m, ((float4*)a.v)[i] = v;
      if (a.polyak) {
        t.x = t.x + a.tau * (w.x - t.x);
        t.y = t.y + a.tau * (w.y - t.y);
        t.z = t.z + a.tau * (w.z - t.z);
        t.w = t.w + a.tau * (w.w - t.w);
      }
      if (a.polyak) ((float4*)a.target)[i] = t;
      else if (d.copy) ((float4*)a.target)[i] = w;
    }
    u64 i = fours * 4 + threadIdx.x;
    if (blockIdx.x == 0 && i < a.n) {
      step_element(a, d, a.online[i], a.m[i], a.v[i], a.gradient[i]);
      if (a.polyak) a.target[i] = a.target[i] + a.tau * (a.online[i] - a.target[i]);
      else if (d.copy) a.target[i] = a.online[i];
    }
  }
}
