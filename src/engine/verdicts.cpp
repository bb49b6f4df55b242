#include "engine/verdicts.h"

#include "cache/disk_cache.h"
#include "cache/kernel_cache.h"
#include "device/device.h"
#include "generator_hash.h"
#include "inspect/statistics.h"
#include "support/check.h"

#include <kiln/config.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_map>
#include <utility>

namespace kiln::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kClearLoss = 0.95;  // the greatest gain of a variant that is not worth another trial
constexpr std::string_view kSchema = "kiln.verdict/2", kKeyPrefix = "verdict ";

struct Known {
  std::mutex mutex;
  std::unordered_map<Hash128, UnitVerdict, HashOf> units;  // by unit and device
};
Known& known() {
  static Known* const k = new Known;  // immortal: evaluations may run during exit
  return *k;
}

template <class E>
constexpr std::size_t kWords = 0;
#define KILN_COUNTED(...) +1
template <>
constexpr std::size_t kWords<FusionVariant> = 0
#define KILN_VARIANT KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_VARIANT
    ;
template <>
constexpr std::size_t kWords<RegionKind> = 0
#define KILN_REGION_KIND KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
    ;
#undef KILN_COUNTED

Json names_of(const std::vector<FusionVariant>& variants) {
  Json out = Json::array();
  for (const FusionVariant v : variants) out.push_back(name(v));
  return out;
}

template <class E>
E word(const Json& j) {
  const auto text = j.get<std::string>();
  for (std::size_t i = 0; i < kWords<E>; ++i)
    if (name(static_cast<E>(i)) == text) return static_cast<E>(i);
  throw UserError("a word of another version");
}

Hash128 slot_of(const Hash128& unit, Device device) {
  const Hash128 of = hash128(device::at(device).identity());
  return {unit.lo ^ of.lo, unit.hi ^ of.hi};
}

std::string disk_key_of(const Hash128& unit, Device device) {
  const std::string compiler = device::at(device).compiler()->key();
  if (compiler.empty()) return {};
  return cat(kKeyPrefix, unit.hex(), "\ngenerator " KILN_GENERATOR_HASH "\n", compiler, "\n",
             device::at(device).identity());
}

std::optional<UnitVerdict> read(const Hash128& unit, Device device) {
  DiskCache* const disk = disk_cache();
  const std::string key = disk ? disk_key_of(unit, device) : std::string();
  if (key.empty()) return {};
  const auto bytes = disk->get(key);
  if (!bytes) return {};
  return decode_verdict({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
}

bool is_there(const UnitVerdict& verdict, const TriedVariant& t) {
  return std::ranges::any_of(verdict.tried, [&](const TriedVariant& other) {
    return other.variant == t.variant && (is_way(t.variant) || other.against == t.against);
  });
}

/// What another process has found meanwhile stays.
void write(const Hash128& unit, Device device, UnitVerdict verdict) {
  if (config().cache != "rw") return;
  DiskCache* const disk = disk_cache();
  const std::string key = disk ? disk_key_of(unit, device) : std::string();
  if (key.empty()) return;
  if (const auto there = read(unit, device))
    for (const TriedVariant& t : there->tried)
      if (!is_there(verdict, t)) verdict.tried.push_back(t);
  disk->put(key, encode_verdict(verdict));
}

using Totals = std::map<std::pair<FusionVariant, RegionKind>, AdaptResult>;

/// `logs`: sums of logarithms of gains.
void add(const UnitVerdict& v, Totals& totals) {
  for (const TriedVariant& t : v.tried) {
    if (t.before.empty()) continue;  // nothing differed
    AdaptResult& r = totals[{t.variant, v.kind}];
    r.variant = t.variant;
    r.kind = v.kind;
    ++r.tried;
    if (!t.won) continue;
    ++r.won;
    r.gain *= t.gain.median;
  }
}

std::vector<AdaptResult> results_of(const Totals& totals) {
  std::vector<AdaptResult> out;
  for (const auto& [what, result] : totals) {
    out.push_back(result);
    if (result.won > 0) out.back().gain = std::pow(result.gain, 1.0 / static_cast<double>(result.won));
  }
  return out;
}

}  // namespace

bool is_way(FusionVariant variant) {
  enum Way { Schedule, Cut, Join };
  static constexpr Way kWays[] = {
#define KILN_VARIANT(Name, way, text) way,
#include <kiln/fusion.def>
#undef KILN_VARIANT
  };
  return kWays[static_cast<std::size_t>(variant)] != Schedule;
}

bool UnitVerdict::knows(FusionVariant variant) const {
  const std::vector<FusionVariant> now = in_force(variant);
  return std::ranges::any_of(tried, [&](const TriedVariant& t) {
    const bool lost_clearly = !t.won && !t.before.empty() && t.gain.high < kClearLoss;
    return t.variant == variant && (is_way(variant) || t.against == now || lost_clearly);
  });
}

std::vector<FusionVariant> UnitVerdict::in_force(FusionVariant variant) const {
  if (!is_way(variant)) return schedule();
  return way() == FusionVariant::Default ? std::vector<FusionVariant>{} : std::vector{way()};
}

FusionVariant UnitVerdict::way() const {
  FusionVariant out = FusionVariant::Default;
  for (const TriedVariant& t : tried)
    if (t.won && is_way(t.variant)) out = t.variant;
  return out;
}

std::vector<FusionVariant> UnitVerdict::schedule() const {
  std::vector<FusionVariant> out;
  for (const TriedVariant& t : tried)
    if (t.won && !is_way(t.variant) && t.against == out) out.push_back(t.variant);
  return out;
}

double UnitVerdict::gain() const {
  std::vector<FusionVariant> taken;
  double out = 1;
  for (const TriedVariant& t : tried) {
    if (!t.won || is_way(t.variant) || t.against != taken) continue;
    taken.push_back(t.variant);
    out *= t.gain.median;
  }
  return taken.empty() ? 0 : out;
}

UnitVerdict verdict_of(const Hash128& unit, Device device) {
  const Hash128 slot = slot_of(unit, device);
  {
    const std::lock_guard lock(known().mutex);
    const auto at = known().units.find(slot);
    if (at != known().units.end()) return at->second;
  }
  UnitVerdict found = read(unit, device).value_or(UnitVerdict{});
  const std::lock_guard lock(known().mutex);
  return known().units.try_emplace(slot, std::move(found)).first->second;
}

void note_tried(const Hash128& unit, Device device, RegionKind kind, TriedVariant tried) {
  UnitVerdict now = verdict_of(unit, device);
  {
    const std::lock_guard lock(known().mutex);
    UnitVerdict& kept = known().units[slot_of(unit, device)];
    if (is_there(kept, tried)) return;
    kept.kind = kind;
    kept.tried.push_back(std::move(tried));
    now = kept;
  }
  const TriedVariant& last = now.tried.back();
  count(Counter::VariantsTried);
  if (last.won) count(Counter::VariantsWon);
  write(unit, device, std::move(now));
}

void clear_verdicts() {
  const std::lock_guard lock(known().mutex);
  known().units.clear();
}

std::mutex& verdicts_mutex() { return known().mutex; }

std::string encode_verdict(const UnitVerdict& verdict) {
  Json tried = Json::array();
  for (const TriedVariant& t : verdict.tried)
    tried.push_back({{"variant", name(t.variant)},
                     {"against", names_of(t.against)},
                     {"won", t.won},
                     {"gain", {t.gain.low, t.gain.median, t.gain.high}},
                     {"before", t.before},
                     {"with", t.with}});
  return Json{{"schema", kSchema}, {"kind", name(verdict.kind)}, {"tried", tried}}.dump();
}

std::optional<UnitVerdict> decode_verdict(std::string_view bytes) try {
  const Json j = Json::parse(bytes);
  if (j.at("schema") != kSchema) return {};
  UnitVerdict out;
  out.kind = word<RegionKind>(j.at("kind"));
  for (const Json& one : j.at("tried")) {
    TriedVariant& t = out.tried.emplace_back();
    t.variant = word<FusionVariant>(one.at("variant"));
    for (const Json& v : one.at("against")) t.against.push_back(word<FusionVariant>(v));
    t.won = one.at("won");
    const auto gain = one.at("gain").get<std::vector<double>>();
    if (gain.size() != 3) return {};
    t.gain = {gain[0], gain[1], gain[2]};
    t.before = one.at("before").get<std::vector<double>>();
    t.with = one.at("with").get<std::vector<double>>();
  }
  return out;
} catch (const std::exception&) {  // of the parser, or a word of another version
  return {};
}

}  // namespace kiln::engine

namespace kiln {

std::vector<AdaptResult> adapt_results() {
  engine::Totals totals;
  const std::lock_guard lock(engine::known().mutex);
  for (const auto& [unit, verdict] : engine::known().units) engine::add(verdict, totals);
  return engine::results_of(totals);
}

std::vector<AdaptResult> kept_adapt_results() {
  engine::Totals totals;
  engine::DiskCache* const disk = engine::disk_cache();
  if (!disk) return {};
  for (const engine::DiskCache::Entry& e : disk->list()) {
    if (!e.valid || !e.key.starts_with(engine::kKeyPrefix)) continue;
    const auto bytes = disk->get(e.key);
    if (!bytes) continue;
    if (const auto v = engine::decode_verdict({reinterpret_cast<const char*>(bytes->data()), bytes->size()}))
      engine::add(*v, totals);
  }
  return engine::results_of(totals);
}

std::string to_text(const std::vector<AdaptResult>& results) {
  if (results.empty()) return {};
  std::string out = "variant            regions of kind                  tried   won  gain\n";
  for (const AdaptResult& r : results) {
    char line[160];
    std::snprintf(line, sizeof line, "%-18s %-32s %5llu %5llu  %.2f\n", std::string(name(r.variant)).c_str(),
                  std::string(text_of(r.kind)).c_str(), static_cast<unsigned long long>(r.tried),
                  static_cast<unsigned long long>(r.won), r.gain);
    out += line;
  }
  return out;
}

}  // namespace kiln
