#include "device/cuda/template_kernels.h"

#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "kernels_templates.h"

#include <kiln/error.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace kiln::cuda {
namespace {

std::vector<std::uint8_t> compiled(int index, const std::string& source, const std::string& name, bool) {
  const DeviceInfo& d = device(index);
  return compile(source, name, {d.major, d.minor}).image;
}
std::atomic<ImageMaker> image_maker{compiled};

Module made_module(int index, const std::string& source, const std::string& name) {
  const ImageMaker image = image_maker.load();
  try {
    return load_module(index, image(index, source, name, false));
  } catch (const CompileError&) {  // what was kept cannot be loaded
    return load_module(index, image(index, source, name, true));
  }
}

}  // namespace

void set_image_maker(ImageMaker maker) { image_maker.store(maker); }

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
