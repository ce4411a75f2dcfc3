// Q-values of head outputs, for acting.
//
// In: f32 [rows, head_stride] value then advantages. Out: f32 [rows, n_outputs]. Eight lanes a row; means are summed in
// order by one lane a branch, so bits are those of the twin `values_from_head` in foxhunt-ops/src/mlp/cpu.rs.
// Moved: rows * (2 n_outputs + 1) words.
#include "common.cuh"
#include "shared_structs.cuh"
#include "q_from_head.cuh"

extern "C" __global__ void __launch_bounds__(64) q_from_head(HeadArgs a) {
  __shared__ float outputs[8][49];
  u32 r = threadIdx.x / 8, lane = threadIdx.x % 8, row = blockIdx.x * 8 + r;
  u32 n_head = 1 + a.n_outputs;
  dependency_wait();
  dependents_may_start();
  float v[TURNS] = {};
  if (row < a.rows) {
    const float* head = a.head + (u64)row * a.head_stride;
#pragma unroll
    for (int k = 0; k < TURNS; k++) v[k] = lane + 8 * k < n_head ? head[lane + 8 * k] : 0.f;
  }
#pragma unroll
  for (int k = 0; k < TURNS; k++) outputs[r][lane + 8 * k] = v[k];
  __syncwarp();
  store_q<64>(a, outputs[0], 49, blockIdx.x * 8, 8);
}
