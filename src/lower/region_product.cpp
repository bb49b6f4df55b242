// A matrix product and the maps around it. Something else makes the sums, a rectangle at a time: the library
// of a CPU, or a hand-written main loop of a GPU. What is lowered is the epilogue, whose coordinates are
// parameters that come with each call instead of with the launch.
//
//   CPU  a kernel of two loops over the rectangle, rows and columns; its sums are a buffer in cache
//   GPU  a hook of a kernel::Template for `width` adjacent columns of a row; its sums are an array in
//   registers
//
// Invariant: nothing of a batch, row or column reaches an expression but through those parameters.
#include "ir/float8_product.h"
#include "ir/layout.h"
#include "lower/region_lowering.h"
#include "lower/region_product_windows.h"
#include "math/expand.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"
#include "plan/strided.h"
#include "plan/window_view.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

namespace kiln::lower {
namespace {

/// As struct Product in kernels_templates/product_head.cuh.
struct ProductHead {
  std::int32_t m, n, k, batch;
  std::int64_t a_m, a_k, b_n, b_k;
};
static_assert(sizeof(ProductHead) == 48);

/// As struct Part in kernels_templates/product.cuh.
struct ProductPart {
  std::int64_t b_n, b_k;
  std::int32_t n, unused;
};

template <class T>
void append(std::vector<std::byte>& bytes, const T& x) {
  bytes.resize(bytes.size() + sizeof x);
  std::memcpy(bytes.data() + bytes.size() - sizeof x, &x, sizeof x);
}

constexpr int kPlainThreads = 256, kWide = 8, kPair = 2, kVectorBytes = 16;
constexpr std::int64_t kMapUnit = 16;       // bytes that the copy engine counts in
constexpr std::int64_t kOwnAlignment = 64;  // of memory that a plan allocates

}  // namespace

/// The type that sums of products of a dtype are made in; integers wrap in it as in their own.
DType RegionLowering::sum_type(DType element) {
  if (is_half(element)) return DType::Float32;
  if (is_float(element)) return element;
  return size_of(element) == 8 ? DType::UInt64 : DType::UInt32;
}

/// Batch axes may be one where every access walks them as one; rows and columns stay axes of their own.
void RegionLowering::collapse_product() {
  if (partner_ > 0) return collapse_partners();
  const int rank = p_.domain.rank();
  for (int a = 0; a < rank; ++a) {
    if (p_.domain[a] == 1) continue;
    const Group g{std::uint64_t{1} << a, a, p_.domain[a], false, {}};
    bool joins = a + 2 < rank && !groups_.empty();
    if (joins) {
      const int outer = groups_.back().last;
      each_index([&](const Index& i) { joins &= i.coef(outer) == i.coef(g.last) * g.extent; });
    }
    if (joins) {
      groups_.back().last = a;
      groups_.back().axes |= g.axes;
      groups_.back().extent *= g.extent;
      continue;
    }
    groups_.push_back(g);
    const auto number = static_cast<int>(groups_.size()) - 1;
    (a + 2 < rank ? batch_groups_ : a + 2 == rank ? row_groups_ : column_groups_).push_back(number);
  }
  // A CPU's lanes run along rows where there is one column only.
  if (!target_.gpu && column_groups_.empty()) column_groups_.swap(row_groups_);
}

void RegionLowering::choose_product() {
  const auto windows = regions_.windows.find(product_);
  if (windows != regions_.windows.end()) windows_ = windows->second.get();
  schedule::Facts f;
  std::vector<schedule::Facts::Axis> axes;
  for (const Group& g : groups_) axes.push_back({g.extent, false});
  if (axes.empty()) axes.push_back({1, false});
  f.axes = axes;
  f.prims = static_cast<int>(prims_);
  f.widest_bytes = widest_bytes_;
  f.random = random_;
  for (const Entry& e : p_.entries) f.loads += e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Product;
  if (!target_.gpu) {
    s_ = std::get<schedule::Schedule>(schedule::schedule(f, target_));
    s_.stream = false;  // the tile's lines are in cache, and readers follow
  } else {
    const int vector = column_groups_.empty() ? 1 : vector_elements();
    const bool gathers = windows_ && !windows_->tensor_cores;
    const int least =
        gathers ? kVectorBytes / static_cast<int>(size_of(sum_type(g_[product_].dtype))) : kPair;
    s_.lanes = vector >= kWide && !gathers ? kWide : least;
    s_.steps = 1;
    s_.ragged = unaligned_ = vector < least;
    const StripLoop strips = gathers ? strip_loop(g_, product_, *windows_, target_) : StripLoop::None;
    if (strips != StripLoop::None) {  // a call of the epilogue has windows of one row
      s_.lanes = std::gcd(vector, width_of_strip(*windows_, g_[product_].dtype == DType::Float64, strips));
      s_.ragged = unaligned_ = false;
    }
    s_.threads = {kPlainThreads, 1, false};
  }
  s_.form = Form::Product;
}

/// The dtype of the operands: the product's, or that of bytes.
DType RegionLowering::stored_element() const { return g_[g_[product_].in[0]].dtype; }

/// The sum at hand, as the product's value.
E RegionLowering::product_value(const Entry& e) {
  const DType type = g_[e.node].dtype, sum = sum_type(type);
  const bool other = partner_ > 0 ? e.index.c >= partner_ : e.node == second_;
  const E x = load(other ? second_sums_ : sums_buffer_, sum, sums_row_ ? sums_row_ + lane_ : lane_);
  return kernel::cast(is_int(type) ? kernel::cast(x, type) : x, compute_type(type));
}

void RegionLowering::build_product() {
  const GraphNode& product = g_[product_];
  const DType sum = sum_type(product.dtype);
  const auto sums = [&] {
    const auto bytes = static_cast<std::uint8_t>(target_.gpu ? size_of(sum) : 64);
    return new_buffer({BufferDecl::Role::In, sum, bytes}, {BufferSource::Kind::Scratch, 0, 0});
  };
  sums_buffer_ = sums();
  if (second_ != ir::kNoNode || partner_ > 0) second_sums_ = sums();
  if (target_.gpu) return build_template();
  const auto given = [&](Size which) { return size(which, 0); };
  const E batch = given(kGivenBatch), row = given(kGivenRow), column = given(kGivenColumn),
          columns = given(kGivenColumns), pitch = given(kGivenPitch);
  LoopDecl grid = open_grid();
  decompose(batch, batch_groups_);
  decompose(row + var(grid.var), row_groups_);
  sums_row_ = var(grid.var) * pitch;
  grid.body.push_back(lane_loop({column, columns}, column_groups_, [&](Body& body) { store_full(body); }));
  close_grid(std::move(grid), 1);
  for (const E& g : {batch, row, column, columns, pitch})
    out_.given.push_back(static_cast<std::int32_t>(g.node().imm));
  out_.given_buffer = static_cast<std::int32_t>(sums_buffer_);
}

// ---- GPU ----

/// The memory of an operand, from the first element of its first matrix on.
ProductOperand RegionLowering::product_operand(NodeId id) {
  const GraphNode& n = g_[id];
  plan::Alias a = plan::resolve_alias(g_, id);
  if (n.op != Op::leaf && regions_.stored[id]) a = {id, 0, {}, ir::row_major_strides(n.dims)};
  if (a.base == ir::kNoNode) a = plan::shown_matrix(g_, regions_, id);
  KILN_CHECK_THAT(a.base != ir::kNoNode, "an operand of a product has no memory");
  const std::int64_t bytes = size_of(n.dtype);
  BufferSource source{BufferSource::Kind::Node, a.base, a.offset * bytes};
  std::int64_t alignment = kOwnAlignment;
  if (g_[a.base].op == Op::leaf) {
    source.kind = BufferSource::Kind::Arg;
    source.id = static_cast<std::uint32_t>(g_[a.base].arg);
    alignment = g_.args[source.id].alignment;
  }
  alignment = std::gcd(alignment, source.byte_offset);
  for (const plan::Alias::Position& p : a.positions) {
    source.positions.push_back({p.slot, p.last, p.stride * bytes, 1});
    alignment = std::gcd(alignment, p.stride * bytes);
  }
  for (std::size_t axis = 0; axis < n.dims.size(); ++axis) {
    if (n.dims[axis] == 1) a.strides[axis] = 0;
    if (axis + 2 < n.dims.size()) alignment = std::gcd(alignment, a.strides[axis] * bytes);
  }
  out_.bytes += n.numel * bytes;
  const auto b =
      new_buffer({BufferDecl::Role::In, n.dtype, static_cast<std::uint8_t>(bytes)}, std::move(source));
  return {b, std::move(a.strides), alignment};
}

/// The hook that says where an operand's matrix of a batch begins.
kernel::Hook RegionLowering::matrix_hook(const char* name, const ProductOperand& operand, E batch, E part) {
  const std::uint32_t buffer = operand.buffer;
  const std::vector<std::int64_t>& strides = operand.strides;
  E offset{}, rest = batch;
  const ir::Dims dims = g_[product_].dims;
  for (std::size_t a = dims.size() - 2; a-- > 0;) {
    if (dims[a] == 1) continue;
    const auto [outer, at] = divide_with_rest(rest, param(role(kExtent, kOperandOwner, a), dims[a]));
    rest = outer;
    if (strides[a] == 0) continue;
    const E step = at * param(role(kStride, kOperandOwner + 1 + buffer, a), strides[a]);
    offset = offset ? offset + step : step;
  }
  std::int64_t farthest = 0;
  for (std::size_t axis = 0; axis + 2 < dims.size(); ++axis)
    farthest += std::abs(strides[axis]) * (dims[axis] - 1);
  narrow_ &= farthest <= std::numeric_limits<std::int32_t>::max();
  kernel::Hook hook{name, {}, {}, {}, {}, static_cast<std::int32_t>(buffer)};
  if (part) hook.params.push_back(static_cast<std::uint32_t>(part.node().imm));
  hook.params.push_back(static_cast<std::uint32_t>(batch.node().imm));
  hook.results.push_back((offset ? offset : konst(0)).id);
  return hook;
}

/// Those that are made side by side.
std::vector<NodeId> RegionLowering::products() const {
  return second_ == ir::kNoNode ? std::vector{product_} : std::vector{product_, second_};
}

/// A product's operand of the n side, and its hooks: in memory, or made on the way of what is.
ProductOperand RegionLowering::second_operand(kernel::Template& t, NodeId of) {
  const NodeId id = g_[of].in[1];
  const E batch = size(kGivenBatch, 0), part = size(kGivenPart, 0);
  const NodeId base = plan::resolve_alias(g_, id).base;
  if (base == ir::kNoNode || !regions_.made.contains(base)) {
    ProductOperand operand = windows_ && windows_->operand == 1 ? window_operand() : product_operand(id);
    t.hooks.push_back(matrix_hook("b_matrix", operand, batch, part));
    return operand;
  }
  const auto what = plan::made_operand(g_, regions_, of);
  KILN_CHECK_THAT(what, "an operand that is made has no lines");
  RegionLowering maker(g_, regions_, *what->maker, target_);
  std::optional<MadeOperand> made = maker.make_operand(*what);
  KILN_CHECK_THAT(made, "an operand cannot be made");
  const std::uint32_t buffer = made->buffer + static_cast<std::uint32_t>(k_.buffers.size());
  narrow_ &= made->from.kernel.threads.narrow;
  std::vector<kernel::Hook> hooks = adopt(std::move(made->hooks), made->from);
  const std::size_t rank = g_[id].dims.size();
  ProductOperand operand{buffer,         std::vector<std::int64_t>(rank, 0),
                         kMapUnit,       made->made_of,
                         made->widens,   made->as_given,
                         made->factored, made->share,
                         made->nibbles,  made->zeroed,
                         made->scaled};
  operand.strides[rank - 2] = what->by_k ? 1 : made->pitch;
  operand.strides[rank - 1] = what->by_k ? made->pitch : 1;
  t.hooks.push_back(matrix_hook("b_matrix", operand, batch, part));
  std::ranges::move(hooks, std::back_inserter(t.hooks));
  return operand;
}

/// A stack of matrices as the copy engine takes it, where it does: k or the rows are adjacent, everything
/// else begins at multiples of 16 bytes, and batches are one axis or none.
std::optional<device::TiledBuffer> RegionLowering::tiled(const ProductOperand& operand, bool k_major,
                                                         std::int64_t rows, std::int64_t k,
                                                         std::int64_t batches, bool rows_last) const {
  const std::vector<std::int64_t>& s = operand.strides;
  const std::size_t rank = s.size();
  const std::int64_t of_rows = s[rows_last ? rank - 1 : rank - 2], of_k = s[rows_last ? rank - 2 : rank - 1];
  const std::int64_t inner = k_major ? of_k : of_rows, outer = k_major ? of_rows : of_k;
  if (inner != 1 || outer < 1 || outer * size_of(stored_element()) % kMapUnit != 0 ||
      operand.alignment % kMapUnit != 0 || k == 0)
    return std::nullopt;
  const ir::Dims dims = g_[product_].dims;
  std::int64_t step = 0, inside = 1;  // from a batch to the next
  for (std::size_t a = rank - 2; a-- > 0;) {
    if (dims[a] == 1) continue;
    if (inside == 1)
      step = s[a];
    else if (s[a] != step * inside)
      return std::nullopt;
    inside *= dims[a];
  }
  if (step < 0) return std::nullopt;
  device::TiledBuffer t{operand.buffer, stored_element(), 3, {}, {}, {1, 1, 1, 1, 1}};
  t.dims[0] = k_major ? k : rows;
  t.dims[1] = k_major ? rows : k;
  t.dims[2] = step == 0 ? 1 : batches;
  t.strides[0] = 1;
  t.strides[1] = outer;
  t.strides[2] = step == 0 ? outer * t.dims[1] : step;
  return t;
}

namespace {

/// The largest unit that divides where lines begin; an element where none of both axes is adjacent.
std::int64_t unit_of(const ProductOperand& o, std::int64_t element, bool by_k, std::size_t line,
                     std::size_t k) {
  const std::int64_t inner = o.strides[by_k ? k : line], outer = o.strides[by_k ? line : k];
  const std::int64_t bytes = o.made_of > 0 ? o.made_of : element;
  return inner == 1 ? std::gcd(std::gcd(o.alignment, outer * bytes), kMapUnit) : element;
}

/// Whether blocks of 16 columns leave multiprocessors idle for less time than blocks of 32 do. Bytes are read
/// by such blocks, whose lines are twice as long; but 16 rows are read again by each block, and that pays
/// only then.
bool evens_out(std::int64_t narrow, std::int64_t wide, std::int64_t sms) {
  return 10 * ceil_div(narrow, sms) < 9 * 2 * ceil_div(wide, sms);
}

constexpr int kFewRows = 16, kLeastTile = 64;

/// Which tile of product_decode. `alone`: one product; `tiles`: of so many columns each.
template <class Tiles>
std::int64_t decode_tile(const ProductOperand& b, bool by_k, bool alone, std::int64_t rows,
                         std::int64_t threads, const Tiles& tiles) {
  if (b.share > 1) return alone && rows <= kFewRows / 2 ? 3 : 4;
  if (by_k && b.made_of == 1 && alone &&
      (rows <= kFewRows / 2 || evens_out(tiles(kLeastTile / 4), tiles(kLeastTile / 2), threads)))
    return 3;
  if (by_k) return 0;
  return b.made_of == 0 && alone && 3 * tiles(kLeastTile) < threads ? 2 : 1;
}

}  // namespace

/// Whether all tiles of product_wgmma have all their rows and columns.
bool RegionLowering::has_whole_tiles(std::int64_t m, std::int64_t n, std::int64_t tile,
                                     std::int64_t products) {
  const std::int64_t columns = tile == 2 ? 128 : 256;
  return m % 128 == 0 && n % (columns / products) == 0;
}

static std::int64_t* constant_in(kernel::Template& t, std::string_view name) {
  const auto found = std::ranges::find(t.config, name, &kernel::Constant::name);
  return found == t.config.end() ? nullptr : &found->value;
}

/// Whether lanes may keep the columns that products leave in them, and exchange results instead of sums:
/// maps have no other use for a column than to load and store whole runs of them, what they load of columns
/// is the same in all rows, and the results are no more to exchange than sums are.
bool RegionLowering::spreads_columns() const {
  if (partner_ > 0 || s_.lanes != kWide || column_groups_.size() != 1) return false;
  const int column = groups_[static_cast<std::size_t>(column_groups_[0])].last;
  const auto allowed = [&](const Entry& e) {
    switch (e.kind) {
      case Entry::Kind::Scalar:
      case Entry::Kind::Op:
      case Entry::Kind::Product: return true;
      case Entry::Kind::Load: break;
      case Entry::Kind::Iota:
      case Entry::Kind::Pad:
      case Entry::Kind::Reduce:
      case Entry::Kind::Scan:
      case Entry::Kind::LoopState:
      case Entry::Kind::LoopResult: return false;
    }
    if (e.predicates >= 0) return false;
    bool of_columns = false, of_rows = false;
    for (int t = 0; t < e.index.n; ++t) {
      if (e.index.terms[t].atom >= p_.space.axis_count()) return false;
      of_columns |= e.index.terms[t].atom == column;
      of_rows |= e.index.terms[t].atom + 1 == column;
    }
    return !of_columns || (!of_rows && e.index.coef(column) == 1);
  };
  return std::ranges::all_of(p_.entries, allowed);
}

/// Which 8-bit floats the operands' bytes are.
static void add_formats(kernel::Template& t, const GraphNode& product) {
  t.config.push_back({"kAE5M2", ir::is_e5m2(product, 0), true});
  t.config.push_back({"kBE5M2", ir::is_e5m2(product, 1), true});
}

/// Which main loop, and the constants that it is compiled with.
void RegionLowering::choose_main_loop(kernel::Template& t, const ProductOperand& a,
                                      std::span<const ProductOperand> all, std::int64_t batches,
                                      std::int64_t m) {
  constexpr int kHopper = 90, kAmpere = 80;
  const bool bytes_of_floats = ir::multiplies_float8(g_[product_]);
  if ((!bytes_of_floats && !target_.on_tensor_cores(t.element)) || target_.architecture < kAmpere) return;
  const ProductOperand& b = all.front();
  const ir::Dims dims = g_[product_].dims;
  const std::size_t rank = dims.size();
  const std::int64_t n = dims[rank - 1], k = g_[g_[product_].in[0]].dims.back();
  const bool a_by_k = a.strides[rank - 1] == 1 || a.strides[rank - 2] != 1,
             b_by_k = b.strides[rank - 2] == 1 && b.strides[rank - 1] != 1;
  const std::int64_t bytes = size_of(t.element), a_unit = unit_of(a, bytes, a_by_k, rank - 2, rank - 1),
                     b_unit = unit_of(b, bytes, b_by_k, rank - 1, rank - 2);
  const bool halves = is_half(t.element);
  const auto a_tiled = tiled(a, a_by_k, m, k, batches, false),
             b_tiled = tiled(b, b_by_k, n, k, batches, true);
  const auto count = static_cast<std::int64_t>(all.size());
  const auto tiles = [&](std::int64_t rows, std::int64_t columns) {
    return batches * ceil_div(m, rows) * ceil_div(count * (n + other_columns_), columns);
  };
  std::int64_t tile = 0;
  if (target_.architecture == kHopper && a_tiled && b_tiled && (halves || (a_by_k && b_by_k)) &&
      m > kLeastTile && n > kLeastTile) {
    t.name = "product_wgmma";
    tile = 2 * (tiles(128, 256) < target_.threads);
    out_.tiled = {*a_tiled};
    for (const ProductOperand& each : all) out_.tiled.push_back(*tiled(each, b_by_k, n, k, batches, true));
  } else if (halves && m <= kFewRows && a_by_k && a_unit == kMapUnit && b_unit == kMapUnit) {
    t.name = "product_decode";
    tile = decode_tile(b, b_by_k, count == 1, m, target_.threads,
                       [&](std::int64_t columns) { return tiles(kFewRows, columns); });
  } else {
    KILN_CHECK_THAT(b.made_of == 0, "only few rows take an operand that is made");
    t.name = "product_mma";
    tile = tiles(128, 256) >= target_.threads ? 0 : tiles(128, 128) >= target_.threads ? 1 : 2;
  }
  t.config = {{"kProducts", count},
              {"kParts", 1},
              {"kPartner", partner_},
              {"kWhole", t.name == "product_wgmma" && has_whole_tiles(m, n, tile, count), true},
              {"kSpread", 0, true},
              {"kTile", tile},
              {"kWidth", s_.lanes},
              {"kAAlign", a_unit},
              {"kBAlign", b_unit},
              {"kARank", 3},
              {"kBRank", 3},
              {"kAKMajor", a_by_k, true},
              {"kBKMajor", b_by_k, true},
              {"kABatched", a_tiled && a_tiled->dims[2] > 1, true},
              {"kBBatched", b_tiled && b_tiled->dims[2] > 1, true},
              {"kBatched", 0, true},
              {"kWindows", 0},
              {"kWindowAxes", 1}};
  if (bytes_of_floats) add_formats(t, g_[product_]);
  if (t.name == "product_decode")
    add_decode_constants(t, b, m, tiles(kFewRows, kLeastTile / (tile == 1 ? 1 : tile == 3 ? 4 : 2)));
}

/// What product_decode has of its own. As many warps a block as hide latencies: few where a multiprocessor
/// has several blocks, and all that are left to it run at one time.
void RegionLowering::add_decode_constants(kernel::Template& t, const ProductOperand& b, std::int64_t rows,
                                          std::int64_t blocks) const {
  constexpr std::int64_t kOneTile = 8;
  const std::int64_t each = ceil_div(blocks, target_.threads);
  const bool bytes = b.made_of == 1;
  const bool narrow = std::ranges::find(t.config, "kTile", &kernel::Constant::name)->value >= 3;
  const std::int64_t warps = narrow  ? (each > 4   ? 2
                                        : each > 2 ? 4
                                                   : 8)
                             : bytes ? (each > 1 ? 4 : 8)
                                     : (blocks >= target_.threads ? 4 : 8);
  t.config.push_back({"kRows", rows <= kOneTile ? kOneTile : 2 * kOneTile});
  t.config.push_back({"kWarps", warps});
  t.config.push_back({"kWarpsPerSm", bytes ? 16 : 8});
  t.config.push_back({"kMade", b.made_of > 0, true});
  t.config.push_back({"kWidens", b.widens, true});
  t.config.push_back({"kAsGiven", b.as_given, true});
  t.config.push_back({"kFactored", b.factored, true});
  t.config.push_back({"kShare", b.share});
  t.config.push_back({"kNibbles", b.nibbles, true});
  t.config.push_back({"kZeroed", b.zeroed, true});
  t.config.push_back({"kScaled", b.scaled, true});
  if (b.made_of == 0) return;
  t.config.push_back({"kMadeOf", b.made_of});
  t.config.push_back({"kRun", 8});
}

/// From a row of the first operand to the next, of all matrices of the batch as one.
static std::int64_t distance_of_rows(ir::Dims dims, const ProductOperand& a) {
  for (std::size_t axis = dims.size() - 1; axis-- > 0;)
    if (dims[axis] != 1) return a.strides[axis];
  return 0;
}

void RegionLowering::build_template() {
  const GraphNode& product = g_[product_];
  const std::size_t rank = product.dims.size();
  const E batch = size(kGivenBatch, 0);
  std::int64_t batches = 1, m = product.dims[rank - 2];
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) batches *= product.dims[axis];
  const DType element = ir::multiplies_float8(product) ? DType::Float8E4M3FN : product.dtype;
  kernel::Template t{"product_plain", element, {{"kWidth", s_.lanes}}, {}};
  ProductOperand a = windows_ && windows_->operand == 0 ? window_operand() : product_operand(product.in[0]);
  // Few rows of each of a batch are those of one matrix, so that the other one is read once.
  const bool one_matrix = batches > 1 && plan::reads_operand_once(g_, product_);
  if (one_matrix) {
    a.strides[rank - 2] = distance_of_rows(product.dims, a);
    std::fill_n(a.strides.begin(), rank - 2, 0);
    m *= std::exchange(batches, 1);
  }
  t.hooks.push_back(matrix_hook("a_matrix", a, batch, {}));
  std::vector<ProductOperand> b;
  for (const NodeId each : products()) b.push_back(second_operand(t, each));
  if (windows_)
    choose_window_loop(t, a, b.front(), batches);
  else
    choose_main_loop(t, a, b, batches, m);
  if (const auto* const whole = constant_in(t, "kWhole"); whole && *whole != 0)
    *constant_in(t, "kSpread") = spreads_columns();
  add_epilogue(t, one_matrix);
  k_.main_loop = std::move(t);

  const std::int64_t n = product.dims[rank - 1], k = g_[product.in[0]].dims.back();
  const ProductHead head{static_cast<std::int32_t>(m), static_cast<std::int32_t>(n),
                         static_cast<std::int32_t>(k), static_cast<std::int32_t>(batches),
                         a.strides[rank - 2],          a.strides[rank - 1],
                         b[0].strides[rank - 1],       b[0].strides[rank - 2]};
  append(out_.head, head);
  if (windows_) {
    std::optional<WindowStrips> strips;
    if (k_.main_loop->name.starts_with("product_strips"))
      strips = window_strips(g_, product_, *windows_, strip_loop(g_, product_, *windows_, target_),
                             *constant_in(*k_.main_loop, "kFlat") != 0, target_.threads);
    const std::vector<std::byte> more = head_of_windows(*windows_, strips);
    out_.head.insert(out_.head.end(), more.begin(), more.end());
  }
  out_.grid = batches * m * n;
}

void RegionLowering::add_epilogue(kernel::Template& t, bool one_matrix) {
  const E part = size(kGivenPart, 0), batch = size(kGivenBatch, 0), row = size(kGivenRow, 0),
          column = size(kGivenColumn, 0), left = size(kGivenColumns, 0);
  kernel::Hook epilogue{"epilogue", {}, {sums_buffer_}, {}, {}, -1};
  if (second_ != ir::kNoNode || partner_ > 0) epilogue.buffers.push_back(second_sums_);
  for (const E& g : {part, batch, row, column, left})
    epilogue.params.push_back(static_cast<std::uint32_t>(g.node().imm));
  std::vector<int> rows = one_matrix ? batch_groups_ : std::vector<int>{};
  rows.insert(rows.end(), row_groups_.begin(), row_groups_.end());
  if (!one_matrix) decompose(batch, batch_groups_);
  decompose(row, rows);
  // Of columns that are met in pairs, the first ones of all pairs are the domain's.
  const E first =
      partner_ == 0 ? column : column - kernel::index_div(column, konst(2 * partner_)) * konst(partner_);
  const E count = s_.ragged ? left : konst(s_.lanes);
  epilogue.body.push_back(lane_loop({first, count}, column_groups_, [&](Body& body) { store_full(body); }));
  t.hooks.push_back(std::move(epilogue));
}

// ---- several products in a launch ----

Lowered RegionLowering::run_together(std::span<const plan::Region> others) {
  const auto columns = [&](const plan::Region& r) { return g_[r.product].dims.back(); };
  std::int64_t all = g_[product_].dims.back();
  for (const plan::Region& r : others) all += columns(r);
  expect_columns(all - g_[product_].dims.back());
  make();
  for (const plan::Region& r : others) {
    RegionLowering part(g_, regions_, r, target_);
    part.expect_columns(all - columns(r));
    take_part(part.run());
  }
  return std::move(out_);
}

/// Takes over another product, whose rows are this one's.
void RegionLowering::take_part(Lowered part) {
  kernel::Template &t = *k_.main_loop, &from = *part.kernel.main_loop;
  std::erase_if(from.hooks, [](const kernel::Hook& h) { return h.name == "a_matrix"; });
  ProductHead head;
  std::memcpy(&head, part.head.data(), sizeof head);
  append(out_.head, ProductPart{head.b_n, head.b_k, head.n, 0});
  const auto buffers = static_cast<std::uint32_t>(k_.buffers.size());
  for (std::size_t i = 1; i < part.tiled.size(); ++i) {
    out_.tiled.push_back(part.tiled[i]);
    out_.tiled.back().buffer += buffers;
  }
  for (kernel::Hook& h : adopt(std::move(from.hooks), part)) t.hooks.push_back(std::move(h));
  ++*constant_in(t, "kParts");
  for (const char* name : {"kWhole", "kSpread"}) *constant_in(t, name) &= *constant_in(from, name);
  k_.n_params = static_cast<std::uint32_t>(out_.params.size());
  k_.threads.narrow &= part.kernel.threads.narrow;
  out_.grid += part.grid;
  out_.work += part.work;
  out_.bytes -= g_[g_[product_].in[0]].numel * size_of(stored_element());
}

bool shares_launch(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                   const plan::Region& other, const schedule::Target& target) {
  const auto lowered = [&](const plan::Region& r, const plan::Region& beside) -> std::optional<Lowered> {
    RegionLowering lowering(graph, regions, r, target);
    if (r.partner > 0 && !lowering.reads_partners()) return std::nullopt;
    lowering.expect_columns(graph[beside.product].dims.back());
    return lowering.run();
  };
  const std::optional<Lowered> one = lowered(region, other), another = lowered(other, region);
  if (!one || !another) return false;
  const Lowered &x = *one, &y = *another;
  const kernel::Template &a = *x.kernel.main_loop, &b = *y.kernel.main_loop;
  const auto copied = [](const Lowered& l) {
    const auto& hooks = l.kernel.main_loop->hooks;
    return l.kernel
        .buffers[static_cast<std::size_t>(std::ranges::find(hooks, "b_matrix", &kernel::Hook::name)->address)]
        .dtype;
  };
  const auto has = [](const kernel::Template& t, std::string_view name) {
    return std::ranges::find(t.config, name, &kernel::Constant::name) != t.config.end();
  };
  return a.name == b.name && has(a, "kParts") && copied(x) == copied(y) &&
         std::ranges::equal(a.config, b.config, [](const kernel::Constant& c, const kernel::Constant& d) {
           return c.name == d.name && (c.value == d.value || c.name == "kWhole" || c.name == "kSpread");
         });
}

}  // namespace kiln::lower
