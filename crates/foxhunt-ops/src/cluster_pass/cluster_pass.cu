// The middle of a small update in one launch: all forward passes, the loss, and the gradient of every hidden unit.
//
// In: the batch; both networks' parameters. Out: of online(s), f32 hidden units [rows, width] and their gradients, 0 where a unit was not
// above 0; what td_loss.cu gives. What is not finite in states, rewards and ends is counted.
// A cluster of BLOCKS blocks has ROWS rows from begin to end. A block makes its share of each layer, with the share's weights of both networks in
// shared memory, which they reach before the kernel ahead is done, and hands what it made to all blocks of the cluster; the loss of a row is one
// block's. A warp has 8 lanes over units and 4 over rows; elements are the chains of mlp.cu.
// Moved: a block's share of both networks, and of the online one's middle layer and head also what leads to its units, then rows * (2 states + 2 * (hidden units) + head + 12) words.
//
//   STATE, FIRST, SECOND, HEAD   values of a state, units of both hidden layers, outputs
#include "common.cuh"
#include "shared_structs.cuh"
#include "copies.cuh"
#include "cluster.cuh"
#include "td_loss.cuh"

constexpr int BLOCKS = 8, WARPS = 8, THREADS = 32 * WARPS, NETS = 2, JOBS = 3;
constexpr bool TWICE = DOUBLE_DQN != 0;
constexpr LossShape<BRANCHES == 1 ? HEAD - DUELING : 0> SHAPE = {BRANCHES, DUELING != 0, TWICE, false};

// A block's share of each layer, and of it a lane's.
constexpr int UNITS1 = FIRST / BLOCKS, UNITS2 = SECOND / BLOCKS, OUTS = (HEAD + BLOCKS - 1) / BLOCKS, U1 = UNITS1 / 8, U2 = UNITS2 / 8;
static_assert(FIRST % (8 * BLOCKS) == 0 && SECOND % (8 * BLOCKS) == 0 && OUTS <= 8, "shape");

// Rows of the online network's passes, behind them those of the target network; and their fours. With few rows a warp has fours of both networks
// and a part of the units; with many, two of one network and all units, so that it looks at weights rarely.
constexpr int ONLINE = (1 + TWICE) * ROWS, PASSES = ONLINE + ROWS, FOURS_ONLINE = (ONLINE + 3) / 4, FOURS = (ROWS + 3) / 4;
constexpr bool FEW = ROWS <= 8;
__host__ __device__ constexpr int least(int x, int y) { return x < y ? x : y; }
__host__ __device__ constexpr int most(int x, int y) { return x > y ? x : y; }
__host__ __device__ constexpr int warps(int fours, int each) { return (fours + each - 1) / each; }
// Fours of a warp, of which the first are the online network's where it has both.
constexpr int R = FEW ? 2 + TWICE : 2, R_ONLINE = FEW ? 1 + TWICE : R;
constexpr int GROUPS_ONLINE = FEW ? FOURS : warps(FOURS_ONLINE, R), GROUPS = FEW ? FOURS : GROUPS_ONLINE + warps(FOURS, R);
// Of units that a lane has in a warp.
constexpr int AT_ONCE1 = FEW ? least(U1, 2) : U1, AT_ONCE2 = FEW ? least(U2, 2) : U2;
static_assert(GROUPS * most(U1 / AT_ONCE1, U2 / AT_ONCE2) <= WARPS, "rows");
// The head: one or two fours of one network a warp.
constexpr int R3 = FOURS_ONLINE + FOURS <= WARPS ? 1 : 2;
constexpr int GROUPS3_ONLINE = warps(FOURS_ONLINE, R3), GROUPS3 = GROUPS3_ONLINE + warps(FOURS, R3);
static_assert(GROUPS3 <= WARPS, "rows");
// The way back: all rows, and a part of the units.
constexpr int BACK1 = most(U1 / 4, 1), BACK2 = most(U2 / 4, 1);
// Values of k that a warp looks at at a time; as many as lie in a chunk at most.
constexpr int K_UNITS = least(FEW ? 8 : 4, UNITS1), K_HEADS = least(R3 == 1 ? 16 : 8, UNITS2), K_BACK = least(FOURS <= 2 ? 16 : 4, UNITS2);
// Rows whose loss a block works out.
constexpr int OWN = (ROWS + BLOCKS - 1) / BLOCKS;
static_assert(OWN <= 4, "rows");

// Shared memory, in words. Words from row to row are an odd number of fours, so that rows side by side lie in different banks. What a cluster
// makes lies in chunks, one for each block's share.
__host__ __device__ constexpr int stride_of(int n) { return 4 * ((n + 3) / 4 | 1); }
constexpr int X = stride_of(STATE), H1 = stride_of(FIRST), H2 = stride_of(SECOND), D = stride_of(HEAD);
constexpr int S1 = stride_of(UNITS1), S2 = stride_of(UNITS2), CHUNK1 = PASSES * S1, CHUNK2 = PASSES * S2;
// Behind the first layer its weights make room for the loss.
constexpr int W1 = 0, D3 = 0, DHEAD = D3 + ROWS * D, OUTPUTS = DHEAD + OWN * D, MEANS = OUTPUTS + OWN * JOBS * HEAD_WORDS;
constexpr int W2 = most(NETS * UNITS1 * X, (MEANS + OWN * JOBS * 4 + 3) / 4 * 4), W3 = W2 + NETS * UNITS2 * H1, C3 = W3 + NETS * OUTS * H2;
constexpr int C2 = W2 + UNITS2 * H1;  // columns of the middle layer, in the place of the target network's share
constexpr int STATES = C3 + HEAD * UNITS2, A = STATES + 2 * ROWS * X, B = A + BLOCKS * CHUNK1, BARRIERS = B + BLOCKS * CHUNK2, END = BARRIERS + 10;
constexpr int D2 = A + ROWS * S1;  // in each chunk behind the first pass
static_assert(SECOND * UNITS1 <= UNITS2 * H1 && ROWS * S2 <= (PASSES - ROWS) * S1 && BARRIERS % 2 == 0, "places");
static_assert(END * 4 == SHARED_BYTES, "shared memory");

extern __shared__ __align__(16) float shared[];

// Nearly all of this code runs once a launch, so what it takes is to a good part the fetching of instructions: loops stay loops.

// ------------------------------------------------------------------------------------------------ shared memory of a cluster

// What a block gets of each hand-over is counted by a barrier of its own, bytes that come and its own part. Nothing is handed over in a place that
// is still read: who has all of one hand-over knows that everyone made its part of it, from all of the one before.
enum HandOver { UNITS_1, UNITS_2, OUTPUTS_3, GRADIENTS_3, GRADIENTS_2 };
__device__ __forceinline__ u32 barrier_of(u32 base, HandOver number) { return base + (BARRIERS + 2 * number) * 4; }
// Makes a barrier: `words` come, and so many threads of the block arrive, each behind what it wrote.
__device__ __forceinline__ void expect(u32 base, HandOver number, u32 arrivals, u32 words) {
  u32 barrier = barrier_of(base, number);
  make_barrier(barrier, arrivals + 1);
  expect_bytes(barrier, words * 4);
}
// Behind it what all blocks handed over may be read.
__device__ __forceinline__ void wait_for(u32 base, HandOver number) { wait_for_blocks(barrier_of(base, number), 0); }

// Hands `words` that the first N warps wrote to shared memory to the same place of all other blocks of the cluster.
template <int N>
__device__ __forceinline__ void hand_over(u32 base, HandOver number, u32 at, u32 words, u32 rank) {
  u32 t = threadIdx.x, barrier = barrier_of(base, number);
  arrive(barrier);
  shared_memory_is_ready();
  if (N == 1) __syncwarp();
  else asm volatile("bar.sync 1, %0;" ::"n"(32 * N) : "memory");
  // Copies are shared out among the warps.
  if (t % 32 == 0)
#pragma unroll 1
    for (u32 i = t / 32 + 1; i < BLOCKS; i += N) hand(at, at, words * 4, barrier, (rank + i) % BLOCKS);
  __syncwarp();
}
// Sends words to one block.
__device__ __forceinline__ void send(u32 to, float v, u32 barrier, u32 rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(in_block(to, rank)), "r"(in_block(barrier, rank)), "f"(v)
               : "memory");
}
__device__ __forceinline__ void send(u32 to, const float (&v)[4], u32 barrier, u32 rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(in_block(to, rank)),
               "r"(in_block(barrier, rank)), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

template <int N>
__device__ __forceinline__ void load(u32 at, float (&v)[N]) {
  if constexpr (N == 4) asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at));
  else if constexpr (N == 2) asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(at));
  else asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v[0]) : "r"(at));
}
template <int N>
__device__ __forceinline__ void keep(u32 at, const float (&v)[N]) {
  if constexpr (N == 4) asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
  else if constexpr (N == 2) asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v[0]), "f"(v[1]) : "memory");
  else asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v[0]) : "memory");
}
template <int N>
__device__ __forceinline__ void store(float* to, const float (&v)[N]) {
  if constexpr (N == 4) *(float4*)to = make_float4(v[0], v[1], v[2], v[3]);
  else if constexpr (N == 2) *(float2*)to = make_float2(v[0], v[1]);
  else *to = v[0];
}

// ------------------------------------------------------------------------------------------------ products

// Where a lane stands: of 8 over units and 4 over rows, numbered so that a load of four words takes two turns for either operand.
__device__ __forceinline__ u32 lane_of_units() { return threadIdx.x % 16 / 2; }
__device__ __forceinline__ u32 lane_of_rows() { return threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2; }

// Values of a row along k: EACH of them in a chunk, and chunks CHUNK words apart. In bytes from the row's beginning to value k.
template <int EACH, int CHUNK>
struct Chunks {
  static __device__ __forceinline__ u32 at(u32 k) { return k / EACH * (CHUNK * 4) + k % EACH * 4; }
};
using Whole = Chunks<1 << 20, 0>;

// K values of k, in fours if there are as many.
template <int K>
__device__ __forceinline__ void load_along(u32 at, float (&v)[K]) {
  if constexpr (K < 4) {
#pragma unroll
    for (int k = 0; k < K; k++) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v[k]) : "r"(at + 4 * k));
  } else {
#pragma unroll
    for (int k = 0; k < K; k += 4)
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[k]), "=f"(v[k + 1]), "=f"(v[k + 2]), "=f"(v[k + 3]) : "r"(at + 4 * k));
  }
}

// acc[r][u] = fma(x[r], w[u], acc[r][u]), both along k, with the weights of `w[1]` from row R_FIRST on. Lines are 8 rows of STRIDE words apart.
template <int U, int R, int R_FIRST, int STRIDE, class In>
struct Along {
  static constexpr int W = R_FIRST < R ? 2 : 1;
  u32 w[W], x[R];
  template <int K>
  struct Step {
    float b[W][U][K], c[R][K];
    __device__ __forceinline__ void load(const Along& a, u32 at) {
#pragma unroll
      for (int n = 0; n < W; n++)
#pragma unroll
        for (int u = 0; u < U; u++) load_along(a.w[n] + u * (8 * STRIDE * 4) + at * 4, b[n][u]);
#pragma unroll
      for (int r = 0; r < R; r++) load_along(a.x[r] + In::at(at), c[r]);
    }
    __device__ __forceinline__ void multiply(float (&acc)[R][U]) const {
#pragma unroll
      for (int k = 0; k < K; k++)
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int u = 0; u < U; u++) acc[r][u] = fmaf(c[r][k], b[r >= R_FIRST][u][k], acc[r][u]);
    }
  };
};

// acc[r][u] = fma(d[r], w[u], acc[r][u]): `d` along k, `w` across it, LINE words from value to value.
template <int U, int R, int LINE, class In>
struct Across {
  u32 w, d[R];
  template <int K>
  struct Step {
    float b[K][U], c[R][K];
    __device__ __forceinline__ void load(const Across& a, u32 at) {
#pragma unroll
      for (int r = 0; r < R; r++) load_along(a.d[r] + In::at(at), c[r]);
#pragma unroll
      for (int k = 0; k < K; k++) ::load(a.w + (at + k) * (LINE * 4), b[k]);
    }
    __device__ __forceinline__ void multiply(float (&acc)[R][U]) const {
#pragma unroll
      for (int k = 0; k < K; k++)
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int u = 0; u < U; u++) acc[r][u] = fmaf(c[r][k], b[k][u], acc[r][u]);
    }
  };
};

// A product over N values of k in order, K at a time, the next of them on their way to registers meanwhile. The more at a time, the more rarely a
// warp waits: it cannot tell what it has asked for early from what it has asked for late.
template <int N, int K, class Of, int R, int U>
__device__ __forceinline__ void chain(float (&acc)[R][U], const Of& of) {
  constexpr int STEPS = N / K;
  typename Of::template Step<K> ready[2];
  if constexpr (STEPS > 0) {
    ready[0].load(of, 0);
#pragma unroll 1
    for (int step = 0; step + 2 <= STEPS; step += 2) {
      ready[1].load(of, (step + 1) * K);
      ready[0].multiply(acc);
      ready[0].load(of, min(step + 2, STEPS - 1) * K);
      ready[1].multiply(acc);
    }
    if constexpr (STEPS % 2) ready[0].multiply(acc);
  }
  constexpr int FOURS_LEFT = N % K / 4, LEFT = N % 4;
#pragma unroll
  for (int i = 0; i < FOURS_LEFT; i++) {
    typename Of::template Step<4> rest;
    rest.load(of, STEPS * K + 4 * i);
    rest.multiply(acc);
  }
  if constexpr (LEFT > 0) {
    typename Of::template Step<LEFT> rest;
    rest.load(of, N - LEFT);
    rest.multiply(acc);
  }
}

// ------------------------------------------------------------------------------------------------ work of a warp

// A lane's part of a product forward: R rows, numbers among those of all passes, and U units side by side of the WHOLE that lanes have.
template <int R, int R_ONLINE, int GROUPS_ONLINE, int GROUPS, int U, int WHOLE>
struct Part {
  static constexpr int ALL = GROUPS * (WHOLE / U), SHARE = 8 * WHOLE;  // warps, and units of a share
  static constexpr bool BOTH = R_ONLINE < R;
  bool working;
  u32 group, part, net;  // of BOTH networks it is the first
  __device__ __forceinline__ Part() {
    u32 warp = threadIdx.x / 32;
    working = warp < ALL, group = warp % GROUPS, part = min(warp, ALL - 1) / GROUPS, net = !BOTH && group >= GROUPS_ONLINE;
  }
  __device__ __forceinline__ u32 number(int r) const {
    u32 four = BOTH ? (r < R_ONLINE ? group * R_ONLINE + r : group) : (net ? group - GROUPS_ONLINE : group) * R + r;
    return four * 4 + lane_of_rows();
  }
  __device__ __forceinline__ bool online(int r) const { return BOTH ? r < R_ONLINE : net == 0; }
  __device__ __forceinline__ bool have(int r) const { return number(r) < (online(r) ? ONLINE : ROWS); }
  __device__ __forceinline__ u32 row(int r) const { return online(r) ? min(number(r), ONLINE - 1) : ONLINE + min(number(r), ROWS - 1); }
  __device__ __forceinline__ u32 unit() const { return lane_of_units() * WHOLE + part * U; }
  __device__ __forceinline__ u32 line() const { return part * U * 8 + lane_of_units(); }
};

// Forward through both hidden layers and the head, and back through the hidden layers.
using Part1 = Part<R, R_ONLINE, GROUPS_ONLINE, GROUPS, AT_ONCE1, U1>;
using Part2 = Part<R, R_ONLINE, GROUPS_ONLINE, GROUPS, AT_ONCE2, U2>;
using Part3 = Part<R3, R3, GROUPS3_ONLINE, GROUPS3, 1, 1>;
using PartBack1 = Part<FOURS, FOURS, 1, 1, BACK1, U1>;
using PartBack2 = Part<FOURS, FOURS, 1, 1, BACK2, U2>;

// A share of a hidden layer for all passes: to all blocks, and of online(s) to memory.
template <class In, int N, int STRIDE, int S, int WIDTH, class Mine, int W, int U>
__device__ __forceinline__ void hidden_layer(u32 base, HandOver number, const Mine& mine, const float (&bias)[W][U], const u32 (&x)[R],
                                             u32 weights, u32 share, float* kept, u32 first, u32 rows, u32 rank) {
  float acc[R][U];
  Along<U, R, R_ONLINE, STRIDE, In> of;
#pragma unroll
  for (int n = 0; n < W; n++) of.w[n] = weights + ((mine.net + n) * Mine::SHARE + mine.line()) * (STRIDE * 4);
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int u = 0; u < U; u++) acc[r][u] = bias[r >= R_ONLINE][u];
#pragma unroll
  for (int r = 0; r < R; r++) of.x[r] = x[r];
  chain<N, K_UNITS>(acc, of);
#pragma unroll
  for (int r = 0; r < R; r++) {
#pragma unroll
    for (int u = 0; u < U; u++) acc[r][u] = acc[r][u] < 0.f ? 0.f : acc[r][u];  // a NaN passes
    if (mine.have(r)) keep(share + (mine.row(r) * S + mine.unit()) * 4, acc[r]);
  }
  hand_over<Mine::ALL>(base, number, share, PASSES * S, rank);
#pragma unroll
  for (int r = 0; r < R; r++)
    if (mine.have(r) && mine.row(r) < rows) store(kept + (u64)(first + mine.row(r)) * WIDTH + rank * Mine::SHARE + mine.unit(), acc[r]);
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1) cluster_pass(const __grid_constant__ ClusterPassArgs p,
                                                                                                     const __grid_constant__ LossArgs a) {
  u32 t = threadIdx.x, warp = t / 32, rank = blockIdx.x % BLOCKS, first = blockIdx.x / BLOCKS * ROWS, rows = min((u32)ROWS, a.rows - first);
  u32 base = (u32)__cvta_generic_to_shared(shared);
  u32 own = (ROWS - rank + BLOCKS - 1) / BLOCKS;  // rows rank, rank + BLOCKS, ...
  if (t == 0) {
    expect(base, UNITS_1, 32 * Part1::ALL, (BLOCKS - 1) * CHUNK1);
    expect(base, UNITS_2, 32 * Part2::ALL, (BLOCKS - 1) * CHUNK2);
    expect(base, OUTPUTS_3, 0, own * (2 + TWICE) * HEAD);
    expect(base, GRADIENTS_3, 0, ROWS * D);
    expect(base, GRADIENTS_2, 32 * PartBack2::ALL, (BLOCKS - 1) * ROWS * S2);
    barriers_are_made();
  }
  cluster_arrive();
  if (p.ahead < AHEAD_LEAVES_PARAMETERS) dependency_wait();
  auto parameters = [&](u32 net) { return net ? p.parameters[1] : p.parameters[0]; };
  // Unit n of a share is line n % U * 8 + n / U, so that a lane has units side by side.
#pragma unroll 4
  for (u32 i = t; i < NETS * UNITS1 * STATE; i += THREADS) {
    u32 net = i / (UNITS1 * STATE), n = i / STATE % UNITS1;
    copy_4(base + (W1 + (net * UNITS1 + n % U1 * 8 + n / U1) * X + i % STATE) * 4,
           parameters(net) + p.weight[0] + (u64)rank * UNITS1 * STATE + i % (UNITS1 * STATE), 4);
  }
  end_of_group();
#pragma unroll 4
  for (u32 i = t; i < NETS * UNITS2 * FIRST / 4; i += THREADS) {
    u32 net = i / (UNITS2 * FIRST / 4), n = i / (FIRST / 4) % UNITS2, k = i % (FIRST / 4) * 4;
    copy_16(base + (W2 + (net * UNITS2 + n % U2 * 8 + n / U2) * H1 + k) * 4, parameters(net) + p.weight[1] + (u64)(rank * UNITS2 + n) * FIRST + k);
  }
#pragma unroll 2
  for (u32 i = t; i < NETS * OUTS * SECOND / 4; i += THREADS) {
    u32 net = i / (OUTS * SECOND / 4), o = i / (SECOND / 4) % OUTS, k = i % (SECOND / 4) * 4;
    if (rank * OUTS + o < HEAD) copy_16(base + (W3 + (net * OUTS + o) * H2 + k) * 4, parameters(net) + p.weight[2] + (u64)(rank * OUTS + o) * SECOND + k);
  }
#pragma unroll 2
  for (u32 i = t; i < HEAD * UNITS2 / 4; i += THREADS)
    copy_16(base + (C3 + i * 4) * 4, parameters(0) + p.weight[2] + (u64)(i / (UNITS2 / 4)) * SECOND + rank * UNITS2 + i % (UNITS2 / 4) * 4);
  end_of_group();
  Part1 mine1;
  Part2 mine2;
  Part3 mine3;
  constexpr int W = Part1::BOTH ? 2 : 1;
  u32 lane = lane_of_units(), out = rank * OUTS + lane;
  bool is_out = lane < OUTS && out < HEAD;
  float bias1[W][AT_ONCE1], bias2[W][AT_ONCE2], bias3 = parameters(mine3.net)[p.bias[2] + (is_out ? out : 0)];
#pragma unroll
  for (int n = 0; n < W; n++) {
#pragma unroll
    for (int u = 0; u < AT_ONCE1; u++) bias1[n][u] = parameters(mine1.net + n)[p.bias[0] + rank * UNITS1 + mine1.unit() + u];
#pragma unroll
    for (int u = 0; u < AT_ONCE2; u++) bias2[n][u] = parameters(mine2.net + n)[p.bias[1] + rank * UNITS2 + mine2.unit() + u];
  }
  // Arguments that are looked at here are there at once when they are needed.
  asm volatile("" ::"l"(p.states), "l"(p.kept[0]), "l"(p.before[1]), "l"(a.actions), "l"(a.rewards), "l"(a.discounts), "l"(a.indices), "l"(a.dhead), "l"(a.td));
  dependency_wait();
  constexpr int VALUES = 2 * ROWS * STATE, TURNS_OF_ALL = (VALUES + THREADS - 1) / THREADS, AT_ONCE = least(TURNS_OF_ALL, 8);
#pragma unroll 1
  for (u32 turn = 0; turn < TURNS_OF_ALL; turn += AT_ONCE) {
    float v[AT_ONCE];
#pragma unroll
    for (u32 j = 0; j < AT_ONCE; j++) {
      u32 i = (turn + j) * THREADS + t, next = i / (ROWS * STATE), at = i % (ROWS * STATE);
      v[j] = i < VALUES && at / STATE < rows ? (next ? p.next_states : p.states)[(u64)first * STATE + at] : 0.f;
    }
#pragma unroll
    for (u32 j = 0; j < AT_ONCE; j++) {
      u32 i = (turn + j) * THREADS + t;
      if (i < VALUES) shared[STATES + i / STATE * X + i % STATE] = v[j];
    }
  }
  // The loss of a row is the work of eight lanes, all of one warp.
  u32 loss_row = t / 8 * BLOCKS + rank;
  bool has_row = t < 8 * OWN && loss_row < rows;
  RowFields of;
  if (has_row) of.load(a, first + loss_row);
  u32 x[R];
#pragma unroll
  for (int r = 0; r < R; r++) x[r] = base + (STATES + (mine1.online(r) ? mine1.row(r) : mine1.row(r) - ONLINE + ROWS) * X) * 4;
  wait_for_groups<1>();
  __syncthreads();
  cluster_wait();  // the others' barriers are there
  if (mine1.working)
    hidden_layer<Whole, STATE, X, S1, FIRST>(base, UNITS_1, mine1, bias1, x, base + W1 * 4, base + (A + rank * CHUNK1) * 4, p.kept[0], first, rows, rank);
  // Counts what is not finite before a relu or an argmax can lose it (case C12), in warps that have nothing else to do, if there are any, or in all. A
  // row of the cluster in one block.
  constexpr int IDLE_FROM = Part1::ALL < WARPS ? Part1::ALL : 0;
  if ((int)warp >= IDLE_FROM) {
    u32 bad = 0;
#pragma unroll 1
    for (u32 row = rank + (warp - IDLE_FROM) * BLOCKS; row < 2 * ROWS; row += (WARPS - IDLE_FROM) * BLOCKS)
#pragma unroll 1
      for (u32 k = t % 32; k < STATE; k += 32) bad += !is_finite(shared[STATES + row * X + k]);
    bad = warp_sum(bad);
    if (bad && t % 32 == 0) atomicAdd(&p.state->bad_states, bad);
  }
  wait_for_groups<0>();
  __syncthreads();
  wait_for(base, UNITS_1);
#pragma unroll
  for (int r = 0; r < R; r++) x[r] = base + (A + mine2.row(r) * S1) * 4;
  if (mine2.working)
    hidden_layer<Chunks<UNITS1, CHUNK1>, FIRST, H1, S2, SECOND>(base, UNITS_2, mine2, bias2, x, base + W2 * 4, base + (B + rank * CHUNK2) * 4, p.kept[1],
                                                                       first, rows, rank);
  wait_for(base, UNITS_2);
  if (mine3.working) {
    Along<1, R3, R3, H2, Chunks<UNITS2, CHUNK2>> of = {{base + (W3 + (mine3.net * OUTS + (is_out ? lane : 0)) * H2) * 4}};
    float acc[R3][1];
#pragma unroll
    for (int r = 0; r < R3; r++) acc[r][0] = bias3, of.x[r] = base + (B + mine3.row(r) * S2) * 4;
    chain<SECOND, K_HEADS>(acc, of);
    // To the block whose row it is.
#pragma unroll
    for (int r = 0; r < R3; r++) {
      u32 pass = mine3.row(r), row = pass % ROWS, job = mine3.net ? 2 : pass / ROWS;
      if (is_out && mine3.have(r))
        send(base + (OUTPUTS + (row / BLOCKS * JOBS + job) * HEAD_WORDS + out) * 4, acc[r][0], barrier_of(base, OUTPUTS_3), row % BLOCKS);
    }
  }
  RowLoss found = {};
  if (warp == 0) {
    wait_for(base, OUTPUTS_3);
    u32 slot = min(t / 8, (u32)OWN - 1);
    const float(*outputs)[HEAD_WORDS] = (const float(*)[HEAD_WORDS])(shared + OUTPUTS) + slot * JOBS;
    found = loss_of_row(a, SHAPE, has_row, of, outputs, (float(*)[4])(shared + MEANS) + slot * JOBS, shared + DHEAD + slot * D);
    __syncwarp();
#pragma unroll 1
    for (u32 i = t; i < own * (D / 4); i += 32) {
      u32 slot = i / (D / 4), at = i % (D / 4) * 4;
      float v[4];
      load(base + (DHEAD + slot * D + at) * 4, v);
#pragma unroll
      for (u32 other = 0; other < BLOCKS; other++)
        send(base + (D3 + (slot * BLOCKS + rank) * D + at) * 4, v, barrier_of(base, GRADIENTS_3), (rank + other) % BLOCKS);
    }
  } else {
    // Meanwhile the middle layer's columns of this block's units.
#pragma unroll 4
    for (u32 i = t - 32; i < SECOND * UNITS1 / 4; i += THREADS - 32)
      copy_16(base + (C2 + i * 4) * 4, parameters(0) + p.weight[1] + (u64)(i / (UNITS1 / 4)) * FIRST + rank * UNITS1 + i % (UNITS1 / 4) * 4);
    end_of_group();
    wait_for_groups<0>();
  }
  __syncthreads();
  wait_for(base, GRADIENTS_3);
  PartBack1 back1;
  PartBack2 back2;
  if (back2.working) {
    Across<BACK2, FOURS, UNITS2, Whole> of = {base + (C3 + back2.unit()) * 4};
    float acc[FOURS][BACK2] = {};
    u32 share = base + (D2 + rank * CHUNK1) * 4;
#pragma unroll
    for (int r = 0; r < FOURS; r++) of.d[r] = base + (D3 + min(back2.number(r), ROWS - 1) * D) * 4;
    chain<HEAD, least(K_BACK, 8)>(acc, of);
#pragma unroll
    for (int r = 0; r < FOURS; r++) {
      float h[BACK2];
      u32 row = min(back2.number(r), ROWS - 1);
      load(base + (B + rank * CHUNK2 + row * S2 + back2.unit()) * 4, h);
#pragma unroll
      for (int u = 0; u < BACK2; u++) acc[r][u] = h[u] <= 0.f ? 0.f : acc[r][u];
      if (back2.number(r) < ROWS) keep(share + (row * S2 + back2.unit()) * 4, acc[r]);
    }
    hand_over<PartBack2::ALL>(base, GRADIENTS_2, share, ROWS * S2, rank);
#pragma unroll
    for (int r = 0; r < FOURS; r++)
      if (back2.number(r) < rows) store(p.before[1] + (u64)(first + back2.number(r)) * SECOND + rank * UNITS2 + back2.unit(), acc[r]);
  } else if (warp == WARPS - 1) {
#pragma unroll 1
    for (u32 r = rank; r < rows; r += BLOCKS)
#pragma unroll 1
      for (u32 o = t % 32; o < HEAD; o += 32) a.dhead[(u64)(first + r) * a.head_stride + o] = shared[D3 + r * D + o];
  }
  if (has_row && t % 8 == 0) {
    found.store(a, first + loss_row, of);
    u32 bad = !is_finite(of.reward) + !is_finite(of.terminated);
    if (bad) atomicAdd(&p.state->bad_rewards, bad);
  }
  wait_for(base, GRADIENTS_2);
  cluster_arrive();  // a block's memory is there until all others have what it handed over
  if (back1.working) {
    Across<BACK1, FOURS, UNITS1, Chunks<UNITS2, CHUNK1>> of = {base + (C2 + back1.unit()) * 4};
    float acc[FOURS][BACK1] = {};
#pragma unroll
    for (int r = 0; r < FOURS; r++) of.d[r] = base + (D2 + min(back1.number(r), ROWS - 1) * S2) * 4;
    chain<SECOND, K_BACK>(acc, of);
#pragma unroll
    for (int r = 0; r < FOURS; r++) {
      float h[BACK1];
      load(base + (A + rank * CHUNK1 + min(back1.number(r), ROWS - 1) * S1 + back1.unit()) * 4, h);
#pragma unroll
      for (int u = 0; u < BACK1; u++) acc[r][u] = h[u] <= 0.f ? 0.f : acc[r][u];
      if (back1.number(r) < rows) store(p.before[0] + (u64)(first + back1.number(r)) * FIRST + rank * UNITS1 + back1.unit(), acc[r]);
    }
  }
  // Not before, as blocks of the kernel behind would crowd on the multiprocessors where there is none of this one.
  dependents_may_start();
  cluster_wait();
}
