#include "engine/growth.h"

#include "ir/op.h"
#include "record/recorded.h"
#include "record/trace_locks.h"

#include <kiln/config.h>
#include <kiln/gpu.h>

#include <algorithm>
#include <cstring>

namespace kiln::engine {
namespace {

constexpr std::uint32_t kPatience = 2;     // growing evaluations after which growth is looked into
constexpr std::size_t kShareOfALook = 16;  // an evaluation pays for one of so many pending nodes at most
constexpr std::size_t kMostLines = 64;
constexpr std::uint32_t kIdle =
    64;  // evaluations without a value of such a line, after which the lines are forgotten
constexpr std::uint64_t kMostShare =
    8;  // at most one part of so many of the device's memory joins an evaluation

}  // namespace

struct Growth {
  std::size_t alive = 0;    // pending nodes after the latest evaluation, or more: see RecordLog::alive
  std::uint32_t grown = 0;  // evaluations in a row after which there were more than before
  std::uint32_t patience = kPatience;
  std::uint32_t idle = 0;
  std::size_t n_lines = 0;
  SourceLocation lines[kMostLines];  // whose values have joined
};

namespace {

constinit thread_local Growth growth;

/// Looks in vain make the next one rarer, only as far as the pending nodes make it dear: a program that
/// looked in vain among thousands may let values pile up later.
std::uint32_t most_patience(std::size_t pending) {
  return std::max(kPatience, static_cast<std::uint32_t>(pending / kShareOfALook));
}

bool same(SourceLocation a, SourceLocation b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool has_joined(SourceLocation line) {
  return std::any_of(growth.lines, growth.lines + growth.n_lines,
                     [&](SourceLocation l) { return same(l, line); });
}

void remember(SourceLocation line) {
  if (growth.n_lines < kMostLines && !has_joined(line)) growth.lines[growth.n_lines++] = line;
}

/// Pending nodes of the calling thread with a reference each, and how many other pending nodes read each.
struct Pending {
  std::vector<ir::Node*> nodes;
  std::vector<std::uint32_t> reads;

  Pending() = default;
  /// The caller holds the trace lock here, and not when this object dies: freeing memory may run a user's
  /// deleter.
  void read() {
    ir::pending_nodes(nodes);
    reads.assign(nodes.size(), 0);
    for (const ir::Node* n : nodes)
      for (const ir::Node* in : ir::operands(*n)) {
        if (in && in->home == ir::current_trace() && in->marked() < nodes.size() && nodes[in->marked()] == in)
          ++reads[in->marked()];
      }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    for (ir::Node* n : nodes) ir::release(n);
  }
  bool held(std::size_t i) const { return nodes[i]->refs.load(std::memory_order_relaxed) - 1 > reads[i]; }
};

/// Whether a node is a value of its own, made of arguments on the roots' device.
bool may_join(const ir::Node* n, std::span<ir::Node* const> roots) {
  const ir::OpKind kind = ir::info(n->op).kind;
  if (!ir::has_value(n->op) || kind == ir::OpKind::LoopState) return false;
  // a counter, which the host writes
  if (kind == ir::OpKind::LoopResult && ir::attributes<ir::LoopResult>(*n).index == 0 &&
      ir::attributes<ir::Loop>(*n->in[0]).count > 0)
    return false;
  return n->device != ir::kAnyDevice && n->device == roots.front()->device &&
         std::find(roots.begin(), roots.end(), n) == roots.end();
}

}  // namespace

void Joining::collect(std::span<ir::Node* const> roots) {
  if (ir::current_trace() == ir::kSharedTrace || ir::recorded.unnoted > 0 || config().mode == Mode::Eager)
    return;
  const bool grown = growth.grown >= growth.patience;
  std::uint64_t room = memory_use(ir::device_of(roots.front()->device)).limit / kMostShare;
  Pending pending;
  {
    const ir::TraceGuard guard;
    pending.read();
    for (std::size_t i = 0; i < pending.nodes.size(); ++i) {
      ir::Node* const n = pending.nodes[i];
      if (!pending.held(i) || !((grown && pending.reads[i] == 0) || has_joined(n->loc)) ||
          !may_join(n, roots))
        continue;
      const auto bytes = static_cast<std::uint64_t>(n->numel * size_of(n->dtype));
      if (bytes > room) continue;
      room -= bytes;
      joined_.push_back(ir::NodeRef::share(n));
    }
  }
  if (grown) {
    growth.grown = 0;
    growth.patience =
        joined_.empty() ? std::min(2 * growth.patience, most_patience(pending.nodes.size())) : kPatience;
    for (const ir::NodeRef& n : joined_) remember(n->loc);
  }
  growth.idle = joined_.empty() ? growth.idle + 1 : 0;
  if (growth.idle > kIdle) growth.n_lines = 0;
  if (joined_.empty()) return;
  nodes_.assign(roots.begin(), roots.end());
  for (const ir::NodeRef& n : joined_) nodes_.push_back(n.get());
}

Joining::Joining(std::span<ir::Node* const> roots) : growth_(growth) {
  if (growth_.grown >= growth_.patience || growth_.n_lines > 0) [[unlikely]]
    collect(roots);
}

void forget_growth() { growth = {}; }

Joining::~Joining() {
  const std::size_t alive = ir::recorded.alive;
  if (alive > growth_.alive) ++growth_.grown;
  if (alive < growth_.alive) {
    growth_.grown = 0;
    growth_.patience = std::min(growth_.patience, most_patience(alive));
  }
  growth_.alive = alive;
}

}  // namespace kiln::engine
