// Plans of many short launches as graphs, which a device enqueues as a whole (CUDA graphs). A graph holds
// addresses, so a plan has one for each set of arguments and results that came again: a loop's memory mostly
// does, since the pool gives back what was freed last. In runs with other memory, and for scalars and
// positions, the arguments of a graph's launches are set anew.
#pragma once

#include "device/device.h"
#include "record/node.h"
#include "support/hash128.h"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace kiln::engine {

struct Plan;

/// Whether graphs are worth a try: where the device has them, of launches and of library calls that can be
/// recorded, and many of them.
bool suits_graph(const Plan& plan);

struct ReleaseBuffer {
  void operator()(ir::Buffer* b) const { ir::release(b); }
};
using HeldBuffer = std::unique_ptr<ir::Buffer, ReleaseBuffer>;

/// The graphs of one plan.
class PlanGraphs {
 public:
  struct Entry {
    Hash128 key, fixed;                // see launch()
    std::vector<std::uint64_t> slots;  // values that its launches have
    std::vector<std::byte*> arguments,
        results;                       // addresses that they have; of buffers that are no results: null
    std::vector<std::uint32_t> owned;  // the plan's buffers that are its own: intermediates
    std::vector<HeldBuffer> memory;    // theirs
    HeldBuffer workspace;              // of library calls
    std::unique_ptr<device::Graph> graph;
    std::uint64_t used = 0;
  };

  enum class Answer : std::uint8_t { Launched, Capture, Run };
  /// `key`: of all that a graph has, but for slots; `fixed`: of the part that `set_anew` cannot change.
  /// Launched: a graph was enqueued, after `set_anew` where it had other arguments.
  /// Capture: the memory came before, or the fixed part did twice, and no graph serves it.
  Answer launch(const Hash128& key, const Hash128& fixed, std::span<const std::uint64_t> slots,
                const std::function<void(Entry&)>& set_anew);
  /// Keeps a graph in place of the one that was used longest ago; without a graph, the plan is not captured
  /// again.
  void keep(Entry entry);

 private:
  static constexpr std::size_t kGraphs = 4;
  static constexpr std::size_t kSeen = 8;

  std::mutex mutex_;
  bool refused_ = false;
  std::vector<Entry> entries_;
  struct Seen {
    Hash128 key, fixed;
  };
  std::array<Seen, kSeen> seen_{};
  std::size_t next_seen_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace kiln::engine
