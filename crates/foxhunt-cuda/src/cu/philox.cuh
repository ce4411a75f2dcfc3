// Philox4x32-10 (Salmon et al., SC 2011) with the addresses of foxhunt_core::philox:
// counter = [step low, step high, stream, purpose | block << 8], key = [seed low, seed high].
#pragma once

__device__ __forceinline__ void philox4x32(u32 c[4], u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 a = (u64)0xD2511F53u * c[0], b = (u64)0xCD9E8D57u * c[2];
    u32 n0 = (u32)(b >> 32) ^ c[1] ^ k0, n2 = (u32)(a >> 32) ^ c[3] ^ k1;
    c[1] = (u32)b;
    c[3] = (u32)a;
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// The first 64 bits of block 0 of (purpose, stream, step): word 0 is the upper half.
__device__ __forceinline__ u64 philox_u64(u64 seed, u32 purpose, u32 stream, u64 step) {
  u32 c[4] = {(u32)step, (u32)(step >> 32), stream, purpose};
  philox4x32(c, (u32)seed, (u32)(seed >> 32));
  return (u64)c[0] << 32 | c[1];
}
