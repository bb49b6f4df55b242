#include "device/device.h"

#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"

namespace kiln::device {

Device& at(kiln::Device device) {
  switch (device.kind) {
    case kiln::Device::Kind::Cpu: return cpu::device();
    case kiln::Device::Kind::Cuda: return cuda::as_device(device.index);
  }
  return cpu::device();
}

}  // namespace kiln::device
