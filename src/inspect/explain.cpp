#include "inspect/explain.h"

#include "inspect/dump.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <mutex>

namespace kiln::engine {
namespace {

std::string describe(const ir::Graph& g, ir::NodeId id) {
  const ir::GraphNode& n = g[id];
  return cat("%", id, " ", ir::info(n.op).name, " ", info(n.dtype).short_name, to_string(n.dims), " (",
             n.loc.file_name(), ":", n.loc.line(), ")");
}

void print(const ir::Graph& g, const plan::Regions& regions) {
  std::string text = cat("[kiln] plan of ", g.size(), " nodes: ", regions.regions.size(), " kernels\n");
  for (std::size_t i = 0; i < regions.regions.size(); ++i)
    text += cat("  kernel ", i, ": ", op_names(g, regions.regions[i]),
                regions.regions[i].kind == plan::Region::Kind::Contraction
                    ? " (a matrix product with its epilogue)"
                    : "",
                "\n");
  for (const plan::Refusal& f : regions.refusals)
    text += cat("  boundary: ", describe(g, f.producer), "\n         -> ", describe(g, f.consumer),
                "\n            ", f.reason, "\n");
  std::fputs(text.c_str(), stderr);
}

nlohmann::json to_json(const ir::Graph& g, const plan::Regions& regions) {
  auto node = [&](ir::NodeId id) {
    const ir::GraphNode& n = g[id];
    return nlohmann::json{{"node", id},
                          {"op", ir::info(n.op).name},
                          {"dtype", name(n.dtype)},
                          {"shape", std::vector<std::int64_t>(n.dims.begin(), n.dims.end())},
                          {"file", n.loc.file_name()},
                          {"line", n.loc.line()}};
  };
  nlohmann::json kernels = nlohmann::json::array(), boundaries = nlohmann::json::array();
  for (const plan::Region& r : regions.regions) {
    nlohmann::json ops = nlohmann::json::array();
    for (ir::NodeId id : r.nodes) ops.push_back(node(id));
    kernels.push_back({{"ops", ops}, {"stores", r.outputs}});
    if (r.kind == plan::Region::Kind::Contraction) kernels.back()["product"] = r.product;
  }
  for (const plan::Refusal& f : regions.refusals)
    boundaries.push_back(
        {{"producer", node(f.producer)}, {"consumer", node(f.consumer)}, {"reason", f.reason}});
  return {{"nodes", g.size()}, {"kernels", kernels}, {"boundaries", boundaries}};
}

}  // namespace

void explain(const ir::Graph& g, const plan::Regions& regions) {
  const std::string& where = config().explain;
  if (where.empty()) return;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (where == "1") return print(g, regions);
  std::ofstream file(where, std::ios::app);
  file << to_json(g, regions).dump() << "\n";
  if (!file.flush()) warn_once("explain", cat("cannot write to ", where));
}

}  // namespace kiln::engine
