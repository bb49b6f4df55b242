// What the planner is told of a device: its capabilities and rates, and the numeric promises in force.
#include "device/device.h"
#include "engine/plan.h"
#include "engine/plan_maker.h"
#include "support/env.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <atomic>
#include <cstdlib>

namespace kiln::engine {
namespace {

std::atomic<bool>& templates_preferred() {
  static std::atomic<bool> on{environment_variable("KILN_TEST_TEMPLATES") != nullptr};
  return on;
}

std::atomic<std::int64_t>& rows_of_blocks() {
  static std::atomic<std::int64_t> rows{[] {
    const char* given = environment_variable("KILN_TEST_BLOCKS");
    return given ? std::atoll(given) : 0;
  }()};
  return rows;
}

std::atomic<std::int64_t>& bytes_of_caches() {
  static std::atomic<std::int64_t> bytes{[] {
    const char* given = environment_variable("KILN_TEST_CACHES");
    return given ? std::atoll(given) : 0;
  }()};
  return bytes;
}

bool& quick_planning() {
  struct Quick {
    bool on = false;
  };
  return thread_own<Quick, Quick>().on;
}

/// What the options switch off on a device of this kind.
schedule::Target::Off switched_off(Device device) {
  const Config& c = config();
  schedule::Target::Off off;
  off.all = !c.fuse;
  const std::string kind = device.str().substr(0, device.str().find(':'));
  for (const std::string& word : c.fuse_off) {
    const std::size_t colon = word.find(':');
    if (colon != word.npos && word.substr(0, colon) != kind) continue;
    const std::string what = word.substr(colon + 1);  // npos + 1 is 0
    off.norm |= what == "norm";
    off.nest |= what == "nest";
    off.siblings |= what == "siblings";
    off.recompute |= what == "recompute";
    off.epilogue |= what == "epilogue";
    off.attention |= what == "attention";
    off.blocks |= what == "blocks";
  }
  return off;
}

}  // namespace

void set_block_rows(std::int64_t rows) { rows_of_blocks().store(rows); }

std::optional<transform::BlockCosts> block_costs(const schedule::Target& target) {
  if (target.off.all || target.off.blocks) return std::nullopt;
  const bool products = target.strict || !target.attentions;
  transform::BlockCosts costs{.block_bytes = target.l2_bytes * target.threads,
                              .rows = 1024,
                              .half_rows = 1024,
                              .rows_a_term = 4,
                              .saved_bytes = 64 << 20,
                              .saved_pairs = 256 << 20,  // which are made again
                              .products = products,
                              .sums = !target.exact};
  if (target.gpu) {
    costs.sum_rows = 2048;
    costs.rows = 256;  // which multiply for as long as memory takes to give them w
    costs.block_bytes /= 2;
    costs.processors = target.threads;
    costs.saved_bytes = std::int64_t{1} << 30;  // blocks take some per cent longer there
    costs.saved_pairs = 128 << 20;
  }
  if (const std::int64_t rows = rows_of_blocks().load(std::memory_order_relaxed); rows > 0) {
    costs.rows = costs.half_rows = costs.rows_a_term = rows;
    costs.block_bytes = costs.saved_bytes = costs.saved_pairs = costs.processors = costs.sum_rows = 0;
    costs.sums = !target.exact;
  }
  return costs;
}

void set_cache_bytes(std::int64_t bytes) { bytes_of_caches().store(bytes); }

void prefer_templates(bool on) { templates_preferred().store(on); }

QuickPlanning::QuickPlanning() { quick_planning() = true; }
QuickPlanning::~QuickPlanning() { quick_planning() = false; }

const schedule::Target& planning_target(Device device) {
  struct Kept {
    const schedule::Target* of = nullptr;
    int threads = 0, vector_bytes = 0;  // a CPU's change in place
    std::int64_t caches = 0;
    schedule::Target target;
  };
  Kept& kept = thread_own<Kept, Kept>();
  const schedule::Target& t = device::at(device).target();
  const std::int64_t caches = bytes_of_caches().load(std::memory_order_relaxed);
  if (kept.of != &t || kept.threads != t.threads || kept.vector_bytes != t.vector_bytes ||
      kept.caches != caches) {
    kept = {&t, t.threads, t.vector_bytes, caches, t};
    if (caches > 0) {
      kept.target.l2_bytes = kept.target.stream_bytes = caches;
      kept.target.last_cache_bytes = 0;
      kept.target.held = std::min(t.held, caches / 8);
    }
  }
  kept.target.strict = config().strict;
  kept.target.exact = config().strict || config().deterministic;
  kept.target.tf32 = t.gpu && config().tf32 && !config().strict;
  kept.target.fuse_least = config().fuse_least;
  const schedule::Target::Off off = kept.target.off = switched_off(device);
  const bool slow = !quick_planning();
  kept.target.attentions = t.attentions && (slow || !t.gpu) && !off.attention;
  kept.target.epilogues = t.epilogues && !off.epilogue;
  const bool preferred = templates_preferred().load(std::memory_order_relaxed);
  using Templates = schedule::Target::Templates;
  kept.target.templates = t.gpu && slow && preferred ? Templates::All : t.templates;
  if (!slow && t.templates == Templates::Few) kept.target.templates = Templates::Integers;
  kept.target.pair_sums = t.pair_sums && (slow || !t.gpu) && !off.attention;
  if (off.epilogue) kept.target.templates = Templates::None;
  return kept.target;
}

}  // namespace kiln::engine
