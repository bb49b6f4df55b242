// Graph's arena, its text form and its verifier. Blocks of the arena never move or grow once filled, so spans
// into them stay valid when the graph is moved.
#include "ir/graph.h"

#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kiln::ir {
namespace {

constexpr std::size_t kFirstBlock = 128, kBlock = 4096;  // words

// ---- text ----

std::string file_name(const SourceLocation& loc) {
  const std::string_view path = loc.file_name();
  return std::string(path.substr(path.find_last_of('/') + 1));
}

std::string constant_text(DType type, std::uint64_t bits) {
  return dispatch(type, [&]<class T>() -> std::string {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    if constexpr (std::is_same_v<T, bool>)
      return value ? "true" : "false";
    else if constexpr (sizeof(T) == 1)
      return std::to_string(int{value});
    else if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
      return cat(value);
    else
      return cat(static_cast<float>(value));
  });
}

std::string attribute_text(const GraphNode& n) {
  std::string out;
  switch (n.op) {
    case Op::leaf: return cat(" arg ", n.arg);
    case Op::scalar: return cat(" slot ", n.arg);
    case Op::constant: return " " + constant_text(n.dtype, attributes<Constant>(n).bits);
    case Op::iota: return cat(" axis ", attributes<Iota>(n).axis);
    case Op::permute:
      out = " axes";
      for (std::size_t a = 0; a < n.dims.size(); ++a) out += cat(" ", attributes<Permute>(n)[a]);
      return out;
    case Op::slice:
    case Op::pad: {
      const auto box = attributes<Box>(n);
      const std::string_view from = n.op == Op::slice ? " from " : " at ";
      for (std::size_t a = 0; a < box.rank(); ++a)
        out += cat(a ? ", " : from, box.first(a), " step ", box.step(a));
      return out;
    }
    case Op::slice_at:
    case Op::update_at: {
      const auto [axis, factor, from_back] = attributes<Position>(n);
      return cat(" axis ", axis, factor == 1 ? "" : cat(" multiple of ", factor),
                 from_back ? " from either end" : "");
    }
    case Op::gather: return cat(" axis ", attributes<Gather>(n).axis);
    case Op::sort:
    case Op::argsort:
      return cat(" axis ", attributes<Sort>(n).axis, attributes<Sort>(n).descending ? " descending" : "");
    case Op::scatter:
      return cat(" axis ", attributes<Scatter>(n).axis, " combine ",
                 static_cast<int>(attributes<Scatter>(n).how));
    case Op::searchsorted: return attributes<Search>(n).right ? " right" : " left";
    case Op::loop_result: return cat(" state ", attributes<LoopResult>(n).index);
    default: break;  // known by their kind, or without attributes that are shown
  }
  if (is_scan(n.op)) {
    const auto [axis, exclusive, reverse] = attributes<Scan>(n);
    return cat(" axis ", axis, exclusive ? " exclusive" : "", reverse ? " reverse" : "");
  }
  if (!is_reduce(n.op)) return "";
  out = " over";
  for (std::size_t a = 0; a < n.dims.size(); ++a)
    if (attributes<Reduce>(n).over(a)) out += cat(" ", a);
  return out;
}

// ---- verifier ----

std::uint8_t class_of(DType t) { return is_float(t) ? FLOAT : is_bool(t) ? BOOL : INTEGER; }

std::int64_t product(Dims dims) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  return n;
}

/// Whether `from` shows as `to` by right-aligned repetition of extents of 1.
bool repeats_to(Dims from, Dims to) {
  if (from.size() > to.size()) return false;
  const std::size_t lead = to.size() - from.size();
  for (std::size_t a = 0; a < from.size(); ++a)
    if (from[a] != 1 && from[a] != to[lead + a]) return false;
  return true;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : g_(graph) {}

  void run() {
    for (id_ = 0; id_ < g_.size(); ++id_) node(g_[id_]);
    for (NodeId root : g_.roots) require(root < g_.size(), "is not a root: no such node");
  }

 private:
  void require(bool holds, const char* what) const {
    KILN_CHECK_THAT(holds, "node %", id_, " (", id_ < g_.size() ? info(g_[id_].op).name : "", ") ", what);
  }
  const GraphNode& in(const GraphNode& n, int k) const { return g_[n.in[k]]; }

  static bool like(const GraphNode& a, const GraphNode& b) {
    return a.dtype == b.dtype && std::ranges::equal(a.dims, b.dims);
  }

  void node(const GraphNode& n) const {
    require(n.n_in <= 3 && n.dims.size() <= kMaxRank, "has too many operands or axes");
    for (int k = 0; k < 3; ++k)
      require(k < n.n_in ? n.in[k] < id_ : n.in[k] == kNoNode, "has a missing, later or spare operand");
    for (std::int64_t d : n.dims) require(d >= 0, "has a negative extent");
    require(n.numel == product(n.dims), "has a wrong element count");
    require(well_stored(n.op, stored(n)), "has attributes of another op");
    switch (info(n.op).kind) {
      case OpKind::Leaf: leaf(n); break;
      case OpKind::Scalar:
        require(n.n_in == 0, "has operands");
        if (n.op == Op::scalar)
          require(static_cast<std::size_t>(n.arg) < g_.slots.size() &&
                      g_.slots[static_cast<std::size_t>(n.arg)] == n.dtype,
                  "has no slot of its dtype");
        break;
      case OpKind::Iota:
        require(n.n_in == 0 && attributes<Iota>(n).axis < n.dims.size(), "has no such axis");
        break;
      case OpKind::Cast:
        require(n.n_in == 1 && repeats_to(in(n, 0).dims, n.dims), "does not fit its operand");
        break;
      case OpKind::View: view(n); break;
      case OpKind::Reduce: reduce(n); break;
      case OpKind::Scan:
        require(n.n_in == 1 && in(n, 0).dtype == n.dtype && std::ranges::equal(in(n, 0).dims, n.dims) &&
                    attributes<Scan>(n).axis < n.dims.size() &&
                    (n.op != Op::scan_logaddexp || is_float(n.dtype)),
                "does not fit its operand");
        break;
      case OpKind::LoopState:
        require(n.n_in == 1 && like(n, in(n, 0)), "differs from its first value");
        break;
      case OpKind::LoopNext: loop_next(n); break;
      case OpKind::Loop:
        require(n.n_in == 2 && info(in(n, 0).op).kind == OpKind::LoopNext && is_bool(in(n, 1).dtype),
                "needs states and a condition");
        break;
      case OpKind::LoopResult:
      case OpKind::LoopStack:
        require(n.n_in == 1 && in(n, 0).op == Op::loop, "has no loop");
        require(n.op != Op::loop_stack || (!n.dims.empty() && n.dims[0] == attributes<Loop>(in(n, 0)).count),
                "has not one value of each iteration");
        break;
      case OpKind::Gather: gather(n); break;
      case OpKind::Contraction: matmul(n); break;
      case OpKind::Library: library(n); break;
      case OpKind::Elementwise: elementwise(n); break;
    }
  }

  void loop_next(const GraphNode& n) const {
    const int own = n.op == Op::loop_next ? 2 : 1;
    require(n.n_in == own || (n.n_in == own + 1 && info(in(n, own).op).kind == OpKind::LoopNext),
            "has no states before it");
    require(n.op != Op::loop_next || (in(n, 0).op == Op::loop_state && like(in(n, 0), in(n, 1))),
            "is no state and its next value");
  }

  void leaf(const GraphNode& n) const {
    require(n.n_in == 0 && static_cast<std::size_t>(n.arg) < g_.args.size(), "has no argument");
    const ArgInfo& a = g_.args[static_cast<std::size_t>(n.arg)];
    require(a.dtype == n.dtype && std::ranges::equal(a.dims, n.dims) && a.strides.size() == n.dims.size(),
            "differs from its argument");
  }

  void elementwise(const GraphNode& n) const {
    const OpInfo& row = info(n.op);
    require(n.n_in == row.arity, "has a wrong operand count");
    const int first = row.rule == TypeRule::Select ? 1 : 0;
    if (first == 1) require(in(n, 0).dtype == DType::Bool, "chooses by something other than bool");
    const DType t = in(n, first).dtype;
    for (int k = first; k < n.n_in; ++k) require(in(n, k).dtype == t, "has operands of different dtypes");
    for (int k = 0; k < n.n_in; ++k) require(repeats_to(in(n, k).dims, n.dims), "does not fit its operands");
    require((row.types & class_of(t)) != 0 && (row.rule != TypeRule::Float || is_float(t)) &&
                (row.rule != TypeRule::Logical || is_bool(t)),
            "does not take its operands' dtype");
    const bool truth = row.rule == TypeRule::Compare || row.rule == TypeRule::Logical;
    const bool words = row.rule == TypeRule::Word32 || row.rule == TypeRule::Word64;
    require(!words || t == DType::UInt64, "takes operands of uint64");
    require(n.dtype == (truth                          ? DType::Bool
                        : row.rule == TypeRule::Word32 ? DType::UInt32
                                                       : t),
            "has a wrong dtype");
  }

  /// A slice at a position, and an update there.
  void position(const GraphNode& n) const {
    const bool update = n.op == Op::update_at;
    require(n.n_in == (update ? 3 : 2) && in(n, 0).dtype == n.dtype, "has a wrong operand");
    const GraphNode& start = in(n, update ? 2 : 1);
    require(start.dtype == DType::Int64 && start.dims.empty(), "has a start that is no int64 scalar");
    const Dims small = update ? in(n, 0).dims : n.dims, whole = update ? in(n, 1).dims : in(n, 0).dims;
    const std::size_t axis = attributes<Position>(n).axis;
    require(small.size() == whole.size() && axis < whole.size(), "has no such axis");
    require(!update || like(n, in(n, 1)), "differs from what it updates");
    for (std::size_t a = 0; a < whole.size(); ++a)
      require(a == axis ? small[a] <= whole[a] : small[a] == whole[a], "does not fit its operand");
  }

  void view(const GraphNode& n) const {
    if (n.op == Op::slice_at || n.op == Op::update_at) return position(n);
    require(n.n_in == (n.op == Op::pad ? 2 : 1) && in(n, 0).dtype == n.dtype, "has a wrong operand");
    const Dims from = in(n, 0).dims;
    if (n.op == Op::reshape) require(in(n, 0).numel == n.numel, "changes the element count");
    if (n.op == Op::broadcast) require(repeats_to(from, n.dims), "does not fit its operand");
    if (n.op == Op::reshape || n.op == Op::broadcast) return;
    require(from.size() == n.dims.size(), "changes the rank");
    if (n.op == Op::permute) {
      std::uint64_t seen = 0;
      for (std::size_t a = 0; a < n.dims.size(); ++a) {
        const std::size_t source = attributes<Permute>(n)[a];
        require(source < from.size() && from[source] == n.dims[a], "shows an axis of another extent");
        seen |= std::uint64_t{1} << source;
      }
      require(seen == (std::uint64_t{1} << n.dims.size()) - 1, "shows an axis twice");
      return;
    }
    const auto box = attributes<Box>(n);
    require(box.rank() == n.dims.size(), "has a wrong attribute count");
    if (n.op == Op::slice) return slice(n, box, from);
    require(in(n, 1).dtype == n.dtype && repeats_to(in(n, 1).dims, n.dims), "has a fill that does not fit");
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      const std::int64_t low = box.first(a), step = box.step(a);
      require(step >= 1 && low >= 0, "has a bad low or step");
      require(from[a] == 0 || low + step * (from[a] - 1) < n.dims[a], "puts its body outside");
    }
  }

  void slice(const GraphNode& n, const Box& box, Dims from) const {
    if (n.numel == 0) return;  // reads nothing
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      const std::int64_t first = box.first(a);
      const std::int64_t last = n.dims[a] == 1 ? first : first + box.step(a) * (n.dims[a] - 1);
      require(std::min(first, last) >= 0 && std::max(first, last) < from[a], "reads outside its operand");
    }
  }

  void reduce(const GraphNode& n) const {
    require(n.n_in == 1 && in(n, 0).dims.size() == n.dims.size(), "changes the rank");
    const Dims from = in(n, 0).dims;
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      require(n.dims[a] == (attributes<Reduce>(n).over(a) ? 1 : from[a]), "has a wrong extent");
    require(attributes<Reduce>(n).mask >> n.dims.size() == 0, "reduces an axis that is not there");
    const bool position = has(n.op, POSITION);
    require(n.dtype == (position ? DType::Int64 : in(n, 0).dtype), "has a wrong dtype");
  }

  void gather(const GraphNode& n) const {
    require(n.n_in == 2 && in(n, 0).dtype == n.dtype && is_int(in(n, 1).dtype), "has a wrong operand");
    const Dims from = in(n, 0).dims;
    const std::size_t axis = attributes<Gather>(n).axis;
    require(from.size() == n.dims.size() && axis < n.dims.size(), "has no such axis");
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      require(a == axis || from[a] == n.dims[a] || from[a] == 1, "does not fit its operand");
    require(repeats_to(in(n, 1).dims, n.dims), "has indices that do not fit");
  }

  void library(const GraphNode& n) const {
    switch (n.op) {
      case Op::searchsorted: return search(n);
      case Op::scatter: return scatter(n);
      default: return sort(n);
    }
  }

  void scatter(const GraphNode& n) const {
    require(n.n_in == 3 && like(n, in(n, 0)) && in(n, 2).dtype == n.dtype && is_int(in(n, 1).dtype),
            "has a wrong operand");
    const Dims values = in(n, 2).dims;
    const auto [axis, how, joined] = attributes<Scatter>(n);
    require(values.size() == n.dims.size() && axis < n.dims.size() && how <= Combine::Min,
            "has no such axis");
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      require(a == axis || values[a] == n.dims[a], "has values that do not fit");
    require(repeats_to(in(n, 1).dims, values), "has indices that do not fit");
  }

  void sort(const GraphNode& n) const {
    require(n.n_in == 1 && in(n, 0).dims.size() == n.dims.size(), "has a wrong operand");
    const Dims from = in(n, 0).dims;
    const std::size_t axis = attributes<Sort>(n).axis;
    require(axis < n.dims.size(), "has no such axis");
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      require(a == axis ? n.dims[a] <= from[a] : n.dims[a] == from[a], "has a wrong extent");
    require(n.dtype == (has(n.op, POSITION) ? DType::Int64 : in(n, 0).dtype), "has a wrong dtype");
  }

  void search(const GraphNode& n) const {
    require(n.n_in == 2 && in(n, 0).dims.size() == 1 && std::ranges::equal(in(n, 1).dims, n.dims) &&
                in(n, 0).dtype == in(n, 1).dtype && n.dtype == DType::Int64,
            "has wrong operands");
  }

  void matmul(const GraphNode& n) const {
    require(n.n_in == 2 && n.dims.size() >= 2, "needs two matrices");
    const Dims x = in(n, 0).dims, y = in(n, 1).dims;
    const std::size_t r = n.dims.size();
    require(x.size() == r && y.size() == r && in(n, 0).dtype == n.dtype && in(n, 1).dtype == n.dtype,
            "has operands of another rank or dtype");
    for (std::size_t a = 0; a + 2 < r; ++a)
      require(x[a] == n.dims[a] && y[a] == n.dims[a], "has other batch extents");
    require(x[r - 2] == n.dims[r - 2] && y[r - 1] == n.dims[r - 1] && x[r - 1] == y[r - 2],
            "has other extents");
  }

  const Graph& g_;
  NodeId id_ = 0;
};

}  // namespace

Dims Graph::keep(Dims dims) {
  if (dims.empty()) return {};
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < dims.size())
    blocks_.emplace_back().reserve(std::max(blocks_.size() == 1 ? kFirstBlock : kBlock, dims.size()));
  std::vector<std::int64_t>& block = blocks_.back();
  const std::size_t at = block.size();
  block.insert(block.end(), dims.begin(), dims.end());
  return {block.data() + at, dims.size()};
}

std::string print(const Graph& graph) {
  std::string out;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const GraphNode& n = graph[id];
    out += cat("%", id, " ", info(n.dtype).short_name, to_string(n.dims), " = ", info(n.op).name);
    for (int k = 0; k < n.n_in; ++k) out += cat(" %", n.in[k]);
    out += attribute_text(n);
    if (n.held) out += " held";
    if (n.loc.line() != 0) out += cat("   ", file_name(n.loc), ":", n.loc.line());
    out += '\n';
  }
  out += "roots";
  for (NodeId root : graph.roots) out += cat(" %", root);
  return out + "\n";
}

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace kiln::ir
