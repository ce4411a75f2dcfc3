// Q-values of head outputs, for acting.
//
// In: f32 [rows, head_stride] value then advantages. Out: f32 [rows, n_outputs]. Eight lanes a row; means are summed in
// order by one lane a branch, so bits are those of the twin `q_from_head` in foxhunt-ops/src/mlp/cpu.rs.
// Moved: rows * (2 n_outputs + 1) words.
#include "common.cuh"
#include "shared_structs.cuh"
#include "q_from_head.cuh"

extern "C" __global__ void __launch_bounds__(64) q_from_head(HeadArgs a) {
  __shared__ float outputs[8][49];
  __shared__ float means[8][4];
  u32 r = threadIdx.x / 8, lane = threadIdx.x % 8, row = blockIdx.x * 8 + r;
  u32 n_head = 1 + a.n_outputs;
  bool have = row < a.rows;
  dependency_wait();
  dependents_may_start();
  if (have) {
    const float* head = a.head + (u64)row * a.head_stride;
    float v[TURNS];
#pragma unroll
    for (int k = 0; k < TURNS; k++) v[k] = lane + 8 * k < n_head ? head[lane + 8 * k] : 0.f;
#pragma unroll
    for (int k = 0; k < TURNS; k++) outputs[r][lane + 8 * k] = v[k];
  }
  __syncwarp();
  if (have && lane < a.n_branches) means[r][lane] = branch_mean(outputs[r] + 1 + a.start[lane], a.len[lane]);
  __syncwarp();
  if (!have) return;
  HeadRow head = {outputs[r], means[r], true};
  for (u32 d = 0; d < a.n_branches; d++)
    for (u32 i = lane; i < a.len[d]; i += 8)
      a.q[(u64)row * a.n_outputs + a.start[d] + i] = head.q(d, a.start[d] + i);
}
