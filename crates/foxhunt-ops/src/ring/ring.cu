// Insert of a batch of rows with their priorities. Twins: foxhunt-ops/src/ring/cpu.rs and priority_tree/cpu.rs.
//
// insert_rows   in: separate fields of `row_count` rows; out: ring words, leaves, sums, cursor, counters.
//   Launch: at most 128 blocks of 288 threads, all resident, at most 1024 rows a block: eight warps move rows, the ninth
//   writes leaves. Bytes: each row read once or twice, written once.
//   Rows with a value that is not finite are refused and the others close the gap, so no slot is known before every
//   row was looked at: the blocks meet once, at one counter. Almost always nothing is refused, and then the slot of
//   row r is cursor + r; otherwise the blocks with refusals have published their counts and all add them up.
//   Determinism: slots depend on the order of the rows alone; sums are integers.
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

// Slot of the rank-th accepted row. cursor is below the capacity, at most 2^31, and rank below 2^17.
__device__ __forceinline__ u32 slot_of(u32 cursor, u32 rank, u32 capacity) {
  u32 slot = cursor + rank;
  return slot < capacity ? slot : slot % capacity;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(288)
    insert_rows(Tree tree, Ring ring, Rows rows, Control* c, u32 row_count, u32 rows_a_block, Changes changes) {
  constexpr u32 MOVERS = 8;
  __shared__ u32 accepted[32], accepted_before[32], refused[3], shared_refused, shared_before, shared_total;
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  u32 begin = blockIdx.x * rows_a_block, count = min(rows_a_block, row_count - min(begin, row_count));
  bool mover = warp < MOVERS;
  if (threadIdx.x < 32) accepted[threadIdx.x] = 0;
  if (threadIdx.x < 3) refused[threadIdx.x] = 0;
  dependency_wait();
  dependents_may_start();
  uint4 state = *(const uint4*)&c->epoch;
  u32 epoch = state.x, maximum = state.y, cursor = state.z, len = state.w, capacity = tree.capacity;
  u32 inserts = c->inserts, tag = inserts | 0x80000000u, v[HELD], why = 0;
  u64 guess = 0;
  if (mover && warp < count) why = load_row(rows, begin + warp, v);
  if (!mover && lane < count) guess = tree.levels[0][place(slot_of(cursor, begin + lane, capacity))];
  u32 sorted_epoch = changes.capacity ? c->sorted_epoch : 0;
  __syncthreads();
  if (mover)
    for (u32 r = warp; r < count; r += MOVERS) {
      if (r != warp) why = load_row(rows, begin + r, v);
      if (lane == 0) {
        if (why == 0) atomicOr(&accepted[r >> 5], 1u << (r & 31));
        else atomicAdd(&refused[why], 1u);
      }
    }
  __syncthreads();
  if (threadIdx.x == 0) {
    u64* meeting = c->meetings + (inserts & 1);
    u32 bad = refused[1] + refused[2];
    if (bad) {
      atomicAdd(&c->refused_rewards, (u64)refused[1]);
      atomicAdd(&c->refused_states, (u64)refused[2]);
      store_shared_word(c->insert_words + blockIdx.x, (u64)tag << 32 | (count - bad));
      __threadfence();
    }
    u64 word = atomicAdd(meeting, (u64)bad << 32 | 1u) + ((u64)bad << 32 | 1u);
    while ((u32)word < gridDim.x) word = load_shared_word(meeting);
    shared_refused = (u32)(word >> 32);
  }
  __syncthreads();
  u32 before = begin, total = row_count;
  bool gaps = shared_refused != 0;
  if (gaps) {
    if (warp == 0) {
      __threadfence();
      u32 own = __popc(accepted[lane]), sum = own, ahead = 0, all = 0;
      for (int k = 1; k < 32; k <<= 1) {
        u32 left = __shfl_up_sync(ALL_LANES, sum, k);
        if (lane >= k) sum += left;
      }
      accepted_before[lane] = sum - own;
      for (u32 b = lane; b < gridDim.x; b += 32) {  // a block without refusals has no word of this insert
        u64 word = load_shared_word(c->insert_words + b);
        u32 theirs = min(rows_a_block, row_count - min(b * rows_a_block, row_count));
        if ((u32)(word >> 32) == tag) theirs = (u32)word;
        all += theirs;
        if (b < blockIdx.x) ahead += theirs;
      }
      ahead = warp_sum(ahead);
      all = warp_sum(all);
      if (lane == 0) {
        shared_before = ahead;
        shared_total = all;
      }
    }
    __syncthreads();
    before = shared_before;
    total = shared_total;
  }
  u32 dropped = total > capacity ? total - capacity : 0;
  // All blocks have read the state, so the first may write the next one. The other counter is nobody's now.
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    u32 end = cursor + total;
    c->inserted += total;
    c->turns += end / capacity;
    c->cursor = end % capacity;
    c->len = (u32)min((u64)capacity, (u64)len + total);
    c->inserts = inserts + 1;
    c->meetings[(inserts + 1) & 1] = 0;
  }
  auto rank_of = [&](u32 r, bool* have) {
    u32 bits = accepted[r >> 5] >> (r & 31), rank = before + r;
    if (gaps) rank = before + accepted_before[r >> 5] + __popc(accepted[r >> 5] & ((1u << (r & 31)) - 1u));
    *have = (bits & 1) && rank >= dropped;
    return rank;
  };
  if (mover) {
    for (u32 r = warp; r < count; r += MOVERS) {
      bool have;
      u32 rank = rank_of(r, &have);
      if (!have) continue;
      u32* row = ring.words + row_offset(slot_of(cursor, rank, capacity));
      if (count > MOVERS) load_row(rows, begin + r, v);
#pragma unroll
      for (u32 j = 0; j < ROW_CHUNKS; j++) {
        u32 word = j * 32 + lane, stride;
        if (word < ROW_STRIDE) row[word] = j < HELD ? v[j < HELD ? j : 0] : word < ROW_USED ? *field_word(rows, word, begin + r, &stride) : 0;
      }
    }
    return;
  }
  // A thread a row, neighbours in neighbouring slots, so that the warp adds to its ancestors once.
  for (u32 base = 0; base < count; base += 32) {
    u32 r = base + lane;
    bool have = false;
    u32 slot = r < count ? slot_of(cursor, rank_of(r, &have), capacity) : 0;
    u64 old = 0, change = 0;
    if (have) {
      u64* leaf = tree.levels[0] + place(slot);
      old = base || gaps ? *leaf : guess;
      *leaf = (u64)(epoch - 1) << 32 | maximum;
      change = mass(maximum, tree.scale) - mass((u32)old, tree.scale);
    }
    add_to_ancestors(tree, slot, change, have);
    if (changes.capacity) log_change(changes, c, have && (u32)(old >> 32) < sorted_epoch, (u32)old, slot);
  }
}
