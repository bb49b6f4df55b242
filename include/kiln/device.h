// Device: the CPU, one GPU, or another device of device.def, where a tensor lives.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace kiln {

/// Device::cpu(), Device::cuda(), Device::cuda(1): a function for each line of device.def.
struct Device {
  enum class Kind : std::uint8_t {
#define KILN_DEVICE(Name, name, library) Name,
#define KILN_DEVICES(Name, name, most, library) Name,
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  } kind = Kind::Cpu;
  std::uint8_t index = 0;  ///< of its kind
#define KILN_DEVICE(Name, name, library) \
  static constexpr Device name() { return {Kind::Name}; }
#define KILN_DEVICES(Name, name, most, library) \
  static constexpr Device name(int index = 0) { return {Kind::Name, static_cast<std::uint8_t>(index)}; }
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  friend bool operator==(const Device&, const Device&) = default;
  /// As KILN_DEVICE names it: "cpu", "cuda:1".
  std::string str() const;
};
/// Prints str().
std::ostream& operator<<(std::ostream& out, Device device);

/// Waits until all evaluations of this thread on the device have ended (CPU evaluations are synchronous, so
/// there is nothing to wait for). DeviceError if one failed. Functions that read a value wait by themselves.
void synchronize(Device device);

}  // namespace kiln
