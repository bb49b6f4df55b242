#include "device/cuda/fake_driver/gpu.h"

#include "device/cuda/fake_driver/hopper_twin.h"
#include "device/cuda/fake_driver/ptx_twin.h"

#include <time.h>

#include <cstddef>
#include <cstdlib>

namespace fake_gpu {

Dim threadIdx, blockIdx, blockDim, gridDim;
unsigned block_number = 0;
unsigned long long offered[1024];

unsigned long long nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

namespace {

constexpr std::size_t kStackBytes = 1 << 16;

struct Fiber {
  void* top = nullptr;  // of its stack, while another one runs
  long exchanges = 0;
  bool done = false;
};
Fiber fibers[1024];
unsigned size_of_block = 0;
void* scheduler = nullptr;  // the top of the stack that begins a block
Bound* running = nullptr;

// Saves the registers that a call keeps, and continues where another stack was left. (swapcontext saves the
// signals' mask too, which costs two system calls a turn: half of the time of a kernel with many barriers.)
extern "C" void switch_stack(void** left, void* to) __asm__("kiln_switch_stack");
#ifdef __x86_64__  // elsewhere this library is not loaded
asm(".text\n.type kiln_switch_stack,@function\nkiln_switch_stack:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size kiln_switch_stack, .-kiln_switch_stack\n");
#endif

// A barrier opens once all threads that still run have arrived.
struct {
  unsigned arrived, ended;
  long opened;
} barrier;

void open_barrier() {
  if (barrier.arrived == 0 || barrier.arrived + barrier.ended != size_of_block) return;
  barrier.arrived = 0;
  ++barrier.opened;
}

/// Threads take turns in the order of their numbers.
void run_next() {
  const unsigned me = threadIdx.x;
  unsigned next = me;
  do next = next + 1 < size_of_block ? next + 1 : 0;
  while (fibers[next].done && next != me);
  if (fibers[next].done) return switch_stack(&fibers[me].top, scheduler);
  if (next == me) return;
  threadIdx.x = next;
  switch_stack(&fibers[me].top, fibers[next].top);
}

/// What a thread runs. Its stack is left for good at the end.
void run_thread() {
  running->call(running);
  fibers[threadIdx.x].done = true;
  ++barrier.ended;
  open_barrier();
  run_next();
}

/// A stack on which switch_stack finds six registers and the address of run_thread.
void* new_stack(char* memory) {
  void** top = reinterpret_cast<void**>(memory + kStackBytes);
  *--top = nullptr;  // where run_thread would return to
  *--top = reinterpret_cast<void*>(run_thread);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}

/// The stacks of as many threads as a block may have; the system provides the pages that are touched.
char* stacks() {
  static char* const all = static_cast<char*>(std::aligned_alloc(4096, 1024 * kStackBytes));
  return all;
}

void run_block() {
  ++block_number;
  begin_copies();
  begin_hopper();
  barrier = {};
  for (unsigned t = 0; t < size_of_block; ++t) fibers[t] = {new_stack(stacks() + t * kStackBytes)};
  threadIdx = {0, 0, 0};
  switch_stack(&scheduler, fibers[0].top);
}

}  // namespace

unsigned threads() { return size_of_block; }

void turn() { run_next(); }

void __syncthreads() {
  const long before = barrier.opened;
  ++barrier.arrived;
  open_barrier();
  while (barrier.opened == before) turn();
}

int __syncthreads_or(int x) {
  static int votes;
  __syncthreads();
  if (threadIdx.x == 0) votes = 0;
  __syncthreads();
  votes |= x;
  __syncthreads();
  return votes;
}

void meet(unsigned warp, unsigned members) {
  const long mine = ++fibers[threadIdx.x].exchanges;
  const auto has_come = [&](unsigned thread) {
    return fibers[thread].done || fibers[thread].exchanges >= mine;
  };
  for (unsigned l = 0; l < 32 && warp + l < size_of_block; ++l)
    if (members >> l & 1)
      while (!has_come(warp + l)) turn();
}

unsigned __ballot_sync(unsigned members, bool x) {
  return exchange_of(members, x, [&](unsigned warp, unsigned) {
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; ++l)
      if (members >> l & 1) votes |= unsigned(offered_by<bool>(warp + l)) << l;
    return votes;
  });
}

void* memory_of_bound(unsigned long long bytes) { return std::aligned_alloc(128, (bytes + 127) / 128 * 128); }

}  // namespace fake_gpu

extern "C" {

void kiln_fake_run(void* bound, unsigned grid, unsigned block) {
  using namespace fake_gpu;
  gridDim = {grid, 1, 1};
  blockDim = {block, 1, 1};
  size_of_block = block;
  running = static_cast<Bound*>(bound);
  for (unsigned b = 0; b < grid; ++b) {
    blockIdx = {b, 0, 0};
    run_block();
  }
}

void kiln_fake_free(void* bound) { std::free(bound); }

}  // extern "C"
