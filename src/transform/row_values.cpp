#include "transform/row_values.h"

#include "ir/attributes.h"

#include <algorithm>

namespace kiln::transform {

RowValues::RowValues(const Graph& graph, NodeId product, Allowed allowed)
    : g_(graph),
      product_(product),
      allowed_(allowed),
      prefix_(graph.size(), -1),
      of_product_(graph.size()),
      after_(graph.size()),
      wanted_(graph.size()),
      sum_(graph.size()),
      turned_(graph.size()),
      gradient_(graph.size()),
      whole_(graph.size()) {
  const ir::Dims dims = graph[product].dims;
  for (std::size_t a = 0; a + 2 < dims.size(); ++a) rows_ *= dims[a];
  matrices_ = rows_ != 1;
  if (!matrices_) rows_ = dims[dims.size() - 2];
  for (const NodeId root : graph.roots) wanted_[root] = true;
}

std::optional<std::size_t> RowValues::axes_of(ir::Dims dims) const {
  std::int64_t points = 1;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    points *= dims[a];
    if (points == rows_) return a + 1;
    if (points > rows_ || points == 0) return std::nullopt;
  }
  return std::nullopt;
}

bool RowValues::any_operand(const GraphNode& n, const std::vector<bool>& of) {
  return std::ranges::any_of(n.in, [&](NodeId in) { return of[in]; });
}

/// The row axes of n where its operand x, which repeats to n's extents, has the same rows.
std::optional<std::size_t> RowValues::through(NodeId x, const GraphNode& n) const {
  const ir::Dims from = g_[x].dims, to = n.dims;
  const std::size_t lead = to.size() - from.size();
  const auto rows = axes_of(to);
  const auto own = static_cast<std::size_t>(prefix_[x]);
  if (!rows || *rows != lead + own) return std::nullopt;
  for (std::size_t a = 0; a < lead; ++a)
    if (to[a] != 1) return std::nullopt;
  return std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(own),
                    to.begin() + static_cast<std::ptrdiff_t>(lead))
             ? rows
             : std::nullopt;
}

std::optional<std::size_t> RowValues::through_view(const GraphNode& n) const {
  const NodeId x = n.in[0];
  const auto own = static_cast<std::size_t>(prefix_[x]);
  switch (n.op) {
    case Op::alias: return own;
    case Op::reshape: return axes_of(n.dims);
    case Op::broadcast: return through(x, n);
    case Op::permute: {
      const auto order = ir::attributes<ir::Permute>(n);
      for (std::size_t a = 0; a < own; ++a)
        if (order[a] != a) return std::nullopt;
      return own;
    }
    case Op::slice: {
      const auto box = ir::attributes<ir::Box>(n);
      for (std::size_t a = 0; a < own; ++a)
        if (box.first(a) != 0 || box.step(a) != 1 || n.dims[a] != g_[x].dims[a]) return std::nullopt;
      return own;
    }
    default: return std::nullopt;
  }
}

/// An element that an index picks in its own row.
std::optional<std::size_t> RowValues::follow_gather(const GraphNode& n) const {
  const NodeId x = n.in[0], index = n.in[1];
  const auto rows = axes_of(n.dims);
  if (!rows || ir::attributes<ir::Gather>(n).axis < *rows) return std::nullopt;
  if (of_product_[index] && !through(index, n)) return std::nullopt;
  for (std::size_t a = 0; a < *rows; ++a)
    if (g_[x].dims[a] != n.dims[a] && (of_product_[x] || g_[x].dims[a] != 1)) return std::nullopt;
  return rows;
}

/// Whether x shows what the product's operand shows.
bool RowValues::is_own(NodeId x, std::size_t operand) const {
  const auto base = [&](NodeId id) {
    while (g_[id].op == Op::permute || g_[id].op == Op::reshape || g_[id].op == Op::alias) id = g_[id].in[0];
    return id;
  };
  return base(x) == base(g_[product_].in[operand]);
}

/// Whether a product has the product's matrices, one each.
bool RowValues::has_matrices(const GraphNode& n) const {
  const auto rows = axes_of(n.dims);
  if (!matrices_ || !allowed_.products || !rows || *rows + 2 > n.dims.size()) return false;
  const auto own = static_cast<std::ptrdiff_t>(*rows),
             matrix = static_cast<std::ptrdiff_t>(n.dims.size()) - 2;
  const auto same = [&](NodeId in) {
    return std::equal(n.dims.begin(), n.dims.begin() + own, g_[in].dims.begin()) &&
           (!of_product_[in] || prefix_[in] == own);
  };
  return std::all_of(n.dims.begin() + own, n.dims.begin() + matrix, [](std::int64_t d) { return d == 1; }) &&
         same(n.in[0]) && same(n.in[1]);
}

/// Whether a node is what another product makes of the matrices.
bool RowValues::is_weighted(NodeId id) const {
  return matrices_ && g_[id].op == Op::matmul && of_product_[id] && !whole_[id];
}

std::optional<std::size_t> RowValues::follow_product(const GraphNode& n) const {
  const auto rows = axes_of(n.dims);
  if (has_matrices(n)) return rows;
  const bool reads_rows = of_product_[n.in[0]] && !of_product_[n.in[1]];
  if (!reads_rows || !rows || static_cast<int>(*rows) != prefix_[n.in[0]]) return std::nullopt;
  return allowed_.products || (allowed_.sums && !matrices_ && is_own(n.in[1], 1)) ? rows : std::nullopt;
}

/// A matrix of rows, turned: each of its columns is a row.
bool RowValues::turns(const GraphNode& n) const {
  return allowed_.sums && n.op == Op::permute && n.dims.size() == 2 && prefix_[n.in[0]] == 1 &&
         ir::attributes<ir::Permute>(n)[0] == 1;
}

bool RowValues::sums_rows(const GraphNode& n) const {
  if (!allowed_.sums || n.numel == 0) return false;
  if (ir::is_reduce(n.op)) {
    if (ir::has(n.op, ir::POSITION) || prefix_[n.in[0]] < 0) return false;
    const auto over = ir::attributes<ir::Reduce>(n);
    for (std::size_t a = 0; a < static_cast<std::size_t>(prefix_[n.in[0]]); ++a)
      if (!over.over(a)) return false;
    return true;
  }
  if (n.op != Op::matmul || n.dims.size() != 2) return false;
  const NodeId a = n.in[0], b = n.in[1];
  const bool columns = turned_[a] || !of_product_[a], rows = prefix_[b] == 1 || !of_product_[b];
  if (!columns || !rows || (!turned_[a] && !of_product_[b])) return false;
  return allowed_.products || is_own(turned_[a] ? b : a, 0);
}

/// The row axes of a node, some operand of which is made row by row, if the node is, too.
std::optional<std::size_t> RowValues::follow(const GraphNode& n) const {
  if (n.numel == 0) return std::nullopt;
  if (std::ranges::any_of(n.in, [&](NodeId in) { return of_product_[in] && prefix_[in] < 0; }))
    return std::nullopt;
  if (ir::is_elementwise(n.op)) {
    std::optional<std::size_t> rows;
    for (const NodeId in : n.in)
      if (of_product_[in] && !(rows = through(in, n))) return std::nullopt;
    return rows;
  }
  if (n.op == Op::gather) return follow_gather(n);
  if (n.op == Op::matmul) return follow_product(n);
  if (n.in.size() != 1) return std::nullopt;
  const int own = prefix_[n.in[0]];
  const auto rows = static_cast<std::size_t>(own);
  if (ir::is_view(n.op)) return through_view(n);
  const auto behind = [&](std::size_t axis) { return axis >= rows ? std::optional(rows) : std::nullopt; };
  if (ir::is_scan(n.op)) return behind(ir::attributes<ir::Scan>(n).axis);
  if (ir::Sort::fits(n.op)) return behind(ir::attributes<ir::Sort>(n).axis);
  if (n.op == Op::part) return rows;  // of a sort, as any other op of several results is not followed
  if (!ir::is_reduce(n.op)) return std::nullopt;
  const auto over = ir::attributes<ir::Reduce>(n);
  for (std::size_t a = 0; a < rows; ++a)
    if (over.over(a) && g_[n.in[0]].dims[a] != 1) return std::nullopt;
  return over.mask >> rows != 0 ? std::optional(rows) : std::nullopt;
}

std::pair<Why, NodeId> RowValues::follow_all() {
  prefix_[product_] = static_cast<std::int8_t>(axes_of(g_[product_].dims).value());
  of_product_[product_] = whole_[product_] = true;
  std::pair<Why, NodeId> missed{{}, kNoNode};
  const auto miss = [&](FusionReason reason, NodeId id) {
    if (missed.second == kNoNode) missed = {because(reason, ir::info(g_[id].op).name), id};
  };
  if (wanted_[product_]) miss(FusionReason::BlocksWanted, product_);
  NodeId first_gradient = kNoNode;
  bool sums_products = false;
  for (NodeId id = product_ + 1; id < g_.size(); ++id) {
    const GraphNode& n = g_[id];
    if (!any_operand(n, of_product_)) continue;
    const bool reads_whole = any_operand(n, whole_);
    // what becomes of an attention's result is not for its scores to wait for
    if (!reads_whole && std::ranges::any_of(n.in, [&](NodeId in) { return is_weighted(in); })) continue;
    if (reads_whole && (sums_rows(n) || turns(n))) {
      of_product_[id] = true;
      (turns(n) ? turned_ : sum_)[id] = true;
      whole_[id] = turned_[id];
      reduces_ |= sum_[id];
      sums_products |= sum_[id] && n.op == Op::matmul;
      if (turned_[id] && wanted_[id]) miss(FusionReason::BlocksWanted, id);
      continue;
    }
    const auto rows = follow(n);
    if (!rows) {
      if (reads_whole) miss(FusionReason::BlocksOfOthers, id);
      continue;
    }
    prefix_[id] = static_cast<std::int8_t>(*rows);
    of_product_[id] = true;
    gradient_[id] = n.op == Op::matmul && !allowed_.products;
    if (gradient_[id] && first_gradient == kNoNode) first_gradient = id;
    whole_[id] = reads_whole && is_large(id) && !gradient_[id];
    reduces_ |= reads_whole && !whole_[id] && n.op != Op::matmul;
    if (whole_[id] && wanted_[id]) miss(FusionReason::BlocksWanted, id);
  }
  // beside no gradient by w this is rather an attention whose keys are its values
  if (first_gradient != kNoNode && !sums_products) miss(FusionReason::BlocksOfOthers, first_gradient);
  return missed;
}

/// A map of few values a row, of nothing but numbers and other values of the product's rows.
bool RowValues::is_small_map(const GraphNode& n) const {
  if (!ir::is_elementwise(n.op) && n.op != Op::reshape) return false;
  return std::ranges::all_of(n.in, [&](NodeId in) { return of_product_[in] || g_[in].numel == 1; });
}

/// Leaves what small values become to others, but for a few maps: the large ones need them, or are read.
void RowValues::keep_needed() {
  constexpr std::int64_t kFew = 4;  // elements a row
  std::vector<bool> need(g_.size());
  for (NodeId id = g_.size(); id-- > product_;) {
    if (!of_product_[id]) continue;
    const GraphNode& n = g_[id];
    if (!need[id] && id != product_ && !any_operand(n, whole_)) continue;
    need[id] = true;
    if (id == product_) continue;
    for (const NodeId in : n.in)
      if (of_product_[in]) need[in] = true;
  }
  for (NodeId id = product_; id < g_.size(); ++id) {
    if (!of_product_[id] || need[id]) continue;
    const bool stays = g_[id].numel <= kFew * rows_ && is_small_map(g_[id]);
    of_product_[id] = stays || g_[id].op == Op::part;  // what it is a part of has no value
    if (!of_product_[id]) prefix_[id] = -1;
  }
}

/// Whether a node that others made may be made by blocks instead, for those who read its rows there.
bool RowValues::is_taken(NodeId id) const {
  const GraphNode& n = g_[id];
  if (wanted_[id] || !axes_of(n.dims)) return false;
  if (n.op == Op::reshape) return axes_of(g_[n.in[0]].dims).has_value();
  if (n.op == Op::matmul) return n.numel == g_[product_].numel && has_matrices(n);
  return ir::is_elementwise(n.op) || ((n.op == Op::iota || n.op == Op::broadcast) && is_large(id));
}

/// Maps of rows that the product's rows meet are made by blocks with these: masks, labels as wider integers,
/// cotangents of weights.
void RowValues::take_operands() {
  std::vector<bool> read(g_.size()), elsewhere(g_.size());
  for (NodeId id = g_.size(); id-- > 0;) {
    const GraphNode& n = g_[id];
    if (!of_product_[id] && read[id] && is_taken(id) && !(n.op == Op::matmul && elsewhere[id]))
      prefix_[id] = static_cast<std::int8_t>(*axes_of(n.dims));
    if (prefix_[id] < 0)
      for (const NodeId in : n.in) elsewhere[in] = true;
    if (prefix_[id] < 0 || id == product_) continue;
    if (!ir::is_elementwise(n.op) && n.op != Op::broadcast && n.op != Op::reshape) continue;
    for (const NodeId in : n.in) {
      const auto own = axes_of(g_[in].dims);
      if (of_product_[in] || !own) continue;
      prefix_[in] = static_cast<std::int8_t>(*own);
      if (n.op == Op::reshape || through(in, n)) read[in] = true;
      prefix_[in] = -1;
    }
  }
}

std::pair<Why, NodeId> RowValues::find_results() {
  // small values that a handle holds are published; large ones stay recorded
  std::vector<bool> leaves = wanted_;
  for (NodeId id = product_ + 1; id < g_.size(); ++id) {
    const GraphNode& n = g_[id];
    if (of_product_[id]) continue;
    after_[id] = any_operand(n, of_product_) || any_operand(n, after_);
    for (const NodeId in : n.in) leaves[in] = true;
  }
  for (NodeId id = product_; id < g_.size(); ++id) {
    if (!of_product_[id]) continue;
    if (id != product_ && any_operand(g_[id], after_))
      return {because(FusionReason::BlocksMeet, ir::info(g_[id].op).name), id};
    if (!leaves[id] && !(g_[id].held && !is_large(id))) continue;
    if (is_large(id) && !is_stored_anyway(id))
      return {because(FusionReason::BlocksWanted, ir::info(g_[id].op).name), id};
    results_.push_back(id);
  }
  return {{}, kNoNode};
}

std::pair<Why, NodeId> RowValues::find() {
  std::pair<Why, NodeId> missed = follow_all();
  if (missed.second != kNoNode || !reduces_) return missed;
  keep_needed();
  missed = find_results();
  take_operands();
  return missed;
}

}  // namespace kiln::transform
