// The op table as data: rows are well formed, and docs/ops.md says what they say.
#include "ir/op.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace kiln::ir {
namespace {

const char* result_of(TypeRule rule) {
  switch (rule) {
    case TypeRule::Same: return "T";
    case TypeRule::Float: return "T; float32 for integers and bool";
    case TypeRule::Compare:
    case TypeRule::Logical: return "bool";
    case TypeRule::Select: return "T of the last two";
    case TypeRule::Word32: return "uint32";
    case TypeRule::Word64: return "uint64";
    case TypeRule::FromBits: return "float32";
    case TypeRule::ToBits: return "uint8";
    case TypeRule::Structural: return "";
  }
  return "";
}

std::string accepted(const OpInfo& row) {
  if (row.rule == TypeRule::Float || row.types == ANY) return "any";
  std::string out;
  const auto add = [&](int bit, const char* name) {
    if (row.types & bit) out += (out.empty() ? "" : ", ") + std::string(name);
  };
  add(BOOL, "bool");
  add(INTEGER, "integers");
  add(FLOAT, "floats");
  return out;
}

std::string reference_page() {
  std::ostringstream out;
  out << "# Elementwise operations\n\n"
         "This page lists every elementwise operation. `tests/ir/op_test.cpp` generates it from "
         "`include/kiln/ops.def` (run the\n"
         "test with `UPDATE_GOLDEN=1` after adding an operation). T is the operands' promoted dtype "
         "([semantics.md](semantics.md));\n"
         "x, y, z are the operands in order. `floor`, `ceil`, `trunc` and `round` also take integers and "
         "return "
         "them unchanged; `isnan`,\n"
         "`isinf` and `isfinite` take any dtype.\n\n"
         "Two operations are not in the table because they are not functions of numbers alone: "
         "`astype(x, dtype)` converts values, and\n"
         "`bitcast(x, dtype)` returns the same bits as another dtype of the same size. `square`, `positive`, "
         "`clip` and `isclose` are\n"
         "compositions of operations below; so are `allclose` and `array_equal`, which evaluate and return a "
         "C++ bool.\n\n"
         "| function | operands | dtypes | result | value |\n|---|---|---|---|---|\n";
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& row = kOpInfo[i];
    if (row.kind != OpKind::Elementwise) continue;
    std::string doc(row.doc);
    for (std::size_t at = 0; (at = doc.find('|', at)) != std::string::npos; at += 2) doc.insert(at, "\\");
    out << "| `" << row.name << "` | " << int{row.arity} << " | " << accepted(row) << " | "
        << result_of(row.rule) << " | " << doc << " |\n";
  }
  return out.str();
}

TEST(OpTable, RowsAreWellFormed) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& row = kOpInfo[i];
    if (row.kind != OpKind::Elementwise) continue;
    EXPECT_FALSE(row.doc.empty()) << row.name;
    EXPECT_LT(row.lo, row.hi) << row.name;
    EXPECT_TRUE(row.arity >= 1 && row.arity <= 3) << row.name;
    if (row.rule == TypeRule::Select) {
      EXPECT_EQ(row.arity, 3) << row.name;
    }
    if (row.rule == TypeRule::Float) EXPECT_EQ(row.types, FLOAT) << row.name;
  }
}

TEST(OpTable, ReferencePageIsCurrent) {
  const auto path = std::filesystem::path(KILN_SOURCE_DIR) / "docs" / "ops.md";
  if (std::getenv("UPDATE_GOLDEN")) std::ofstream(path) << reference_page();
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "no source tree beside this build";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), reference_page()) << "run this test with UPDATE_GOLDEN=1";
}

}  // namespace
}  // namespace kiln::ir
