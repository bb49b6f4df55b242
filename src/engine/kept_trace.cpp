#include "engine/kept_trace.h"

#include "engine/device_memory.h"
#include "engine/evaluate.h"
#include "engine/plan.h"
#include "engine/plan_salt.h"
#include "engine/trial.h"
#include "engine/walk.h"
#include "engine/workspace.h"
#include "inspect/statistics.h"
#include "inspect/timeline.h"
#include "plan/donate.h"
#include "plan/reuse.h"
#include "record/learned_lines.h"
#include "record/recorded.h"
#include "record/trace_locks.h"
#include "support/call_scope.h"
#include "support/check.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <algorithm>
#include <new>
#include <utility>

namespace kiln::engine {
namespace {

using ir::Node;
using ir::Op;

constinit thread_local KeptRecording* innermost = nullptr;

std::string place(SourceLocation line) { return cat(line.file_name(), ":", line.line()); }

std::string named(const Node* n) {
  return cat(ir::info(n->op).name, " ", ir::describe(n), ", recorded at ", place(n->loc));
}

/// The device of all results that are not leaves; none: there are several.
std::optional<Device> device_of_all(std::span<Node* const> roots) {
  std::optional<Device> out;
  for (const Node* r : roots) {
    const Device d = r->device == ir::kAnyDevice ? default_device() : ir::device_of(r->device);
    if (out && *out != d) return std::nullopt;
    out = d;
  }
  return out;
}

/// The thread's pending nodes, with a reference each.
std::vector<ir::NodeRef> pending_of_thread() {
  std::vector<Node*> nodes;
  {
    const ir::TraceGuard guard;
    ir::pending_nodes(nodes);
  }
  std::vector<ir::NodeRef> out;
  for (Node* n : nodes) out.push_back(ir::NodeRef::adopt(n));
  return out;
}

}  // namespace

std::uint64_t surroundings() {
  const Config& c = config();
  const std::uint64_t checked{c.check_diff || c.check_nan || c.check_bounds};
  return plan_salt(default_device()) ^ checked << 63;
}

bool describe_argument(const Node& leaf, bool moved, std::vector<std::uint64_t>& words) {
  const ir::Buffer& b = *leaf.buffer;
  if (ir::claim_of(b) != ir::BufferClaim::None) return false;
  const int wide = device::at(b.device).wide_access_bytes();
  const auto first = reinterpret_cast<std::uintptr_t>(b.data) +
                     static_cast<std::uint64_t>(leaf.offset * size_of(leaf.dtype));
  const std::uint64_t aligned{wide > 1 && first % static_cast<std::uintptr_t>(wide) == 0};
  // What overwriting it takes: see Walker::note_update and find_reusable.
  const auto bytes = static_cast<std::uint64_t>(leaf.numel * size_of(leaf.dtype));
  const bool large =
      leaf.numel * size_of(leaf.dtype) >=
      std::min(plan::donated_bytes.load(std::memory_order_relaxed), plan::least_reused_bytes(b.device));
  const bool own = moved && large && leaf.refs.load(std::memory_order_acquire) == 1 &&
                   b.refs.load(std::memory_order_acquire) == 1 && b.writable;
  const bool whole = own && leaf.offset == 0 && b.bytes <= 2 * bytes &&
                     reinterpret_cast<std::uintptr_t>(b.data) % kResultAlignment == 0;
  words.push_back(std::uint64_t{static_cast<std::uint8_t>(leaf.dtype)} | std::uint64_t{leaf.rank} << 8 |
                  std::uint64_t{ir::device_code(b.device)} << 16 | aligned << 24 | std::uint64_t{own} << 25 |
                  std::uint64_t{whole} << 26 | std::uint64_t{leaf.strides != nullptr} << 27);
  const auto dims = leaf.dims();
  words.insert(words.end(), dims.begin(), dims.end());
  if (leaf.strides) words.insert(words.end(), leaf.strides, leaf.strides + leaf.rank);
  return true;
}

KeptRecording::KeptRecording() : before_(pending_of_thread()) { innermost = this; }
KeptRecording::~KeptRecording() { innermost = nullptr; }
bool KeptRecording::active() { return innermost != nullptr; }
void KeptRecording::note_evaluation(SourceLocation line) {
  if (!innermost->evaluated_) innermost->evaluated_ = line;
}

/// Makes one kept trace.
class KeptTrace::Maker {
 public:
  Maker(const KeptRecording& recording, std::span<Node* const> results, std::span<Node* const> arguments)
      : recording_(recording), results_(results), arguments_(arguments) {
    for (Node* r : results)
      if (ir::op_now(r) != Op::leaf) roots_.push_back(r);
  }

  Made make(const std::function<void()>& release_arguments) {
    if (recording_.evaluated())
      return because(cat("the function needs a value while it runs, at ", place(*recording_.evaluated())));
    if (roots_.empty()) return because("the function computes nothing");
    const std::optional<Device> device = device_of_all(roots_);
    if (!device) return because("its results are on several devices");
    device_ = *device;
    w_->device = &device::at(device_);
    prepare(*w_, device_, false);
    if (std::string why = note_leaves(); !why.empty()) return because(std::move(why));
    release_arguments();
    ir::TraceGuard guard;
    if (!walk(guard)) return because("another thread is computing one of its values");
    for (std::uint32_t i = 0; i < w_->walk.nodes.size(); ++i) {
      const Node* const n = w_->walk.nodes[i];
      if (n->op != Op::leaf && w_->walk.held(i) && std::ranges::find(results_, n) == results_.end())
        return because(cat("the function keeps a value beside its results: ", named(n)));
    }
    return {finished(), {}};
  }

 private:
  static Made because(std::string why) { return {nullptr, std::move(why)}; }

  bool walk(ir::TraceGuard& guard) {
    for (;;) {
      const Walked walked = walk_trace(roots_, guard, plan_salt(device_), true, w_->walk);
      if (walked != Walked::Foreign) return walked == Walked::Done;
      guard.widen();
    }
  }

  /// Finds out what each leaf is while the function's handles still hold the arguments. Returns why it cannot
  /// be kept, else nothing.
  std::string note_leaves() {
    compute_captured();
    const std::vector<ir::NodeRef> pending = pending_of_thread();
    ir::TraceGuard guard;
    if (!walk(guard)) return "another thread is computing one of its values";
    for (const ir::NodeRef& n : pending) {
      const auto before = recording_.pending_before();
      const auto is_n = [&](const ir::NodeRef& b) { return b.get() == n.get(); };
      if (n->op != Op::leaf && w_->walk.position(n.get()) == Walk::kNone &&
          std::ranges::find_if(before, is_n) == before.end())
        return cat("the function keeps a value beside its results: ", named(n.get()));
    }
    for (const std::uint32_t i : w_->walk.leaves) {
      Node* const n = w_->walk.nodes[i];
      leaves_.push_back(leaf(n));
      if (n->buffer->device != device_) return cat("it reads a tensor of another device: ", named(n));
    }
    return {};
  }

  /// Pending values that the function took from elsewhere are leaves of it.
  void compute_captured() {
    std::vector<Node*> captured;
    {
      ir::TraceGuard guard;
      if (!walk(guard)) return;
      for (const ir::NodeRef& n : recording_.pending_before())
        if (ir::op_now(n.get()) != Op::leaf && w_->walk.position(n.get()) != Walk::kNone)
          captured.push_back(n.get());
    }
    if (!captured.empty()) evaluate_alone(captured);
  }

  Leaf leaf(Node* n) const {
    const auto at = std::ranges::find(arguments_, n);
    if (at == arguments_.end()) return {0, ir::NodeRef::share(n)};
    return {static_cast<std::size_t>(at - arguments_.begin()), {}};
  }

  std::shared_ptr<const KeptTrace> finished() {
    auto out = std::make_shared<KeptTrace>();
    out->device_ = device_;
    out->key_ = w_->walk.key;
    out->slots_ = w_->walk.slots;
    out->leaves_ = std::move(leaves_);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      Node* const n = results_[i];
      Result& r = out->results_.emplace_back();
      r.same = static_cast<std::size_t>(std::ranges::find(results_, n) - results_.begin());
      r.computed = n->op != Op::leaf;
      r.dtype = n->dtype;
      r.dims.assign(n->dims().begin(), n->dims().end());
      r.line = n->loc;
      if (r.computed)
        r.position = w_->walk.position(n);
      else
        r.leaf = leaf(n);
    }
    out->where_ = cat(" (", named(roots_.front()), ")");
    return out;
  }

  const KeptRecording& recording_;
  std::span<Node* const> results_, arguments_;
  std::vector<Node*> roots_;
  WorkspaceLease w_;
  Device device_;
  std::vector<Leaf> leaves_;
};

KeptTrace::Made KeptTrace::make(const KeptRecording& recording, std::span<Node* const> results,
                                std::span<Node* const> arguments,
                                const std::function<void()>& release_arguments) {
  return Maker(recording, results, arguments).make(release_arguments);
}

namespace {

std::size_t result_at(const Plan& plan, std::uint32_t position, std::size_t likely) {
  if (likely < plan.results.size() && plan.results[likely].position == position) return likely;
  return static_cast<std::size_t>(std::ranges::find(plan.results, position, &Plan::Result::position) -
                                  plan.results.begin());
}

}  // namespace

Node* KeptTrace::shown(const Leaf& leaf, std::span<Node* const> arguments) {
  return leaf.captured ? leaf.captured.get() : arguments[leaf.argument];
}

ir::NodeRef KeptTrace::made(const Result& r, const Plan& plan, std::size_t number, Workspace& w,
                            std::span<Node* const> arguments) const {
  const Plan::Result& from = plan.results[number];
  const std::int64_t moved = from.moved == 0 ? 0 : plan.moved(from.moved, slots_) / size_of(r.dtype);
  ir::Buffer* buffer = w.results[number];
  std::int64_t offset = from.offset + moved;
  if (from.place.kind == Place::Kind::Arg) {
    const Node* const of = shown(leaves_[from.place.index], arguments);
    buffer = of->buffer;
    offset += of->offset * size_of(of->dtype) / size_of(r.dtype);
  }
  const std::int64_t* const strides = from.strides.empty() ? nullptr : from.strides.data();
  Node* const leaf = ir::new_leaf(buffer, r.dtype, r.dims, offset, strides, r.line);
  if (from.place.kind == Place::Kind::Arg)
    ir::retain(buffer);
  else
    w.results[number] = nullptr;  // the leaf has its reference now
  return ir::NodeRef::adopt(leaf);
}

bool KeptTrace::run(std::span<Node* const> arguments, std::vector<ir::NodeRef>& results) const {
  const std::shared_ptr<const Plan> plan = find_plan(key_);
  const Config& c = config();
  if (!plan || plan->report || (plan->trial && !plan->trial->done()) || c.check_diff || c.check_nan ||
      c.check_bounds)
    return false;
  const OutsideCalls evaluating;
  const TraceSpan traced("evaluation", "kept trace");
  const WorkspaceLease w;
  device::Device& here = device::at(device_);
  w->args.clear();
  for (const Leaf& l : leaves_) {  // whose memory the caller and this trace hold
    Node* const n = shown(l, arguments);
    ir::note_read(n);
    if (!here.is_host()) here.use(*n->buffer);
    w->args.push_back(n->buffer->data + n->offset * size_of(n->dtype));
  }
  for (const std::uint32_t arg : plan->donated)
    here.forget_host_copy(*shown(leaves_[arg], arguments)->buffer);
  bool wrote = false;
  const auto lose = [&] {  // whoever still has an overwritten argument must not read it
    for (const std::uint32_t arg : plan->donated)
      shown(leaves_[arg], arguments)
          ->buffer->claim.store(static_cast<std::uint8_t>(ir::BufferClaim::Lost), std::memory_order_relaxed);
  };
  try {
    run_plan(*plan, w->args, slots_, w->results, &wrote);
  } catch (const CompileError&) {
    if (!wrote) return false;
    lose();
    throw;
  } catch (const DeviceError& e) {
    if (wrote) lose();
    throw DeviceError(e.what() + where_);
  } catch (const std::bad_alloc&) {
    if (wrote) lose();
    throw DeviceError("[memory] out of memory" + where_);
  }
  count(Counter::Evaluations);
  count(Counter::PlanHits);
  count(Counter::Replays);
  results.clear();
  results.reserve(results_.size());
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const Result& r = results_[i];
    if (r.same != i) {
      results.push_back(results[r.same]);
    } else if (!r.computed) {
      results.push_back(ir::NodeRef::share(shown(r.leaf, arguments)));
    } else {
      results.push_back(made(r, *plan, result_at(*plan, r.position, i), *w, arguments));
    }
  }
  return true;
}

}  // namespace kiln::engine
