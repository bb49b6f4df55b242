// Fuser: an order of the regions, kept up to date as in Pearce and Kelly (see fuse.cpp).
#include "plan/fuser.h"

#include <algorithm>
#include <limits>

namespace kiln::plan {

/// Whether a path leads from a to b through a third group. Else between_ has a's descendants before b. Gives
/// up after `most` of them.
Fuser::Search Fuser::search_forward(int a, int b, std::size_t most) {
  ++stamp_;
  seen_.resize(groups_.size(), 0);
  between_.clear();
  ancestors_ = false;
  const std::int64_t limit = order_.place(b);
  stack_.assign(1, a);
  seen_[static_cast<std::size_t>(a)] = stamp_;
  while (!stack_.empty()) {
    const int at = stack_.back();
    stack_.pop_back();
    for (std::uint32_t e : groups_[static_cast<std::size_t>(at)].out_edges) {
      const int to = group_of_[edges_[e].consumer];
      if (to == b && at != a) return Search::Path;
      auto& mark = seen_[static_cast<std::size_t>(to)];
      if (mark == stamp_ || order_.place(to) >= limit) continue;
      if (between_.size() == most) return Search::GaveUp;
      mark = stamp_;
      between_.push_back(to);
      stack_.push_back(to);
    }
  }
  return Search::None;
}

/// The same from b: else between_ has b's ancestors behind a.
Fuser::Search Fuser::search_backward(int a, int b, std::size_t most) {
  ++stamp_;
  between_.clear();
  ancestors_ = true;
  const std::int64_t limit = order_.place(a);
  stack_.assign(1, b);
  seen_[static_cast<std::size_t>(b)] = stamp_;
  while (!stack_.empty()) {
    const int at = stack_.back();
    stack_.pop_back();
    for (std::uint32_t e : groups_[static_cast<std::size_t>(at)].in_edges) {
      const int from = group_of_[edges_[e].producer];
      if (from < 0) continue;
      if (from == a && at != b) return Search::Path;
      auto& mark = seen_[static_cast<std::size_t>(from)];
      if (mark == stamp_ || order_.place(from) <= limit) continue;
      if (between_.size() == most) return Search::GaveUp;
      mark = stamp_;
      between_.push_back(from);
      stack_.push_back(from);
    }
  }
  return Search::None;
}

/// The longest chain of products, each of which reads the one before: the layers of a deep network, there and
/// back. A group that the chain reads before another group reads it is on a path that no search need follow.
void Fuser::find_chain() {
  if (loops_.any()) return;  // a product in a body has no group
  const auto is_product = [&](NodeId id) {
    return ir::info(g_[id].op).kind == OpKind::Contraction && tiled_of_[id] < 0 && group_of_[id] >= 0;
  };
  std::vector<int> depth(g_.size(), 0);  // products on the longest way to a node
  std::vector<NodeId> through(g_.size(), kNoNode);
  NodeId end = kNoNode;
  for (NodeId id = 0; id < g_.size(); ++id) {
    for (const NodeId in : g_[id].in)
      if (depth[in] > depth[id]) depth[id] = depth[in], through[id] = is_product(in) ? in : through[in];
    depth[id] += is_product(id);
    if (is_product(id) && (end == kNoNode || depth[id] > depth[end])) end = id;
  }
  if (end == kNoNode) return;
  std::vector<int> number(g_.size(), -1);
  for (NodeId id = end; id != kNoNode; id = through[id]) number[id] = depth[id];
  std::vector<int> last(number), first(g_.size(), std::numeric_limits<int>::max());
  for (NodeId id = 0; id < g_.size(); ++id)
    for (const NodeId in : g_[id].in) last[id] = std::max(last[id], last[in]);
  for (NodeId id = g_.size(); id-- > 0;) {
    if (number[id] >= 0) first[id] = number[id];
    for (const NodeId in : g_[id].in) first[in] = std::min(first[in], first[id]);
  }
  for (NodeId id = 0; id < g_.size(); ++id) {
    if (group_of_[id] < 0) continue;
    Group& x = group(id);
    x.first_product = std::min(x.first_product, first[id]);
    x.last_product = std::max(x.last_product, last[id]);
  }
}

/// Whether a path from a to b leads through a third group. If none does, between_ is what merge() moves. Both
/// ends are searched, each with a bound that grows, so that the smaller side decides how long it takes.
bool Fuser::path_around(int a, int b) {
  const Group &x = groups_[static_cast<std::size_t>(a)], &y = groups_[static_cast<std::size_t>(b)];
  if (!x.library && !y.library && x.first_product <= y.last_product) return true;
  for (std::size_t most = 256;; most *= 4)
    for (const bool back : {false, true}) {
      const Search found = back ? search_backward(a, b, most) : search_forward(a, b, most);
      if (found != Search::GaveUp) return found == Search::Path;
    }
}

/// b joins a's group. Descendants of a that stood before b (between_) now stand after the merged group, in
/// their order; or ancestors of b that stood after a before it.
void Fuser::merge(int ia, int ib, const Fit& f) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  for (int side = 0; side < 2; ++side) {
    const Group& x = side == 0 ? a : b;
    if (f.atoms.is_identity(side, x.space.n)) continue;
    for (NodeId n : x.nodes) place_[n] = f.atoms.of(side, place_[n]);
  }
  // The larger group keeps its index.
  int keep = ia, gone = ib;
  if (b.nodes.size() > a.nodes.size()) std::swap(keep, gone);
  Group &k = groups_[static_cast<std::size_t>(keep)], &x = groups_[static_cast<std::size_t>(gone)];
  k.space = f.atoms.space();
  k.levels = f.levels;
  k.points = k.space.points(k.space.all());
  k.cost += x.cost;
  k.reductions += x.reductions;
  k.stored += x.stored;
  k.pieces += x.pieces;
  k.reduces |= x.reduces;
  k.scans |= x.scans;
  k.loops |= x.loops;
  k.phases |= x.phases || f.dependent;
  k.forwards |= x.forwards;
  k.backwards |= x.backwards;
  k.first_product = std::min(k.first_product, x.first_product);
  k.last_product = std::max(k.last_product, x.last_product);
  x.space = k.space;
  x.levels = k.levels;
  for (NodeId n : x.nodes) group_of_[n] = keep;
  auto splice = [](auto& to, auto& from) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
    from.shrink_to_fit();
  };
  splice(k.nodes, x.nodes);
  splice(k.in_edges, x.in_edges);
  splice(k.out_edges, x.out_edges);
  std::sort(between_.begin(), between_.end(),
            [&](int l, int r) { return order_.place(l) < order_.place(r); });
  // The merged group takes b's place, behind all of b's ancestors, and what descends from a moves right
  // behind it. Or b's ancestors move right behind a, and the merged group behind them.
  const auto move_behind = [&](int at) {
    for (int d : between_) {
      order_.remove(d);
      order_.insert(d, at);
      at = d;
    }
    return at;
  };
  const int target = ancestors_ ? move_behind(ia) : ib;
  if (keep != target) {
    order_.remove(keep);
    order_.insert(keep, target);
  }
  order_.remove(gone);
  if (!ancestors_) move_behind(keep);
}

}  // namespace kiln::plan
