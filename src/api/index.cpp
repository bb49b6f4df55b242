// Basic indexing and its functional counterpart, slice update: a Slice list becomes starts and steps an axis.
#include "api/record.h"
#include "support/check.h"
#include "support/log.h"

#include <algorithm>

namespace kiln {
namespace {

using ir::NodeRef;

/// An index resolved against a shape: the box it selects (one entry an axis of x), and the shape the user
/// sees.
struct Box {
  Shape start, step, dims;  // of x's rank
  Shape result;             // integer axes dropped, new axes added
};

std::string show(const Slice& s) {
  const auto bound = [](const std::optional<std::int64_t>& b) {
    return b ? std::to_string(*b) : std::string();
  };
  switch (s.kind) {
    case Slice::Kind::Index: return std::to_string(*s.start);
    case Slice::Kind::NewAxis: return "newaxis";
    case Slice::Kind::Ellipsis: return "...";
    case Slice::Kind::Range: break;
  }
  return s.step == 1 ? cat(bound(s.start), ':', bound(s.stop))
                     : cat(bound(s.start), ':', bound(s.stop), ':', s.step);
}

/// Python's slice.indices: first element, and how many.
void resolve_range(std::string_view op, const Slice& s, std::int64_t extent, std::int64_t* start,
                   std::int64_t* count) {
  if (s.step == 0) throw UserError(cat("[", op, "] slice ", show(s), " has a step of 0"));
  const bool back = s.step < 0;
  const std::int64_t low = back ? -1 : 0, high = back ? extent - 1 : extent;
  const auto place = [&](std::optional<std::int64_t> b, std::int64_t missing) {
    if (!b) return missing;
    return std::clamp(*b < 0 ? *b + extent : *b, low, high);
  };
  const std::int64_t from = place(s.start, back ? high : low), to = place(s.stop, back ? low : high);
  const std::int64_t span = back ? from - to : to - from;
  // |step| as unsigned: -INT64_MIN does not fit.
  const std::uint64_t stride =
      back ? 0 - static_cast<std::uint64_t>(s.step) : static_cast<std::uint64_t>(s.step);
  *count = span <= 0 ? 0 : static_cast<std::int64_t>((static_cast<std::uint64_t>(span) - 1) / stride) + 1;
  *start = *count == 0 ? 0 : from;
}

Box resolve(std::string_view op, const ir::Node* x, std::span<const Slice> slices) {
  int used = 0, ellipses = 0;
  for (const Slice& s : slices) {
    used += s.kind == Slice::Kind::Index || s.kind == Slice::Kind::Range;
    ellipses += s.kind == Slice::Kind::Ellipsis;
  }
  if (used > x->rank || ellipses > 1) {
    std::string list;
    for (const Slice& s : slices) list += (list.empty() ? "" : ", ") + show(s);
    throw UserError(cat("[", op, "] [", list, "] has too many parts for ", api::describe(x)));
  }
  Box box;
  int axis = 0;
  const auto take_whole = [&](int count) {
    for (int i = 0; i < count; ++i, ++axis) {
      const std::int64_t extent = x->dims()[static_cast<std::size_t>(axis)];
      box.start.push_back(0);
      box.step.push_back(1);
      box.dims.push_back(extent);
      box.result.push_back(extent);
    }
  };
  for (const Slice& s : slices) {
    switch (s.kind) {
      case Slice::Kind::NewAxis: box.result.push_back(1); break;
      case Slice::Kind::Ellipsis: take_whole(x->rank - used); break;
      case Slice::Kind::Index: {
        const std::int64_t extent = x->dims()[static_cast<std::size_t>(axis)];
        if (*s.start < -extent || *s.start >= extent)
          throw UserError(cat("[", op, "] index ", *s.start, " is out of range for axis ", axis, " of ",
                              api::describe(x)));
        box.start.push_back(*s.start < 0 ? *s.start + extent : *s.start);
        box.step.push_back(1);
        box.dims.push_back(1);
        ++axis;
        break;
      }
      case Slice::Kind::Range: {
        std::int64_t start = 0, count = 0;
        resolve_range(op, s, x->dims()[static_cast<std::size_t>(axis)], &start, &count);
        box.start.push_back(start);
        box.step.push_back(count > 1 ? s.step : 1);
        box.dims.push_back(count);
        box.result.push_back(count);
        ++axis;
        break;
      }
    }
  }
  take_whole(x->rank - axis);
  return box;
}

}  // namespace

Tensor Tensor::index(std::span<const Slice> slices, SourceLocation loc) const {
  const CallScope scope("index", loc);
  ir::Node* const x = api::checked("index", *this);
  const Box box = resolve("index", x, slices);
  const NodeRef part = api::slice_node(x, box.start, box.step, box.dims);
  return api::finish(api::reshape_node(part.get(), box.result));
}

RowIterator Tensor::begin(SourceLocation loc) const {
  const CallScope scope("begin", loc);
  if (const ir::Node* const x = api::checked("begin", *this); x->rank == 0)
    throw UserError(cat("[begin] ", api::describe(x), " has no axis to go along"));
  return {*this, 0, loc};
}
RowIterator Tensor::end(SourceLocation loc) const { return {*this, rank(loc) == 0 ? 0 : dim(0, loc), loc}; }

namespace {

/// Says once a line that it writes single elements in a loop.
void notice_element_writes(const ir::Node* x, const Box& box, const SourceLocation& loc) {
  constexpr int kMany = 256;
  constexpr std::int64_t kSmall = 64;
  struct Line {
    SourceLocation loc;
    int writes = 0;
  };
  thread_local Line last;
  if (box.dims.numel() != 1 || x->numel <= kSmall) return;
  if (loc.line() != last.loc.line() || loc.file_name() != last.loc.file_name()) last = {loc, 0};
  if (++last.writes != kMany) return;
  const std::string line = cat(loc.file_name(), ":", loc.line());
  warn_once("element writes " + line,
            cat(line, " writes single elements of a ", api::describe(x),
                " in a loop: each write is a new value of the "
                "whole tensor. Write into a std::vector and make a tensor of it, or write slices"));
}

}  // namespace

Tensor slice_update(const Tensor& x, std::span<const Slice> slices, const Operand& value) {
  const CallScope scope("slice_update", value.loc);
  ir::Node* const node = api::checked("slice_update", x);
  const Box box = resolve("slice_update", node, slices);
  notice_element_writes(node, box, value.loc);
  const NodeRef given = value.tensor
                            ? api::cast_node(api::checked("slice_update", *value.tensor), node->dtype)
                            : api::scalar_node(value.scalar, node->dtype);
  Shape from = given->shape();
  // Leading ones are dropped, as numpy does when assigning.
  while (from.rank() > box.result.rank() && from[0] == 1)
    from = Shape(std::span<const std::int64_t>(from).subspan(1));
  bool fits = from.rank() <= box.result.rank();
  for (int i = 0; i < from.rank() && fits; ++i) {
    const std::int64_t want = box.result[box.result.rank() - from.rank() + i];
    fits = from[i] == want || from[i] == 1;
  }
  if (!fits)
    throw UserError(cat("[slice_update] ", api::describe(given.get()),
                        " does not broadcast to the selected shape ", box.result.str(), " of ",
                        api::describe(node)));
  for (std::int64_t extent : box.dims)
    if (extent == 0) return x;
  NodeRef body = api::reshape_node(given.get(), from);
  body = api::broadcast_node(body.get(), box.result);
  body = api::reshape_node(body.get(), box.dims);
  // pad places forward only: a backward box is the same box forward, with its contents turned round.
  Shape low = box.start, step = box.step, turned_start, turned_step;
  for (int i = 0; i < node->rank; ++i) {
    const bool back = step[i] < 0;
    turned_start.push_back(back ? box.dims[i] - 1 : 0);
    turned_step.push_back(back ? -1 : 1);
    if (back) {
      low[i] += step[i] * (box.dims[i] - 1);
      step[i] = -step[i];
    }
  }
  body = api::slice_node(body.get(), turned_start, turned_step, box.dims);
  if (std::ranges::equal(box.dims, node->dims())) return api::finish(std::move(body));
  return api::finish(api::pad_node(body.get(), node, 0, low, step, node->dims()));
}

Tensor slice_update(const Tensor& x, std::initializer_list<Slice> slices, const Operand& value) {
  return slice_update(x, std::span(slices.begin(), slices.size()), value);
}

SliceRef& SliceRef::assign(const Operand& value) {
  *target_ = slice_update(*target_, slices_, value);
  return *this;
}
#define KILN_SLICE_ASSIGNMENT(Symbol, Name)                      \
  SliceRef& SliceRef::operator Symbol(const Operand & value)&& { \
    return assign({Name(*this, value), value.loc});              \
  }
#define KILN_SELECT_ASSIGNMENT(Symbol, Name) \
  SelectRef& SelectRef::operator Symbol(const Operand & value)&& { return combine(Name, value); }
// clang-format off
#define KILN_ASSIGNMENTS(X)                                                                                        \
  X(+=, add) X(-=, subtract) X(*=, multiply) X(/=, divide) X(%=, remainder) X(&=, bitwise_and) X(|=, bitwise_or) \
  X(^=, bitwise_xor) X(<<=, bitwise_left_shift) X(>>=, bitwise_right_shift)
// clang-format on
KILN_ASSIGNMENTS(KILN_SLICE_ASSIGNMENT)
KILN_ASSIGNMENTS(KILN_SELECT_ASSIGNMENT)
#undef KILN_ASSIGNMENTS
#undef KILN_SELECT_ASSIGNMENT
#undef KILN_SLICE_ASSIGNMENT

namespace {

/// The elements of x that a mask or indices name.
Tensor selected(const Tensor& x, const Tensor& selector, SourceLocation loc) {
  const CallScope scope("index", loc);
  ir::Node* const chosen = api::checked("index", selector);
  api::checked("index", x);
  if (is_bool(chosen->dtype)) return compress(x, selector);
  if (is_int(chosen->dtype)) return take(x, selector, 0);
  throw UserError(cat("[index] needs a bool mask or integer indices, got ", api::describe(chosen)));
}

void check_mask(const ir::Node* x, const ir::Node* mask) {
  bool fits = mask->rank <= x->rank;
  for (std::size_t i = 0; i < mask->rank && fits; ++i) fits = mask->dims()[i] == x->dims()[i];
  if (!fits)
    throw UserError(cat("[index] needs a bool mask over leading axes: x ", api::describe(x), ", mask ",
                        api::describe(mask)));
}

/// x where a bool mask over its leading axes is false, else `value`, which has x's dtype and broadcasts to
/// the other axes.
Tensor masked(const Tensor& x, const Tensor& mask, const Operand& value) {
  Shape over = mask.shape();
  over.resize(x.rank(), 1);
  return where(mask.reshape(over), value, x);
}

/// The extents of x behind the mask's.
Shape behind(const ir::Node* x, const ir::Node* mask) { return Shape(x->dims().subspan(mask->rank)); }

}  // namespace

Tensor Tensor::operator()(TensorArg selector) const& {
  return selected(*this, *selector.tensor, selector.loc);
}

const Tensor& SelectRef::value() const {
  if (!value_.valid()) value_ = selected(x_, selector_, loc_);
  return value_;
}

bool SelectRef::whole(const Operand& value) const {
  const bool known = selector_.valid() && x_.valid() && (!value.tensor || value.tensor->valid());
  return known && is_bool(selector_.dtype()) &&
         (value.tensor ? value.tensor->rank() : 0) <= x_.rank() - selector_.rank();
}

SelectRef& SelectRef::assign(const Operand& value) {
  const CallScope scope("index", value.loc);
  ir::Node *const x = api::checked("index", x_), *const chosen = api::checked("index", selector_);
  if (!is_bool(chosen->dtype)) {
    *target_ = scatter(x_, selector_, value);
    return *this;
  }
  check_mask(x, chosen);
  const NodeRef given = value.tensor ? api::cast_node(api::checked("index", *value.tensor), x->dtype)
                                     : api::scalar_node(value.scalar, x->dtype);
  const Tensor values = Tensor::adopt(NodeRef::share(given.get()).take());
  if (whole(value) || chosen->rank == 0)
    *target_ = masked(x_, selector_, broadcast_to(values, behind(x, chosen)));
  else
    *target_ = scatter(x_, nonzero(selector_), Operand(values));
  return *this;
}

/// Where x is written whole, it is combined whole: the mask is not evaluated.
SelectRef& SelectRef::combine(Function f, const Operand& value) {
  const CallScope scope("index", value.loc);
  if (!whole(value)) return assign({f(this->value(), value), value.loc});
  check_mask(x_.node(), selector_.node());
  const Tensor combined =
      value.tensor ? f(x_, broadcast_to(*value.tensor, behind(x_.node(), selector_.node()))) : f(x_, value);
  *target_ = masked(x_, selector_, combined.astype(x_.dtype()));
  return *this;
}

}  // namespace kiln
