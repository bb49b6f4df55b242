#include "ir/view_map.h"

#include "ir/graph.h"
#include "ir/infer.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::ir {
namespace {

/// Right-aligned: an extent of 1 repeats.
ViewMap broadcast_map(Dims from, Dims to) {
  if (!repeats_to(from, to)) return ViewMap::wrong("does not fit its operand");
  ViewMap map;
  map.first.resize(from.size());
  const std::size_t lead = to.size() - from.size();
  for (std::size_t a = 0; a < from.size(); ++a)
    if (from[a] == to[lead + a]) map.terms.push_back({a, lead + a, 1});
  return map;
}

template <class A>
concept Shows = requires(const A& a, Dims dims) { a.map(dims, dims); };

/// The map that the op's own kind of attributes gives.
template <class A, class... Others>
ViewMap map_of(Kinds<A, Others...>, Op op, const Stored& stored, Dims from, Dims to) {
  if constexpr (Shows<A>)
    if (A::fits(op)) return A::from(stored).map(from, to);
  if constexpr (sizeof...(Others) > 0) return map_of(Kinds<Others...>{}, op, stored, from, to);
  return ViewMap::wrong("is no affine view");
}

}  // namespace

bool ViewMap::is_identity(Dims dims) const {
  std::size_t long_axes = 0, kept = 0;  // of several elements; those that one term walks one by one
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] != 0 && first[a] != 0) return false;
    long_axes += dims[a] > 1;
  }
  for (const Term& t : terms) {
    if (dims[t.axis] <= 1) continue;
    if (t.operand_axis != t.axis || t.step != 1) return false;
    ++kept;
  }
  return kept == long_axes;
}

bool ViewMap::stays_inside(Dims from, Dims to) const {
  if (std::ranges::find(to, 0) != to.end()) return true;  // it reads nothing
  std::vector<std::int64_t> low = first, high = first;
  for (const Term& t : terms) {
    const std::int64_t reach = to[t.axis] == 1 ? 0 : t.step * (to[t.axis] - 1);
    (reach < 0 ? low : high)[t.operand_axis] += reach;
  }
  for (std::size_t a = 0; a < from.size(); ++a)
    if (low[a] < 0 || high[a] >= from[a]) return false;
  return true;
}

ViewMap view_map(Op op, const Stored& stored, Dims from, Dims to) {
  KILN_CHECK_THAT(has(op, AFFINE), info(op).name, " is no affine view");
  return op == Op::broadcast ? broadcast_map(from, to) : map_of(AttributeKinds{}, op, stored, from, to);
}

ViewMap view_map(const GraphNode& view, Dims from) {
  ViewMap map = view_map(view.op, stored(view), from, view.dims);
  KILN_CHECK_THAT(map.fault == nullptr, info(view.op).name, " ", map.fault);
  return map;
}

}  // namespace kiln::ir
