// Scans: one node each.
#include "api/record.h"
#include "support/check.h"

#include <cmath>

namespace kiln {
namespace {

using ir::Op;

/// The dtype sums and products of integers are kept in.
DType sum_dtype(DType t) {
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::UInt64 : DType::Int64;
}

Tensor scan(std::string_view name, Op op, const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse,
            SourceLocation loc) try {
  ir::Node* const given = api::checked(name, x);
  const bool adds = op == Op::scan_sum || op == Op::scan_prod;
  if (!axis) return scan(name, op, x.reshape({given->numel}, loc), 0, exclusive, reverse, loc);
  const int a = api::checked_axis(name, *axis, given);
  const ir::NodeRef values = api::cast_node(given, adds ? sum_dtype(given->dtype) : given->dtype, loc);
  return api::finish(api::scan_node(op, values.get(), a, exclusive, reverse, loc));
} catch (const UserError& e) {
  api::rethrow_as(name, e);
}

/// What exponentials are taken relative to, so that none overflows.
Tensor reference_of(const Tensor& greatest, SourceLocation loc) {
  return where(isfinite(greatest, loc), greatest, Operand(0.0, loc));
}

/// The sum of exponentials so far is kept relative to the greatest value so far. `before`, without the axis: the result for
/// what comes before the first element.
Tensor log_sums(const Tensor& x, int axis, const Tensor& before, bool exclusive, SourceLocation loc) {
  const auto step = [&](const Tensors& carry, const Tensors& in) {
    const Tensor &greatest = carry[0], &sum = carry[1], &value = in[0];
    const Tensor next = maximum(greatest, Operand(value, loc));
    const Tensor old = reference_of(greatest, loc), now = reference_of(next, loc);
    const Tensor kept = where(greatest == Operand(-HUGE_VAL, loc), Operand(0.0, loc), Operand(exp(old - Operand(now, loc), loc), loc));
    const Tensor total = sum * Operand(kept, loc) + Operand(exp(value - Operand(now, loc), loc), loc);
    return Scanned{{next, total}, {exclusive ? old + Operand(log(sum, loc), loc) : now + Operand(log(total, loc), loc)}};
  };
  const Tensor sum = exp(before - Operand(reference_of(before, loc), loc), loc);
  return kiln::scan(step, {before, sum}, {x}, axis, false, loc).ys[0];
}

constexpr std::int64_t kLongAxis = 4096;  // from here, with few rows, an axis goes in chunks side by side
constexpr std::int64_t kFewRows = 512;
constexpr std::int64_t kChunk = 1040;  // not a power of two: elements side by side would share few lines of a cache

/// The last axis of (rows, n) in chunks: their totals, what comes before each, and then all chunks together.
Tensor log_sums_in_chunks(const Tensor& x, bool exclusive, SourceLocation loc) {
  const std::int64_t rows = x.dim(0), n = x.dim(1), chunks = (n + kChunk - 1) / kChunk;
  const Tensor whole = pad(x, {{0, 0}, {0, chunks * kChunk - n}}, -HUGE_VAL, loc);
  const Tensor parts = whole.reshape({rows, chunks, kChunk}, loc);
  const Tensor nothing = full({rows}, -HUGE_VAL, x.dtype(), loc);
  const Tensor before = log_sums(logsumexp(parts, 2, false, loc), 1, nothing, true, loc);
  // A maximum with -inf is a copy that lies as it will be looked at, made tile by tile.
  const Tensor turned = maximum(log_sums(parts, 2, before, exclusive, loc), Operand(-HUGE_VAL, loc));
  const Tensor all = turned.reshape({rows, chunks * kChunk}, loc);
  const Slice slices[] = {kiln::all(), range(0, n)};
  return all.index(slices, loc);
}

}  // namespace

Tensor logcumsumexp(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) try {
  const ir::Node* const given = api::checked("logcumsumexp", x);
  if (!axis) return logcumsumexp(x.reshape({given->numel}, loc), 0, exclusive, reverse, loc);
  const int a = api::checked_axis("logcumsumexp", *axis, given);
  const DType result = is_float(given->dtype) ? given->dtype : DType::Float32;
  const DType kept = is_half(result) ? DType::Float32 : result;
  const Tensor values = x.astype(kept, loc), last = moveaxis(reverse ? flip(values, a, loc) : values, a, -1, loc);
  const std::int64_t n = last.dim(-1), rows = n == 0 ? 0 : last.numel() / n;
  Tensor out;
  if (n >= kLongAxis && rows > 0 && rows < kFewRows) {
    out = log_sums_in_chunks(last.reshape({rows, n}, loc), exclusive, loc).reshape(last.shape(), loc);
  } else {
    const Shape dims = last.shape();
    const Shape row(std::span<const std::int64_t>(dims).first(static_cast<std::size_t>(dims.rank() - 1)));
    out = log_sums(last, -1, full(row, -HUGE_VAL, kept, loc), exclusive, loc);
  }
  out = moveaxis(out, -1, a, loc);
  return (reverse ? flip(out, a, loc) : out).astype(result, loc);
} catch (const UserError& e) {
  api::rethrow_as("logcumsumexp", e);
}

Tensor cumsum(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cumsum", Op::scan_sum, x, axis, exclusive, reverse, loc);
}
Tensor cumprod(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cumprod", Op::scan_prod, x, axis, exclusive, reverse, loc);
}
Tensor cummax(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cummax", Op::scan_max, x, axis, exclusive, reverse, loc);
}
Tensor cummin(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cummin", Op::scan_min, x, axis, exclusive, reverse, loc);
}

}  // namespace kiln
