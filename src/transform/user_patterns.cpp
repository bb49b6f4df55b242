// Terminates: one walk over the nodes that were there; each adds at most two.
//
// A match goes down from its result. It is legal where no value inside it has another reader, since that
// value would have to be computed in any case.
#include "transform/user_patterns.h"

#include "ir/builder.h"
#include "ir/custom.h"
#include "ir/loops.h"
#include "support/call_scope.h"
#include "support/check.h"
#include "transform/rebuild.h"

#include <kiln/config.h>
#include <kiln/error.h>
#include <kiln/fusion_pattern.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace kiln::fusion {

struct Term::Node {
  enum class Kind : std::uint8_t { Any, Number, Operation } kind = Kind::Any;
  std::string name;  // of a value: for the legality test
  std::string operation;
  std::vector<Term> operands;
};

Term any(std::string name) {
  Term t;
  t.node_ = std::make_shared<const Term::Node>(Term::Node{Term::Node::Kind::Any, std::move(name), {}, {}});
  return t;
}
Term number(std::string name) {
  Term t;
  t.node_ = std::make_shared<const Term::Node>(Term::Node{Term::Node::Kind::Number, std::move(name), {}, {}});
  return t;
}
Term operation(std::string name, std::string as, std::vector<Term> operands) {
  Term t;
  t.node_ = std::make_shared<const Term::Node>(
      Term::Node{Term::Node::Kind::Operation, std::move(as), std::move(name), std::move(operands)});
  return t;
}

const Value& Match::operator[](std::string_view name) const {
  for (const auto& [key, value] : values_)
    if (key == name) return value;
  throw UserError(cat("[fusion] a pattern has no value called ", name));
}

struct MatchAccess {
  static void add(Match& m, std::string name, Value value) {
    m.values_.emplace_back(std::move(name), std::move(value));
  }
  static void set_result(Match& m, Value value) { m.result_ = std::move(value); }
};

}  // namespace kiln::fusion

namespace kiln::transform {
namespace {

using fusion::Pattern;
using fusion::Term;
using ir::Graph;
using ir::GraphNode;
using ir::NodeId;
using ir::Op;

/// Patterns in force. Evaluations take the list as it is: a scope that ends does not wait for them.
struct InForce {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<const Pattern>>> all;
  std::uint64_t next = 1;
  std::atomic<std::uint64_t> salt{0};  // of the list
};
InForce& in_force() {
  static InForce* const instance = new InForce;
  return *instance;
}
void set_salt(InForce& f) {
  std::uint64_t salt = 0;
  for (const auto& [number, pattern] : f.all) salt = (salt + number) * 0x9e3779b97f4a7c15u;
  f.salt.store(salt, std::memory_order_release);
}

std::vector<std::shared_ptr<const Pattern>> patterns_now() {
  InForce& f = in_force();
  const std::lock_guard lock(f.mutex);
  std::vector<std::shared_ptr<const Pattern>> out;
  for (auto i = f.all.rbegin(); i != f.all.rend(); ++i) out.push_back(i->second);
  return out;
}

fusion::Value value_of(const Graph& g, NodeId id) {
  const GraphNode& n = g[id];
  fusion::Value v{std::string(ir::name_of(n)), n.dtype, Shape(n.dims), {}, n.loc};
  if (ir::is_reduce(n.op)) {
    const auto over = ir::attributes<ir::Reduce>(n);
    for (std::size_t a = 0; a < g[n.in[0]].dims.size(); ++a)
      if (over.over(a)) v.axes.push_back(static_cast<std::int64_t>(a));
  } else if (ir::is_scan(n.op)) {
    v.axes.push_back(static_cast<std::int64_t>(ir::attributes<ir::Scan>(n).axis));
  }
  return v;
}

/// Where a term stands in a graph.
class Matching {
 public:
  explicit Matching(const Graph& g) : g_(g) {}

  bool match(const Term& term, NodeId id) { return visit(*term.node(), id); }
  /// Values by name; operations of the pattern but its result.
  const std::map<std::string, NodeId>& named() const { return named_; }
  const std::vector<NodeId>& inner() const { return inner_; }

 private:
  using Node = Term::Node;

  bool visit(const Node& t, NodeId id) {
    const GraphNode& n = g_[id];
    if (!t.name.empty()) {
      const auto [at, added] = named_.emplace(t.name, id);
      if (!added && at->second != id) return false;
    }
    switch (t.kind) {
      case Node::Kind::Any: return true;
      case Node::Kind::Number: return n.op == Op::scalar;
      case Node::Kind::Operation: break;
    }
    if (ir::name_of(n) != t.operation) return operation_through_part(t, id);
    inner_.push_back(id);
    if (n.in.size() != t.operands.size()) return false;
    const auto saved = std::pair(named_, inner_);
    if (operands(t, n, false)) return true;
    if (n.in.size() != 2 || !commutes(n)) return false;
    std::tie(named_, inner_) = saved;
    return operands(t, n, true);
  }

  /// The result of a custom kernel stands for the kernel.
  bool operation_through_part(const Node& t, NodeId id) {
    const GraphNode& n = g_[id];
    if (n.op != Op::part || g_[n.in[0]].op != Op::custom || ir::attributes<ir::Part>(n).index != 0)
      return false;
    if (ir::name_of(g_[n.in[0]]) != t.operation) return false;
    inner_.push_back(id);
    Node unnamed = t;
    unnamed.name.clear();
    return visit(unnamed, n.in[0]);
  }

  bool operands(const Node& t, const GraphNode& n, bool swapped) {
    for (std::size_t k = 0; k < t.operands.size(); ++k)
      if (!visit(*t.operands[swapped ? 1 - k : k].node(), n.in[k])) return false;
    return true;
  }

  static bool commutes(const GraphNode& n) {
    return ir::has(n.op, ir::COMMUTES) || (ir::has(n.op, ir::COMMUTES_INT) && !is_float(n.dtype)) ||
           n.op == Op::maximum || n.op == Op::minimum;
  }

  const Graph& g_;
  std::map<std::string, NodeId> named_;
  std::vector<NodeId> inner_;
};

class Applier {
 public:
  Applier(Graph& g, const PatternTarget& target, std::vector<PatternNote>& notes)
      : g_(g), target_(target), notes_(notes), add_(g), readers_(g.size()) {
    for (const GraphNode& n : g.nodes)
      for (const NodeId in : n.in) ++readers_[in];
    for (const NodeId root : g.roots) ++readers_[root];
  }

  Renumbering run() {
    const ir::Loops loops = ir::find_loops(g_);
    const std::vector<std::shared_ptr<const Pattern>> patterns = patterns_now();
    const auto count = static_cast<NodeId>(g_.size());
    taken_.assign(count, false);
    by_.assign(count, ir::kNoNode);
    // From the results down: of two matches, one inside the other, the greater one stands.
    for (NodeId id = count; id-- > 0;) {
      if (loops.owner_of(id) != ir::kNoNode || taken_[id] || ir::has(g_[id].op, ir::BUNDLE)) continue;
      for (const auto& pattern : patterns)
        if (apply(*pattern, id)) break;
    }
    return rebuilt();
  }

 private:
  struct Call {
    std::uint32_t kernel;
    std::vector<NodeId> operands;
    std::vector<std::int64_t> words;
  };

  bool apply(const Pattern& p, NodeId id) {
    Matching m(g_);
    if (!m.match(p.match, id)) return false;
    NodeId first = id;
    for (const NodeId inner : m.inner()) first = std::min(first, inner);
    const auto refuse = [&](Why why) {
      notes_.push_back({first, id, std::move(why)});
      return false;
    };
    if (switched_off(p)) return refuse(because(FusionReason::UserOff, p.name));
    fusion::Match match;
    for (const auto& [name, node] : m.named()) fusion::MatchAccess::add(match, name, value_of(g_, node));
    fusion::MatchAccess::set_result(match, value_of(g_, id));
    if (p.legal)
      if (const std::string why = p.legal(match); !why.empty())
        return refuse(because(FusionReason::UserCondition, p.name, why));
    if (!p.kernel) {
      if (p.hint == fusion::Hint::None) return false;
      if (ir::is_view(g_[id].op))
        return refuse(
            because(FusionReason::UserCondition, p.name, "a view has no memory of its own to be stored in"));
      notes_.push_back({first, id, because(FusionReason::UserApart, p.name)});
      return true;
    }
    for (const NodeId inner : m.inner())
      if (inner != id && !read_inside(inner, m.inner()))
        return refuse(because(FusionReason::UserShared, p.name, ir::name_of(g_[inner])));
    Call call;
    if (const std::string why = kernel_for(p, match, m, id, call); !why.empty())
      return refuse(because(FusionReason::UserCondition, p.name, why));
    for (const NodeId inner : m.inner()) taken_[inner] = true;
    by_[id] = static_cast<NodeId>(calls_.size());
    calls_.push_back(std::move(call));
    return true;
  }

  bool switched_off(const Pattern& p) const {
    const Config& c = config();
    if (!c.fuse) return true;
    const std::string kind = target_.device.str().substr(0, target_.device.str().find(':'));
    return std::ranges::any_of(c.fuse_off, [&](const std::string& word) {
      return word == "user." + p.name || word == kind + ":user." + p.name;
    });
  }

  /// Whether all readers of an inner value are operations of the match.
  bool read_inside(NodeId id, const std::vector<NodeId>& inner) const {
    std::size_t reads = 0;
    for (const NodeId reader : inner)
      reads += static_cast<std::size_t>(std::count(g_[reader].in.begin(), g_[reader].in.end(), id));
    return reads == readers_[id];
  }

  /// Why the kernel cannot compute the match; empty: `call` does.
  std::string kernel_for(const Pattern& p, const fusion::Match& match, const Matching& m, NodeId id,
                         Call& call) {
    const CustomKernelOptions& options = CustomKernelAccess::options(*p.kernel);
    if (target_.strict) return "the strict mode gives the bits of the operations";
    if (target_.exact && !options.same_bits) return "the deterministic mode needs a kernel with same_bits";
    if (target_.device.kind == Device::Kind::Cpu && !options.cpu)
      return "its kernel has no function for the CPU";
    if (target_.device.kind == Device::Kind::Cuda && options.cuda.source.empty())
      return "its kernel has no CUDA C";
    KernelTypes in;
    for (const std::string& name : p.operands) {
      const NodeId operand = m.named().at(name);
      call.operands.push_back(operand);
      in.push_back({Shape(g_[operand].dims), g_[operand].dtype});
    }
    const std::vector<std::int64_t> numbers = p.numbers ? p.numbers(match) : std::vector<std::int64_t>{};
    KernelTypes out;
    try {
      out = options.results(in, numbers);
    } catch (const UserError& e) {
      return std::string(e.message());
    }
    const GraphNode& n = g_[id];
    if (out.size() != 1) return cat("its kernel has ", out.size(), " results");
    if (out[0].dtype != n.dtype || !std::ranges::equal(out[0].shape, n.dims))
      return cat("its kernel gives ", name(out[0].dtype), " ", out[0].shape.str(), ", the operations ",
                 name(n.dtype), " ", to_string(n.dims));
    call.kernel = CustomKernelAccess::number(*p.kernel);
    call.words = ir::custom_words(numbers, {});
    return {};
  }

  /// The graph with calls in the place of results.
  Renumbering rebuilt() {
    if (calls_.empty()) return Replacement(g_).finish();
    const Renumbering now = rebuild(g_, [&](NodeId id, GraphNode n) { return place(id, std::move(n)); });
    for (PatternNote& note : notes_) {
      note.first = now[note.first];
      note.last = now[note.last];
    }
    return now;
  }

  NodeId place(NodeId id, GraphNode n) {
    moved_.push_back(ir::kNoNode);
    NodeId to;
    if (by_[id] == ir::kNoNode) {
      to = add_.push(std::move(n));
    } else {
      const Call& call = calls_[by_[id]];
      ir::Operands in;
      std::vector<NodeId> operands;
      for (const NodeId operand : call.operands) operands.push_back(moved_[operand]);
      add_.loc = n.loc;
      const NodeId bundle =
          add_.add(Op::custom, ir::Operands(operands), ir::Custom{call.kernel, 1, call.words},
                   {.dtype = n.dtype, .dims = n.dims});
      to = add_.add(Op::part, {bundle}, ir::Part{0}, {.dtype = n.dtype, .dims = n.dims});
      g_[to].held = n.held;
    }
    moved_.back() = to;
    return to;
  }

  Graph& g_;
  const PatternTarget target_;
  std::vector<PatternNote>& notes_;
  ir::Builder add_;
  std::vector<std::size_t> readers_;
  std::vector<bool> taken_;  // computed by a call, or inside one
  std::vector<NodeId> by_;   // the call that computes a node, or kNoNode
  std::vector<Call> calls_;
  std::vector<NodeId> moved_;  // where a node is in the new graph
};

}  // namespace

bool any_patterns() { return in_force().salt.load(std::memory_order_acquire) != 0; }
std::uint64_t patterns_salt() { return in_force().salt.load(std::memory_order_acquire); }

Renumbering apply_patterns(Graph& graph, const PatternTarget& target, std::vector<PatternNote>& notes) {
  return Applier(graph, target, notes).run();
}

}  // namespace kiln::transform

namespace kiln::fusion {
namespace {

bool is_operation(std::string_view name) {
  for (int op = 0; op < ir::kOpCount; ++op)
    if (ir::kOpInfo[op].name == name) return true;
  return ir::is_custom_name(name);
}

/// UserError where a term is empty; collects the names in it.
void check(const std::string& what, const Term& term, std::vector<std::string>& names) {
  const Term::Node* const t = term.node();
  if (t == nullptr) throw UserError(what + " has an empty term");
  if (!t->name.empty()) names.push_back(t->name);
  if (t->kind != Term::Node::Kind::Operation && t->name.empty())
    throw UserError(what + " has a value without a name");
  if (t->kind == Term::Node::Kind::Operation && !is_operation(t->operation))
    throw UserError(
        cat(what, " matches ", t->operation, ", which is no operation and no kernel that was made"));
  for (const Term& operand : t->operands) check(what, operand, names);
}

}  // namespace

ScopedPattern::ScopedPattern(Pattern pattern, SourceLocation loc) {
  const CallScope scope("ScopedPattern", loc);
  const std::string what = cat("[ScopedPattern] ", pattern.name.empty() ? "a pattern" : pattern.name);
  if (pattern.name.empty()) throw UserError(what + " has no name");
  std::vector<std::string> names;
  check(what, pattern.match, names);
  if (pattern.match.node()->kind != Term::Node::Kind::Operation)
    throw UserError(what + " matches no operation");
  if (pattern.kernel && pattern.hint != Hint::None) throw UserError(what + " has both a kernel and a hint");
  if (!pattern.kernel && !pattern.operands.empty()) throw UserError(what + " has operands and no kernel");
  for (const std::string& operand : pattern.operands)
    if (std::ranges::find(names, operand) == names.end())
      throw UserError(cat(what, " has an operand ", operand, " that its match does not name"));
  transform::InForce& f = transform::in_force();
  const std::lock_guard lock(f.mutex);
  for (const auto& [number, other] : f.all)
    if (other->name == pattern.name) throw UserError(what + " is in force already: names differ");
  number_ = f.next++;
  f.all.emplace_back(number_, std::make_shared<const Pattern>(std::move(pattern)));
  transform::set_salt(f);
}

ScopedPattern::~ScopedPattern() {
  transform::InForce& f = transform::in_force();
  const std::lock_guard lock(f.mutex);
  std::erase_if(f.all, [&](const auto& entry) { return entry.first == number_; });
  transform::set_salt(f);
}

}  // namespace kiln::fusion
