// Q-values of one row of head outputs: value + (advantage - mean of its branch). Twin of `q_from_head` in
// foxhunt-ops/src/mlp/cpu.rs.
#pragma once

// The mean of `len` advantages, summed in order.
__device__ __forceinline__ float branch_mean(const float* advantages, u32 len) {
  float sum = advantages[0];
#pragma unroll 16
  for (u32 i = 1; i < len; i++) sum += advantages[i];
  return sum / (float)len;
}

// Turns of eight lanes over the outputs of a head, of which there are at most 46.
constexpr int TURNS = 6;

// What eight lanes know of a row: its head outputs in shared memory and the mean of each branch.
struct HeadRow {
  const float* outputs;
  const float* means;
  bool dueling;
  __device__ __forceinline__ float q(u32 branch, u32 at) const {
    return dueling ? outputs[0] + (outputs[1 + at] - means[branch]) : outputs[at];
  }
};
