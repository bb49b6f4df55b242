// One evaluation: walk under the trace lock, find or make the plan, run it unlocked, publish results under
// the lock.
//
// A thread that needs a node which another evaluation is about to store waits for it (claims.h). Two threads
// may still both compute a node that is not stored; the first to publish wins. Inputs dropped by publishing
// are released after the lock: freeing memory may run a user's deleter.
#include "engine/evaluate.h"

#include "cache/background.h"
#include "device/cpu/pool.h"
#include "engine/claims.h"
#include "engine/device_memory.h"
#include "engine/growth.h"
#include "engine/kept_trace.h"
#include "engine/long_trace.h"
#include "engine/plan.h"
#include "engine/plan_salt.h"
#include "engine/trial.h"
#include "engine/values.h"
#include "engine/walk.h"
#include "engine/workspace.h"
#include "inspect/check_values.h"
#include "inspect/compile_budget.h"
#include "inspect/explain.h"
#include "inspect/kernel_difference.h"
#include "inspect/plan_difference.h"
#include "inspect/statistics.h"
#include "inspect/timeline.h"
#include "ir/loops.h"
#include "oracle/interpret.h"
#include "record/learned_lines.h"
#include "record/tape.h"
#include "support/call_scope.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>
#include <kiln/report.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace kiln::engine {
namespace {

/// What is evaluated: roots that were asked for, those and values that joined them, or a block of a long
/// recording.
enum class Request { Whole, Joined, Block };

using engine::Counter;
using engine::Plan;
using engine::Walk;

/// Who asks for an evaluation, and for what.
struct Asked {
  Request request;
  std::span<ir::Node* const> roots;  // that were asked for, without those that joined
  const CallScope* call;             // the public call that needs the values; null: none has a name
};

/// Walks from the roots that are not leaves yet. False when there are none.
bool walk_roots(std::span<ir::Node* const> roots, Device device, ir::TraceGuard& guard, Workspace& w) {
  for (;;) {
    bool covered = true;
    w.roots.clear();
    for (ir::Node* r : roots) {
      covered &= guard.covers(r->home);
      if (covered && r->op != ir::Op::leaf) w.roots.push_back(r);
    }
    if (covered && w.roots.empty()) return false;
    using engine::Walked;
    const Walked walked = covered ? engine::walk_trace(w.roots, guard, plan_salt(device),
                                                       !w.nested && Claims::may_wait(), w.walk)
                                  : Walked::Foreign;
    if (walked == Walked::Done) return true;
    // Memory that no thread of this process is about to give back: its thread stayed behind in a fork, or has
    // failed.
    if (walked == Walked::Claimed && (w.walk.lost || !Claims::may_wait()))
      throw DeviceError(
          "[evaluation] an evaluation that did not end had begun to overwrite a value that this one needs");
    if (walked == Walked::Claimed)
      Claims::wait(guard);
    else
      guard.widen();
  }
}

/// The leaves' memory, on `device`: a value that was made of no argument may have been computed elsewhere.
void take_arguments(Workspace& w, Device device, device::Device& here) {
  w.args.clear();
  for (std::uint32_t i : w.walk.leaves) {
    const ir::Node* n = w.walk.nodes[i];
    if (n->buffer->device == device) [[likely]] {
      ir::retain(n->buffer);
      w.arg_buffers.push_back(n->buffer);
      if (!here.is_host()) here.use(*n->buffer);
    } else {
      w.arg_buffers.push_back(engine::copied_to(*n->buffer, device));
    }
    w.args.push_back(w.arg_buffers.back()->data + n->offset * size_of(n->dtype));
  }
}

/// Claims what will be published and keeps it alive until then: its last handle may go away meanwhile.
/// Without a plan that is not known yet: roots and held nodes are claimed, and all nodes kept. Which nodes
/// are held is to be asked before.
void keep_results(const Plan* plan, Claims& claims, Workspace& w) {
  auto keep = [&](ir::Node* n) {
    ir::retain(n);
    w.keep.push_back(n);
  };
  if (plan) {
    for (const Plan::Result& r : plan->results) {
      if (!r.root) keep(w.walk.nodes[r.position]);
      claims.add(w.walk.nodes[r.position]);
    }
  } else {
    for (std::uint32_t i = 0; i < w.walk.nodes.size(); ++i) {
      ir::Node* const n = w.walk.nodes[i];
      if (n->op == ir::Op::leaf) continue;
      if (w.walk.held(i)) claims.add(n);
      keep(n);
    }
  }
}

/// Notes on held nodes that stay pending that they have been computed once. The caller holds the guard.
void mark_passed(const Plan& plan, Workspace& w) {
  for (std::uint32_t i : plan.left_pending)
    if (ir::Node* const n = w.walk.nodes[i]; n->op != ir::Op::leaf) n->pass();
}

/// Hands the reference to a buffer over to the node.
void publish_one(ir::Node* node, ir::Buffer*& buffer, std::int64_t offset, const std::int64_t* strides,
                 Workspace& w, ir::EdgeKeeper& edges) {
  if (node->op == ir::Op::leaf) return;  // another evaluation was first
  ir::become_leaf(node, std::exchange(buffer, nullptr), offset, strides, w.dropped, edges.keep(*node));
}

/// Notes on the values that learned lines stored that nobody has read them yet. Where the view that a handle
/// keeps is a leaf of its own, readers meet that one.
void mark_unread(Workspace& w) {
  for (const Walk::StoredFor& s : w.walk.stored_for) {
    ir::Node* const held = w.walk.nodes[s.held];
    ir::Node* const n = held->op == ir::Op::leaf ? held : w.walk.nodes[s.stored];
    if (n->op == ir::Op::leaf) ir::note_unread(n);
  }
}

void publish(const Plan& plan, Workspace& w) {
  ir::EdgeKeeper edges;
  for (std::size_t i = 0; i < plan.results.size(); ++i) {
    const Plan::Result& r = plan.results[i];
    ir::Node* node = w.walk.nodes[r.position];
    if (node->op == ir::Op::leaf) continue;
    const std::int64_t* strides = r.strides.empty() ? nullptr : r.strides.data();
    const std::int64_t moved = r.moved == 0 ? 0 : plan.moved(r.moved, w.walk.slots) / size_of(node->dtype);
    if (r.place.kind == engine::Place::Kind::Arg) {
      ir::Buffer* buffer = w.arg_buffers[r.place.index];
      const auto byte_base = w.args[r.place.index] - buffer->data;
      ir::retain(buffer);
      publish_one(node, buffer, byte_base / size_of(node->dtype) + r.offset + moved, strides, w, edges);
    } else {
      publish_one(node, w.results[i], r.offset + moved, strides, w, edges);
    }
  }
  mark_unread(w);
}

/// A message that names the failing trace's first root and the line which recorded it.
std::string at_line(const ir::Node* n) {
  return cat(" (", ir::info(ir::op_now(n)).name, " ", describe(n), ", recorded at ", n->loc.file_name(), ":",
             n->loc.line(), ")");
}

std::string at_line(const Workspace& w) { return at_line(w.roots.front()); }

device::Device& device_of(Device device, const ir::Node* root) try {
  return device::at(device);
} catch (const DeviceError& e) {  // there is none
  throw DeviceError(e.what() + at_line(root));
}

void log_evaluation(const Workspace& w, std::string_view how) {
  if (log_enabled(Topic::Trace))
    log(Topic::Trace,
        cat("evaluation of ", w.walk.nodes.size() - w.walk.leaves.size(), " operations, ", how, at_line(w)));
}

/// The interpreter has every value in memory: those that handles keep are published with the roots. Returns
/// their walk positions, which follow the roots' in the graph's list.
std::vector<std::uint32_t> add_held_roots(ir::Graph& graph, const std::vector<ir::NodeId>& ids,
                                          const Walk& walk) {
  const ir::Loops loops = ir::find_loops(graph);
  std::vector<std::uint32_t> added;
  graph.roots.resize(walk.roots.size());
  for (std::uint32_t i = 0; i < walk.nodes.size(); ++i) {
    const ir::GraphNode& n = graph[ids[i]];
    const ir::OpKind kind = ir::info(n.op).kind;
    if (n.op == ir::Op::leaf || kind == ir::OpKind::Scalar || !ir::has_value(n.op)) continue;
    if (!walk.held(i) || loops.owner_of(ids[i]) != ir::kNoNode) continue;
    if (std::find(walk.roots.begin(), walk.roots.end(), i) != walk.roots.end()) continue;
    graph.roots.push_back(ids[i]);
    added.push_back(i);
  }
  return added;
}

void interpret(Device device, ir::TraceGuard& guard, Claims& claims, Workspace& w) {
  log_evaluation(w, "interpreted");
  std::vector<ir::NodeId> ids;
  ir::Graph graph = engine::build_graph(w.walk, ids, true);
  const std::vector<std::uint32_t> held =
      w.walk.block ? std::vector<std::uint32_t>{} : add_held_roots(graph, ids, w.walk);
  keep_results(nullptr, claims, w);
  take_arguments(w, Device::cpu(), device::at(Device::cpu()));
  w.slots = w.walk.slots;
  guard.unlock();
  std::vector<ir::ArgData> args;
  for (const std::byte* a : w.args) args.push_back({a});
  const auto values = ir::interpret(graph, args, w.slots, config().check_bounds);
  if (config().check_nan) {
    std::vector<const std::byte*> computed;
    for (const auto& v : values) computed.push_back(v.data());
    engine::check_nans(graph, w.args, w.slots, computed);
  }
  for (const auto& v : values) {
    w.results.push_back(engine::allocate(v.size(), device));
    device::at(device).write(*w.results.back(), v.data(), v.size());
  }
  guard.relock();
  ir::EdgeKeeper edges;
  for (std::size_t i = 0; i < w.roots.size(); ++i)
    publish_one(w.roots[i], w.results[i], 0, nullptr, w, edges);
  for (std::size_t i = 0; i < held.size(); ++i)
    publish_one(w.walk.nodes[held[i]], w.results[w.roots.size() + i], 0, nullptr, w, edges);
}

/// Hands the roots' values to the checks of KILN_CHECK. Roots that show other memory with strides are left
/// out.
void check_roots(ir::Graph& recorded, const Plan& plan, const Workspace& w) {
  std::vector<const std::byte*> computed;
  std::vector<ir::NodeId> checked;
  for (std::size_t r = 0; r < w.walk.roots.size(); ++r)
    for (std::size_t i = 0; i < plan.results.size(); ++i) {
      const Plan::Result& result = plan.results[i];
      if (result.position != w.walk.roots[r] || !w.results[i] || !result.strides.empty()) continue;
      const ir::NodeId root = recorded.roots[r];
      const std::int64_t moved = result.moved == 0 ? 0 : plan.moved(result.moved, w.walk.slots);
      computed.push_back(engine::host_memory(*w.results[i]) + result.offset * size_of(recorded[root].dtype) +
                         moved);
      checked.push_back(root);
    }
  recorded.roots = checked;
  std::vector<std::byte*> args;
  for (std::size_t i = 0; i < w.args.size(); ++i)
    args.push_back(const_cast<std::byte*>(engine::host_memory(*w.arg_buffers[i])) +
                   (w.args[i] - w.arg_buffers[i]->data));
  engine::check_values(recorded, args, w.walk.slots, computed, [&](const ir::Graph& all) {
    return values_of(all, plan.device, w.args, w.walk.slots);
  });
}

/// What of the trace differs from the latest one of its line. The caller holds the guard.
PlanDifference missed_plan(const Workspace& w) {
  std::vector<ir::NodeId> ids;
  return engine::note_missed_plan(engine::build_graph(w.walk, ids));
}

/// Reports an evaluation that ended.
void explain(const Plan& plan, const Asked& asked, std::shared_ptr<const PlanDifference> difference,
             bool planned, const Workspace& w) {
  EvaluationNotes notes{asked.request == Request::Block ? "a long recording" : "eval", w.roots.front()->loc,
                        planned, std::move(difference), plan.stored};
  if (asked.call) {
    if (!asked.call->op().empty()) notes.call = asked.call->op();
    notes.line = asked.call->line();
  }
  for (std::size_t i = 0; i < plan.results.size(); ++i) {
    const ir::Node* const node = w.walk.nodes[plan.results[i].position];
    if (notes.stored[i].why == StoredBecause::Requested && w.walk.joined &&
        std::ranges::find(asked.roots, node) == asked.roots.end())
      notes.stored[i].why = StoredBecause::Joined;
  }
  deliver(*plan.report, std::move(notes));
}

/// Claims memory of arguments that a plan overwrites.
void claim_memory(std::span<const std::uint32_t> args, Claims& claims, Workspace& w) {
  for (std::uint32_t arg : args) {
    engine::device_of(*w.arg_buffers[arg]).forget_host_copy(*w.arg_buffers[arg]);
    claims.add_memory(w.arg_buffers[arg]);
  }
}

bool may_overwrite(const Walk& walk) { return !walk.donatable.empty() || !walk.reusable.empty(); }

/// The arguments that a plan may overwrite.
std::vector<std::uint32_t> overwritable_arguments(const Walk& walk) {
  std::vector<bool> overwritable(walk.nodes.size());
  for (const auto* leaves : {&walk.donatable, &walk.reusable})
    for (const std::uint32_t leaf : *leaves) overwritable[leaf] = true;
  std::vector<std::uint32_t> args;
  for (std::uint32_t arg = 0; arg < walk.leaves.size(); ++arg)
    if (overwritable[walk.leaves[arg]]) args.push_back(arg);
  return args;
}

/// What a new plan is made of beside the walk, taken while the caller holds the guard.
struct PlanRequest {
  std::vector<ir::NodeId> ids;
  ir::Graph graph;
  std::optional<Recording> again;  // to tune it
  SourceLocation line, forced;     // of the first root, of the call that needs its value
  PlanDifference difference;       // where somebody asks
  PlanDifference from_latest;      // where the line nears its budget of compiles
};

PlanRequest request_plan(const Asked& asked, const Workspace& w) {
  PlanRequest out;
  out.graph = engine::build_graph(w.walk, out.ids);
  if (config().adapt == Adapt::Tune) out.again.emplace(w.walk);
  out.line = w.roots.front()->loc;
  out.forced = asked.call ? asked.call->line() : out.line;
  if (log_enabled(Topic::Kernel) || explaining()) out.difference = missed_plan(w);
  if (nears_compile_budget(out.forced)) {
    std::vector<ir::NodeId> numbers;
    out.from_latest = difference_of_line(out.forced, engine::build_graph(w.walk, numbers));
  }
  return out;
}

std::shared_ptr<const Plan> make_requested(PlanRequest& r, Device device, Workspace& w) {
  if (log_enabled(Topic::Kernel))
    log(Topic::Kernel, cat("planned ", r.line.file_name(), ":", r.line.line(), ": ", r.difference.text()));
  std::shared_ptr<const Plan> plan;
  {
    const TraceSpan planning("planning", "plan");
    plan = engine::keep_plan(w.walk.key, engine::make_plan(w.walk, std::move(r.graph), r.ids, device));
  }
  if (const NewKernels made = new_kernels(*plan); made.kernels > 0)
    note_compiles(r.forced, made.kernels, made.ns, r.from_latest);
  return r.again ? tune(std::move(plan), w.walk, *r.again, device, w.args) : plan;
}

/// Plans what was walked. `difference`: from the latest plan of the line, where somebody asks. Post: the
/// guard is free.
std::shared_ptr<const Plan> plan_anew(Device device, const Asked& asked, ir::TraceGuard& guard,
                                      Claims& claims, Workspace& w,
                                      std::optional<PlanDifference>& difference) {
  PlanRequest request = request_plan(asked, w);
  keep_results(nullptr, claims, w);  // from here on every node looks held
  if (may_overwrite(w.walk)) claim_memory(overwritable_arguments(w.walk), claims, w);
  guard.unlock();
  const std::shared_ptr<const Plan> plan = make_requested(request, device, w);
  difference = std::move(request.difference);
  guard.relock();
  mark_passed(*plan, w);
  if (may_overwrite(w.walk)) {
    std::vector<ir::Buffer*> kept;
    for (std::uint32_t arg : plan->donated) kept.push_back(w.arg_buffers[arg]);
    claims.keep_memory(kept);
  }
  guard.unlock();
  return plan;
}

void run(Device device, const Asked& asked, ir::TraceGuard& guard, Claims& claims, Workspace& w) {
  std::shared_ptr<const Plan> plan = engine::find_plan(w.walk.key);
  log_evaluation(w, plan ? "by a plan in memory" : "by a new plan");
  // for the checks, which follow an evaluation whether its plan was new or not
  std::optional<ir::Graph> recorded;
  if (w.checks) {
    std::vector<ir::NodeId> ids;
    recorded = engine::build_graph(w.walk, ids, true);
  }
  take_arguments(w, device, *w.device);
  const bool planned = !plan;
  std::optional<PlanDifference> difference;
  Turn turn;
  if (plan && plan->trial && !plan->trial->done()) [[unlikely]] {
    turn = plan->trial->take_turn(plan, w.walk);
    plan = turn.plan;
  }
  if (plan) {
    engine::count(Counter::PlanHits);
    keep_results(plan.get(), claims, w);
    mark_passed(*plan, w);
    claim_memory(plan->donated, claims, w);
    guard.unlock();
  } else {
    engine::count(Counter::PlanMisses);
    plan = plan_anew(device, asked, guard, claims, w, difference);
  }
  if (turn.plan) [[unlikely]]
    run_turn(turn, w.walk, w.args, w.results, &claims.wrote);
  else
    engine::run_plan(*plan, w.args, w.walk.slots, w.results, &claims.wrote);
  if (w.checks) check_roots(*recorded, *plan, w);
  if (plan->report && is_due(*plan->report, planned)) [[unlikely]]
    explain(*plan, asked, difference ? std::make_shared<PlanDifference>(*std::move(difference)) : nullptr,
            planned, w);
  guard.relock();
  publish(*plan, w);
  claims.wrote = false;
}

}  // namespace

namespace {

/// Returns what the compiler said when a kernel could not be made, else nothing.
std::string evaluate(std::span<ir::Node* const> roots, Device device, bool interpreted, const Asked& asked) {
  WorkspaceLease w;
  w->device = &device_of(device, roots.front());
  prepare(*w, device, interpreted);
  w->walk.block = asked.request == Request::Block;
  w->walk.joined = asked.request == Request::Joined;
  ir::TraceGuard guard;
  std::string failure;
  if (!walk_roots(roots, device, guard, *w)) return failure;
  // A part is computed whole, and so is what was worth a plan of its own before.
  if (!w->walk.block && w->walk.nodes.size() >= kLongTrace &&
      (interpreted || !engine::find_plan(w->walk.key))) {
    guard.unlock();
    compute_repeats(roots, w->walk.key);
    guard.relock();
    if (!walk_roots(roots, device, guard, *w)) return failure;  // others may have changed the trace meanwhile
  }
  engine::count(Counter::Evaluations);
  Claims claims(guard, w->claimed);
  try {
    if (interpreted)
      interpret(device, guard, claims, *w);
    else
      run(device, asked, guard, claims, *w);
  } catch (const CompileError& e) {
    failure = e.what() + at_line(*w);
  } catch (const DeviceError& e) {
    throw DeviceError(e.what() + at_line(*w));
  } catch (const std::bad_alloc&) {  // the host's, which the interpreter works in
    throw DeviceError("[memory] out of memory" + at_line(*w));
  }
  return failure;
}

}  // namespace

namespace {

void evaluate_on(Device device, std::span<ir::Node* const> roots, const Asked& asked) {
  std::string failure = evaluate(roots, device, config().mode == Mode::Interpret, asked);
  if (failure.empty()) return;
  engine::count(Counter::Fallbacks);
  if (!device::at(device).is_host()) {
    warn(cat(failure, "; running it on the CPU"));
    device = Device::cpu();
    failure = evaluate(roots, device, false, asked);
    if (failure.empty()) return;
  }
  warn(cat(failure, "; interpreting it"));
  evaluate(roots, device, true, asked);
}

/// On the timeline: what the thread recorded since its last evaluation, and this one.
class TracedEvaluation {
 public:
  TracedEvaluation(const Asked& asked, const ir::Node* root)
      : asked_(asked), root_(root->loc), on_(tracing()) {
    if (!on_) [[likely]]
      return;
    begin_ = std::chrono::steady_clock::now();
    if (last_end() != TraceTime{}) trace_event("recording", "recording", last_end(), begin_, {});
  }
  ~TracedEvaluation() {
    if (!on_) [[likely]]
      return;
    const SourceLocation line = asked_.call ? asked_.call->line() : root_;
    const std::string what(asked_.call && !asked_.call->op().empty() ? asked_.call->op() : "eval");
    trace_event("evaluation", what, begin_, cat(line.file_name(), ":", line.line()));
    last_end() = std::chrono::steady_clock::now();
    flush_trace();
  }
  TracedEvaluation(const TracedEvaluation&) = delete;

 private:
  static TraceTime& last_end() {
    static constinit thread_local TraceTime end{};
    return end;
  }
  const Asked& asked_;
  const SourceLocation root_;
  const bool on_;
  TraceTime begin_;
};

void evaluate(std::span<ir::Node* const> roots, const Asked& asked) try {
  const OutsideCalls evaluating;
  const TracedEvaluation traced(asked, roots.front());
  // What may be anywhere is computed together with what is on the default device.
  const auto device = [](const ir::Node* r) {
    return r->device == ir::kAnyDevice ? engine::default_device() : ir::device_of(r->device);
  };
  const Device first = device(roots.front());
  const bool one_device =
      std::all_of(roots.begin(), roots.end(), [&](const ir::Node* r) { return device(r) == first; });
  if (one_device) [[likely]]
    return evaluate_on(first, roots, asked);
  for (int code = 0; code < ir::kDevices.used; ++code) {
    if (code == ir::kAnyDevice) continue;
    std::vector<ir::Node*> there;
    std::copy_if(roots.begin(), roots.end(), std::back_inserter(there),
                 [&](const ir::Node* r) { return device(r) == ir::device_of(code); });
    if (!there.empty()) evaluate_on(ir::device_of(code), there, asked);
  }
} catch (const UserError& e) {
  throw EvaluationError(e.what());
}

}  // namespace

namespace {

/// Whether nothing is to be computed. A leaf stays one.
bool are_leaves(std::span<ir::Node* const> roots) {
  for (ir::Node* r : roots) {
    if (ir::op_now(r) != ir::Op::leaf) return false;
    ir::note_read(r);
  }
  return true;
}

}  // namespace

void evaluate(std::span<ir::Node* const> roots) {
  if (KeptRecording::active()) [[unlikely]]
    KeptRecording::note_evaluation(CallScope::line_or(roots.front()->loc));
  if (are_leaves(roots)) return;
  const Joining joining(roots);
  if (joining.nodes().empty()) [[likely]] {
    evaluate(roots, Asked{Request::Whole, roots, CallScope::current()});
    return recording_was_read();
  }
  try {
    evaluate(joining.nodes(), Asked{Request::Joined, roots, CallScope::current()});
  } catch (const Error&) {  // perhaps of what nobody asked for
    evaluate(roots, Asked{Request::Whole, roots, CallScope::current()});
  }
}

void evaluate_alone(std::span<ir::Node* const> roots) {
  if (are_leaves(roots)) return;
  evaluate(roots, Asked{Request::Whole, roots, CallScope::current()});
  recording_was_read();
}

void evaluate_part(std::span<ir::Node* const> roots) {
  evaluate(roots, Asked{Request::Block, roots, nullptr});
}

}  // namespace kiln::engine

namespace kiln {

void wait_for_compiles() { engine::wait_for_background(); }

void clear_memory_caches() {
  engine::clear_plan_cache();
  engine::clear_kernel_cache();
  engine::clear_verdicts();
  engine::forget_new_kernels();
}

}  // namespace kiln
