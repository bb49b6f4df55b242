#include "device/cuda/template_kernels.h"

#include "device/compiler.h"
#include "device/cuda/cuda_compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "inspect/statistics.h"
#include "kernels_templates.h"

#include <kiln/error.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

namespace kiln::cuda {
namespace {

using engine::count;
using engine::Counter;

Module made_module(int index, const std::string& source, const std::string& name) {
  device::BinaryStore* const store = device::binary_store();
  const Hash128 what = hash128(source);
  const std::string key = store ? compiler_key(index) : std::string();
  if (store)
    if (const auto kept = store->get(what, key)) try {
        const Module module = load_module(index, *kept);
        count(Counter::KernelsFromDisk);
        return module;
      } catch (const CompileError&) {  // what was kept cannot be loaded
      }
  const auto start = std::chrono::steady_clock::now();
  const DeviceInfo& d = device(index);
  remember_compiler(index);
  const device::Binary image = compile(source, name, {d.major, d.minor}).image;
  count(Counter::KernelsCompiled);
  count(Counter::CompileNs, static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start).count()));
  if (store) store->put(what, key, image);
  return load_module(index, image);
}

}  // namespace

const std::vector<Function>& template_kernels(int index, const std::string& name,
                                              std::span<const char* const> symbols,
                                              const std::function<std::string()>& source) {
  static std::mutex* const mutex = new std::mutex;
  // entries stay where they are
  static auto* const made = new std::map<std::pair<int, std::string>, std::vector<Function>>;
  const std::lock_guard lock(*mutex);
  if (const auto it = made->find({index, name}); it != made->end()) return it->second;
  const Module module = made_module(index, source(), name);
  std::vector<Function> functions;
  for (const char* symbol : symbols) functions.push_back(find_function(module, symbol));
  return made->emplace(std::pair{index, name}, std::move(functions)).first->second;
}

std::string template_prologue() {
  namespace texts = codegen::templates;
  return std::string(texts::types) + texts::integer + texts::elements;
}

LaunchShape thread_each(std::int64_t count) {
  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>((count + 255) / 256, 1 << 20));
  shape.block[0] = 256;
  return shape;
}

}  // namespace kiln::cuda
