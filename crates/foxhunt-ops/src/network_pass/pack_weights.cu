// Weights as the copy engine brings them to products: rounded, in the order of stages.
//
//   pack_weights     of up to two networks: for the way forward lines are outputs and k are inputs, for the way back the other way
//                    round and without the first layer
//
// In: flat parameters f32. Out: images, 128 bytes a line and slab of k; 0 where a line or a value is none.
// A thread makes sixteen bytes. Moved: 4 bytes a parameter in, BYTES out, for each image.
#include "common.cuh"
#include "shared_structs.cuh"
#include "warpgroup.cuh"

// Sixteen bytes number `i` of the image of a matrix [lines, ks], whose element (line, k) is `from[line * of_line + k * of_k]`.
__device__ __forceinline__ void sixteen(const float* from, u32 i, u32 lines, u32 ks, u32 of_line, u32 of_k, unsigned char* to) {
  u32 padded = rounded_up(lines, 16), line = i / 8 % padded, k = i / 8 / padded * LINE + (i % 8 ^ line % 8) * (16 / BYTES);
  float v[16 / BYTES];
#pragma unroll
  for (u32 q = 0; q < 16 / BYTES; q++) v[q] = line < lines && k + q < ks ? from[(u64)line * of_line + (u64)(k + q) * of_k] : 0.f;
#pragma unroll
  for (u32 q = 0; q < 16 / BYTES; q += 2) store_pair(to + 16 * (u64)i + q * BYTES, v[q], v[q + 1]);
}

extern "C" __global__ void __launch_bounds__(256) pack_weights(PackArgs a) {
  dependency_wait();
  dependents_may_start();
  for (u32 i = blockIdx.x * 256 + threadIdx.x; i < a.chunks; i += gridDim.x * 256) {
    u32 piece = 0;
    while (piece + 1 < a.pieces && i >= a.first[piece + 1]) piece++;
    u32 n_in = a.n_in[piece], n_out = a.n_out[piece], at = i - a.first[piece];
    const float* w = a.parameters[a.network[piece]] + a.weight[piece];
    unsigned char* to = a.to[piece];
    if (a.back[piece]) sixteen(w, at, n_in, n_out, 1, n_in, to);
    else sixteen(w, at, n_out, n_in, n_in, 1, to);
  }
}
