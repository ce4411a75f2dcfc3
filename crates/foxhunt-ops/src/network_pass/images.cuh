// Where the value of a parameter goes in the images of its network.
//
// A map has a word a parameter: 28 bits of bytes from the image's beginning to the value or its high part, and four of the layer's lines in
// sixteens less one, which tell where the low part is; NOWHERE for biases, and on the way back for the first layer.
#pragma once
#include "warpgroup.cuh"

constexpr u32 NOWHERE = ~0u;

// Words of a parameter in the maps for both ways.
struct Places {
  u32 forward, back;
};
__device__ __forceinline__ Places places_of(const ImageArgs& a, u64 i) { return {a.forward_map[i], a.back ? a.back_map[i] : NOWHERE}; }

__device__ __forceinline__ void store_in(unsigned char* image, u32 at, float x) {
  if (image && at != NOWHERE) store_right(image + (at & 0x0fffffff), x, ((at >> 28) + 1) * 16);
}
__device__ __forceinline__ void store_online(const ImageArgs& a, Places to, float x) {
  store_in(a.online, to.forward, x);
  store_in(a.back, to.back, x);
}
__device__ __forceinline__ void store_target(const ImageArgs& a, Places to, float x) { store_in(a.target, to.forward, x); }
