// The table of KILN_ variables and everything that is read off it: parsing, help, the rows of `kiln env`.
//
// Invariant: for every Config c that `parse` can produce, parsing each row's `show(c)` gives c again.
// `configure` relies on it to check and normalise options set in code by the rules of the environment. This
// file must not print and must not keep state.
#include "support/env.h"

#include "support/check.h"
#include "support/edit_distance.h"
#include "support/pattern.h"
#include "support/trace_option.h"

#include <kiln/error.h>

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>

namespace kiln {
namespace {

using Words = std::span<const std::string_view>;

/// "a, b or c"
std::string alternatives(Words words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma) out.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

/// One value on its way into a Config; knows how to complain about itself.
struct Value {
  std::string_view name, text;

  [[noreturn]] void fail(std::string_view why) const {
    throw UserError(cat("[config] ", name, "=", printable(text), ": ", why));
  }
  [[noreturn]] void expected(Words words, std::string_view bad) const {
    fail(cat("expected ", alternatives(words), "; did you mean '", nearest(bad, words), "'?"));
  }
  std::size_t choice(Words words) const { return choice(words, text); }
  std::size_t choice(Words words, std::string_view word) const {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) expected(words, word);
    return static_cast<std::size_t>(found - words.begin());
  }
  std::vector<std::string> list(Words words) const {
    std::vector<std::string> out;
    for (std::string_view word : split(text)) {
      choice(words, word);
      if (std::find(out.begin(), out.end(), word) == out.end()) out.emplace_back(word);
    }
    return out;
  }
  std::uint64_t number(std::string_view digits, std::uint64_t least, std::uint64_t most,
                       std::string_view what) const {
    std::uint64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (whole && n >= least && n <= most) return n;
    const bool is_number = end != digits.data() && end == digits.data() + digits.size();
    fail(is_number ? cat("expected ", what, "; did you mean '", n < least && whole ? least : most, "'?")
                   : cat("expected ", what));
  }
};

constexpr std::array<std::string_view, 3> kModes{"lazy", "eager", "interpret"};
constexpr std::array<std::string_view, 3> kTiers{"auto", "jit", "vm"};
constexpr std::string_view kDevices[] = {
#define KILN_DEVICE(Name, name, library) #name,
#define KILN_DEVICES(Name, name, most, library) #name,
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
};
/// Whether devices of a kind have numbers.
constexpr bool kNumbered[] = {
#define KILN_DEVICE(Name, name, library) false,
#define KILN_DEVICES(Name, name, most, library) true,
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
};
/// "cpu|cuda[:N]"
constexpr std::string_view kDeviceValues = std::string_view(
#define KILN_DEVICE(Name, name, library) "|" #name
#define KILN_DEVICES(Name, name, most, library) "|" #name "[:N]"
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
                                               )
                                               .substr(1);
constexpr std::array<std::string_view, 6> kTopics{"trace", "plan", "kernel", "cache", "memory", "all"};
constexpr std::array<std::string_view, 9> kStages{"graph", "kernel", "vm",   "ll", "asm",
                                                  "cu",    "ptx",    "sass", "run"};
constexpr std::array<std::string_view, 4> kChecks{"nan", "diff", "key", "bounds"};
constexpr std::array<std::string_view, 3> kCaches{"off", "ro", "rw"};
constexpr std::array<std::string_view, 4> kCpus{"native", "sse4.2", "avx2", "avx512"};
constexpr std::array<std::string_view, 2> kSwitch{"0", "1"};
constexpr std::array<std::string_view, 4> kAdapts{"0", "1", "kept", "tune"};
constexpr bool Config::* kCheckFlags[] = {&Config::check_nan, &Config::check_diff, &Config::check_key,
                                          &Config::check_bounds};
static_assert(std::size(kCheckFlags) == kChecks.size());
static_assert(static_cast<std::size_t>(Mode::Interpret) == kModes.size() - 1);
static_assert(static_cast<std::size_t>(Tier::Vm) == kTiers.size() - 1);
static_assert(static_cast<std::size_t>(Adapt::Tune) == kAdapts.size() - 1);

void parse_device(const Value& v, Config& c) {
  const std::string_view kind = v.text.substr(0, v.text.find(':'));
  const std::size_t device = v.choice(kDevices, kind);
  if (kind.size() < v.text.size()) {
    if (!kNumbered[device]) v.fail(cat("the ", kind, " has no number; did you mean '", kind, "'?"));
    const std::string_view number = v.text.substr(kind.size() + 1);
    v.number(number, 0, 1023, cat(kind, "[:N], N from 0 to 1023"));
  }
  c.device = v.text;
}

void parse_null_target(const Value& v, Config& c) {
  constexpr std::string_view kPrefix = "sm_",
                             kExpected = "sm_ and a compute capability from 70 to 999 (sm_90)";
  if (!v.text.starts_with(kPrefix)) v.fail(cat("expected ", kExpected));
  v.number(v.text.substr(kPrefix.size()), 70, 999, kExpected);
  c.null_target = v.text;
}

void parse_dump_filter(const Value& v, Config& c) {
  if (const Pattern pattern(v.text); !pattern.error().empty())
    v.fail(cat("expected an extended regular expression (POSIX): ", pattern.error()));
  c.dump_filter = v.text;
}

constexpr std::string_view kJson = ".json";

void parse_explain(const Value& v, Config& c) {
  const bool file = v.text.size() > kJson.size() && (v.text.ends_with(kJson) || v.text.ends_with(".html"));
  if (v.text != "0" && v.text != "1" && !file)
    v.fail("expected 1 or a file name that ends in .json or .html; did you mean '1'?");
  c.explain = v.text == "0" ? "" : v.text;
}

constexpr std::string_view kFusions[] = {"norm",     "nest",      "siblings", "recompute",
                                         "epilogue", "attention", "blocks"};

constexpr std::string_view kOfProgram = "user.";  // and the name of a pattern, which the program makes later

/// Words of kFusions, or user.NAME, perhaps behind a device and a colon.
void parse_fuse_off(const Value& v, Config& c) {
  c.fuse_off.clear();
  for (const std::string_view word : split(v.text)) {
    const std::size_t colon = word.find(':');
    if (colon != word.npos) v.choice(kDevices, word.substr(0, colon));
    const std::string_view pattern = colon == word.npos ? word : word.substr(colon + 1);
    if (!pattern.starts_with(kOfProgram) || pattern == kOfProgram) v.choice(kFusions, pattern);
    c.fuse_off.emplace_back(word);
  }
}

void parse_check(const Value& v, Config& c) {
  for (bool Config::* flag : kCheckFlags) c.*flag = false;
  for (std::string_view word : split(v.text)) c.*kCheckFlags[v.choice(kChecks, word)] = true;
}

std::string show_check(const Config& c) {
  std::vector<std::string> on;
  for (std::size_t i = 0; i < kChecks.size(); ++i)
    if (c.*kCheckFlags[i]) on.emplace_back(kChecks[i]);
  return join(on);
}

template <bool Config::* kFlag>
void parse_switch(const Value& v, Config& c) {
  c.*kFlag = v.choice(kSwitch) == 1;
}
/// A file for the timeline, tools, or both.
void parse_trace(const Value& v, Config& c) {
  int files = 0;
  each_trace_part(v.text, [&](std::string_view part) {
    if (std::ranges::find(kTraceTools, part) != std::end(kTraceTools)) return;
    if (part.size() <= kJson.size() || !part.ends_with(kJson) || ++files > 1)
      v.fail("expected a file name that ends in .json, perf, gdb, nvtx or several of them with commas");
  });
  c.trace = v.text;
}

template <bool Config::* kFlag>
std::string show_switch(const Config& c) {
  return std::string(kSwitch[c.*kFlag]);
}

constexpr std::string_view kSuffixes = "KMG";

template <std::uint64_t Config::* kBytes, std::uint64_t kLeast>
void parse_bytes(const Value& v, Config& c) {
  std::string_view digits = v.text;
  int shift = 0;
  if (const std::size_t unit = kSuffixes.find(static_cast<char>(digits.back() & ~0x20));
      unit < kSuffixes.size()) {
    shift = 10 * (static_cast<int>(unit) + 1);
    digits.remove_suffix(1);
  }
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max() >> shift;
  c.*kBytes = v.number(digits, kLeast, most, "bytes, with K, M or G behind (512M, 2G)") << shift;
}

template <std::uint64_t Config::* kBytes>
std::string show_bytes(const Config& c) {
  std::uint64_t n = c.*kBytes;
  std::size_t unit = 0;
  while (n && n % 1024 == 0 && unit < kSuffixes.size()) n /= 1024, ++unit;
  return std::to_string(n) + (unit ? std::string(1, kSuffixes[unit - 1]) : "");
}

struct Variable {
  std::string_view name, values, meaning;
  void (*parse)(const Value&, Config&);  // the text is not empty: an empty variable is an unset one
  std::string (*show)(const Config&);    // null: not an option of Config
};

constexpr Variable kVariables[] = {
    {"KILN_MODE", "lazy|eager|interpret",
     "record and fuse, one kernel an operation, or the reference interpreter",
     [](const Value& v, Config& c) { c.mode = static_cast<Mode>(v.choice(kModes)); },
     [](const Config& c) {
       const auto i = static_cast<std::size_t>(c.mode);
       return i < kModes.size() ? std::string(kModes[i]) : cat("#", i);
     }},
    {"KILN_TIER", "auto|jit|vm",
     "run a new kernel by the vm until it is compiled (a GPU: others while an attention's is compiled), wait "
     "for "
     "the compiler, or always the vm",
     [](const Value& v, Config& c) {
       c.tier = static_cast<Tier>(v.choice(kTiers));
       if (c.tier == Tier::Jit && !KILN_HAS_COMPILERS)
         v.fail("this build has no compiler; did you mean 'auto'?");
     },
     [](const Config& c) {
       const auto i = static_cast<std::size_t>(c.tier);
       return i < kTiers.size() ? std::string(kTiers[i]) : cat("#", i);
     }},
    {"KILN_DEVICE", kDeviceValues, "where new tensors live", parse_device,
     [](const Config& c) { return c.device; }},
    {"KILN_STRICT", "0|1",
     "round after every operation, in orders that fusing does not change: lazy equals eager to the bit",
     parse_switch<&Config::strict>, show_switch<&Config::strict>},
    {"KILN_DETERMINISTIC", "0|1", "results whose bits do not depend on threads, timing or caches",
     parse_switch<&Config::deterministic>, show_switch<&Config::deterministic>},
    {"KILN_TF32", "0|1",
     "a GPU may multiply float32 matrices by tensor cores, which read 11 bits of a number; not in the strict "
     "mode",
     parse_switch<&Config::tf32>, show_switch<&Config::tf32>},
    {"KILN_FLUSH_SUBNORMALS", "0|1",
     "a CPU takes subnormal floats for zero, as it handles many of them by microcode; not in the strict mode",
     parse_switch<&Config::flush_subnormals>, show_switch<&Config::flush_subnormals>},
    {"KILN_DEBUG", "0..5",
     "detail on stderr; 2: a line a kernel, 3: and plans, 4: and evaluations and caches, 5: and memory",
     [](const Value& v, Config& c) {
       c.debug = static_cast<int>(v.number(v.text, 0, 5, "a number from 0 to 5"));
     },
     [](const Config& c) { return std::to_string(c.debug); }},
    {"KILN_LOG", "trace,plan,kernel,cache,memory,all", "topics to log on stderr",
     [](const Value& v, Config& c) { c.log_topics = v.list(kTopics); },
     [](const Config& c) { return join(c.log_topics); }},
    {"KILN_DUMP", "stdout|stderr|DIR", "where to write the stages of every kernel",
     [](const Value& v, Config& c) { c.dump = v.text; }, [](const Config& c) { return c.dump; }},
    {"KILN_DUMP_STAGES", "graph,kernel,vm,ll,asm,cu,ptx,sass,run", "the stages to write; unset: all but run",
     [](const Value& v, Config& c) { c.dump_stages = v.list(kStages); },
     [](const Config& c) { return join(c.dump_stages); }},
    {"KILN_DUMP_FILTER", "REGEX", "only kernels whose name matches", parse_dump_filter,
     [](const Config& c) { return c.dump_filter; }},
    {"KILN_OVERRIDE_DIR", "DIR",
     "a kernel whose dumped NAME.cu, edited, lies here is made from that (on a GPU)",
     [](const Value& v, Config& c) { c.override_dir = v.text; },
     [](const Config& c) { return c.override_dir; }},
    {"KILN_EXPLAIN", "1|FILE.json|FILE.html", "what was fused, what was not and why, what it saved",
     parse_explain, [](const Config& c) { return c.explain; }},
    {"KILN_TRACE", "FILE.json,perf,gdb,nvtx",
     "who is told what runs: a timeline for Perfetto, and tools that get names and lines of kernels",
     parse_trace, [](const Config& c) { return c.trace; }},
    {"KILN_FUSE", "0|1", "whether several operations share a kernel", parse_switch<&Config::fuse>,
     show_switch<&Config::fuse>},
    {"KILN_FUSE_LEAST", "N", "operations of fewer elements get kernels of their own",
     [](const Value& v, Config& c) {
       c.fuse_least = static_cast<std::int64_t>(
           v.number(v.text, 0, std::numeric_limits<std::int64_t>::max(), "a number of elements"));
     },
     [](const Config& c) { return std::to_string(c.fuse_least); }},
    {"KILN_FUSE_OFF", "[cpu:|cuda:|null:]norm,nest,siblings,recompute,epilogue,attention,blocks,user.NAME",
     "patterns that are not fused", parse_fuse_off, [](const Config& c) { return join(c.fuse_off); }},
    {"KILN_ADAPT", "0|1|kept|tune",
     "measure other ways to run regions and keep the better one: not, in real evaluations, only what is "
     "kept, "
     "at once",
     [](const Value& v, Config& c) { c.adapt = static_cast<Adapt>(v.choice(kAdapts)); },
     [](const Config& c) { return std::string(kAdapts[static_cast<std::size_t>(c.adapt)]); }},
    {"KILN_MEMORY_BUDGET", "BYTES[K|M|G]",
     "values of one evaluation are computed again rather than kept above it; 0: no budget",
     parse_bytes<&Config::memory_budget, 0>, show_bytes<&Config::memory_budget>},
    {"KILN_CHECK", "nan,diff,key,bounds",
     "checks while running: NaNs, the interpreter's answer, cache keys, indices", parse_check, show_check},
    {"KILN_CACHE", "off|ro|rw", "the cache of compiled kernels on disk",
     [](const Value& v, Config& c) { c.cache = kCaches[v.choice(kCaches)]; },
     [](const Config& c) { return c.cache; }},
    {"KILN_CACHE_DIR", "DIR", "its directory; unset: $XDG_CACHE_HOME/kiln or ~/.cache/kiln",
     [](const Value& v, Config& c) { c.cache_dir = v.text; }, [](const Config& c) { return c.cache_dir; }},
    {"KILN_CACHE_MAX", "BYTES[K|M|G]", "its size; beyond it the least recently used entries go",
     parse_bytes<&Config::cache_max, 1>, show_bytes<&Config::cache_max>},
    {"KILN_NUM_THREADS", "N", "threads; 0: the cores that affinity and cgroup quota allow",
     [](const Value& v, Config& c) {
       c.num_threads = static_cast<int>(v.number(v.text, 0, 4096, "a number from 0 to 4096"));
     },
     [](const Config& c) { return std::to_string(c.num_threads); }},
    {"KILN_CPU", "native|sse4.2|avx2|avx512", "generate for a lower instruction set than the host's",
     [](const Value& v, Config& c) { c.cpu_target = v.choice(kCpus) ? v.text : ""; },
     [](const Config& c) { return c.cpu_target.empty() ? std::string(kCpus[0]) : c.cpu_target; }},
    {"KILN_NULL_TARGET", "sm_NN", "the GPU that the device null plans and emits for", parse_null_target,
     [](const Config& c) { return c.null_target.empty() ? std::string("sm_90") : c.null_target; }},
    {"KILN_HELP", "1", "print this list at first use", [](const Value& v, Config&) { v.choice(kSwitch); },
     nullptr},
};

/// Names that the design reserves: asking for one must not look like a misspelling.
constexpr std::string_view kLater[] = {"KILN_TUNE", "KILN_PROFILE"};

const Variable& find(std::string_view name) {
  for (const Variable& variable : kVariables)
    if (variable.name == name) return variable;
  if (std::find(std::begin(kLater), std::end(kLater), name) != std::end(kLater))
    throw UserError(cat("[config] ", name, " is not in this version of Kiln; unset it"));
  // A name that contains the rest of this one is nearer than its letters tell: KILN_THREADS.
  const std::string_view rest = name.substr(std::min(name.size(), std::string_view("KILN_").size()));
  std::vector<std::string_view> names, containing;
  for (const Variable& variable : kVariables) {
    names.push_back(variable.name);
    if (!rest.empty() && variable.name.find(rest) != variable.name.npos) containing.push_back(variable.name);
  }
  throw UserError(cat("[config] ", printable(name), " is not a variable of Kiln; did you mean '",
                      nearest(name, containing.empty() ? names : containing), "'?"));
}

}  // namespace

Config parse_environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  Config config;
  for (const auto& [name, text] : variables) {
    if (!name.starts_with("KILN_") || name.starts_with("KILN_TEST_")) continue;
    const Variable& variable = find(name);
    if (!text.empty()) variable.parse({name, text}, config);
  }
  return config;
}

const char* environment_variable(const char* name) { return secure_getenv(name); }

Config parse_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  if (getauxval(AT_SECURE) != 0) return {};
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("KILN_") && equals != text.npos)
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return parse_environment(variables);
}

std::string environment_help() {
  const Config defaults;
  std::size_t name_width = 0, values_width = 0;
  for (const Variable& v : kVariables) {
    name_width = std::max(name_width, v.name.size());
    values_width = std::max(values_width, v.values.size());
  }
  std::string out;
  for (const Variable& v : kVariables) {
    const std::string value = v.show ? v.show(defaults) : "";
    out += cat(v.name, std::string(name_width + 2 - v.name.size(), ' '), v.values,
               std::string(values_width + 2 - v.values.size(), ' '), v.meaning,
               value.empty() ? "" : " (default " + value + ")", "\n");
  }
  return out;
}

std::vector<EnvironmentRow> environment_rows(const Config& config) {
  const Config defaults;
  std::vector<EnvironmentRow> rows;
  for (const Variable& v : kVariables) {
    if (!v.show) continue;
    std::string value = v.show(config);
    const bool changed = value != v.show(defaults);
    rows.push_back(
        {std::string(v.name), std::string(v.values), std::move(value), std::string(v.meaning), changed});
  }
  return rows;
}

}  // namespace kiln
