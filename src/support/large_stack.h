// Work that calls itself deeper than a caller's stack may allow: a compiler's.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace kiln {

inline constexpr std::size_t kLargeStack = std::size_t{16} << 20;  // reserved, not used: pages are taken as they are touched

/// Calls f, which throws nothing, on a thread of its own with a large stack, and returns when it has. Where there is no memory
/// for such a thread, f runs on the caller's.
template <class F>
void on_large_stack(F f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kLargeStack);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    (*static_cast<F*>(given))();
    return nullptr;
  };
  const bool made = pthread_create(&thread, &attributes, run, &f) == 0;
  pthread_attr_destroy(&attributes);
  if (made)
    pthread_join(thread, nullptr);
  else
    f();
}

}  // namespace kiln
