// Who may walk and change a trace. Recording takes no lock. An evaluation reads nodes that another evaluation
// may turn into leaves, so each recording thread has a trace lock: an evaluation that meets only its own
// thread's nodes holds that one uncontended lock; one that meets a foreign node starts over holding all of
// them.
#pragma once

#include <atomic>
#include <cstdint>

namespace kiln::ir {

/// Identity of the calling thread's trace. A trace outlives its thread: the next thread that begins to record
/// goes on with it, log and all, so that what short threads record one after another is counted like what one
/// thread records.
extern constinit thread_local std::uint16_t current_trace_id;
std::uint16_t assign_trace();
/// Of threads that found 4,094 others recording, and of those whose thread-local objects are gone. What they
/// record is not noted, for nothing tells one's nodes from another's.
inline constexpr std::uint16_t kSharedTrace = 4095;
inline std::uint16_t current_trace() {
  const std::uint16_t id = current_trace_id;
  return id ? id : assign_trace();
}

/// Holds the calling thread's trace lock, or after `widen` every trace lock.
class TraceGuard {
 public:
  TraceGuard();
  ~TraceGuard();
  TraceGuard(const TraceGuard&) = delete;
  TraceGuard& operator=(const TraceGuard&) = delete;
  bool covers(std::uint16_t home) const { return all_ || home == own_; }
  bool wide() const { return all_; }
  bool held() const { return held_; }
  /// Releases and takes all locks: what was read before must be read again.
  void widen();
  void unlock();
  void relock();

 private:
  std::uint16_t own_;
  bool all_ = false;
  bool held_ = true;
};

/// Every trace lock and the list of traces, for fork.
void lock_all_traces();
void unlock_all_traces();

}  // namespace kiln::ir
