// PairReader: what every reader of values over pairs needs: frames, terms, and the memory that a node shows.
#pragma once

#include "ir/uses.h"
#include "plan/pair_terms.h"
#include "plan/strided.h"

#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

namespace kiln::plan {

/// What an axis of a node counts: nothing (its extent is 1), i, j, a coordinate of the batch, or several of
/// them in row-major order (random numbers are drawn along one axis, which is cut into pairs afterwards).
struct Coordinate {
  enum class Kind : std::uint8_t { None, Row, Column, Batch, Joined } kind = Kind::None;
  std::int64_t divisor = 1, extent = 1;  // Batch: number / divisor % extent
  std::vector<Coordinate> parts = {};    // Joined: outermost first
  friend bool operator==(const Coordinate&, const Coordinate&) = default;
  friend bool operator<(const Coordinate& x, const Coordinate& y) {
    return std::tie(x.kind, x.divisor, x.extent, x.parts) < std::tie(y.kind, y.divisor, y.extent, y.parts);
  }
};
using Frame = std::vector<Coordinate>;

/// The frame of a matrix for every number in the batch: of its last two axes the last counts columns, or
/// rows.
Frame frame_of(ir::Dims dims, bool columns_last);

class PairReader {
 public:
  PairReader(const Graph& g, PairTerms& terms) : g_(g), pairs_(terms) {}

  /// The frame of an operand that an elementwise node or a broadcast repeats.
  Frame operand_frame(const Frame& frame, ir::Dims dims, ir::Dims of) const;
  /// The frame of a reshape's operand, or nothing where an axis of the pairs is cut.
  std::optional<Frame> reshaped(const Frame& frame, ir::Dims from, ir::Dims to) const;
  MatrixMemory memory_of(NodeId node, const Frame& frame) const;
  /// Which operand of a product of every pair counts i: 0, or 1 where the product is transposed. Nothing: the
  /// frame does not go through the product's elements pair by pair.
  std::optional<int> rows_operand_of(NodeId product, const Frame& frame) const;

  TermId intern(const Term& t);
  TermId op(ir::Op op, std::initializer_list<TermId> in, DType dtype = DType::Float32);
  TermId number(double value);
  /// A term as Float32. A product's sums are that already: the half that they would be rounded to is not
  /// stored, so nobody can see it (docs/semantics.md, "Where halves are rounded").
  TermId f32(TermId t);
  /// A constant or a slot.
  TermId scalar_term(const ir::GraphNode& n);
  /// An iota.
  TermId coordinate_term(const ir::GraphNode& n, const Frame& frame);
  TermId counted(const Coordinate& c, DType dtype);
  TermId memory_term(MatrixMemory m);
  /// A node's operation on terms.
  TermId operation_term(const ir::GraphNode& n, const TermId* in);
  const Term& term(TermId t) const { return pairs_.terms[static_cast<std::size_t>(t)]; }

 protected:
  const Graph& g_;

 private:
  struct Separate;
  std::int64_t extent_of(const Coordinate& c) const;
  std::optional<Separate> separate(const StridedView& v, const Frame& given) const;

  PairTerms& pairs_;
};

/// By node: whether it is made of a few operations on indices and numbers alone, so that each reader makes it
/// again.
std::vector<bool> values_without_memory(const Graph& graph);

/// What both finders of pairs look up of a graph, each as often as they like.
struct PairFacts {
  explicit PairFacts(const Graph& g) : graph(g), uses(g), root(g.size()), free(values_without_memory(g)) {
    for (const NodeId r : g.roots) root[r] = true;
  }
  const Graph& graph;
  ir::Uses uses;
  std::vector<bool> root, free;  // free: made again for each reader
};

}  // namespace kiln::plan
