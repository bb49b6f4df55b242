// Indices out of range inside loops, for KILN_CHECK=bounds.
//
// A loop's body runs for all elements of its states, also for those that its condition leaves out, and for
// the branch of a cond that is not wanted. What such an element reads is no error of the program. So where a
// value is made for loops alone, an index out of range is noted for the elements that are made of it, and
// becomes an error when a loop takes one of them.
#pragma once

#include "ir/loops.h"
#include "oracle/interpret_value.h"

#include <map>
#include <string>
#include <vector>

namespace kiln::ir::oracle {

class Faults {
 public:
  Faults(const Graph& graph, const Loops& loops);

  /// Whether a node's value is read by the bodies of loops only: its faults are collected. Others are errors
  /// at once.
  bool collects(NodeId id) const { return collects_[id]; }

  /// Forgets a node's faults, before it is computed anew.
  void begin(NodeId id) { of_[id] = {}; }
  /// An element, or all of them (kEvery), of a node that collects is made of an index out of range.
  static constexpr std::int64_t kEvery = -1;
  void add(NodeId id, std::int64_t element, const std::string& error);
  /// Adds what the operands of a node that collects bring along. `values`: of all nodes, computed.
  void spread(NodeId id, const std::vector<Value>& values);

  /// The states take their first values.
  void enter(const LoopParts& loop);
  /// The condition was computed. Throws UserError, like take(), where the loop itself is wanted.
  void decide(const LoopParts& loop);
  /// The states take their next values where `goes_on` says so, and what is yielded is kept.
  void take(const LoopParts& loop, const Value& goes_on, std::int64_t iteration);

 private:
  void spread_operands(NodeId id, const std::vector<Value>& values);
  static bool any(const Value& v) { return v.data != nullptr; }
  Value none_of(NodeId id) const { return new_value(DType::Int32, g_[id].dims); }
  Value faults_or_none(NodeId id) const { return any(of_[id]) ? of_[id] : none_of(id); }
  Value every(NodeId id, std::int32_t error) const;
  void merge(Value& into, const Value& more) const;
  void fail_of(const Value& faults, const Value* where = nullptr) const;

  const Graph& g_;
  const Loops& loops_;
  std::vector<bool> collects_;
  // per node: per element the number of its error from 1, else at most 0; without memory: no fault
  std::vector<Value> of_;
  std::map<NodeId, std::vector<Value>> stacks_;  // of each loop
  std::map<std::string, std::int32_t> numbers_;
  std::vector<std::string> errors_;
};

}  // namespace kiln::ir::oracle
