// From nodes of a graph to the terms of PairSums, one node at a time. For pair_sums.cpp alone.
//
// Invariant: a term has the node's value at every pair of every matrix of the batch, or there is none.
// Terminates: each node is read once for each frame, and an operand stands before its reader.
#pragma once

#include "plan/pair_reader.h"
#include "plan/pair_sums.h"

#include <map>
#include <utility>

namespace kiln::plan {

class PairSumsReader : public PairReader {
 public:
  /// What is known of each node before it is read.
  struct Facts {
    std::vector<bool> sources;  // products of every pair
    std::vector<bool> depends;  // made of them
    std::vector<bool> pairs;    // made of them with no other product in between: of values of pairs
    std::vector<NodeId>
        between;               // what weights are made of, up to products and memory: of these alone is known
    std::vector<bool> needed;  // whether they are stored or made by others in any case
    std::vector<bool> inside;  // made of no source, and read by values of pairs alone: made again
  };
  PairSumsReader(const Graph& g, PairSums& sums, const Facts& facts)
      : PairReader(g, sums), s_(sums), facts_(facts), visited_(g.size()) {}

  /// Adds a sum whose operand `operand` is the weights. False: there is a reason. `turned`: where either axis
  /// of the weights may count rows, the second one is tried first.
  bool add(NodeId product, int operand, bool turned = false);
  /// Whether reductions that others need too have values of columns, none of them values of rows: then rows
  /// and columns are the wrong way round.
  bool wrong_way() const { return of_columns_ && !of_rows_; }
  /// Nodes that were read in place, views among them.
  const std::vector<bool>& visited() const { return visited_; }
  const Why& reason() const { return reason_; }

 private:
  TermId refuse(Why why) {
    if (reason_.empty()) reason_ = std::move(why);
    return kNoTerm;
  }
  TermId read(NodeId id, const Frame& frame);
  TermId read_new(NodeId id, const Frame& frame);
  TermId product_of_pairs(NodeId id, const Frame& frame);
  TermId from_memory(NodeId id, const Frame& frame);
  TermId view(NodeId id, const Frame& frame);
  TermId reduction(NodeId id, const Frame& frame);
  TermId elementwise(NodeId id, const Frame& frame);
  int level_of(TermId t) const;

  PairSums& s_;
  const Facts& facts_;
  std::vector<bool> visited_;
  std::map<std::pair<NodeId, Frame>, TermId> known_;
  std::map<NodeId, int> rows_operand_;  // of each product
  bool of_rows_ = false, of_columns_ = false;
  Why reason_;
};

}  // namespace kiln::plan
