// `kiln replay`: runs kernels again that KILN_DUMP_STAGES=run wrote, and edited copies of them.
#include "engine/replay.h"
#include "commands.h"

#include <kiln/error.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace kiln::tool {
namespace {

namespace fs = std::filesystem;
using engine::Replay;

constexpr std::string_view kEnding = ".run.json";

struct Options {
  std::string directory, name;
  bool edit = false;
  int times = 15;
};

std::vector<fs::path> launches(const Options& o) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator entry(o.directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.ends_with(kEnding) && file.starts_with(o.name)) out.push_back(entry->path());
  }
  if (error) throw UserError("[replay] cannot read " + o.directory + ": " + error.message());
  if (out.empty())
    throw UserError("[replay] " + o.directory + " has no launch" + (o.name.empty() ? "" : " of " + o.name) +
                    ": run the program with KILN_DUMP=" + o.directory + " KILN_DUMP_STAGES=run");
  std::ranges::sort(out);
  return out;
}

/// The copy of a source that a person edits: NAME.edited.ll beside NAME.ll.
fs::path edited_of(const fs::path& source) {
  return source.parent_path() / (source.stem().string() + ".edited" + source.extension().string());
}

void edit(const fs::path& file) {
  const char* editor = std::getenv("VISUAL");
  if (editor == nullptr) editor = std::getenv("EDITOR");
  std::string quoted;
  for (const char c : file.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = std::string(editor ? editor : "vi") + " '" + quoted + "'";
  if (std::system(command.c_str()) != 0) throw UserError("[replay] the editor failed: " + command);
}

void print(const char* what, const Replay::Result& r) {
  std::printf("  %-9s %10.3f us\n", what, r.seconds * 1e6);
  for (const Replay::Difference& d : r.differences) {
    const std::string set = r.differences.back().set > 0 ? "launch " + std::to_string(d.set) + ", " : "";
    std::printf("            %sbuffer %zu, %s: ", set.c_str(), d.buffer, std::string(name(d.dtype)).c_str());
    if (d.differ == 0)
      std::printf("%lld elements as in the program\n", static_cast<long long>(d.elements));
    else
      std::printf("%lld of %lld elements differ, by %.6g at most, first element %lld\n",
                  static_cast<long long>(d.differ), static_cast<long long>(d.elements), d.greatest,
                  static_cast<long long>(d.first));
  }
}

void replay(const Options& o) {
  const std::vector<fs::path> files = launches(o);
  if (o.edit && files.size() != 1)
    throw UserError("[replay] --edit takes one kernel: name one of the " + std::to_string(files.size()));
  for (const fs::path& file : files) {
    const Replay launch(file);
    std::printf("%s\n", launch.name().c_str());
    const fs::path edited = edited_of(launch.source());
    if (o.edit) {
      if (!fs::exists(edited)) fs::copy_file(launch.source(), edited);
      edit(edited);
    }
    print("generated", launch.run(launch.source(), o.times));
    if (fs::exists(edited)) print("edited", launch.run(edited, o.times));
  }
}

}  // namespace

void add_replay(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "Run kernels again that KILN_DUMP_STAGES=run wrote");
  auto o = std::make_shared<Options>();
  command->add_option("directory", o->directory, "What KILN_DUMP named")->required();
  command->add_option("kernel", o->name, "Only kernels whose names begin like this");
  command->add_flag("--edit", o->edit, "Open a copy of the source in $VISUAL or $EDITOR first");
  command->add_option("--runs", o->times, "Runs; the median is printed")->check(CLI::Range(1, 100000));
  command->callback([=] { replay(*o); });
}

}  // namespace kiln::tool
