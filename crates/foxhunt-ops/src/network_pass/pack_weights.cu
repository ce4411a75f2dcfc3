// Weights as the copy engine brings them to products.
//
//   pack_weights     puts every weight of the online network in its images, and of the target network in its own
//
// In: flat parameters f32 [n]; where each goes. Out: images of right operands, what is none of them left as it is. A thread has a parameter.
// Moved: 8 bytes a parameter, 4 a map, and BYTES * PARTS an image.
#include "common.cuh"
#include "shared_structs.cuh"
#include "images.cuh"

extern "C" __global__ void __launch_bounds__(256) pack_weights(PackArgs a) {
  dependency_wait();
  dependents_may_start();
  u32 i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  Places to = places_of(a.images, i);
  store_online(a.images, to, a.online[i]);
  store_target(a.images, to, a.target[i]);
}
