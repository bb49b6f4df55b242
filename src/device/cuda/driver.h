// The CUDA driver: libcuda.so.1 opened at run time, its devices, and why there are none.
//
// Nothing here or in the other headers of this directory names a CUDA type by its header: <cuda.h> is for the
// .cpp files. Everything may be called from any thread. A device's primary context is retained at first use
// and never reset, and a call leaves the thread's current context as it found it, so that Kiln lives beside
// other users of the device.
//
// After a fork the child gets a DeviceError from every call (CUDA does not survive a fork). Once the process
// exits, the exiting thread gets a DeviceError, other threads wait for the end; giving memory back is allowed
// and does nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::cuda {

/// What a device can do. Sizes in bytes.
struct DeviceInfo {
  int index = 0;
  std::string name;
  std::string uuid;          ///< "GPU-…", as nvidia-smi and CUDA_VISIBLE_DEVICES write it
  int major = 0, minor = 0;  ///< compute capability
  int sm_count = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t l2_bytes = 0;
  int shared_per_block = 0;        ///< dynamic and static together, without asking
  int shared_per_block_optin = 0;  ///< the most a kernel may ask for (allow_dynamic_shared)
  int shared_per_sm = 0;
  int threads_per_block = 0;
  int threads_per_sm = 0;
  int blocks_per_sm = 0;
  int registers_per_block = 0;
  int registers_per_sm = 0;
  int clock_khz = 0;         ///< 0: the driver does not say
  int memory_clock_khz = 0;  ///< 0: the driver does not say
  int memory_bus_bits = 0;
  bool clusters = false;     ///< thread block clusters
  bool cooperative = false;  ///< cooperative launches
};

/// What opening the driver found.
struct DriverReport {
  bool available = false;
  std::string reason;   ///< why not, one line; empty when available
  std::string library;  ///< the library opened; empty: none
  int version = 0;      ///< of CUDA that the driver speaks: 13000 is 13.0; 0: unknown
  std::vector<DeviceInfo> devices;
};

/// The process's driver; opened and initialised by the first call. Never throws.
const DriverReport& driver();
/// The same for other library names, looked at but not used: for tests and for `kiln doctor`.
DriverReport probe_driver(std::span<const std::string> libraries);

/// Names of a library of the toolkit ("libnvrtc"), best first: its major versions up to the driver's, which
/// does not run what a newer one makes, then the others.
std::vector<std::string> toolkit_names(const std::string& stem);

inline bool available() { return driver().available; }

/// DeviceError saying why when there is no such device.
const DeviceInfo& device(int index);

/// DeviceError with the first asynchronous failure of the device (an illegal address, say), if it had one:
/// its context is lost, and so is everything in its memory, until the process ends.
void require_working(int device);

/// Bytes free and in all on the device, as the driver tells it. DeviceError.
struct MemoryInfo {
  std::uint64_t free = 0, total = 0;
};
MemoryInfo memory_info(int device);

/// True once the process began to exit or was forked after the driver was started: memory need not, and must
/// not, be given back to the driver any more.
bool ended() noexcept;

}  // namespace kiln::cuda
