// Targets, loss, |TD error| and the gradient with respect to the head's outputs, one launch a sub-batch.
//
// In: head outputs of online(s), online(s') (double DQN) or target(s) (Munchausen), and target(s'), f32 [rows, head_stride];
// the batch's fields.
// Out: f32 [rows] weighted losses and TD errors, f32 [rows, head_stride] head gradient; indices and generations of the
// rows, beside their TD errors, for the priorities. Eight lanes a row, eight rows a block.
// Moved: rows * (4 head_stride + 13) words.
//
//   ONLY_BRANCH   outputs of the head's only branch, 0 where it has several
#include "common.cuh"
#include "shared_structs.cuh"
#include "td_loss.cuh"

extern "C" __global__ void __launch_bounds__(64) td_loss(LossArgs a) {
  __shared__ float outputs[8][3][HEAD_WORDS];
  __shared__ float means[8][3][4];
  u32 r = threadIdx.x / 8, lane = threadIdx.x % 8, row = blockIdx.x * 8 + r;
  bool have = row < a.rows;
  u32 n_head = a.n_outputs + a.dueling;
  bool second = a.double_dqn || a.munchausen;
  dependency_wait();
  dependents_may_start();
  RowFields of;
  if (have) {
    float v[3][TURNS];
#pragma unroll
    for (int net = 0; net < 3; net++)
#pragma unroll
      for (int k = 0; k < TURNS; k++)
        if ((net != 1 || second) && lane + 8 * k < n_head)
          v[net][k] = a.heads[net][(u64)row * a.head_stride + lane + 8 * k];
    of.load(a, row);
#pragma unroll
    for (int net = 0; net < 3; net++)
#pragma unroll
      for (int k = 0; k < TURNS; k++) outputs[r][net][lane + 8 * k] = v[net][k];
  }
  __syncwarp();
  LossShape<ONLY_BRANCH> shape = {a.n_branches, a.dueling != 0, a.double_dqn != 0, a.munchausen != 0};
  RowLoss found = loss_of_row(a, shape, have, of, outputs[r], means[r], a.dhead + (u64)row * a.head_stride);
  if (have && lane == 0) found.store(a, row, of);
}
