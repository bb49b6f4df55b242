#include "ir/infer.h"

namespace kiln::ir {
namespace {

bool equal(Dims a, Dims b) { return std::ranges::equal(a, b); }

std::int64_t product(Dims dims) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  return n;
}

/// Each rule says what is wrong, or sets the result and returns null.
class Inference {
 public:
  Inference(Op op, std::span<const Type> in, const Stored& stored, const Stated& stated)
      : op_(op), in_(in), stored_(stored), stated_(stated) {}

  Inferred run() {
    out_.fault = rule();
    return std::move(out_);
  }

 private:
  const char* rule() {
    switch (info(op_).kind) {
      case OpKind::Leaf:
      case OpKind::Scalar: return in_.empty() ? as_stated() : "has operands";
      case OpKind::Iota:
        if (const char* fault = as_stated()) return fault;
        return in_.empty() && as<Iota>().axis < rank() ? nullptr : "has no such axis";
      case OpKind::Cast: return cast();
      case OpKind::View: return view();
      case OpKind::Reduce: return reduce();
      case OpKind::Scan:
        if (in_.size() != 1 || as<Scan>().axis >= in_[0].dims.size()) return "does not fit its operand";
        if (!folds(in_[0].dtype)) return "does not fit its operand";
        return result(in_[0]);
      case OpKind::LoopState:
        if (in_.empty()) return as_stated();  // of no loop
        return in_.size() == 1 ? result(in_[0]) : "has more than one first value";
      case OpKind::LoopNext: {
        const std::size_t own = op_ == Op::loop_next ? 2 : 1;
        if (in_.size() != own && in_.size() != own + 1) return "has no states before it";
        return result({DType::Bool, {}});
      }
      case OpKind::Loop:
        if (in_.size() != 2 || !is_bool(in_[1].dtype)) return "needs states and a condition";
        return result({DType::Bool, {}});
      case OpKind::LoopResult:
      case OpKind::LoopStack: return in_.size() == 1 ? as_stated() : "has no loop";
      case OpKind::Part: return in_.empty() ? "is of no op" : as_stated();
      case OpKind::Gather: return gather();
      case OpKind::Contraction: return matmul();
      case OpKind::Library: return library();
      case OpKind::Elementwise: return elementwise();
    }
    return "is no op";
  }

  template <class A>
  A as() const {
    return A::from(stored_);
  }
  std::size_t rank() const { return static_cast<std::size_t>(out_.dims.rank()); }

  const char* result(DType dtype, const Shape& dims) {
    out_.dtype = dtype;
    out_.dims = dims;
    return nullptr;
  }
  const char* result(const Type& like) { return result(like.dtype, Shape(like.dims)); }
  const char* as_stated() {
    if (!stated_.dtype) return "needs a dtype";
    return with_stated_dims(*stated_.dtype);
  }
  const char* with_stated_dims(DType dtype) {
    return stated_.dims ? result(dtype, Shape(*stated_.dims)) : "needs extents";
  }

  /// The extents stated if every operand repeats to them, else those that all of them repeat to.
  const char* repeated(DType dtype) {
    if (stated_.dims) {
      for (const Type& x : in_)
        if (!repeats_to(x.dims, *stated_.dims)) return "does not fit its operands";
      return with_stated_dims(dtype);
    }
    Shape dims;
    for (const Type& x : in_) {
      const std::optional<Shape> both = broadcast_dims(dims, x.dims);
      if (!both) return "does not fit its operands";
      dims = *both;
    }
    return result(dtype, dims);
  }

  const char* cast() {
    if (in_.size() != 1) return "does not fit its operand";
    return stated_.dtype ? repeated(*stated_.dtype) : "needs a dtype";
  }

  const char* elementwise() {
    const OpInfo& row = info(op_);
    if (in_.size() != row.arity) return "has a wrong operand count";
    const std::size_t first = row.rule == TypeRule::Select ? 1 : 0;
    if (first == 1 && in_[0].dtype != DType::Bool) return "chooses by something other than bool";
    const DType t = in_[first].dtype;
    for (const Type& x : in_.subspan(first))
      if (x.dtype != t) return "has operands of different dtypes";
    if ((row.types & type_class(t)) == 0 || operand_dtype(row.rule, t) != t)
      return "does not take its operands' dtype";
    return repeated(result_dtype(row.rule, t));
  }

  const char* view() {
    if (op_ == Op::join) return join();
    const bool update = op_ == Op::update_at;
    const std::size_t operands = update ? 3 : op_ == Op::pad || op_ == Op::slice_at ? 2 : 1;
    if (in_.size() != operands) return "has a wrong operand";
    switch (op_) {
      case Op::permute: return permute();
      case Op::arrange: return result(in_[0]);
      case Op::update_at: return update_at();
      default: break;  // whose extents are stated
    }
    if (const char* fault = with_stated_dims(in_[0].dtype)) return fault;
    switch (op_) {
      case Op::reshape:
        return product(in_[0].dims) == product(out_.dims) ? nullptr : "changes the element count";
      case Op::slice_at: return placed(in_[1], out_.dims, in_[0].dims);
      case Op::pad: return pad();
      default: return affine();
    }
  }

  const char* permute() {
    const auto axes = as<Permute>();
    const Dims from = in_[0].dims;
    std::uint64_t seen = 0;
    for (std::size_t a = 0; a < from.size(); ++a) {
      if (axes[a] >= from.size()) return "shows an axis that is not there";
      seen |= std::uint64_t{1} << axes[a];
    }
    if (seen != (std::uint64_t{1} << from.size()) - 1) return "shows an axis twice";
    return result(in_[0].dtype, permuted_dims(from, axes));
  }

  /// An affine view whose extents are stated.
  const char* affine() {
    const ViewMap map = view_map(op_, stored_, in_[0].dims, out_.dims);
    if (map.fault) return map.fault;
    return map.stays_inside(in_[0].dims, out_.dims) ? nullptr : "reads outside its operand";
  }

  const char* pad() {
    const auto box = as<Box>();
    const Dims from = in_[0].dims, to = out_.dims;
    if (from.size() != to.size()) return "changes the rank";
    if (box.rank() != to.size()) return "has a wrong attribute count";
    if (in_[1].dtype != in_[0].dtype || !repeats_to(in_[1].dims, to)) return "has a fill that does not fit";
    for (std::size_t a = 0; a < to.size(); ++a) {
      if (box.step(a) < 1 || box.first(a) < 0) return "has a bad low or step";
      if (from[a] != 0 && box.first(a) + box.step(a) * (from[a] - 1) >= to[a]) return "puts its body outside";
    }
    return nullptr;
  }

  const char* join() {
    if (in_.empty()) return "has no operand";
    const std::size_t axis = as<Join>().axis;
    const Dims first = in_[0].dims;
    if (axis >= first.size()) return "has no such axis";
    std::int64_t extent = 0;
    for (const Type& x : in_) {
      if (x.dtype != in_[0].dtype || x.dims.size() != first.size())
        return "has operands of different dtypes or ranks";
      for (std::size_t a = 0; a < first.size(); ++a)
        if (a != axis && x.dims[a] != first[a]) return "has operands of other extents off its axis";
      if (__builtin_add_overflow(extent, x.dims[axis], &extent)) return "has an extent above 63 bits";
    }
    return result(in_[0].dtype, dims_with(first, axis, extent));
  }

  const char* update_at() {
    if (in_[0].dtype != in_[1].dtype) return "has a wrong operand";
    if (const char* fault = placed(in_[2], in_[0].dims, in_[1].dims)) return fault;
    return result(in_[1]);
  }

  /// A part of adjacent elements along one axis of a whole.
  const char* placed(const Type& start, Dims part, Dims whole) const {
    const std::size_t axis = as<Position>().axis;
    if (start.dtype != DType::Int64 || !start.dims.empty()) return "has a start that is no int64 scalar";
    if (part.size() != whole.size() || axis >= whole.size()) return "has no such axis";
    for (std::size_t a = 0; a < whole.size(); ++a)
      if (a == axis ? part[a] > whole[a] : part[a] != whole[a]) return "does not fit its operand";
    return nullptr;
  }

  bool folds(DType t) const {
    return !is_only_stored(t) && (info(op_).fold != Fold::LogAddExp || is_float(t));
  }

  const char* reduce() {
    if (in_.size() != 1) return "has a wrong operand";
    const auto axes = as<Reduce>();
    if (axes.mask >> in_[0].dims.size() != 0) return "reduces an axis that is not there";
    if (!folds(in_[0].dtype)) return "does not take its operand's dtype";
    const DType own = structural_dtype(op_, in_[0].dtype);
    // A logarithm may keep all that the sum has.
    const bool wider = info(op_).fold == Fold::LogAddExp && stated_.dtype == DType::Float64;
    return result(wider ? DType::Float64 : own, reduced_dims(in_[0].dims, axes));
  }

  const char* gather() {
    if (in_.size() != 2 || !is_int(in_[1].dtype)) return "has a wrong operand";
    if (const char* fault = with_stated_dims(in_[0].dtype)) return fault;
    const Dims from = in_[0].dims, to = out_.dims;
    const std::size_t axis = as<Gather>().axis;
    if (from.size() != to.size() || axis >= to.size()) return "has no such axis";
    for (std::size_t a = 0; a < to.size(); ++a)
      if (a != axis && from[a] != to[a] && from[a] != 1) return "does not fit its operand";
    return repeats_to(in_[1].dims, to) ? nullptr : "has indices that do not fit";
  }

  const char* scatter() {
    if (in_.size() != 3 || in_[2].dtype != in_[0].dtype || !is_int(in_[1].dtype))
      return "has a wrong operand";
    const Dims to = in_[0].dims, values = in_[2].dims;
    const auto [axis, how, joined] = as<Scatter>();
    if (values.size() != to.size() || axis >= to.size() || how > Combine::Min) return "has no such axis";
    for (std::size_t a = 0; a < to.size(); ++a)
      if (a != axis && values[a] != to[a]) return "has values that do not fit";
    if (!repeats_to(in_[1].dims, values)) return "has indices that do not fit";
    return result(in_[0]);
  }

  /// Keeps as many elements of each row as are stated, or all.
  const char* sort() {
    if (in_.size() != 1) return "has a wrong operand";
    const Dims from = in_[0].dims;
    const std::size_t axis = as<Sort>().axis;
    if (axis >= from.size()) return "has no such axis";
    if (!stated_.dims) return result(structural_dtype(op_, in_[0].dtype), Shape(from));
    const Dims to = *stated_.dims;
    if (to.size() != from.size() || to[axis] > from[axis]) return "has a wrong extent";
    return result(structural_dtype(op_, in_[0].dtype), dims_with(from, axis, to[axis]));
  }

  const char* search() {
    if (in_.size() != 2 || in_[0].dims.size() != 1 || in_[0].dtype != in_[1].dtype)
      return "has wrong operands";
    return result(structural_dtype(op_, in_[0].dtype), Shape(in_[1].dims));
  }

  const char* library() {
    switch (op_) {
      case Op::searchsorted: return search();
      case Op::scatter: return scatter();
      case Op::cholesky:
        return in_.size() == 1 && is_square(in_[0]) ? result(in_[0]) : "needs square matrices";
      case Op::solve_triangular: return solve_triangular();
      case Op::custom: return as_stated();
      default: return sort();
    }
  }

  static bool is_square(const Type& x) {
    const std::size_t r = x.dims.size();
    return is_float(x.dtype) && r >= 2 && x.dims[r - 2] == x.dims[r - 1];
  }

  const char* solve_triangular() {
    if (in_.size() != 2 || !is_square(in_[0])) return "needs square matrices and right sides";
    const Dims a = in_[0].dims, b = in_[1].dims;
    if (b.size() != a.size() || in_[1].dtype != in_[0].dtype) return "has operands of another rank or dtype";
    return equal(a.first(a.size() - 1), b.first(a.size() - 1)) ? result(in_[1]) : "has other extents";
  }

  const char* matmul() {
    if (in_.size() != 2 || in_[0].dims.size() < 2) return "needs two matrices";
    const Dims x = in_[0].dims, y = in_[1].dims;
    const std::size_t r = x.size();
    if (y.size() != r || in_[0].dtype != in_[1].dtype) return "has operands of another rank or dtype";
    if (!equal(x.first(r - 2), y.first(r - 2))) return "has other batch extents";
    if (x[r - 1] != y[r - 2]) return "has other extents";
    // bytes that are 8-bit floats give halves: ir/float8_product.h
    const bool halves = in_[0].dtype == DType::UInt8 && stated_.dtype && is_half(*stated_.dtype);
    return result(halves ? *stated_.dtype : in_[0].dtype, dims_with(x, r - 1, y[r - 1]));
  }

  Op op_;
  std::span<const Type> in_;
  const Stored& stored_;
  const Stated& stated_;
  Inferred out_;
};

}  // namespace

std::optional<Shape> broadcast_dims(Dims a, Dims b) {
  const Dims long_ = a.size() >= b.size() ? a : b, short_ = a.size() >= b.size() ? b : a;
  Shape out(long_);
  const std::size_t lead = long_.size() - short_.size();
  for (std::size_t i = 0; i < short_.size(); ++i) {
    std::int64_t& extent = out[static_cast<int>(lead + i)];
    if (extent == 1)
      extent = short_[i];
    else if (short_[i] != 1 && short_[i] != extent)
      return std::nullopt;
  }
  return out;
}

Inferred infer_part(Op op, const Type& first, std::size_t index, const Stored& attributes) {
  Inferred out{first.dtype, Shape(first.dims), nullptr};
  switch (op) {
    case Op::sort_with_positions:
      if (index == 1) out.dtype = DType::Int64;
      if (index > 1) out.fault = "is no result of its op";
      break;
    case Op::custom: {
      const auto custom = Custom::from(attributes);
      if (index >= custom.results) {
        out.fault = "is no result of its op";
      } else if (index > 0) {
        out.dtype = custom.dtype(index);
        out.dims = Shape(custom.dims(index));
      }
      break;
    }
    default: out.fault = "is of an op of one result";
  }
  return out;
}

Inferred infer(Op op, std::span<const Type> in, const Stored& attributes, const Stated& stated) {
  return Inference(op, in, attributes, stated).run();
}

}  // namespace kiln::ir
