// What a rollout leaves for its account: for each vector step and environment its Q-values, reward and log return, and the rows that leave, of which
// there are `row_counts`, and `part_rows` of the environments of a warp; for each step what was not finite (`bad`).
#pragma once

// Words of a compact row, and where the rows begin that environment `env` lets go in step `step`.
constexpr u32 ROW_WORDS = 8;
__device__ __forceinline__ u32* rows_of(const RolloutLog& log, const CollectParams& c, u32 step, u32 env) {
  return log.rows + ROW_WORDS * c.n * ((u64)step * c.n_envs + env);
}
