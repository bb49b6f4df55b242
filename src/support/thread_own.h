// Objects of a thread that outlive its thread_local destructors: a static object's destructor may evaluate a
// tensor when the main thread's are gone already.
#pragma once

namespace kiln {

/// The calling thread's T, one for each Tag; made at first use, destroyed with the thread. One asked for
/// after that is made anew and leaked.
template <class T, class Tag>
T& thread_own() {
  constinit static thread_local T* value = nullptr;
  if (value) [[likely]]
    return *value;
  struct Reaper {
    ~Reaper() {
      delete value;
      value = nullptr;
    }
  };
  value = new T;
  static thread_local Reaper reaper;
  (void)reaper;
  return *value;
}

}  // namespace kiln
