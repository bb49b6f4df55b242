// Runs passes over a hand-built graph and checks what every pass promises.
#pragma once

#include "ir/graph_builder.h"
#include "transform/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kiln::transform {

/// The whole pipeline over b.graph (which is used up); expects verified graphs and unchanged values.
inline Transformed checked_transform(ir::GraphBuilder& b) {
  ir::verify(b.graph);
  const auto before = b.values();
  const std::string text = ir::print(b.graph);
  Transformed t = transform(std::move(b.graph));
  ir::verify(t.graph);
  EXPECT_EQ(before, b.values(t.graph)) << text << "became\n" << ir::print(t.graph);
  return t;
}

/// Text of the transformed graph whose only root is `root`.
inline std::string transformed(ir::GraphBuilder& b, ir::NodeId root) {
  b.root(root);
  return ir::print(checked_transform(b).graph);
}

/// How many nodes do the operation.
inline std::int64_t count(const ir::GraphBuilder& b, ir::Op op) {
  return std::ranges::count_if(b.graph.nodes, [&](const auto& n) { return n.op == op; });
}

inline std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace kiln::transform
