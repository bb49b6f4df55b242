#include "cache/gpu_source.h"

#include "codegen/cuda/cuda_c.h"
#include "device/cuda/driver.h"
#include "device/cuda/module.h"
#include "device/device.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace kiln::engine {

std::string symbol_of(const Hash128& key) { return "kiln_" + key.hex(); }

std::string short_name(const Hash128& key) { return key.hex().substr(0, 10); }

GpuSource generated_source(const kernel::Kernel& kernel, const Hash128& key, int instances) {
  const std::string symbol = symbol_of(key);
  return {symbol, codegen::emit_cuda(kernel, symbol, instances)};
}

int room_for(const kernel::Kernel& kernel, Device device, int instances) {
  if (instances == 1) return 1;
  const int few = codegen::instances_in(kernel, cuda::kFewParameterBytes);
  return instances <= few ? few : device::at(device).most_instances(kernel);
}

std::optional<GpuSource> edited_source(const Hash128& key) {
  const std::string& directory = config().override_dir;
  if (directory.empty()) [[likely]]
    return std::nullopt;
  const std::string ending = "-" + short_name(key) + ".cu";
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error), end;
  if (error)
    warn_once("override", cat("KILN_OVERRIDE_DIR=", directory, " cannot be read: ", error.message()));
  for (; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!path.ends_with(ending)) continue;
    std::ifstream file(path, std::ios::binary);
    GpuSource out{path, {std::istreambuf_iterator<char>(file), {}}};
    if (!file.is_open() || file.bad()) throw CompileError(cat("[compile] ", path, " cannot be read"));
    return out;
  }
  return std::nullopt;
}

cuda::CompileOptions gpu_options() {
  cuda::CompileOptions options;
  options.fmad = false;  // the kernel says where a multiplication and an addition round once
  return options;
}

cuda::Arch arch_of(Device device) {
  const cuda::DeviceInfo& d = cuda::device(device.index);
  return {d.major, d.minor};
}

}  // namespace kiln::engine
