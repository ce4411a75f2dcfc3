// Norm, clip, gate, Adam, target: the end of an update.
//
//   sum_squares    joins the gradient's segments where there are several, and sums squares by blocks of 1,024 values
//   apply_update   the norm, the guard's judgement, and, unless refused, one step on every parameter; then the state of
//                  the learner moves on and the host is told
//
// In both f64 sums run in the tree of foxhunt-ops/src/tree_sum.rs; elements are the operations of the twin,
// foxhunt-ops/src/adam/cpu.rs, each rounded on its own. A thread an element, or four to step; blocks in strides, any n.
// The state of the learner moves on in a block of its own, beside the others, which it waits for only to have read.
// Moved: 4 bytes a parameter and segment and 4 a parameter, then 36 bytes a parameter. With IMAGES the images of network_pass/ follow the parameters.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree_sum.cuh"
#include "record.cuh"
#include "guard.cuh"
#include "gate.cuh"
#define WITH_DECISION
#include "step.cuh"
#ifdef IMAGES
#include "images.cuh"
#endif

// ------------------------------------------------------------------------------------------------ kernels

// g = the sum of it (unless this is the first) and of N segments from number `first` on, asked for at once.
template <u32 N>
__device__ __forceinline__ void join(float& g, bool is_first, const SquaresArgs& a, u32 first, u64 i) {
  float part[N];
#pragma unroll
  for (u32 s = 0; s < N; s++) part[s] = a.parts[(first + s) * a.stride + i];
#pragma unroll
  for (u32 s = 0; s < N; s++) g = s > 0 || !is_first ? g + part[s] : part[s];
}

extern "C" __global__ void __launch_bounds__(1024) sum_squares(SquaresArgs a) {
  __shared__ double lanes[256];
  __shared__ float values[1024];
  dependency_wait();
  dependents_may_start();
  for (u64 block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    u64 i = block * 1024 + threadIdx.x;
    float g = 0.f;
    if (i < a.n) {
      if (a.segments) {
        if (a.add) g = a.gradient[i];
        u32 s = 0;
        for (; s + 16 <= a.segments; s += 16) join<16>(g, s == 0 && !a.add, a, s, i);
        for (; s + 4 <= a.segments; s += 4) join<4>(g, s == 0 && !a.add, a, s, i);
        for (; s < a.segments; s++) join<1>(g, s == 0 && !a.add, a, s, i);
        a.gradient[i] = g;
      } else {
        g = a.gradient[i];
      }
    }
    values[threadIdx.x] = g;
    __syncthreads();
    // The lanes of the tree are the first 256 threads.
    double sum = 0.;
    if (threadIdx.x < 256)
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        double x = values[threadIdx.x + k * 256];
        sum = __dadd_rn(sum, __dmul_rn(x, x));
      }
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

// Four elements with all that goes with them.
struct Four {
  float4 g, w, m, v, t;
  __device__ __forceinline__ void load(const ApplyArgs& a, u64 i) {
    g = ((const float4*)a.gradient)[i], w = ((const float4*)a.online)[i];
    m = ((const float4*)a.m)[i], v = ((const float4*)a.v)[i];
    if (a.polyak) t = ((const float4*)a.target)[i];
  }
};

#ifdef IMAGES
// Where they go in images, which never changes.
struct FourPlaces {
  uint4 forward, back;
  __device__ __forceinline__ void load(const ImageArgs& a, u64 i) {
    forward = ((const uint4*)a.forward_map)[i];
    back = a.back ? ((const uint4*)a.back_map)[i] : make_uint4(NOWHERE, NOWHERE, NOWHERE, NOWHERE);
  }
  __device__ __forceinline__ void store_online(const ImageArgs& a, float4 w) const {
    ::store_online(a, {forward.x, back.x}, w.x), ::store_online(a, {forward.y, back.y}, w.y);
    ::store_online(a, {forward.z, back.z}, w.z), ::store_online(a, {forward.w, back.w}, w.w);
  }
  __device__ __forceinline__ void store_target(const ImageArgs& a, float4 w) const {
    ::store_target(a, {forward.x, back.x}, w.x), ::store_target(a, {forward.y, back.y}, w.y);
    ::store_target(a, {forward.z, back.z}, w.z), ::store_target(a, {forward.w, back.w}, w.w);
  }
};
#endif

extern "C" __global__ void __launch_bounds__(256) apply_update(ApplyArgs a) {
  __shared__ double lanes[256];
  __shared__ Decision shared_decision;
  __shared__ StepState before;
  u32 steppers = gridDim.x - 1;  // the last block keeps the books
  u64 fours = a.n / 4, mine = (u64)blockIdx.x * 256 + threadIdx.x;
#ifdef IMAGES
  FourPlaces to;
  if (blockIdx.x < steppers && mine < fours) to.load(a.images, mine);
#endif
  dependency_wait();
  dependents_may_start();
  // What a thread steps first is on its way while the norm is summed.
  Four x;
  if (blockIdx.x < steppers && mine < fours) x.load(a, mine);
  constexpr u32 WORDS = sizeof(StepState) / sizeof(u64);
  static_assert(sizeof(StepState) % sizeof(u64) == 0 && WORDS <= 32, "state");
  if (threadIdx.x < WORDS) ((u64*)&before)[threadIdx.x] = ((const u64*)a.state)[threadIdx.x];
  Findings findings;
  if (threadIdx.x == 0) findings = *a.findings;
  double sum = 0.;
  for (u64 block = threadIdx.x; block < a.blocks; block += 256) sum = __dadd_rn(sum, a.sums[block]);
  sum = fold_lanes(sum, lanes);
  if (threadIdx.x == 0) shared_decision = decide(a, before, findings, sum);
  __syncthreads();
  Decision d = shared_decision;
  if (blockIdx.x == steppers) {
    if (threadIdx.x == 0) move_on(a, before, d, steppers);
    return;
  }
  // What this block reads of the state it has read.
  if (threadIdx.x == 0) atomicAdd(&a.state->ticket, 1);
  if (!d.apply) return;
  for (u64 i = mine; i < fours; i += (u64)steppers * 256) {
    if (i != mine) x.load(a, i);
    step_element(a, d, x.w.x, x.m.x, x.v.x, x.g.x);
    step_element(a, d, x.w.y, x.m.y, x.v.y, x.g.y);
    step_element(a, d, x.w.z, x.m.z, x.v.z, x.g.z);
    step_element(a, d, x.w.w, x.m.w, x.v.w, x.g.w);
    ((float4*)a.online)[i] = x.w, ((float4*)a.m)[i] = x.m, ((float4*)a.v)[i] = x.v;
#ifdef IMAGES
    if (i != mine) to.load(a.images, i);
    to.store_online(a.images, x.w);
#endif
    if (a.polyak) {
      x.t.x = x.t.x + a.tau * (x.w.x - x.t.x);
      x.t.y = x.t.y + a.tau * (x.w.y - x.t.y);
      x.t.z = x.t.z + a.tau * (x.w.z - x.t.z);
      x.t.w = x.t.w + a.tau * (x.w.w - x.t.w);
      ((float4*)a.target)[i] = x.t;
    } else if (d.copy) {
      ((float4*)a.target)[i] = x.w;
    }
#ifdef IMAGES
    if (a.polyak || d.copy) to.store_target(a.images, a.polyak ? x.t : x.w);
#endif
  }
  u64 i = fours * 4 + threadIdx.x;
  if (blockIdx.x == 0 && i < a.n) {
    step_element(a, d, a.online[i], a.m[i], a.v[i], a.gradient[i]);
    if (a.polyak) a.target[i] = a.target[i] + a.tau * (a.online[i] - a.target[i]);
    else if (d.copy) a.target[i] = a.online[i];
#ifdef IMAGES
    Places last = places_of(a.images, i);
    store_online(a.images, last, a.online[i]);
    store_target(a.images, last, a.target[i]);
#endif
  }
}
