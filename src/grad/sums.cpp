#include "grad/sums.h"

#include "grad/step.h"

#include <kiln/config.h>

#include <algorithm>
#include <map>
#include <optional>

namespace kiln::diff {
namespace {

using ir::Node;
using ir::NodeRef;

/// A term that is 0 outside of one stretch of one axis.
struct Stretch {
  std::size_t term;
  std::size_t axis;
  std::int64_t first, end;
  Node* body;
};

std::optional<Stretch> stretch_of(const Tensor& t, std::size_t term) {
  const Node& n = *t.node();
  if (n.op != ir::Op::pad || n.in[1] != nullptr || n.imm != 0) return std::nullopt;
  Node* const body = n.in[0];
  const auto box = ir::attributes<ir::Box>(n);
  std::optional<Stretch> found;
  for (std::size_t a = 0; a < n.rank; ++a) {
    const std::int64_t extent = body->dims()[a];
    if (extent == n.dims()[a]) continue;
    if (found || extent == 0 || (box.step(a) != 1 && extent > 1)) return std::nullopt;
    found = {term, a, box.first(a), box.first(a) + extent, body};
  }
  return found;
}

/// Stretches along one axis, in their order, that do not overlap, with zeros between.
Tensor joined(const std::vector<Stretch>& pieces, const Node& like) {
  const std::size_t axis = pieces[0].axis;
  std::vector<NodeRef> all;
  std::int64_t at = 0;
  const auto fill = [&](std::int64_t to) {
    if (to > at) {
      Shape dims = like.shape();
      dims[static_cast<int>(axis)] = to - at;
      all.push_back(NodeRef::share(zeros_of(dims, like).node()));
    }
  };
  for (const Stretch& s : pieces) {
    fill(s.first);
    all.push_back(NodeRef::share(s.body));
    at = s.end;
  }
  fill(like.dims()[axis]);
  return api::finish(api::join_node(all, static_cast<int>(axis), like.dims()));
}

}  // namespace

Tensor sum_of(const std::vector<Tensor>& terms) {
  if (terms.size() == 1) return terms[0];
  std::map<std::size_t, std::vector<Stretch>> by_axis;
  // In the strict mode terms are added in their order: whether they still are pads depends on what was
  // evaluated.
  const bool joins = terms.size() > 1 && !config().strict;
  for (std::size_t i = 0; joins && i < terms.size(); ++i)
    if (const auto s = stretch_of(terms[i], i)) by_axis[s->axis].push_back(*s);
  std::vector<bool> done(terms.size());
  Tensor sum;
  for (auto& [axis, stretches] : by_axis) {
    std::stable_sort(stretches.begin(), stretches.end(),
                     [](const Stretch& a, const Stretch& b) { return a.first < b.first; });
    std::vector<Stretch> apart;
    for (const Stretch& s : stretches)
      if (apart.empty() || s.first >= apart.back().end) apart.push_back(s);
    if (apart.size() < 2) continue;
    for (const Stretch& s : apart) done[s.term] = true;
    add_to(sum, joined(apart, *terms[0].node()));
  }
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (!done[i]) add_to(sum, terms[i]);
  return sum;
}

}  // namespace kiln::diff
