// Runs a graph through transform, fuse and lower, and the kernels through the kernel interpreter: everything
// but the emitters, to be held against the oracle. On the way every kernel also runs by the vm, which must
// write the same bytes.
#pragma once

#include "codegen/on_vm.h"
#include "ir/graph_builder.h"
#include "kernel/interpret_kernel.h"
#include "lower/lower.h"
#include "plan/fuse.h"
#include "plan/joined_halves.h"
#include "support/check.h"
#include "transform/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kiln::lower {

class LoweredGraph {
 public:
  /// Uses up b.graph; b keeps the arguments' memory.
  LoweredGraph(ir::GraphBuilder& b, const schedule::Target& target)
      : LoweredGraph(b, std::make_shared<ir::Graph>(transform::transform(std::move(b.graph)).graph), target) {
  }

  /// The same graph for another target.
  LoweredGraph on(const schedule::Target& target) const { return LoweredGraph(b_, g_ptr_, target); }

  /// Row-major values of the roots.
  std::vector<std::vector<std::byte>> values() {
    std::vector<std::vector<std::byte>> out;
    for (ir::NodeId root : g_.roots) out.push_back(value(root));
    return out;
  }
  const ir::Graph& graph() const { return g_; }
  std::size_t kernels() const { return forms.size(); }
  std::string text() const { return ir::print(g_) + text_; }

  std::vector<schedule::Form> forms;
  bool begins_behind = false;  // scans of a kernel begin with a value

 private:
  using Bytes = std::vector<std::byte>;

  LoweredGraph(ir::GraphBuilder& b, std::shared_ptr<ir::Graph> graph, const schedule::Target& target)
      : b_(b), g_ptr_(std::move(graph)), g_(*g_ptr_), regions_(plan::fuse(g_, target)) {
    plan::join_halves(g_, target, regions_,
                      [&](const plan::Region& r) { return shares_halves(g_, regions_, r); });
    for (const plan::Region& r : regions_.regions) launch(r, target);
  }

  Bytes& memory_of(BufferSource::Kind kind, std::uint32_t id) {
    if (kind == BufferSource::Kind::Arg) return b_.memory(id);
    return stored(id);
  }
  Bytes& stored(ir::NodeId id) {
    const auto it = stored_.find(id);
    if (it == stored_.end()) throw InternalError(cat("%", id, " is read before it is in memory:\n", text()));
    return it->second;
  }

  void launch(const plan::Region& r, const schedule::Target& target) {
    bool empty = true;
    for (ir::NodeId o : r.outputs) {
      stored_[o].resize(static_cast<std::size_t>(g_[o].numel * size_of(g_[o].dtype)));
      empty &= g_[o].numel == 0;
    }
    if (empty) return;
    const Lowered l = lower(g_, regions_, r, target);
    forms.push_back(l.form);
    std::map<std::uint32_t, Bytes> shared;
    run(l, l.then.empty() ? nullptr : &shared);
    for (const Lowered& next : l.then) run(next, &shared);
  }

  /// `shared`: partial results by number, of kernels that follow each other; null: they are the kernel's own.
  void run(const Lowered& l, std::map<std::uint32_t, Bytes>* shared) {
    text_ += kernel::print(l.kernel);
    kernel::verify(l.kernel);
    std::vector<Bytes> partials;
    partials.reserve(l.buffers.size());
    std::vector<kernel::BufferMemory> buffers;
    for (const BufferSource& s : l.buffers) {
      if (s.kind == BufferSource::Kind::Scratch) {
        buffers.emplace_back();
        continue;
      }
      Bytes& bytes = s.kind != BufferSource::Kind::Partial ? memory_of(s.kind, s.id)
                     : shared                              ? (*shared)[s.id]
                                                           : partials.emplace_back();
      if (s.kind == BufferSource::Kind::Partial) bytes.resize(static_cast<std::size_t>(s.bytes));
      buffers.push_back({bytes.data() + s.byte_offset, bytes});
    }
    std::vector<std::uint64_t> slots;
    for (std::int32_t s : l.slots) slots.push_back(b_.slots[static_cast<std::size_t>(s)]);
    Bytes scratch(static_cast<std::size_t>(l.scratch_bytes));
    kernel::interpret(l.kernel, {buffers, l.params, slots, scratch}, l.grid, l.finish_grid);
    const bool across = std::ranges::any_of(l.kernel.loops, [](const kernel::LoopDecl& loop) {
      return std::ranges::any_of(loop.body,
                                 [](const kernel::Stmt& s) { return s.kind == kernel::Stmt::Kind::Across; });
    });
    const bool behind = std::ranges::any_of(l.kernel.loops, [](const kernel::LoopDecl& loop) {
      return loop.kind != kernel::LoopKind::While && !loop.inits.empty();  // the vm has no such scans
    });
    begins_behind |= behind;
    if (!behind && !across && !shared)  // nor do its lanes come together; it has partial results of its own
      codegen::expect_vm_agrees(l.kernel, {buffers, l.params, slots, scratch}, l.grid, l.finish_grid);
  }

  Bytes value(ir::NodeId root) {
    const ir::GraphNode& n = g_[root];
    const plan::Alias a = stored_.contains(root) ? plan::Alias{} : plan::resolve_alias(g_, root);
    if (stored_.contains(root)) return stored_[root];
    if (a.base == ir::kNoNode) throw InternalError(cat("root %", root, " was not computed:\n", text()));
    const ir::GraphNode& base = g_[a.base];
    const Bytes& from =
        base.op == ir::Op::leaf ? b_.memory(static_cast<std::size_t>(base.arg)) : stored(a.base);
    const auto size = static_cast<std::size_t>(size_of(n.dtype));
    Bytes out(static_cast<std::size_t>(n.numel) * size);
    for (std::int64_t i = 0; i < n.numel; ++i) {
      std::int64_t at = a.offset, rest = i;
      for (std::size_t axis = n.dims.size(); axis-- > 0;) {
        at += rest % n.dims[axis] * a.strides[axis];
        rest /= n.dims[axis];
      }
      std::copy_n(from.begin() + at * static_cast<std::int64_t>(size), size,
                  out.begin() + i * static_cast<std::int64_t>(size));
    }
    return out;
  }

  ir::GraphBuilder& b_;
  std::shared_ptr<ir::Graph> g_ptr_;
  const ir::Graph& g_;
  plan::Regions regions_;
  std::map<ir::NodeId, Bytes> stored_;
  std::string text_;
};

/// The graph lowered for each target, its values held against the oracle's. Uses up b.graph, as LoweredGraph.
inline std::vector<LoweredGraph> checked(ir::GraphBuilder& b, const std::vector<schedule::Target>& targets) {
  const auto expected = b.values();
  std::vector<LoweredGraph> out;
  for (const schedule::Target& t : targets) {
    out.push_back(out.empty() ? LoweredGraph(b, t) : out.front().on(t));
    EXPECT_EQ(out.back().values(), expected) << "target " << out.size() - 1 << '\n' << out.back().text();
  }
  return out;
}

/// A GPU of four multiprocessors, so that few values are many.
inline schedule::Target small_gpu() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 4;
  t.architecture = 90;
  return t;
}

/// Two threads of a CPU with vectors of so many bytes.
inline schedule::Target cpu(int vector_bytes) {
  schedule::Target t;
  t.threads = 2;
  t.vector_bytes = vector_bytes;
  return t;
}

/// checked() for vectors of each width; the forms of the regions for the widest.
inline std::vector<schedule::Form> checked_on_cpus(ir::GraphBuilder& b) {
  return checked(b, {cpu(64), cpu(32), cpu(16)}).front().forms;
}

/// x - max over the axes, times the sum of that over them.
inline void normalise(ir::GraphBuilder& b, ir::NodeId x, std::uint64_t axes) {
  std::vector<std::int64_t> kept(b.graph[x].dims.begin(), b.graph[x].dims.end());
  for (std::size_t i = 0; i < kept.size(); ++i)
    if ((axes >> i & 1) != 0) kept[i] = 1;
  const ir::NodeId y = b.op(ir::Op::subtract, {x, b.reshape(b.reduce(ir::Op::reduce_max, x, axes), kept)});
  b.root(b.op(ir::Op::multiply, {y, b.reshape(b.reduce(ir::Op::reduce_sum, y, axes), kept)}));
}

}  // namespace kiln::lower
