// Where the value of a parameter goes in the images of its network.
//
// A map has a word a parameter: 28 bits of bytes from the image's beginning to the value or its high part, and four of the layer's lines in
// sixteens less one, which tell where the low part is; NOWHERE for biases, and on the way back for the first layer.
#pragma once
#include "warpgroup.cuh"

constexpr u32 NOWHERE = ~0u;

__device__ __forceinline__ void store_in(unsigned char* image, u32 at, float x) {
  if (image && at != NOWHERE) store_right(image + (at & 0x0fffffff), x, ((at >> 28) + 1) * 16);
}
__device__ __forceinline__ void store_online(const ImageArgs& a, u64 i, float x) {
  store_in(a.online, a.forward_map[i], x);
  if (a.back) store_in(a.back, a.back_map[i], x);
}
__device__ __forceinline__ void store_target(const ImageArgs& a, u64 i, float x) {
  if (a.target) store_in(a.target, a.forward_map[i], x);
}
