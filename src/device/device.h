// Device: what the engine asks of a device, in one interface for every kind: what the planner may count on,
// its compiler, launches, recorded steps, and memory. Work is enqueued on the calling thread's stream where a
// device has streams; nothing is said about when it happens until read(), read_truth() or synchronize() wait
// for it. Nothing outside src/device asks which kind of device it has, but for public functions that are
// about one kind (streams, DLPack).
#pragma once

#include "device/compiler.h"
#include "device/launch.h"
#include "kernel/kernel.h"
#include "record/node.h"
#include "schedule/target.h"

#include <kiln/device.h>
#include <kiln/gpu.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace kiln::device {

/// Steps that were recorded once and are enqueued as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
  /// On the calling thread's stream. Not from two threads at once. DeviceError.
  virtual void launch() = 0;
  /// Other arguments for a step that was one launch: from now on the graph's. Pre: Device::graphs_change().
  /// Not from two threads at once. DeviceError.
  virtual void set_arguments(std::size_t step, std::span<const Bound> launch) = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  /// For messages: "cpu", "cuda:0 (NVIDIA H200)".
  virtual std::string name() const = 0;

  /// What measurements are kept for: the model, and the version of the driver where there is one.
  virtual std::string identity() const { return name(); }

  /// Capabilities and rates, the numeric promises of the process not among them. It changes only with the
  /// configuration.
  virtual const schedule::Target& target() const = 0;
  /// The host reads and writes its memory, and calls return when their work is done.
  virtual bool is_host() const = 0;
  /// Kernels read and write so many bytes at once, and differ for memory that begins at a multiple of them
  /// and for other memory; 1: alignment beyond an element's changes nothing.
  virtual int wide_access_bytes() const { return 1; }
  /// Rate of a large copy in GB/s, read and written bytes together: measured, or the target's.
  virtual double copy_gbps() const = 0;

  /// With the options as they are now.
  virtual std::shared_ptr<const Compiler> compiler() = 0;
  /// Sets of arguments that one launch of a kernel takes at most.
  virtual int most_instances(const kernel::Kernel&) const { return 1; }
  /// The sets of arguments that a kernel for `instances` of them is compiled for, one of few numbers, so that
  /// few kernels serve all. Pre: instances <= most_instances(kernel).
  virtual int room_for(const kernel::Kernel&, int instances) const { return instances; }
  /// How a launch of so many iterations of a kernel's body is spread.
  virtual LaunchShape shape_of(const kernel::Kernel&, std::int64_t) const { return {}; }
  /// Before the first run of a launch whose code is there: asks the device for what its shape needs.
  /// DeviceError where the device does not have that.
  virtual void prepare(const Launch&) {}
  /// One launch for one set of arguments, or for several of equal code. Pre: at most `instances` of the code.
  /// DeviceError.
  virtual void launch(std::span<const Bound> launches) = 0;
  /// Seconds that work takes which `enqueue` enqueues; waits for it.
  virtual double seconds(const std::function<void()>& enqueue) = 0;

  /// Steps can be recorded once and enqueued together.
  virtual bool records_graphs() const { return false; }
  /// Launches that were recorded can be given other arguments.
  virtual bool graphs_change() const { return false; }
  /// What `enqueue` enqueues in `steps` calls, with each step's number; nothing runs. Addresses and other
  /// arguments are those of now; `enqueue` must neither wait nor allocate. `counters`: words that one step of
  /// them counts in at most. Null where there are no graphs or the device refuses.
  virtual std::unique_ptr<Graph> record(std::size_t steps, std::int64_t counters,
                                        const std::function<void(std::size_t)>& enqueue);
  /// Differs between the streams that work of a thread goes to.
  virtual std::uintptr_t stream_id() { return 0; }

  /// A buffer of at least `bytes` (0 is fine) with one reference, contents unspecified. DeviceError when
  /// there is no room.
  virtual ir::Buffer* allocate(std::uint64_t bytes) = 0;
  /// A buffer over memory of the device that somebody else owns: read only. `done` is called once nothing of
  /// Kiln's uses it any more, however the last use ended. DeviceError.
  virtual ir::Buffer* lend(std::byte* data, std::uint64_t bytes, std::function<void()> done) = 0;
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
