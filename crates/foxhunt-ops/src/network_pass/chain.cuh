// A chain of products over tiles of rows: a tile's units stay in shared memory, where each product's take the place of those before, and
// weights come as images of stages. Forward through all layers, or back through all but the first.
//
// A block has two warpgroups that multiply and one that has weights brought. Both that multiply use a stage, so in one round they have rows
// of one job. Work is dealt in rounds: two tiles a block as long as more tiles than blocks are left, then one.
//
//   WIDTHS       values of a row at the beginning and behind each product
//   UNITS_BYTES  shared memory for a warpgroup's units; whole kilobytes
#pragma once
#include "warpgroup.cuh"

// ------------------------------------------------------------------------------------------------ shape

__host__ __device__ constexpr int width(int i) {
  constexpr int all[] = {WIDTHS};
  return i < 0 ? sizeof(all) / sizeof(int) : all[i];
}
constexpr int PRODUCTS = width(-1) - 1;

// Of product p: lines of its weights, steps of k, slabs of weights and of units.
__host__ __device__ constexpr int lines(int p) { return rounded_up(width(p + 1), 16); }
__host__ __device__ constexpr int steps(int p) { return (width(p) + STEP - 1) / STEP; }
__host__ __device__ constexpr int slabs(int p) { return (width(p) + RIGHT_LINE - 1) / RIGHT_LINE; }
__host__ __device__ constexpr int most(int x, int y) { return x > y ? x : y; }
__host__ __device__ constexpr int unit_slabs(int p) { return (width(p) + LINE - 1) / LINE; }
__host__ __device__ constexpr int most_unit_slabs(int p) { return p == PRODUCTS ? 0 : most(unit_slabs(p), most_unit_slabs(p + 1)); }
__host__ __device__ constexpr int most_lines(int p) { return p == PRODUCTS ? 0 : most(lines(p), most_lines(p + 1)); }
// Values of k that products look at: those behind the last are 0.
__host__ __device__ constexpr int padded(int p) { return rounded_up(width(p), PARTS * STEP); }
// Slabs that share a stage, where a product has few lines.
constexpr int STAGE_BYTES = most_lines(0) * 128;
__host__ __device__ constexpr int together(int p) { return STAGE_BYTES / (lines(p) * 128) >= 4 ? 4 : STAGE_BYTES / (lines(p) * 128) >= 2 ? 2 : 1; }
__host__ __device__ constexpr int turns(int p) { return (slabs(p) + together(p) - 1) / together(p); }
__host__ __device__ constexpr int all_turns(int p) { return p == PRODUCTS ? 0 : turns(p) + all_turns(p + 1); }
// Where the weights of product p begin in an image, in bytes.
__host__ __device__ constexpr u32 image_of(int p) { return p == 0 ? 0 : image_of(p - 1) + slabs(p - 1) * lines(p - 1) * 128; }

// Units of a warpgroup: slabs of TILE lines.
constexpr int SLAB_BYTES = TILE * 128;
using Weights = Ring<STAGES, STAGE_BYTES, WORKERS * GROUP / 32>;
constexpr int BARRIERS = WORKERS * UNITS_BYTES + Weights::BYTES_OF_ALL, SHARED = BARRIERS + WORKERS * 8;
static_assert(most_unit_slabs(0) * SLAB_BYTES <= UNITS_BYTES && UNITS_BYTES % 1024 == 0 && SHARED <= SHARED_BYTES, "shared memory");

// The tile that a warpgroup has in a round.
struct Tile {
  u32 units;   // where its rows lie in shared memory
  u32 job, number, first, count;
};

// Where value k of a row lies in a warpgroup's units.
__device__ __forceinline__ u32 unit(const Tile& t, u32 row, u32 k) { return t.units + k / LINE * SLAB_BYTES + place(row, k % LINE); }

// Words of a tile's mask a thread has, for one product: a bit an element.
__host__ __device__ constexpr int mask_words(int units) { return (rounded_up(units, 16) / 2 + 31) / 32; }

// ------------------------------------------------------------------------------------------------ weights

template <int P>
__device__ __forceinline__ void bring(const unsigned char* image, Weights& ring) {
#pragma unroll 1
  for (int turn = 0; turn < turns(P); turn++) {
    u32 left = (slabs(P) - turn * together(P)) * lines(P) * 128, bytes = min(left, (u32)(together(P) * lines(P) * 128));
    ring.expect(bytes);
    ring.fetch(0, image + image_of(P) + turn * together(P) * lines(P) * 128, bytes);
    ring.advance();
  }
  if constexpr (P + 1 < PRODUCTS) bring<P + 1>(image, ring);
}

// For a warpgroup without rows in a round: lets all weights of the chain go by.
__device__ __forceinline__ void pass(Weights& ring) {
#pragma unroll 1
  for (int turn = 0; turn < all_turns(0); turn++) {
    ring.wait_full();
    ring.release(ring.at);
    ring.advance();
  }
}

// ------------------------------------------------------------------------------------------------ products

// acc += units weights for all of k. Afterwards the units may be overwritten.
#if PRECISION == 1
template <int P>
__device__ __forceinline__ void product(float (&acc)[lines(P) / 2], const Tile& tile, Weights& ring) {
  constexpr int N = lines(P), HERE = together(P);
  u32 row = tile.units + (threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4) * 128;
  pin(acc);
#pragma unroll 1
  for (int slab = 0; slab < slabs(P); slab++) {
    if (slab % HERE == 0) ring.wait_full();
    u32 weights = ring.stage() + slab % HERE * N * 128;
    Split units;
    units.load(row + slab / 2 * SLAB_BYTES, slab % 2);
    multiply_split<0, N>(acc, units, weights, weights + N * 64);
    if (slab % HERE == HERE - 1 || slab == slabs(P) - 1) ring.release(ring.at), ring.advance();
  }
  // No warp writes units that another still reads.
  group_barrier(threadIdx.x / GROUP);
}
#else
template <int P>
__device__ __forceinline__ void product(float (&acc)[lines(P) / 2], const Tile& tile, Weights& ring) {
  // Where the last stage is not full, every turn knows its number when this is compiled.
  constexpr int EACH = together(P) * (LINE / STEP);
  constexpr bool EVEN = steps(P) % EACH == 0;
  u64 units = operand(tile.units);
  pin(acc);
#pragma unroll(EVEN ? 1 : turns(P))
  for (int turn = 0; turn < turns(P); turn++) {
    ring.wait_full();
    u64 weights = operand(ring.stage());
    begin_products();
#pragma unroll
    for (int step = 0; step < EACH; step++) {
      constexpr int OF_LINE = LINE / STEP;
      if (EVEN || turn * EACH + step < steps(P))
        multiply<lines(P)>(acc, units + (step / OF_LINE * SLAB_BYTES + step % OF_LINE * 32) / 16,
                           weights + (step / OF_LINE * lines(P) * 128 + step % OF_LINE * 32) / 16);
    }
    end_of_products();
    units += together(P) * SLAB_BYTES / 16;
    // The stage before is free as soon as its products are made.
    wait_for_products<1>();
    if (turn > 0) ring.release_before();
    ring.advance();
  }
  wait_for_products<0>();
  ring.release_before();
  pin(acc);
  // No warp writes units that another's products still read.
  group_barrier(threadIdx.x / GROUP);
}
#endif

// A tile's elements as an image of `lines` lines with k along the rows, for a left or a right operand.
template <bool RIGHT, int COUNT>
__device__ __forceinline__ void store_image(unsigned char* image, const Tile& tile, u32 lines, const float (&acc)[COUNT]) {
  u32 lane = threadIdx.x % 32, number = of_row(threadIdx.x % GROUP / 32 * 16 + lane / 4);
  unsigned char* to[2];
#pragma unroll
  for (int q = 0; q < 2; q++) {
    u32 line = 2 * (lane % 4) + q;
    to[q] = image + (RIGHT ? right_image_place(tile.number, number, line, lines) : image_place(tile.number, number, line, lines));
  }
#pragma unroll
  for (int j = 0; j < COUNT / 4; j++)
#pragma unroll
    for (int q = 0; q < 2; q++) {
      float x = acc[4 * j + q], y = acc[4 * j + 2 + q];
      if (RIGHT) store_right_pair(to[q] + j * (1024 / PARTS), x, y, lines);
      else store_rounded_pair(to[q] + j * 1024, x, y);
    }
}

// ------------------------------------------------------------------------------------------------ rounds

// The first tile of this block in a round and whether it has two; number `tiles` and up is none.
struct Deal {
  u32 number;
  bool two;
  __device__ __forceinline__ Deal(const DealArgs& deal, u32 blocks, u32 round) {
    u32 paired = deal.double_rounds * 2 * blocks;
    two = round < deal.double_rounds;
    number = two ? (round * blocks + blockIdx.x) * 2 : paired + blockIdx.x + (round - deal.double_rounds) * blocks;
  }
};

// Deals tiles: `image_of_job` gives a job's weights, `work` does a tile. Weights may come before the kernel ahead is done (`early`).
template <class Image, class Work>
__device__ __forceinline__ void rounds(const DealArgs& deal, u32 blocks, unsigned char* shared, bool early, bool beside, Image image_of_job, Work work) {
  u32 base = shared_address(shared);
  // The same for a whole warp, as the compiler is to know.
  u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0);
  Weights ring(base + WORKERS * UNITS_BYTES);
  ring.begin();
  if (group == WORKERS) {
    give_registers();
    if (!early) dependency_wait();
    if (threadIdx.x % GROUP == 0)
      for (u32 round = 0; Deal(deal, blocks, round).number < deal.tiles; round++)
        bring<0>(image_of_job(Deal(deal, blocks, round).number / deal.tiles_of_job), ring);
    if (beside) dependency_wait();
  } else {
    take_registers();
    if (!beside) dependency_wait();
    dependents_may_start();
#pragma unroll 1
    for (u32 round = 0; Deal(deal, blocks, round).number < deal.tiles; round++) {
      Deal mine(deal, blocks, round);
      u32 number = mine.number % deal.tiles_of_job + (mine.two ? group : 0), first = number * TILE;
      if ((!mine.two && group) || first >= deal.rows) {
        pass(ring);
        continue;
      }
      Tile tile = {base + group * UNITS_BYTES, mine.number / deal.tiles_of_job, number, first, min((u32)TILE, deal.rows - first)};
      work(tile, ring);
    }
    // Those behind count on everything ahead being done.
    if (beside) dependency_wait();
  }
}
