#include "cache/cache_bundle.h"
#include "commands.h"
#include "disk_cache_options.h"
#include "warm.h"

#include <kiln/error.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>

namespace kiln::tool {
namespace {

using engine::DiskCache;
using Json = nlohmann::ordered_json;

std::string time_text(std::int64_t seconds) {
  const std::time_t t = seconds;
  std::tm parts{};
  localtime_r(&t, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

/// Keys may hold any bytes; what a person reads is printable.
std::string printable(const std::string& key) {
  std::string out;
  for (const char c : key) out += c >= ' ' && c < 127 ? c : '.';
  return out.size() > 100 ? out.substr(0, 97) + "..." : out;
}

void list(const DiskCache& cache, bool json) {
  const auto entries = cache.list();
  if (json) {
    Json out = Json::array();
    for (const DiskCache::Entry& e : entries)
      out.push_back({{"file", e.file},
                     {"bytes", e.bytes},
                     {"last_used", e.last_used},
                     {"valid", e.valid},
                     {"key", printable(e.key)}});
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  for (const DiskCache::Entry& e : entries)
    std::printf("%s  %8llu  %s  %s\n", time_text(e.last_used).c_str(),
                static_cast<unsigned long long>(e.bytes), e.file.c_str(),
                e.valid ? printable(e.key).c_str() : "(damaged)");
}

void stat(const DiskCache& cache, bool json) {
  const DiskCache::Stat s = cache.stat();
  if (json) {
    const Json out = {
        {"directory", cache.directory()}, {"usable", cache.usable()}, {"reason", cache.reason()},
        {"entries", s.entries},           {"bytes", s.bytes},         {"max_bytes", config().cache_max}};
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("directory  %s\nstate      %s\nentries    %llu\nbytes      %llu of %llu\n",
              cache.directory().c_str(), cache.usable() ? "usable" : cache.reason().c_str(),
              static_cast<unsigned long long>(s.entries), static_cast<unsigned long long>(s.bytes),
              static_cast<unsigned long long>(config().cache_max));
}

void verify(const DiskCache& cache, bool json) {
  std::size_t damaged = 0;
  Json files = Json::array();
  const auto entries = cache.list();
  for (const DiskCache::Entry& e : entries) {
    if (e.valid) continue;
    ++damaged;
    files.push_back(e.file);
    if (!json) std::printf("damaged: %s\n", e.file.c_str());
  }
  if (json) {
    std::printf("%s\n", Json{{"entries", entries.size()}, {"damaged", files}}.dump(2).c_str());
  } else {
    std::printf("%zu entries, %zu damaged (a damaged entry is rebuilt when it is next needed)\n",
                entries.size(), damaged);
  }
  if (damaged) throw Error("[cache] " + std::to_string(damaged) + " damaged entries");
}

void prune(DiskCache& cache, std::uint64_t keep, bool json) {
  const std::size_t removed = cache.prune(keep);
  if (json) {
    std::printf("%s\n", Json{{"removed", removed}, {"kept_bytes", cache.stat().bytes}}.dump(2).c_str());
  } else {
    std::printf("removed %zu entries\n", removed);
  }
}

void export_to(DiskCache& cache, const std::string& file, bool json) {
  if (!cache.usable()) throw UserError("[cache] nothing can be exported: " + cache.reason());
  if (cache.stat().entries == 0)
    throw UserError("[cache] " + cache.directory() + " has no entries: run the program first");
  std::ofstream out(file, std::ios::binary);
  if (!out) throw UserError("[cache] cannot write to " + file);
  const std::size_t entries = engine::export_bundle(cache, out);
  if (json)
    std::printf("%s\n", Json{{"exported", entries}}.dump(2).c_str());
  else
    std::printf("exported %zu entries\n", entries);
}

void import_from(DiskCache& cache, const std::string& file, bool json) {
  if (!cache.usable() || config().cache != "rw")
    throw UserError("[cache] nothing can be put into the cache: " +
                    (cache.usable() ? "KILN_CACHE=" + config().cache : cache.reason()));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError("[cache] cannot read " + file);
  const std::size_t entries = engine::import_bundle(cache, in);
  if (json)
    std::printf("%s\n", Json{{"imported", entries}}.dump(2).c_str());
  else
    std::printf("imported %zu entries\n", entries);
}

void warm_up(const DiskCache& cache, const WarmOptions& options, bool json) {
  if (!cache.usable()) throw UserError("[cache] nothing can be kept: " + cache.reason());
  const Warmed w = warm(options);
  if (json)
    std::printf("%s\n", Json{{"programs", w.programs},
                             {"compiled", w.compiled},
                             {"from_disk", w.there},
                             {"seconds", w.seconds}}
                            .dump(2)
                            .c_str());
  else
    std::printf("%zu programs: %zu kernels compiled, %zu were there, %.1f s\n", w.programs, w.compiled,
                w.there, w.seconds);
}

std::string words(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& word : list) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace

void add_cache(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "The kernels kept on disk");
  command->require_subcommand(1);
  auto json = std::make_shared<bool>(false);
  auto keep = std::make_shared<std::uint64_t>(0);
  const auto add = [&](const char* name, const char* what, auto action) {
    CLI::App* sub = command->add_subcommand(name, what);
    sub->add_flag("--json", *json, "Print JSON");
    sub->callback([=] {
      DiskCache cache(disk_cache_options());
      action(cache);
    });
    return sub;
  };
  add("ls", "List the entries, with their keys", [json](DiskCache& c) { list(c, *json); });
  add("stat", "Where the cache is, its state and size", [json](DiskCache& c) { stat(c, *json); });
  add("verify", "Check every entry; fails when one is damaged", [json](DiskCache& c) { verify(c, *json); });
  auto options = std::make_shared<WarmOptions>();
  CLI::App* warming =
      add("warm", "Compile the kernels of common operations on KILN_DEVICE, before a program needs them",
          [json, options](DiskCache& c) { warm_up(c, *options, *json); });
  warming->add_option("parts", options->only,
                      "Parts of the suite: " + words(warm_parts()) + " (default: all)");
  warming->add_option("--dtypes", options->dtypes, "Float dtypes (default: float32)")->delimiter(',');
  warming
      ->add_option("--threads", options->threads, "Threads that ask for kernels (default: one for each core)")
      ->check(CLI::PositiveNumber);
  auto file = std::make_shared<std::string>();
  add("export", "Write all entries to one file, for machines of the same kind",
      [json, file](DiskCache& c) { export_to(c, *file, *json); })
      ->add_option("file", *file, "The bundle")
      ->required();
  add("import", "Take the entries of a bundle, which is code that will run: import only what you trust",
      [json, file](DiskCache& c) { import_from(c, *file, *json); })
      ->add_option("file", *file, "The bundle")
      ->required();
  add("prune", "Remove the least recently used entries",
      [json, keep](DiskCache& c) { prune(c, *keep, *json); })
      ->add_option("--keep", *keep, "Bytes to keep (suffix K, M or G); by default nothing is kept")
      ->transform(CLI::AsSizeValue(false));
}

}  // namespace kiln::tool
