// Fuser: an order of the regions, kept up to date as in Pearce and Kelly (see fuse.cpp).
#include "plan/fuser.h"

#include <algorithm>

namespace kiln::plan {

/// Groups reachable from a (by out_edges) whose order is below that of `limit`; a itself excluded.
void Fuser::forward(int a, int limit, std::vector<int>& found) {
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
      if (mark == stamp_ || groups_[static_cast<std::size_t>(to)].order >= limit) continue;
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
  const int limit = groups_[static_cast<std::size_t>(b)].order;
  forward(a, limit, between_);
  for (int x : between_)
    for (std::uint32_t e : groups_[static_cast<std::size_t>(x)].out_edges)
      if (group_of_[edges_[e].consumer] == b) return true;
  return false;
}

/// b joins a's group. Descendants of a that stood before b (between_) now stand after the merged group, in
/// their order.
void Fuser::merge(int ia, int ib, const Fit& f) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  if (f.consumer_rows)
    for (NodeId n : b.nodes) row_[n] = true;
  if (f.producer_rows)
    for (NodeId n : a.nodes) row_[n] = true;
  const int b_order = b.order;
  if (!a.signature && b.signature) {
    a.signature = b.signature;
    a.columns = b.columns;
    a.points = b.points;
    a.rows = b.rows;
  }
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
    std::swap(a.signature, b.signature), std::swap(a.columns, b.columns), std::swap(a.points, b.points);
    std::swap(a.rows, b.rows), std::swap(a.cost, b.cost), std::swap(a.order, b.order);
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
  if (between_.empty()) {
    k.order = b_order;
    return;
  }
  std::sort(between_.begin(), between_.end(), [&](int l, int r) {
    return groups_[static_cast<std::size_t>(l)].order < groups_[static_cast<std::size_t>(r)].order;
  });
  // The merged group takes b's position, after all of b's ancestors; what descends from a moves right behind
  // it.
  renumber_after(b_order, static_cast<int>(between_.size()) + 1);
  k.order = b_order;
  int next = b_order;
  for (int d : between_) groups_[static_cast<std::size_t>(d)].order = ++next;
}

/// Makes room for n positions after `order`.
void Fuser::renumber_after(int order, int n) {
  for (Group& g : groups_)
    if (g.order > order) g.order += n;
}

}  // namespace kiln::plan
