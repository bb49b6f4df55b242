#include "plan/made_operands.h"

#include "ir/layout.h"
#include "plan/fuse.h"

#include <algorithm>
#include <numeric>

namespace kiln::plan {
namespace {

constexpr std::int64_t kMostRows = 16;  // of a tile of the main loop
constexpr std::int64_t kVeryFewRows = 8, kMostElements = 1 << 25;
constexpr std::int64_t kLeastElements = 1 << 16;  // of the operand; below, launches are all that counts
constexpr std::int64_t kLeastLength = 256;        // of a sum, so that all warps have a part of it
constexpr std::int64_t kMostExtent = 1 << 30;     // which the main loop counts in 32 bits
constexpr std::int64_t kLineUnit = 16;            // bytes
constexpr std::int64_t kPlanned = 64;             // alignment of memory that a plan allocates

/// Where the elements of a product's operand lie, or will once it is stored.
Alias memory_of(const Graph& g, NodeId id) {
  Alias a = resolve_alias(g, id);
  if (a.base == ir::kNoNode) a = {id, 0, {}, ir::row_major_strides(g[id].dims)};
  for (std::size_t axis = 0; axis < a.strides.size(); ++axis)
    if (g[id].dims[axis] == 1) a.strides[axis] = 0;
  return a;
}

/// Whether all lines begin at multiples of 16 bytes; `along`: the axis of their elements.
bool begins_at_units(const Graph& g, NodeId id, std::size_t along) {
  const Alias a = memory_of(g, id);
  const ir::GraphNode& base = g[a.base];
  std::int64_t unit =
      base.op == ir::Op::leaf ? std::int64_t{g.args[static_cast<std::size_t>(base.arg)].alignment} : kPlanned;
  const std::int64_t bytes = size_of(g[id].dtype);
  unit = std::gcd(unit, a.offset * bytes);
  for (const Alias::Position& p : a.positions) unit = std::gcd(unit, p.stride * bytes);
  for (std::size_t axis = 0; axis < a.strides.size(); ++axis)
    if (axis != along) unit = std::gcd(unit, a.strides[axis] * bytes);
  return a.strides[along] == 1 && unit % kLineUnit == 0;
}

}  // namespace

bool rows_are_one_matrix(const Graph& g, NodeId product) {
  const ir::GraphNode& p = g[product];
  const Alias a = memory_of(g, p.in[0]), b = memory_of(g, p.in[1]);
  const std::size_t rank = p.dims.size();
  if (a.strides.size() != rank || b.strides.size() != rank) return false;
  std::int64_t step = 0, inside = 0;  // of rows so far: their distance, their number
  for (std::size_t axis = rank - 1; axis-- > 0;) {
    if (p.dims[axis] == 1) continue;
    if (axis + 2 < rank && b.strides[axis] != 0) return false;
    if (inside == 0) {
      step = a.strides[axis];
      inside = 1;
    } else if (a.strides[axis] != step * inside) {
      return false;
    }
    inside *= p.dims[axis];
  }
  return true;
}

bool reads_operand_once(const Graph& g, NodeId product) {
  const ir::GraphNode& p = g[product];
  const std::size_t rank = p.dims.size();
  if (!is_half(p.dtype) || rank < 2 || p.numel == 0) return false;
  const NodeId a = p.in[0], b = p.in[1];
  const std::int64_t rows = p.numel / p.dims.back(), k = g[a].dims.back();
  if (rows > kMostRows || k < kLeastLength || k > kMostExtent || !rows_are_one_matrix(g, product))
    return false;
  const ir::GraphNode& base = g[memory_of(g, b).base];
  if (std::min(base.numel, g[b].numel) < kLeastElements) return false;
  // A library is as fast where there is more to read, but does not make anything on the way.
  if (rows > kVeryFewRows && base.op == ir::Op::leaf && base.numel > kMostElements) return false;
  return begins_at_units(g, a, rank - 1) &&
         (begins_at_units(g, b, rank - 1) || begins_at_units(g, b, rank - 2));
}

bool lie_alike(const Graph& g, NodeId operand, NodeId other) {
  const Alias a = memory_of(g, operand), b = memory_of(g, other);
  return std::ranges::equal(g[operand].dims, g[other].dims) && a.strides == b.strides;
}

bool suits_copy_engine(const Graph& g, const schedule::Target& target, const ir::GraphNode& p) {
  const std::size_t rank = p.dims.size();
  if (!target.on_tensor_cores(p.dtype) || rank < 2 || g[p.in[0]].dims.back() == 0) return false;
  const bool halves = is_half(g[p.in[0]].dtype);
  const auto suits = [&](NodeId in, std::size_t k, std::size_t line) {
    if (!begins_at_units(g, in, k) && !(halves && begins_at_units(g, in, line))) return false;
    const std::vector<std::int64_t> strides = memory_of(g, in).strides;
    std::int64_t step = 0, inside = 1;  // from a matrix of the batch to the next
    for (std::size_t axis = rank - 2; axis-- > 0;) {
      if (p.dims[axis] == 1) continue;
      if (inside == 1) step = strides[axis];
      if (strides[axis] < 0 || strides[axis] != step * inside) return false;
      inside *= p.dims[axis];
    }
    return strides[rank - 1] >= 0 && strides[rank - 2] >= 0;
  };
  return suits(p.in[0], rank - 1, rank - 2) && suits(p.in[1], rank - 2, rank - 1);
}

std::optional<MadeOperand> made_operand(const Graph& g, const Regions& regions, NodeId product) {
  const NodeId operand = g[product].in[1];
  const Alias a = resolve_alias(g, operand);
  if (a.base == ir::kNoNode || a.offset != 0 || !a.positions.empty()) return std::nullopt;
  const ir::GraphNode &n = g[operand], &base = g[a.base];
  const std::size_t rank = n.dims.size();
  const std::int64_t k = n.dims[rank - 2], columns = n.dims[rank - 1];
  if (base.op == ir::Op::leaf || base.numel != k * columns) return std::nullopt;  // no weights of a batch
  for (std::size_t axis = 0; axis + 2 < rank; ++axis)
    if (n.dims[axis] != 1 && a.strides[axis] != 0) return std::nullopt;
  MadeOperand out{nullptr, product, false, k, columns};
  if (a.strides[rank - 1] == 1 && a.strides[rank - 2] == columns)
    out.by_k = false;
  else if (a.strides[rank - 2] == 1 && a.strides[rank - 1] == k)
    out = {nullptr, product, true, columns, k};
  else
    return std::nullopt;
  const auto kept = regions.made.find(a.base);
  if (kept != regions.made.end()) {
    out.maker = &kept->second;
    return out;
  }
  const auto maker = std::ranges::find_if(regions.regions, [&](const Region& r) {
    return r.kind == Region::Kind::Fused && r.outputs.size() == 1 && r.outputs[0] == a.base;
  });
  if (maker == regions.regions.end() || !maker->rows.empty() || !maker->axes.empty()) return std::nullopt;
  out.maker = &*maker;
  return out;
}

void make_operands(const Graph& g, Regions& regions,
                   const std::function<bool(std::span<const MadeOperand>)>& can) {
  std::vector<int> uses(g.size());
  for (const ir::GraphNode& n : g.nodes)
    for (const NodeId in : n.in) ++uses[in];
  for (const NodeId root : g.roots) ++uses[root];
  const auto is_read_once = [&](NodeId id, NodeId base) {
    for (; uses[id] == 1; id = g[id].in[0])
      if (id == base) return true;
    return false;
  };
  std::vector<bool> made(g.size());
  for (Region& r : regions.regions) {
    if (r.kind != Region::Kind::Contraction || !reads_operand_once(g, r.product)) continue;
    std::vector<NodeId> products{r.product};
    if (r.second != ir::kNoNode) products.push_back(r.second);
    std::vector<MadeOperand> all;
    for (const NodeId product : products) {
      const std::optional<MadeOperand> m = made_operand(g, regions, product);
      if (!m || made[m->maker->outputs[0]]) break;
      if (is_read_once(g[product].in[1], m->maker->outputs[0])) all.push_back(*m);
    }
    if (all.size() < products.size() || !can(all)) continue;
    for (const MadeOperand& m : all) {
      made[m.maker->outputs[0]] = true;
      r.nodes.insert(r.nodes.end(), m.maker->nodes.begin(), m.maker->nodes.end());
    }
    std::sort(r.nodes.begin(), r.nodes.end());
  }
  for (Region& r : regions.regions) {
    if (r.kind != Region::Kind::Fused || r.outputs.size() != 1 || !made[r.outputs[0]]) continue;
    const NodeId base = r.outputs[0];
    regions.stored[base] = false;
    regions.made.emplace(base, std::move(r));
    r = {};
  }
  std::erase_if(regions.regions, [](const Region& r) { return r.nodes.empty(); });
  std::erase_if(regions.refusals, [&](const Refusal& f) { return made[f.producer]; });
}

}  // namespace kiln::plan
