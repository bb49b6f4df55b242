// Terminates: one walk; each node is made once, or twice.
#include "transform/make_again.h"

#include "ir/again.h"
#include "ir/builder.h"

#include <utility>
#include <vector>

namespace kiln::transform {
namespace {

class Maker {
 public:
  Maker(Graph& g, NodeId product, const RowValues& values)
      : g_(g), product_(product), values_(values), add_(g) {}

  MadeAgain run() {
    old_ = std::move(g_.nodes);
    g_.nodes.clear();
    now_.assign(old_.size(), kNoNode);
    again_ = now_;
    std::vector<bool> late(old_.size());
    for (NodeId id = 0; id < old_.size(); ++id) {
      GraphNode n = old_[id];
      for (const NodeId in : n.in) late[id] = late[id] || late[in] || values_.is_after(in);
      late[id] = late[id] && id != product_ && values_.is_made_of_product(id);
      for (NodeId& in : n.in) in = late[id] && !late[in] ? again(in) : now_[in];
      now_[id] = add_.push(std::move(n));
    }
    for (NodeId& root : g_.roots) root = now_[root];
    return {now_, now_[product_], again_[product_]};
  }

 private:
  /// What has the value for those who wait.
  NodeId again(NodeId id) {
    if (!values_.is_made_of_product(id)) return now_[id];
    if (again_[id] != kNoNode) return again_[id];
    GraphNode n = old_[id];
    for (NodeId& in : n.in) in = id == product_ ? now_[in] : again(in);
    n.held = false;
    again_[id] = add_.push(std::move(n));
    if (id == product_) ir::mark_again(g_[again_[id]], old_[id].attr64 + ir::kAgain);
    return again_[id];
  }

  Graph& g_;
  const NodeId product_;
  const RowValues& values_;
  ir::Builder add_;
  std::vector<GraphNode> old_;
  Renumbering now_, again_;
};

}  // namespace

MadeAgain make_again(Graph& graph, NodeId product, const RowValues& values) {
  return Maker(graph, product, values).run();
}

}  // namespace kiln::transform
