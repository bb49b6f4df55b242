// Work that calls itself deeper than a caller's stack may allow: a compiler's, the writing of a long
// expression.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>

namespace kiln {

// reserved, not used: pages are taken as they are touched
inline constexpr std::size_t kLargeStack = std::size_t{16} << 20;

/// Calls f on a thread of its own with a large stack, and returns when it has; what f throws is thrown here.
/// Where there is no memory for such a thread, f runs on the caller's.
template <class F>
void on_large_stack(F f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kLargeStack);
  struct Job {
    F& f;
    std::exception_ptr thrown;
  } job{f, nullptr};
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    Job& j = *static_cast<Job*>(given);
    try {
      j.f();
    } catch (...) {
      j.thrown = std::current_exception();
    }
    return nullptr;
  };
  const bool made = pthread_create(&thread, &attributes, run, &job) == 0;
  pthread_attr_destroy(&attributes);
  if (!made) return f();
  pthread_join(thread, nullptr);
  if (job.thrown) std::rethrow_exception(job.thrown);
}

}  // namespace kiln
