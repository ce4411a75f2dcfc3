// The order of rows by priority. Twin: foxhunt-ops/src/rank_sampler/cpu.rs (its sort); keys as in mod.rs.
//
// An order is u64 [capacity]: sort keys, rising. Slots never written have priority bits 0 and the highest slots, so
// they stand last and the first `len` keys are the order of the rows stored.
//
// Full sort: sort_keys, then four times (count_digits, scan_counts, scatter_keys), then compose_order, finish_order.
//   Least significant digit first, 8 bits a pass, stable, so equal priorities stay by slot.
// Repair: sort_changes_256 or _1024, rank_changes, merge_order. Only the keys of the leaves touched since the order was
//   last right move: their old keys leave, their new ones enter, in one pass over the order. Keys are unique, so both
//   ways give the same one order. Bytes: 16 a row. More changes than `limit`: the order stays as it was, a valid if old
//   one, and order_overflows counts.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree.cuh"

constexpr u32 SORT_THREADS = 256, SORT_ROUNDS = 16, SORT_TILE = SORT_THREADS * SORT_ROUNDS, DIGITS = 256;
constexpr u32 MERGE_THREADS = 256, MERGE_EACH = 8, MERGE_TILE = MERGE_THREADS * MERGE_EACH;

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ void order_is_right(Control* c) {
  c->changes = 0;
  c->sorted_len = c->len;
  c->sorted_epoch = c->epoch;
  c->epoch++;  // an insert writes epoch - 1, which must count as later than the sort too
}

// First index in [low, high) whose key is not below `key`.
__device__ __forceinline__ u32 lower_bound(const u64* keys, u32 low, u32 high, u64 key) {
  while (low < high) {
    u32 middle = (low + high) >> 1;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The same by a whole warp, 32 probes at a time.
__device__ __forceinline__ u32 warp_lower_bound(const u64* keys, u32 n, u64 key) {
  u32 lane = threadIdx.x & 31, low = 0, high = n;
  while (low < high) {
    u32 step = (high - low + 31) / 32, probe = low + lane * step + step - 1;
    u32 below = __popc(__ballot_sync(ALL_LANES, probe < high && keys[probe] < key));
    low += below * step;
    high = step == 1 ? min(low, high) : min(high, low + step - 1);
    low = min(low, high);
  }
  return low;
}

// Sorts runs of RUN keys: bitonic, neighbours within a warp by shuffle, others through shared memory.
template <u32 RUN>
__device__ __forceinline__ void sort_run(const Tree& tree, Control* c, const Changes& changes, u64* runs, u32 limit) {
  __shared__ u64 exchange[RUN];
  u32 t = threadIdx.x, i = blockIdx.x * RUN + t;
  dependency_wait();
  dependents_may_start();
  u32 count = c->changes;
  if (count > limit || blockIdx.x * RUN >= count) return;
  u64 key = ~0ull;
  if (i < count) {
    key = changes.old_keys[i];
    if (blockIdx.y) key = sort_key((u32)tree.levels[0][place((u32)key)], (u32)key);
  }
  for (u32 size = 2; size <= RUN; size *= 2)
    for (u32 gap = size / 2; gap; gap /= 2) {
      u64 other;
      if (gap >= 32) {
        __syncthreads();
        exchange[t] = key;
        __syncthreads();
        other = exchange[t ^ gap];
      } else {
        other = __shfl_xor_sync(ALL_LANES, key, gap);
      }
      bool keep_low = ((t & gap) == 0) == ((t & size) == 0);
      key = keep_low ? min(key, other) : max(key, other);
    }
  runs[(u64)blockIdx.y * changes.capacity + i] = key;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void sort_keys(Tree tree, u32* keys, u32* slots) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= tree.capacity) return;
  keys[i] = ~(u32)tree.levels[0][place(i)];
  slots[i] = i;
}

// counts[digit * gridDim.x + block]
extern "C" __global__ void __launch_bounds__(SORT_THREADS) count_digits(const u32* keys, u32 n, u32 shift, u32* counts) {
  __shared__ u32 bins[DIGITS];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (u32 k = 0; k < SORT_ROUNDS; k++) {
    u64 i = (u64)blockIdx.x * SORT_TILE + k * SORT_THREADS + threadIdx.x;
    if (i < n) atomicAdd(&bins[keys[i] >> shift & 255u], 1u);
  }
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}

// Exclusive scan in place; one block of 1024 threads, four values a thread and turn.
extern "C" __global__ void __launch_bounds__(1024) scan_counts(u32* counts, u32 n) {
  __shared__ u32 warp_sums[32];
  u32 t = threadIdx.x, lane = t & 31, warp = t >> 5, before = 0;
  for (u32 base = 0; base < n; base += 4096) {
    u32 i = base + t * 4, v[4], sum = 0;
    for (u32 k = 0; k < 4; k++) sum += v[k] = i + k < n ? counts[i + k] : 0;
    u32 scan = sum;
    for (int k = 1; k < 32; k <<= 1) {
      u32 left = __shfl_up_sync(ALL_LANES, scan, k);
      if (lane >= k) scan += left;
    }
    if (lane == 31) warp_sums[warp] = scan;
    __syncthreads();
    u32 others = warp_sums[lane], total = warp_sum(others), ahead = warp_sum(lane < warp ? others : 0);
    u32 at = before + ahead + scan - sum;
    for (u32 k = 0; k < 4; k++) {
      if (i + k < n) counts[i + k] = at;
      at += v[k];
    }
    before += total;
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    scatter_keys(const u32* keys, const u32* slots, u32* keys_out, u32* slots_out, u32 n, u32 shift, const u32* offsets) {
  constexpr u32 WARPS = SORT_THREADS / 32, PART = SORT_TILE / WARPS;
  __shared__ u32 next[WARPS][DIGITS];
  u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
  for (u32 w = 0; w < WARPS; w++) next[w][t] = 0;
  __syncthreads();
  u64 begin = (u64)blockIdx.x * SORT_TILE + warp * PART;
  for (u32 k = lane; k < PART; k += 32)
    if (begin + k < n) atomicAdd(&next[warp][keys[begin + k] >> shift & 255u], 1u);
  __syncthreads();
  u32 at = offsets[t * gridDim.x + blockIdx.x];
  for (u32 w = 0; w < WARPS; w++) {
    u32 own = next[w][t];
    next[w][t] = at;
    at += own;
  }
  __syncthreads();
  for (u32 k = lane; k < PART; k += 32) {
    u64 i = begin + k;
    u32 key = i < n ? keys[i] : 0, digit = i < n ? key >> shift & 255u : DIGITS;
    u32 peers = __match_any_sync(ALL_LANES, digit), rank = __popc(peers & ((1u << lane) - 1u));
    u32 to = digit < DIGITS ? next[warp][digit] + rank : 0;
    __syncwarp();
    if (digit < DIGITS) {
      if (rank == 0) next[warp][digit] += __popc(peers);
      keys_out[to] = key;
      slots_out[to] = slots[i];
    }
    __syncwarp();
  }
}

extern "C" __global__ void compose_order(const u32* keys, const u32* slots, u64* order, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) order[i] = (u64)keys[i] << 32 | slots[i];
}

extern "C" __global__ void finish_order(Control* c) {
  c->order_parity = 0;
  order_is_right(c);
}

extern "C" __global__ void __launch_bounds__(256) sort_changes_256(Tree tree, Control* c, Changes changes, u64* runs, u32 limit) {
  sort_run<256>(tree, c, changes, runs, limit);
}
extern "C" __global__ void __launch_bounds__(1024) sort_changes_1024(Tree tree, Control* c, Changes changes, u64* runs, u32 limit) {
  sort_run<1024>(tree, c, changes, runs, limit);
}

// Place of each key in its whole list: its place in its run and the keys below it in the others.
extern "C" __global__ void __launch_bounds__(256)
    rank_changes(Control* c, Changes changes, const u64* runs, u64* sorted, u32 run, u32 limit) {
  dependency_wait();
  dependents_may_start();
  u32 count = c->changes, i = blockIdx.x * 256 + threadIdx.x, n = (count + run - 1) / run;
  if (count > limit || i >= n * run) return;
  const u64* list = runs + (u64)blockIdx.y * changes.capacity;
  u64 key = list[i];
  u32 rank = i % run, own = i / run;
  if (key == ~0ull) return;  // padding of the last run
  for (u32 r = 0; r < n; r += 4) {
    u32 found[4] = {0, 0, 0, 0};  // four searches side by side; each run has a power of two of keys
    for (u32 half = run / 2; half; half /= 2)
#pragma unroll
      for (u32 k = 0; k < 4; k++)
        if (r + k < n && list[(r + k) * run + found[k] + half - 1] < key) found[k] += half;
#pragma unroll
    for (u32 k = 0; k < 4; k++)
      if (r + k < n && r + k != own) rank += found[k] + (list[(r + k) * run + found[k]] < key);
  }
  sorted[(u64)blockIdx.y * changes.capacity + rank] = key;
}

// One pass over the order, a tile a block: keys that left are dropped, the others move by (entered - left) below them.
extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
    merge_order(Control* c, Changes changes, const u64* sorted, u64* order_a, u64* order_b, u32 n, u32 limit) {
  __shared__ u64 tile[MERGE_TILE];
  __shared__ u32 bounds[4];
  u32 t = threadIdx.x, warp = t >> 5, begin = blockIdx.x * MERGE_TILE, count = min(MERGE_TILE, n - begin);
  dependency_wait();
  dependents_may_start();
  u32 changed = c->changes, parity = c->order_parity & 1;
  const u64 *from = parity ? order_b : order_a, *left = sorted, *entered = sorted + changes.capacity;
  u64* to = parity ? order_a : order_b;
  bool fits = changed <= limit;
  if (changed && fits) {
    u64 v[MERGE_EACH];
#pragma unroll
    for (u32 k = 0; k < MERGE_EACH; k++) v[k] = k * MERGE_THREADS + t < count ? from[begin + k * MERGE_THREADS + t] : ~0ull;
    if (warp < 4) {  // where the lists enter and leave this tile
      u32 edge = warp & 1 ? begin + count : begin;
      u32 bound = edge == 0 ? 0 : edge == n ? changed : warp_lower_bound(warp & 2 ? entered : left, changed, from[edge]);
      if ((t & 31) == 0) bounds[warp] = bound;
    }
#pragma unroll
    for (u32 k = 0; k < MERGE_EACH; k++) tile[k * MERGE_THREADS + t] = v[k];
    __syncthreads();
    u32 left_low = bounds[0], left_high = bounds[1], in_low = bounds[2], in_high = bounds[3];
#pragma unroll
    for (u32 k = 0; k < MERGE_EACH; k++) {
      u32 j = k * MERGE_THREADS + t;
      if (j >= count) continue;
      u32 gone = lower_bound(left, left_low, left_high, v[k]), come = lower_bound(entered, in_low, in_high, v[k]);
      if (gone >= left_high || left[gone] != v[k]) to[begin + j - gone + come] = v[k];
    }
    for (u32 i = in_low + t; i < in_high; i += MERGE_THREADS) {
      u64 key = entered[i];
      to[i + begin + lower_bound(tile, 0, count, key) - lower_bound(left, left_low, left_high, key)] = key;
    }
  }
  __syncthreads();
  if (t == 0 && atomicInc(&c->merge_ticket, gridDim.x - 1) == gridDim.x - 1) {
    if (fits) {
      if (changed) c->order_parity = parity ^ 1;
      order_is_right(c);
    } else {
      c->order_overflows++;
    }
  }
}
