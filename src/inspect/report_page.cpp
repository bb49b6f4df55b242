#include "inspect/report_page.h"

#include "report_page_text.h"
#include "support/check.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>

namespace kiln::engine {
namespace {

using Json = nlohmann::ordered_json;

/// The lines of the program that nodes were recorded on, by "file:line". A file that is not there has none.
Json lines_of(const FusionReport& r) {
  std::map<std::string, std::set<std::uint32_t>> wanted;
  for (const FusionReport::Node& n : r.nodes) wanted[n.file].insert(n.line);
  Json out = Json::object();
  for (const auto& [file, lines] : wanted) {
    std::ifstream in(file);
    std::uint32_t number = 0;
    for (std::string line; std::getline(in, line);)
      if (lines.contains(++number)) out[cat(file, ":", number)] = line.substr(0, 200);
  }
  return out;
}

/// A JSON text as an argument in a script element, which "</script" would end.
std::string in_script(std::string text) {
  for (std::size_t at = text.find("</"); at != text.npos; at = text.find("</", at + 3))
    text.insert(at + 1, 1, '\\');
  return text;
}

}  // namespace

std::string page_begin() { return page::page; }

std::string page_plan(const FusionReport& r) {
  Json j = Json::parse(to_json(r));
  j.erase("loops");
  j["lines"] = lines_of(r);
  j["difference"]["text"] = r.difference.text();
  for (std::size_t i = 0; i < r.regions.size(); ++i) {
    Json& region = j["regions"][i];
    region["text"] = text_of(r.regions[i].kind);
    region["variant_texts"] = Json::array();
    for (const FusionVariant v : r.regions[i].variants) region["variant_texts"].push_back(text_of(v));
  }
  for (std::size_t i = 0; i < r.boundaries.size(); ++i)
    j["boundaries"][i]["hint"] = {{"text", text_of(r.boundaries[i].hint())}};
  for (std::size_t i = 0; i < r.near_misses.size(); ++i) {
    j["near_misses"][i]["hint"] = {{"text", text_of(r.near_misses[i].hint())}};
    j["near_misses"][i]["pattern_text"] = text_of(r.near_misses[i].pattern);
  }
  for (std::size_t i = 0; i < r.stored.size(); ++i) j["stored"][i]["text"] = text_of(r.stored[i].why);
  std::string out = cat("<script>kiln.add(",
                        in_script(j.dump(-1, ' ', false, Json::error_handler_t::replace)), ");</script>\n");
  for (FusionReport loop : r.loops) {  // a plan like others, which nobody asks for by itself
    loop.trigger = {cat("a loop of plan ", r.plan), r.trigger.file, r.trigger.line};
    out += page_plan(loop);
  }
  return out;
}

std::string page_run(std::string_view run) {
  return cat("<script>kiln.run(", in_script(std::string(run)), ");</script>\n");
}

}  // namespace kiln::engine
