// Fuser: matrix products take along the maps of their results.
//
// Runs after all merges of other regions: a map that a reduction could take along is better there, where it
// saves the same bytes and the product's result stays as narrow as it was recorded. What is left are maps of
// their own, and each of them that has the product's points, one to one, would read what the product has just
// stored. So a merge always saves a pass over memory; a device without epilogues
// (schedule::Target::epilogues) refuses all of them.
//
// Terminates: each merge removes a region.
#include "ir/float8_product.h"
#include "plan/fuser.h"
#include "plan/made_operands.h"
#include "plan/shared_inputs.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::plan {
namespace {

constexpr std::size_t kMostInputs = 48;                      // distinct ones of an epilogue
constexpr std::int64_t kMostPoints = std::int64_t{1} << 31;  // of a GPU's main loop, which counts in 32 bits

}  // namespace

void Fuser::join_products() {
  if (!t_.epilogues && t_.templates == schedule::Target::Templates::None) return;
  written_in_place_.assign(g_.size(), false);
  for (NodeId id = 0; id < g_.size(); ++id)
    if (is_written_in_place(g_[id])) written_in_place_[g_[id].in[0]] = true;
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    if (group_of_[edges_[e].producer] < 0) continue;
    const int a = group_of_[edges_[e].producer], b = group_of_[edges_[e].consumer];
    if (a == b || inlined_[static_cast<std::size_t>(a)] || inlined_[static_cast<std::size_t>(b)]) continue;
    const Group &ga = groups_[static_cast<std::size_t>(a)], &gb = groups_[static_cast<std::size_t>(b)];
    if (is_contraction(gb) && takes_epilogue(gb) && !ga.library) refuse(e, FusionReason::ProductOperand);
    if (!is_contraction(ga)) continue;
    if (is_contraction(gb)) {
      if (takes_epilogue(ga) || takes_epilogue(gb)) join_second(a, b, e);
      continue;
    }

    takes_epilogue(ga) ? join_product(a, b, e) : join_pair(a, b, e);
  }
}

/// Whether what computes a product here can take maps along: a CPU's library, or a main loop of a GPU.
bool Fuser::takes_epilogue(const Group& product) const {
  if (t_.epilogues) return true;
  if (product.points >= kMostPoints) return false;
  if (windows_.contains(product.root_node) || ir::multiplies_float8(g_[product.root_node])) return true;
  switch (t_.templates) {
    case schedule::Target::Templates::None: return false;
    case schedule::Target::Templates::Integers: return !is_float(g_[product.root_node].dtype);
    case schedule::Target::Templates::Few:
      return !is_float(g_[product.root_node].dtype) || reads_operand_once(g_, product.root_node);
    case schedule::Target::Templates::All: return true;
  }
  return false;
}

/// Whether two products, the first of them without maps, can be made side by side.
bool Fuser::is_pair(const Group& product, const Group& other) const {
  return t_.templates >= schedule::Target::Templates::Few && product.nodes.size() == 1 &&
         product.points < kMostPoints && product.second == kNoNode && other.second == kNoNode &&
         !windows_.contains(product.root_node) && !windows_.contains(other.root_node) &&
         are_side_by_side(g_, t_, product.root_node, other.root_node);
}

/// Makes the product a part of b, another product with maps that read both, or says why not.
bool Fuser::join_second(int ia, int ib, std::uint32_t edge) {
  const NodeId second = groups_[static_cast<std::size_t>(ia)].root_node;
  const Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  const std::optional<Fit> f = is_pair(a, b) ? fit(a, b) : std::nullopt;
  if (!f || path_around(ia, ib)) return refuse(edge, FusionReason::TwoProducts);
  const NodeId product = b.root_node;
  merge(ia, ib, *f);
  Group& joined = group(product);
  joined.root_node = product;
  joined.library = true;
  joined.second = second;
  return true;
}

/// Makes a product that the library would do, another one and the map b that reads both one region, where
/// that is faster.
bool Fuser::join_pair(int ia, int ib, std::uint32_t edge) {
  const Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  if (b.library || !no_epilogue(a, b).empty() || !pays_side_by_side(g_, t_, a.root_node)) return false;
  for (const std::uint32_t e : b.in_edges) {
    const int ic = group_of_[edges_[e].producer];
    if (ic < 0 || ic == ia || ic == ib) continue;
    const Group& c = groups_[static_cast<std::size_t>(ic)];
    if (!is_contraction(c) || c.nodes.size() > 1 || !is_pair(a, c) || !fit(c, b) || path_around(ic, ib) ||
        !no_epilogue(c, b).empty())
      continue;
    const NodeId first = a.root_node;
    return join_product(ia, ib, edge) && join_second(ic, group_of_[first], e);
  }
  return false;
}

/// Makes map b a part of the product a, or says why not.
bool Fuser::join_product(int ia, int ib, std::uint32_t edge) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  if (b.library) return false;
  // of several products that are added up the last one can add to the others when these are done
  if (const NodeId own = own_product(b); own != kNoNode && own > a.root_node && only_adds(b)) return false;
  if (Why why = no_epilogue(a, b); !why.empty()) return refuse(edge, std::move(why));
  const std::optional<Fit> f = fit(a, b);
  if (!f) return refuse(edge, Why::later());
  if (path_around(ia, ib)) return refuse(edge, FusionReason::KernelBetween);
  const NodeId product = a.root_node;
  merge(ia, ib, *f);
  Group& joined = group(product);
  joined.root_node = product;
  joined.library = true;
  return true;
}

/// Why a region cannot be computed where a product's sums are made, or nothing.
Why Fuser::no_epilogue(const Group& a, const Group& b) const {
  const GraphNode& product = g_[a.root_node];
  if (a.points == 0 || b.points == 0 || g_[product.in[0]].dims.back() == 0) return FusionReason::NoElements;
  if (b.points < t_.fuse_least) return because(FusionReason::TooSmall, t_.fuse_least);
  if (!b.is_map() || b.loops) return FusionReason::EpilogueOfMaps;
  for (NodeId id : b.nodes) {
    if (ir::is_view(g_[id].op)) return FusionReason::EpilogueOfMaps;
    if (written_in_place_[id]) return FusionReason::WrittenInPlace;
  }
  if (Why why = too_much(a, b); !why.empty()) return why;
  if (inputs_of(a, b).size() > kMostInputs) return because(FusionReason::TooManyInputs, kMostInputs);
  return {};
}

}  // namespace kiln::plan
