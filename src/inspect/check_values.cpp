#include "inspect/check_values.h"

#include "ir/custom.h"
#include "ir/loops.h"
#include "oracle/interpret.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace kiln::engine {
namespace {

double value_at(DType type, const std::byte* data, std::int64_t i) {
  return dispatch_stored(type, [&]<class T>() -> double {
    T v;
    std::memcpy(&v, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return static_cast<double>(v);
  });
}

/// Relative to the largest magnitude of the result: errors of a sum are errors of its terms. Generous: this
/// finds wrong answers, accuracy is the tests' matter.
double tolerance(DType type) {
  switch (type) {
    case DType::Float16: return 4e-3;
    case DType::BFloat16: return 3e-2;
    case DType::Float8E4M3FN: return 0.25;
    case DType::Float8E5M2: return 0.5;
    case DType::Float32: return config().tf32 && !config().strict ? tolerance(DType::Float16) : 1e-4;
    case DType::Float64: return 1e-10;
    case DType::Bool:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64: return 0;
  }
  return 0;
}

/// What a user calls an operation.
std::string_view user_name(ir::Op op) {
  const std::string_view name = ir::info(op).name;
  return name.starts_with("reduce_") ? name.substr(7) : name;
}

std::string where(const ir::Graph& g, ir::NodeId root, std::int64_t i) {
  const ir::GraphNode& n = g[root];
  return cat("[", user_name(n.op), "] element ", i, " of ", name(n.dtype), " ", to_string(n.dims),
             ", recorded at ", n.loc.file_name(), ":", n.loc.line());
}

/// Whether an element of an argument is what `f` looks for.
template <class F>
bool argument_has(const ir::ArgInfo& a, const std::byte* data, F f) {
  if (!is_float(a.dtype)) return false;
  std::int64_t n = 1;
  for (std::int64_t d : a.dims) n *= d;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = a.dims.size(); d-- > 0; rest /= a.dims[d]) at += rest % a.dims[d] * a.strides[d];
    if (f(value_at(a.dtype, data, at))) return true;
  }
  return false;
}

/// The first NaN of row-major values, or -1.
std::int64_t first_nan(const ir::GraphNode& n, const std::byte* values) {
  for (std::int64_t i = 0; is_float(n.dtype) && i < n.numel; ++i)
    if (std::isnan(value_at(n.dtype, values, i))) return i;
  return -1;
}

/// The graph with every value below a root as a root, but for what loops make and, where `computed`, for what
/// is no operation.
ir::Graph with_all_values(const ir::Graph& g, ir::NodeId root, bool computed) {
  ir::Graph all = g;
  all.roots.clear();
  const ir::Loops loops = ir::find_loops(g);
  std::vector<bool> wanted(g.size());
  wanted[root] = true;
  for (ir::NodeId id = root + 1; id-- > 0;)
    if (wanted[id])
      for (const ir::NodeId in : g[id].in) wanted[in] = true;
  for (ir::NodeId id = 0; id <= root; ++id) {
    const ir::OpKind kind = ir::info(g[id].op).kind;
    if (computed && (kind == ir::OpKind::Leaf || kind == ir::OpKind::Scalar)) continue;
    if (wanted[id] && loops.owner_of(id) == ir::kNoNode && ir::has_value(g[id].op)) all.roots.push_back(id);
  }
  return all;
}

std::vector<ir::ArgData> data_of(std::span<std::byte* const> args) {
  std::vector<ir::ArgData> data;
  for (const std::byte* a : args) data.push_back({a});
  return data;
}

/// The first infinity of row-major values, or -1.
std::int64_t first_infinity(const ir::GraphNode& n, const std::byte* values) {
  for (std::int64_t i = 0; is_float(n.dtype) && i < n.numel; ++i)
    if (std::isinf(value_at(n.dtype, values, i))) return i;
  return -1;
}

/// Where a root's NaN came from: the interpreter computes everything below it again, but what loops make. An
/// operation that made an infinity of finite values is named too: most NaNs are differences or quotients of
/// infinities.
std::string origin(const ir::Graph& g, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
                   ir::NodeId root, std::int64_t element) {
  const ir::Graph all = with_all_values(g, root, false);
  const std::vector<ir::ArgData> data = data_of(args);
  const auto values = ir::interpret(all, data, slots);
  std::string infinity;
  bool given = false;  // an argument or a number is infinite
  for (std::size_t r = 0; r < values.size(); ++r) {
    const ir::GraphNode& n = g[all.roots[r]];
    if (const std::int64_t i = first_nan(n, values[r].data()); i >= 0)
      return where(g, all.roots[r], i) + " is NaN, and no argument is" + infinity;
    if (given || !infinity.empty()) continue;
    const std::int64_t i = first_infinity(n, values[r].data());
    if (i < 0) continue;
    const ir::OpKind kind = ir::info(n.op).kind;
    given = kind == ir::OpKind::Leaf || kind == ir::OpKind::Scalar;
    if (!given) infinity = "; the first infinity is " + where(g, all.roots[r], i);
  }
  while (g[root].op == ir::Op::reshape) root = g[root].in[0];  // a shape that nobody wrote
  return where(g, root, element) + " is NaN, and no argument is";
}

/// The first element that differs beyond the tolerance of the dtype, or -1.
std::int64_t first_difference(const ir::GraphNode& n, const std::byte* computed, const std::byte* want) {
  double scale = 0;
  for (std::int64_t i = 0; i < n.numel; ++i) {
    const double v = std::abs(value_at(n.dtype, want, i));
    if (std::isfinite(v)) scale = std::max(scale, v);
  }
  for (std::int64_t i = 0; i < n.numel; ++i) {
    const double x = value_at(n.dtype, computed, i), y = value_at(n.dtype, want, i);
    if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= tolerance(n.dtype) * scale) continue;
    return i;
  }
  return -1;
}

std::string difference_text(const ir::Graph& g, ir::NodeId id, std::int64_t i, const std::byte* computed,
                            const std::byte* want) {
  const DType type = g[id].dtype;
  return cat(where(g, id, i), ": computed ", value_at(type, computed, i), ", the interpreter says ",
             value_at(type, want, i));
}

/// Looks inside a fused kernel: values below a root are stored beside it, one at a time, which leaves the
/// rest of the kernel as it is.
std::string inside_kernel(const ir::Graph& g, ir::NodeId root, std::span<const ir::NodeId> values,
                          std::span<const std::vector<std::byte>> want, const Recompute& recompute) {
  constexpr std::size_t kMost = 256;  // plans, each with kernels of its own
  std::string mended;
  for (std::size_t v = 0; v < std::min(values.size(), kMost); ++v) {
    const ir::NodeId id = values[v];
    if (id == root) continue;
    ir::Graph both = g;
    both.roots = {id, root};
    const auto have = recompute(both);
    if (const std::int64_t i = first_difference(g[id], have[0].data(), want[v].data()); i >= 0)
      return "; the first operation that differs when it is stored beside the result: " +
             difference_text(g, id, i, have[0].data(), want[v].data());
    const auto at = std::ranges::find(values, root) - values.begin();
    if (mended.empty() &&
        first_difference(g[root], have[1].data(), want[static_cast<std::size_t>(at)].data()) < 0)
      mended =
          cat("; the result is right once [", user_name(g[id].op), "] recorded at ", g[id].loc.file_name(),
              ":", g[id].loc.line(), " is stored: the kernel that fuses it with what follows is wrong");
  }
  return mended.empty()
             ? "; no operation differs when each of them is stored: the kernel that fuses them is wrong"
             : mended;
}

/// The first operation below a root whose stored value differs.
std::string first_operation(const ir::Graph& g, ir::NodeId root, std::span<std::byte* const> args,
                            std::span<const std::uint64_t> slots, const Recompute& recompute) {
  const ir::Graph all = with_all_values(g, root, true);
  const auto want = ir::interpret(all, data_of(args), slots);
  const auto have = recompute(all);
  for (std::size_t r = 0; r < want.size(); ++r) {
    const ir::NodeId id = all.roots[r];
    if (const std::int64_t i = first_difference(g[id], have[r].data(), want[r].data()); i >= 0)
      return "; the first operation that differs: " +
             difference_text(g, id, i, have[r].data(), want[r].data());
  }
  return inside_kernel(g, root, all.roots, want, recompute);
}

void check_diff(const ir::Graph& g, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
                std::span<const std::byte* const> computed, const Recompute& recompute) {
  const auto want = ir::interpret(g, data_of(args), slots);
  for (std::size_t r = 0; r < computed.size(); ++r) {
    const ir::NodeId root = g.roots[r];
    const std::int64_t i = first_difference(g[root], computed[r], want[r].data());
    if (i < 0) continue;
    throw InternalError(difference_text(g, root, i, computed[r], want[r].data()) +
                        first_operation(g, root, args, slots, recompute));
  }
}

/// A custom kernel that the interpreter cannot run; empty: there is none.
std::string_view not_interpreted(const ir::Graph& g) {
  for (const ir::GraphNode& n : g.nodes)
    if (n.op == ir::Op::custom && !ir::custom_code(ir::attributes<ir::Custom>(n).kernel).cpu)
      return ir::name_of(n);
  return {};
}

/// Says once for each kernel that evaluations with it are not checked.
void tell_not_checked(std::string_view kernel) {
  warn_once(cat("custom ", kernel),
            cat("[", kernel,
                "] KILN_CHECK does not check evaluations with this kernel: it has no function for "
                "the CPU, which would be the reference"));
}

/// The operation below a root that made the first infinity of finite values: no error, since programs mean
/// infinities, but said once for each line. Nothing where an argument or a number of the program is infinite.
void tell_infinity(const ir::Graph& g, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
                   ir::NodeId root) {
  const ir::Graph all = with_all_values(g, root, false);
  const auto values = ir::interpret(all, data_of(args), slots);
  for (std::size_t r = 0; r < values.size(); ++r) {
    const ir::NodeId id = all.roots[r];
    const std::int64_t i = first_infinity(g[id], values[r].data());
    if (i < 0) continue;
    const ir::OpKind kind = ir::info(g[id].op).kind;
    if (kind == ir::OpKind::Leaf || kind == ir::OpKind::Scalar) return;
    const SourceLocation& line = g[id].loc;
    return warn_once(cat("infinity ", line.file_name(), ":", line.line()),
                     where(g, id, i) + " is the first infinity, and no argument is infinite");
  }
}

}  // namespace

void check_nans(const ir::Graph& g, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
                std::span<const std::byte* const> computed) {
  bool infinite = false;
  for (std::size_t a = 0; a < args.size(); ++a) {
    if (argument_has(g.args[a], args[a], [](double v) { return std::isnan(v); })) return;
    infinite = infinite || argument_has(g.args[a], args[a], [](double v) { return std::isinf(v); });
  }
  for (std::size_t r = 0; r < computed.size(); ++r)
    if (const std::int64_t i = first_nan(g[g.roots[r]], computed[r]); i >= 0)
      throw UserError(origin(g, args, slots, g.roots[r], i));
  for (std::size_t r = 0; r < computed.size() && !infinite; ++r)
    if (first_infinity(g[g.roots[r]], computed[r]) >= 0) return tell_infinity(g, args, slots, g.roots[r]);
}

void check_values(const ir::Graph& g, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
                  std::span<const std::byte* const> computed, const Recompute& recompute) {
  if (const std::string_view kernel = not_interpreted(g); !kernel.empty()) return tell_not_checked(kernel);
  if (config().check_bounds) ir::interpret(g, data_of(args), slots, true);
  if (config().check_diff) check_diff(g, args, slots, computed, recompute);
  if (config().check_nan) check_nans(g, args, slots, computed);
}

}  // namespace kiln::engine
