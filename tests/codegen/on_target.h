// Runs a part of a test with code for a lower instruction set, as KILN_CPU would ask for.
#pragma once

#include "device/cpu/target.h"

#include <kiln/kiln.h>

#include <cstddef>
#include <string>
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

inline std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

}  // namespace kiln::testing
