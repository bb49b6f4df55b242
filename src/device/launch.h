// Launch: a kernel that a device loaded, with its sizes known. Made once, when an evaluation is planned; what
// varies between two runs of it are addresses and scalars, which Bound adds.
#pragma once

#include <kiln/dtype.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kiln::device {

/// What a thread of a GPU takes for a kernel; -1: not known.
struct Resources {
  int registers = -1, spilled_bytes = -1;
};

/// A function of a kernel's machine code in the host's memory: its body, or another section ("link",
/// "second", "finish").
struct HostFunction {
  std::string part;
  const void* address = nullptr;
  std::uint64_t bytes = 0;
};

/// A kernel as a device loaded it: made, filled and run by that device alone.
class Code {
 public:
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  virtual ~Code() = default;
  /// False while an interpreter runs it, until its machine code is loaded.
  virtual bool compiled() const noexcept { return true; }
  /// What the interpreter runs, readable; empty where there is none.
  virtual std::string program_text() const { return {}; }
  virtual Resources resources() const { return {}; }
  /// Its machine code, where the host runs that. For the thread that loaded it.
  virtual std::vector<HostFunction> host_functions() const { return {}; }
};

/// An array that a kernel reads by tiles through its device's copy engine: a buffer of the launch, innermost
/// axis first, strides in elements. Of windows, a tile is so many channels (box[0]) of an element of so many
/// windows (box[1]); the axes but for the first and the last are walked through from `lower` to the extent
/// plus `upper`, `step` at a time.
struct TiledBuffer {
  std::uint32_t buffer = 0;
  DType dtype = DType::Float32;
  int rank = 0;
  std::int64_t dims[5]{}, strides[5]{};
  std::int32_t box[5] = {1, 1, 1, 1, 1};  // of a tile
  bool windows = false;
  std::int32_t lower[3]{}, upper[3]{}, step[3] = {1, 1, 1};
};

/// How a launch is spread over a device that has blocks of threads.
struct LaunchShape {
  std::uint32_t grid[3] = {1, 1, 1};     ///< blocks
  std::uint32_t block[3] = {1, 1, 1};    ///< threads of a block
  std::uint32_t dynamic_shared = 0;      ///< bytes of a block, beside what the code declares
  std::uint32_t cluster[3] = {1, 1, 1};  ///< blocks of a cluster; each divides the grid's
  bool cooperative = false;  ///< all blocks run at once (grid barriers); DeviceError if they cannot
  bool has_clusters() const { return cluster[0] * cluster[1] * cluster[2] > 1; }
};

struct Launch {
  std::shared_ptr<const Code> code;
  int instances = 1;  // sets of arguments that the code takes at most; above 1: codegen::InstanceTable
  LaunchShape shape;  // of one set of arguments
  std::vector<TiledBuffer> tiled;  // of a kernel with a main loop: descriptions that follow the head
  std::vector<std::byte>
      head;             // of a kernel with a main loop: what its arguments begin with, a multiple of 8 bytes
  bool narrow = false;  // the code takes the parameters in 32 bits
  std::vector<std::int64_t> params;
  std::vector<std::int32_t> narrow_params;  // the same, where it does
  std::vector<std::uint32_t> arguments;     // the buffers whose addresses it takes: all but scratch memory
  std::uint32_t slot_count = 0;
  std::int64_t grid = 1, finish_grid = 0;  // iterations of the body and of the finish section
  std::int64_t grain = 1;                  // iterations that a thread of the host takes at a time
  std::int64_t scratch_bytes = 0;          // of a thread of the host
  std::int64_t counters = 0;               // zeroed words that blocks count in
  double work = 0;                         // primitives in all
  /// Of the epilogue of a product on a CPU: the numbers of its parameters that come with a Rectangle, in the
  /// order of that one's first members, -1 for those that the kernel does not read; and that of its buffer of
  /// sums, or -1.
  std::vector<std::int32_t> given;
  std::int32_t given_buffer = -1;
};

/// Sums of products that an epilogue makes results of: those of a batch, from a row and a column on.
struct Rectangle {
  std::int64_t batch = 0, row = 0, column = 0, columns = 0;
  std::int64_t pitch = 0;  // sums from a row to the next
  std::int64_t rows = 0;
  const void* sums = nullptr;
};

/// A launch with the arguments of one run.
struct Bound {
  const Launch* launch;
  void* const* buffers;        // addresses of the kernel's buffers; those of scratch memory are not looked at
  const std::uint64_t* slots;  // values of its slots
};

}  // namespace kiln::device
