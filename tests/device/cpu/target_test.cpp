#include "device/cpu/target.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <gtest/gtest.h>

namespace kiln::cpu {
namespace {

TEST(Target, NativeDescribesTheHost) {
  const CpuTarget t = host_target("native");
  EXPECT_EQ(t.level, "native");
  EXPECT_FALSE(t.llvm_cpu.empty());
  EXPECT_TRUE(t.vector_bytes == 16 || t.vector_bytes == 32 || t.vector_bytes == 64);
  EXPECT_GT(t.l1d_bytes, 4096);
  EXPECT_GE(t.l2_bytes, t.l1d_bytes);
  EXPECT_EQ(t.key(), host_target("native").key());
}

TEST(Target, ALowerLevelIsHonoured) {
#if defined(__x86_64__)
  const CpuTarget t = host_target("sse4.2");
  EXPECT_EQ(t.llvm_cpu, "x86-64-v2");
  EXPECT_EQ(t.vector_bytes, 16);
  EXPECT_FALSE(t.fma);
  EXPECT_NE(t.key(), host_target("native").key());
  EXPECT_EQ(t.l2_bytes, CpuTarget{}.l2_bytes) << "a level states the caches of plans";
#endif
}

TEST(Target, TheOptionSelectsTheLevel) {
#if defined(__x86_64__)
  const Config before = config();
  Config c = before;
  c.cpu_target = "sse4.2";
  configure(c);
  EXPECT_EQ(host_target().level, "sse4.2");
  configure(before);
#endif
}

TEST(Target, ResultsStayInALastCacheThatAGroupOfCoresShares) {
  CpuTarget t;
  t.l3_bytes = 32 << 20;
  EXPECT_EQ(t.bytes_kept_for_readers(), 28 << 20);
  t.l3_bytes = 96 << 20;
  EXPECT_EQ(t.bytes_kept_for_readers(), 84 << 20);
  t.l3_bytes = 105 << 20;  // of a chip's slices behind a mesh
  EXPECT_EQ(t.bytes_kept_for_readers(), 0);
}

TEST(Target, InstructionSetsAreThoseOfTheTargetInForce) {
  const Config before = config();
  for (const char* level : {"", "native", "avx512", "avx2", "sse4.2"}) {
    Config c = before;
    c.cpu_target = level;
    try {
      configure(c);
      const CpuTarget target = host_target();
      const InstructionSets sets = host_instruction_sets();
      EXPECT_EQ(sets.avx2, target.avx2) << level;
      EXPECT_EQ(sets.f16c, target.f16c) << level;
      EXPECT_EQ(sets.avx512, target.avx512) << level;
    } catch (const UserError&) {  // the host lacks it
    }
    configure(before);
  }
}

TEST(Target, AskingForMoreThanTheHostHasOrNonsenseIsAUserError) {
  EXPECT_THROW(host_target("mmx"), UserError);
  if (!host_target("native").avx512) {
    EXPECT_THROW(host_target("avx512"), UserError);
  } else {
    EXPECT_EQ(host_target("avx512").vector_bytes, 64);
  }
}

}  // namespace
}  // namespace kiln::cpu
