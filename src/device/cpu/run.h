// Runs launches of kernels on the calling thread, or over all threads where that pays.
#pragma once

#include "device/launch.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace kiln::cpu {

/// Returns when the kernel has run. Pre: the code is an Executable.
void run(const device::Bound& bound);

/// The epilogue of a product for one rectangle of its sums, on the calling thread. `memory`:
/// epilogue_memory() bytes, aligned to 64. Pre: the code is an Executable, and Launch::given says what comes
/// with the call.
void run_epilogue(const device::Bound& bound, const device::Rectangle& at, std::byte* memory);
std::size_t epilogue_memory(const device::Launch& launch);

/// One item of a launch's grid, on the calling thread. What it writes, `bytes` of Launch::given_buffer's
/// memory for each item, goes to `to`. Pre: the code is an Executable without scratch memory and sections.
void make_piece(const device::Bound& bound, std::int64_t item, std::int64_t bytes, std::byte* to);

/// Is called for every rectangle of one launch instead of its code, from any threads, and runs that by `run`.
/// `params`: the launch's, with those of the rectangle.
struct RectangleObserver {
  const device::Launch* launch;
  std::function<void(const device::Rectangle& at, std::span<const std::int64_t> params,
                     const std::function<void()>& run)>
      observe;
};
/// Null: nobody observes. Pre: the launch does not run.
void observe_rectangles(const RectangleObserver* observer);

}  // namespace kiln::cpu
