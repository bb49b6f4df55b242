// PairPassKernel: what a launch of sums over pairs (pair_sums_kernel.h) is made of, before its hooks are
// written: its operands, which values come ready made for rows and columns, which value of the first product
// is early, and what is known of tiles that masks leave out. For pair_sums_kernel.cpp.
#pragma once

#include "lower/pair_kernel.h"
#include "lower/pair_sums_form.h"
#include "lower/pair_sums_kernel.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kiln::lower {

class PairPassKernel : public PairKernel {
 public:
  PairPassKernel(const plan::Graph& g, const plan::PairSums& s, PairPass pass,
                 const schedule::Target& target);

  std::optional<PairForm> form() const;
  bool leaves_out() const { return !low_.empty(); }
  /// Whether the launch that leaves out tiles finds itself what is not finite.
  bool checks() const;
  /// Whether it can add to the sum pass.adds, and gains by it.
  bool adds() const;

 protected:
  /// Operands of rows and of columns that pair_sums_wgmma has tensor maps for.
  static constexpr std::size_t kTiledProducts = 2, kTiledOperands = 2;
  static constexpr std::size_t kMostProducts = 3, kMostOperands = 4, kMostValues = 4;
  /// What a hook gets that is made once for each row, or for each column, of the launch.
  struct Staged {
    TermId term;
    bool reciprocal;  // a divisor: one product for each pair instead of a quotient
  };
  /// A condition that is known of a row; nothing: it is not known.
  using Known = std::optional<E>;
  ~PairPassKernel() = default;

  /// Of the sum pass_.adds: the operand of rows that it multiplies, and which sum of the pass has its
  /// weights.
  struct Added {
    std::size_t x, weight;
  };
  std::optional<Added> added() const;

  DType element() const { return s_.products.front().x.dtype; }
  std::int64_t width() const { return pass_.sums.empty() ? 0 : s_.sums[pass_.sums.front()].width; }
  std::int64_t kernel_rows() const { return pass_.over_rows ? s_.columns : s_.rows; }
  std::int64_t kernel_columns() const { return pass_.over_rows ? s_.rows : s_.columns; }
  bool all_aligned(const std::vector<const MatrixMemory*>& of) const;

  /// Where a pair's terms are evaluated.
  Place place(E batch, E row, E column);
  /// That all weights of row i are 0 in a low tile.
  Known adds_nothing(E batch, E row);

  // memory that passes share
  std::uint32_t statistic_memory(std::size_t i, kernel::BufferDecl::Role role);
  std::int64_t flag_tiles() const;
  std::uint32_t flag_memory(kernel::BufferDecl::Role role);
  E flag_index(E batch, E tile);
  /// Of the sum that several blocks add to: tiles of kAddedRows, whose rows are padded.
  static constexpr std::int64_t kAddedRows = 64;
  std::int64_t added_tiles() const;
  std::int64_t added_width() const;
  std::uint32_t added_memory(kernel::BufferDecl::Role role);
  std::uint32_t row_flag_memory();

  const plan::PairSums& s_;
  const PairPass pass_;
  std::vector<TermId> values_;        // weights of the sums, then what is reduced
  std::vector<std::size_t> reduced_;  // statistics
  std::vector<std::size_t> products_;
  std::vector<const MatrixMemory*> x_, y_;  // of the products; behind them of y what sums alone multiply
  std::vector<std::int64_t> widths_;        // of y_; of x_ too
  std::vector<std::size_t> operand_of_sum_;
  std::vector<Staged> of_rows_, of_columns_;
  TermId early_ = plan::kNoTerm;
  std::vector<TermId> masks_;
  std::vector<TermId> low_;  // masks with one condition: where it is false, all weights may be 0

 private:
  TermId before_rounding(TermId id) const;
  void find_reached();
  template <class F>
  void each_reached(Term::Kind kind, const F& f) const;
  void take_operands();
  bool copied_by_tiles() const;

  bool along_rows(TermId id) const {
    return pass_.over_rows ? term_at(id).along_columns : term_at(id).along_rows;
  }
  bool along_columns(TermId id) const {
    return pass_.over_rows ? term_at(id).along_rows : term_at(id).along_columns;
  }
  bool is_work(TermId id) const;
  void stage(TermId id, bool reciprocal = false);

  bool is_staged(TermId id) const;
  std::vector<bool> read_without(TermId without) const;
  std::vector<unsigned> products_of_terms() const;
  int operations_below(TermId id) const;
  TermId early_of(std::size_t product, const std::vector<unsigned>& of) const;
  void find_early();

  void find_masks();
  bool is_low(TermId id) const;
  bool is_of_row(TermId id) const;
  Known is_zero(TermId id, const Place& at);
  Known is_finite(TermId id, const Place& at);
  std::uint32_t shared_memory(std::size_t number, kernel::BufferDecl::Role role, DType type,
                              std::int64_t elements);

  std::vector<bool> reached_;
  std::map<std::pair<std::size_t, kernel::BufferDecl::Role>, std::uint32_t> shared_;
  E flag_tiles_;
};

}  // namespace kiln::lower
