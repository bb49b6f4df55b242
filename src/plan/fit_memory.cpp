// Terminates: each accepted change lowers the sum of what is above the budget, and attempts are counted.
#include "plan/fit_memory.h"

#include "ir/op.h"
#include "plan/recompute.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>

namespace kiln::plan {
namespace {

constexpr std::size_t kMostRuns = 3;        // of a region, on average
constexpr std::size_t kMostWork = 1 << 20;  // runs that are looked at while single changes are tried
constexpr int kMostDepth = 12;              // regions that run again for one another
constexpr double kAgainWeight =
    1.0 / 16;  // of a position that a change adds: else adding it would look like a loss

/// A value in one piece of memory, from the run that makes it to its last reader.
struct Value {
  NodeId node;
  int begin, end;
  std::vector<int> reads;  // positions in the list of runs, ascending
};

/// What a list of runs needs.
struct Model {
  std::vector<Value> values;
  std::vector<std::vector<std::uint32_t>> of_node;  // by the beginning
  std::vector<int> over;                            // over[k]: positions before k that are above the budget
  std::int64_t peak = 0;
  int peak_at = 0;
  double excess = 0;  // bytes above the budget, summed over the positions

  int over_between(int after, int before) const {  // both excluded
    return before - after < 2
               ? 0
               : over[static_cast<std::size_t>(before)] - over[static_cast<std::size_t>(after) + 1];
  }
};

class Fitter {
 public:
  Fitter(const Graph& g, const Regions& regions, const schedule::Target& target, std::int64_t budget,
         const MemoryNeeds& needs)
      : regions_(regions),
        budget_(budget),
        needs_(needs),
        reads_(reads_of(g, regions)),
        maker_(g.size(), -1) {
    for (std::size_t r = 0; r < regions.regions.size(); ++r) {
      for (const NodeId n : regions.regions[r].outputs) maker_[n] = static_cast<int>(r);
      cost_.push_back(cost_of(g, target, regions.regions[r], reads_[r]));
    }
  }

  /// Of the plans within the budget the fastest; if there is none, the smallest.
  Runs run() {
    List plain;
    for (std::uint32_t r = 0; r < regions_.regions.size(); ++r) plain.runs.push_back({r});
    look_at(plain);
    if (plain.model.excess == 0) return {std::move(plain.runs), plain.model.peak};
    List first = freeing_first(needs_.once);
    if (!is_better(first, plain)) first = std::move(plain);
    if (first.model.excess == 0) return {std::move(first.runs), first.model.peak};
    List best = first;
    const auto offer = [&](List list) {
      improve(list);
      if (is_better(list, best)) best = std::move(list);
    };
    offer(first);
    offer(in_segments(first));
    return {std::move(best.runs), best.model.peak};
  }

  /// Each region once; in another order than theirs where that lowers the peak by a part of it, unless
  /// `cached` bytes hold everything.
  Runs order(std::int64_t cached) {
    constexpr std::int64_t kPart = 16, kMuch = 64, kOfValue = 2;
    List plain;
    for (std::uint32_t r = 0; r < regions_.regions.size(); ++r) plain.runs.push_back({r});
    look_at(plain);
    if (plain.model.peak <= cached) return {std::move(plain.runs), plain.model.peak};
    // In a deep network every value is a small part of the peak.
    const std::int64_t greatest = std::ranges::max(needs_.bytes);
    List first = freeing_first(needs_.fixed, std::min(plain.model.peak / kMuch, greatest / kOfValue));
    const bool lower = first.model.peak < plain.model.peak - plain.model.peak / kPart;
    List& best = lower ? first : plain;
    return {std::move(best.runs), best.model.peak};
  }

 private:
  /// An order of runs, and what it needs.
  struct List {
    std::vector<RegionRun> runs;
    Model model;
    double ns = 0;  // of what runs again
  };
  void look_at(List& list) const {
    list.model = model(list.runs);
    list.ns = 0;
    for (const RegionRun& run : list.runs) list.ns += run.again ? cost_[run.region] : 0;
  }

  static bool is_better(const List& a, const List& b) {
    const auto above = [](const List& list) { return list.model.excess > 0 ? list.model.peak : 0; };
    return std::pair(above(a), a.ns) < std::pair(above(b), b.ns);
  }

  /// Each region once, and as early as it can those that free more than they take, the most first: the
  /// gradient of a weight, which ends the lives of what it is made of. What is fixed keeps its place among
  /// the others.
  List freeing_first(const std::vector<bool>& fixed, std::int64_t least = 0) const {
    const auto count = static_cast<std::uint32_t>(regions_.regions.size());
    std::vector<std::vector<std::uint32_t>> readers(maker_.size());
    std::vector<std::size_t> unread(maker_.size(), 0), waits(count, 0);  // readers to come; operands to come
    for (std::uint32_t r = 0; r < count; ++r)
      for (const NodeId n : reads_[r]) {
        if (maker_[n] < 0) continue;
        readers[n].push_back(r);
        ++unread[n];
        ++waits[r];
      }
    const auto frees = [&](std::uint32_t r) {
      std::int64_t bytes = 0;
      for (const NodeId n : reads_[r])
        if (maker_[n] >= 0 && !is_kept(n) && unread[n] == 1) bytes += needs_.bytes[n];
      for (const NodeId n : regions_.regions[r].outputs) bytes -= needs_.bytes[n];
      return bytes < least ? 0 : std::max<std::int64_t>(bytes, 0);
    };
    using Entry = std::pair<std::int64_t, std::int64_t>;  // bytes, and the region, negative: the first wins
    List out;
    std::vector<bool> done(count);
    for (std::uint32_t begin = 0; begin < count;) {
      std::uint32_t end = begin;
      while (end < count && !fixed[end]) ++end;
      end = std::max(end, begin + 1);
      std::priority_queue<Entry> ready;
      const auto offer = [&](std::uint32_t r) {
        if (r >= begin && r < end && waits[r] == 0 && !done[r]) ready.emplace(frees(r), -std::int64_t{r});
      };
      for (std::uint32_t r = begin; r < end; ++r) offer(r);
      while (!ready.empty()) {
        const auto r = static_cast<std::uint32_t>(-ready.top().second);
        ready.pop();
        if (done[r]) continue;  // offered again when it came to free more
        done[r] = true;
        out.runs.push_back({r});
        for (const NodeId n : reads_[r]) {
          if (maker_[n] < 0 || --unread[n] != 1) continue;
          for (const std::uint32_t last : readers[n]) offer(last);
        }
        for (const NodeId n : regions_.regions[r].outputs)
          for (const std::uint32_t reader : readers[n]) {
            --waits[reader];
            offer(reader);
          }
      }
      begin = end;
    }
    look_at(out);
    return out;
  }

  /// Regions that run again right before a position, in their order.
  struct Choice {
    int before;
    std::vector<std::uint32_t> regions;
    double gain;  // byte-positions freed a nanosecond
  };

  static double cost_of(const Graph& g, const schedule::Target& target, const Region& r,
                        const std::vector<NodeId>& reads) {
    double bytes = 0, operations = 0;
    for (const auto* list : {&reads, &r.outputs})
      for (const NodeId n : *list) bytes += static_cast<double>(g[n].numel * size_of(g[n].dtype));
    for (const NodeId n : r.nodes) {
      const bool contracts =
          ir::info(g[n].op).kind == ir::OpKind::Contraction && g[g[n].in[0]].dims.size() > 0;
      operations +=
          static_cast<double>(g[n].numel) * (contracts ? static_cast<double>(g[g[n].in[0]].dims.back())
                                                       : target.cost_of(static_cast<int>(g[n].op)));
    }
    return target.launch_ns + target.traffic_ns(bytes) + operations / target.prims_per_ns;
  }

  bool is_kept(NodeId n) const { return needs_.kept[n] || needs_.bytes[n] == 0; }
  std::int64_t bytes(const Value& v) const { return needs_.bytes[v.node]; }

  Model model(const std::vector<RegionRun>& runs) const {
    Model m;
    m.of_node.resize(maker_.size());
    std::vector<std::int64_t> change(runs.size() + 1, 0);
    const auto position = [](std::size_t k) { return static_cast<int>(k); };
    for (std::size_t k = 0; k < runs.size(); ++k) {
      for (const NodeId n : reads_[runs[k].region]) {
        if (m.of_node[n].empty()) continue;
        Value& v = m.values[m.of_node[n].back()];
        v.reads.push_back(position(k));
        v.end = std::max(v.end, position(k));
      }
      for (const NodeId n : regions_.regions[runs[k].region].outputs) {
        if (runs[k].again && is_kept(n)) {  // goes to memory that nobody reads
          change[k] += needs_.bytes[n];
          change[k + 1] -= needs_.bytes[n];
          continue;
        }
        m.of_node[n].push_back(static_cast<std::uint32_t>(m.values.size()));
        m.values.push_back({n, position(k), is_kept(n) ? position(runs.size()) - 1 : position(k), {}});
      }
    }
    for (const Value& v : m.values) {
      change[static_cast<std::size_t>(v.begin)] += bytes(v);
      change[static_cast<std::size_t>(v.end) + 1] -= bytes(v);
    }
    m.over.assign(1, 0);
    std::int64_t live = 0;
    for (std::size_t k = 0; k < runs.size(); ++k) {
      live += change[k];
      if (live > m.peak) m.peak = live, m.peak_at = static_cast<int>(k);
      m.over.push_back(m.over.back() + (live > budget_));
      m.excess +=
          static_cast<double>(std::max<std::int64_t>(live - budget_, 0)) * (runs[k].again ? kAgainWeight : 1);
    }
    return m;
  }

  const Value* value_at(const Model& m, NodeId n, int before) const {
    const Value* found = nullptr;
    for (const std::uint32_t i : m.of_node[n])
      if (m.values[i].begin < before) found = &m.values[i];
    return found;
  }

  /// Adds a region and those that have to run for it. `price`: byte-positions for which what it reads lives
  /// on. False: it cannot run here.
  bool add(const Model& m, int region, int before, int depth, std::vector<std::uint32_t>& list,
           double& price) const {
    const auto r = static_cast<std::uint32_t>(region);
    if (std::ranges::find(list, r) != list.end()) return true;
    if (needs_.once[r] || depth == 0) return false;
    std::int64_t made = 0;
    for (const NodeId n : regions_.regions[r].outputs) made += needs_.bytes[n];
    for (const NodeId n : reads_[r]) {
      if (maker_[n] < 0 || is_kept(n)) continue;  // an argument
      const Value* v = value_at(m, n, before);
      if (v == nullptr) return false;
      if (v->end >= before) continue;
      const std::size_t size = list.size();
      const double paid = price;
      const bool small = bytes(*v) * 4 <= made;
      if (small || !add(m, maker_[n], before, depth - 1, list, price)) {
        list.resize(size);
        price = paid + static_cast<double>(bytes(*v)) * m.over_between(v->end, before);
      }
    }
    list.push_back(r);
    return true;
  }

  /// All places where a value lies idle while the plan is above its budget.
  std::vector<Choice> choices(const Model& m) const {
    std::map<std::pair<int, int>, double> freed;  // by region and position
    for (const Value& v : m.values) {
      if (is_kept(v.node) || needs_.once[static_cast<std::size_t>(maker_[v.node])]) continue;
      int before = v.begin;
      for (const int read : v.reads) {
        if (const int over = m.over_between(before, read); over > 0)
          freed[{maker_[v.node], read}] += static_cast<double>(bytes(v)) * over;
        before = read;
      }
    }
    std::vector<Choice> out;
    for (const auto& [at, bytes] : freed) {
      Choice c{at.second, {}, 0};
      double price = 0, ns = 0;
      if (!add(m, at.first, at.second, kMostDepth, c.regions, price) || price >= bytes) continue;
      for (const std::uint32_t r : c.regions) ns += cost_[r];
      c.gain = (bytes - price) / ns;
      out.push_back(std::move(c));
    }
    std::ranges::stable_sort(out, std::greater(), &Choice::gain);
    return out;
  }

  static void insert(std::vector<RegionRun>& runs, int before, const std::vector<std::uint32_t>& regions) {
    std::vector<RegionRun> again;
    for (const std::uint32_t r : regions) again.push_back({r, true});
    runs.insert(runs.begin() + before, again.begin(), again.end());
  }

  /// Makes changes that lower the excess, one by one, as long as there are any and time for them.
  void improve(List& list) const {
    std::size_t attempts = kMostWork / regions_.regions.size() + 16;
    bool better = true;
    while (better && list.model.excess > 0 && list.runs.size() < kMostRuns * regions_.regions.size()) {
      better = false;
      for (const Choice& c : choices(list.model)) {
        if (attempts-- == 0) return;
        List next{list.runs, {}, 0};
        insert(next.runs, c.before, c.regions);
        look_at(next);
        better = next.model.excess < list.model.excess;
        if (!better) continue;
        list = std::move(next);
        break;
      }
    }
  }

  /// Regions one after the other in front of the peak: values that are made and read there, but for readers
  /// behind the peak, are given up, and made again together before the first of those. Values that later
  /// segments read stay, so that these can run again from them (Chen et al., "Training deep nets with
  /// sublinear memory cost", 2016).
  struct Segment {
    int first, end;                      // positions
    int before = 0;                      // where it runs again
    std::vector<std::uint32_t> regions;  // that do
  };

  std::vector<Segment> segments(const List& list, std::int64_t most) const {
    const Model& m = list.model;
    std::vector<int> place(list.runs.size());  // of a region
    for (std::size_t k = 0; k < list.runs.size(); ++k) place[list.runs[k].region] = static_cast<int>(k);
    std::vector<Segment> out;
    std::vector<const Value*> saved;
    std::int64_t taken = 0;
    int first = 0;
    for (int k = 0; k < m.peak_at; ++k) {
      for (const NodeId n : regions_.regions[region_at(list, k)].outputs)
        if (const Value& v = m.values[m.of_node[n].front()]; !is_kept(n) && v.end > m.peak_at) {
          saved.push_back(&v);
          taken += bytes(v);
        }
      if (taken < most && k + 1 < m.peak_at) continue;
      Segment s{first, k + 1, std::numeric_limits<int>::max(), {}};
      give_up(list, place, saved, s);
      if (!s.regions.empty()) out.push_back(std::move(s));
      saved.clear();
      taken = 0;
      first = k + 1;
    }
    return out;
  }

  static std::uint32_t region_at(const List& list, int position) {
    return list.runs[static_cast<std::size_t>(position)].region;
  }

  /// Which regions of a segment run again, and where.
  void give_up(const List& list, const std::vector<int>& place, const std::vector<const Value*>& saved,
               Segment& s) const {
    const Model& m = list.model;
    std::vector<bool> again(static_cast<std::size_t>(s.end - s.first));
    const auto inside = [&](NodeId n) {  // -1: made elsewhere
      const int at = maker_[n] < 0 ? -1 : place[static_cast<std::size_t>(maker_[n])];
      return at < s.first || at >= s.end ? -1 : at - s.first;
    };
    const auto mark = [&](NodeId n) {
      if (inside(n) >= 0 && !needs_.once[static_cast<std::size_t>(maker_[n])])
        again[static_cast<std::size_t>(inside(n))] = true;
    };
    std::vector<bool> given_up(again.size());  // by maker
    for (const Value* v : saved) {
      const auto late = std::ranges::upper_bound(v->reads, m.peak_at);
      const bool local = late == v->reads.begin() || *(late - 1) < s.end;
      if (!local || late == v->reads.end()) continue;
      mark(v->node);
      given_up[static_cast<std::size_t>(v->begin - s.first)] = true;
      s.before = std::min(s.before, *late);
    }
    for (int k = s.end - 1; k >= s.first; --k) {
      if (!again[static_cast<std::size_t>(k - s.first)]) continue;
      for (const NodeId n : reads_[region_at(list, k)]) {
        if (maker_[n] < 0 || is_kept(n)) continue;
        const bool there = m.values[m.of_node[n].front()].end >= s.before;
        const int at = inside(n);
        if (!there || (at >= 0 && given_up[static_cast<std::size_t>(at)])) mark(n);
      }
    }
    for (int k = s.first; k < s.end; ++k)
      if (again[static_cast<std::size_t>(k - s.first)]) s.regions.push_back(region_at(list, k));
  }

  List with_segments(const List& plain, std::vector<Segment> list, std::size_t count) const {
    list.resize(count);
    std::ranges::stable_sort(list, std::greater(), &Segment::before);
    List out{plain.runs, {}, 0};
    for (const Segment& s : list) insert(out.runs, s.before, s.regions);
    look_at(out);
    return out;
  }

  /// The best segments of one size, as few of them as it takes: the first values wait longest.
  List in_segments(const List& plain) const {
    const Model& m = plain.model;
    std::int64_t all = 0;
    for (const Value& v : m.values)
      if (v.begin < m.peak_at && v.end > m.peak_at) all += bytes(v);
    List best = plain;
    for (double parts = 2; parts <= 4096 && parts <= 2 * static_cast<double>(plain.runs.size());
         parts *= 1.5) {
      const std::vector<Segment> list =
          segments(plain, static_cast<std::int64_t>(static_cast<double>(all) / parts));
      List next = with_segments(plain, list, list.size());
      if (next.model.excess == 0) {
        std::size_t low = 0, high = list.size();  // high are enough
        while (low + 1 < high) {
          const std::size_t middle = (low + high) / 2;
          List fewer = with_segments(plain, list, middle);
          if (fewer.model.excess > 0) {
            low = middle;
          } else {
            high = middle;
            next = std::move(fewer);
          }
        }
      }
      if (is_better(next, best)) best = std::move(next);
    }
    return best;
  }

  const Regions& regions_;
  std::int64_t budget_;
  const MemoryNeeds& needs_;
  std::vector<std::vector<NodeId>> reads_;  // by region: stored nodes and leaves
  std::vector<int> maker_;                  // by node: the region that stores it, or -1
  std::vector<double> cost_;                // by region: nanoseconds
};

}  // namespace

Runs order_by_memory(const Graph& graph, const Regions& regions, const schedule::Target& target,
                     const MemoryNeeds& needs) {
  return Fitter(graph, regions, target, 0, needs).order(target.gpu ? 0 : target.l2_bytes * target.threads);
}

Runs fit_memory(const Graph& graph, const Regions& regions, const schedule::Target& target,
                std::int64_t budget, const MemoryNeeds& needs) {
  return Fitter(graph, regions, target, budget, needs).run();
}

}  // namespace kiln::plan
