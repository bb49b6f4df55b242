#include "plan/shared_inputs.h"

#include "ir/float8_product.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace kiln::plan {
namespace {

constexpr std::size_t kMostParts = 4;
constexpr int kMostRefused = 8;  // of products that are asked whether they share a launch
constexpr int kHopper = 90;

bool is_few(const Graph& g, NodeId product) { return reads_operand_once(g, product); }

/// What each region is to be made behind.
class Places {
 public:
  Places(const Graph& g, const Regions& regions) : g_(g), regions_(regions), maker_(g.size(), -1) {
    for (std::size_t r = 0; r < regions.regions.size(); ++r)
      for (const NodeId id : regions.regions[r].outputs) maker_[id] = static_cast<std::int64_t>(r);
  }

  /// Whether all that a region reads is there before region `at`.
  bool may_stand_at(const Region& r, std::size_t at) const {
    std::vector<NodeId> stack(r.nodes.begin(), r.nodes.end());
    std::unordered_set<NodeId> seen;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      for (const NodeId in : g_[id].in) {
        if (std::binary_search(r.nodes.begin(), r.nodes.end(), in) || !seen.insert(in).second) continue;
        if (g_[in].op == ir::Op::leaf) continue;
        if (!regions_.stored[in])
          stack.push_back(in);
        else if (maker_[in] < 0 || maker_[in] >= static_cast<std::int64_t>(at))
          return false;
      }
    }
    return true;
  }

 private:
  const Graph& g_;
  const Regions& regions_;
  std::vector<std::int64_t> maker_;
};

/// Makes `part` a part of region `all`.
void take_part(Region& all, Region part) {
  if (all.parts.empty()) {
    Region first = all;
    all.parts.push_back(std::move(first));
  }
  const auto join = [](std::vector<NodeId>& to, const std::vector<NodeId>& from) {
    to.insert(to.end(), from.begin(), from.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
  };
  join(all.nodes, part.nodes);
  join(all.outputs, part.outputs);
  all.parts.push_back(std::move(part));
}

}  // namespace

bool are_side_by_side(const Graph& g, const schedule::Target& target, NodeId product, NodeId other) {
  const ir::GraphNode &p = g[product], &q = g[other];
  if (!target.gpu || product == other || p.in[0] != q.in[0] || p.dtype != q.dtype ||
      !target.on_tensor_cores(p.dtype) || !std::ranges::equal(p.dims, q.dims) || p.numel == 0)
    return false;
  if (ir::multiplies_float8(p) || ir::multiplies_float8(q)) return false;  // whose tiles have few columns
  if (!lie_alike(g, p.in[1], q.in[1])) return false;
  if (is_few(g, product) && is_few(g, other)) return true;
  return target.architecture == kHopper && suits_copy_engine(g, target, p) && suits_copy_engine(g, target, q);
}

bool fills_turns(const Graph& g, const schedule::Target& target, NodeId product, std::int64_t columns,
                 std::int64_t tile_n) {
  using Templates = schedule::Target::Templates;
  if (target.templates == Templates::All) return true;
  constexpr std::int64_t kTileM = 128, kLeast = 64;
  const ir::GraphNode& p = g[product];
  const std::int64_t n = p.dims.back(), m = p.dims[p.dims.size() - 2];
  if (target.templates != Templates::Few || m <= kLeast || n <= kLeast) return false;
  const std::int64_t tiles =
      p.numel / (m * n) * ((m + kTileM - 1) / kTileM) * ((columns + tile_n - 1) / tile_n);
  const std::int64_t turns = (tiles + target.threads - 1) / target.threads;
  return tiles >= target.threads && 5 * tiles >= 4 * turns * target.threads;
}

bool pays_side_by_side(const Graph& g, const schedule::Target& target, NodeId product) {
  // The main loop is nearly as fast as the library's and saves two results' way to memory and back.
  constexpr std::int64_t kTileN = 128;  // of one product
  return is_few(g, product) || fills_turns(g, target, product, g[product].dims.back(), kTileN);
}

NodeId lone_product(const Graph& g, const Region& r) {
  const bool lone = (r.kind == Region::Kind::Library || r.kind == Region::Kind::Contraction) &&
                    r.nodes.size() == 1 && r.second == ir::kNoNode && r.parts.empty() && r.partner == 0 &&
                    ir::info(g[r.nodes.front()].op).kind == ir::OpKind::Contraction;
  return lone ? r.nodes.front() : ir::kNoNode;
}

namespace {

/// A product that the library would do, as part of a launch whose other parts read pairs of columns.
Region beside_partners(Region lone, std::int64_t partner) {
  lone.kind = Region::Kind::Contraction;
  lone.product = lone.nodes.front();
  lone.partner = partner;
  return lone;
}

}  // namespace

void share_launches(const Graph& g, const schedule::Target& target, Regions& regions,
                    const std::function<bool(const Region&, const Region&)>& can) {
  std::map<NodeId, std::vector<std::size_t>> readers;  // by the operand, in the order of regions
  std::map<NodeId, std::int64_t> partners;             // of products by a main loop that read this operand
  for (std::size_t r = 0; r < regions.regions.size(); ++r) {
    const Region& x = regions.regions[r];
    if (x.kind == Region::Kind::Contraction && x.second == ir::kNoNode &&
        (x.partner > 0 || is_few(g, x.product)))
      readers[g[x.product].in[0]].push_back(r);
    if (x.partner > 0) partners[g[x.product].in[0]] = x.partner;
  }
  for (std::size_t r = 0; r < regions.regions.size() && !partners.empty(); ++r) {
    const NodeId product = lone_product(g, regions.regions[r]);
    if (product == ir::kNoNode || !partners.contains(g[product].in[0]) || regions.windows.contains(product) ||
        is_few(g, product) || !suits_copy_engine(g, target, g[product]))
      continue;
    std::vector<std::size_t>& list = readers[g[product].in[0]];
    list.insert(std::ranges::upper_bound(list, r), r);
  }
  const Places places(g, regions);
  for (const auto& [operand, list] : readers)
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      Region& first = regions.regions[list[i]];
      int refused = 0;
      for (std::size_t j = i + 1;
           j < list.size() && first.parts.size() < kMostParts && refused < kMostRefused; ++j) {
        Region& next = regions.regions[list[j]];
        if (first.nodes.empty() || next.nodes.empty() || !places.may_stand_at(next, list[i])) continue;
        const auto as_part = [&](const Region& x, const Region& beside) {
          const bool joins = beside.partner > 0 && x.partner == 0 && lone_product(g, x) != ir::kNoNode;
          return joins ? beside_partners(x, beside.partner) : x;
        };
        Region one = as_part(first.parts.empty() ? first : first.parts.front(), next),
               other = as_part(next, one);
        if (one.product == ir::kNoNode || other.product == ir::kNoNode || one.partner != other.partner ||
            !can(one, other)) {
          ++refused;
          continue;
        }
        if (first.parts.empty()) first = std::move(one);
        take_part(first, std::move(other));
        next = {};
      }
    }
  std::erase_if(regions.regions, [](const Region& r) { return r.nodes.empty(); });
}

}  // namespace kiln::plan
