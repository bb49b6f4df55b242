// Launches that follow each other closely: this kernel may be brought onto the device before the one ahead of
// it on the stream has ended (CUDA's programmatic dependent launch).
#pragma once

/// Every thread calls it before it touches memory; then what that kernel wrote is visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
