// Reading of attentions: from nodes of a graph to terms. For attention.cpp alone.
#pragma once

#include "plan/attention.h"
#include "plan/pair_reader.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kiln::plan {

/// What a node is as a value over {i, j}.
struct Reading {
  enum class Kind : std::uint8_t {
    Plain,  // `term`, free of sums and maxima; `term` depends on the scores if `scored`
    Row,    // `term`, made of sums and maxima: free of j
    Shift,  // term - shifts[0] - shifts[1] …, `term` being t
    Weight  // exp(t - shifts…)·u·factor, or u·factor where t is kNoTerm (`term` is u)
  } kind = Kind::Plain;
  TermId term = kNoTerm;
  bool scored = false;
  std::vector<TermId> shifts;
  TermId t = kNoTerm, factor = kNoTerm;
  bool rounded = false;  // Weight: to a dtype that the program asked for
};

/// Reads the nodes between two products. Which nodes are read in place, and which are memory, is decided
/// before.
class TermReader : public PairReader {
 public:
  TermReader(const Graph& g, Attention& a, const std::vector<bool>& inside, const std::vector<bool>& depends)
      : PairReader(g, a), a_(a), inside_(inside), depends_(depends), visited_(g.size()) {}

  /// The weights that multiply v, or nothing and a reason.
  std::optional<Reading> weights(NodeId node, const Frame& frame);
  /// How a node was read, if it was read as a row's value: with its frame.
  const std::pair<const std::pair<NodeId, Frame>, Reading>* row_value_of(NodeId node) const;
  /// The factor that a weight's running sum is multiplied by: its own, and what its shifts differ from t's
  /// maximum by.
  TermId scale_of(const Reading& weight);

  const Why& reason() const { return reason_; }
  const std::vector<bool>& visited() const { return visited_; }
  /// Which operand of the first product counts i: 0, or 1 where S is transposed.
  int rows_operand() const { return rows_operand_; }
  /// Attention::masks.
  void find_masks();

 private:
  using Result = std::optional<Reading>;
  Result refuse(Why why) {
    if (reason_.empty()) reason_ = std::move(why);
    return std::nullopt;
  }
  Result read(NodeId id, const Frame& frame);
  Result read_new(NodeId id, const Frame& frame);
  Result score(NodeId id, const Frame& frame);
  Result memory(NodeId id, const Frame& frame);
  Result view(NodeId id, const Frame& frame);
  Result reduction(NodeId id, const Frame& frame);
  Result operation(NodeId id, const Frame& frame);
  Result shifted(const ir::GraphNode& n, const Reading& x, const Reading& y);
  Result weighted(const ir::GraphNode& n, std::vector<Reading>& in);
  Result cast(const ir::GraphNode& n, Reading x);
  Result log_of_sum(const ir::GraphNode& n, const Reading& x);
  bool use_as_t(TermId t);
  Reading as_weight(Reading x) const;

  Reading plain(TermId term, bool scored = false) const {
    Reading r;
    r.term = term;
    r.scored = scored;
    return r;
  }
  Reading row_value(TermId term) const {
    Reading r;
    r.kind = Reading::Kind::Row;
    r.term = term;
    return r;
  }

 public:
  TermId product(TermId x, TermId y) {  // of Float32; kNoTerm is 1
    if (x == kNoTerm) return y;
    return y == kNoTerm ? x : op(ir::Op::multiply, {x, y});
  }

 private:
  Attention& a_;
  const std::vector<bool>& inside_;   // nodes that are read in place
  const std::vector<bool>& depends_;  // nodes made of the scores
  std::vector<bool> visited_;
  std::map<std::pair<NodeId, Frame>, Reading> known_;
  Why reason_;
  int rows_operand_ = -1;
  bool weighed_ = false;  // there are exponentials of shifted scores
  bool exponential_sums_ = false, plain_sums_ = false;
};

}  // namespace kiln::plan
