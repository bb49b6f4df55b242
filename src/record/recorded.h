// The log of recorded nodes: which nodes a trace consists of, in order, so that one that nobody reads can be
// found and computed in parts. A thread writes the log of its own trace; the log outlives it with the trace
// (see trace_locks.h). An entry holds no reference: a node's count is what handles and the trace make of it,
// and a temporary dies when its last handle does. Whether an entry's slot still holds a node of this thread
// is looked up when the log is read.
#pragma once

#include "record/node.h"

#include <atomic>
#include <vector>

namespace kiln::ir {

/// Recorded nodes after which a thread looks at its log.
inline constexpr std::size_t kRecordedLimit = 4096;
/// Bytes of leaves that recorded nodes alone keep in memory at most, about.
inline constexpr std::uint64_t kLeafBytesLimit = std::uint64_t{512} << 20;
/// Bytes put into leaves, by whatever thread, after which every thread looks at its log: one may make what
/// another records on. Half the limit, so that what is left alone as too little at one look is found before
/// the limit at the next.
inline constexpr std::uint64_t kLeafStretch = kLeafBytesLimit / 2;
/// How many times that has been.
extern std::atomic<std::uint32_t> leaf_stretch;

struct RecordLog {
  Node** begin = nullptr;
  Node** next = nullptr;           // where the next node is noted
  Node** end = nullptr;            // of the memory
  Node** limit = nullptr;          // at which it is time to look
  std::uint64_t leaf_bytes = 0;    // put into leaves here and not counted in the process's yet
  std::uint32_t seen_stretch = 0;  // leaf_stretch at the latest look
  int unnoted = 0;                 // scopes of UnnotedRecording
  int whole = 0;                   // scopes of WholeRecording
  std::size_t alive =
      0;  // noted nodes that have neither died nor been computed, or more: other threads may do either

  std::size_t size() const { return static_cast<std::size_t>(next - begin); }
  /// A noted node is no longer pending. Without any, the log starts over: that costs less than reading it.
  void settle() {
    if (alive > 0 && --alive == 0) next = begin;
  }
  bool long_enough() const { return next >= limit; }
  bool much_memory() const { return seen_stretch != leaf_stretch.load(std::memory_order_relaxed); }
  bool full() const { return long_enough() || much_memory(); }
};
extern constinit thread_local RecordLog recorded;

/// Counts memory that a leaf shows, when it is made or computed.
void count_leaf_bytes(std::uint64_t bytes);

/// The nodes of the calling thread's trace that are alive and not computed, in the order they were recorded,
/// each with a reference for the caller and its position as mark. The log keeps these alone. The caller holds
/// the trace lock.
void pending_nodes(std::vector<Node*>& nodes);

/// While one lives, nothing that its thread records is computed for its length: a derivative will be recorded
/// behind it, and both are to be planned as a whole.
class WholeRecording {
 public:
  WholeRecording() { ++recorded.whole; }
  ~WholeRecording() { --recorded.whole; }
  WholeRecording(const WholeRecording&) = delete;
};

/// While one lives, what its thread records is not noted, nor is anything computed for its length: nodes of a
/// body cannot be computed on their own.
class UnnotedRecording {
 public:
  UnnotedRecording() : size_(recorded.size()) { ++recorded.unnoted; }
  ~UnnotedRecording() {
    --recorded.unnoted;
    if (recorded.begin) recorded.next = recorded.begin + size_;
  }
  UnnotedRecording(const UnnotedRecording&) = delete;
  UnnotedRecording& operator=(const UnnotedRecording&) = delete;

 private:
  std::size_t size_;
};

}  // namespace kiln::ir
