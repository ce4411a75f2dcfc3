// The sum tree in device memory. Twin of the numbers: foxhunt-ops/src/priority_tree (mod.rs, sum_tree.rs).
//
// Leaf: one u64, {epoch : 32 | priority as f32 : 32}. The epoch is the number of the update that wrote it; insert
// writes one less, so that the running update always beats it. Mass of a leaf: an integer (see `mass`). Above the
// leaves stand u64 sums with fan-out 64, up to the first level of at most 256 nodes; LEVELS counts all, leaves
// included. The total is the sum of the top. Order is by slot; only addresses are permuted (`place`), so that the
// eight lanes that share a node read whole 128-byte lines.
#pragma once

// Address of node i in its level. Lane l of eight owns children 8l .. 8l + 7 and reads pair k at 16 k + 2 l.
__device__ __forceinline__ u32 place(u32 i) {
  return (i & ~63u) | ((i >> 1) & 3u) << 4 | ((i >> 3) & 7u) << 1 | (i & 1u);
}

__device__ __forceinline__ u64 mass(u32 priority_bits, float scale) {
  float p = __uint_as_float(priority_bits);
  return p > 0.f ? max(1ull, __float2ull_rn(__fmul_rn(p, scale))) : 0ull;
}

// 16 bytes in one access, kept whole: a compiler that sees only half of each word used would make two of it.
__device__ __forceinline__ void load_pair(const u64* p, u64& a, u64& b) {
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
}
__device__ __forceinline__ void load_pair_if(u32 have, const u64* p, u64& a, u64& b) {
  asm volatile(
      "{\n.reg .pred have;\nsetp.ne.u32 have, %3, 0;\nmov.u64 %0, 0;\nmov.u64 %1, 0;\n@have ld.global.v2.u64 {%0, %1}, [%2];\n}"
      : "=&l"(a), "=&l"(b)
      : "l"(p), "r"(have)
      : "memory");
}

// v[k] = v[0] + .. + v[k], in three dependent additions.
__device__ __forceinline__ void running_sums(u64 v[8]) {
#pragma unroll
  for (int half = 1; half < 8; half *= 2)
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (k & half) v[k] += v[(k & ~(half * 2 - 1)) + half - 1];
}

// Inclusive scan over `width` neighbouring lanes.
template <int WIDTH>
__device__ __forceinline__ u64 lane_scan(u64 v, int lane_in_group) {
#pragma unroll
  for (int k = 1; k < WIDTH; k <<= 1) {
    u64 left = __shfl_up_sync(ALL_LANES, v, k, WIDTH);
    if (lane_in_group >= k) v += left;
  }
  return v;
}
__device__ __forceinline__ u64 warp_sum_u64(u64 v) {
#pragma unroll
  for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(ALL_LANES, v, k);
  return v;
}

// Which of eight running sums is the first above r? `before` is the sum ahead of it, `at` its own mass.
__device__ __forceinline__ u32 pick8(const u64 v[8], u64 r, u64* before, u64* at) {
  bool upper = v[3] <= r;
  u64 b = upper ? v[3] : 0ull, s0 = upper ? v[4] : v[0], s1 = upper ? v[5] : v[1], s2 = upper ? v[6] : v[2], s3 = upper ? v[7] : v[3];
  bool high = s1 <= r;
  b = high ? s1 : b;
  u64 t0 = high ? s2 : s0, t1 = high ? s3 : s1;
  bool odd = t0 <= r;
  *before = odd ? t0 : b;
  *at = (odd ? t1 : t0) - *before;
  return 4 * upper + 2 * high + odd;
}

// The drawn leaf of each group of eight lanes, for target t < total. RAW: leaves are masses (the rank tree).
// `tops`: the running sums of the eight top nodes of this lane; `scan`: inclusive scan of tops[7] over the warp.
template <bool RAW>
__device__ __forceinline__ u32 descend(const Tree& tree, u64 t, const u64 tops[8], u64 scan, u64* leaf_mass) {
  int lane = threadIdx.x & 31, sub = lane & 7, group = lane >> 3;
  // Four targets, one vote each, find the lane whose eight top nodes hold the target.
  int owner = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    u64 target = __shfl_sync(ALL_LANES, t, k * 8);
    int passed = __popc(__ballot_sync(ALL_LANES, scan <= target));
    if (group == k) owner = min(passed, 31);
  }
  t -= __shfl_sync(ALL_LANES, scan - tops[7], owner);
  // Those eight nodes, one a lane, are read again: they are in L1.
  u64 own = tree.levels[LEVELS - 1][place(owner * 8 + sub)], sum = lane_scan<8>(own, sub);
  int hit = min(__popc(__ballot_sync(ALL_LANES, sum <= t) >> (group * 8) & 0xff), 7);
  t -= __shfl_sync(ALL_LANES, sum - own, hit, 8);
  u32 node = owner * 8 + hit;
  u64 found = 0;
#pragma unroll
  for (int level = LEVELS - 2; level >= 0; level--) {
    const u64* children = tree.levels[level] + (u64)node * 64 + sub * 2;
    u64 v[8];
#pragma unroll
    for (int k = 0; k < 4; k++) load_pair(children + k * 16, v[2 * k], v[2 * k + 1]);
    if (level == 0 && !RAW) {
#pragma unroll
      for (int k = 0; k < 8; k++) v[k] = mass((u32)v[k], tree.scale);
    }
    running_sums(v);
    u64 upto = lane_scan<8>(v[7], sub);
    hit = min(__popc(__ballot_sync(ALL_LANES, upto <= t) >> (group * 8) & 0xff), 7);
    u64 rest = t - (upto - v[7]), before, at;  // meaningful in the lane that was hit
    u32 child = pick8(v, rest, &before, &at);
    node = node * 64 + hit * 8 + __shfl_sync(ALL_LANES, child, hit, 8);
    t = __shfl_sync(ALL_LANES, rest - before, hit, 8);
    if (level == 0) found = __shfl_sync(ALL_LANES, at, hit, 8);
  }
  *leaf_mass = found;
  return node;
}

// The sum of the first n leaves of a tree of raw masses, in every lane of the warp. n is below the
// capacity. It runs only while a memory fills.
__device__ __forceinline__ u64 prefix_of(const Tree& tree, u32 n) {
  int lane = threadIdx.x & 31;
  u64 sum = 0;
#pragma unroll
  for (int level = LEVELS - 1; level >= 0; level--) {
    u32 end = n >> (6 * level), start = level == LEVELS - 1 ? 0 : end & ~63u;
    for (u32 i = start + lane; i < end; i += 32) sum += tree.levels[level][place(i)];
  }
  return warp_sum_u64(sum);
}

// Adds a change of a leaf's mass to every ancestor. Sums of integers do not depend on the order. Where all of the
// warp falls under one node, one lane adds the sum. All lanes must call.
__device__ __forceinline__ void add_to_ancestors(const Tree& tree, u32 slot, u64 change, bool have) {
  int lane = threadIdx.x & 31;
  u32 voters = __ballot_sync(ALL_LANES, have);
  if (!voters) return;
  if (!have) change = 0;
  u32 reference = __shfl_sync(ALL_LANES, slot, __ffs(voters) - 1);
  bool together = false;
#pragma unroll
  for (int level = 1; level < LEVELS; level++) {
    if (!together && __all_sync(ALL_LANES, !have || slot >> (6 * level) == reference >> (6 * level))) {
      together = true;
      change = warp_sum_u64(change);
    }
    if (together) {
      if (lane == 0 && change) atomicAdd(tree.levels[level] + place(reference >> (6 * level)), change);
    } else if (change) {
      atomicAdd(tree.levels[level] + place(slot >> (6 * level)), change);
    }
  }
}

// Rank mode: logs each leaf that changed for the first time since the order was last right, with the key it has
// in that order. All lanes must call.
__device__ __forceinline__ u64 sort_key(u32 priority_bits, u32 slot) { return (u64)~priority_bits << 32 | slot; }
__device__ __forceinline__ void log_change(const Changes& changes, Control* c, bool first, u32 old_bits, u32 slot) {
  u32 voters = __ballot_sync(ALL_LANES, first), lane = threadIdx.x & 31, at = 0;
  if (!voters) return;
  if (lane == 0) at = atomicAdd(&c->changes, (u32)__popc(voters));
  at = __shfl_sync(ALL_LANES, at, 0) + __popc(voters & ((1u << lane) - 1u));
  if (first && at < changes.capacity) changes.old_keys[at] = sort_key(old_bits, slot);
}
