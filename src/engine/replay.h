// Kernels that are run again outside the program that made them: KILN_DUMP_STAGES=run writes the first launch
// of each kernel with the memory that it reads and what it made of it, and `kiln replay` runs it, perhaps
// from a source that somebody edited.
//
// Files, beside the kernel's source (NAME.ll or NAME.cu): NAME.run.json, the launch; NAME.run.bin, the bytes
// of every array before the launch, then after it. Several launches that run as one are written as one, with
// the arrays of all. Of a kernel that runs inside a product on a CPU the first rectangle of sums is written
// as a launch. Kernels that run inside an attention on a CPU are not written.
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

/// The buffers of a launch as parts of the memory of a plan's arguments and results, which is added to
/// `memories`.
std::vector<RunBuffer> run_buffers(const Plan& plan, const Launch& launch, std::span<std::byte* const> args,
                                   std::span<ir::Buffer* const> buffers,
                                   const std::function<const std::byte*(const Place&)>& address,
                                   std::vector<RunMemory>& memories);

/// Calls `launch`; of the first launch of a kernel everything is written beside it. A file that cannot be
/// written is a warning.
void dump_run(std::span<const RunArguments> sets, Device device, std::span<const RunMemory> memories,
              const std::function<void()>& launch);

/// Calls `product`, which runs the epilogue for rectangles of its sums, on a CPU; the first of these is
/// written as a launch of its own. `epilogue.launch`: the very one that the product is given.
void dump_epilogue(const RunArguments& epilogue, std::span<const RunMemory> memories,
                   const std::function<void()>& product);

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
