#include "inspect/compile_budget.h"

#include "inspect/plan_difference.h"
#include "support/check.h"
#include "support/log.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace kiln::engine {
namespace {

constexpr std::size_t kMostLines = 1024;  // that are counted
constexpr int kMostNamed = 5;

struct Compiles {
  int evaluations = 0, kernels = 0;
  std::uint64_t ns = 0;
  std::optional<ir::Graph> latest;  // near the end of the budget
};
struct Budget {
  std::mutex mutex;
  std::map<std::uint64_t, Compiles> lines;
  int named = 0;
};
Budget& budget() {
  static Budget* const b = new Budget;  // detached threads may evaluate during exit
  return *b;
}

std::atomic<bool> muted{false};

std::uint64_t key_of(const SourceLocation& line) {
  std::uint64_t key;
  static_assert(sizeof key == sizeof line);
  std::memcpy(&key, &line, sizeof key);
  return key;
}

std::string seconds(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g s", static_cast<double>(ns) * 1e-9);
  return text;
}

}  // namespace

bool nears_compile_budget(const SourceLocation& line) {
  Budget& b = budget();
  const std::lock_guard lock(b.mutex);
  const auto at = b.lines.find(key_of(line));
  if (at == b.lines.end() || b.named >= kMostNamed) return false;
  // The evaluation before the last one is remembered, so that the last has something to differ from.
  return at->second.evaluations == kCompileBudget - 2 || at->second.evaluations == kCompileBudget - 1;
}

FusionReport::Difference difference_of_line(const SourceLocation& line, ir::Graph graph) {
  Budget& b = budget();
  const std::lock_guard lock(b.mutex);
  const auto at = b.lines.find(key_of(line));
  if (at == b.lines.end()) return {};
  FusionReport::Difference out;
  if (at->second.latest) out = plan_difference(graph, *at->second.latest);
  at->second.latest = std::move(graph);
  return out;
}

std::string note_compiles(const SourceLocation& line, int kernels, std::uint64_t ns,
                          const FusionReport::Difference& difference) {
  if (kernels == 0 || muted.load(std::memory_order_relaxed)) return {};
  Budget& b = budget();
  int evaluations = 0, all_kernels = 0;
  std::uint64_t all_ns = 0;
  {
    const std::lock_guard lock(b.mutex);
    if (b.lines.size() >= kMostLines && !b.lines.contains(key_of(line))) return {};
    Compiles& c = b.lines[key_of(line)];
    c.kernels += kernels;
    c.ns += ns;
    if (++c.evaluations != kCompileBudget || b.named >= kMostNamed) return {};
    ++b.named;
    c.latest.reset();
    evaluations = c.evaluations;
    all_kernels = c.kernels;
    all_ns = c.ns;
  }
  std::string text =
      cat(line.file_name(), ":", line.line(), " keeps causing compiles: ", all_kernels, " kernels in ",
          evaluations, " evaluations", all_ns ? ", " + seconds(all_ns) : std::string());
  if (!difference.field.empty()) text += cat("; the latest: ", difference.text());
  text += "; KILN_EXPLAIN=1 tells of each";
  warn(text);
  return text;
}

void mute_compile_budget(bool on) { muted.store(on, std::memory_order_relaxed); }

}  // namespace kiln::engine
