// PairTerms: a program over pairs (i, j) of rows of two matrices, for each matrix of a batch, as plain data.
//
// What stands between the contractions of an attention, or of its gradient, has a value for each pair; nobody
// else wants these values. A pool of Terms says what they are, so that a kernel can make them tile by tile:
// as expressions of the products of the two matrices' rows, of i and j, of numbers, of memory, and of values
// that are reduced over j.
#pragma once

#include "plan/fuse.h"

#include <cstdint>
#include <vector>

namespace kiln::plan {

using TermId = std::int32_t;
inline constexpr TermId kNoTerm = -1;

/// A value at (i, j) of one matrix of the batch, or at i where it does not depend on j.
struct Term {
  enum class Kind : std::uint8_t {
    Score,      // S at (i, j), before it is rounded to its dtype; of PairSums: product number `index`
    Max,        // the maximum of Attention::t over j
    Sum,        // the sum over j number `index`, of weights without their row's factor
    Statistic,  // PairSums::statistics[index], of row i
    Memory,     // an element of PairTerms::memory[index]
    Row,        // i
    Column,     // j
    Batch,      // the coordinate index / divisor % extent of the matrix's number in the batch
    Scalar,     // a slot of the graph
    Constant,   // bits of `dtype`
    Operation   // op(in…), as a node of the graph has it
  } kind = Kind::Operation;
  ir::Op op = ir::Op::leaf;
  DType dtype = DType::Float32;
  std::uint8_t n_in = 0;
  bool along_rows = false, along_columns = false;  // whether it depends on i, on j
  TermId in[3] = {kNoTerm, kNoTerm, kNoTerm};
  std::int32_t index = -1;               // Score, Sum, Statistic, Memory; Scalar: the slot
  std::int64_t divisor = 1, extent = 1;  // Batch
  std::uint64_t bits = 0;                // Constant; Operation: the attributes
  friend bool operator==(const Term&, const Term&) = default;
};

/// A matrix for each number b in the batch: element (r, c) lies at batch[b] + r·row + c·column. batch[b] is
/// offset + Σ (b / divisor % extent) · stride over the parts.
struct MatrixMemory {
  struct Part {
    std::int64_t divisor, extent, stride;
  };
  NodeId base = ir::kNoNode;  // a leaf, or a node that must be stored
  DType dtype = DType::Float32;
  std::int64_t row = 0, column = 0;  // strides in elements
  std::int64_t offset = 0;
  std::vector<Part> parts;
  std::vector<std::int64_t> batch;  // offsets in elements, one for each matrix of the batch
  std::vector<Alias::Position> positions;
};

/// Whether a term reads elements of both i and j, those of a row side by side: a CPU's tiles, whose columns
/// lie side by side, turn them first.
inline bool lies_across(const Term& t, const MatrixMemory& m) {
  return t.along_rows && t.along_columns && m.column == 1 && m.row != 0 && m.row != 1;
}

struct PairTerms {
  std::int64_t batch = 1, rows = 0, columns = 0;  // i counts rows, j columns
  std::vector<MatrixMemory> memory;  // what terms read: (i, j), strides of 0 where it does not depend on one
  std::vector<Term> terms;           // operands before their users
};

}  // namespace kiln::plan
