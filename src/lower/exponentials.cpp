#include "lower/exponentials.h"

#include "math/expand.h"

namespace kiln::lower {
namespace {

using ir::NodeId;
using ir::Op;

/// The node whose elements these are, through reshapes and, where `spread`, through broadcasts.
NodeId elements_of(const ir::Graph& g, NodeId id, bool spread) {
  while (g[id].op == Op::reshape || (spread && g[id].op == Op::broadcast)) id = g[id].in[0];
  return id;
}

bool is_relative_to_greatest(const ir::Graph& g, const ir::GraphNode& apart) {
  if (apart.op != Op::subtract) return false;
  const NodeId x = elements_of(g, apart.in[0], false);
  NodeId greatest = elements_of(g, apart.in[1], true);
  while (g[greatest].op == Op::reduce_max) {
    greatest = elements_of(g, g[greatest].in[0], false);
    if (greatest == x) return true;
  }
  return false;
}

/// Whether an entry is read from memory, or is that widened.
bool is_loaded(const ir::Graph& g, const Pulled& p, EntryId id) {
  const Entry& e = p.entries[id];
  const bool widened = e.kind == Entry::Kind::Op && g[e.node].op == Op::cast;
  return (widened ? p.entries[e.in[0]].kind : e.kind) == Entry::Kind::Load;
}

}  // namespace

kernel::E exp_to_one(const ir::Graph& g, const Pulled& p, EntryId id, kernel::E x, bool rough, bool avx512) {
  const ir::GraphNode& n = g[p.entries[id].node];
  if (n.op != Op::exp || x.type() != DType::Float32 || !is_relative_to_greatest(g, g[n.in[0]])) return {};
  // What was computed anew since the greatest was found, or is rounded otherwise, may be a little above it.
  const Entry& apart = p.entries[p.entries[id].in[0]];
  const bool exact = g[apart.node].dtype == DType::Float32 && apart.kind == Entry::Kind::Op &&
                     g[apart.node].op == Op::subtract && is_loaded(g, p, apart.in[0]);
  const kernel::E y = exact ? x : kernel::select(x.lit(0) < x, x.lit(0), x);
  if (avx512) return rough ? expand_exp_to_one_roughly_avx512(y) : expand_exp_to_one_avx512(y);
  return rough ? expand_exp_to_one_roughly(y) : expand_exp_to_one(y);
}

}  // namespace kiln::lower
