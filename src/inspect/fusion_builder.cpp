#include "inspect/fusion_builder.h"

#include "cache/kernel_source.h"
#include "device/device.h"
#include "inspect/kernel_difference.h"
#include "inspect/kernel_lines.h"
#include "inspect/region_kind.h"
#include "ir/custom.h"
#include "ir/layout.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace kiln::engine {
namespace {

using ir::NodeId;
using ir::OpKind;

struct ScheduleWords {
  schedule::Form form;
  std::string_view text, why;
};
constexpr ScheduleWords kSchedules[] = {
#define KILN_SCHEDULE(Name, text, why) {schedule::Form::Name, text, why},
#include <kiln/fusion.def>
#undef KILN_SCHEDULE
};
constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kSchedules); ++i)
    if (static_cast<std::size_t>(kSchedules[i].form) != i) return false;
  return std::size(kSchedules) == static_cast<std::size_t>(schedule::Form::Product) + 1;
}
static_assert(in_order(), "kiln/fusion.def has other forms than schedule::Form");

std::int64_t bytes_of(const ir::GraphNode& n) { return n.numel * size_of(n.dtype); }

/// Operations that would be a kernel or a library call of their own.
bool computes(const ir::GraphNode& n) {
  switch (ir::info(n.op).kind) {
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::View:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack:
    case OpKind::Part: return false;
    case OpKind::Iota:
    case OpKind::Cast:
    case OpKind::Reduce:
    case OpKind::Scan:
    case OpKind::Gather:
    case OpKind::Contraction:
    case OpKind::Library:
    case OpKind::Elementwise: return true;
  }
  return false;
}

/// Bytes that an operation reads of an operand: no more than lies in memory behind its views.
std::int64_t read_bytes(const ir::Graph& g, NodeId id) {
  std::int64_t bytes = bytes_of(g[id]);
  while (ir::is_view(g[id].op)) {
    if (g[id].op == ir::Op::pad || g[id].op == ir::Op::join || g[id].op == ir::Op::update_at) return bytes;
    id = g[id].in[0];
    bytes = std::min(bytes, bytes_of(g[id]));
  }
  return ir::info(g[id].op).kind == OpKind::Scalar ? 0 : bytes;
}

double operations_of(const ir::Graph& g, NodeId id) {
  const ir::GraphNode& n = g[id];
  switch (ir::info(n.op).kind) {
    case OpKind::Cast:
    case OpKind::Elementwise: return static_cast<double>(n.numel);
    case OpKind::Reduce:
    case OpKind::Scan: return static_cast<double>(g[n.in[0]].numel);
    case OpKind::Contraction:
      return 2.0 * static_cast<double>(n.numel) * static_cast<double>(g[n.in[0]].dims.back());
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::Iota:
    case OpKind::View:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack:
    case OpKind::Gather:
    case OpKind::Library:
    case OpKind::Part: return 0;
  }
  return 0;
}

/// How often the loops of a kernel read each buffer from its beginning: once for each loop that has loads.
class Sweeps {
 public:
  explicit Sweeps(const kernel::Kernel& k) : k_(k), loops_(k.buffers.size()) {
    for (const auto* section : {&k.body, &k.link, &k.second, &k.finish})
      for (const kernel::Stmt& s : *section) visit(s, kNoLoop);
  }
  std::size_t of(std::size_t buffer) const { return loops_[buffer].size(); }

 private:
  static constexpr std::uint32_t kNoLoop = 0xffffffffu;
  void visit(const kernel::Stmt& s, std::uint32_t loop) {
    if (s.kind == kernel::Stmt::Kind::Loop) {
      for (const kernel::Stmt& inner : k_.loops[s.target].body) visit(inner, s.target);
      return;
    }
    seen_.clear();
    if (s.index != kernel::kNoExpr) visit(s.index, loop);
    if (s.value != kernel::kNoExpr) visit(s.value, loop);
  }
  void visit(kernel::ExprId id, std::uint32_t loop) {
    if (!seen_.insert(id).second) return;
    const kernel::ExprNode& e = k_.pool[id];
    if (e.prim == kernel::Prim::Load) loops_[e.imm].insert(loop);
    kernel::each_operand(e, [&](kernel::ExprId o) { visit(o, loop); });
  }
  const kernel::Kernel& k_;
  std::vector<std::set<std::uint32_t>> loops_;  // by buffer: those that load it
  std::set<kernel::ExprId> seen_;
};

/// Bytes that a kernel moves beside those of its operands and results: partial results, written and read, and
/// operands that are read again once they have left the caches.
std::int64_t more_bytes(const ir::Graph& g, const lower::Lowered& l, const schedule::Target& t) {
  using Kind = lower::BufferSource::Kind;
  std::int64_t more = 0;
  const std::int64_t item = l.bytes / std::max<std::int64_t>(1, l.grid);
  const bool leaves = item > (t.gpu ? t.held * 4 : t.l2_bytes);
  const Sweeps sweeps(l.kernel);
  std::map<std::pair<Kind, std::uint32_t>, std::size_t> of_memory;  // several buffers may show the same
  for (std::size_t b = 0; b < l.buffers.size(); ++b) {
    const lower::BufferSource& s = l.buffers[b];
    // (A GPU's chain has its totals in registers.)
    if (s.kind == Kind::Partial && !(t.gpu && !l.kernel.link.empty())) more += 2 * s.bytes;
    const bool read = l.kernel.buffers[b].role == kernel::BufferDecl::Role::In;
    if (leaves && read) of_memory[{s.kind, s.id}] += sweeps.of(b);
  }
  for (const auto& [memory, times] : of_memory) {
    if (times < 2) continue;
    const auto [kind, id] = memory;
    const std::int64_t bytes =
        kind == Kind::Arg ? ir::element_count(g.args[id].dims) * size_of(g.args[id].dtype) : bytes_of(g[id]);
    more += static_cast<std::int64_t>(times - 1) * std::min(bytes, l.bytes);
  }
  return more;
}

class Builder {
 public:
  Builder(const ir::Graph& g, const plan::Regions& regions, const schedule::Target& t, Device device)
      : g_(g), regions_(regions), t_(t), device_(device) {}

  FusionReport run(std::span<const RegionFacts> facts, const Unfused& before) {
    out_.before = before.before;
    out_.by_op = before.by_op;
    out_.bytes_per_ns = t_.bytes_per_ns;
    out_.operations_per_ns = t_.prims_per_ns;
    for (NodeId id = 0; id < g_.size(); ++id) out_.nodes.push_back(node(id));
    for (const RegionFacts& f : facts) add(f);
    for (const plan::Refusal& r : regions_.refusals) add(r);
    return std::move(out_);
  }

 private:
  FusionReport::Node node(NodeId id) const {
    const ir::GraphNode& n = g_[id];
    return {
        id,           std::string(ir::name_of(n)), n.dtype, {n.dims.begin(), n.dims.end()}, n.loc.file_name(),
        n.loc.line(), {n.in.begin(), n.in.end()}};
  }

  /// The loop IR, and every stage that the compiler itself makes.
  void add_sources(const RegionFacts::Kernel& k, FusionReport::Kernel& out) const {
    const KernelLines lines(*k.lowered);
    const auto add = [&](std::string_view stage, const std::string& marked) {
      const kernel::Unmarked text = kernel::unmark(marked);
      out.sources.emplace(stage, text.text);
      if (lines.known()) out.lines.emplace(stage, lines.nodes_of(text));
    };
    add("kernel", kernel::print_marked(k.lowered->kernel));
    const std::shared_ptr<const device::Compiler> compiler = device::at(device_).compiler();
    const device::Unit unit{&k.lowered->kernel, symbol_of(k.code->key), k.code->instances, nullptr, true};
    for (const device::Stage& stage : compiler->stages()) {
      if (stage.name == "sass") continue;
      if (const std::optional<std::string> text = compiler->text(stage.name, unit)) add(stage.name, *text);
    }
  }

  FusionReport::Kernel kernel(const RegionFacts::Kernel& k) const {
    const ScheduleWords& words = kSchedules[static_cast<std::size_t>(k.lowered->form)];
    const bool main_loop = k.lowered->kernel.main_loop.has_value();
    FusionReport::Kernel out;
    out.schedule = main_loop ? "main loop " + k.lowered->kernel.main_loop->name : std::string(words.text);
    out.why = main_loop ? "a hand-written main loop with the region's maps as hooks" : words.why;
    if (!k.code) return out;
    out.name = k.code->name;
    out.key = k.code->key.hex();
    out.verdict = verdict_of(*k.code, k.verdict);
    const device::Resources used = k.code->code->resources();
    out.registers = used.registers;
    out.spilled_bytes = used.spilled_bytes;
    if (config().explain.ends_with(".html")) add_sources(k, out);
    if (k.verdict == Verdict::Memory) return out;
    const KernelDifference difference = note_new_kernel(k.lowered->kernel, report_);
    out.field = difference.field;
    out.now = difference.now;
    out.was = difference.was;
    return out;
  }

  void add(const RegionFacts& f) {
    FusionReport::Region r;
    r.kind = kind_of(g_, regions_, *f.region);
    r.nodes = f.region->nodes;
    r.outputs = f.region->outputs;
    r.library = f.library;
    if (f.region->variants) r.variants = *f.region->variants;
    r.gain = f.gain;
    r.floor_bytes = r.bytes = f.library_bytes;
    double work = 0;
    for (const RegionFacts::Kernel& k : f.kernels) {
      r.kernels.push_back(kernel(k));
      if (f.tiles) continue;
      r.floor_bytes += k.lowered->bytes;
      r.bytes += k.lowered->bytes + more_bytes(g_, *k.lowered, t_);
      work += k.lowered->work;
    }
    for (NodeId id : f.region->nodes) r.operations += operations_of(g_, id);
    if (f.library) work = std::max(work, r.operations);
    r.modelled_ns =
        t_.launch_ns + std::max(t_.traffic_ns(static_cast<double>(r.bytes)), work / t_.prims_per_ns);
    ++out_.by_kind[std::string(text_of(r.kind))];
    if (f.library)
      ++out_.after.library_calls;
    else
      out_.after.kernels += static_cast<int>(f.kernels.size());
    out_.after.bytes += r.bytes;
    if (f.stored) out_.after.buffers += static_cast<int>(r.outputs.size());
    out_.regions.push_back(std::move(r));
  }

  /// A condition of a pattern is a near miss; of two operations side by side it is a boundary too.
  void add(const plan::Refusal& r) {
    const FusionReason reason = r.why.reason();
    const FusionPattern of = pattern_of(reason);
    if (of != FusionPattern::None)
      out_.near_misses.push_back({of, {r.producer, r.consumer}, reason, r.why.arguments()});
    if (of == FusionPattern::None || of == FusionPattern::Norm || of == FusionPattern::Nest ||
        of == FusionPattern::Epilogue)
      out_.boundaries.push_back(
          {r.producer, r.consumer, reason, r.why.arguments(), 2 * bytes_of(g_[r.producer])});
  }

  const ir::Graph& g_;
  const plan::Regions& regions_;
  const schedule::Target& t_;
  const Device device_;
  const std::uint64_t report_ = next_report();
  FusionReport out_;
};

}  // namespace

std::string verdict_of(const CachedKernel& code, Verdict verdict) {
  switch (verdict) {
    case Verdict::Memory: return "memory";
    case Verdict::Disk: return "disk";
    case Verdict::Compiled:
    case Verdict::Vm: return code.code->compiled() ? "compiled" : "vm";
  }
  return "";
}

Unfused unfused(const ir::Graph& recorded) {
  Unfused out;
  for (NodeId id = 0; id < recorded.size(); ++id) {
    const ir::GraphNode& n = recorded[id];
    if (!computes(n)) continue;
    ++out.by_op[std::string(ir::name_of(n))];
    ++out.before.kernels;
    ++out.before.buffers;
    out.before.bytes += bytes_of(n);
    for (const NodeId in : n.in) out.before.bytes += read_bytes(recorded, in);
  }
  return out;
}

FusionReport fusion_report(const ir::Graph& graph, const plan::Regions& regions,
                           std::span<const RegionFacts> facts, const Unfused& before,
                           const schedule::Target& target, Device device) {
  return Builder(graph, regions, target, device).run(facts, before);
}

}  // namespace kiln::engine
