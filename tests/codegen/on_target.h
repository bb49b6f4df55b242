// Runs a part of a test with code for a lower instruction set, as KILN_CPU would ask for.
#pragma once

#include "device/cpu/target.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

namespace kiln::testing {

class ConfigScope {
 public:
  ConfigScope(const std::string& cpu_target, Mode mode = Mode::Lazy) : before_(config()) {
    Config c = before_;
    c.cpu_target = cpu_target;
    c.mode = mode;
    configure(c);
  }
  ~ConfigScope() { configure(before_); }

 private:
  Config before_;
};

/// The instruction sets of this host, the host's own first.
inline std::vector<std::string> cpu_targets() {
  std::vector<std::string> out{""};
  for (const char* level : {"avx512", "avx2", "sse4.2"}) {
    try {
      cpu::host_target(level);
      out.push_back(level);
    } catch (const UserError&) {  // the host lacks it
    }
  }
  return out;
}

/// Those for which Kiln writes code of its own. A level that has all instructions that Kiln asks for on
/// this host is left out, unless KILN_TEST_LONG is set: LLVM gets the same text for both.
inline std::vector<std::string> different_cpu_targets() {
  const auto used = [](const cpu::CpuTarget& t) {
    return std::tuple(t.vector_bytes, t.fma, t.f16c, t.vector_math, t.avx2, t.avx512, t.avx512_bf16,
                      t.avx512_vbmi, t.avx512_fp16);
  };
  std::vector<std::string> out = cpu_targets();
  if (!std::getenv("KILN_TEST_LONG"))
    std::erase_if(out, [&](const std::string& level) {
      return !level.empty() && used(cpu::host_target(level)) == used(cpu::host_target("native"));
    });
  return out;
}

inline std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

/// Holds what `make` gives on every CPU target against the interpreter's, bit for bit.
template <class F>
void expect_as_interpreted(const std::string& what, F make) {
  std::vector<std::vector<std::byte>> want;
  {
    const ConfigScope scope("", Mode::Interpret);
    for (const Tensor& t : make()) want.push_back(bytes_of(t));
  }
  for (const std::string& target : different_cpu_targets()) {
    const ConfigScope scope(target);
    const std::vector<Tensor> have = make();
    eval(have);
    for (std::size_t i = 0; i < have.size(); ++i)
      EXPECT_EQ(bytes_of(have[i]), want[i]) << what << ", tensor " << i << " on KILN_CPU=" << target;
  }
}

}  // namespace kiln::testing
