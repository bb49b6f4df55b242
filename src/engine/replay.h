// Kernels that are run again outside the program that made them: KILN_DUMP_STAGES=run writes the first launch
// of each kernel with the memory that it reads and what it made of it, and `kiln replay` runs it, perhaps
// from a source that somebody edited.
//
// Files, beside the kernel's source (NAME.ll or NAME.cu): NAME.run.json, the launch; NAME.run.bin, the bytes
// of every array before the launch, then after it. Several launches that run as one are written as one, with
// the arrays of all. Kernels that run inside a library's product or attention on a CPU are not written.
#pragma once

#include "engine/plan.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kiln::engine {

/// Whether launches are to be written. Cheap.
bool dumps_runs();

/// Memory of one argument or buffer of a plan.
struct RunMemory {
  std::byte* data;
  std::uint64_t bytes;
};
/// A buffer of a kernel. memory -1: its scratch memory.
struct RunBuffer {
  std::int32_t memory = -1;
  std::int64_t offset = 0;  // bytes
  bool written = false;
  DType dtype = DType::Float32;
};

/// One set of a kernel's arguments.
struct RunArguments {
  const Launch* launch = nullptr;
  std::vector<RunBuffer> buffers;
  std::span<const std::uint64_t> slots;
};

/// Calls `launch`; of the first launch of a kernel everything is written beside it. A file that cannot be
/// written is a warning.
void dump_run(std::span<const RunArguments> sets, Device device, std::span<const RunMemory> memories,
              const std::function<void()>& launch);

/// A launch that was written.
class Replay {
 public:
  /// UserError where the files are missing or damaged, DeviceError where the device is missing.
  explicit Replay(const std::filesystem::path& json);
  ~Replay();
  Replay(const Replay&) = delete;

  const std::string& name() const;
  /// The source that was generated.
  std::filesystem::path source() const;

  /// What a run made otherwise than the program did.
  struct Difference {
    std::size_t set = 0, buffer = 0;  // of the arguments
    DType dtype = DType::Float32;
    std::int64_t elements = 0, differ = 0, first = -1;  // of its memory
    double greatest = 0;                                // absolute
  };
  struct Result {
    double seconds = 0;                   // median of the runs
    std::vector<Difference> differences;  // one for each array written
  };
  /// Compiles a source and runs it so many times, each on the memory as it was. CompileError with the
  /// compiler's message.
  Result run(const std::filesystem::path& source, int times) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::engine
