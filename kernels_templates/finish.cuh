// One launch, two stages: the block that is last to finish its share of a group combines what the group's
// blocks stored.
#pragma once

/// True in all threads of the last of `count` calls for a group, one a share; then everything that the blocks
/// stored before theirs is visible. `arrivals` is 0 before the first call, and again after the last.
__device__ __forceinline__ bool last_of(unsigned int* arrivals, unsigned int count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrivals, 1u) == count - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}
