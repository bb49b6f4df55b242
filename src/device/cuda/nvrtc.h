// NVRTC, opened at run time: CUDA C source → machine code for a device, or PTX where the compiler is older
// than the device.
//
// Never fast-math. Compiles run side by side from any threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::cuda {

/// What opening the compiler found.
struct NvrtcReport {
  bool available = false;
  std::string reason;              ///< why not, one line
  std::string library;             ///< the library opened
  int major = 0, minor = 0;        ///< 13, 0
  std::vector<int> architectures;  ///< those it compiles for, ascending: 75, 80, 86…
};
/// The process's compiler, opened by the first call. Never throws.
const NvrtcReport& nvrtc();
/// The same for other library names, looked at but not used.
NvrtcReport probe_nvrtc(std::span<const std::string> libraries);

/// "NVRTC 13.0", part of every disk key; "none" without one.
std::string compiler_version();

/// A compute capability.
struct Arch {
  int major = 0, minor = 0;
  bool specific =
      false;  ///< sm_90a: instructions of this chip alone (wgmma); not for a device of another number
  int number() const { return major * 10 + minor; }
  friend bool operator==(const Arch&, const Arch&) = default;
};

struct CompileOptions {
  bool fmad = true;                ///< false: --fmad=false, no contraction of a * b + c
  int max_registers = 0;           ///< --maxrregcount; 0: the compiler decides
  std::vector<std::string> extra;  ///< more options, as NVRTC spells them
};

/// What a device runs.
struct Code {
  std::vector<std::uint8_t> image;  ///< cubin (ELF), or zero-terminated PTX
  bool ptx = false;    ///< the driver compiles it when it is loaded: a key needs the driver's version too
  std::string target;  ///< "sm_90", "compute_90"
  std::string log;     ///< warnings; usually empty
};

/// How code for `device` is made: its own architecture where NVRTC knows it, else PTX for the greatest older
/// one it knows. CompileError when there is none, or no NVRTC.
std::string compile_target(const Arch& device);

/// `source` must define `extern "C" __global__` functions; `name` is what the log calls the file.
/// CompileError with the compiler's log, also when NVRTC is missing.
Code compile(const std::string& source, const std::string& name, const Arch& device,
             const CompileOptions& options = {});

/// For dumps. PTX of the same source; CompileError as above.
std::string ptx_text(const std::string& source, const std::string& name, const Arch& device,
                     const CompileOptions& options = {});
/// For dumps. Disassembly of a cubin by nvdisasm or cuobjdump, found on PATH or in a toolkit; else a line
/// beginning with "//" that says why there is none.
std::string sass_text(std::span<const std::uint8_t> cubin);

}  // namespace kiln::cuda
