// Run: one run of a plan, step by step. run_graphs.cpp runs all steps as one graph, run_loops.cpp has the
// steps that are loops over whole tensors.
#pragma once

#include "device/device.h"
#include "engine/plan.h"
#include "engine/replay.h"
#include "engine/tile_calls.h"
#include "engine/trace_log.h"
#include "inspect/nvtx.h"
#include "inspect/statistics.h"
#include "inspect/timeline.h"
#include "ir/custom.h"
#include "record/node.h"
#include "support/check.h"
#include "support/log.h"
#include "support/thread_own.h"

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kiln::engine {

/// A step of a graph.
struct GraphStep {
  device::Graph& graph;
  std::size_t step;
};

class Run {
 public:
  Run(const Plan& plan, std::span<std::byte* const> args, std::span<const std::uint64_t> slots, bool* wrote)
      : plan_(plan),
        device_(device::at(plan.device)),
        args_(args),
        slots_(slots),
        wrote_(wrote),
        buffers_(scratch()) {
    buffers_.assign(plan.buffers.size(), nullptr);
  }
  ~Run() {
    if (launched_ > 0) count(Counter::Launches, launched_);
    if (called_ > 0) count(Counter::LibraryCalls, called_);
    for (ir::Buffer* b : buffers_)
      if (b) ir::release(b);
    buffers_.clear();
  }

  /// `measured`: gets the time of each step. Null: nobody asks.
  void steps(PlanReport* measured = nullptr) {
    open_arena();
    run_steps(0, plan_.steps.size(), measured);
    allocate_for(static_cast<std::int32_t>(plan_.steps.size()));  // results no step writes (zero elements)
  }

  /// The same with the time of a part.
  void steps(StepTimer& timer) {
    if (plan_.graphs) {
      timer.seconds = device_.seconds([&] { steps_or_graph(); });
      return;
    }
    open_arena();
    run_steps(0, timer.first, nullptr);
    timer.seconds = device_.seconds([&] { run_steps(timer.first, timer.last, nullptr); });
    run_steps(timer.last, plan_.steps.size(), nullptr);
    allocate_for(static_cast<std::int32_t>(plan_.steps.size()));
  }

  void run_steps(std::size_t first, std::size_t last, PlanReport* measured) {
    for (std::size_t i = first; i < last; ++i) {
      allocate_for(static_cast<std::int32_t>(i));
      if (static_cast<std::int32_t>(i) == plan_.first_write && wrote_) *wrote_ = true;
      if (measured || traced_) [[unlikely]]
        timed_step(i, measured);
      else if (ranged_) [[unlikely]]
        ranged_step(plan_.steps[i]);
      else
        step(plan_.steps[i]);
      if (plan_.steps.size() > 1) free_after(static_cast<std::int32_t>(i));
    }
  }

  /// A GPU waits for the step, so that its time is the device's.
  void timed_step(std::size_t i, PlanReport* measured) {
    const Step& s = plan_.steps[i];
    const TraceTime begin = std::chrono::steady_clock::now();
    const double seconds = device_.seconds([&] { step(s); });
    if (measured) measured->measured(i, seconds);
    if (traced_) trace_event(s.kind == Step::Kind::Launch ? "kernel" : "library", name_of(s), begin);
  }

  void ranged_step(const Step& s) {
    const SourceLocation line = line_of(s);
    const std::string name = name_of(s);
    const NvtxRange range(line.line() == 0 ? name : cat(name, " ", line.file_name(), ":", line.line()));
    step(s);
  }

  SourceLocation line_of(const Step& s) const {
    switch (s.kind) {
      case Step::Kind::Launch: return plan_.launches[s.index].line;
      case Step::Kind::Library: return plan_.library[s.index].line;
      case Step::Kind::Loop: return SourceLocation();
      case Step::Kind::Attention: return plan_.attentions[s.index]->line;
      case Step::Kind::PairSums: return plan_.pair_sums[s.index]->line;
    }
    return SourceLocation();
  }

  std::string name_of(const Step& s) const {
    switch (s.kind) {
      case Step::Kind::Launch: return plan_.launches[s.index].kernel->name;
      case Step::Kind::Library: {
        const LibraryCall& l = plan_.library[s.index];
        return std::string(ir::name_of(l.op, {l.attr64, l.attrs}));
      }
      case Step::Kind::Loop: return "loop";
      case Step::Kind::Attention: return "attention";
      case Step::Kind::PairSums: return "gradient of attention";
    }
    return {};
  }

  void step(const Step& s) {
    switch (s.kind) {
      case Step::Kind::Launch:
        ++launched_;
        return launch(std::span(plan_.launches).subspan(s.index, s.count));
      case Step::Kind::Library: return library_call(plan_.library[s.index]);
      case Step::Kind::Loop: return loop(plan_.loops[s.index]);
      case Step::Kind::Attention: return attention(*plan_.attentions[s.index]);
      case Step::Kind::PairSums: return pair_sums(*plan_.pair_sums[s.index]);
    }
  }

  /// The same as one graph, if the plan came before (run_graphs.cpp).
  void steps_or_graph();

  /// Hands the results' buffers over, each with a reference. Post: the run is over.
  void results(std::vector<ir::Buffer*>& out) {
    out.clear();
    for (const Plan::Result& r : plan_.results)
      out.push_back(r.place.kind == Place::Kind::Buffer ? handed_over(r.place.index, out) : nullptr);
  }

 private:
  /// Kept between runs of a thread; a nested run (a deleter that evaluates) gets its own.
  static std::vector<ir::Buffer*>& scratch() {
    auto& free = thread_own<std::vector<std::unique_ptr<std::vector<ir::Buffer*>>>, Run>();
    for (auto& v : free)
      if (v->empty()) return *v;
    free.push_back(std::make_unique<std::vector<ir::Buffer*>>());
    return *free.back();
  }

  /// The run's reference, or one more where a result before is in the same buffer.
  ir::Buffer* handed_over(std::uint32_t index, const std::vector<ir::Buffer*>& before) {
    if (ir::Buffer* const b = std::exchange(buffers_[index], nullptr)) return b;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Place& p = plan_.results[i].place;
      if (p.kind != Place::Kind::Buffer || p.index != index) continue;
      ir::retain(before[i]);
      return before[i];
    }
    KILN_CHECK_THAT(false, "a result without a buffer");
    return nullptr;
  }

  void allocate_for(std::int32_t step) {
    for (; begun_ < plan_.by_first.size() && plan_.buffers[plan_.by_first[begun_]].first <= step; ++begun_) {
      const std::uint32_t b = plan_.by_first[begun_];
      if (!buffers_[b]) buffers_[b] = device_.allocate(plan_.buffers[b].bytes);
    }
  }

  void free_after(std::int32_t step) {
    for (; ended_ < plan_.by_last.size() && plan_.buffers[plan_.by_last[ended_]].last <= step; ++ended_)
      if (ir::Buffer*& b = buffers_[plan_.by_last[ended_]]) ir::release(std::exchange(b, nullptr));
  }

  /// The plan's intermediates get their places in one block of memory, where it has such a block.
  void open_arena() {
    if (plan_.arena_bytes == 0 || arena_) return;
    arena_.reset(device_.allocate(plan_.arena_bytes));
    lent_ = std::make_unique<ir::Buffer[]>(buffers_.size());
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      if (plan_.buffers[b].result) continue;
      lent_[b].data = arena_->data + plan_.buffers[b].offset;
      lent_[b].bytes = plan_.buffers[b].bytes;
      lent_[b].free = [](ir::Buffer*) {};
      buffers_[b] = &lent_[b];
    }
  }

  void allocate_results();
  /// What a graph has that cannot be set anew: its stream, and all memory that calls of the library touch.
  Hash128 fixed_key() const;
  /// All that a graph's launches and calls have that differs between runs, but for slots that can be set
  /// anew.
  Hash128 memory_key(const Hash128& fixed) const;
  PlanGraphs::Entry captured();
  void set_anew(PlanGraphs::Entry& e);
  void note_memory(PlanGraphs::Entry& e) const;
  bool differs(const PlanGraphs::Entry& e, const Launch& l) const;

  std::byte* address(const Place& p) const {
    const std::int64_t moved = p.moved == 0 ? 0 : plan_.moved(p.moved, slots_);
    switch (p.kind) {
      case Place::Kind::Arg: return args_[p.index] + p.byte_offset + moved;
      case Place::Kind::Buffer: return buffers_[p.index]->data + p.byte_offset + moved;
      case Place::Kind::None: return nullptr;
    }
    return nullptr;
  }

  /// What a plan that this one runs made of a result, in the memory of its own or of its argument.
  std::byte* shown(const Plan& inner, const Plan::Result& r, ir::Buffer* made,
                   const std::vector<std::byte*>& args, DType type) const {
    const std::int64_t moved = r.moved == 0 ? 0 : inner.moved(r.moved, slots_);
    return (made ? made->data : args[r.place.index]) + r.offset * size_of(type) + moved;
  }

  /// Calls f with the addresses of a launch's buffers and the values of its slots.
  template <class F>
  void with_arguments(const Launch& l, F f) const {
    constexpr std::size_t kNear = 64;
    void* near_pointers[kNear];
    std::uint64_t near_slots[kNear];
    std::vector<void*> far_pointers;
    std::vector<std::uint64_t> far_slots;
    void** pointers = near_pointers;
    std::uint64_t* slots = near_slots;
    if (l.buffers.size() > kNear) {
      far_pointers.resize(l.buffers.size());
      pointers = far_pointers.data();
    }
    if (l.slots.size() > kNear) {
      far_slots.resize(l.slots.size());
      slots = far_slots.data();
    }
    for (std::size_t i = 0; i < l.buffers.size(); ++i) pointers[i] = address(l.buffers[i]);
    for (std::size_t i = 0; i < l.slots.size(); ++i) slots[i] = slots_[l.slots[i]];
    f(pointers, slots);
  }

  /// One kernel, for one set of arguments or several. It is launched, or what it was recorded as gets the
  /// arguments.
  void launch(std::span<const Launch> launches, const GraphStep* recorded = nullptr) {
    if (launches.size() > 1) return launch_together(launches, recorded);
    with_arguments(launches.front(), [&](void* const* pointers, const std::uint64_t* slots) {
      const device::Bound bound{&launches.front(), pointers, slots};
      if (!launches.front().types.empty() && dumps_runs()) [[unlikely]]
        return dumped_launch({&bound, 1}, launches);
      launch_bound(launches, {&bound, 1}, recorded);
    });
  }

  /// A launch that is written with its memory, to be run again.
  void dumped_launch(std::span<const device::Bound> bound, std::span<const Launch> launches) {
    std::vector<RunMemory> memories;
    std::vector<RunArguments> sets;
    for (std::size_t i = 0; i < launches.size(); ++i)
      sets.push_back(
          {&launches[i], dumped_buffers(launches[i], memories), {bound[i].slots, launches[i].slots.size()}});
    dump_run(sets, plan_.device, memories, [&] { device_.launch(bound); });
  }

  std::vector<RunBuffer> dumped_buffers(const Launch& l, std::vector<RunMemory>& memories) const {
    return run_buffers(plan_, l, args_, buffers_, [this](const Place& p) { return address(p); }, memories);
  }

  void launch_together(std::span<const Launch> launches, const GraphStep* recorded) {
    std::size_t n_pointers = 0, n_slots = 0;
    for (const Launch& l : launches) {
      n_pointers += l.buffers.size();
      n_slots += l.slots.size();
    }
    std::vector<void*> pointers(n_pointers);
    std::vector<std::uint64_t> slots(n_slots);
    std::vector<device::Bound> bound;
    bound.reserve(launches.size());
    void** pointer = pointers.data();
    std::uint64_t* slot = slots.data();
    for (const Launch& l : launches) {
      bound.push_back({&l, pointer, slot});
      for (const Place& p : l.buffers) *pointer++ = address(p);
      for (const std::uint32_t s : l.slots) *slot++ = slots_[s];
    }
    if (!launches.front().types.empty() && dumps_runs()) [[unlikely]]
      return dumped_launch(bound, launches);
    launch_bound(launches, bound, recorded);
  }

  void launch_bound(std::span<const Launch> launches, std::span<const device::Bound> bound,
                    const GraphStep* recorded) {
    if (recorded) return recorded->graph.set_arguments(recorded->step, bound);
    if (!log_enabled(Topic::Kernel)) [[likely]]
      return device_.launch(bound);
    const Launch& l = launches.front();
    const Verdict from = !l.code->compiled()        ? Verdict::Vm
                         : l.verdict == Verdict::Vm ? Verdict::Compiled
                                                    : l.verdict;
    const double seconds = device_.seconds([&] { device_.launch(bound); });
    log_launch(launches, from, seconds, device_.copy_gbps());
  }

  library::Call call_of(const LibraryCall& l) const {
    library::Call call = call_without_memory(l, plan_.device);
    for (std::size_t i = 0; i < l.operands.size(); ++i)
      call.operands[i].array.data = address(l.operands[i].place);
    call.out = address(l.out);
    for (std::size_t i = 0; i < l.others.size(); ++i) call.others[i] = address(l.others[i]);
    return call;
  }

  void library_call(const LibraryCall& l) {
    ++called_;
    if (l.fixed && !log_enabled(Topic::Kernel) && !dumps_runs()) [[likely]]
      return fixed_call(l);
    library::Call call = call_of(l);
    if (l.maker >= 0)
      return with_arguments(plan_.epilogues[static_cast<std::size_t>(l.maker)],
                            [&](void* const* pointers, const std::uint64_t* slots) {
                              const device::Bound bound{&plan_.epilogues[static_cast<std::size_t>(l.maker)],
                                                        pointers, slots};
                              call.maker.kernel = &bound;
                              library_call(l, call);
                            });
    if (l.epilogue < 0) return library_call(l, call);
    const Launch& epilogue = plan_.epilogues[static_cast<std::size_t>(l.epilogue)];
    with_arguments(epilogue, [&](void* const* pointers, const std::uint64_t* slots) {
      const device::Bound bound{&epilogue, pointers, slots};
      call.epilogue = &bound;
      if (epilogue.types.empty() || !dumps_runs()) [[likely]]
        return library_call(l, call);
      std::vector<RunMemory> memories;
      const RunArguments dumped{
          &epilogue, dumped_buffers(epilogue, memories), {slots, epilogue.slots.size()}};
      dump_epilogue(dumped, memories, [&] { library_call(l, call); });
    });
  }

  void fixed_call(const LibraryCall& l) {
    const std::byte* operands[library::Call::kMostOperands];
    for (std::size_t i = 0; i < l.operands.size(); ++i) operands[i] = address(l.operands[i].place);
    const std::span<const std::byte* const> all(operands, l.operands.size());
    if (l.epilogue < 0) return l.fixed->run(all, address(l.out), nullptr);
    const Launch& epilogue = plan_.epilogues[static_cast<std::size_t>(l.epilogue)];
    with_arguments(epilogue, [&](void* const* pointers, const std::uint64_t* slots) {
      const device::Bound bound{&epilogue, pointers, slots};
      l.fixed->run(all, nullptr, &bound);
    });
  }

  void library_call(const LibraryCall& l, const library::Call& call) {
    if (workspace_) return l.routine->run(call, workspace_);
    if (!log_enabled(Topic::Kernel)) [[likely]]
      return run_library(l, call);
    log_library(l, device_.seconds([&] { run_library(l, call); }));
  }

  void run_library(const LibraryCall& l, const library::Call& call) {
    const std::size_t bytes = l.routine->workspace_bytes(call);
    const HeldBuffer workspace(bytes ? device_.allocate(bytes) : nullptr);
    l.routine->run(call, workspace ? workspace->data : nullptr);
  }

  void attention(const AttentionStep& a) { run_tiles(a, log_attention); }
  void pair_sums(const PairSumsStep& s) { run_tiles(s, log_pair_sums); }

  template <class TileStep>
  void run_tiles(const TileStep& step, void (*log_step)(const TileStep&, double)) {
    ++called_;
    auto call = tile_call(step, [this](const Place& p) { return address(p); });
    call.slots = slots_;
    const HeldBuffer workspace(device_.allocate(step.routine->workspace_bytes(call)));
    const auto run = [&] { step.routine->run(call, workspace->data); };
    if (!log_enabled(Topic::Kernel)) [[likely]]
      return run();
    log_step(step, device_.seconds(run));
  }

  /// Buffers that are let go whatever ends the scope; null: memory of somebody else.
  struct Buffers {
    std::vector<ir::Buffer*> buffers;
    Buffers() = default;
    explicit Buffers(std::size_t n) : buffers(n, nullptr) {}
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    ~Buffers() { drop(); }
    void drop() {
      for (ir::Buffer*& b : buffers)
        if (b) ir::release(std::exchange(b, nullptr));
    }
  };
  /// Owned memory of a loop's states, in this iteration.
  struct States : Buffers {
    std::vector<std::byte*> args;  // the states, then the captures
    using Buffers::Buffers;
  };

  void begin_states(const Loop& l, States& now);
  void loop(const Loop& l);
  void write_count(std::byte* to, std::int64_t number) const;
  void keep_yields(const Loop& l, std::int64_t iteration, const std::vector<std::byte*>& args,
                   const std::vector<ir::Buffer*>& made) const;
  bool goes_on(const Loop& l, const std::vector<std::byte*>& args) const;
  /// A row-major copy; no strides: it is row-major already.
  ir::Buffer* packed(const std::byte* from, const std::vector<std::int64_t>& dims,
                     const std::vector<std::int64_t>& strides, DType type) const;
  void pack(const std::byte* from, const std::vector<std::int64_t>& dims,
            const std::vector<std::int64_t>& strides, DType type, std::byte* to) const {
    device_.pack(to, from, dims, strides, type);
  }

  const Plan& plan_;
  device::Device& device_;
  std::span<std::byte* const> args_;
  std::span<const std::uint64_t> slots_;
  bool* wrote_;  // null: nobody asks
  const bool traced_ = tracing(), ranged_ = makes_ranges();
  std::byte* workspace_ = nullptr;      // of library calls that are recorded
  HeldBuffer arena_;                    // of the intermediates, if the plan has one …
  std::unique_ptr<ir::Buffer[]> lent_;  // … and these in it
  std::vector<ir::Buffer*>& buffers_;
  std::size_t begun_ = 0, ended_ = 0;  // how far in plan_.by_first and plan_.by_last
  // Counted together at the end: behind a kernel an atomic addition waits until all that it stored is in a
  // cache.
  std::uint64_t launched_ = 0, called_ = 0;
};

}  // namespace kiln::engine
