#include "record/tape.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>

namespace kiln::ir {
namespace {

struct Kept {
  std::shared_ptr<const Edge> edge;
  std::uint64_t number = 0;  // counted from 1; the leaf has it too: another node may stand in its slot later
};

/// What all open tapes share. Nobody records, evaluates or releases a node while holding the mutex.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Node*, Kept> kept;
  std::unordered_map<const Node*, int> primals;
  struct KeptCall {
    std::shared_ptr<const Call> call;
    std::uint64_t number = 0;
  };
  std::unordered_map<const Node*, KeptCall> calls;  // by result, which the call holds
  std::vector<std::uint64_t> opened;                // of the open tapes
  std::uint64_t next = 1;                           // number of the next edge

  const Kept* find(const Node* leaf) const {
    const auto found = kept.find(leaf);
    return found != kept.end() && found->second.number == leaf->imm ? &found->second : nullptr;
  }
};
Registry& registry() {
  static Registry* const r = new Registry;  // detached threads may evaluate during exit
  return *r;
}

/// Whether a node depends on a primal, given that for its operands; nothing where one of them is not known.
class Dependence {
 public:
  Dependence(const Registry& r, std::unordered_map<const Node*, bool>& known) : r_(r), known_(known) {}

  bool of(const Node* node) {
    std::vector<const Node*> stack{node};
    while (!stack.empty()) {
      const Node* const n = stack.back();
      if (known_.contains(n)) {
        stack.pop_back();
        continue;
      }
      const std::size_t depth = stack.size();
      const bool depends = at_once(n) || any_operand(n, stack);
      if (!depends && stack.size() != depth) continue;  // operands come first
      stack.resize(depth - 1);
      known_[n] = depends;
    }
    return known_[node];
  }

 private:
  bool at_once(const Node* n) const {
    return r_.primals.contains(n) || (op_now(n) == Op::leaf && r_.find(n) != nullptr);
  }

  bool any_operand(const Node* n, std::vector<const Node*>& stack) {
    if (const auto made = r_.calls.find(n); made != r_.calls.end()) {
      bool any = false;
      for (const NodeRef& in : made->second.call->in) any |= is_known(in.get(), stack);
      return any;
    }
    if (op_now(n) == Op::leaf || (n->op == Op::alias && attributes<Alias>(*n).stops)) return false;
    for (const Node* in : operands(*n))
      if (in != nullptr && is_known(in, stack)) return true;
    return false;
  }
  /// Whether an operand is known to depend on a primal; puts one that is not known on the stack.
  bool is_known(const Node* in, std::vector<const Node*>& stack) {
    const auto found = known_.find(in);
    if (found == known_.end()) stack.push_back(in);
    return found != known_.end() && found->second;
  }

  const Registry& r_;
  std::unordered_map<const Node*, bool>& known_;
};

}  // namespace

std::atomic<int> OpenTape::count_{0};

Edge edge_of(const Node& node) {
  Edge e{node.op, node.loc, node.imm, node.attr64, {node.attrs, node.attrs + node.n_attrs}, {}};
  e.in.reserve(operands(node).size());
  for (Node* in : operands(node)) e.in.push_back(NodeRef::share(in));
  return e;
}

std::shared_ptr<const Edge> kept_edge(const Node& leaf) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const Kept* const found = r.find(&leaf);
  return found ? found->edge : nullptr;
}

void keep_call(std::shared_ptr<const Call> call) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const std::uint64_t number = r.next++;
  for (const NodeRef& out : call->out) r.calls[out.get()] = {call, number};
}

std::shared_ptr<const Call> kept_call(const Node& result) {
  if (!OpenTape::any()) return nullptr;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.calls.find(&result);
  return found == r.calls.end() ? nullptr : found->second.call;
}

namespace {

/// Moves what has a lower number than `needed` from a table to `dropped`.
template <class Table, class Value>
void drop_before(Table& table, std::uint64_t needed, std::vector<Value>& dropped) {
  for (auto it = table.begin(); it != table.end();) {
    if (it->second.number >= needed) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = table.erase(it);
  }
}

}  // namespace

OpenTape::OpenTape() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  opened_ = r.next;
  r.opened.push_back(opened_);
  count_.fetch_add(1, std::memory_order_release);
}

OpenTape::~OpenTape() {
  std::vector<Kept> dropped;  // released without the mutex: a user's deleter may run
  std::vector<Registry::KeptCall> dropped_calls;
  {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    for (const NodeRef& p : primals_)
      if (const auto at = r.primals.find(p.get()); --at->second == 0) r.primals.erase(at);
    r.opened.erase(std::find(r.opened.begin(), r.opened.end(), opened_));
    const auto oldest = std::min_element(r.opened.begin(), r.opened.end());
    const std::uint64_t needed =
        oldest == r.opened.end() ? std::numeric_limits<std::uint64_t>::max() : *oldest;
    if (needed > opened_) {  // else an older tape needs all of them
      drop_before(r.kept, needed, dropped);
      drop_before(r.calls, needed, dropped_calls);
    }
    count_.fetch_sub(1, std::memory_order_release);
  }
}

void OpenTape::add_primal(NodeRef primal) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  ++r.primals[primal.get()];
  primals_.push_back(std::move(primal));
}

std::uint64_t EdgeKeeper::keep_if_needed(const Node& node) {
  if (!is_float(node.dtype)) return 0;
  auto edge = std::make_shared<const Edge>(edge_of(node));
  Kept replaced;  // of a node that is gone and stood in the same slot
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.calls.contains(&node) || !Dependence(r, depends_).of(&node)) return 0;
  Kept& kept = r.kept[&node];
  replaced = std::exchange(kept, {std::move(edge), r.next++});
  return kept.number;
}

}  // namespace kiln::ir
