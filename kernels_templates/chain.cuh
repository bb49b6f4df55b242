// A chain of items: a block takes one, stores what those after it need, and then reads what those before it
// stored. Items are given out in ascending order, so that whatever an item waits for is already being worked
// on. `counters`: items given out, blocks that have left, a bit an item; all 0 before the launch and after
// it.
#pragma once

/// The next item, for all threads of the block.
__device__ __forceinline__ unsigned int next_item(unsigned int* counters) {
  __shared__ unsigned int item;
  __syncthreads();
  if (threadIdx.x == 0) item = atomicAdd(counters, 1u);
  __syncthreads();
  return item;
}

/// What this thread has stored is there for those who wait for the item.
__device__ __forceinline__ void publish_item(unsigned int* counters, unsigned int item) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicOr(counters + 2 + item / 32u, 1u << item % 32u);
}

/// Waits for all items before. A thread looks at 32 of them at a time.
__device__ __forceinline__ void wait_for_items(unsigned int* counters, unsigned int item) {
  for (unsigned int i = threadIdx.x; i <= item / 32u; i += blockDim.x) {
    const unsigned int before = i < item / 32u ? ~0u : (1u << item % 32u) - 1u;
    while ((*(volatile unsigned int*)(counters + 2 + i) & before) != before) {
    }
  }
  __threadfence();
  __syncthreads();
}

/// What the block's threads have stored is there for all of them.
__device__ __forceinline__ void share_in_block() {
  __threadfence_block();
  __syncthreads();
}

/// At the end of a block; the last one leaves the counters as it found them.
__device__ __forceinline__ void leave_chain(unsigned int* counters, unsigned int items) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counters + 1, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (unsigned int i = threadIdx.x; i < items / 32u + 3u; i += blockDim.x) counters[i] = 0u;
}
