// Objects read and linked without LLVM: the functions of a kernel with their sizes, calls of the C library,
// variables, and every damaged object refused.
#include "device/cpu/object_file.h"

#include "device/cpu/jit.h"
#include "device/cpu/target.h"
#include "kernel/kernel.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cpu {
namespace {

/// f(0) calls the C library's function on what f reads of a table.
constexpr const char* kText = R"(
@count = internal global double 0.0
@table = private unnamed_addr constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
declare double @cbrt(double)
define double @own(double %x) noinline { %y = fadd double %x, %x ret double %y }
define double @f(i64 %i) {
  %p = getelementptr double, ptr @table, i64 %i
  %x = load double, ptr %p
  %y = call double @own(double %x)
  %z = call double @cbrt(double %y)
  ret double %z
}
define void @f_finish() { ret void }
define double @f_link() {
  %x = load double, ptr @count
  %y = fadd double %x, 1.0
  store double %y, ptr @count
  ret double %y
}
)";

std::vector<std::uint8_t> object() { return compile_text(kText, "test", host_target()); }

class ObjectFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_compiler() || !links_objects()) GTEST_SKIP() << "no objects of this machine";
  }
};

TEST_F(ObjectFiles, FunctionsRunWithTheirConstantsAndTheCLibrary) {
  const std::vector<ObjectFunction> functions = link_object(object());
  const MachineCode code = machine_code_of(functions, "f");
  const auto f = reinterpret_cast<double (*)(std::int64_t)>(reinterpret_cast<void*>(code.body));
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(f(i), std::cbrt(2.0 * static_cast<double>(1 << i)), 1e-12);
  EXPECT_TRUE(code.finish);
  EXPECT_FALSE(code.second);
  const auto counts = reinterpret_cast<double (*)()>(reinterpret_cast<void*>(code.link));
  EXPECT_EQ(counts(), 1);
  EXPECT_EQ(counts(), 2);
  ASSERT_EQ(code.functions.size(), 3u);
  for (const device::HostFunction& h : code.functions) EXPECT_GT(h.bytes, 0u) << h.part;
}

TEST_F(ObjectFiles, SizesAreThoseOfTheLinkedFunctions) {
  const std::vector<ObjectFunction> functions = functions_of(object());
  ASSERT_EQ(functions.size(), 4u);
  for (const ObjectFunction& f : functions) EXPECT_GT(f.bytes, 0u) << f.name;
}

TEST_F(ObjectFiles, AFunctionThatIsNotThereIsNamed) {
  const std::string text =
      "declare double @kiln_no_such(double)\n"
      "define double @f(double %x) { %y = call double @kiln_no_such(double %x) ret double %y }\n";
  try {
    (void)link_object(compile_text(text, "test", host_target()));
    ADD_FAILURE() << "linked";
  } catch (const CompileError& e) {
    EXPECT_NE(std::string(e.what()).find("kiln_no_such"), std::string::npos) << e.what();
  }
  EXPECT_THROW((void)machine_code_of(link_object(object()), "g"), CompileError);
}

TEST_F(ObjectFiles, DamagedObjectsAreRefusedOrHarmless) {
  const std::vector<std::uint8_t> whole = object();
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7)
    EXPECT_THROW((void)link_object(std::span(whole).first(bytes)), CompileError) << bytes;
  std::uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {  // linked or refused, never followed out of its memory
    std::vector<std::uint8_t> damaged = whole;
    for (int k = 0; k < 4; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      damaged[(state >> 33) % damaged.size()] = static_cast<std::uint8_t>(state >> 25);
    }
    try {
      (void)link_object(damaged);
      (void)functions_of(damaged);
    } catch (const CompileError&) {
    }
  }
  EXPECT_TRUE(functions_of(std::span<const std::uint8_t>()).empty());
}

TEST(HostInstructions, AHostHasItsOwnAndNoOthers) {
  CpuTarget native = host_target("native");
  const std::string own = host_instructions(native);
  EXPECT_TRUE(host_has_instructions(own));
  EXPECT_TRUE(host_has_instructions(""));
#if defined(__x86_64__)
  ASSERT_FALSE(own.empty());
  EXPECT_FALSE(host_has_instructions(std::string(own.size(), 'f')));
  EXPECT_TRUE(host_has_instructions(std::string(own.size(), '0')));
  EXPECT_FALSE(host_has_instructions(own.substr(1)));
  EXPECT_FALSE(host_has_instructions(std::string(own.size(), 'x')));
  native.level = "avx2";
  EXPECT_EQ(host_instructions(native), "");
#endif
}

}  // namespace
}  // namespace kiln::cpu
