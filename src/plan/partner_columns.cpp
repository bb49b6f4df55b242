#include "plan/partner_columns.h"

#include "ir/float8_product.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"
#include "plan/shared_inputs.h"
#include "support/check.h"

#include <algorithm>
#include <map>
#include <set>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

bool has(const std::vector<NodeId>& sorted, NodeId id) { return std::ranges::binary_search(sorted, id); }

/// Maps alone, each of as many points as the product has.
bool are_maps(const Graph& g, const Region& r, std::int64_t points) {
  if (r.kind != Region::Kind::Fused || !r.rows.empty() || !r.axes.empty()) return false;
  return std::ranges::all_of(r.nodes, [&](NodeId id) {
    const OpKind kind = ir::info(g[id].op).kind;
    const bool map = kind == OpKind::Cast || kind == OpKind::Elementwise || g[id].op == Op::join;
    return map && g[id].numel == points && !is_written_in_place(g[id]);
  });
}

/// Calls f on every node that a region reads or makes on the way, down to memory.
template <class F>
void each_below(const Graph& g, const Regions& regions, const Region& r, const F& f) {
  std::vector<NodeId> stack(r.nodes.begin(), r.nodes.end());
  std::set<NodeId> seen;
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    for (const NodeId in : g[id].in) {
      if (has(r.nodes, in) || !seen.insert(in).second) continue;
      f(in);
      if (g[in].op != Op::leaf && !regions.stored[in]) stack.push_back(in);
    }
  }
}

/// How far apart the columns are that a region reads together: half of an axis of the product, or of what
/// views show of it, of which slices show either half. 0: there is no such slice.
std::int64_t distance_of_halves(const Graph& g, const Regions& regions, const Region& r) {
  std::int64_t distance = 0;
  each_below(g, regions, r, [&](NodeId id) {
    const GraphNode& n = g[id];
    if (n.op != Op::slice) return;
    const GraphNode& in = g[n.in[0]];
    std::int64_t inside = 1;
    for (std::size_t axis = n.dims.size(); axis-- > 0; inside *= n.dims[axis])
      if (in.dims[axis] == 2 * n.dims[axis]) distance = n.dims[axis] * inside;
  });
  return distance;
}

class Joiner {
 public:
  Joiner(const Graph& g, const schedule::Target& target, Regions& regions,
         const std::function<bool(const Region&)>& can)
      : g_(g), target_(target), regions_(regions), can_(can) {}

  void run() {
    std::vector<std::size_t> suited;  // regions
    for (const Region& r : regions_.regions)
      if (const NodeId product = lone_product(g_, r); product != ir::kNoNode)
        columns_[g_[product].in[0]] += g_[product].dims.back();
    for (std::size_t at = 0; at < regions_.regions.size(); ++at)
      if (const NodeId product = lone_product(g_, regions_.regions[at]);
          product != ir::kNoNode && suits(product)) {
        suited.push_back(at);
        readers_[product];
      }
    if (suited.empty()) return;
    for (std::size_t r = 0; r < regions_.regions.size(); ++r)
      each_below(g_, regions_, regions_.regions[r], [&](NodeId id) {
        if (const auto it = readers_.find(id); it != readers_.end()) it->second.push_back(r);
      });
    for (const std::size_t at : suited) join(at, lone_product(g_, regions_.regions[at]));
    std::erase_if(regions_.regions, [](const Region& r) { return r.nodes.empty(); });
  }

 private:
  /// Whether a main loop takes the product, and is about as fast as the library.
  bool suits(NodeId product) const {
    constexpr std::int64_t kTileN = 256;
    return !regions_.windows.contains(product) && !ir::multiplies_float8(g_[product]) &&
           suits_copy_engine(g_, target_, g_[product]) &&
           fills_turns(g_, target_, product, columns_.at(g_[product].in[0]), kTileN);
  }

  void join(std::size_t at, NodeId product) {
    const std::vector<std::size_t>& readers = readers_.at(product);
    if (readers.empty() || !are_maps(g_, regions_.regions[readers.front()], g_[product].numel)) return;
    const bool others = readers.size() > 1 || is_root(product) || g_[product].held;
    Region& maps = regions_.regions[readers.front()];
    Region all = maps;
    all.kind = Region::Kind::Contraction;
    all.product = product;
    all.nodes.insert(std::ranges::upper_bound(all.nodes, product), product);
    if (others) all.outputs.insert(std::ranges::upper_bound(all.outputs, product), product);
    regions_.stored[product] = false;  // so that the maps are pulled down to it
    all.partner = distance_of_halves(g_, regions_, maps);
    const bool joins = all.partner > 0 && can_(all);
    regions_.stored[product] = others || !joins;
    if (!joins) return explain(product, all);
    const std::set<NodeId> inside = nodes_of(all);
    std::erase_if(regions_.refusals,
                  [&](const Refusal& r) { return r.producer == product && inside.contains(r.consumer); });
    maps = std::move(all);
    regions_.regions[at] = {};
  }

  /// What a region computes, on the way too.
  std::set<NodeId> nodes_of(const Region& r) const {
    std::set<NodeId> all(r.nodes.begin(), r.nodes.end());
    each_below(g_, regions_, r, [&](NodeId id) { all.insert(id); });
    return all;
  }

  void explain(NodeId product, const Region& maps) {
    if (maps.partner == 0) return;
    const std::set<NodeId> inside = nodes_of(maps);
    for (Refusal& r : regions_.refusals)
      if (r.producer == product && inside.contains(r.consumer))
        r.why = because(FusionReason::OtherPoints, cat("halves ", maps.partner,
                                                       " columns apart; a product's own maps read columns 32 "
                                                       "or 64 apart, and nothing else"));
  }

  /// Whether the program asked for it, perhaps through a view.
  bool is_root(NodeId id) const {
    return std::ranges::any_of(g_.roots, [&](NodeId root) {
      return root == id || (ir::is_view(g_[root].op) && resolve_alias(g_, root).base == id);
    });
  }

  const Graph& g_;
  const schedule::Target& target_;
  Regions& regions_;
  const std::function<bool(const Region&)>& can_;
  std::map<NodeId, std::int64_t> columns_;  // of the products that have this first operand, together
  std::map<NodeId, std::vector<std::size_t>> readers_;  // of a product: regions, in their order
};

}  // namespace

void join_partners(const Graph& g, const schedule::Target& target, Regions& regions,
                   const std::function<bool(const Region&)>& can) {
  constexpr int kHopper = 90;
  if (target.gpu && target.architecture == kHopper && target.templates >= schedule::Target::Templates::Few)
    Joiner(g, target, regions, can).run();
}

}  // namespace kiln::plan
