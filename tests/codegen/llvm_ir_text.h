// The LLVM IR that an evaluation makes, for tests of what stands in it.
#pragma once

#include "cache/temporary_directory.h"
#include "codegen/on_target.h"
#include "counted.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace kiln::testing {

/// The modules of all kernels that the evaluation of `made` compiles, for the host or a lower target.
inline std::string llvm_ir_of(const Tensor& made, const std::string& target = "") {
  const TemporaryDirectory directory;
  clear_memory_caches();
  const ConfigScope scope(target);
  Config c = config();
  c.cache = "off";
  c.tier = Tier::Jit;
  c.dump = directory.path().string();
  c.dump_stages = {"ll"};
  configure(c);
  eval({made});
  std::string all;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
    std::ifstream in(file.path());
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

/// How often the pattern stands in the text.
inline int count_of(const std::string& text, const char* pattern) {
  const std::regex found(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), found), {}));
}

}  // namespace kiln::testing
