#include "inspect/dump.h"

#include "cache/kernel_source.h"
#include "device/device.h"
#include "ir/custom.h"
#include "support/check.h"
#include "support/log.h"
#include "support/pattern.h"

#include <kiln/config.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>

namespace kiln::engine {
namespace {

template <class F>
void each_op(const ir::Graph& g, const plan::Region& r, F f) {
  for (ir::NodeId id : r.nodes) {
    std::string name(ir::name_of(g[id]));
    if (name.starts_with("reduce_")) name = name.substr(7);
    f(name);
  }
}

/// Every node a region computes or reads, in order: the recorded operations with the user's lines.
std::string ops_text(const ir::Graph& g, const plan::Regions& regions, const plan::Region& r) {
  std::vector<bool> wanted(g.size());
  std::vector<ir::NodeId> stack(r.outputs);
  while (!stack.empty()) {
    const ir::NodeId id = stack.back();
    stack.pop_back();
    if (wanted[id]) continue;
    wanted[id] = true;
    const bool own = std::binary_search(r.nodes.begin(), r.nodes.end(), id);
    if (regions.stored[id] && !own) continue;
    for (const ir::NodeId in : g[id].in) stack.push_back(in);
  }
  std::string out;
  for (ir::NodeId id = 0; id < g.size(); ++id) {
    if (!wanted[id]) continue;
    const ir::GraphNode& n = g[id];
    const bool own = std::binary_search(r.nodes.begin(), r.nodes.end(), id);
    const bool stored = std::binary_search(r.outputs.begin(), r.outputs.end(), id);
    std::string line = cat("%", id, " ", info(n.dtype).short_name, to_string(n.dims), " = ");
    if (regions.stored[id] && !own) {
      line += n.op == ir::Op::leaf ? cat("argument ", n.arg) : "result of another kernel";
    } else {
      line += ir::name_of(n);
      for (const ir::NodeId in : n.in) line += cat(" %", in);
      if (n.op == ir::Op::scalar) line += cat(" slot ", n.arg);
    }
    if (stored) line += "   -> stored";
    line.resize(std::max<std::size_t>(line.size() + 3, 60), ' ');
    out += cat(line, "# ", n.loc.file_name(), ":", n.loc.line(), "\n");
  }
  return out;
}

bool stage_wanted(std::string_view stage) {
  const auto& stages = config().dump_stages;
  return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end();
}

void write(const std::string& name, std::string_view extension, const std::string& text) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (config().dump == "stdout" || config().dump == "stderr") {
    (config().dump == "stdout" ? std::cout : std::cerr) << "==== " << name << extension << "\n"
                                                        << text << std::flush;
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(config().dump, error);
  std::ofstream file(std::filesystem::path(config().dump) / cat(name, extension));
  file << text;
  if (!file.flush()) warn_once("dump", cat("cannot write kernels to ", config().dump));
}

}  // namespace

std::string op_names(const ir::Graph& g, const plan::Region& r) {
  std::string all;
  each_op(g, r, [&](const std::string& name) { all += (all.empty() ? "" : " ") + name; });
  return all;
}

std::string label_of(const ir::Graph& g, const plan::Region& r) {
  constexpr std::size_t kShown = 6;
  std::string all;
  std::size_t n = 0;
  each_op(g, r, [&](const std::string& name) {
    if (n++ < kShown) all += (all.empty() ? "" : "_") + name;
  });
  if (n > kShown) all += cat("_and_", n - kShown, "_more");
  return all.empty() ? "copy" : all;
}

void dump_kernel(const ir::Graph& g, const plan::Regions& regions, const plan::Region& r,
                 const lower::Lowered& l, const CachedKernel& kernel, Device device) {
  const Config& options = config();
  if (!options.dump_filter.empty() && !Pattern(options.dump_filter).matches(kernel.name)) return;
  if (stage_wanted("graph")) write(kernel.name, ".ops.txt", ops_text(g, regions, r));
  if (stage_wanted("kernel")) write(kernel.name, ".kernel.txt", kernel::print(l.kernel));
  if (const std::string text = kernel.code->program_text(); !text.empty() && stage_wanted("vm"))
    write(kernel.name, ".vm.txt", text);
  const std::shared_ptr<const device::Compiler> compiler = device::at(device).compiler();
  // What runs: of a kernel that a person edited, the edited text. A dump never overwrites it with another.
  const std::optional<device::EditedSource> edited = edited_source(kernel.key, *compiler);
  const device::Unit unit{&l.kernel, symbol_of(kernel.key), kernel.instances, edited ? &*edited : nullptr};
  const auto& named = config().dump_stages;
  const bool runs =
      std::find(named.begin(), named.end(), "run") != named.end();  // from sources (engine/replay.h)
  for (const device::Stage& stage : compiler->stages())
    if (stage_wanted(stage.name) || (runs && (stage.name == "ll" || stage.name == "cu")))
      if (const auto text = compiler->text(stage.name, unit)) write(kernel.name, stage.extension, *text);
}

}  // namespace kiln::engine
