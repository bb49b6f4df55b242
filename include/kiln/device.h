// Device: the CPU or one GPU, where a tensor lives.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace kiln {

struct Device {
  enum class Kind : std::uint8_t { Cpu, Cuda } kind = Kind::Cpu;
  std::uint8_t index = 0;
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::Cuda, static_cast<std::uint8_t>(index)}; }
  friend bool operator==(const Device&, const Device&) = default;
  std::string str() const { return kind == Kind::Cpu ? "cpu" : "cuda:" + std::to_string(int{index}); }
};
/// Prints str().
std::ostream& operator<<(std::ostream& out, Device device);

/// Waits until all evaluations of this thread on the device have ended (CPU evaluations are synchronous, so
/// there is nothing to wait for). DeviceError if one failed. Functions that read a value wait by themselves.
void synchronize(Device device);

}  // namespace kiln
