// Terminates: every walk goes from a node to what it reads, and meets each node once.
#include "plan/recompute.h"

#include "plan/fuse.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_set>
#include <utility>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

constexpr float kMostCost = 6;                    // primitives a point, …
constexpr float kMostHidden = 32;                 // … or where they take less time than memory would
constexpr float kMostOfFew = 300;                 // … or where others read few of its points
constexpr std::int64_t kFewer = 64;               // times: so few
constexpr std::int64_t kLeastElements = 1 << 16;  // below, launches are all that counts
constexpr std::size_t kMostSteps = 12;            // from a result to a value that it is made of
constexpr std::int64_t kMuchSmaller = 8;  // times: a result that costs little to store, and to read again

std::int64_t bytes_of(const GraphNode& n) { return n.numel * size_of(n.dtype); }

/// What a region reads from memory.
class Operands {
 public:
  Operands(const Graph& g, const Regions& regions) : g_(g), regions_(regions), seen_(g.size()) {}

  std::vector<NodeId> of(const Region& r) const {
    begin_walk();
    for (const NodeId n : r.nodes) seen_[n] = walk_;
    std::vector<NodeId> found;
    for (const NodeId n : r.nodes) stack_.insert(stack_.end(), g_[n].in.begin(), g_[n].in.end());
    while (!stack_.empty()) {
      const NodeId at = stack_.back();
      stack_.pop_back();
      if (std::exchange(seen_[at], walk_) == walk_) continue;
      if (regions_.stored[at]) {
        found.push_back(at);
        continue;
      }
      stack_.insert(stack_.end(), g_[at].in.begin(), g_[at].in.end());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// What a node is made of by maps and affine views that take few primitives, down to memory, to results
  /// that are much smaller, and to `pivot`; false where it is made otherwise, or takes more than `most`.
  /// `maps`: itself and the maps; `cost`: theirs.
  bool below(NodeId id, const schedule::Target& target, float most, std::vector<NodeId>& found,
             std::vector<NodeId>& maps, float& cost, NodeId pivot) const {
    begin_walk();
    stack_.push_back(id);
    cost = 0;
    while (!stack_.empty()) {
      const NodeId at = stack_.back();
      stack_.pop_back();
      if (std::exchange(seen_[at], walk_) == walk_) continue;
      if (at == pivot || (at != id && regions_.stored[at])) {
        found.push_back(at);
        continue;
      }
      const GraphNode& n = g_[at];
      if (n.numel * kMuchSmaller <= g_[id].numel && ir::info(n.op).kind != OpKind::Scalar &&
          !ir::is_view(n.op)) {
        found.push_back(at);
        continue;
      }
      switch (ir::info(n.op).kind) {
        case OpKind::Elementwise:
        case OpKind::Cast:
          if (!target.gpu || !is_contracted(n)) cost += target.cost_of(static_cast<int>(n.op));
          maps.push_back(at);
          break;
        case OpKind::Scalar: break;
        case OpKind::View:
          if (n.op != Op::broadcast && n.op != Op::reshape && n.op != Op::permute && n.op != Op::slice)
            return false;
          break;
        case OpKind::Leaf:
        case OpKind::Iota:
        case OpKind::Reduce:
        case OpKind::Scan:
        case OpKind::LoopState:
        case OpKind::LoopNext:
        case OpKind::Loop:
        case OpKind::LoopResult:
        case OpKind::LoopStack:
        case OpKind::Gather:
        case OpKind::Contraction:
        case OpKind::Library:
        case OpKind::Part: return false;
      }
      if (cost > most) return false;
      stack_.insert(stack_.end(), n.in.begin(), n.in.end());
    }
    return true;
  }

 private:
  void begin_walk() const {
    ++walk_;
    stack_.clear();
  }

  /// Whether a sum is one instruction with the product that it adds.
  bool is_contracted(const GraphNode& n) const {
    return (n.op == Op::add || n.op == Op::subtract) && is_float(n.dtype) &&
           std::ranges::any_of(n.in, [&](NodeId in) { return g_[in].op == Op::multiply; });
  }

  const Graph& g_;
  const Regions& regions_;
  mutable std::vector<std::uint32_t> seen_;  // by node: the last walk that met it
  mutable std::uint32_t walk_ = 0;
  mutable std::vector<NodeId> stack_;
};

/// Roots, and what a root shows the memory of.
std::vector<bool> shown(const Graph& g) {
  std::vector<bool> out(g.size());
  for (NodeId r : g.roots) {
    out[r] = true;
    if (const NodeId base = resolve_alias(g, r).base; base != ir::kNoNode)
      while (r != base) out[r = g[r].in[0]] = true;
  }
  return out;
}

/// Results of regions that their readers may make again: alone, or several of one region that are all made of
/// one value, which is then stored instead of them.
class Again {
 public:
  Again(const Graph& g, const Regions& regions, const schedule::Target& target)
      : g_(g),
        regions_(regions),
        operands_(g, regions),
        t_(target),
        reads_(reads_of(g, regions)),
        readers_(g.size()),
        kept_(shown(g)) {
    for (std::uint32_t r = 0; r < regions.regions.size(); ++r)
      for (const NodeId n : reads_[r]) readers_[n].push_back(r);
  }

  std::vector<bool> run() {
    for (const Region& r : regions_.regions) {
      if (r.kind != Region::Kind::Fused) continue;
      std::vector<NodeId> results;
      for (const NodeId x : r.outputs)
        if (may_be_made_again(x) && !take_few(x) && !take({&x, 1}, ir::kNoNode, kMostCost))
          results.push_back(x);
      if (results.size() > 1 && !(results.size() == r.outputs.size() && take_all(r, results)))
        take_together(r, results);
      for (const NodeId x : results)
        if (hides(x) && (again_.empty() || !again_[x])) take({&x, 1}, ir::kNoNode, kMostHidden);
    }
    return std::move(again_);
  }

 private:
  bool may_be_made_again(NodeId x) const {
    const OpKind kind = ir::info(g_[x].op).kind;
    if (is_sum_of_products(x)) return false;
    return !kept_[x] && g_[x].numel >= kLeastElements && !readers_[x].empty() &&
           (kind == OpKind::Elementwise || kind == OpKind::Cast) &&
           std::ranges::all_of(
               readers_[x], [&](std::uint32_t s) { return regions_.regions[s].kind == Region::Kind::Fused; });
  }

  /// Whether functions take no longer than memory, of which the rates know: on a GPU, and with AVX-512 those
  /// of Float32 and less.
  bool hides(NodeId x) const {
    constexpr int kBytesOfAvx512 = 64;
    return t_.gpu || (t_.vector_bytes >= kBytesOfAvx512 && g_[x].dtype != DType::Float64);
  }

  /// A product of halves as floats, or what one is added to: a GPU's library stores it (plan/product_rows.h).
  bool is_sum_of_products(NodeId x) const {
    const auto is_product = [&](NodeId id) {
      return g_[id].op == Op::cast && ir::attributes<ir::Cast>(g_[id]).unrounded;
    };
    return t_.gpu && (is_product(x) || (g_[x].op == Op::add && std::ranges::any_of(g_[x].in, is_product)));
  }

  /// A value of which others read few elements, as a label's of each row: to make those again takes no time
  /// beside storing all.
  bool take_few(NodeId x) {
    const auto few = [&](std::uint32_t s) {
      return std::ranges::all_of(regions_.regions[s].nodes, [&](NodeId n) {
        return g_[n].numel * kFewer <= g_[x].numel &&
               (!ir::is_reduce(g_[n].op) || g_[g_[n].in[0]].numel * kFewer <= g_[x].numel);
      });
    };
    std::vector<NodeId> made_of, maps;
    float cost = 0;
    if (!std::ranges::all_of(readers_[x], few) ||
        !operands_.below(x, t_, kMostOfFew, made_of, maps, cost, ir::kNoNode) || made_of.empty())
      return false;
    again_.resize(g_.size());
    for (const NodeId m : maps) again_[m] = true;
    return true;
  }

  /// All results of a region, which then reads nothing any more.
  bool take_all(const Region& r, std::span<const NodeId> results) {
    std::int64_t read = 0;
    for (const NodeId n : reads_[static_cast<std::size_t>(&r - regions_.regions.data())])
      read += bytes_of(g_[n]);
    return take(results, ir::kNoNode, kMostCost, read);
  }

  /// Marks what the results are made of, down to `pivot`, if that takes `most` primitives a point and saves
  /// traffic, `saved` bytes of it besides theirs, which takes longer than they do.
  bool take(std::span<const NodeId> results, NodeId pivot, float most, std::int64_t saved = 0) {
    std::vector<NodeId> made_of, maps;
    std::vector<std::uint32_t> readers;
    double prims = 0;
    for (const NodeId x : results) {
      float cost = 0;
      if (!operands_.below(x, t_, most, made_of, maps, cost, pivot)) return false;
      prims += cost * static_cast<double>(g_[x].numel) * static_cast<double>(readers_[x].size());
      readers.insert(readers.end(), readers_[x].begin(), readers_[x].end());
      saved += bytes_of(g_[x]) * (1 + static_cast<std::int64_t>(readers_[x].size()));
    }
    if (made_of.empty()) return false;
    for (auto* const list : {&made_of, &maps}) sort_once(*list);
    sort_once(readers);
    for (const NodeId o : made_of) {
      if (!regions_.stored[o]) saved -= bytes_of(g_[o]);
      for (const std::uint32_t s : readers)
        if (!std::binary_search(reads_[s].begin(), reads_[s].end(), o)) saved -= bytes_of(g_[o]);
    }
    if (saved <= 0 || (most > kMostCost && !hidden(results, readers, prims, saved))) return false;
    again_.resize(g_.size());
    for (const NodeId m : maps) again_[m] = true;
    return true;
  }

  /// Whether primitives that readers take more take no more time than the traffic saved, or than the readers
  /// wait for memory anyway.
  bool hidden(std::span<const NodeId> results, const std::vector<std::uint32_t>& readers, double prims,
              std::int64_t saved) const {
    double stored = 0, computed = prims, moved = 0;
    for (const NodeId x : results) stored += static_cast<double>(bytes_of(g_[x]));
    for (const std::uint32_t s : readers) {
      const Region& r = regions_.regions[s];
      for (const NodeId n : r.nodes) {
        const NodeId in = g_[n].in.empty() ? n : g_[n].in[0];  // reductions compute at their operands' points
        const auto points = static_cast<double>(std::max(g_[n].numel, g_[in].numel));
        if (!ir::is_view(g_[n].op)) computed += t_.cost_of(static_cast<int>(g_[n].op)) * points;
      }
      for (const NodeId n : reads_[s]) moved += static_cast<double>(bytes_of(g_[n]));
      for (const NodeId n : r.outputs) moved += static_cast<double>(bytes_of(g_[n]));
    }
    const double written = stored / t_.bytes_per_ns,  // which the region that makes them no longer does
        kept = static_cast<double>(saved) / t_.bytes_per_ns - written, read = moved / t_.bytes_per_ns;
    return prims / t_.prims_per_ns <= written + kept ||
           std::max(computed / t_.prims_per_ns, read - kept) <=
               std::max((computed - prims) / t_.prims_per_ns, read) + written;
  }

  template <class T>
  static void sort_once(std::vector<T>& list) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }

  /// By every value of the region that two results or more are made of; that of most results comes first.
  void take_together(const Region& r, const std::vector<NodeId>& results) {
    std::map<NodeId, std::vector<NodeId>> by_pivot;
    for (const NodeId x : results)
      for (const NodeId p : values_below(r, x)) by_pivot[p].push_back(x);
    std::vector<NodeId> pivots;
    for (const auto& [p, of] : by_pivot)
      if (of.size() > 1) pivots.push_back(p);
    std::ranges::stable_sort(pivots, {},
                             [&](NodeId p) { return -static_cast<std::int64_t>(by_pivot[p].size()); });
    std::unordered_set<NodeId> taken;
    for (const NodeId p : pivots) {
      const std::vector<NodeId>& of = by_pivot[p];
      if (std::ranges::any_of(of, [&](NodeId x) { return taken.contains(x); })) continue;
      if (take(of, p, kMostCost)) taken.insert(of.begin(), of.end());
    }
  }

  /// Values of the region that `x` is made of in a few steps, none of which is stored.
  std::vector<NodeId> values_below(const Region& r, NodeId x) const {
    std::vector<NodeId> found, stack{x};
    std::unordered_set<NodeId> seen;
    while (!stack.empty() && seen.size() < kMostSteps) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second || (at != x && regions_.stored[at])) continue;
      if (!ir::is_view(g_[at].op)) {
        if (!std::binary_search(r.nodes.begin(), r.nodes.end(), at)) continue;
        if (at != x) found.push_back(at);
      }
      stack.insert(stack.end(), g_[at].in.begin(), g_[at].in.end());
    }
    return found;
  }

  const Graph& g_;
  const Regions& regions_;
  const Operands operands_;
  const schedule::Target& t_;
  const std::vector<std::vector<NodeId>> reads_;     // by region
  std::vector<std::vector<std::uint32_t>> readers_;  // by node: regions
  const std::vector<bool> kept_;
  std::vector<bool> again_;
};

}  // namespace

std::vector<std::vector<NodeId>> reads_of(const Graph& g, const Regions& regions) {
  const Operands operands(g, regions);
  std::vector<std::vector<NodeId>> out;
  out.reserve(regions.regions.size());
  for (const Region& r : regions.regions) out.push_back(operands.of(r));
  return out;
}

std::vector<bool> worth_recomputing(const Graph& g, const Regions& regions, const schedule::Target& target) {
  return Again(g, regions, target).run();
}

double traffic_of(const Graph& g, const Regions& regions, const schedule::Target& target) {
  const Operands operands(g, regions);
  double ns = 0;
  for (const Region& r : regions.regions) {
    std::int64_t bytes = 0;
    for (const NodeId n : operands.of(r)) bytes += bytes_of(g[n]);
    for (const NodeId n : r.outputs) bytes += bytes_of(g[n]);
    ns += target.launch_ns + target.traffic_ns(static_cast<double>(bytes));
  }
  return ns;
}

}  // namespace kiln::plan
