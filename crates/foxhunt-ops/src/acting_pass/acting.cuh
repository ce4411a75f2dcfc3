// A network of hidden layers of one width for few rows, on the tensor cores of Hopper warpgroups: some rows are the work of a cluster.
//
// A cluster of BLOCKS blocks has ROWS rows. Of each hidden layer a block makes SHARE units, and hands them to all blocks of the cluster; of
// the head it has the part of each sum that comes from its own units of the last layer, and gives each block the parts of the rows whose outputs that one
// finishes. Weights are the left operand of a product, of 64 lines, and rows the right one, so that there may be few.
// Elements are sums of a tensor core over k, the bias added last: of a middle layer from the block's own units on and around, with tf32x3 in two warpgroups
// that have every other 16 values of a whole chunk of k. Those of the head are sums of the blocks' parts in order. A row's do not depend on other rows.
//
//   WIDTHS          values of a row at the beginning and behind each product; hidden layers have SHARE units for each block
//   BLOCKS          of a cluster
//   ROWS            of a cluster, eights of them; blocks have as many each
//   KEEPS_WEIGHTS   whether shared memory has room for all weights at once
// Needs common.cuh and HeadArgs.
#pragma once
#include "warpgroup.cuh"
#include "cluster.cuh"

// ------------------------------------------------------------------------------------------------ shape

__host__ __device__ constexpr int width(int i) {
  constexpr int all[] = {WIDTHS};
  return i < 0 ? sizeof(all) / sizeof(int) : all[i];
}
constexpr int PRODUCTS = width(-1) - 1, LAYERS = PRODUCTS - 1, IN = width(0), UNITS = width(1), HEAD_WIDTH = width(PRODUCTS), SHARE = 64, OWN = ROWS / BLOCKS;
__host__ __device__ constexpr bool all_as_wide(int l) { return l == PRODUCTS || (width(l) == SHARE * BLOCKS && all_as_wide(l + 1)); }
static_assert(LAYERS > 0 && all_as_wide(1) && HEAD_WIDTH <= SHARE && ROWS % 8 == 0 && OWN * BLOCKS == ROWS && OWN % 2 == 0, "shape");
__host__ __device__ constexpr int most(int x, int y) { return x > y ? x : y; }

// Warpgroups that multiply: with tf32x3 both, as one uses the time in which the other waits for what is summed apart. A block may have more threads than ALL, who
// call nothing here.
constexpr int GROUPS = PARTS, ALL = 2 * GROUP, WARPS = ALL / 32;

// Of product p: lines of its weights in an image and in a block, values of k it looks at in a block, and slabs of them. The last has the block's own units
// alone, and more lines in a product than there are, of which nothing is used.
__host__ __device__ constexpr int image_lines(int p) { return rounded_up(width(p + 1), 16); }
__host__ __device__ constexpr int lines(int p) { return p == LAYERS ? image_lines(p) : SHARE; }
__host__ __device__ constexpr int depth(int p) { return p == LAYERS ? SHARE : rounded_up(width(p), PARTS * STEP); }
__host__ __device__ constexpr int slabs_of(int k) { return (k + RIGHT_LINE - 1) / RIGHT_LINE; }
__host__ __device__ constexpr int weight_bytes(int p) { return slabs_of(depth(p)) * lines(p) * 128; }
// Where product p begins in an image.
__host__ __device__ constexpr u32 image_of(int p) { return p == 0 ? 0 : image_of(p - 1) + slabs_of(width(p - 1)) * image_lines(p - 1) * 128; }

// Shared memory, in bytes. First what products read of rows, slabs of ROWS lines: states, then each layer's units, a chunk from each block, then the last
// layer's own. Behind states they lie as they come, and behind these parts of the head's sums on their way out and those that came: where units of a middle
// layer have been used by then. Then low parts, with tf32x3, and weights; the head's take the place of the first layer's, unless all are kept.
constexpr int SLAB = ROWS * 128, PART = rounded_up(HEAD_WIDTH, 8) + 4, PART_BYTES = OWN * PART * 4, ALL_PARTS = BLOCKS * PART_BYTES;
__host__ __device__ constexpr int row_slabs(int k) { return (k + LINE - 1) / LINE; }
constexpr int UNIT_BYTES = row_slabs(UNITS) * SLAB, STATE_BYTES = row_slabs(IN) * SLAB, CHUNK = SHARE / LINE * SLAB;
constexpr int OUTGOING = rounded_up(most(CHUNK, STATE_BYTES + ROWS * IN * 4), 16), INCOMING = OUTGOING + ALL_PARTS;
constexpr int ROW_BYTES = rounded_up(most(most(UNIT_BYTES, STATE_BYTES + ROWS * IN * 4), INCOMING + ALL_PARTS), 1024);
constexpr int FETCHED = STATE_BYTES, LOW = ROW_BYTES, LOW_BYTES = PARTS == 1 ? 0 : 2 * CHUNK;
constexpr int ENDS = LOW + LOW_BYTES, MIDDLE_BYTES = weight_bytes(1);
constexpr int HEAD_BYTES = rounded_up(weight_bytes(LAYERS) + (SHARE - lines(LAYERS)) * 128, 1024);
constexpr int FIRST_BYTES = KEEPS_WEIGHTS ? rounded_up(weight_bytes(0), 1024) : most(rounded_up(weight_bytes(0), 1024), HEAD_BYTES);
constexpr int BEHIND_LAYERS = ENDS + FIRST_BYTES + (LAYERS - 1) * MIDDLE_BYTES;
__host__ __device__ constexpr int weights_of(int p) {
  return p == LAYERS ? KEEPS_WEIGHTS ? BEHIND_LAYERS : ENDS : p == 0 ? ENDS : ENDS + FIRST_BYTES + (p - 1) * MIDDLE_BYTES;
}
constexpr int BIASES = BEHIND_LAYERS + (KEEPS_WEIGHTS ? HEAD_BYTES : 0);
constexpr int BARRIERS = BIASES + rounded_up((LAYERS * SHARE + HEAD_WIDTH) * 4, 16), ALL_BARRIERS = PRODUCTS + (LAYERS - 1) * BLOCKS + 2, SHARED = BARRIERS + ALL_BARRIERS * 8;

// Barriers: weights of each product, chunks of units from each block, the head's parts, states.
__device__ __forceinline__ u32 weights_are_there(u32 base, int p) { return base + BARRIERS + p * 8; }
__device__ __forceinline__ u32 units_are_there(u32 base, int p, u32 block) { return base + BARRIERS + (PRODUCTS + (p - 1) * BLOCKS + block) * 8; }
__device__ __forceinline__ u32 parts_are_there(u32 base) { return base + BARRIERS + (ALL_BARRIERS - 2) * 8; }
__device__ __forceinline__ u32 states_are_there(u32 base) { return base + BARRIERS + (ALL_BARRIERS - 1) * 8; }

extern __shared__ __align__(1024) unsigned char shared[];

// The number of this thread, about which the compiler knows nothing: what it worked out from it once and kept from one pass to the next would take the
// registers that products need.
__device__ __forceinline__ u32 this_thread() {
  u32 t = threadIdx.x;
  asm volatile("" : "+r"(t));
  return t;
}

// A block at work: the network's weight image, where its shared memory begins, which of the cluster it is, the warpgroup of this thread, and the parity of
// the phases that barriers of a pass are in.
struct Here {
  const unsigned char* image;
  u32 base, rank, group, parity;
};

// One thread, before the first pass: all barriers, none of which expects anything yet.
__device__ __forceinline__ void make_barriers(u32 base) {
  for (u32 i = 0; i < ALL_BARRIERS; i++) make_barrier(base + BARRIERS + 8 * i, 1);
}
// One thread, before a pass or behind what it waited for in the one before: what comes from other blocks.
__device__ __forceinline__ void expect_blocks(u32 base, u32 rank) {
  for (u32 l = 1; l < LAYERS; l++)
    for (u32 i = 1; i < BLOCKS; i++) expect_bytes(units_are_there(base, l, (rank + i) % BLOCKS), CHUNK);
  expect_bytes(parts_are_there(base), (BLOCKS - 1) * PART_BYTES);
}

// ------------------------------------------------------------------------------------------------ weights

// A block's weights of product p, their pieces shared out among its warps.
template <int P>
__device__ __forceinline__ void bring_weights(const Here& at) {
  // Of a layer a block has some lines of each part of each slab, of the head all of some slabs.
  constexpr int BYTES_OF_ALL = weight_bytes(P), PIECES = P == LAYERS ? 1 : slabs_of(depth(P)) * PARTS, PIECE = BYTES_OF_ALL / PIECES;
  const unsigned char* from = at.image + image_of(P) + at.rank * PIECE;
  if (threadIdx.x == 0) expect_bytes(weights_are_there(at.base, P), BYTES_OF_ALL);
  if (threadIdx.x % 32 == 0)
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < PIECES; i += WARPS)
      bring(at.base + weights_of(P) + i * PIECE, from + i * (image_lines(P) * 128 / PARTS), PIECE, weights_are_there(at.base, P));
}
// Those of all layers, and of the head where there is room for it.
template <int P>
__device__ __forceinline__ void bring_layers(const Here& at) {
  bring_weights<P>(at);
  if constexpr (P + 1 < PRODUCTS - !KEEPS_WEIGHTS) bring_layers<P + 1>(at);
}

// ------------------------------------------------------------------------------------------------ products

// Where step `step` of an operand begins, of lines of LINE_BYTES in slabs EACH bytes apart.
template <int LINE_BYTES, int EACH>
__device__ __forceinline__ u64 at_step(u64 operand, int step) {
  return operand + (step / (LINE_BYTES / 32) * EACH + step % (LINE_BYTES / 32) * 32) / 16;
}

__device__ __forceinline__ void all_meet() { asm volatile("bar.sync 1, %0;" ::"n"(ALL) : "memory"); }
// All threads: what they stored may be read by products.
__device__ __forceinline__ void rows_are_stored() {
  shared_memory_is_ready();
  all_meet();
}

// Values of k come in chunks of SHARE: those of a middle layer one from each block, as they arrive and this block's own first.
template <int P>
struct Chunks {
  static constexpr int COUNT = (depth(P) + SHARE - 1) / SHARE, STEPS = SHARE / STEP, OF_LAST = (depth(P) - (COUNT - 1) * SHARE) / STEP;
  static constexpr bool ARRIVE = P > 0 && P < LAYERS;
  static __device__ __forceinline__ u32 number(u32 turn, u32 rank) { return ARRIVE ? (rank + turn) % BLOCKS : turn; }
  static __device__ __forceinline__ bool is_whole(u32 turn) { return OF_LAST == STEPS || turn + 1 < COUNT; }
  static __device__ __forceinline__ void wait(const Here& at, u32 turn) {
    if (ARRIVE && turn > 0) wait_for_blocks(units_are_there(at.base, P, number(turn, at.rank)), at.parity);
  }
};

#if PRECISION == 1
// What tf32 leaves of a value; the tensor core cuts off the high part itself.
__device__ __forceinline__ float low_part(float x) { return __uint_as_float(to_tf32(x - __uint_as_float(__float_as_uint(x) & 0xffffe000))); }
// The same of a chunk of rows.
__device__ __forceinline__ void split_chunk(u32 from, u32 to) {
#pragma unroll 2
  for (u32 at = threadIdx.x * 16; at < CHUNK; at += ALL * 16) {
    float v[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from + at));
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = low_part(v[i]);
    store_sixteen(to + at, v);
  }
}
#endif

// Where a chunk's weights and rows lie, and low parts of rows, as operands.
template <int P>
struct Operands {
  static constexpr int WEIGHT_LINE = 128 / PARTS, WEIGHT_SLAB = lines(P) * 128;
  u64 weights, rows, low;
  __device__ __forceinline__ Operands(u32 base, u32 number, u32 low_rows)
      : weights(operand<WEIGHT_LINE>(base + weights_of(P) + number * (SHARE / RIGHT_LINE * WEIGHT_SLAB))), rows(operand(base + number * CHUNK)), low(operand(low_rows)) {}
  __device__ __forceinline__ u64 weights_at(int step) const { return at_step<WEIGHT_LINE, WEIGHT_SLAB>(weights, step); }
  __device__ __forceinline__ u64 low_weights_at(int step) const { return weights_at(step) + lines(P) * 64 / 16; }
  __device__ __forceinline__ u64 rows_at(int step) const { return at_step<128, SLAB>(rows, step); }
  __device__ __forceinline__ u64 low_rows_at(int step) const { return at_step<128, SLAB>(low, step); }
};

// acc = what this warpgroup has of product p for all rows; nothing in one that does not multiply. All threads come here. Between the first of a
// chunk's products and the wait for the last of them is nothing but what is certain when this is compiled: otherwise the compiler lets them go one
// after another.
#if PRECISION == 1
// N times 16 values of k, the first of them number `first`, the others every EVERY-th behind it.
template <int P, int EVERY, int N>
__device__ __forceinline__ void begin_chunk(float (&part)[N][ROWS / 2], float (&rest)[ROWS / 2], const Operands<P>& of, int first) {
  pin(rest);
  begin_products();
#pragma unroll
  for (int i = 0; i < N; i++) {
    int step = 2 * (first + i * EVERY);
    Product<ROWS>::first(part[i], of.weights_at(step), of.rows_at(step));
    Product<ROWS>::run(part[i], of.weights_at(step + 1), of.rows_at(step + 1));
  }
#pragma unroll
  for (int i = 0; i < 2 * N; i++) {
    int step = 2 * (first + i / 2 * EVERY) + i % 2;
    Product<ROWS>::run(rest, of.low_weights_at(step), of.rows_at(step));
    Product<ROWS>::run(rest, of.weights_at(step), of.low_rows_at(step));
  }
  end_of_products();
}
template <int N>
__device__ __forceinline__ void end_chunk(float (&acc)[ROWS / 2], float (&part)[N][ROWS / 2], float (&rest)[ROWS / 2]) {
  wait_for_products<0>();
  pin(rest);
#pragma unroll
  for (int i = 0; i < N; i++) {
    pin(part[i]);
#pragma unroll
    for (int n = 0; n < ROWS / 2; n++) acc[n] += part[i][n];
  }
}

template <int P>
__device__ __forceinline__ void product(const Here& at, float (&acc)[ROWS / 2]) {
  using Of = Chunks<P>;
  u32 base = at.base, rank = at.rank;
  float rest[ROWS / 2];
#pragma unroll
  for (int i = 0; i < ROWS / 2; i++) acc[i] = 0.f, rest[i] = 0.f;
  // Low parts of a block's own units are stored beside them.
  if (P == 0) {
    split_chunk(base, base + LOW);
    rows_are_stored();
  }
#pragma unroll 1
  for (u32 turn = 0; turn < Of::COUNT; turn++) {
    Operands<P> of(base, Of::number(turn, rank), base + LOW + turn % 2 * CHUNK);
    if (Of::is_whole(turn)) {
      float part[Of::STEPS / 2 / GROUPS][ROWS / 2];
      begin_chunk<P, GROUPS>(part, rest, of, at.group);
      // Meanwhile low parts of the next chunk are made.
      if (turn + 1 < Of::COUNT) {
        Of::wait(at, turn + 1);
        split_chunk(base + Of::number(turn + 1, rank) * CHUNK, base + LOW + (turn + 1) % 2 * CHUNK);
      }
      end_chunk(acc, part, rest);
    } else if (at.group == 0) {
      float part[Of::OF_LAST / 2][ROWS / 2];
      begin_chunk<P, 1>(part, rest, of, 0);
      end_chunk(acc, part, rest);
    }
    rows_are_stored();
  }
#pragma unroll
  for (int i = 0; i < ROWS / 2; i++) acc[i] += rest[i];
}
#else
template <int P>
__device__ __forceinline__ void product(const Here& at, float (&acc)[ROWS / 2]) {
  using Of = Chunks<P>;
  u32 base = at.base, rank = at.rank;
  // In all threads, or else those of a pass before this one would be kept for a group that does not multiply.
#pragma unroll
  for (int i = 0; i < ROWS / 2; i++) acc[i] = 0.f;
  if (at.group > 0) return;
  pin(acc);
#pragma unroll(Of::OF_LAST == Of::STEPS ? 1 : Of::COUNT)
  for (u32 turn = 0; turn < Of::COUNT; turn++) {
    Operands<P> of(base, Of::number(turn, rank), base);
    Of::wait(at, turn);
    begin_products();
#pragma unroll
    for (int step = 0; step < Of::STEPS; step++)
      if (Of::is_whole(turn) || step < Of::OF_LAST) Product<ROWS>::run(acc, of.weights_at(step), of.rows_at(step));
    end_of_products();
  }
  wait_for_products<0>();
  pin(acc);
}
#endif

// ------------------------------------------------------------------------------------------------ work of a block

// All threads: the biases of the block's units, and of the head. They may be read behind the next barrier of the block.
__device__ __forceinline__ void load_biases(const float* parameters, const u32* bias, u32 rank) {
  float* biases = (float*)(shared + BIASES);
  for (u32 i = threadIdx.x; i < LAYERS * SHARE + HEAD_WIDTH; i += ALL) {
    u32 l = i / SHARE, at = i % SHARE;
    biases[i] = parameters[bias[l] + (l < LAYERS ? rank * SHARE + at : at)];
  }
}

// Layer l and all behind it, up to the parts of the head's sums on their way; rows are stored. All blocks of the cluster meet once a hidden layer.
template <int L>
__device__ __forceinline__ void layer(const Here& at) {
  u32 t = this_thread(), base = at.base, rank = at.rank, group = at.group, lane = t % 32, line = t % GROUP / 32 * 16 + lane / 4;
  float acc[ROWS / 2];
  // Weights that are kept come once.
  wait_for(weights_are_there(base, L), !KEEPS_WEIGHTS && (L == 0 || L == LAYERS) ? at.parity : 0);
  product<L>(at, acc);
  // Behind the wait all blocks have done with what lies where rows go.
  if (L < LAYERS) cluster_arrive();
  if (GROUPS > 1) {
    float* scratch = (float*)(shared + LOW + CHUNK);
    // Each group finishes half of the lines.
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++)
      if (i / 2 % 2 != group) scratch[(i / 4 * 2 + i % 2) * ALL + t] = acc[i];
    all_meet();
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) {
      float other = scratch[i * ALL + (t ^ GROUP)], mine = group ? acc[i / 2 * 4 + 2 + i % 2] : acc[i / 2 * 4 + i % 2];
      acc[i] = mine + other;
    }
    line += 8 * group;
  }
  constexpr int HALVES = GROUPS > 1 ? 1 : 2;
  if constexpr (L == LAYERS) {
    // Parts of the head's sums, of which each block gets those of its rows.
    float* out = (float*)(shared + OUTGOING);
    if (group < GROUPS)
#pragma unroll
      for (int i = 0; i < ROWS / 4 * HALVES; i++) {
        u32 row = 8 * (i / 2 / HALVES) + 2 * (lane % 4) + i % 2, o = line + i / 2 % HALVES * 8;
        if (o < HEAD_WIDTH) out[row * PART + o] = acc[i];
      }
    rows_are_stored();
    if (t % 32 == 0 && t / 32 + 1 < BLOCKS) {
      u32 other = (rank + t / 32 + 1) % BLOCKS;
      hand(base + INCOMING + rank * PART_BYTES, base + OUTGOING + other * PART_BYTES, PART_BYTES, parts_are_there(base), other);
    }
  } else {
    cluster_wait();
    if (L == 0 && !KEEPS_WEIGHTS) bring_weights<LAYERS>(at);
    u32 chunk = base + (L + 1 == LAYERS ? 0 : rank * CHUNK);
    const float* bias = (const float*)(shared + BIASES) + L * SHARE;
    if (group < GROUPS) {
      // Two rows side by side, of one line or of two eight apart; eights of rows are SLAB / ROWS * 8 bytes apart.
      u32 to[2 * HALVES];
      float b[HALVES];
#pragma unroll
      for (int h = 0; h < HALVES; h++) {
        u32 n = line + 8 * h;
        b[h] = bias[n];
#pragma unroll
        for (int q = 0; q < 2; q++) to[2 * h + q] = chunk + n / LINE * SLAB + place(2 * (lane % 4) + q, n % LINE);
      }
#pragma unroll
      for (int i = 0; i < ROWS / 4 * HALVES; i++) acc[i] = above_0(acc[i] + b[i / 2 % HALVES]);
#pragma unroll
      for (int i = 0; i < ROWS / 4 * HALVES; i++) store_kept(to[i % (2 * HALVES)] + i / (2 * HALVES) * 1024, acc[i]);
#if PRECISION == 1
#pragma unroll
      for (int i = 0; i < ROWS / 4 * HALVES; i++) store_kept(to[i % (2 * HALVES)] + base + LOW - chunk + i / (2 * HALVES) * 1024, low_part(acc[i]));
#endif
    }
    rows_are_stored();
    // One after the other, in the order in which they are used: each block gets from one at a time.
    if (L + 1 < LAYERS && t == 0)
#pragma unroll 1
      for (u32 i = 1; i < BLOCKS; i++) hand(chunk, chunk, CHUNK, units_are_there(base, L + 1, rank), (rank + BLOCKS - i) % BLOCKS);
    layer<L + 1>(at);
  }
}

// The rows that are this block's: head outputs are the sums of all blocks' parts. LANES lanes have a row, each OUTS outputs. `out` is told row, number and
// value of each Q-value, or of each head output unless there are any.
template <typename Out>
__device__ __forceinline__ void finish_rows(const HeadArgs& head, bool has_q, u32 rank, Out&& out) {
  constexpr u32 LANES = 16, OUTS = (HEAD_WIDTH + LANES - 1) / LANES;
  const float *parts = (const float*)(shared + INCOMING), *own_parts = (const float*)(shared + OUTGOING), *bias = (const float*)(shared + BIASES) + LAYERS * SHARE;
  u32 t = this_thread(), lane = t % LANES;
#pragma unroll 1
  for (u32 own = t / LANES; own < OWN; own += ALL / LANES) {
    float v[OUTS];
#pragma unroll
    for (u32 i = 0; i < OUTS; i++) {
      u32 o = min(lane + LANES * i, (u32)HEAD_WIDTH - 1);
      v[i] = bias[o];
#pragma unroll
      for (u32 block = 0; block < BLOCKS; block++) v[i] += (block == rank ? own_parts : parts)[(block * OWN + own) * PART + o];
    }
    if (!has_q) {
#pragma unroll
      for (u32 i = 0; i < OUTS; i++)
        if (lane + LANES * i < HEAD_WIDTH) out(own, lane + LANES * i, v[i]);
      continue;
    }
    // Output 0 is the value, those behind it the branches' advantages.
    float value = __shfl_sync(ALL_LANES, v[0], 0, LANES), mean[OUTS] = {};
#pragma unroll 1
    for (u32 d = 0; d < head.n_branches; d++) {
      float sum = 0.f;
#pragma unroll
      for (u32 i = 0; i < OUTS; i++) sum += lane + LANES * i - 1 - head.start[d] < head.len[d] ? v[i] : 0.f;
#pragma unroll
      for (int k = LANES / 2; k; k >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, k);
      sum /= (float)head.len[d];
#pragma unroll
      for (u32 i = 0; i < OUTS; i++) mean[i] = lane + LANES * i - 1 - head.start[d] < head.len[d] ? sum : mean[i];
    }
#pragma unroll
    for (u32 i = 0; i < OUTS; i++) {
      u32 o = lane + LANES * i;
      if (o > 0 && o < HEAD_WIDTH) out(own, o - 1, value + (v[i] - mean[i]));
    }
  }
}
