#include "codegen/llvm/vector_math.h"
#include "device/cpu/host_cpu.h"
#include "device/cpu/target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/TargetParser/Host.h>

#include <dlfcn.h>

#include <algorithm>

namespace kiln::cpu {

std::map<std::string, bool> read_host_features() {
  std::map<std::string, bool> out;
  for (const auto& entry : llvm::sys::getHostCPUFeatures()) out[entry.getKey().str()] = entry.getValue();
  return out;
}

/// All of the functions or none: an older library has a few of them only.
bool has_vector_math() {
  static const bool found = [] {
    void* library = dlopen(codegen::kVectorMathLibrary, RTLD_NOW | RTLD_LOCAL);  // stays: kernels may call it
    if (!library) return false;
    const std::vector<std::string> names = codegen::vector_symbols();
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return dlsym(library, name.c_str()) != nullptr; });
  }();
  return found;
}

std::string host_cpu_name() { return llvm::sys::getHostCPUName().str(); }

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace kiln::cpu
