#include "bench_random.h"

#include "bench_adapt.h"
#include "progress.h"
#include "random_program.h"
#include "random_report.h"

#include <kiln/report.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>

namespace kiln::tool {
namespace {

constexpr std::int64_t kLeastElements = 64, kMostElements = std::int64_t{1} << 30;
constexpr int kMostIndices = 1 << 20;  // searched for programs of one family
constexpr int kProgramsACache = 64;    // plans, kernels and freed memory are dropped after so many programs

std::vector<RandomProgram> drawn(const RandomOptions& o, std::int64_t elements) {
  if (o.only >= 0) return {draw(o.seed, o.only, elements, o.family)};
  std::vector<RandomProgram> out;
  for (int i = 0; static_cast<int>(out.size()) < o.count && i < kMostIndices; ++i)
    if (RandomProgram p = draw(o.seed, i, elements, o.family); o.family.empty() || p.family == o.family)
      out.push_back(std::move(p));
  return out;
}

std::int64_t elements_of(const RandomOptions& o, std::int64_t otherwise) {
  return o.elements ? o.elements : otherwise;
}

class ConfigScope {
 public:
  explicit ConfigScope(const std::function<void(Config&)>& change) : before_(config()) {
    Config c = before_;
    change(c);
    configure(c);
  }
  ~ConfigScope() { configure(before_); }
  ConfigScope(const ConfigScope&) = delete;
  ConfigScope& operator=(const ConfigScope&) = delete;

 private:
  const Config before_;
};

/// The bytes of the best legal plan on this chip.
double least_bytes(const RandomProgram& p, const Chip& chip) {
  double bytes = p.input_bytes + p.output_bytes;
  if (p.slab_bytes > chip.slab_bytes) bytes += p.again_bytes;
  if (p.rows.count == 0) return bytes;
  // A row that is met anew is read by whole lines, wherever it begins.
  const double size = p.rows.row_bytes, whole_lines = std::floor(size / chip.line_bytes) * chip.line_bytes;
  const double a_row = size == whole_lines ? size : whole_lines + chip.line_bytes;
  const double cached = std::min(1.0, chip.cache_bytes / std::max(p.rows.table_bytes, 1.0));
  const double missed = p.rows.count * (1 - cached) * a_row;
  if (p.rows.in_inputs)
    return bytes - p.rows.table_bytes + missed + cached * std::min(p.rows.table_bytes, p.rows.count * a_row);
  // Inputs and outputs count the table once each; what the cache holds of it moves no more often.
  return bytes + p.rows.moved * (missed - p.rows.table_bytes * (1 - cached));
}

/// Bytes of the stretches of `least` bytes that a row has a part of, wherever it begins among rows of its
/// size.
double touched(double row_bytes, double least) {
  const double apart = std::gcd(static_cast<std::int64_t>(row_bytes), static_cast<std::int64_t>(least));
  return row_bytes + least - apart;
}

/// Milliseconds that rows take which are read at random places of the cache that all units share. A table
/// that each unit holds itself has no such bound.
double reads_ms(const RandomProgram::Rows& r, const Chip& chip) {
  constexpr double kSector = 32;  // bytes
  return r.table_bytes <= chip.own_bytes ? 0 : r.count * chip.read.of(touched(r.row_bytes, kSector));
}

/// Milliseconds that additions to rows take: in the cache that all units share, where the bytes take
/// `copy_ms`; or after values have been ordered by row, by the cheaper of moving them, which are read and
/// written once more beside the numbers of their rows, and of counting and listing the numbers, by which
/// values are read in whole lines then.
double sums_ms(const RandomProgram& p, const Chip& chip, double copy_ms, double byte_ms) {
  constexpr double kNumber = 2, kListed = 16;  // bytes
  const RandomProgram::Rows& r = p.rows;
  const double sums = r.table_bytes / r.row_bytes * r.sum_bytes,
               streamed = byte_ms * (p.input_bytes + p.output_bytes);
  if (sums <= chip.own_bytes) return streamed;
  const double moved = 2 * (kNumber + r.row_bytes),
               listed = kListed + touched(r.row_bytes, chip.line_bytes) - r.row_bytes;
  return std::min(streamed + byte_ms * r.count * std::min(moved, listed),
                  std::max(copy_ms, r.count * chip.add.of(r.sum_bytes)));
}

/// Milliseconds that memory takes; `byte_ms`: of a copy.
double memory_ms(const RandomProgram& p, const Chip& chip, double byte_ms) {
  const double copy_ms = byte_ms * least_bytes(p, chip);
  if (p.rows.count == 0 || chip.own_bytes == 0) return copy_ms;
  if (p.rows.sum_bytes > 0) return sums_ms(p, chip, copy_ms, byte_ms);
  return std::max(copy_ms, reads_ms(p.rows, chip));
}

/// Milliseconds that the instructions take at the rates of the card, as float32 additions. Minima and maxima
/// have a pipe of their own on a GPU, beside which the others run, and so have exponentials. Matrix units may
/// take a product of float64.
double arithmetic_ms(const RandomProgram& p, const Chip& chip) {
  const double all = p.products + p.instructions * (p.doubles ? chip.doubled : 1),
               extremes = p.extremes * (p.doubles ? chip.doubled_extreme : chip.extreme),
               functions = p.functions * (p.doubles ? chip.doubled_function : chip.function);
  return std::max({all, extremes, functions}) / chip.per_ms;
}

/// By turns, the least of each.
void time_apart(const Program& program, const BenchDevice& device, RandomRow& row) {
  constexpr int kTurns = 3;
  const auto least = [&](double& ms) {
    run(program);
    wait_for_compiles();
    const double now = device.time(program).median;
    ms = ms == 0 ? now : std::min(ms, now);
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    least(row.together_ms);
    const ConfigScope apart([](Config& c) { c.fuse_off = {"epilogue", "attention", "blocks"}; });
    least(row.apart_ms);
  }
}

RandomRow measured(const RandomProgram& p, BenchDevice& device, const RandomOptions& o) {
  RandomRow row{.program = p};
  const std::vector<Tensor> inputs = make_inputs(p);
  Program program;
  program.record = [&] { return record(p, inputs); };
  const std::uint64_t fallbacks = statistics().fallbacks;
  run(program);
  wait_for_compiles();
  const Statistics before = statistics();
  run(program);
  const Statistics after = statistics();
  device.wait();
  row.kernels = after.launches - before.launches + after.library_calls - before.library_calls;
  row.fell_back = after.fallbacks != fallbacks;
  const double footprint = p.input_bytes + p.output_bytes;
  const auto [timing, copy_ms] = device.time_beside_copy(program, footprint);
  row.timing = timing;
  row.copy_ms = copy_ms;
  const Chip& chip = device.chip();
  row.least_bytes = least_bytes(p, chip);
  row.floor_ms = std::max({memory_ms(p, chip, copy_ms / footprint), arithmetic_ms(p, chip), chip.launch_ms});
  if (o.apart) time_apart(program, device, row);
  if (o.adapt) {
    row.adapted = adapt(program, device);
    row.adapted.first_ratio = row.ratio();
  }
  return row;
}

/// Whether nothing more can run after a failure.
bool is_lost(BenchDevice& device) {
  try {
    device.wait();
    return false;
  } catch (const DeviceError&) {
    return true;
  }
}

/// Kernels and boundaries as KILN_EXPLAIN has them and the loops of each kernel, from one more evaluation.
void explain(RandomRow& row) {
  const Explanation explanation;
  const ConfigScope scope([&](Config& c) { explanation.ask(c); });
  clear_memory_caches();
  const std::vector<Tensor> inputs = make_inputs(row.program);
  eval(record(row.program, inputs));
  wait_for_compiles();
  row.explanation = explanation.read();
}

}  // namespace

void validate(const RandomOptions& o) {
  if (!o.family.empty() && std::ranges::find(random_families(), o.family) == random_families().end()) {
    std::string names;
    for (const std::string& name : random_families()) names += " " + name;
    throw UserError("[bench] --family " + o.family + ": there are" + names);
  }
  if (o.elements && (o.elements < kLeastElements || o.elements > kMostElements))
    throw UserError("[bench] --elements " + std::to_string(o.elements) + ": 64 to 2^30");
}

void list_random(const RandomOptions& o) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a of all text: equal on every machine
  const std::vector<RandomProgram> programs = drawn(o, elements_of(o, std::int64_t{1} << 23));
  for (const RandomProgram& p : programs) {
    const std::string text = to_text(p);
    std::printf("# %d %s\n%s\n", p.index, p.family.c_str(), text.c_str());
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::printf("%zu programs, hash %016llx\n", programs.size(), static_cast<unsigned long long>(hash));
}

void check_random(const RandomOptions& o) {
  const std::vector<RandomProgram> programs = drawn(o, elements_of(o, 1 << 12));
  const Progress progress(programs.size());
  int wrong = 0;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const RandomProgram& p = programs[i];
    progress.at(i, p.family);
    std::string difference;
    try {
      difference = difference_from_oracle(p);
    } catch (const Error& e) {
      difference = e.what();
    }
    if (i % kProgramsACache == kProgramsACache - 1) clear_memory_caches();
    if (difference.empty()) continue;
    ++wrong;
    std::printf("# %d %s: %s\n%s\n", p.index, p.family.c_str(), difference.c_str(), to_text(p).c_str());
  }
  std::printf("%zu programs, %d differ from the oracle\n", programs.size(), wrong);
  if (wrong) throw Error("[bench] " + std::to_string(wrong) + " random programs differ from the oracle");
}

void bench_random(BenchDevice& device, const RandomOptions& o) {
  const ConfigScope compiled([&](Config& c) {
    c.tier = Tier::Jit;
    if (o.adapt) c.adapt = Adapt::Off;
  });
  const std::int64_t elements = elements_of(o, std::int64_t{1} << (device.name() == "cpu" ? 23 : 26));
  const std::vector<RandomProgram> programs = drawn(o, elements);
  std::vector<RandomRow> rows;
  bool lost = false;  // the device: what was measured before is still reported
  {
    const Progress progress(programs.size());
    for (std::size_t i = 0; i < programs.size() && !lost; ++i) {
      progress.at(i, programs[i].family);
      try {
        rows.push_back(measured(programs[i], device, o));
      } catch (const Error& e) {
        lost = is_lost(device);
        rows.push_back({.program = programs[i], .failure = e.what()});
      }
      if (i % kProgramsACache == kProgramsACache - 1 && !lost) {
        if (!o.adapt) clear_memory_caches();  // with what adaptive mode has found
        device.trim();
      }
    }
  }
  if (!o.adapt && !lost)
    for (RandomRow* row : worst_of(rows, kExplained)) explain(*row);
  std::fputs(random_text(rows, device, o.seed, elements).c_str(), stdout);
  if (o.adapt) {
    std::vector<Adapted> all;
    for (const RandomRow& r : rows) all.push_back(r.adapted);
    std::fputs(adapt_text(all).c_str(), stdout);
  }
  if (!o.json.empty()) {
    std::ofstream out(o.json);
    out << random_json(rows, device, o.seed, elements);
    if (!out.flush()) throw UserError("[bench] cannot write " + o.json);
  }
  const auto failed = std::ranges::count_if(rows, [](const RandomRow& r) { return !r.failure.empty(); });
  if (failed) throw Error("[bench] " + std::to_string(failed) + " random programs failed");
}

}  // namespace kiln::tool
