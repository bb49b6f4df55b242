// Runs plans: takes buffers from the device's pool and hands it the steps in order, or all of them as one
// graph.
#include "engine/plan.h"

#include "device/device.h"
#include "engine/replay.h"
#include "engine/tile_calls.h"
#include "engine/trace_log.h"
#include "inspect/nvtx.h"
#include "inspect/statistics.h"
#include "inspect/timeline.h"
#include "ir/custom.h"
#include "ir/layout.h"
#include "record/node.h"
#include "support/check.h"
#include "support/log.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

namespace kiln::engine {
namespace {

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
    for (ir::Buffer* b : buffers_)
      if (b) ir::release(b);
    buffers_.clear();
  }

  /// `measured`: gets the time of each step. Null: nobody asks.
  void steps(PlanReport* measured = nullptr) {
    run_steps(0, plan_.steps.size(), measured);
    allocate_for(static_cast<std::int32_t>(plan_.steps.size()));  // results no step writes (zero elements)
  }

  /// The same with the time of a part.
  void steps(StepTimer& timer) {
    if (plan_.graphs) {
      timer.seconds = device_.seconds([&] { steps_or_graph(); });
      return;
    }
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
        count(Counter::Launches);
        return launch(std::span(plan_.launches).subspan(s.index, s.count));
      case Step::Kind::Library: return library_call(plan_.library[s.index]);
      case Step::Kind::Loop: return loop(plan_.loops[s.index]);
      case Step::Kind::Attention: return attention(*plan_.attentions[s.index]);
      case Step::Kind::PairSums: return pair_sums(*plan_.pair_sums[s.index]);
    }
  }

  /// The same as one graph, if these arguments came before.
  void steps_or_graph() {
    if (!plan_.graphs || traced_ || ranged_ || log_enabled(Topic::Kernel) || !plan_.argument_bytes.empty())
      return steps();
    allocate_results();
    const Hash128 key = memory_key();
    if (wrote_) *wrote_ = plan_.first_write >= 0;
    const auto set_slots = [this](PlanGraphs::Entry& e) { this->set_slots(e); };
    PlanGraphs::Answer answer = plan_.graphs->launch(key, slots_, set_slots);
    const bool recorded = answer == PlanGraphs::Answer::Capture;
    if (recorded) {
      plan_.graphs->keep(captured(key));
      answer = plan_.graphs->launch(key, slots_, set_slots);
    }
    if (answer != PlanGraphs::Answer::Launched) return steps();
    count(Counter::Graphs);
    if (recorded) return;  // which counted the steps
    for (const Step& s : plan_.steps)
      count(s.kind == Step::Kind::Launch ? Counter::Launches : Counter::LibraryCalls);
  }

  void results(std::vector<ir::Buffer*>& out) {
    out.clear();
    for (const Plan::Result& r : plan_.results) {
      if (r.place.kind != Place::Kind::Buffer) {
        out.push_back(nullptr);
        continue;
      }
      ir::Buffer*& b = buffers_[r.place.index];
      ir::retain(b);
      out.push_back(b);
    }
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

  void allocate_results() {
    for (std::size_t b = 0; b < buffers_.size(); ++b)
      if (plan_.buffers[b].result) buffers_[b] = device_.allocate(plan_.buffers[b].bytes);
  }

  /// Everything that a graph of the plan has in it, that differs between runs and cannot be set anew.
  Hash128 memory_key() const {
    auto& words = thread_own<std::vector<std::uint64_t>, Plan>();
    words.clear();
    words.push_back(device_.stream_id());
    for (const std::byte* a : args_) words.push_back(reinterpret_cast<std::uintptr_t>(a));
    if (!device_.graphs_change()) words.insert(words.end(), slots_.begin(), slots_.end());
    for (const LibraryCall& l : plan_.library) {
      for (const ArrayOperand& o : l.operands) add_moved(o.place, words);
      add_moved(l.out, words);
      for (const Place& other : l.others) add_moved(other, words);
    }
    for (const ir::Buffer* b : buffers_)
      if (b) words.push_back(reinterpret_cast<std::uintptr_t>(b->data));
    return hash128(std::span<const std::uint64_t>(words));
  }

  void add_moved(const Place& p, std::vector<std::uint64_t>& words) const {
    if (p.moved > 0) words.push_back(static_cast<std::uint64_t>(plan_.moved(p.moved, slots_)));
  }

  /// The plan as a graph over memory that stays the graph's.
  PlanGraphs::Entry captured(const Hash128& key) {
    PlanGraphs::Entry out;
    out.key = key;
    out.slots.assign(slots_.begin(), slots_.end());
    for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
      if (buffers_[b]) continue;
      out.memory.emplace_back(device_.allocate(plan_.buffers[b].bytes));
      buffers_[b] = out.memory.back().get();
      ir::retain(buffers_[b]);
      out.owned.push_back(b);
    }
    std::size_t workspace = 1;
    std::int64_t counters = 0;
    bool whole = true;
    for (const Step& s : plan_.steps) {
      if (s.kind == Step::Kind::Library) {
        const LibraryCall& l = plan_.library[s.index];
        const library::Call call = call_of(l);
        whole = whole && l.routine->is_recordable(call);
        if (whole) workspace = std::max(workspace, l.routine->workspace_bytes(call));
      } else {
        std::int64_t together = 0;
        for (std::uint32_t l = s.index; l < s.index + s.count; ++l) together += plan_.launches[l].counters;
        counters = std::max(counters, together);
      }
    }
    if (whole) {
      out.workspace.reset(device_.allocate(workspace));
      workspace_ = out.workspace->data;
      out.graph = device_.record(plan_.steps.size(), counters, [&](std::size_t i) { step(plan_.steps[i]); });
      workspace_ = nullptr;
    }
    for (std::uint32_t b : out.owned) ir::release(std::exchange(buffers_[b], nullptr));
    return out;
  }

  /// Gives the launches of a graph whose arguments depend on slots their values of this run.
  void set_slots(PlanGraphs::Entry& e) {
    const std::size_t n = e.owned.size();
    for (std::size_t i = 0; i < n; ++i) {
      buffers_[e.owned[i]] = e.memory[i].get();
      ir::retain(buffers_[e.owned[i]]);
    }
    const auto set_anew = [&](std::uint32_t slot) { return slots_[slot] != e.slots[slot]; };
    const auto moves = [&](const Place& p) {
      return p.moved > 0 &&
             std::ranges::any_of(plan_.moves[p.moved - 1], [&](const Move& m) { return set_anew(m.slot); });
    };
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& s = plan_.steps[i];
      if (s.kind != Step::Kind::Launch) continue;
      const auto launches = std::span(plan_.launches).subspan(s.index, s.count);
      const bool other = std::ranges::any_of(launches, [&](const Launch& l) {
        return std::ranges::any_of(l.slots, set_anew) || std::ranges::any_of(l.buffers, moves);
      });
      const GraphStep recorded{*e.graph, i};
      if (other) launch(launches, &recorded);
    }
    for (std::uint32_t b : e.owned) ir::release(std::exchange(buffers_[b], nullptr));
    e.slots.assign(slots_.begin(), slots_.end());
  }

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
    count(Counter::LibraryCalls);
    library::Call call = call_of(l);
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
    count(Counter::LibraryCalls);
    auto call = tile_call(step, [this](const Place& p) { return address(p); });
    call.slots = slots_;
    const HeldBuffer workspace(device_.allocate(step.routine->workspace_bytes(call)));
    const auto run = [&] { step.routine->run(call, workspace->data); };
    if (!log_enabled(Topic::Kernel)) [[likely]]
      return run();
    log_step(step, device_.seconds(run));
  }

  /// Owned memory of a loop's states, in this iteration.
  struct States {
    std::vector<ir::Buffer*> buffers;  // null: memory of somebody else
    std::vector<std::byte*> args;      // the states, then the captures
    explicit States(std::size_t n) : buffers(n, nullptr) {}
    ~States() { drop(); }
    void drop() {
      for (ir::Buffer*& b : buffers)
        if (b) ir::release(std::exchange(b, nullptr));
    }
  };

  void begin_states(const Loop& l, States& now) {
    const std::size_t counts = l.count > 0;
    if (counts) {
      now.buffers[0] = device_.allocate(sizeof(std::int64_t));
      now.args.push_back(now.buffers[0]->data);
    }
    for (std::size_t s = counts; s < l.states.size(); ++s) {
      const Loop::State& x = l.states[s];
      now.args.push_back(address(x.init));
      if (ir::is_row_major(x.dims, x.strides)) continue;
      now.buffers[s] = packed(address(x.init), x.dims, x.strides, x.dtype);
      now.args[s] = now.buffers[s]->data;
    }
    for (std::uint32_t s : l.body->donated) {  // which each iteration overwrites
      if (!now.buffers[s]) now.buffers[s] = packed(now.args[s], l.states[s].dims, {}, l.states[s].dtype);
      now.args[s] = now.buffers[s]->data;
    }
    for (const Place& p : l.captures) now.args.push_back(address(p));
  }

  void loop(const Loop& l) {
    const std::size_t n = l.states.size(), counts = l.count > 0;
    States now(n);
    begin_states(l, now);
    std::vector<ir::Buffer*> made;
    for (std::int64_t iteration = 0; l.count ? iteration < l.count : goes_on(l, now.args); ++iteration) {
      if (counts) write_count(now.args[0], iteration);
      run_plan(*l.body, now.args, slots_, made);
      keep_yields(l, iteration, now.args, made);
      States next(n);
      if (counts) {  // nothing of this iteration reads it any more
        std::swap(next.buffers[0], now.buffers[0]);
        next.args.push_back(now.args[0]);
      }
      for (std::size_t s = counts; s < n; ++s) {
        const Plan::Result& r = l.body->results[s - counts];
        const Loop::State& x = l.states[s];
        ir::Buffer* const result = made[s - counts];
        const std::byte* from = shown(*l.body, r, result, now.args, x.dtype);
        const bool whole = r.offset == 0 && r.moved == 0 && r.strides.empty();
        if (!result && whole && r.place.index == s && overwritten(*l.body, s)) {
          std::swap(next.buffers[s], now.buffers[s]);
        } else if (result && whole) {
          next.buffers[s] = result;
          ir::retain(result);
        } else {
          next.buffers[s] = packed(from, x.dims, r.strides, x.dtype);
        }
        next.args.push_back(next.buffers[s]->data);
      }
      next.args.insert(next.args.end(), now.args.begin() + static_cast<std::ptrdiff_t>(n), now.args.end());
      for (ir::Buffer* b : made)
        if (b) ir::release(b);
      std::swap(now.buffers, next.buffers);
      std::swap(now.args, next.args);
    }
    if (counts && l.states[0].result.kind != Place::Kind::None) write_count(now.args[0], l.count);
    for (std::size_t s = 0; s < n; ++s) {
      if (l.states[s].result.kind == Place::Kind::None) continue;
      ir::Buffer*& result = buffers_[l.states[s].result.index];
      if (now.buffers[s])
        std::swap(result, now.buffers[s]);
      else
        pack(now.args[s], l.states[s].dims, {}, l.states[s].dtype, result->data);
    }
  }

  static bool overwritten(const Plan& plan, std::size_t arg) {
    return std::find(plan.donated.begin(), plan.donated.end(), arg) != plan.donated.end();
  }

  /// Numbers are written in ascending order, from 0.
  void write_count(std::byte* to, std::int64_t number) const {
    device_.write_number(to, number, static_cast<std::uint32_t>(number) != 0);
  }

  /// Copies what an iteration yields to its place in the stacks.
  void keep_yields(const Loop& l, std::int64_t iteration, const std::vector<std::byte*>& args,
                   const std::vector<ir::Buffer*>& made) const {
    for (std::size_t y = 0; y < l.yields.size(); ++y) {
      const Loop::Yield& x = l.yields[y];
      if (x.stack.kind == Place::Kind::None) continue;
      const std::size_t i = l.states.size() - (l.count > 0) + y;
      const Plan::Result& r = l.body->results[i];
      const std::byte* from = shown(*l.body, r, made[i], args, x.dtype);
      std::int64_t bytes = size_of(x.dtype);
      for (std::int64_t d : x.dims) bytes *= d;
      pack(from, x.dims, r.strides, x.dtype, address(x.stack) + iteration * bytes);
    }
  }

  bool goes_on(const Loop& l, const std::vector<std::byte*>& args) const {
    std::vector<ir::Buffer*> made;
    run_plan(*l.condition, args, slots_, made);
    const Plan::Result& r = l.condition->results.front();
    const std::byte* flag = shown(*l.condition, r, made.front(), args, DType::Bool);
    const bool answer = device_.read_truth(flag);
    if (made.front()) ir::release(made.front());
    return answer;
  }

  /// A row-major copy; no strides: it is row-major already.
  ir::Buffer* packed(const std::byte* from, const std::vector<std::int64_t>& dims,
                     const std::vector<std::int64_t>& strides, DType type) const {
    const auto size = static_cast<std::size_t>(size_of(type));
    ir::Buffer* out = device_.allocate(static_cast<std::uint64_t>(ir::element_count(dims)) * size);
    pack(from, dims, strides, type, out->data);
    return out;
  }

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
  std::byte* workspace_ = nullptr;  // of library calls that are recorded
  std::vector<ir::Buffer*>& buffers_;
  std::size_t begun_ = 0, ended_ = 0;  // how far in plan_.by_first and plan_.by_last
};

}  // namespace

void run_plan(const Plan& plan, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
              std::vector<ir::Buffer*>& result_buffers, bool* wrote, StepTimer* timer) {
  Run run(plan, args, slots, wrote);
  if (timer) [[unlikely]]
    run.steps(*timer);
  else if (plan.report && plan.report->begin_run()) [[unlikely]]
    run.steps(plan.report.get());
  else
    run.steps_or_graph();
  run.results(result_buffers);
}

}  // namespace kiln::engine
