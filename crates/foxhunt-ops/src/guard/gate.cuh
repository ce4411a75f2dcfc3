// Whether an update is refused. Host side: gate.rs.
#pragma once
#include "tree_sum.cuh"

// Anything that is not finite, among the inputs, the rows' TD errors, the loss or the norm of the gradient, refuses an update.
__device__ __forceinline__ bool is_refused(const Findings& f, double norm) {
  return f.bad_states || f.bad_rewards || f.bad_td || !is_finite((float)f.loss) || !is_finite((float)norm);
}

// The same from the outside. All threads of the block come here, at most 256; `shared` holds 256 values.
__device__ __forceinline__ bool is_closed(const GateArgs& g, double* shared) {
  if (g.findings) return is_refused(*g.findings, __dsqrt_rn(sum_in_tree(g.squares, g.blocks, shared)));
  return g.word && *g.word;
}
