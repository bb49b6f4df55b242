// JSON of reports: docs/explain.md has the schema, whose version changes when a field changes its meaning.
#include "inspect/report_json.h"

#include "support/check.h"

#include <kiln/error.h>

#include <nlohmann/json.hpp>

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "kiln.fusion/2", kRunSchema = "kiln.fusion.run/1";

/// What is no UTF-8 in the names of files and of a program's kernels becomes U+FFFD.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <class E>
E enum_of(const Json& json, std::size_t count) {
  const auto word = json.get<std::string>();
  for (std::size_t i = 0; i < count; ++i)
    if (name(static_cast<E>(i)) == word) return static_cast<E>(i);
  throw UserError(cat("[fusion] ", printable(word), " is no word of this version of Kiln"));
}
#define KILN_COUNTED(...) +1
constexpr std::size_t kReasons = 0
#define KILN_REASON KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_REASON
    ;
constexpr std::size_t kKinds = 0
#define KILN_REGION_KIND KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
    ;
constexpr std::size_t kVariants = 0
#define KILN_VARIANT KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_VARIANT
    ;
constexpr std::size_t kStored = 0
#define KILN_STORED KILN_COUNTED
#include <kiln/fusion.def>
#undef KILN_STORED
    ;
#undef KILN_COUNTED

FusionReason reason_of(const Json& j) { return enum_of<FusionReason>(j, kReasons); }

Json json_of(const FusionReport::Trigger& t) {
  return {{"call", t.call}, {"file", t.file}, {"line", t.line}};
}
FusionReport::Trigger trigger_of(const Json& j) { return {j.at("call"), j.at("file"), j.at("line")}; }

Json json_of(const FusionReport::Node& n) {
  return {{"id", n.id},     {"op", n.op},     {"dtype", name(n.dtype)}, {"shape", n.shape},
          {"file", n.file}, {"line", n.line}, {"operands", n.operands}};
}
FusionReport::Node node_of(const Json& j) {
  const auto dtype = dtype_from_name(j.at("dtype").get<std::string>());
  if (!dtype) throw UserError("[fusion] a node has no dtype of Kiln");
  return {j.at("id"), j.at("op"), *dtype, j.at("shape"), j.at("file"), j.at("line"), j.at("operands")};
}

Json json_of(const FusionReport::Kernel& k) {
  Json j = {{"name", k.name},           {"key", k.key},
            {"schedule", k.schedule},   {"why", k.why},
            {"verdict", k.verdict},     {"compile_ns", k.compile_ns},
            {"registers", k.registers}, {"spilled_bytes", k.spilled_bytes}};
  if (!k.sources.empty()) j["sources"] = k.sources;
  if (!k.lines.empty()) j["lines"] = k.lines;
  if (!k.field.empty()) j["recompiled"] = {{"field", k.field}, {"now", k.now}, {"was", k.was}};
  return j;
}
FusionReport::Kernel kernel_of(const Json& j) {
  FusionReport::Kernel k{j.at("name"),    j.at("key"),        j.at("schedule"),  j.at("why"),
                         j.at("verdict"), j.at("compile_ns"), j.at("registers"), j.at("spilled_bytes")};
  if (j.contains("sources")) k.sources = j["sources"].get<std::map<std::string, std::string>>();
  if (j.contains("lines"))
    k.lines = j["lines"].get<std::map<std::string, std::vector<std::vector<std::uint32_t>>>>();
  if (j.contains("recompiled")) {
    k.field = j["recompiled"].at("field");
    k.now = j["recompiled"].at("now");
    k.was = j["recompiled"].at("was");
  }
  return k;
}

Json json_of(const FusionReport::Region& r) {
  Json kernels = Json::array();
  for (const FusionReport::Kernel& k : r.kernels) kernels.push_back(json_of(k));
  Json j = {{"kind", name(r.kind)},
            {"nodes", r.nodes},
            {"outputs", r.outputs},
            {"library", r.library},
            {"bytes", r.bytes},
            {"floor_bytes", r.floor_bytes},
            {"operations", r.operations},
            {"modelled_ns", r.modelled_ns},
            {"measured_ns", r.measured_ns},
            {"kernels", kernels}};
  if (!r.variants.empty()) {
    j["variants"] = Json::array();
    for (const FusionVariant v : r.variants) j["variants"].push_back(name(v));
    j["gain"] = r.gain;
  }
  return j;
}
FusionReport::Region region_of(const Json& j) {
  FusionReport::Region r;
  r.kind = enum_of<RegionKind>(j.at("kind"), kKinds);
  r.nodes = j.at("nodes").get<std::vector<std::uint32_t>>();
  r.outputs = j.at("outputs").get<std::vector<std::uint32_t>>();
  r.library = j.at("library");
  r.bytes = j.at("bytes");
  r.floor_bytes = j.at("floor_bytes");
  r.operations = j.at("operations");
  r.modelled_ns = j.at("modelled_ns");
  r.measured_ns = j.at("measured_ns");
  for (const Json& k : j.at("kernels")) r.kernels.push_back(kernel_of(k));
  if (j.contains("variants")) {
    for (const Json& v : j["variants"]) r.variants.push_back(enum_of<FusionVariant>(v, kVariants));
    r.gain = j.at("gain");
  }
  return r;
}

Json json_of(const FusionReport::Boundary& b) {
  return {{"from", b.from},   {"to", b.to},       {"reason", name(b.reason)}, {"arguments", b.arguments},
          {"text", b.text()}, {"bytes", b.bytes}, {"hint", name(b.hint())}};
}
FusionReport::Boundary boundary_of(const Json& j) {
  return {j.at("from"), j.at("to"), reason_of(j.at("reason")),
          j.at("arguments").get<std::vector<std::string>>(), j.at("bytes")};
}

Json json_of(const FusionReport::NearMiss& m) {
  return {{"pattern", name(m.pattern)}, {"nodes", m.nodes}, {"condition", name(m.condition)},
          {"arguments", m.arguments},   {"text", m.text()}, {"hint", name(m.hint())}};
}
FusionReport::NearMiss near_miss_of(const Json& j) {
  const FusionReason condition = reason_of(j.at("condition"));
  return {pattern_of(condition), j.at("nodes").get<std::vector<std::uint32_t>>(), condition,
          j.at("arguments").get<std::vector<std::string>>()};
}

Json json_of(const FusionReport::Stored& s);
Json json_of(const FusionReport& r);

template <class T>
Json list_of(const std::vector<T>& values) {
  Json out = Json::array();
  for (const T& v : values) out.push_back(json_of(v));
  return out;
}

Json json_of(const FusionReport::Stored& s) {
  return {{"node", s.node}, {"why", name(s.why)}, {"bytes", s.bytes}};
}

Json json_of(const FusionReport& r) {
  const FusionReport::Difference& d = r.difference;
  return {
      {"schema", kSchema},
      {"plan", r.plan},
      {"runs", r.runs},
      {"device", r.device},
      {"trigger", json_of(r.trigger)},
      {"planned", r.planned},
      {"difference",
       {{"op", d.op},
        {"file", d.file},
        {"line", d.line},
        {"field", d.field},
        {"now", d.now},
        {"was", d.was}}},
      {"before", {{"kernels", r.before.kernels}, {"bytes", r.before.bytes}, {"buffers", r.before.buffers}}},
      {"after",
       {{"kernels", r.after.kernels},
        {"library_calls", r.after.library_calls},
        {"bytes", r.after.bytes},
        {"buffers", r.after.buffers},
        {"peak_bytes", r.after.peak_bytes},
        {"again", r.after.again}}},
      {"reduction_percent", r.reduction_percent()},
      {"bytes_saved", r.bytes_saved()},
      {"buffers_removed", r.buffers_removed()},
      {"by_op", r.by_op},
      {"by_kind", r.by_kind},
      {"nodes", list_of(r.nodes)},
      {"regions", list_of(r.regions)},
      {"boundaries", list_of(r.boundaries)},
      {"near_misses", list_of(r.near_misses)},
      {"stored", list_of(r.stored)},
      {"rates", {{"bytes_per_ns", r.bytes_per_ns}, {"operations_per_ns", r.operations_per_ns}}},
      {"loops", list_of(r.loops)}};
}

FusionReport report_of(const Json& j) {
  if (j.value("schema", "") != kSchema) throw UserError(cat("[fusion] not a report of the schema ", kSchema));
  FusionReport r;
  r.plan = j.at("plan");
  r.runs = j.at("runs");
  r.device = j.at("device");
  r.trigger = trigger_of(j.at("trigger"));
  r.planned = j.at("planned");
  const Json& d = j.at("difference");
  r.difference = {d.at("op"), d.at("file"), d.at("line"), d.at("field"), d.at("now"), d.at("was")};
  const Json &b = j.at("before"), &a = j.at("after");
  r.before = {b.at("kernels"), b.at("bytes"), b.at("buffers")};
  r.after = {a.at("kernels"),
             a.at("library_calls"),
             a.at("bytes"),
             a.at("buffers"),
             a.value("peak_bytes", std::int64_t{0}),
             a.value("again", 0)};
  r.by_op = j.at("by_op").get<std::map<std::string, int>>();
  r.by_kind = j.at("by_kind").get<std::map<std::string, int>>();
  for (const Json& n : j.at("nodes")) r.nodes.push_back(node_of(n));
  for (const Json& n : j.at("regions")) r.regions.push_back(region_of(n));
  for (const Json& n : j.at("boundaries")) r.boundaries.push_back(boundary_of(n));
  for (const Json& n : j.at("near_misses")) r.near_misses.push_back(near_miss_of(n));
  for (const Json& n : j.at("stored"))
    r.stored.push_back({n.at("node"), enum_of<StoredBecause>(n.at("why"), kStored), n.at("bytes")});
  r.bytes_per_ns = j.at("rates").at("bytes_per_ns");
  r.operations_per_ns = j.at("rates").at("operations_per_ns");
  for (const Json& n : j.at("loops")) r.loops.push_back(report_of(n));
  return r;
}

}  // namespace

std::string to_json(const FusionReport& report, int indent) {
  return dumped(json_of(report), indent > 0 ? indent : -1);
}

FusionReport fusion_report_from_json(std::string_view text) try {
  return report_of(Json::parse(text));
} catch (const nlohmann::json::exception& e) {
  throw UserError(cat("[fusion] not a report: ", printable(e.what())));
}

namespace engine {

/// What runs change in a report: times and verdicts of the regions, and the same of the loops.
static Json run_of(const FusionReport& r) {
  Json verdicts = Json::array(), times = Json::array(), loops = Json::array();
  for (const FusionReport::Region& region : r.regions) {
    Json of_region = Json::array();
    for (const FusionReport::Kernel& k : region.kernels)
      of_region.push_back({{"verdict", k.verdict}, {"compile_ns", k.compile_ns}});
    verdicts.push_back(of_region);
    times.push_back(region.measured_ns);
  }
  for (const FusionReport& loop : r.loops) loops.push_back(run_of(loop));
  Json out = {{"plan", r.plan}, {"runs", r.runs}, {"measured_ns", times}, {"kernels", verdicts}};
  if (!loops.empty()) out["loops"] = loops;
  return out;
}

std::string run_to_json(const FusionReport& r) {
  Json out = {{"schema", kRunSchema}, {"trigger", json_of(r.trigger)}};
  out.update(run_of(r));
  return dumped(out, -1);
}

bool is_run_json(std::string_view line) { return line.starts_with(cat("{\"schema\":\"", kRunSchema, "\"")); }

static bool merge_run(const Json& j, FusionReport& report) {
  if (j.at("plan") != report.plan || j.at("measured_ns").size() != report.regions.size()) return false;
  report.runs = j.at("runs");
  for (std::size_t r = 0; r < report.regions.size(); ++r) {
    FusionReport::Region& region = report.regions[r];
    region.measured_ns = j["measured_ns"][r];
    for (std::size_t k = 0; k < region.kernels.size(); ++k) {
      region.kernels[k].verdict = j.at("kernels").at(r).at(k).at("verdict");
      region.kernels[k].compile_ns = j["kernels"][r][k].at("compile_ns");
    }
  }
  if (!j.contains("loops")) return true;
  for (std::size_t l = 0; l < report.loops.size(); ++l) merge_run(j["loops"].at(l), report.loops[l]);
  return true;
}

bool merge_run_json(std::string_view line, FusionReport& report) try {
  return merge_run(Json::parse(line), report);
} catch (const nlohmann::json::exception& e) {
  throw UserError(cat("[fusion] not a run: ", printable(e.what())));
}

}  // namespace engine
}  // namespace kiln
