// One target under libFuzzer (KILN_FUZZ_TARGET names it). Called with an empty directory as corpus it writes
// the seeds there first.
#include "fuzz/targets.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace {

const kiln::fuzz::Target& target() {
  for (const kiln::fuzz::Target& t : kiln::fuzz::targets())
    if (t.name == KILN_FUZZ_TARGET) return t;
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path corpus = (*argv)[i];
    if (!std::filesystem::is_directory(corpus) || !std::filesystem::is_empty(corpus)) continue;
    int n = 0;
    for (const std::string& seed : target().seeds())
      std::ofstream(corpus / ("seed" + std::to_string(n++)), std::ios::binary) << seed;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  target().run({data, bytes});
  return 0;
}
