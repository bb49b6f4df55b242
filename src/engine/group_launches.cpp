// Invariant: a step stands after every step that writes what it reads, and after every step that touches what
// it writes. A launch that joins a group moves ahead only, so that what reads its results is still behind it.
#include "engine/group_launches.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace kiln::engine {
namespace {

constexpr std::size_t kFewest = 4;  // launches that are worth a kernel of their own
constexpr std::uint64_t kMovedBytes =
    64 << 20;                       // of intermediates that a group may make earlier than they are needed
constexpr std::size_t kLooked = 8;  // groups of a kernel that are asked for room

class Grouping {
 public:
  Grouping(Plan& plan, std::span<const LaunchClass> classes)
      : plan_(plan),
        classes_(classes),
        touched_(plan.buffers.size() + arguments_of(plan), -1),
        written_(touched_) {}

  std::vector<std::uint32_t> run() {
    for (const Step& s : plan_.steps) {
      const std::int64_t at = place(s);
      each_place(plan_, s, [&](const Place& p, bool written) {
        if (p.kind == Place::Kind::None) return;
        touched_[memory(p)] = std::max(touched_[memory(p)], at);
        if (written) written_[memory(p)] = std::max(written_[memory(p)], at);
      });
    }
    return rebuild();
  }

 private:
  struct Group {
    std::vector<Step> steps;
    std::uint64_t moved_bytes = 0;
  };

  static std::size_t arguments_of(const Plan& plan) {
    std::size_t count = 0;
    for (const Step& s : plan.steps)
      each_place(plan, s, [&](const Place& p, bool) {
        if (p.kind == Place::Kind::Arg) count = std::max<std::size_t>(count, p.index + 1);
      });
    return count;
  }

  /// Buffers, then arguments: a plan may write those too.
  std::size_t memory(const Place& p) const {
    return p.kind == Place::Kind::Arg ? plan_.buffers.size() + p.index : p.index;
  }

  /// The first position where a step may stand.
  std::int64_t ready(const Step& s) const {
    std::int64_t at = 0;
    each_place(plan_, s, [&](const Place& p, bool written) {
      if (p.kind != Place::Kind::None) at = std::max(at, 1 + (written ? touched_ : written_)[memory(p)]);
    });
    return at;
  }

  std::uint64_t intermediate_bytes(const Step& s) const {
    std::uint64_t bytes = 0;
    each_place(plan_, s, [&](const Place& p, bool written) {
      if (written && p.kind == Place::Kind::Buffer && !plan_.buffers[p.index].result)
        bytes += plan_.buffers[p.index].bytes;
    });
    return bytes;
  }

  /// Puts a step into a group that there is, or into one of its own.
  std::int64_t place(const Step& s) {
    std::vector<std::int64_t>* known = nullptr;
    if (s.kind == Step::Kind::Launch && classes_[s.index].most > 1) {
      known = &groups_of_[classes_[s.index].key];
      const std::uint64_t bytes = intermediate_bytes(s);
      auto at = std::lower_bound(known->begin(), known->end(), ready(s));
      for (std::size_t looked = 0; at != known->end() && looked < kLooked; ++at, ++looked) {
        Group& g = groups_[static_cast<std::size_t>(*at)];
        if (g.steps.size() >= static_cast<std::size_t>(classes_[s.index].most) ||
            g.moved_bytes + bytes > kMovedBytes)
          continue;
        g.steps.push_back(s);
        g.moved_bytes += bytes;
        return *at;
      }
    }
    groups_.push_back({{s}});
    const auto at = static_cast<std::int64_t>(groups_.size()) - 1;
    if (known) known->push_back(at);
    return at;
  }

  std::vector<std::uint32_t> rebuild() {
    std::vector<std::uint32_t> order;
    std::vector<Launch> launches;
    plan_.steps.clear();
    for (const Group& g : groups_) {
      const bool together = g.steps.size() >= kFewest;
      for (const Step& s : g.steps) {
        Step step = s;
        if (s.kind == Step::Kind::Launch) {
          step.index = static_cast<std::uint32_t>(launches.size());
          order.push_back(s.index);
          launches.push_back(std::move(plan_.launches[s.index]));
        }
        if (together && &s != &g.steps.front())
          ++plan_.steps.back().count;
        else
          plan_.steps.push_back(step);
      }
    }
    plan_.launches = std::move(launches);
    return order;
  }

  Plan& plan_;
  std::span<const LaunchClass> classes_;
  std::vector<std::int64_t> touched_, written_;  // by memory: the last position that does it
  std::vector<Group> groups_;                    // the new order
  std::unordered_map<Hash128, std::vector<std::int64_t>, HashOf> groups_of_;
};

}  // namespace

void each_place(const Plan& plan, const Step& step, const std::function<void(const Place&, bool)>& f) {
  switch (step.kind) {
    case Step::Kind::Launch:
      for (std::uint32_t l = step.index; l < step.index + step.count; ++l)
        for (const Place& p : plan.launches[l].buffers) f(p, p.written);
      return;
    case Step::Kind::Library: {
      const LibraryCall& l = plan.library[step.index];
      for (const ArrayOperand& o : l.operands) f(o.place, false);
      f(l.out, true);
      for (const Place& other : l.others) f(other, true);
      for (const std::int32_t kernel : {l.epilogue, l.maker})
        if (kernel >= 0)
          for (const Place& p : plan.epilogues[static_cast<std::size_t>(kernel)].buffers) f(p, p.written);
      return;
    }
    case Step::Kind::Attention: {
      const AttentionStep& a = *plan.attentions[step.index];
      for (const Place* p : {&a.q, &a.k, &a.v}) f(*p, false);
      for (const Place& p : a.memory) f(p, false);
      f(a.result, true);
      for (const Place& p : a.row_results) f(p, true);
      return;
    }
    case Step::Kind::PairSums: {
      const PairSumsStep& s = *plan.pair_sums[step.index];
      for (const auto& [x, y] : s.products) f(x, false), f(y, false);
      for (const Place& p : s.others) f(p, false);
      for (const Place& p : s.memory) f(p, false);
      for (const Place& p : s.results) f(p, true);
      return;
    }
    case Step::Kind::Loop:
      for (const Loop::State& s : plan.loops[step.index].states) {
        f(s.init, false);
        f(s.result, true);
      }
      for (const Place& p : plan.loops[step.index].captures) f(p, false);
      for (const Loop::Yield& y : plan.loops[step.index].yields) f(y.stack, true);
      return;
  }
}

std::vector<std::uint32_t> group_launches(Plan& plan, std::span<const LaunchClass> classes) {
  return Grouping(plan, classes).run();
}

void set_lifetimes(Plan& plan) {
  for (Plan::BufferPlan& b : plan.buffers) b.first = b.last = -1;
  plan.first_write = -1;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    each_place(plan, plan.steps[i], [&](const Place& p, bool written) {
      if (p.kind == Place::Kind::Arg && written && plan.first_write < 0) plan.first_write = at;
      if (p.kind != Place::Kind::Buffer) return;
      Plan::BufferPlan& b = plan.buffers[p.index];
      if (b.first < 0) b.first = at;
      b.last = at;
    });
  }
  // Nothing may fail for want of memory once an argument is overwritten.
  if (plan.first_write >= 0)
    for (Plan::BufferPlan& b : plan.buffers) b.first = std::min(b.first, plan.first_write);
  plan.by_first.clear();
  plan.by_last.clear();
  for (std::uint32_t b = 0; b < plan.buffers.size(); ++b) {
    plan.by_first.push_back(b);
    if (!plan.buffers[b].result) plan.by_last.push_back(b);
  }
  const auto& buffers = plan.buffers;
  std::stable_sort(plan.by_first.begin(), plan.by_first.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return buffers[a].first < buffers[b].first; });
  std::stable_sort(plan.by_last.begin(), plan.by_last.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return buffers[a].last < buffers[b].last; });
}

std::uint64_t peak_bytes(const Plan& plan) {
  std::vector<std::uint64_t> begin(plan.steps.size() + 1), end(plan.steps.size() + 1);
  for (const Plan::BufferPlan& b : plan.buffers) {
    if (b.first < 0) continue;
    begin[static_cast<std::size_t>(b.first)] += b.bytes;
    if (!b.result) end[static_cast<std::size_t>(b.last)] += b.bytes;
  }
  std::uint64_t live = 0, peak = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    live += begin[i];
    peak = std::max(peak, live);
    live -= end[i];
  }
  return peak;
}

}  // namespace kiln::engine
