// The middle of an update in one launch: the head's outputs of all three forward passes, the loss, and the gradient of the units
// before the head.
//
// In: last hidden units of online(s), online(s') (double DQN) and target(s'), f32 [rows, x_stride]; both heads' weights; the
// batch's fields. Out: what td_loss.cu gives, and f32 [rows, x_stride] gradients of the units of online(s), 0 where a unit
// was not above 0. A block does ROWS rows from begin to end, with both heads' weights, [n_out, n_in], in shared memory, which
// they reach before the kernel ahead is done. A thread makes UNITS outputs of JOBS rows of one network; elements are the
// chains of mlp.cu. Moved: a block's 2 n_in n_out words of weights, then rows * (4 n_in + head_stride + 12).
#include "common.cuh"
#include "shared_structs.cuh"
#include "copies.cuh"
#include "td_loss.cuh"

// Lanes over a network's outputs, and rows of one network that a thread has.
constexpr int LANES = 16, GROUPS = ROWS / JOBS, THREADS = (LANES * 3 * GROUPS + 31) / 32 * 32;
static_assert(ROWS % JOBS == 0 && THREADS >= (8 * ROWS + 31) / 32 * 32, "shape");
// Steps of four inputs whose operands are on their way while one is multiplied.
constexpr u32 DEPTH = JOBS * UNITS > 6 ? 2 : 4;
// Rows whose gradients a thread makes from one look at the weights.
constexpr int BACK = ROWS > 4 ? 4 : 2;

extern __shared__ __align__(16) float shared[];

// Nearly all of this code runs once a launch, so what it takes is to a good part the fetching of instructions: loops stay loops
// where a turn does not wait for the one before.

// What a loss is made from as far as it is the same for all rows, known when this is compiled.
constexpr LossShape<> SHAPE = {BRANCHES, DUELING != 0, DOUBLE_DQN != 0, false};

// Rows of words on their way to shared memory. Both sides begin at 16-byte boundaries.
#if __CUDA_ARCH__ >= 900
#include "barrier.cuh"
// The copy engine takes a row at a time and counts its bytes; the first warp asks for them.
struct Rows {
  u32 barrier;
  __device__ __forceinline__ void begin(u64* at) {
    barrier = (u32)__cvta_generic_to_shared(at);
    if (threadIdx.x == 0) {
      make_barrier(barrier, 1);
      barriers_are_made();
    }
    __syncwarp();
  }
  __device__ __forceinline__ void expect(u32 rows, u32 n_in) {
    if (threadIdx.x == 0) expect_bytes(barrier, rows * n_in * 4);
  }
  __device__ __forceinline__ void fetch(float* to, u32 width, const float* from, u64 stride, u32 rows, u32 n_in) {
    u32 base = (u32)__cvta_generic_to_shared(to);
#pragma unroll 1
    for (u32 r = threadIdx.x; r < rows; r += 32) bring(base + r * width * 4, from + r * stride, n_in * 4, barrier);
  }
  __device__ __forceinline__ void wait() { wait_for(barrier, 0); }
  static __device__ __forceinline__ bool asks() { return threadIdx.x < 32; }
};
#else
struct Rows {
  __device__ __forceinline__ void begin(u64*) {}
  __device__ __forceinline__ void expect(u32, u32) {}
  __device__ __forceinline__ void fetch(float* to, u32 width, const float* from, u64 stride, u32 rows, u32 n_in) {
    u32 base = (u32)__cvta_generic_to_shared(to);
#pragma unroll 1
    for (u32 r = threadIdx.x / 32; r < rows; r += THREADS / 32)
#pragma unroll 1
      for (u32 c = threadIdx.x % 32 * 4; c < n_in; c += 128) copy_16(base + (r * width + c) * 4, from + r * stride + c);
  }
  __device__ __forceinline__ void wait() {
    end_of_group();
    wait_for_groups<0>();
    __syncthreads();
  }
  static __device__ __forceinline__ bool asks() { return true; }
};
#endif

// What a thread multiplies in one step: four inputs of each of its rows, and their weights for each of its outputs.
struct Operands {
  float4 b[UNITS], c[JOBS];
  __device__ __forceinline__ void load(const float* const (&w)[UNITS], const float* const (&x)[JOBS], u32 k) {
#pragma unroll
    for (int u = 0; u < UNITS; u++) b[u] = *(const float4*)(w[u] + k);
#pragma unroll
    for (int j = 0; j < JOBS; j++) c[j] = *(const float4*)(x[j] + k);
  }
  __device__ __forceinline__ void multiply(float (&acc)[JOBS][UNITS]) const {
#pragma unroll
    for (int j = 0; j < JOBS; j++)
#pragma unroll
      for (int u = 0; u < UNITS; u++) acc[j][u] = fmaf(c[j].x, b[u].x, acc[j][u]);
#pragma unroll
    for (int j = 0; j < JOBS; j++)
#pragma unroll
      for (int u = 0; u < UNITS; u++) acc[j][u] = fmaf(c[j].y, b[u].y, acc[j][u]);
#pragma unroll
    for (int j = 0; j < JOBS; j++)
#pragma unroll
      for (int u = 0; u < UNITS; u++) acc[j][u] = fmaf(c[j].z, b[u].z, acc[j][u]);
#pragma unroll
    for (int j = 0; j < JOBS; j++)
#pragma unroll
      for (int u = 0; u < UNITS; u++) acc[j][u] = fmaf(c[j].w, b[u].w, acc[j][u]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) head_pass(HeadPassArgs p, LossArgs a) {
  __shared__ float outputs[ROWS][3][HEAD_WORDS];
  __shared__ float means[ROWS][3][4];
  __shared__ float dhead[ROWS][HEAD_WORDS];
  // An odd number of fours, so that rows side by side lie in different banks.
  u32 width = 4 * (p.n_in / 4 | 1), first = blockIdx.x * ROWS, rows = min((u32)ROWS, a.rows - first);
  float* weights = shared;
  float* units = shared + 2 * p.n_out * width;
  __shared__ u64 barriers[2];
  Rows heads, inputs;
  if (Rows::asks()) {
    heads.begin(barriers), inputs.begin(barriers + 1);
    heads.expect(2 * p.n_out, p.n_in);
#pragma unroll 1
    for (u32 net = 0; net < 2; net++)
      heads.fetch(weights + net * p.n_out * width, width, (net ? p.parameters[1] : p.parameters[0]) + p.weight, p.n_in, p.n_out, p.n_in);
  }
  dependency_wait();
  dependents_may_start();
  if (Rows::asks()) {
    inputs.expect((2 + SHAPE.double_dqn) * rows, p.n_in);
#pragma unroll 1
    for (u32 net = 0; net < 3; net++) {
      const float* x = (net == 0 ? p.x[0] : net == 1 ? p.x[1] : p.x[2]) + (u64)first * p.x_stride;
      if (net != 1 || SHAPE.double_dqn) inputs.fetch(units + net * ROWS * width, width, x, p.x_stride, rows, p.n_in);
    }
  }
  u32 r = threadIdx.x / 8, row = first + r;
  bool have = r < rows;
  RowFields of;
  if (have) of.load(a, row);

  u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES, net = min(group / GROUPS, 2), at = group % GROUPS;
  float acc[JOBS][UNITS];
  const float *w[UNITS], *x[JOBS], *parameters = net == 2 ? p.parameters[1] : p.parameters[0];
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    u32 unit = min(lane + LANES * u, p.n_out - 1);  // what is made beyond the last is not kept
    w[u] = weights + ((net == 2) * p.n_out + unit) * width;
    float bias = parameters[p.bias + unit];
#pragma unroll
    for (int j = 0; j < JOBS; j++) acc[j][u] = bias;
  }
#pragma unroll
  for (int j = 0; j < JOBS; j++) x[j] = units + (net * ROWS + min(at + GROUPS * j, rows - 1)) * width;
  __syncthreads();  // the barriers are there for all
  heads.wait(), inputs.wait();
  if (group < 3 * GROUPS && (net != 1 || SHAPE.double_dqn)) {
    // Beyond the last input there is room to read and nothing to use.
    Operands ready[DEPTH];
#pragma unroll
    for (u32 s = 0; s < DEPTH - 1; s++) ready[s].load(w, x, 4 * s);
    u32 k = 0;
#pragma unroll 1
    for (; k + 4 * DEPTH <= p.n_in; k += 4 * DEPTH) {
#pragma unroll
      for (u32 s = 0; s < DEPTH; s++) {
        ready[(s + DEPTH - 1) % DEPTH].load(w, x, k + 4 * (s + DEPTH - 1));
        ready[s].multiply(acc);
      }
    }
#pragma unroll
    for (u32 s = 0; s < DEPTH - 1; s++)
      if (k + 4 * s < p.n_in) ready[s].multiply(acc);
#pragma unroll
    for (int j = 0; j < JOBS; j++)
#pragma unroll
      for (int u = 0; u < UNITS; u++)
        if (lane + LANES * u < p.n_out) outputs[at + GROUPS * j][net][lane + LANES * u] = acc[j][u];
  }
  __syncthreads();
  if (threadIdx.x < (8 * ROWS + 31) / 32 * 32) {
    u32 mine = min(r, (u32)ROWS - 1);
    RowLoss found = loss_of_row(a, SHAPE, have, of, outputs[mine], means[mine], dhead[mine]);
    if (have && threadIdx.x % 8 == 0) found.store(a, row, of);
  }
  __syncthreads();
#pragma unroll 1
  for (u32 i = threadIdx.x / 32; i < rows; i += THREADS / 32)
#pragma unroll 1
    for (u32 o = threadIdx.x % 32; o < p.n_out; o += 32) a.dhead[(u64)(first + i) * a.head_stride + o] = dhead[i][o];
  u32 fours = p.n_in / 4;
#pragma unroll 1
  for (u32 i = threadIdx.x; i < ROWS / BACK * fours; i += THREADS) {
    u32 r0 = i / fours * BACK, c = i % fours * 4;
    float4 d[BACK] = {};
#pragma unroll 4
    for (u32 o = 0; o < p.n_out; o++) {
      float4 b = *(const float4*)(weights + o * width + c);
#pragma unroll
      for (int j = 0; j < BACK; j++) {
        float g = dhead[r0 + j][o];
        d[j].x = fmaf(g, b.x, d[j].x), d[j].y = fmaf(g, b.y, d[j].y), d[j].z = fmaf(g, b.z, d[j].z), d[j].w = fmaf(g, b.w, d[j].w);
      }
    }
#pragma unroll
    for (int j = 0; j < BACK; j++) {
      if (r0 + j >= rows) continue;
      float4 h = *(const float4*)(units + (r0 + j) * width + c);
      d[j].x = h.x <= 0.f ? 0.f : d[j].x, d[j].y = h.y <= 0.f ? 0.f : d[j].y;
      d[j].z = h.z <= 0.f ? 0.f : d[j].z, d[j].w = h.w <= 0.f ? 0.f : d[j].w;
      *(float4*)(p.before + (u64)(first + r0 + j) * p.x_stride + c) = d[j];
    }
  }
}
