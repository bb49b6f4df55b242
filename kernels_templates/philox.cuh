// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011): the
// block of a counter, upper half 0, under a key, and the word or pair of words that stand at an index.
#pragma once

struct philox_block {
  unsigned int word[4];
};

__device__ __forceinline__ philox_block philox(unsigned long long counter, unsigned long long key) {
  unsigned int c0 = (unsigned int)counter, c1 = (unsigned int)(counter >> 32), c2 = 0, c3 = 0;
  unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned int p = __umulhi(0xd2511f53u, c0), q = __umulhi(0xcd9e8d57u, c2);
    const unsigned int n0 = q ^ c1 ^ k0, n1 = 0xcd9e8d57u * c2, n2 = p ^ c3 ^ k1, n3 = 0xd2511f53u * c0;
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

__device__ __forceinline__ unsigned int philox_word(unsigned long long index, unsigned long long key) {
  const philox_block b = philox(index >> 2, key);
  const unsigned int low = index & 1 ? b.word[1] : b.word[0], high = index & 1 ? b.word[3] : b.word[2];
  return index & 2 ? high : low;
}

__device__ __forceinline__ unsigned long long philox_pair(unsigned long long index, unsigned long long key) {
  const philox_block b = philox(index >> 1, key);
  const unsigned int low = index & 1 ? b.word[2] : b.word[0], high = index & 1 ? b.word[3] : b.word[1];
  return low | (unsigned long long)high << 32;
}
