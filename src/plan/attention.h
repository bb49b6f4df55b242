// find_attentions: two products with a function of the scores between them that can be computed tile by tile.
//
// The scores are S = q kᵀ, the result is O = P v, and P is made of S by a program in plain operations. The
// rule is algebra over {i, j} (rows of q, rows of k), not a match of one spelling. Let t be an elementwise
// function of the scores, of i and j, of numbers and of memory, and m its maximum over j. If t and m meet
// only as exp(t - m), whatever else is subtracted for a row, and P and all sums over j are linear in
// exp(t - m)·u with u free of m, then tiles of j can be combined: two partial results with maxima m1 and m2
// are scaled by exp(m1 - M) and exp(m2 - M), M being the greater maximum, and added. So no value of the whole
// space {i, j} need be stored. Softmax by its definition, by exp, max and sum, and by a logarithm of a sum of
// exponentials all fit; so do masks, biases, soft caps, dropout and exponentials without a maximum.
//
// An Attention is plain data for those who make kernels of it: a pool of Terms, which are expressions of a
// tile's elements and of a row's running values, and where the operands lie.
//
// The finder must not decide how a device computes a tile, and it never looks at the values of scalars.
#pragma once

#include "plan/pair_terms.h"
#include "schedule/target.h"

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::plan {

struct Attention : PairTerms {
  NodeId scores, product;             // the two products
  std::vector<NodeId> nodes;          // compute nodes that it takes the place of, ascending
  std::int64_t depth = 0, width = 0;  // S is rows × columns, O rows × width
  MatrixMemory q, k, v;               // (i, depth), (j, depth), (j, width)
  MatrixMemory result;                // of O; without a base: the product's own, in row-major order
  /// What exponentials are taken of; kNoTerm: there are none, and weights are functions of the scores.
  TermId t = kNoTerm;
  ir::Op exponential = ir::Op::exp;  // or exp2
  /// Terms where(c, x, y) of t, c free of scores and memory and y free of scores: masks. In a tile where all
  /// of them choose x, t is what it is without them.
  std::vector<TermId> masks;
  TermId weight = kNoTerm;   // the factor u of the weights that multiply v; kNoTerm: 1
  std::vector<TermId> sums;  // the factor u of each running sum; kNoTerm: 1
  TermId factor = kNoTerm;   // of a row: what the sum of weights times v is multiplied by; kNoTerm: 1
  struct RowOutput {
    NodeId node;
    TermId value;
    MatrixMemory to;  // where its elements lie: `row` along i
  };
  std::vector<RowOutput> row_outputs;  // values of rows that somebody else reads
};

/// Calls f with the node of each memory that an attention reads.
template <class F>
void each_memory(const Attention& a, const F& f) {
  for (const MatrixMemory* m : {&a.q, &a.k, &a.v}) f(m->base);
  for (const MatrixMemory& m : a.memory) f(m.base);
}

/// Why the main loop of a GPU (attention_mma) cannot do an attention, or nothing.
Why refuse_on_gpu(const Graph& graph, const Attention& a);
/// Rows of an attention that a block of a warp or two takes, and how wide heads of float32 are then at most:
/// a multiprocessor has room for five such blocks.
inline constexpr std::int64_t kFewPairRows = 32, kFewRowsWidth = 128;
/// Of float32: whether its rows are so few.
bool has_few_rows(const Attention& a);
/// Whether the main loop of a GPU is there but takes longer than products and a softmax.
bool is_faster_apart(const Attention& a, const schedule::Target& target);
/// A CPU's main loop packs keys and values, which pays with 100 rows and more; beyond this many, scores apart
/// miss the second cache. Tests set it to 0.
inline std::atomic<std::int64_t> few_attention_rows{48};
/// Why a CPU's main loop is not wanted for an attention, or nothing.
Why refuse_on_cpu(const Attention& a);

struct PairSums;   // plan/pair_sums.h
struct PairFacts;  // plan/pair_reader.h

/// The attentions of a graph, in the order of their results. `refusals`: near misses, and why each is one.
/// `again`: what makes values of pairs again for itself, and so leaves them to an attention.
std::vector<Attention> find_attentions(const PairFacts& facts, std::span<const PairSums> again,
                                       std::vector<Refusal>& refusals);

}  // namespace kiln::plan
