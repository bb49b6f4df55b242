// The log of recorded nodes: which nodes a thread has recorded, in order, so that a trace that nobody reads can be found
// and computed in parts. An entry holds no reference: a node's count is what handles and the trace make of it, and a
// temporary dies when its last handle does. Whether an entry's slot still holds a node of this thread is looked up when
// the log is read.
#pragma once

#include "ir/node.h"

#include <vector>

namespace kiln::ir {

/// Recorded nodes after which a thread looks at its log.
inline constexpr std::size_t kRecordedLimit = 4096;
/// … and bytes of memory put into new leaves.
inline constexpr std::uint64_t kLeafBytesLimit = std::uint64_t{512} << 20;

struct RecordLog {
  Node** begin = nullptr;
  Node** next = nullptr;   // where the next node is noted
  Node** end = nullptr;    // of the memory
  Node** limit = nullptr;  // at which it is time to look; null once new leaves take much memory
  std::uint64_t leaf_bytes = 0;
  std::size_t alive = 0;   // noted nodes that have neither died nor been computed, or more: other threads may do either

  std::size_t size() const { return static_cast<std::size_t>(next - begin); }
  /// A noted node is no longer pending. Without any, the log starts over: that costs less than reading it.
  void settle() {
    if (alive > 0 && --alive == 0) next = begin;
  }
  bool full() const { return next >= limit; }
};
extern constinit thread_local RecordLog recorded;

/// The calling thread's nodes that are alive and not computed, in the order they were recorded, each with a reference
/// for the caller and its position as mark. The log keeps these alone. The caller holds the trace lock.
void pending_nodes(std::vector<Node*>& nodes);

/// While one lives, what its thread records is not noted: nodes of a body, which cannot be computed on their own.
class UnnotedRecording {
 public:
  UnnotedRecording() : size_(recorded.size()) {}
  ~UnnotedRecording() {
    if (recorded.begin) recorded.next = recorded.begin + size_;
  }
  UnnotedRecording(const UnnotedRecording&) = delete;
  UnnotedRecording& operator=(const UnnotedRecording&) = delete;

 private:
  std::size_t size_;
};

}  // namespace kiln::ir
