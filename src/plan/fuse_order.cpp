// Fuser: an order of the regions, kept up to date as in Pearce and Kelly (see fuse.cpp).
#include "plan/fuser.h"

#include <algorithm>

namespace kiln::plan {

/// Groups reachable from a (by out_edges) whose order is below that of `limit`; a itself excluded.
void Fuser::forward(int a, std::int64_t limit, std::vector<int>& found) {
  ++stamp_;
  seen_.resize(groups_.size(), 0);
  std::vector<int>& stack = stack_;
  stack.assign(1, a);
  seen_[static_cast<std::size_t>(a)] = stamp_;
  while (!stack.empty()) {
    const int at = stack.back();
    stack.pop_back();
    for (std::uint32_t e : groups_[static_cast<std::size_t>(at)].out_edges) {
      const int to = group_of_[edges_[e].consumer];
      auto& mark = seen_[static_cast<std::size_t>(to)];
      if (mark == stamp_ || order_.place(to) >= limit) continue;
      mark = stamp_;
      found.push_back(to);
      stack.push_back(to);
    }
  }
}

/// Whether a path from a to b leads through a third group. Leaves the descendants of a that lie before b in
/// between_.
bool Fuser::path_around(int a, int b) {
  between_.clear();
  forward(a, order_.place(b), between_);
  const std::vector<std::uint32_t>& in = groups_[static_cast<std::size_t>(b)].in_edges;
  return std::any_of(in.begin(), in.end(), [&](std::uint32_t e) {
    const int from = group_of_[edges_[e].producer];
    return from >= 0 && from != a && seen_[static_cast<std::size_t>(from)] == stamp_;  // is in between_
  });
}

/// b joins a's group. Descendants of a that stood before b (between_) now stand after the merged group, in
/// their order.
void Fuser::merge(int ia, int ib, const Fit& f) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  for (int side = 0; side < 2; ++side) {
    const Group& x = side == 0 ? a : b;
    if (f.atoms.is_identity(side, x.space.n)) continue;
    for (NodeId n : x.nodes) place_[n] = f.atoms.of(side, place_[n]);
  }
  a.space = b.space = f.atoms.space();
  a.levels = b.levels = f.levels;
  a.points = b.points = a.space.points(a.space.all());
  a.cost += b.cost;
  a.reductions += b.reductions;
  a.stored += b.stored;
  a.pieces += b.pieces;
  a.reduces |= b.reduces;
  a.scans |= b.scans;
  a.loops |= b.loops;
  a.phases |= b.phases || f.dependent;
  a.forwards |= b.forwards;
  a.backwards |= b.backwards;
  // The larger group keeps its index.
  int keep = ia, gone = ib;
  if (b.nodes.size() > a.nodes.size()) {
    std::swap(keep, gone);
    std::swap(a.cost, b.cost);
    std::swap(a.reduces, b.reduces), std::swap(a.scans, b.scans), std::swap(a.loops, b.loops);
    std::swap(a.phases, b.phases), std::swap(a.forwards, b.forwards), std::swap(a.backwards, b.backwards);
    std::swap(a.reductions, b.reductions), std::swap(a.stored, b.stored), std::swap(a.pieces, b.pieces);
  }
  Group &k = groups_[static_cast<std::size_t>(keep)], &x = groups_[static_cast<std::size_t>(gone)];
  for (NodeId n : x.nodes) group_of_[n] = keep;
  auto splice = [](auto& to, auto& from) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
    from.shrink_to_fit();
  };
  splice(k.nodes, x.nodes);
  splice(k.in_edges, x.in_edges);
  splice(k.out_edges, x.out_edges);
  // The merged group takes b's place, behind all of b's ancestors; what descends from a moves right behind
  // it.
  order_.remove(ia);
  if (keep == ia) {
    order_.insert(ia, ib);
    order_.remove(ib);
  }
  std::sort(between_.begin(), between_.end(),
            [&](int l, int r) { return order_.place(l) < order_.place(r); });
  int last = keep;
  for (int d : between_) {
    order_.remove(d);
    order_.insert(d, last);
    last = d;
  }
}

}  // namespace kiln::plan
