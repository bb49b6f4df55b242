// PairKernel: what kernels with a main loop over pairs share: hooks, the memory of matrices, a program's
// terms as expressions, and what is known of masks over a whole tile. For attention_kernel.cpp and
// pair_sums_kernel.cpp.
//
// Invariant: a hook reads the launch's parameters and memory and what comes with its call, nothing else. Rows
// and columns that a tile has beyond those of the pairs read no memory.
#pragma once

#include "lower/lower.h"
#include "plan/pair_terms.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace kiln::lower {

class PairKernel {
 public:
  PairKernel(const plan::Graph& g, const plan::PairTerms& pairs, const schedule::Target& target)
      : g_(g), pairs_(pairs), target_(target), k_(out_.kernel) {
    k_.fma = target_.fma;
    k_.exact = k_.pool.exact = target_.exact;
  }
  PairKernel(const PairKernel&) = delete;
  PairKernel& operator=(const PairKernel&) = delete;

 protected:
  using E = kernel::E;
  using Hook = kernel::Hook;
  using Stmt = kernel::Stmt;
  using MatrixMemory = plan::MatrixMemory;
  using Term = plan::Term;
  using TermId = plan::TermId;
  ~PairKernel() = default;

  // ---- expressions

  E param(std::int64_t value);
  E leaf(kernel::Prim prim, DType type, std::uint64_t imm);
  E integer(std::int64_t value);
  E yes(bool value);
  E load(std::uint32_t buffer, DType type, E index, E predicate = {});
  std::uint32_t buffer(kernel::BufferDecl decl, BufferSource source);

  /// Begins a hook with these coordinates, which come with its calls.
  Hook begin(const std::string& name, std::initializer_list<E*> coordinates);
  /// An array of the main loop's: values of two adjacent columns.
  std::uint32_t given(Hook& h, bool made);
  /// Statements for each of `count` lanes; lane_ is the lane's number.
  template <class F>
  void on_lanes(Hook& h, E extent, bool ragged, const F& f, int count = 2) {
    kernel::LoopDecl l = lanes(extent, ragged, count);
    f(l.body);
    k_.loops.push_back(std::move(l));
    h.body.push_back({Stmt::Kind::Loop, static_cast<std::uint32_t>(k_.loops.size() - 1)});
  }
  static void store(std::vector<Stmt>& body, std::uint32_t buffer, E index, E value) {
    body.push_back({Stmt::Kind::Store, buffer, index.id, value.id});
  }

  // ---- memory

  struct Parameters {
    E row, column;
    std::vector<E> divisors, extents, strides;  // of m.parts
  };
  std::uint32_t memory_buffer(const MatrixMemory& m);
  /// A matrix's parameters are the same in all hooks.
  const Parameters& parameters(const MatrixMemory& m);
  /// number / divisor % extent of a matrix's number in the batch, without a division that changes nothing.
  E coordinate(E number, const plan::MatrixMemory::Part& part, E divisor, E extent);
  /// The same of a part of a matrix.
  E coordinate(E number, const MatrixMemory& m, std::size_t part);
  E first_element(const MatrixMemory& m, E batch);
  /// How far row `row` of a matrix begins behind its first one. Pre: m.row is not 0.
  E along_rows(const MatrixMemory& m, E row) { return m.row == 1 ? row : row * parameters(m).row; }
  /// A hook that gives the address of a matrix.
  Hook matrix(const std::string& name, const MatrixMemory& m);
  /// Whether rows of a matrix begin at multiples of 16 bytes.
  bool is_aligned(const MatrixMemory& m) const;
  E rows() { return extent(rows_, pairs_.rows); }
  E columns() { return extent(columns_, pairs_.columns); }

  // ---- terms

  /// Where terms are evaluated.
  struct Place {
    E batch, row, column;  // of the pair; one of the last two belongs to the lane at hand
    std::vector<E> scores, statistics, sums;
    E max;
    std::span<const TermId> first = {}, other = {};  // masks that choose their first, their other value
  };
  E term(TermId id, const Place& at);
  /// In the hook at hand a term is `value`, which comes with its calls, or its reciprocal is.
  void give(TermId id, E value) { known_[id] = value; }
  void give_reciprocal(TermId id, E value) { reciprocals_[id] = value; }
  /// In the hook at hand errors of these terms count as such, not in relation to their values.
  void errors_count_as_such(std::vector<TermId> terms) { near_ = std::move(terms); }
  const Term& term_at(TermId id) const { return pairs_.terms[static_cast<std::size_t>(id)]; }
  static E rounded(E value, DType type);

  // ---- bounds of masks

  struct Range {
    E low, high;  // Int64
  };
  struct Truth {
    E can_be_false, can_be_true;
  };
  struct TilePlace {
    E batch, row0, row1, column0, column1;
  };
  /// What a condition is over a tile.
  Truth truth(TermId id, const TilePlace& at);

  /// Gives the kernel its canonical numbers, and what the launch binds with it.
  Lowered finished();

  const plan::Graph& g_;
  const plan::PairTerms& pairs_;
  const schedule::Target& target_;
  Lowered out_;
  kernel::Kernel& k_;
  E lane_;

 private:
  kernel::LoopDecl lanes(E extent, bool ragged, int count);
  E extent(E& known, std::int64_t value);
  E quotient(E number, E divisor) const;
  E batch_coordinate(const Term& t, E batch);
  E make(const Term& t, const Place& at);
  E slot(const Term& t);
  E element(const MatrixMemory& m, const Place& at);
  E narrow(TermId id, const Place& at, int depth);
  E fused(ir::Op op, E x, E y) const;
  E operation(const Term& t, const Place& at);
  std::optional<Range> range(TermId id, const TilePlace& at);

  std::map<const MatrixMemory*, std::uint32_t> buffers_;
  std::map<const MatrixMemory*, Parameters> parameters_;
  std::map<TermId, E> known_, reciprocals_;  // of the hook at hand
  std::vector<TermId> near_;                 // errors_count_as_such()
  E rows_, columns_;
};

}  // namespace kiln::lower
