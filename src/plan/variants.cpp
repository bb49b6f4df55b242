#include "plan/variants.h"

#include "plan/attention.h"
#include "plan/pair_sums.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

constexpr std::uint64_t kRevision = 1;        // of what the keys have in them
constexpr std::int64_t kLeastView = 1 << 12;  // elements of a view that may be worth a copy
constexpr std::size_t kMostAlone = 8;         // operations that may each get a kernel
constexpr std::uint64_t kOperand = 1ull << 62, kArgument = 1ull << 63, kResult = 1ull << 61;

/// What the planner and the scheduler know of a target, but for rates, which follow from it.
void add_target(const schedule::Target& t, std::vector<std::uint64_t>& words) {
  const schedule::Target::Off& o = t.off;
  std::uint64_t flags = 0;
  for (const bool flag : {t.tf32, t.gpu, t.fma, t.strict, t.exact, t.epilogues, t.attentions, t.pair_sums,
                          o.all, o.norm, o.nest, o.siblings, o.recompute, o.epilogue, o.attention, o.blocks})
    flags = flags << 1 | static_cast<std::uint64_t>(flag);
  words.insert(words.end(),
               {kRevision, flags, static_cast<std::uint64_t>(t.threads),
                static_cast<std::uint64_t>(t.architecture), static_cast<std::uint64_t>(t.vector_bytes),
                static_cast<std::uint64_t>(t.templates), static_cast<std::uint64_t>(t.fuse_least)});
}

/// Whether a view shows its operand's adjacent elements apart.
bool goes_across(const GraphNode& view) {
  if (view.op != Op::permute || view.dims.empty()) return false;
  const auto order = ir::attributes<ir::Permute>(view);
  std::size_t operand_last = 0, last = 0;  // axes longer than 1
  for (std::size_t d = 0; d < view.dims.size(); ++d)
    if (view.dims[d] > 1) {
      last = d;
      operand_last = std::max(operand_last, order[d]);
    }
  return order[last] != operand_last;
}

}  // namespace

Units::Units(const Graph& graph, const Regions& regions, const schedule::Target& target)
    : g_(graph), regions_(regions), t_(target), computed_by_(graph.size(), 0) {
  keys_.resize(regions.regions.size());
  inside_.resize(regions.regions.size());
  for (std::size_t r = 0; r < regions.regions.size(); ++r) visit(r);
}

/// Numbers what a region computes in an order that its structure decides, and hashes it.
void Units::visit(std::size_t region) {
  const Region& r = regions_.regions[region];
  const std::unordered_set<NodeId> own(r.nodes.begin(), r.nodes.end());
  std::unordered_map<NodeId, std::uint64_t> number;
  std::vector<std::uint64_t> words;
  add_target(t_, words);
  words.push_back(static_cast<std::uint64_t>(r.kind));
  const auto add_dims = [&](ir::Dims dims) { words.insert(words.end(), dims.begin(), dims.end()); };
  const auto head = [](const GraphNode& n) {
    return static_cast<std::uint64_t>(n.op) | std::uint64_t{static_cast<std::uint8_t>(n.dtype)} << 16 |
           std::uint64_t{n.dims.size()} << 24 | std::uint64_t{n.in.size()} << 40;
  };
  struct Frame {
    NodeId node;
    std::size_t next;
  };
  std::vector<Frame> stack;
  const auto enter = [&](NodeId id) {
    if (number.contains(id)) return;
    const GraphNode& n = g_[id];
    if (own.contains(id) || (n.op != Op::leaf && !regions_.stored[id])) return stack.push_back({id, 0});
    number.emplace(id, number.size());
    words.push_back(head(n) | (n.op == Op::leaf ? kArgument : kOperand));
    add_dims(n.dims);
    if (n.op != Op::leaf) return;
    const ir::ArgInfo& arg = g_.args[static_cast<std::size_t>(n.arg)];
    add_dims(arg.strides);
    words.push_back(arg.alignment);
  };
  for (const NodeId output : r.outputs) {
    enter(output);
    while (!stack.empty()) {
      Frame& top = stack.back();
      const GraphNode& n = g_[top.node];
      if (top.next < n.in.size()) {
        enter(n.in[top.next++]);
        continue;
      }
      const NodeId id = top.node;
      stack.pop_back();
      if (!number.emplace(id, number.size()).second) continue;
      inside_[region].push_back(id);
      ++computed_by_[id];
      words.push_back(head(n) | (std::ranges::binary_search(r.outputs, id) ? kResult : 0));
      add_dims(n.dims);
      words.push_back(n.attr64);
      add_dims(n.attrs);
      for (const NodeId in : n.in) words.push_back(number.contains(in) ? number.at(in) : ~std::uint64_t{0});
    }
  }
  keys_[region] = hash128(std::span<const std::uint64_t>(words));
}

bool Units::reads_inside(std::size_t region, NodeId id) const {
  return std::ranges::any_of(inside_[region], [&](NodeId reader) {
    return std::ranges::find(g_[reader].in, id) != g_[reader].in.end();
  });
}

bool Units::can_store(NodeId id) const {
  if (regions_.loops.owner_of(id) != ir::kNoNode) return false;
  switch (ir::info(g_[id].op).kind) {
    case OpKind::Elementwise:
    case OpKind::Cast:
    case OpKind::Reduce:
    case OpKind::Scan:
    case OpKind::Gather:
    case OpKind::Contraction: return true;
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::Iota:
    case OpKind::View:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack:
    case OpKind::Part:
    case OpKind::Library: return false;
  }
  return false;
}

/// What the region and others compute, and whose readers here are the region's own.
std::vector<NodeId> Units::shared(std::size_t region) const {
  std::vector<NodeId> out;
  for (const NodeId id : inside_[region]) {
    if (computed_by_[id] < 2 || !can_store(id)) continue;
    const bool outermost = std::ranges::any_of(inside_[region], [&](NodeId reader) {
      return computed_by_[reader] < 2 && std::ranges::find(g_[reader].in, id) != g_[reader].in.end();
    });
    if (outermost) out.push_back(id);
  }
  return out;
}

std::vector<NodeId> Units::sinks(std::size_t region) const {
  std::vector<NodeId> out;
  for (const NodeId id : regions_.regions[region].outputs)
    if (!reads_inside(region, id)) out.push_back(id);
  return out;
}

std::vector<NodeId> Units::stored_by(std::size_t region, FusionVariant variant) const {
  const Region& r = regions_.regions[region];
  std::vector<NodeId> out;
  if (variant == FusionVariant::ReductionsApart) {
    for (const NodeId id : r.nodes)
      if ((ir::is_reduce(g_[id].op) || ir::info(g_[id].op).kind == OpKind::Scan) && can_store(id) &&
          reads_inside(region, id))
        out.push_back(id);
  } else if (variant == FusionVariant::ProductApart) {
    if (r.kind == Region::Kind::Contraction) out.push_back(r.product);
  } else if (variant == FusionVariant::AttentionApart) {
    if (r.kind == Region::Kind::Attention)
      out.push_back(regions_.attentions[static_cast<std::size_t>(r.tiled)]->scores);
    if (r.kind == Region::Kind::PairSums)
      for (const auto& product : regions_.pair_sums[static_cast<std::size_t>(r.tiled)]->products)
        out.push_back(product.node);
  } else if (variant == FusionVariant::SharedStored) {
    return shared(region);
  } else if (variant == FusionVariant::ViewsStored) {
    for (const NodeId id : inside_[region])
      if (g_[id].numel >= kLeastView && goes_across(g_[id]) && regions_.loops.owner_of(id) == ir::kNoNode)
        out.push_back(id);
  } else if (variant == FusionVariant::EachAlone && r.nodes.size() <= kMostAlone) {
    for (const NodeId id : r.nodes)
      if (can_store(id) && reads_inside(region, id)) out.push_back(id);
  }
  return out;  // of schedules, and where nodes are ordered otherwise: nothing
}

std::vector<FusionVariant> Units::ways(std::size_t region) const {
  const Region& r = regions_.regions[region];
  // Cuts change bits, but in the strict mode, where every operation rounds and orders are its own.
  if ((t_.exact && !t_.strict) || r.kind == Region::Kind::Loop) return {};
  std::vector<FusionVariant> out;
  for (const FusionVariant v :
       {FusionVariant::ProductApart, FusionVariant::AttentionApart, FusionVariant::ReductionsApart,
        FusionVariant::ViewsStored, FusionVariant::SharedStored})
    if (!stored_by(region, v).empty()) out.push_back(v);
  if (r.kind == Region::Kind::Fused && sinks(region).size() > 1) out.push_back(FusionVariant::SiblingsApart);
  const bool joinable = std::ranges::any_of(regions_.refusals, [&](const Refusal& f) {
    const FusionReason why = f.why.reason();
    return (why == FusionReason::TooFewRows || why == FusionReason::ShortRuns ||
            why == FusionReason::OtherAxes || why == FusionReason::OtherPoints ||
            why == FusionReason::CpuRows || why == FusionReason::GpuFewBlocks) &&
           std::ranges::binary_search(r.nodes, f.consumer);
  });
  if (joinable && !t_.strict) out.push_back(FusionVariant::Joined);
  if (r.kind == Region::Kind::Fused && !stored_by(region, FusionVariant::EachAlone).empty())
    out.push_back(FusionVariant::EachAlone);
  return out;
}

void Units::order(std::size_t region, FusionVariant variant, Orders& orders) const {
  if (variant == FusionVariant::SiblingsApart) {
    const std::vector<NodeId> nodes = sinks(region);
    orders.alone.insert(orders.alone.end(), nodes.begin(), nodes.end());
  } else if (variant == FusionVariant::Joined) {
    const std::vector<NodeId>& nodes = regions_.regions[region].nodes;
    orders.together.insert(orders.together.end(), nodes.begin(), nodes.end());
  } else {
    for (const NodeId id : stored_by(region, variant))
      orders.apart.push_back({id, because(FusionReason::MeasuredApart, text_of(variant))});
  }
}

}  // namespace kiln::plan
