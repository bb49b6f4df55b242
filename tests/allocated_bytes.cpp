// Operators new and delete of the tests' program, which shared libraries use as well. The forms for arrays
// and those that do not throw call these. Under a sanitizer there are none: its own operators tell memory of
// new from memory of malloc.
#include "allocated_bytes.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KILN_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define KILN_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef KILN_COUNTS_ALLOCATIONS
#define KILN_COUNTS_ALLOCATIONS 1
#endif

namespace kiln::testing {

constinit static thread_local Allocated of_this_thread;

Allocated allocated() { return of_this_thread; }
bool counts_allocations() { return KILN_COUNTS_ALLOCATIONS != 0; }

}  // namespace kiln::testing

#if KILN_COUNTS_ALLOCATIONS
namespace {

/// What `allocate` gives, with the tries of a new-handler that the standard asks for.
template <class F>
void* counted(std::size_t size, F allocate) {
  kiln::testing::of_this_thread.bytes += size;
  ++kiln::testing::of_this_thread.calls;
  for (;;) {
    if (void* const p = allocate()) return p;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size, [size] { return std::malloc(size != 0 ? size : 1); });
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto whole = static_cast<std::size_t>(alignment);
  const std::size_t padded = (size + whole - 1) / whole * whole;
  if (padded < size) throw std::bad_alloc();
  return counted(size, [=] { return std::aligned_alloc(whole, padded != 0 ? padded : whole); });
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif
