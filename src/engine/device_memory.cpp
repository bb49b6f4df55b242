#include "engine/device_memory.h"

#include "inspect/timeline.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <string>

namespace kiln::engine {

namespace {

/// Of config().device, which was checked when it was set.
Device device_named(const std::string& text) {
  const std::size_t colon = text.find(':');
  const int index = colon == text.npos ? 0 : std::stoi(text.substr(colon + 1));
  const std::string kind = text.substr(0, colon);
#define KILN_DEVICE(Name, name, library) \
  if (kind == #name) return Device::name();
#define KILN_DEVICES(Name, name, most, library)                                                     \
  if (kind == #name) {                                                                              \
    if (index >= most)                                                                              \
      throw DeviceError(cat("[device] ", text, ": at most ", most, " devices of a kind are used")); \
    return Device::name(index);                                                                     \
  }
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  KILN_CHECK_THAT(false, "a device that nothing names: ", text);
  return Device::cpu();
}

}  // namespace

Device default_device() {
  struct Kept {
    std::string text;
    Device device;
  };
  Kept& kept = thread_own<Kept, Kept>();
  const std::string& text = config().device;
  if (text == kept.text) return kept.device;
  const Device d = device_named(text);
  device::at(d);  // throws when there is none
  kept = {text, d};
  return d;
}

ir::Buffer* allocate(std::uint64_t bytes, Device device) { return device::at(device).allocate(bytes); }

ir::Buffer* copied_to(const ir::Buffer& from, Device device) {
  const TraceSpan span("copy", "copy between devices");
  device::Device &source = device_of(from), &target = device::at(device);
  ir::Buffer* to = target.allocate(from.bytes);
  try {
    if (source.is_host())
      target.write(*to, from.data, from.bytes);
    else if (target.is_host())
      source.read(to->data, from, 0, from.bytes);
    else if (from.device.kind == device.kind)
      target.write_from_peer(*to, from, from.bytes);
    else
      target.write(*to, source.host_memory(from), from.bytes);
  } catch (...) {
    ir::release(to);
    throw;
  }
  return to;
}

}  // namespace kiln::engine
