// Insert of a batch of rows with their priorities. Twins: foxhunt-ops/src/ring/cpu.rs and priority_tree/cpu.rs.
//
// insert_rows   in: separate fields of `row_count` rows; out: ring words, leaves, sums, cursor, counters.
//   Launch: at most 128 blocks, all resident, at most 1024 rows a block. 288 threads a block (eight warps move rows, one
//   writes leaves) or, for many rows a block, 640 (sixteen and four). Bytes: each row read once, or twice where a warp
//   has more than it holds in registers, written once.
//   Rows with a value that is not finite are refused and the others close the gap, so no slot is known before every
//   row was looked at: the blocks meet once, at one counter. Almost always nothing is refused, and then the slot of
//   row r is cursor + r; otherwise the blocks with refusals have published their counts and all add them up.
//   With `counted` the rows are those of [first, first + row_count) below that number in device memory, often none.
//   Determinism: slots depend on the order of the rows alone; sums are integers.
#include "common.cuh"
#include "shared_structs.cuh"
#include "tree.cuh"
#include "ring.cuh"

// ------------------------------------------------------------------------------------------------ device code

// Chunks of a row that a warp holds, and rows it holds at once: their loads are in flight together.
constexpr u32 HELD = ROW_CHUNKS < 8 ? ROW_CHUNKS : 8;
constexpr u32 BATCH = ROW_CHUNKS <= 4 ? 8 : ROW_CHUNKS <= 8 ? 4 : 1;
// Rows that a warp moves in one access: one, or four compact ones, eight lanes each.
constexpr u32 UNIT = COMPACT ? 4 : 1;

// Loads the units from rows r, r + step .. on, below `end`, into v (the first eight chunks of each).
__device__ __forceinline__ void load_rows(const Rows& rows, u32 r, u32 step, u32 end, u32 v[BATCH][HELD]) {
  u32 lane = threadIdx.x & 31;
#if COMPACT
  const u32* words = (const u32*)rows.states + lane;
#pragma unroll
  for (u32 k = 0; k < BATCH; k++) {
    u32 first = r + k * step;
    v[k][0] = first + lane / 8 < end ? words[(u64)first * ROW_STRIDE] : 0;
  }
#else
#pragma unroll
  for (u32 k = 0; k < BATCH; k++)
    if (r + k * step < end) {
#pragma unroll
      for (u32 j = 0; j < HELD; j++) {
        u32 word = j * 32 + lane, stride;
        v[k][j] = word < ROW_USED ? *field_word(rows, word, r + k * step, &stride) : 0;
      }
    }
#endif
}

// Why row r, of which v holds the first chunks, or this lane's row of a unit, is refused: 0 not, 1 reward, 2 state.
__device__ __forceinline__ u32 refusal(const Rows& rows, u32 r, const u32 v[HELD]) {
  u32 lane = threadIdx.x & 31;
#if COMPACT
  bool bad = !is_finite(__uint_as_float(v[0]));
  u32 reward = __ballot_sync(ALL_LANES, bad && is_reward_word(lane & 7)), state = __ballot_sync(ALL_LANES, bad && is_state_word(lane & 7));
  u32 own = 0xffu << (lane & 24);
  return reward & own ? 1 : state & own ? 2 : 0;
#else
  bool bad_state = false, bad_reward = false;
#pragma unroll
  for (u32 j = 0; j < ROW_CHUNKS; j++) {
    u32 word = j * 32 + lane, stride;
    if (word < ROW_USED) {
      u32 value = j < HELD ? v[j < HELD ? j : 0] : *field_word(rows, word, r, &stride);
      bool bad = !is_finite(__uint_as_float(value));
      bad_state |= bad && is_state_word(word);
      bad_reward |= bad && is_reward_word(word);
    }
  }
  return __any_sync(ALL_LANES, bad_reward) ? 1 : __any_sync(ALL_LANES, bad_state) ? 2 : 0;
#endif
}

// Slot of the rank-th accepted row. cursor is below the capacity, at most 2^31, and rank below 2^17.
__device__ __forceinline__ u32 slot_of(u32 cursor, u32 rank, u32 capacity) {
  u32 slot = cursor + rank;
  return slot < capacity ? slot : slot % capacity;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(640)
    insert_rows(Tree tree, Ring ring, Rows rows, Control* c, u32 row_count, u32 rows_a_block, Changes changes,
                const u32* counted, u32 first) {
  __shared__ u32 accepted[32], accepted_before[32], refused[3], shared_refused, shared_before, shared_total;
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, leaf_warps = blockDim.x > 288 ? 4 : 1;
  u32 movers = (blockDim.x >> 5) - leaf_warps;
  bool mover = warp < movers;
  if (threadIdx.x < 32) accepted[threadIdx.x] = 0;
  if (threadIdx.x < 3) refused[threadIdx.x] = 0;
  dependency_wait();
  dependents_may_start();
  if (counted) {  // a launch for as many rows as there may be; the same blocks share those there are
    u32 all = *counted;
    row_count = min(row_count, all - min(all, first));
    rows_a_block = max((row_count + gridDim.x - 1) / gridDim.x, 8u);
    if (row_count == 0) return;
  }
  u32 begin = blockIdx.x * rows_a_block, count = min(rows_a_block, row_count - min(begin, row_count));
  uint4 state = *(const uint4*)&c->epoch;
  u32 epoch = state.x, maximum = state.y, cursor = state.z, len = state.w, capacity = tree.capacity;
  u32 inserts = c->inserts, tag = inserts | 0x80000000u, v[BATCH][HELD];
  u32 own_leaf = (warp - movers) * 32 + lane;  // of a leaf warp: the first row whose leaf it writes
  u64 guess = 0;
  u32 step = movers * UNIT, start = warp * UNIT, in_unit = COMPACT ? lane / 8 : 0;
  bool tells = COMPACT ? (lane & 7) == 0 : lane == 0;  // of each row one lane
  if (mover) load_rows(rows, begin + start, step, begin + count, v);
  else if (own_leaf < count) guess = tree.levels[0][place(slot_of(cursor, begin + own_leaf, capacity))];
  u32 sorted_epoch = changes.capacity ? c->sorted_epoch : 0;
  __syncthreads();
  bool held = count <= step * BATCH;
  if (mover)
    for (u32 base = start; base < count; base += step * BATCH) {
      if (base != start) load_rows(rows, begin + base, step, begin + count, v);
#pragma unroll
      for (u32 k = 0; k < BATCH; k++) {
        if (base + k * step >= count) break;
        u32 r = base + k * step + in_unit;
        u32 why = refusal(rows, begin + r, v[k]);
        if (tells && r < count) {
          if (why == 0) atomicOr(&accepted[r >> 5], 1u << (r & 31));
          else atomicAdd(&refused[why], 1u);
        }
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
    for (u32 base = start; base < count; base += step * BATCH) {
      if (!held) load_rows(rows, begin + base, step, begin + count, v);
#pragma unroll
      for (u32 k = 0; k < BATCH; k++) {
        u32 r = base + k * step + in_unit;
        if (r >= count) break;
        bool have;
        u32 rank = rank_of(r, &have);
        if (!have) continue;
        u32* row = ring.words + row_offset(slot_of(cursor, rank, capacity));
#if COMPACT
        row[lane & 7] = v[k][0];
#else
#pragma unroll
        for (u32 j = 0; j < ROW_CHUNKS; j++) {
          u32 word = j * 32 + lane, stride;
          if (word < ROW_STRIDE)
            row[word] = j < HELD ? v[k][j < HELD ? j : 0] : word < ROW_USED ? *field_word(rows, word, begin + r, &stride) : 0;
        }
#endif
      }
    }
    return;
  }
  // A thread a row, neighbours in neighbouring slots, so that the warp adds to its ancestors once.
  for (u32 r = own_leaf; r - lane < count; r += 32 * leaf_warps) {
    bool have = false;
    u32 slot = r < count ? slot_of(cursor, rank_of(r, &have), capacity) : 0;
    u64 old = 0, change = 0;
    if (have) {
      u64* leaf = tree.levels[0] + place(slot);
      old = r != own_leaf || gaps ? *leaf : guess;
      *leaf = (u64)(epoch - 1) << 32 | maximum;
      change = mass(maximum, tree.scale) - mass((u32)old, tree.scale);
    }
    add_to_ancestors(tree, slot, change, have);
    if (changes.capacity) log_change(changes, c, have && (u32)(old >> 32) < sorted_epoch, (u32)old, slot);
  }
}
