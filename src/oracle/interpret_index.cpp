// Gathers and scatters of the reference interpreter, and what it says of an index out of range.
#include "ir/joined_index.h"
#include "oracle/interpret_element.h"
#include "support/check.h"

#include <kiln/combine.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace kiln::ir::oracle {
namespace {

/// A position along an axis of this extent: negative indices count from the back; -1 when there is none.
std::int64_t resolve_index(DType type, const Value& indices, std::int64_t offset, std::int64_t extent) {
  return dispatch(type, [&]<class T>() -> std::int64_t {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const T i = load<T>(indices, offset);
      if constexpr (std::is_signed_v<T>) {
        const std::int64_t at = i < 0 ? std::int64_t{i} + extent : std::int64_t{i};
        return at < extent ? std::max<std::int64_t>(at, -1) : -1;
      } else {
        return i < static_cast<std::uint64_t>(extent) ? static_cast<std::int64_t>(i) : -1;
      }
    }
    KILN_CHECK_THAT(false, "index of ", name(type));
    return -1;
  });
}

/// `joined`: as in ir::Gather.
std::string index_error(const GraphNode& node, std::size_t axis, Dims joined, const Value& x,
                        const Value& indices, std::int64_t offset) {
  const auto error = [&](std::string_view what, std::span<const std::int64_t> dims) {
    return cat("[", info(node.op).name, "] ", what, " of ", name(x.dtype), " ", to_string(dims),
               ", recorded at ", node.loc.file_name(), ":", node.loc.line());
  };
  if (joined.empty()) {
    const std::string index = dispatch(indices.dtype, [&]<class T>() -> std::string {
      using Wide = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::uint64_t, std::int64_t>;
      return cat(static_cast<Wide>(load<T>(indices, offset)));
    });
    return error(cat("index ", index, " is out of range for axis ", axis), x.dims);
  }
  const auto position = load<std::int64_t>(indices, offset);
  // the check came on later
  if (!is_bad_index(position)) return error("an index is out of range", joined);
  const BadIndex bad = bad_index(position);
  std::string_view far;
  if (bad.index == kFarIndex) far = " or more";
  if (bad.index == -kFarIndex) far = " or less";
  return error(cat("index ", bad.index, far, " is out of range for axis ", bad.axis), joined);
}

}  // namespace

Value gather(const GraphNode& node, const Value& x, const Value& indices, const OutOfRange& out_of_range) {
  Value out = new_value(node.dtype, node.dims);
  const auto [axis, joined] = attributes<Gather>(node);
  Value rest = x;  // x where the coordinate along the axis is 0
  for (std::size_t i = 0; i < node.dims.size(); ++i)
    if (i == axis || x.dims[i] != node.dims[i]) rest.strides[i] = 0;
  rest.dims.assign(node.dims.begin(), node.dims.end());
  const std::int64_t bytes = size_of(node.dtype);
  Cursor from(rest), index(indices);
  for (std::int64_t i = 0, base = 0, at = 0; i < node.numel; ++i) {
    from.take(&base, 1);
    index.take(&at, 1);
    const std::int64_t position = resolve_index(indices.dtype, indices, at, x.dims[axis]);
    if (position < 0 && out_of_range) out_of_range(i, index_error(node, axis, joined, x, indices, at));
    std::byte* const to = out.writable() + i * bytes;
    if (position < 0)
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    else
      std::memcpy(to, x.data + (base + position * x.strides[axis]) * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

namespace {

/// An element that values are written to; sums and products are widened like a reduction's.
template <class S>
class Target {
 public:
  Target(Combine how, S first) : how_(how), value_(first), total_(widen(first)) {}
  void meet(S s) {
    const auto x = static_cast<ref::Compute<S>>(s), best = static_cast<ref::Compute<S>>(value_);
    switch (how_) {
      case Combine::Set: value_ = s; break;
      case Combine::Add: total_ += widen(s); break;
      case Combine::Multiply: total_ *= widen(s); break;
      case Combine::Max:
      case Combine::Min:
        if (best == best && (x != x || (how_ == Combine::Max ? x > best : x < best))) value_ = s;
        break;
    }
  }
  S value() const { return how_ == Combine::Add || how_ == Combine::Multiply ? narrow<S>(total_) : value_; }

 private:
  Combine how_;
  S value_;
  Sum<S> total_;
};

}  // namespace

Value scatter(const GraphNode& node, const Value& x, const Value& indices, const Value& values,
              const OutOfRange& out_of_range) {
  const auto how = attributes<Scatter>(node);
  const std::size_t axis = how.axis;
  Value out = new_value(node.dtype, node.dims);
  Value rest = out;  // the result where the coordinate along the axis is 0
  rest.dims = values.dims;
  rest.strides[axis] = 0;
  const DType moved = is_only_stored(node.dtype) ? DType::UInt8 : node.dtype;  // which are only set
  dispatch(moved, [&]<class S>() {
    std::vector<Target<S>> targets;
    Cursor cursor(x);
    for (std::int64_t i = 0, from = 0; i < node.numel; ++i) {
      cursor.take(&from, 1);
      targets.emplace_back(how.how, load<S>(x, from));
    }
    Cursor to(rest), index(indices), value(values);
    for (std::int64_t i = 0, n = values.numel(), base = 0, at = 0, from = 0; i < n; ++i) {
      to.take(&base, 1);
      index.take(&at, 1);
      value.take(&from, 1);
      const std::int64_t position = resolve_index(indices.dtype, indices, at, node.dims[axis]);
      if (position < 0 && out_of_range) out_of_range(i, index_error(node, axis, how.joined, x, indices, at));
      if (position >= 0)
        targets[static_cast<std::size_t>(base + position * out.strides[axis])].meet(load<S>(values, from));
    }
    for (std::int64_t i = 0; i < node.numel; ++i) store(out, i, targets[static_cast<std::size_t>(i)].value());
  });
  return out;
}

}  // namespace kiln::ir::oracle
