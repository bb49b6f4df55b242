#include "vmap/examples.h"

namespace kiln::mapped {

using ir::Node;
using ir::NodeRef;

Tensor Examples::one_of(const Tensor& x) {
  Node* const all = x.node();
  // A state of no loop (ir/loops.h).
  NodeRef example =
      NodeRef::adopt(ir::new_node(ir::Op::loop_state, all->dtype, all->dims().subspan(1), all->loc));
  example->device = all->device;
  replay_->put(example.get(), {NodeRef::share(all), true});
  return Tensor::adopt(example.take());
}

std::vector<Tensor> Examples::all_of(std::span<const Tensor> results) {
  unnoted_.reset();
  recording_.reset();
  std::vector<Node*> nodes;
  for (const Tensor& r : results)
    if (r.valid()) nodes.push_back(r.node());
  const std::vector<Value> values = replay_->values(nodes);
  std::vector<Tensor> out;
  for (std::size_t i = 0, at = 0; i < results.size(); ++i)
    out.push_back(results[i].valid() ? api::finish(replay_->all(values[at++])) : Tensor());
  return out;
}

}  // namespace kiln::mapped
