// Q-values of one row of head outputs: value + (advantage - mean of its branch). Twin of `values_from_head` in
// foxhunt-ops/src/mlp/cpu.rs.
#pragma once

// The mean of `len` advantages, summed in order.
__device__ __forceinline__ float branch_mean(const float* advantages, u32 len) {
  float sum = advantages[0];
#pragma unroll 8
  for (u32 i = 1; i < len; i++) sum += advantages[i];
  return sum / (float)len;
}

// The same of N, whose loads do not wait for one another.
template <u32 N>
__device__ __forceinline__ float branch_mean(const float* advantages) {
  float v[N];
#pragma unroll
  for (u32 i = 0; i < N; i++) v[i] = advantages[i];
#pragma unroll
  for (u32 i = 1; i < N; i++) v[0] += v[i];
  return v[0] / (float)N;
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

// Stores the Q-values of `rows` rows from number `first` on, whose head outputs lie in shared memory, `stride` words from
// row to row. Eight lanes a row; all N threads that share the work come here, as number `thread`, with room for as many means.
template <u32 N, class Args>
__device__ __forceinline__ void store_q(const Args& a, const float* heads, u32 stride, u32 first, u32 rows, u32 thread, float (*means)[4]) {
  u32 at = thread / 8, lane = thread % 8;
  for (u32 r = at; r < rows; r += N / 8) {
    const float* outputs = heads + r * stride;
    if (lane < a.n_branches) means[at][lane] = branch_mean(outputs + 1 + a.start[lane], a.len[lane]);
    __syncwarp();
    HeadRow head = {outputs, means[at], true};
    if (first + r < a.rows)
      for (u32 d = 0; d < a.n_branches; d++)
        for (u32 i = lane; i < a.len[d]; i += 8) a.q[(u64)(first + r) * a.n_outputs + a.start[d] + i] = head.q(d, a.start[d] + i);
    __syncwarp();
  }
}
// The same for a whole block.
template <u32 N, class Args>
__device__ __forceinline__ void store_q(const Args& a, const float* heads, u32 stride, u32 first, u32 rows) {
  __shared__ float means[N / 8][4];
  store_q<N>(a, heads, stride, first, rows, threadIdx.x, means);
}
