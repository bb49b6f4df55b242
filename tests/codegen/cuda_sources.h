// CUDA C of the kernels that a graph becomes.
#pragma once

#include "codegen/cuda/cuda_c.h"

#include "codegen/cuda_compiles.h"
#include "lower/lowered_graph.h"
#include "plan/donate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace kiln::codegen {

inline schedule::Target gpu() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 132;
  return t;
}

/// `donated`: leaves whose memory updates go into; they must be all the leaves' first nodes, which transforms
/// keep.
inline std::vector<std::string> sources(const ir::GraphBuilder& b, int instances = 1,
                                        const schedule::Target& target = gpu(),
                                        const std::vector<ir::NodeId>& donated = {}) {
  ir::Graph g = transform::transform(ir::Graph(b.graph), {.products_as_sums = target.strict}).graph;
  plan::Donations donations = plan::donate(g, donated, g.roots);
  EXPECT_EQ(donations.args.size(), donated.size());
  plan::Regions regions = plan::fuse(g, target);
  regions.placements = std::move(donations.placements);
  std::vector<std::string> out;
  for (const plan::Region& r : regions.regions) {
    const lower::Lowered l = lower::lower(g, regions, r, target);
    kernel::verify(l.kernel);
    out.push_back(emit_cuda(l.kernel, "kiln_test", instances));
    if (std::getenv("KILN_TEST_PRINT"))
      std::printf("%s\n%s\n", kernel::print(l.kernel).c_str(), out.back().c_str());
  }
  return out;
}

}  // namespace kiln::codegen
