// Insert of a batch of rows with their priorities. Twins: foxhunt-ops/src/ring/cpu.rs and priority_tree/cpu.rs.
//
// insert_rows   in: separate fields of `rows` rows; out: ring words, leaves, sums, cursor, counters.
//   Launch: at most 32 blocks of 512 threads, all resident, at most 1024 rows a block. Bytes: each row read once or
//   twice, written once. Rows with a value that is not finite are refused and the others close the gap, so each
//   block counts its accepted rows, tells the others, and only then knows its slots. Determinism: slots depend on the
//   order of the rows alone; sums are integers.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree.cuh"
#include "ring.cuh"

// ------------------------------------------------------------------------------------------------ device code

// Loads a row into v (the first eight chunks) and says why it is refused: 0 not, 1 reward, 2 state.
constexpr u32 HELD = ROW_CHUNKS < 8 ? ROW_CHUNKS : 8;
__device__ __forceinline__ u32 load_row(const Rows& rows, u32 r, u32 v[HELD]) {
  u32 lane = threadIdx.x & 31;
  bool bad_state = false, bad_reward = false;
#pragma unroll
  for (u32 j = 0; j < ROW_CHUNKS; j++) {
    u32 word = j * 32 + lane, stride, value = 0;
    if (word < ROW_USED) {
      value = *field_word(rows, word, r, &stride);
      bool bad = !is_finite(__uint_as_float(value));
      bad_state |= bad && word < 2 * STATE_DIM;
      bad_reward |= bad && word > 2 * STATE_DIM;  // the word between is the action
    }
    if (j < HELD) v[j] = value;
  }
  return __any_sync(ALL_LANES, bad_reward) ? 1 : __any_sync(ALL_LANES, bad_state) ? 2 : 0;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(512)
    insert_rows(Tree tree, Ring ring, Rows rows, Control* c, u32 row_count, u32 rows_a_block, Changes changes) {
  __shared__ u32 accepted[32], accepted_before[33], refused[3], shared_before, shared_total;
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  u32 begin = blockIdx.x * rows_a_block, count = min(rows_a_block, row_count - min(begin, row_count));
  if (threadIdx.x < 32) accepted[threadIdx.x] = 0;
  if (threadIdx.x < 3) refused[threadIdx.x] = 0;
  dependency_wait();
  dependents_may_start();
  uint4 state = *(const uint4*)&c->epoch;
  u32 epoch = state.x, maximum = state.y, cursor = state.z, len = state.w, capacity = tree.capacity;
  u64 inserted = c->inserted;
  u32 tag = c->inserts | 0x80000000u, inserts = c->inserts;
  u32 sorted_epoch = changes.capacity ? c->sorted_epoch : 0;
  __syncthreads();
  u32 v[HELD];
  for (u32 r = warp; r < count; r += warps) {
    u32 why = load_row(rows, begin + r, v);
    if (lane == 0) {
      if (why == 0) atomicOr(&accepted[r >> 5], 1u << (r & 31));
      else atomicAdd(&refused[why], 1u);
    }
  }
  __syncthreads();
  if (warp == 0) {
    // Accepted rows before each word of the bitmap, then before this block and in all blocks.
    u32 own = __popc(accepted[lane]), sum = own;
    for (int k = 1; k < 32; k <<= 1) {
      u32 left = __shfl_up_sync(ALL_LANES, sum, k);
      if (lane >= k) sum += left;
    }
    accepted_before[lane] = sum - own;
    if (lane == 31) store_shared_word(c->insert_words + blockIdx.x, (u64)tag << 32 | sum);
    if (lane == 1 && refused[1]) atomicAdd(&c->refused_rewards, (u64)refused[1]);
    if (lane == 2 && refused[2]) atomicAdd(&c->refused_states, (u64)refused[2]);
    u64 word = (u64)tag << 32;
    if (lane < gridDim.x)
      do word = load_shared_word(c->insert_words + lane);
      while ((u32)(word >> 32) != tag);
    u32 theirs = (u32)word, total = warp_sum(theirs), before = warp_sum(lane < blockIdx.x ? theirs : 0);
    if (lane == 0) {
      shared_before = before;
      shared_total = total;
    }
  }
  __syncthreads();
  u32 before = shared_before, total = shared_total, dropped = total > capacity ? total - capacity : 0;
  for (u32 r = warp; r < count; r += warps) {
    u32 bits = accepted[r >> 5], rank = before + accepted_before[r >> 5] + __popc(bits & ((1u << (r & 31)) - 1u));
    if (!(bits >> (r & 31) & 1) || rank < dropped) continue;
    u32* row = ring.words + row_offset(((u64)cursor + rank) % capacity);
    if (count > warps) load_row(rows, begin + r, v);
#pragma unroll
    for (u32 j = 0; j < ROW_CHUNKS; j++) {
      u32 word = j * 32 + lane, stride;
      if (word < ROW_STRIDE) row[word] = j < HELD ? v[j < HELD ? j : 0] : word < ROW_USED ? *field_word(rows, word, begin + r, &stride) : 0;
    }
  }
  // Leaves: a thread a row, neighbours in neighbouring slots, so that a warp adds to its ancestors once.
  u32 rounds = (count + blockDim.x - 1) / blockDim.x;
  for (u32 k = 0; k < rounds; k++) {
    u32 r = k * blockDim.x + threadIdx.x, bits = r < count ? accepted[r >> 5] : 0;
    u32 rank = before + (r < count ? accepted_before[r >> 5] : 0) + __popc(bits & ((1u << (r & 31)) - 1u));
    bool have = (bits >> (r & 31) & 1) && rank >= dropped;
    u32 slot = have ? (u32)(((u64)cursor + rank) % capacity) : 0;
    u64 old = 0, change = 0;
    if (have) {
      u64* leaf = tree.levels[0] + place(slot);
      old = *leaf;
      *leaf = (u64)(epoch - 1) << 32 | maximum;
      change = mass(maximum, tree.scale) - mass((u32)old, tree.scale);
    }
    add_to_ancestors(tree, slot, change, have);
    if (changes.capacity) log_change(changes, c, have && (u32)(old >> 32) < sorted_epoch, (u32)old, slot);
  }
  __syncthreads();
  if (threadIdx.x == 0 && atomicInc(&c->insert_ticket, gridDim.x - 1) == gridDim.x - 1) {
    u64 now = inserted + total;
    c->inserted = now;
    c->turns = now / capacity;
    c->cursor = (u32)(now % capacity);
    c->len = (u32)min((u64)capacity, (u64)len + total);
    c->inserts = inserts + 1;
  }
}
