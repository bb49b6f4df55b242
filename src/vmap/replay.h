// Replay: a recorded function of one example, recorded once more for all of them. Nodes of one example are
// put in the place of others that show all examples; what depends on them is recorded again by the rules of
// rules.h, everything else is shared.
#pragma once

#include "vmap/rules.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace kiln::mapped {

class Replay : public std::enable_shared_from_this<Replay> {
 public:
  /// Of `count` examples. What is not known here is looked up in `outer`, if there is one.
  explicit Replay(std::int64_t count, std::shared_ptr<const Replay> outer = nullptr)
      : count_(count), outer_(std::move(outer)) {}

  std::int64_t count() const { return count_; }
  /// From here on `v` stands for the node of one example.
  void put(ir::Node* example, Value v);
  /// What stands for a node; null: nothing yet.
  const Value* find(const ir::Node* example) const;
  /// The same; the node itself where nothing stands for it. Of a null node: an immediate.
  Value value(ir::Node* example) const;
  /// What these results of one example are for all.
  std::vector<Value> values(std::span<ir::Node* const> results);
  /// With the axis of the examples, though it be the same for all of them.
  ir::NodeRef all(const Value& v) const { return v.mapped ? v.node : repeated(v.node.get(), count_); }

 private:
  std::int64_t count_;
  std::shared_ptr<const Replay> outer_;
  std::unordered_map<const ir::Node*, Value> values_;
  std::vector<ir::NodeRef> held_;  // the keys of values_
};

}  // namespace kiln::mapped
