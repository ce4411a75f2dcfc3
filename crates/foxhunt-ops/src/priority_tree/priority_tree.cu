// Prioritised sampling and priority updates. Twin: foxhunt-ops/src/priority_tree/cpu.rs; formulas in mod.rs.
//
// sample_proportional, sample_rank   in: tree, ring, control; out: the batch fields, step + 1, beta of the next step.
//   Launch: `workers` blocks of 64 .. 512 threads (four samples a warp), one more that collects when workers > 32.
//   With `exchange` all blocks must be resident. Bytes: per sample about 64 * 8 a level and the row twice; with COMPACT
//   the row (32), the features of both its bars (384), and what is written (424).
// sample_uniform, advance_sample     the same for rows drawn alike: a warp a row, then one thread for step and beta.
// finish_weights                     in: raw masses in `weights`; out: weights, step + 1. Only without `exchange`.
// update_priorities                  in: slots, TD errors, generations, gate; out: leaves, sums, maximum, counters.
// retag_leaves, restart_epoch        once in 2^31 epochs.
// rebuild_level, check_level         sums from their children; count of wrong sums.
// plain_prefix, plain_draw           the readable second opinion: prefix sum and binary search.
//
// Determinism: the draw depends on (seed, step, b) and the masses alone; sums are integers and minima and maxima do
// not depend on order; a leaf ends at the largest new priority whatever the order of its writers.
#include "common.cuh"
#include "philox.cuh"
#include "shared_structs.cuh"
#include "power.cuh"
#include "tree.cuh"
#include "ring.cuh"
#include "gate.cuh"
#if COMPACT
#include "complete.cuh"
#endif

#define PURPOSE_REPLAY 4u
#define PRIORITY_CAP 32767.998f

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ float beta_at(const SampleParams& s, u64 step) {
  if (step >= s.beta_steps) return (float)s.beta_end;
  double share = __ddiv_rn((double)step, (double)s.beta_steps);
  return __double2float_rn(__dadd_rn(s.beta_start, __dmul_rn(__dadd_rn(s.beta_end, -s.beta_start), share)));
}

__device__ __forceinline__ void advance(Control* c, const SampleParams& s, u64 step) {
  c->step = step + 1;
  c->beta = beta_at(s, step + 1);
}

// A tag is never 0, so zeroed memory belongs to no sample.
__device__ __forceinline__ u32 tag_of(u64 step) { return (u32)step | 0x80000000u; }

// The smallest word among those of `n` blocks, waiting for each to carry `tag`. One warp, at most 128 blocks.
__device__ __forceinline__ u32 collect_min(const u64* words, u32 n, u32 tag) {
  u32 lane = threadIdx.x & 31, smallest = 0x7f800000u;
  u64 w[4];
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    u32 i = lane + j * 32;
    w[j] = i < n ? load_shared_word(words + i) : (u64)tag << 32 | 0x7f800000u;
  }
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    while ((u32)(w[j] >> 32) != tag) w[j] = load_shared_word(words + lane + j * 32);
    smallest = min(smallest, (u32)w[j]);
  }
  return warp_min(smallest);
}

template <bool RANK>
__device__ __forceinline__ void sample_rows(const Tree& tree, const Ring& ring, const Batch& out, const SampleParams& s,
                                            Control* c, const u64* order_a, const u64* order_b) {
  __shared__ float masses[64];  // of the block's samples: four a warp
  __shared__ u32 batch_minimum;
  u32 lane = threadIdx.x & 31, sub = lane & 7, group = lane >> 3, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  u32 first = (blockIdx.x * warps + warp) * 4, b = first + group;
  bool live = b < s.batch, collector = blockIdx.x >= s.workers;
  dependency_wait();
  dependents_may_start();
  u64 step = c->step, tops[8];
  float beta = c->beta;
  u32 cursor = c->cursor, len = c->len, tag = tag_of(step);
  u64 turns = c->turns;
  const u64* top = tree.levels[LEVELS - 1] + group * 64 + sub * 2;
#pragma unroll
  for (int k = 0; k < 4; k++) load_pair_if(group * 64 < tree.top_nodes, top + k * 16, tops[2 * k], tops[2 * k + 1]);
  u64 x = philox_u64(s.seed, PURPOSE_REPLAY, b, step);
  running_sums(tops);
  u64 scan = lane_scan<32>(tops[7], lane), total = __shfl_sync(ALL_LANES, scan, 31);
  if (RANK && len < tree.capacity) total = prefix_of(tree, len);
  if (total == 0) {  // nothing to draw: say so, and take no step
    if (!collector && sub == 0 && live) {
      out.indices[b] = ALL_LANES;
      out.weights[b] = 0.f;
      out.generations[b] = 0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) c->empty_samples++;
    return;
  }
  if (collector) {
    if (warp == 0) {
      u32 smallest = collect_min(c->sample_words, s.workers, tag);
      if (lane == 0) {
        store_shared_word(&c->batch_minimum, (u64)tag << 32 | smallest);
        advance(c, s, step);
      }
    }
    return;
  }
  u64 fraction = live ? b * s.width + __umul64hi(x, s.width) : 0ull, leaf;
  u32 drawn = descend<RANK>(tree, __umul64hi(fraction, total), tops, scan, &leaf);
  u32 slot = min(drawn, tree.capacity - 1);
  if (RANK) {
    u32 fresh = len - c->sorted_len;
    slot = slot < fresh ? c->sorted_len + slot : (u32)(c->order_parity & 1 ? order_b : order_a)[slot - fresh];
  }
  float w = live ? __ull2float_rn(leaf) : F32_INFINITY;
  if (sub == 0) masses[warp * 4 + group] = w;
  // The rows are on their way while the blocks agree on the smallest mass.
#if COMPACT
  u32 own_word = __ldg(ring.words + row_offset(slot) + sub);
#else
  u32 v[4][4];
  const u32* rows[4];
#pragma unroll
  for (u32 k = 0; k < 4; k++) {
    rows[k] = ring.words + row_offset(__shfl_sync(ALL_LANES, slot, k * 8));
#pragma unroll
    for (u32 j = 0; j < 4; j++)
      if (j * 32 + lane < ROW_USED) v[k][j] = __ldg(rows[k] + j * 32 + lane);
  }
#endif
  __syncthreads();
  if (warp == 0) {
    u32 mine = lane < warps * 4 ? __float_as_uint(masses[lane]) : 0x7f800000u;
    u32 next = lane + 32 < warps * 4 ? __float_as_uint(masses[lane + 32]) : 0x7f800000u;
    u32 smallest = warp_min(min(mine, next));
    if (lane == 0) {
      if (s.exchange)
        store_shared_word(c->sample_words + blockIdx.x, (u64)tag << 32 | smallest);
      else
        atomicMin(&c->deferred_minimum, smallest);
    }
  }
  // Weights: a thread a sample. Eight lanes repeating the same f64 work would cost 0.3 us at a batch of 8192.
  u32 own = blockIdx.x * warps * 4 + threadIdx.x;
  bool weigh = threadIdx.x < warps * 4 && own < s.batch;
  float own_mass = weigh ? masses[threadIdx.x] : 1.f;
  double log2_mass = threadIdx.x < warps * 4 ? log2_portable((double)own_mass) : 0.0;
#if COMPACT
  complete_rows(ring, out, own_word, first, s.batch);
#else
#pragma unroll
  for (u32 j = 0; j < ROW_CHUNKS; j++) {
    u32 word = j * 32 + lane, stride;
    if (word >= ROW_USED) break;
    u32* p = field_word(out, word, first, &stride);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      u32 value = j < 4 ? v[k][j & 3] : __ldg(rows[k] + word);
      if (first + k < s.batch) p[(u64)k * stride] = value;
    }
  }
#endif
  if (sub == 0 && live) {
    out.indices[b] = slot;
    out.generations[b] = turns - (turns > 0 && slot >= cursor);
  }
  if (s.exchange && warp == 0) {
    u32 m;
    if (s.workers == gridDim.x) {  // few blocks read one another's words
      m = collect_min(c->sample_words, s.workers, tag);
    } else {  // many would queue at a few lines, so one block reads for all
      u64 word;
      do word = load_shared_word(&c->batch_minimum);
      while ((u32)(word >> 32) != tag);
      m = (u32)word;
    }
    if (lane == 0) {
      batch_minimum = m;
      if (blockIdx.x == 0 && s.workers == gridDim.x) advance(c, s, step);
    }
  }
  __syncthreads();
  if (weigh) out.weights[own] = s.exchange ? weight_portable(__uint_as_float(batch_minimum), log2_mass, beta) : own_mass;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(512)
    sample_proportional(Tree tree, Ring ring, Batch out, SampleParams s, Control* c) {
  sample_rows<false>(tree, ring, out, s, c, nullptr, nullptr);
}

extern "C" __global__ void __launch_bounds__(512)
    sample_rank(Tree rank_tree, Ring ring, Batch out, SampleParams s, Control* c, const u64* order_a, const u64* order_b) {
  sample_rows<true>(rank_tree, ring, out, s, c, order_a, order_b);
}

// Every row alike, weights 1: a warp a row, or four compact ones. Twin: uniform_slot in foxhunt-ops/src/ring/mod.rs.
extern "C" __global__ void __launch_bounds__(256) sample_uniform(Ring ring, Batch out, SampleParams s, const Control* c) {
  constexpr u32 A_WARP = COMPACT ? 4 : 1, LANES = 32 / A_WARP;
  u32 lane = threadIdx.x & 31, sub = lane % LANES, first = (blockIdx.x * 8 + (threadIdx.x >> 5)) * A_WARP, b = first + lane / LANES;
  dependency_wait();
  dependents_may_start();
  if (first >= s.batch) return;
  u32 len = c->len, slot = ALL_LANES;
  u64 turns = c->turns;
  if (len) {
    slot = (u32)__umul64hi(philox_u64(s.seed, PURPOSE_REPLAY, b, c->step), (u64)len);
#if COMPACT
    complete_rows(ring, out, __ldg(ring.words + row_offset(slot) + sub), first, s.batch);
#else
    const u32* row = ring.words + row_offset(slot);
#pragma unroll
    for (u32 j = 0; j < ROW_CHUNKS; j++) {
      u32 word = j * 32 + lane, stride;
      if (word < ROW_USED) *field_word(out, word, b, &stride) = __ldg(row + word);
    }
#endif
  }
  if (sub == 0 && b < s.batch) {
    out.indices[b] = slot;
    out.weights[b] = len ? 1.f : 0.f;
    out.generations[b] = len ? turns - (turns > 0 && slot >= c->cursor) : 0;
  }
}

// Apart from the draw, whose blocks all read the step.
extern "C" __global__ void advance_sample(SampleParams s, Control* c) {
  dependency_wait();
  dependents_may_start();
  if (c->len) advance(c, s, c->step);
  else c->empty_samples++;
}

// Batches whose blocks cannot all be resident get their weights here. One block, any batch.
extern "C" __global__ void __launch_bounds__(512) finish_weights(Batch out, SampleParams s, Control* c) {
  dependency_wait();
  dependents_may_start();
  u32 m = c->deferred_minimum;
  u64 step = c->step;
  float beta = c->beta;
  __syncthreads();
  if (m == 0x7f800000u) return;  // nothing was drawn
  for (u32 b = threadIdx.x; b < s.batch; b += blockDim.x)
    out.weights[b] = weight_portable(__uint_as_float(m), log2_portable((double)out.weights[b]), beta);
  if (threadIdx.x == 0) {
    c->deferred_minimum = 0x7f800000u;
    advance(c, s, step);
  }
}

// One thread an entry. The word that atomicMax returns is what the leaf held just before, so each toucher adds its own
// step; over all touchers of a leaf the steps add up to last - first, in whatever order they came.
extern "C" __global__ void __launch_bounds__(256)
    update_priorities(Tree tree, Control* c, UpdateParams u, const u32* slots, const float* td_errors,
                      const u64* generations, GateArgs gate, Changes changes) {
  __shared__ double scratch[256];
  u32 b = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  // Behind the end of a learner's update this kernel runs beside it: all it reads was there before that one began. It waits
  // before it ends, as the kernels behind it count on everything ahead being done.
  bool beside = gate.findings != nullptr;
  if (!beside) dependency_wait();
  dependents_may_start();
  uint4 state = *(const uint4*)&c->epoch;  // one cached read, used up before the block is counted below
  u32 epoch = state.x, maximum = state.y, cursor = state.z, len = state.w;
  u64 turns = c->turns;
  u32 sorted_epoch = changes.capacity ? c->sorted_epoch : 0;
  bool have = b < u.batch;
  u32 slot = have ? slots[b] : 0;
  float td = have ? td_errors[b] : 0.f;
  bool inside = have && slot < len;
  bool stale = inside && generations && generations[b] != turns - (turns > 0 && slot >= cursor);
  bool finite = is_finite(td), apply = inside && !stale && finite;
  float p = __fadd_rn(pow_portable(fabsf(finite ? td : 0.f), u.alpha), u.epsilon);
  bool capped = p > PRIORITY_CAP;
  p = fminf(p, PRIORITY_CAP);
  u64 word = (u64)epoch << 32 | __float_as_uint(p), before = 0, change = 0;
  if (is_closed(gate, scratch)) {  // the whole update was refused: no leaf, no epoch, no counter
    if (beside) dependency_wait();
    return;
  }
  if (apply) before = atomicMax(tree.levels[0] + place(slot), word);
  // The state is in registers by now, so the block may be counted, while the words come back.
  __syncthreads();
  bool last = threadIdx.x == 0 && atomicInc(&c->update_ticket, gridDim.x - 1) == gridDim.x - 1;
  if (apply) change = mass((u32)max(before, word), tree.scale) - mass((u32)before, tree.scale);
  add_to_ancestors(tree, slot, change, apply);
  if (changes.capacity) log_change(changes, c, apply && (u32)(before >> 32) < sorted_epoch, (u32)before, slot);
  u32 largest = warp_max(apply ? __float_as_uint(p) : 0u);
  u32 out_of_range = __ballot_sync(ALL_LANES, have && !inside), stales = __ballot_sync(ALL_LANES, stale);
  u32 refused = __ballot_sync(ALL_LANES, inside && !stale && !finite), caps = __ballot_sync(ALL_LANES, apply && capped);
  if (lane == 0) {
    if (largest > maximum) atomicMax(&c->max_priority, largest);
    if (out_of_range) atomicAdd(&c->out_of_range, (u64)__popc(out_of_range));
    if (stales) atomicAdd(&c->stale, (u64)__popc(stales));
    if (refused) atomicAdd(&c->refused, (u64)__popc(refused));
    if (caps) atomicAdd(&c->capped, (u64)__popc(caps));
  }
  if (last) c->epoch = epoch + 1;
  if (beside) dependency_wait();
}

// level + 1 of the tree from level. One thread a node.
extern "C" __global__ void rebuild_level(Tree tree, u32 level, u32 nodes, u32 raw_leaves) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= nodes) return;
  const u64* children = tree.levels[level] + (u64)i * 64;
  u64 sum = 0;
  for (u32 k = 0; k < 64; k++) sum += level == 0 && !raw_leaves ? mass((u32)children[k], tree.scale) : children[k];
  tree.levels[level + 1][place(i)] = sum;
}

// Counts the nodes of level + 1 that differ from the sum of their children.
extern "C" __global__ void check_level(Tree tree, u32 level, u32 nodes, u64* wrong) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= nodes) return;
  const u64* children = tree.levels[level] + (u64)i * 64;
  u64 sum = 0;
  for (u32 k = 0; k < 64; k++) sum += level == 0 ? mass((u32)children[k], tree.scale) : children[k];
  if (sum != tree.levels[level + 1][place(i)]) atomicAdd(wrong, 1ull);
}

// Starts the epochs again after 2^31 of them: priorities stay, and what changed since the order was made stays told from what
// did not. Then restart_epoch, one thread.
extern "C" __global__ void retag_leaves(Tree tree, const Control* c, u32 leaves) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= leaves) return;
  u64 leaf = tree.levels[0][i];
  tree.levels[0][i] = (leaf >> 32 < c->sorted_epoch ? 1ull : 2ull) << 32 | (u32)leaf;
}

extern "C" __global__ void restart_epoch(Control* c) {
  c->sorted_epoch = 2;
  c->epoch = 3;
}

// Second opinion. prefix[i] = mass of slots 0 .. i, one block, in slot order.
extern "C" __global__ void __launch_bounds__(1024) plain_prefix(Tree tree, u64* prefix) {
  __shared__ u64 parts[1024];
  u64 before = 0;
  for (u64 base = 0; base < tree.capacity; base += 1024) {
    u32 t = threadIdx.x;
    u64 i = base + t;
    parts[t] = i < tree.capacity ? mass((u32)tree.levels[0][place((u32)i)], tree.scale) : 0;
    __syncthreads();
    for (u32 k = 1; k < 1024; k <<= 1) {
      u64 left = t >= k ? parts[t - k] : 0;
      __syncthreads();
      parts[t] += left;
      __syncthreads();
    }
    if (i < tree.capacity) prefix[i] = before + parts[t];
    before += parts[1023];
    __syncthreads();
  }
}

// The slots that `sample_proportional` draws at `step`, by binary search. One thread a sample.
extern "C" __global__ void plain_draw(Tree tree, const u64* prefix, SampleParams s, u64 step, u32* slots) {
  u32 b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= s.batch) return;
  u64 x = philox_u64(s.seed, PURPOSE_REPLAY, b, step);
  u64 t = __umul64hi(b * s.width + __umul64hi(x, s.width), prefix[tree.capacity - 1]);
  u32 low = 0, high = tree.capacity - 1;
  while (low < high) {
    u32 middle = low + (high - low) / 2;
    if (prefix[middle] <= t) low = middle + 1;
    else high = middle;
  }
  slots[b] = low;
}
