// Whether a value that is reduced and read again, as a norm's, is worth one kernel.
#include "schedule/extents.h"

#include <cmath>

namespace kiln::schedule {
namespace {

constexpr std::int64_t kBalancedWork = 1 << 18;  // elements that are read again by more kernels rather than
                                                 // by few of the threads
constexpr std::int64_t kBytesOfNorm = 4;         // of an element that several phases read
constexpr std::int64_t kFarWork = 2;  // times the second caches of all threads: comes from memory again
// elements that take less time than a launch even on few multiprocessors
constexpr std::int64_t kSmallWorkGpu = 1 << 20;
constexpr double kColumnBlocks = 3;  // blocks of columns that keep a multiprocessor's loads in flight

/// Whether a GPU reads elements twice and writes them sooner in one kernel of so many items, which may leave
/// multiprocessors without work, than in a kernel for each time. `held`: the one kernel reads them once. Rows
/// that no cache has for the second time take so long that the last round of them counts.
bool faster_together(const NormFacts& f, std::int64_t items, const Target& t) {
  const std::int64_t total = f.rows * f.length;
  const bool held = !f.columns && f.length <= t.held;
  const double bytes = 4.0 * static_cast<double>(total);
  const double at_once = t.threads * (f.columns ? kColumnBlocks : 1.0),
               rounds = static_cast<double>(items) / at_once;
  const bool cached = held || 3 * f.bytes * total <= 2 * items * t.l2_bytes;  // one and a half rows
  const double busy = f.columns || cached ? std::min(1.0, rounds) : rounds / std::ceil(rounds);
  return (held ? 2 : 4) * bytes / t.bytes_per_ns / busy <= 4 * bytes / t.bytes_per_ns + 2 * t.launch_ns;
}

/// Whether a GPU's block would read columns again that are too long for its shared memory and, of all blocks
/// together, for the second cache. In the order of rows kernels of their own read them in longer runs.
bool reads_columns_again(const NormFacts& f, const Target& t) {
  constexpr std::int64_t kMostHeld = 112 << 10, kRun = 64, kLeast = 16;  // bytes; of a row so many
  return t.gpu && f.columns && f.length * std::clamp(f.run * f.bytes, kLeast, kRun) > kMostHeld &&
         f.bytes * f.rows * f.length > t.l2_bytes * t.threads;
}

/// Whether a CPU's thread would read short runs of memory that lie far apart, and again for each phase, since
/// no cache of its own has them until then.
bool reads_short_runs_again(const NormFacts& f, const Target& t) {
  const std::int64_t total = f.rows * f.length;
  if (t.gpu || t.strict || !f.columns || kBytesOfNorm * total <= kFarWork * t.l2_bytes * t.threads)
    return false;
  const std::int64_t stripe = stripe_of(f.run, std::max<std::int64_t>(1, f.rows / f.run), t);
  const bool near = kBytesOfNorm * f.length * kNearColumns <= t.l2_bytes / 2;
  return !near && stripe < f.run && stripe < kWideStripe;
}

}  // namespace

Why refuse_norm(const NormFacts& f, const Target& target) {
  if (target.strict && strict_in_chunks(f.length, f.columns))
    return because(FusionReason::StrictChunks, f.length);
  const std::int64_t total = f.rows * f.length;
  if (total <= (target.gpu ? kSmallWorkGpu : kSmallWork)) return {};
  const char* const what = f.columns ? "column blocks" : "rows";
  const std::int64_t items =
      f.columns ? std::max<std::int64_t>(1, f.rows / (target.gpu ? 32 : target.vector_bytes / 4)) : f.rows;
  if (f.columns && !target.gpu && total > kBalancedWork) {
    const std::int64_t stripe = stripe_of(f.rows, 1, target);
    if (10 * f.rows < 7 * target.threads * stripe)
      return because(FusionReason::TooFewRows, f.rows / stripe, what, target.threads, total);
  }
  if (target.gpu ? !faster_together(f, items, target) : items < target.threads)
    return because(FusionReason::TooFewRows, items, what, target.threads, total);
  if (reads_short_runs_again(f, target) || reads_columns_again(f, target))
    return because(FusionReason::ShortRuns, f.run, f.length);
  return {};
}

}  // namespace kiln::schedule
