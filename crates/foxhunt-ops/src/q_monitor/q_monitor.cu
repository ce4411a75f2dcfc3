// Statistics of a batch of Q-values. Twin: foxhunt-ops/src/q_monitor/cpu.rs.
//
// qvalue_accumulate         in: q f32 [rows, width]; out: sums += mean over branches of max_a Q of each row, and counts.
// qvalue_divergence_check   in: q f32 [n]; out: a record in pinned memory, numbered by `checks`: [0] smallest and largest
//                           finite value, [1] mean and whether diverged, [2] finite values | others << 32.
//   Launch: one block of 256 threads, any size. Sums run in the tree of tree_sum.cuh; minima, maxima and counts are
//   integers, whose order does not matter. Bytes: q once.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree_sum.cuh"
#include "record.cuh"
#include "q_monitor.cuh"

extern "C" __global__ void __launch_bounds__(256)
    qvalue_accumulate(const float* q, u32 rows, Branches branches, MaxQState* state) {
  __shared__ double lanes[256];
  __shared__ u32 left_out;
  if (threadIdx.x == 0) left_out = 0;
  dependency_wait();
  dependents_may_start();
  double lane = 0.;
  u32 bad = 0;
  for (u64 row = threadIdx.x; row < rows; row += 256) {
    const float* values = q + row * branches.width;
    double total = 0.;
    bool finite = true;
    for (u32 k = 0; k < branches.count; k++) {
      float top = largest(values, branches.len[k]);
      finite &= is_finite(top);
      total = __dadd_rn(total, (double)top);
      values += branches.len[k];
    }
    lane = __dadd_rn(lane, finite ? __ddiv_rn(total, (double)branches.count) : 0.);
    bad += !finite;
  }
  double sum = fold_lanes(lane, lanes);
  bad = warp_sum(bad);
  if ((threadIdx.x & 31) == 0 && bad) atomicAdd(&left_out, bad);
  __syncthreads();
  if (threadIdx.x) return;
  state->sum = __dadd_rn(state->sum, sum);
  state->rows += rows - left_out;
  state->non_finite_rows += left_out;
}

extern "C" __global__ void __launch_bounds__(256)
    qvalue_divergence_check(const float* q, u32 n, float threshold, u64* checks, u64* record) {
  __shared__ double lanes[256];
  __shared__ u32 shared_low, shared_high, shared_finite;
  if (threadIdx.x == 0) shared_low = ALL_LANES, shared_high = shared_finite = 0;
  dependency_wait();
  dependents_may_start();
  double lane = 0.;
  u32 low = ALL_LANES, high = 0, finite = 0;
  for (u64 i = threadIdx.x; i < n; i += 256) {
    RowRange one = row_range(q + i, 1);
    lane = __dadd_rn(lane, one.sum);
    low = min(low, one.low), high = max(high, one.high), finite += one.finite;
  }
  double sum = fold_lanes(lane, lanes);
  low = warp_min(low), high = warp_max(high), finite = warp_sum(finite);
  if ((threadIdx.x & 31) == 0) {
    atomicMin(&shared_low, low);
    atomicMax(&shared_high, high);
    atomicAdd(&shared_finite, finite);
  }
  __syncthreads();
  if (threadIdx.x) return;
  finite = shared_finite;
  float none = __uint_as_float(0x7fc00000u);
  float smallest = finite ? from_order_key(shared_low) : none, most = finite ? from_order_key(shared_high) : none;
  float mean = finite ? __double2float_rn(__ddiv_rn(sum, (double)finite)) : none;
  bool diverged = finite < n || most > threshold || smallest < -threshold;
  u64 step = ++*checks, words[3] = {two(smallest, most), two(mean, diverged), (u64)(n - finite) << 32 | finite};
  write_words(record, step, words, nullptr, 0);
  __threadfence_system();
  publish_record(record, step);
}
