// Nodes with any number of operands: counted, freed, and dropped when the node becomes a leaf.
#include "record/node.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace kiln::ir {
namespace {

constexpr SourceLocation kNoLine{};

std::vector<NodeRef> scalars(std::size_t n) {
  std::vector<NodeRef> out;
  for (std::size_t i = 0; i < n; ++i)
    out.push_back(NodeRef::adopt(new_node(Op::scalar, DType::Float32, {}, kNoLine)));
  return out;
}

NodeRef joined(const std::vector<NodeRef>& of) {
  std::vector<Node*> in;
  for (const NodeRef& n : of) in.push_back(n.get());
  NodeRef node = NodeRef::adopt(new_node(Op::join, DType::Float32, {}, kNoLine));
  set_inputs(node.get(), in);
  return node;
}

std::uint32_t refs(const NodeRef& n) { return n->refs.load(); }

TEST(Node, HasAnyNumberOfOperands) {
  for (const std::size_t count : {0, 1, 3, 4, 255, 256, 1000}) {
    const std::vector<NodeRef> in = scalars(count);
    {
      const NodeRef node = joined(in);
      const auto have = operands(*node);
      ASSERT_EQ(have.size(), count);
      for (std::size_t k = 0; k < count; ++k) {
        EXPECT_EQ(have[k], in[k].get());
        EXPECT_EQ(refs(in[k]), 2u);
      }
    }
    for (const NodeRef& n : in) EXPECT_EQ(refs(n), 1u);
  }
}

TEST(Node, ThatBecomesALeafDropsAllOperands) {
  for (const std::size_t count : {2, 5}) {
    const std::vector<NodeRef> in = scalars(count);
    const NodeRef node = joined(in);
    auto* const buffer = new Buffer;
    buffer->free = [](Buffer* b) { delete b; };
    std::vector<Node*> dropped;
    become_leaf(node.get(), buffer, 0, nullptr, dropped);
    EXPECT_TRUE(operands(*node).empty());
    EXPECT_EQ(dropped.size(), count);
    for (Node* n : dropped) release(n);
    for (const NodeRef& n : in) EXPECT_EQ(refs(n), 1u);
  }
}

TEST(Node, ThatIsRefusedGivesBackTheOperandsThatItHas) {
  std::vector<NodeRef> in = scalars(6);
  in[2]->device = device_code(Device{Device::Kind::Cpu, 0}) & 15;
  in[5]->device = device_code(Device{Device::Kind::Cuda, 0}) & 15;
  EXPECT_THROW(joined(in), UserError);
  for (const NodeRef& n : in) EXPECT_EQ(refs(n), 1u);
}

TEST(Node, AChainOfManyOperandsIsFreedWithoutRecursion) {
  NodeRef x = NodeRef::adopt(new_node(Op::scalar, DType::Float32, {}, kNoLine));
  for (int i = 0; i < 100000; ++i) x = joined({x, x, x, x});
}

}  // namespace
}  // namespace kiln::ir
