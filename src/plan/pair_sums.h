// find_pair_sums: contractions of values over pairs that are made again instead of stored.
//
// The gradient of an attention needs, for each pair (i, j) of a row of q and a row of k, the weight P, its
// cotangent dP and the cotangent dS of the score; then it sums them over j or over i: dq = Σ_j dS k, dk = Σ_i
// dS q, dv = Σ_i P do. If P, dP and dS are made elementwise of products of rows (q·k, do·v), of i and j, of
// memory and of reductions over j, then a kernel can make them tile by tile, and no value of a pair is
// stored. The rule is this algebra, not the gradient's spelling: whatever functions stand between the
// products and the sums, masks, biases, soft caps or dropout among them, are read node by node as terms.
//
// A reduction over j that others need too (the maximum and the sum of a softmax, which the forward pass
// makes) is read from memory. One that nobody else needs is a statistic: it is computed for a block of rows
// before the values that are made of it, those of one level after the other. So there may be any number, and
// nothing need be linear.
//
// The forward pass may hold the same nodes, q kᵀ among them: they are `shared`, and it is the caller that
// finds out whether somebody stores them (fuse_edges.cpp).
#pragma once

#include "plan/pair_terms.h"
#include "support/why.h"

#include <cstdint>
#include <vector>

namespace kiln::plan {

struct PairSums : PairTerms {
  struct Product {
    NodeId node;
    std::int64_t depth;
    MatrixMemory x, y;  // (i, depth), (j, depth)
  };
  struct Statistic {
    NodeId node;
    ir::Op reduction;  // reduce_sum, reduce_max or reduce_min
    TermId of;         // what is reduced over j, of Float32
    int level;         // `of` reads statistics of lower levels alone
  };
  struct Sum {
    NodeId node;
    int operand;  // of the node: which one is the weights
    bool over_rows;
    int weight;  // into weights
    std::int64_t width;
    MatrixMemory other;          // (i, width) over rows, (j, width) over columns
    std::int64_t point, across;  // strides of the result's matrix, in elements: along j or i, along the width
    DType dtype;
  };
  std::vector<Product> products;
  std::vector<Statistic> statistics;
  std::vector<TermId> weights;  // of Float32
  std::vector<Sum> sums;        // ascending nodes
  int levels = 0;               // of statistics
  std::vector<NodeId> nodes;    // that it takes the place of, the sums among them, ascending
  std::vector<NodeId> shared;   // values of pairs that it makes again and others make too
};

/// Calls f with the node of each memory that the sums read.
template <class F>
void each_memory(const PairSums& s, const F& f) {
  for (const PairSums::Product& p : s.products) f(p.x.base), f(p.y.base);
  for (const PairSums::Sum& x : s.sums) f(x.other.base);
  for (const MatrixMemory& m : s.memory) f(m.base);
}

/// Why the main loop of a GPU (pair_sums_mma) cannot do sums over pairs, or nothing.
Why refuse_on_gpu(const PairSums& sums);

struct PairFacts;  // plan/pair_reader.h

/// The sums over pairs of a graph. `refusals`: near misses, and why each is one.
std::vector<PairSums> find_pair_sums(const PairFacts& facts, std::vector<Refusal>& refusals);

}  // namespace kiln::plan
