#include "engine/device_memory.h"

#include "support/thread_own.h"

#include <kiln/config.h>

#include <string>

namespace kiln::engine {

Device default_device() {
  struct Kept {
    std::string text;
    Device device;
  };
  Kept& kept = thread_own<Kept, Kept>();
  const std::string& text = config().device;
  if (text == kept.text) return kept.device;
  Device d;
  if (text.starts_with("cuda")) {
    const int index = text.size() > 5 ? std::stoi(text.substr(5)) : 0;
    device::at(Device::cuda(index));  // throws when there is none
    d = Device::cuda(index);
  }
  kept = {text, d};
  return d;
}

ir::Buffer* allocate(std::uint64_t bytes, Device device) { return device::at(device).allocate(bytes); }

ir::Buffer* copied_to(const ir::Buffer& from, Device device) {
  device::Device &source = device_of(from), &target = device::at(device);
  ir::Buffer* to = target.allocate(from.bytes);
  try {
    if (source.is_host())
      target.write(*to, from.data, from.bytes);
    else if (target.is_host())
      source.read(to->data, from, 0, from.bytes);
    else
      target.write_from_peer(*to, from, from.bytes);
  } catch (...) {
    ir::release(to);
    throw;
  }
  return to;
}

}  // namespace kiln::engine
