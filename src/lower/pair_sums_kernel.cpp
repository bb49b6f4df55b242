#include "lower/pair_sums_kernel.h"

#include "lower/pair_pass.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace kiln::lower {
namespace {

using kernel::BufferDecl;
using plan::kNoTerm;
using plan::PairSums;

constexpr std::int64_t kFlagColumns = 64;   // as in pair_tiles.cuh
constexpr std::int64_t kFlagThreads = 128;  // of a block of pair_flags.cuh, which has a tile

/// As struct PairShape in kernels_templates/pair_sums.cuh.
struct Shape {
  std::int32_t rows, columns, batch, blocks;
  std::int64_t x_row[3], y_row[4];
};
static_assert(sizeof(Shape) == 72);

/// As struct PairParts there.
struct Parts {
  std::int32_t divisor[4][3], extent[4][3];
  std::int32_t group, items;
  std::int32_t again, unused;
};
static_assert(sizeof(Parts) == 112);

std::int64_t quotient_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit; }

class PairSumsLowering final : PairPassKernel {
 public:
  using PairPassKernel::adds, PairPassKernel::checks, PairPassKernel::form, PairPassKernel::leaves_out;
  PairSumsLowering(const plan::Graph& g, const PairSums& s, PairPass pass, const schedule::Target& target)
      : PairPassKernel(g, s, std::move(pass), target) {}

  Lowered run() {
    switch (pass_.kind) {
      case PairPass::Kind::Statistics:
      case PairPass::Kind::Sums: return sums();
      case PairPass::Kind::Flags: return flags();
      case PairPass::Kind::Zeros: return added_to(false);
      case PairPass::Kind::Stores: return added_to(true);
    }
    __builtin_unreachable();
  }

 private:
  // ---- what comes with calls

  /// The hook that makes them, and what the weights get of them.
  E made_of(const Staged& s, const Place& at) {
    E x = term(s.term, at);
    if (is_bool(term_at(s.term).dtype)) x = kernel::cast(x, DType::Float32);
    return s.reciprocal ? expand_gpu(ir::Op::reciprocal, true, x, {}, {}, DType::Float32) : x;
  }
  void take(const Staged& s, E value) {
    if (s.reciprocal)
      give_reciprocal(s.term, value);
    else
      give(s.term, is_bool(term_at(s.term).dtype) ? value != 0.0 : value);
  }

  Hook row_values() {
    E batch, r;
    Hook h = begin("row_values", {&batch, &r});
    const Place at = pass_.over_rows ? place(batch, {}, r) : place(batch, r, {});
    const std::vector<std::uint32_t> to = given(h, std::max<std::size_t>(of_rows_.size(), 1), true);
    for (std::size_t i = 0; i < of_rows_.size(); ++i)
      store(h.body, to[i], integer(0), made_of(of_rows_[i], at));
    return h;
  }
  Hook column_values() {
    E batch, c;
    Hook h = begin("column_values", {&batch, &c});
    const std::vector<std::uint32_t> to = given(h, std::max<std::size_t>(of_columns_.size(), 1), true);
    if (of_columns_.empty()) return h;
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      const E column = c + lane_;
      const Place at = pass_.over_rows ? place(batch, column, {}) : place(batch, {}, column);
      for (std::size_t i = 0; i < of_columns_.size(); ++i)
        store(body, to[i], lane_, made_of(of_columns_[i], at));
    });
    return h;
  }

  /// What comes with calls: products, and values of the row and of the columns.
  struct Given {
    std::vector<std::uint32_t> products, rows, columns;
  };
  Given given_values(Hook& h, std::size_t products) {
    Given out;
    out.products = given(h, products, false);
    out.rows = given(h, of_rows_.size(), false);
    out.columns = given(h, of_columns_.size(), false);
    return out;
  }
  void take(const Given& from) {
    for (std::size_t i = 0; i < of_rows_.size(); ++i)
      take(of_rows_[i], load(from.rows[i], DType::Float32, integer(0)));
    for (std::size_t i = 0; i < of_columns_.size(); ++i)
      take(of_columns_[i], load(from.columns[i], DType::Float32, lane_));
  }

  std::vector<std::uint32_t> given(Hook& h, std::size_t count, bool made) {
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(PairKernel::given(h, made));
    return out;
  }

  // ---- hooks

  Hook early(const char* name, bool whole) {
    E batch, r, c;
    Hook h = begin(name, {&batch, &r, &c});
    const Given from = given_values(h, 1);
    const std::uint32_t to = PairKernel::given(h, true);
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      const E column = c + lane_;
      Place at = pass_.over_rows ? place(batch, column, r) : place(batch, r, column);
      at.scores[products_[0]] = load(from.products[0], DType::Float32, lane_);
      take(from);
      if (whole) at.first = masks_;
      store(body, to, lane_, early_ == kNoTerm ? at.scores[products_[0]] : term(early_, at));
    });
    return h;
  }

  Hook weights(const char* name, bool whole) {
    E batch, r, c;
    Hook h = begin(name, {&batch, &r, &c});
    const Given from = given_values(h, products_.size());
    const std::vector<std::uint32_t> to = given(h, values_.size(), true);
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      const E column = c + lane_;
      Place at = pass_.over_rows ? place(batch, column, r) : place(batch, r, column);
      for (std::size_t p = 0; p < products_.size(); ++p)
        at.scores[products_[p]] = load(from.products[p], DType::Float32, lane_);
      take(from);
      if (early_ != kNoTerm) give(early_, at.scores[products_[0]]);
      if (whole) at.first = masks_;
      for (std::size_t v = 0; v < values_.size(); ++v)
        store(body, to[v], lane_, kernel::cast(term(values_[v], at), DType::Float32));
    });
    return h;
  }

  /// Columns of the results that a hook gets at a time: 16 bytes where rows begin at multiples of them.
  int finish_width(std::int64_t piece) const {
    const bool whole =
        width() % 8 == 0 && piece % 32 == 0 && std::ranges::all_of(pass_.sums, [&](std::size_t s) {
          const PairSums::Sum& sum = s_.sums[s];
          return is_half(sum.dtype) && sum.across == 1 && sum.point % 8 == 0;
        });
    return whole ? 8 : 2;
  }

  Hook finish(int count) {
    E batch, r, d, left;
    Hook h = begin("finish", {&batch, &r, &d, &left});
    const std::vector<std::uint32_t> from = given(h, std::max<std::size_t>(pass_.sums.size(), 1), false);
    if (pass_.sums.empty()) return h;
    const bool ragged = width() % count != 0;
    const E each = param(kernel_rows() * width());
    const auto store_lanes = [&](std::vector<Stmt>& body) {
      for (std::size_t i = 0; i < pass_.sums.size(); ++i) {
        const PairSums::Sum& sum = s_.sums[pass_.sums[i]];
        BufferDecl decl{BufferDecl::Role::Out, sum.dtype, 64};
        decl.vector = !ragged && sum.across == 1;
        const std::uint32_t to = buffer(decl, {BufferSource::Kind::Node, sum.node, 0});
        out_.bytes += g_[sum.node].numel * static_cast<std::int64_t>(size_of(sum.dtype));
        const E column = d + lane_, first = batch * each + (sum.point == 1 ? r : r * param(sum.point));
        store(body, to, first + (sum.across == 1 ? column : column * param(sum.across)),
              kernel::cast(load(from[i], DType::Float32, lane_), sum.dtype));
      }
    };
    on_lanes(h, ragged ? left : integer(count), ragged, store_lanes, count);
    return h;
  }

  Hook finish_row() {
    E batch, r;
    Hook h = begin("finish_row", {&batch, &r});
    const std::vector<std::uint32_t> from = given(h, std::max<std::size_t>(reduced_.size(), 1), false);
    for (std::size_t i = 0; i < reduced_.size(); ++i)
      store(h.body, statistic_memory(reduced_[i], BufferDecl::Role::Out), batch * rows() + r,
            load(from[i], DType::Float32, integer(0)));
    return h;
  }

  Hook tile_kind() {
    E batch, r0, r1, c0, c1;
    Hook h = begin("tile_kind", {&batch, &r0, &r1, &c0, &c1});
    const TilePlace at =
        pass_.over_rows ? TilePlace{batch, c0, c1, r0, r1} : TilePlace{batch, r0, r1, c0, c1};
    E whole = yes(true);
    for (const TermId m : masks_) whole = whole & ~truth(term_at(m).in[0], at).can_be_false;
    E kind = kernel::select(whole, whole.lit(DType::Int32, 1), whole.lit(DType::Int32, 0));
    if (pass_.flags >= 0)
      kind = kernel::select(truth(term_at(low_.front()).in[0], at).can_be_true, kind, kind.lit(2));
    h.results.push_back(kind.id);
    return h;
  }

  Hook adds_nothing_hook(const char* name, bool known) {
    E batch, row;
    Hook h = begin(name, {&batch, &row});
    h.results.push_back((known ? *adds_nothing(batch, row) : yes(true)).id);
    return h;
  }

  Hook is_finite_hook() {
    E batch, tile;
    Hook h = begin("is_finite", {&batch, &tile});
    const E odd = pass_.flags < 0
                      ? yes(false)
                      : load(flag_memory(pass_.checks ? BufferDecl::Role::Partial : BufferDecl::Role::In),
                             DType::Bool, flag_index(batch, tile));
    h.results.push_back((~odd).id);
    return h;
  }

  /// Where the sum that several blocks add to stands for 64 points of its axis.
  Hook added_to_hook(BufferDecl::Role role) {
    E batch, tile;
    Hook h = begin("added_to", {&batch, &tile});
    h.address = static_cast<std::int32_t>(added_memory(role));
    h.results.push_back(((batch * param(added_tiles()) + tile) * param(kAddedRows * added_width())).id);
    return h;
  }
  Hook row_is_finite_hook() {
    E batch, tile;
    Hook h = begin("row_is_finite", {&batch, &tile});
    const std::int64_t tiles = quotient_up(kernel_rows(), kFlagColumns);
    h.results.push_back((~load(row_flag_memory(), DType::Bool, batch * param(tiles) + tile)).id);
    return h;
  }

  void add_matrices(kernel::Template& t, const char* name, const std::vector<const MatrixMemory*>& of,
                    std::size_t most) {
    for (std::size_t i = 0; i < most; ++i)
      t.hooks.push_back(matrix(cat(name, i), *of[std::min(i, of.size() - 1)]));
  }

  // ---- kernels

  void set_head(const std::vector<const MatrixMemory*>& y, std::int64_t blocks) {
    const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
    Shape shape{narrow(kernel_rows()), narrow(kernel_columns()), narrow(s_.batch), narrow(blocks), {}, {}};
    for (std::size_t p = 0; p < x_.size(); ++p) shape.x_row[p] = x_[p]->row;
    for (std::size_t o = 0; o < y.size(); ++o) shape.y_row[o] = y[o]->row;
    out_.head.resize(sizeof shape);
    std::memcpy(out_.head.data(), &shape, sizeof shape);
  }

  void launch(std::int64_t grid, std::int64_t threads, std::int64_t shared) {
    out_.grid = grid;
    out_.shape.emplace();
    out_.shape->grid[0] = static_cast<std::uint32_t>(grid);
    out_.shape->block[0] = static_cast<std::uint32_t>(threads);
    out_.shape->dynamic_shared = static_cast<std::uint32_t>(shared);
    k_.threads = {static_cast<std::uint16_t>(threads), 1, false};
  }

  void add_hooks(kernel::Template& t, int finished) {
    t.hooks.push_back(row_values());
    t.hooks.push_back(column_values());
    t.hooks.push_back(early("early", false));
    t.hooks.push_back(early("early_whole", true));
    t.hooks.push_back(weights("weights", false));
    t.hooks.push_back(weights("weights_whole", true));
    t.hooks.push_back(tile_kind());
    t.hooks.push_back(is_finite_hook());
    t.hooks.push_back(adds_nothing_hook("adds_nothing", pass_.flags >= 0 && !pass_.over_rows));
    if (pass_.checks) add_flag_hooks(t, BufferDecl::Role::Partial);
    if (pass_.adds >= 0) t.hooks.push_back(added_to_hook(BufferDecl::Role::Out));
    if (pass_.row_flags >= 0) t.hooks.push_back(row_is_finite_hook());
    t.hooks.push_back(finish(finished));
    t.hooks.push_back(finish_row());
  }

  Lowered sums() {
    const std::optional<PairForm> chosen = form();
    KILN_CHECK_THAT(chosen, "sums over pairs fit no main loop");
    const PairForm& form = *chosen;
    kernel::Template t{form.hopper ? "pair_sums_wgmma" : "pair_sums_mma", element(), {}, {}};
    const auto at = [](const auto& list, std::size_t i, std::int64_t otherwise) {
      return i < list.size() ? static_cast<std::int64_t>(list[i]) : otherwise;
    };
    t.config = {{"kWidth", 2},
                {"kProducts", static_cast<std::int64_t>(x_.size())},
                {"kOperands", static_cast<std::int64_t>(y_.size())},
                {"kSums", static_cast<std::int64_t>(pass_.sums.size())},
                {"kOut", std::max<std::int64_t>(width(), 1)},
                {"kReductions", static_cast<std::int64_t>(reduced_.size())},
                {"kRowValues", static_cast<std::int64_t>(of_rows_.size())},
                {"kColumnValues", static_cast<std::int64_t>(of_columns_.size())},
                {"kEarly", early_ != kNoTerm},
                {"kAligned", all_aligned(x_) && all_aligned(y_)},
                {"kMasks", !masks_.empty()},
                {"kLow", pass_.flags >= 0},
                {"kChecks", pass_.checks},
                {"kRows", form.rows},
                {"kColumns", form.columns},
                {"kWarps", form.warps},
                {"kFragments", form.fragments},
                {"kPiece", form.piece},
                {"kFinish", finish_width(form.piece)},
                {"kStages", form.stages},
                {"kBlocks", form.blocks},
                {"kFirst", pass_.over_rows},
                {"kAdds", pass_.adds >= 0},
                {"kAddX", pass_.adds >= 0 ? static_cast<std::int64_t>(added()->x) : 0},
                {"kAddWeight", pass_.adds >= 0 ? static_cast<std::int64_t>(added()->weight) : 0}};
    for (std::size_t i = 0; i < kMostOperands; ++i) {
      t.config.push_back({cat("kDepth", i), at(widths_, i, 1)});
      t.config.push_back({cat("kSum", i), at(operand_of_sum_, i, 0)});
      t.config.push_back({cat("kReduction", i), i < reduced_.size() ? kind_of(reduced_[i]) : 0});
    }
    if (form.hopper) {
      t.config.push_back({"kXStages", form.x_stages});
      for (std::size_t i = 0; i < kTiledProducts; ++i)
        t.config.push_back({cat("kXRank", i), rank_of(*x_[std::min(i, x_.size() - 1)])});
      for (std::size_t i = 0; i < kTiledOperands; ++i)
        t.config.push_back({cat("kYRank", i), rank_of(*y_[std::min(i, y_.size() - 1)])});
    }
    add_matrices(t, "x_matrix", x_, form.hopper ? kTiledProducts : kMostProducts);
    add_matrices(t, "y_matrix", y_, form.hopper ? kTiledOperands : kMostOperands);
    add_hooks(t, finish_width(form.piece));
    k_.main_loop = std::move(t);
    const std::int64_t blocks = quotient_up(kernel_rows(), form.rows);
    set_head(y_, blocks);
    launch(s_.batch * blocks, form.threads, form.shared);
    if (form.hopper) describe_tiles(form, blocks);
    std::int64_t depth = static_cast<std::int64_t>(pass_.sums.size()) * width();
    for (std::size_t p = 0; p < x_.size(); ++p) depth += widths_[p];
    out_.work = 2.0 * static_cast<double>(s_.batch) * static_cast<double>(s_.rows) *
                static_cast<double>(s_.columns) * static_cast<double>(depth);
    return finished();
  }

  // ---- what the copy engine reads

  static std::int64_t rank_of(const MatrixMemory& m) { return static_cast<std::int64_t>(2 + m.parts.size()); }

  device::TiledBuffer tiles_of(const MatrixMemory& m, std::int64_t points, std::int64_t width,
                               std::int64_t box) {
    device::TiledBuffer t{memory_buffer(m), m.dtype, static_cast<int>(rank_of(m)), {}, {}, {1, 1, 1, 1, 1}};
    t.dims[0] = width;
    t.dims[1] = points;
    t.strides[0] = 1;
    t.strides[1] = m.row;
    t.box[0] = 64;
    t.box[1] = static_cast<std::int32_t>(box);
    for (std::size_t p = 0; p < m.parts.size(); ++p) {
      t.dims[2 + p] = m.parts[p].extent;
      t.strides[2 + p] = m.parts[p].stride;
    }
    return t;
  }

  /// Tensor maps, where matrices of the batch are, and blocks that stay and walk.
  void describe_tiles(const PairForm& form, std::int64_t blocks) {
    const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
    Parts parts{};
    const auto add = [&](const MatrixMemory& m, std::int64_t points, std::int64_t width, std::int64_t box) {
      for (std::size_t p = 0; p < m.parts.size(); ++p) {
        parts.divisor[out_.tiled.size()][p] = narrow(m.parts[p].divisor);
        parts.extent[out_.tiled.size()][p] = narrow(m.parts[p].extent);
      }
      out_.tiled.push_back(tiles_of(m, points, width, box));
    };
    for (std::size_t i = 0; i < kTiledProducts; ++i) {
      const std::size_t p = std::min(i, x_.size() - 1);
      add(*x_[p], kernel_rows(), widths_[p], form.rows);
    }
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < kTiledOperands; ++i) {
      const std::size_t o = std::min(i, y_.size() - 1);
      add(*y_[o], kernel_columns(), widths_[o], form.columns);
      bytes += kernel_columns() * widths_[o] * size_of(element());
    }
    if (pass_.adds >= 0) bytes += kernel_columns() * added_width() * size_of(DType::Float32);
    // matrices whose operands of columns the second cache holds together
    constexpr std::int64_t kHeld = 24 << 20, kMostMatrices = 16;
    parts.group = narrow(std::clamp<std::int64_t>(kHeld / bytes, 1, kMostMatrices));
    parts.items = narrow(s_.batch * blocks);
    out_.head.resize(sizeof(Shape) + sizeof parts);
    std::memcpy(out_.head.data() + sizeof(Shape), &parts, sizeof parts);
    if (pass_.checks) {
      out_.again = out_.head;
      parts.again = 1;
      std::memcpy(out_.again.data() + sizeof(Shape), &parts, sizeof parts);
    }
    out_.grid = std::min(out_.grid, form.blocks * target_.threads);
    out_.shape->grid[0] = static_cast<std::uint32_t>(out_.grid);
  }

  std::int64_t kind_of(std::size_t statistic) const {
    const ir::Op op = s_.statistics[statistic].reduction;
    return op == ir::Op::reduce_sum ? 0 : op == ir::Op::reduce_max ? 1 : 2;  // as in pair_sums.cuh
  }

  /// What finds flags, which are stored in memory of this role.
  void add_flag_hooks(kernel::Template& t, BufferDecl::Role role) {
    t.hooks.push_back(adds_nothing_hook("column_adds_nothing", pass_.over_rows));
    E batch, tile;
    Hook h = begin("flag", {&batch, &tile});
    h.address = static_cast<std::int32_t>(flag_memory(role));
    h.results.push_back(flag_index(batch, tile).id);
    t.hooks.push_back(std::move(h));
  }

  /// Makes the sum that several blocks add to 0, or stores it as a result.
  Lowered added_to(bool stores) {
    constexpr std::int64_t kThreads = 256;  // of a block of pair_added.cuh, which has a tile
    const int finished_at_once = finish_width(32);
    kernel::Template t{"pair_added", element(), {}, {}};
    t.config = {
        {"kOut", width()}, {"kPadded", added_width()}, {"kFinish", finished_at_once}, {"kStores", stores}};
    t.hooks.push_back(added_to_hook(stores ? BufferDecl::Role::In : BufferDecl::Role::Out));
    if (stores) t.hooks.push_back(finish(finished_at_once));
    k_.main_loop = std::move(t);
    set_head({}, added_tiles());
    launch(s_.batch * added_tiles(), kThreads, 0);
    out_.work = static_cast<double>(s_.batch) * static_cast<double>(kernel_rows() * width());
    return PairPassKernel::finished();
  }

  Lowered flags() {
    std::vector<const MatrixMemory*> multiplied;
    for (const std::size_t o : operand_of_sum_)
      if (std::ranges::find(multiplied, y_[o]) == multiplied.end()) multiplied.push_back(y_[o]);
    kernel::Template t{"pair_flags", element(), {}, {}};
    t.config = {{"kOperands", static_cast<std::int64_t>(multiplied.size())},
                {"kOut", width()},
                {"kAligned", all_aligned(multiplied)}};
    add_matrices(t, "y_matrix", multiplied, kMostOperands);
    add_flag_hooks(t, BufferDecl::Role::Out);
    k_.main_loop = std::move(t);
    set_head(multiplied, flag_tiles());
    launch(s_.batch * flag_tiles(), kFlagThreads, 0);
    out_.work = static_cast<double>(s_.batch) * static_cast<double>(kernel_columns() * width());
    return finished();
  }
};

}  // namespace

namespace {

/// Launches of sums, as many sums in each as registers hold.
std::vector<PairPass> sum_passes(const plan::Graph& graph, const PairSums& s,
                                 const schedule::Target& target) {
  std::vector<PairPass> out;
  std::vector<bool> done(s.sums.size());
  for (std::size_t i = 0; i < s.sums.size(); ++i) {
    if (done[i]) continue;
    PairPass pass{PairPass::Kind::Sums, s.sums[i].over_rows, 0, {}, -1};
    for (std::size_t k = i; k < s.sums.size(); ++k) {
      if (done[k] || s.sums[k].over_rows != pass.over_rows || s.sums[k].width != s.sums[i].width) continue;
      pass.sums.push_back(k);
      done[k] = k == i || PairSumsLowering(graph, s, pass, target).form().has_value();
      if (!done[k]) pass.sums.pop_back();
    }
    out.push_back(std::move(pass));
  }
  return out;
}

/// A sum that has a launch of its own is added to by a launch along the other axis, where that can.
void add_across(std::vector<PairPass>& passes, const plan::Graph& graph, const PairSums& s,
                const schedule::Target& target) {
  const auto takes = [&](PairPass& pass, const PairPass& other) {
    if (pass.over_rows == other.over_rows || pass.adds >= 0 || other.adds >= 0 || other.sums.size() != 1)
      return false;
    PairPass both = pass;
    both.adds = static_cast<int>(other.sums.front());
    if (!PairSumsLowering(graph, s, both, target).adds()) return false;
    pass = std::move(both);
    return true;
  };
  for (auto other = passes.begin(); other != passes.end();) {
    const bool taken = std::ranges::any_of(
        passes, [&](PairPass& pass) { return pass.sums.size() > 1 && takes(pass, *other); });
    other = taken ? passes.erase(other) : other + 1;
  }
}

}  // namespace

std::vector<PairPass> pair_passes(const plan::Graph& graph, const PairSums& s,
                                  const schedule::Target& target) {
  std::vector<PairPass> out;
  for (int level = 0; level < s.levels; ++level)
    out.push_back({PairPass::Kind::Statistics, false, level, {}, -1});
  auto shared = static_cast<int>(s.statistics.size());
  const auto add_flags = [&](PairPass of) {
    of.kind = PairPass::Kind::Flags;
    of.flags = shared++;
    out.push_back(std::move(of));
    return out.back().flags;
  };
  std::vector<PairPass> passes = sum_passes(graph, s, target);
  add_across(passes, graph, s, target);
  for (PairPass& pass : passes) {
    PairPass added{PairPass::Kind::Zeros, !pass.over_rows, 0, {}, -1};
    if (pass.adds >= 0) added.sums.push_back(static_cast<std::size_t>(pass.adds));
    const PairSumsLowering lowering(graph, s, pass, target);
    if (lowering.leaves_out()) {
      pass.checks = lowering.checks();
      pass.flags = pass.checks ? shared++ : add_flags(pass);
      if (pass.adds >= 0) pass.row_flags = add_flags(added);
    }
    if (pass.adds >= 0) {
      added.added = pass.added = shared++;
      out.push_back(added);
    }
    out.push_back(pass);
    if (pass.adds < 0) continue;
    added.kind = PairPass::Kind::Stores;
    out.push_back(std::move(added));
  }
  return out;
}

Lowered lower_pair_pass(const plan::Graph& graph, const PairSums& sums, const PairPass& pass,
                        const schedule::Target& target) {
  return PairSumsLowering(graph, sums, pass, target).run();
}

}  // namespace kiln::lower
