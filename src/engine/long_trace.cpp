// Where to cut. A loop records the same operations from the same lines again and again: the sequence of
// (operation, dtype, line) ends in a stretch of some period, found by the failure function of its reversal
// (Knuth, Morris and Pratt, 1977). That stretch is cut into blocks of a whole number of periods; each block's
// graph is then equal to the one before, and so is its plan. What a block hands on (to later nodes or to
// handles) is stored.
//
// Invariant: blocks are computed in recording order, so that a block reads leaves and its own nodes alone.
#include "engine/long_trace.h"

#include "device/cpu/pool.h"
#include "engine/evaluate.h"
#include "inspect/statistics.h"
#include "record/recorded.h"
#include "record/step_alias.h"
#include "record/trace_locks.h"
#include "support/check.h"
#include "support/log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace kiln::engine {
namespace {

constexpr std::size_t kBlock = 128;  // nodes of a block, about: a kernel or two
constexpr std::size_t kWideBlock =
    4096;  // … where one period does not need the one before: plans run it side by side
constexpr std::size_t kMostNodes = 16384;  // recorded nodes that are computed whether they repeat or not
constexpr std::size_t kMostInStep = std::size_t{1} << 18;  // the same of derivatives' steps, which stay whole
constexpr std::size_t kRepeats = 3;                        // periods that make a repetition
constexpr int kMostRuns = 16;

/// Nodes of the calling thread's trace with a reference each.
class Pending {
 public:
  Pending() {
    const ir::TraceGuard guard;
    ir::pending_nodes(nodes);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    for (ir::Node* n : nodes) ir::release(n);
  }

  /// Position of an operand among the nodes, or their number.
  std::size_t find(const ir::Node* n) const {
    if (!n || n->home != ir::current_trace()) return nodes.size();
    const std::size_t at = n->marked();
    return at < nodes.size() && nodes[at] == n ? at : nodes.size();
  }

  std::vector<ir::Node*> nodes;
};

struct Part {
  std::size_t begin, end;
};

struct Repetition {
  std::size_t length = 0, period = 0;  // of the end of a sequence
};

/// The longest end of symbols[0, end) that consists of at least kRepeats periods.
Repetition repetition(const std::vector<std::uint64_t>& symbols, std::size_t end) {
  std::vector<std::uint32_t> border(end + 1, 0);  // of the first m symbols, read backward
  const auto at = [&](std::size_t i) { return symbols[end - 1 - i]; };
  Repetition best;
  for (std::size_t m = 2; m <= end; ++m) {
    std::uint32_t b = border[m - 1];
    while (b > 0 && at(b) != at(m - 1)) b = border[b];
    border[m] = b + (at(b) == at(m - 1));
    const std::size_t period = m - border[m];
    if (kRepeats * period <= m) best = {m, period};
  }
  return best;
}

struct Cut {
  std::vector<Part> parts;
  std::size_t rest = 0;   // where what is left for later begins
  std::size_t block = 0;  // nodes of the newest blocks; 0: nothing repeats
  bool apart = false;     // the newest periods need not follow each other
};

/// Cuts a sequence into blocks where it repeats and stretches where it does not. `certain`: the repetition
/// must make up half of it, else nothing is cut. `apart(begin, end, period)`: whether the periods between
/// need not follow each other.
template <class F>
Cut cut(const std::vector<std::uint64_t>& symbols, bool certain, F apart) {
  Cut out;
  std::size_t end = symbols.size();
  out.rest = end;
  for (int run = 0; end > 0 && run < kMostRuns; ++run) {
    const Repetition r = repetition(symbols, end);
    if (run == 0 && certain && 2 * r.length < end) {
      out.rest = 0;
      return out;
    }
    if (r.length == 0) break;
    const bool wide = apart(end - r.length, end, r.period);
    const std::size_t size = wide ? kWideBlock : kBlock;
    // A short stretch ends where other threads' leaves have made this one look: powers of two are few plans
    // nonetheless.
    const std::size_t periods = std::bit_floor(r.length / r.period);
    const std::size_t block = r.period * std::clamp<std::size_t>(size / r.period, 1, periods);
    const std::size_t begin = end - r.length, blocks = r.length / block, last = begin + blocks * block;
    if (run == 0) {
      out.rest = last;
      out.block = block;
      out.apart = wide;
    } else if (last < end) {
      out.parts.push_back({last, end});
    }
    for (std::size_t b = blocks; b-- > 0;) out.parts.push_back({begin + b * block, begin + (b + 1) * block});
    end = begin;
  }
  for (std::size_t size = ir::kRecordedLimit; end > 0; end -= std::min(end, size))
    out.parts.push_back({end - std::min(end, size), end});
  std::reverse(out.parts.begin(), out.parts.end());
  return out;
}

std::uint64_t symbol(const ir::Node& n) {
  std::uint64_t line;
  std::memcpy(&line, &n.loc, sizeof line);
  return line * 0x9e3779b97f4a7c15u +
         (static_cast<std::uint64_t>(n.op) << 8 | static_cast<std::uint64_t>(n.dtype));
}

/// The chosen nodes of a trace, in recording order, as parts to compute.
class Parts {
 public:
  Parts(const Pending& pending, std::vector<std::uint32_t> chosen, bool certain)
      : pending_(pending), chosen_(std::move(chosen)), place_(pending.nodes.size(), kNowhere) {
    std::vector<std::uint64_t> symbols;
    for (std::uint32_t i : chosen_) {
      place_[i] = static_cast<std::uint32_t>(symbols.size());
      symbols.push_back(symbol(*pending_.nodes[i]));
    }
    cut_ = cut(symbols, certain, [&](std::size_t begin, std::size_t end, std::size_t period) {
      return apart(begin, end, period);
    });
  }

  const Cut& cuts() const { return cut_; }

  /// Whether the cut leaves the steps of derivatives whole: layers of a network repeat themselves as well,
  /// but what is stored between forward and backward is for one planner to choose. A step records the aliases
  /// of its parameters, so that a block of whole steps has some, and a block of layers none, nor one of
  /// layers that are computed again backward.
  bool leaves_steps_whole() const {
    const auto begins = [&](std::uint32_t i) { return ir::begins_step(*pending_.nodes[i]); };
    if (chosen_.size() >= kMostInStep || std::ranges::none_of(chosen_, begins)) return true;
    const auto end = chosen_.begin() + static_cast<std::ptrdiff_t>(cut_.rest);
    return cut_.block > 0 && std::any_of(end - static_cast<std::ptrdiff_t>(cut_.block), end, begins);
  }

  /// The nodes of each part whose value something outside the part refers to. Bytes of those that handles
  /// refer to are added to held_bytes. The caller holds the trace lock.
  std::vector<std::vector<ir::NodeRef>> roots(std::uint64_t& held_bytes) const {
    std::vector<std::uint32_t> uses(chosen_.size()), uses_within(chosen_.size());
    for (std::size_t i : pending_positions()) each_operand(i, [&](std::uint32_t p) { ++uses[p]; });
    std::vector<std::vector<ir::NodeRef>> out;
    for (const Part& part : cut_.parts) {
      for (std::size_t i = part.begin; i < part.end; ++i)
        each_operand(chosen_[i], [&](std::uint32_t p) { uses_within[p] += p >= part.begin; });
      auto& roots = out.emplace_back();
      for (std::size_t i = part.begin; i < part.end; ++i) {
        ir::Node* const n = pending_.nodes[chosen_[i]];
        const std::uint32_t refs = n->refs.load(std::memory_order_relaxed) - 1;  // without ours
        if (refs > uses_within[i] && ir::has_value(n->op)) roots.push_back(ir::NodeRef::share(n));
        if (refs > uses[i]) held_bytes += static_cast<std::uint64_t>(n->numel * size_of(n->dtype));
      }
    }
    return out;
  }

 private:
  static constexpr std::uint32_t kNowhere = 0xffffffffu;

  std::vector<std::size_t> pending_positions() const {
    std::vector<std::size_t> all(pending_.nodes.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  template <class F>
  void each_operand(std::size_t i, F f) const {
    const ir::Node* n = pending_.nodes[i];
    for (const ir::Node* in : ir::operands(*n))
      if (const std::size_t p = pending_.find(in); p < place_.size() && place_[p] != kNowhere) f(place_[p]);
  }

  /// Whether periods of a stretch do not depend on ones before them: an optimizer's step, not a loop's. A
  /// period need not begin where its computation does, so that one may reach into the next.
  bool apart(std::size_t begin, std::size_t end, std::size_t period) const {
    std::vector<std::uint32_t> chain(end - begin);  // periods that follow each other up to here
    for (std::size_t i = begin; i < end; ++i) {
      std::uint32_t& longest = chain[i - begin];
      each_operand(chosen_[i], [&](std::uint32_t p) {
        if (p < begin) return;
        const bool before = (p - begin) / period != (i - begin) / period;
        longest = std::max(longest, chain[p - begin] + before);
      });
      if (longest > 1) return false;
    }
    return true;
  }

  const Pending& pending_;
  std::vector<std::uint32_t> chosen_;  // positions among the pending nodes
  std::vector<std::uint32_t> place_;   // the inverse
  Cut cut_;
};

/// True while the thread computes parts: what that records is not looked at.
thread_local bool cutting = false;
class Cutting {
 public:
  Cutting() { cutting = true; }
  ~Cutting() { cutting = false; }
};

void compute(std::vector<std::vector<ir::NodeRef>> parts) {
  const Cutting scope;
  std::vector<ir::Node*> roots;
  for (auto& part : parts) {
    roots.clear();
    for (const ir::NodeRef& n : part) roots.push_back(n.get());
    if (!roots.empty()) evaluate_part(roots);
    part.clear();
  }
}

/// Bytes of the buffers that nobody but the nodes needs: what a handle shows too stays, computed or not. An
/// estimate while other threads run.
std::uint64_t pinned_bytes(const Pending& pending) {
  std::unordered_map<const ir::Node*, std::uint32_t> reads;  // of leaves
  for (const ir::Node* n : pending.nodes)
    for (const ir::Node* in : ir::operands(*n))
      if (in && ir::op_now(in) == ir::Op::leaf) ++reads[in];
  std::unordered_map<const ir::Buffer*, std::uint32_t> shown;  // by leaves without other readers
  for (const auto& [leaf, count] : reads)
    if (leaf->refs.load(std::memory_order_relaxed) == count) ++shown[leaf->buffer];
  std::uint64_t bytes = 0;
  for (const auto& [buffer, count] : shown)
    if (buffer->refs.load(std::memory_order_relaxed) == count) bytes += buffer->bytes;
  return bytes;
}

/// Says once a line where recording was cut. A long body ends at another line each time: after some lines no
/// more is said, unless the log is asked for.
void notice(SourceLocation loc, std::size_t count, std::size_t parts, std::size_t block) {
  constexpr std::size_t kMostLines = 5;
  struct Said {
    std::mutex mutex;
    std::set<std::string> lines;
  };
  static Said* const said = new Said;  // detached threads may record during exit
  const std::string line = cat(loc.file_name(), ":", loc.line());
  std::size_t lines;
  {
    const std::lock_guard lock(said->mutex);
    if (said->lines.size() >= kMostLines && !log_enabled(Topic::Trace)) return;
    if (!said->lines.insert(line).second) return;
    lines = said->lines.size();
  }
  warn(cat("recording cut at ", line, ": ", count,
           " operations recorded since anything was read; computing them in ", parts, " parts",
           block ? cat(" (blocks of ", block, ", which repeat)") : std::string(),
           "; eval() at a place of your choice is cheaper",
           lines == kMostLines ? "; further lines are named with KILN_LOG=trace only" : ""));
}

/// Whether an evaluation of this key has been cut before; notes it. Of the newest ones.
bool came_before(const Hash128& key) {
  constexpr std::size_t kNoted = 64;
  struct Noted {
    std::mutex mutex;
    std::array<Hash128, kNoted> keys = {};
    std::size_t next = 0;
  };
  static Noted* const noted = new Noted;  // detached threads may evaluate during exit
  const std::lock_guard lock(noted->mutex);
  if (std::ranges::find(noted->keys, key) != noted->keys.end()) return true;
  noted->keys[noted->next++ % kNoted] = key;
  return false;
}

void look_again_at(std::size_t nodes) {
  if (ir::recorded.begin) ir::recorded.limit = ir::recorded.begin + nodes;
}

std::vector<std::uint32_t> everything(const Pending& pending) {
  std::vector<std::uint32_t> all(pending.nodes.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

/// The pending nodes that the roots need.
std::vector<std::uint32_t> needed(const Pending& pending, std::span<ir::Node* const> roots) {
  std::vector<bool> seen(pending.nodes.size());
  std::vector<std::size_t> stack;
  const auto visit = [&](const ir::Node* n) {
    if (const std::size_t i = pending.find(n); i < seen.size() && !seen[i]) {
      seen[i] = true;
      stack.push_back(i);
    }
  };
  for (const ir::Node* root : roots) visit(root);
  while (!stack.empty()) {
    const ir::Node* n = pending.nodes[stack.back()];
    stack.pop_back();
    for (const ir::Node* in : ir::operands(*n)) visit(in);
  }
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < seen.size(); ++i)
    if (seen[i]) out.push_back(i);
  return out;
}

}  // namespace

void bound_recording(const ir::Node& newest) {
  if (cutting || ir::recorded.unnoted > 0 || ir::recorded.whole > 0) return;
  const bool long_enough = ir::recorded.long_enough();
  const bool many_bytes = ir::recorded.much_memory();
  ir::recorded.seen_stretch = ir::leaf_stretch.load(std::memory_order_relaxed);
  if (ir::current_trace() == ir::kSharedTrace) return;
  std::vector<std::vector<ir::NodeRef>> parts;
  std::size_t count = 0, block = 0;
  {
    const Pending pending;
    const ir::TraceGuard guard;
    count = pending.nodes.size();
    const bool pinned = many_bytes && pinned_bytes(pending) >= ir::kLeafBytesLimit / 2;
    if (!pinned && !long_enough) return;
    if (!pinned && 2 * count < ir::kRecordedLimit) return look_again_at(ir::kRecordedLimit);
    const Parts whole(pending, everything(pending), count < kMostNodes && !pinned);
    block = whole.cuts().block;
    std::uint64_t held_bytes = 0;
    if (!whole.cuts().parts.empty() && (pinned || whole.leaves_steps_whole()))
      parts = whole.roots(held_bytes);
    // What handles hold stays in memory: somebody who keeps that much wants it computed piece by piece, or
    // never.
    if (parts.empty() || held_bytes > cpu::pool_statistics().limit / 4)
      return look_again_at(2 * std::max(ir::kRecordedLimit, count));
  }
  engine::count(engine::Counter::Cuts);
  notice(newest.loc, count, parts.size(), block);
  compute(std::move(parts));
  {
    const Pending rest;
  }  // drops from the log what is computed
  look_again_at(std::max(ir::kRecordedLimit, 4 * block));
}

void recording_was_read() {
  if (ir::recorded.size() < ir::kRecordedLimit / 2) look_again_at(ir::kRecordedLimit);
}

void compute_repeats(std::span<ir::Node* const> roots, const Hash128& key) {
  if (cutting || ir::current_trace() == ir::kSharedTrace) return;
  std::vector<std::vector<ir::NodeRef>> parts;
  {
    const Pending pending;
    const ir::TraceGuard guard;
    std::vector<std::uint32_t> chosen = needed(pending, roots);
    const std::size_t count = chosen.size();
    if (count < kLongTrace) return;
    const Parts whole(pending, std::move(chosen), true);
    if (whole.cuts().parts.size() < 2) return;  // nothing would be planned twice
    if (!whole.leaves_steps_whole()) return;
    if (whole.cuts().apart && count < kMostNodes && came_before(key)) return;
    std::uint64_t held_bytes = 0;
    parts = whole.roots(held_bytes);
  }
  compute(std::move(parts));
}

}  // namespace kiln::engine
