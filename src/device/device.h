// Device: what the engine asks of a device, in one interface for every kind: what the planner may count on,
// and memory. Work is enqueued on the calling thread's stream where a device has streams; nothing is said
// about when it happens until read(), read_truth() or synchronize() wait for it.
#pragma once

#include "kernel/kernel.h"
#include "record/node.h"
#include "schedule/target.h"

#include <kiln/device.h>
#include <kiln/gpu.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kiln::device {

class Device {
 public:
  virtual ~Device() = default;

  /// Capabilities and rates, the numeric promises of the process not among them. It changes only with the
  /// configuration.
  virtual const schedule::Target& target() const = 0;
  /// Sets of arguments that one launch of a kernel takes at most.
  virtual int most_instances(const kernel::Kernel& kernel) const = 0;
  /// Steps can be recorded once and enqueued together.
  virtual bool records_graphs() const = 0;
  /// The host reads and writes its memory, and calls return when their work is done.
  virtual bool is_host() const = 0;

  /// A buffer of at least `bytes` (0 is fine) with one reference, contents unspecified. DeviceError when
  /// there is no room.
  virtual ir::Buffer* allocate(std::uint64_t bytes) = 0;
  /// Work enqueued by this thread from now on may use the buffer: it comes after what other streams do with
  /// it.
  virtual void use(ir::Buffer& buffer) = 0;
  /// Copies host memory to a buffer's beginning; `from` may change when it returns.
  virtual void write(ir::Buffer& to, const void* from, std::uint64_t bytes) = 0;
  /// Copies bytes of a buffer to host memory, once everything computed into it has happened. DeviceError for
  /// what failed.
  virtual void read(void* to, const ir::Buffer& from, std::int64_t offset, std::uint64_t bytes) = 0;
  /// Copies a buffer of another index of this kind of device.
  virtual void write_from_peer(ir::Buffer& to, const ir::Buffer& from, std::uint64_t bytes) = 0;
  /// The buffer's bytes in host memory, valid as long as the buffer: its own, or a copy that is made once.
  virtual const std::byte* host_memory(const ir::Buffer& buffer) = 0;
  /// Before memory changes of which the host may have a copy.
  virtual void forget_host_copy(ir::Buffer& buffer) = 0;

  /// Elements at any strides (none: row-major) next to each other at `to`.
  virtual void pack(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims,
                    std::span<const std::int64_t> strides, DType dtype) = 0;
  /// Writes an int64. `low`: only its low 32 bits differ from what is there.
  virtual void write_number(std::byte* to, std::int64_t value, bool low) = 0;
  virtual void zero(std::byte* to, std::uint64_t bytes) = 0;
  /// A truth value, once everything enqueued before has happened. DeviceError.
  virtual bool read_truth(const std::byte* truth) = 0;
  /// Waits for everything this thread has enqueued; DeviceError for what failed.
  virtual void synchronize() = 0;

  virtual MemoryUse memory_use() const = 0;
  /// Returns cached memory until at most `keep` bytes are held; the bytes returned.
  virtual std::uint64_t trim(std::uint64_t keep) = 0;
  /// Bytes that may be held in all; 0: the default.
  virtual void limit_memory(std::uint64_t bytes) = 0;
};

/// The process's device of that kind and index. DeviceError, saying why, when there is none.
Device& at(kiln::Device device);

}  // namespace kiln::device
