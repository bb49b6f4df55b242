#include "device/cuda/nvrtc.h"

#include <nvrtc.h>

#include "device/compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/exit_gate.h"
#include "device/cuda/shared_library.h"
#include "support/check.h"
#include "support/large_stack.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

namespace kiln::cuda {
namespace {

struct NvrtcApi {
  // clang-format off
#define KILN_NVRTC_FUNCTIONS(_)                                                                                   \
  _(nvrtcGetErrorString) _(nvrtcVersion) _(nvrtcGetNumSupportedArchs) _(nvrtcGetSupportedArchs)                   \
  _(nvrtcCreateProgram) _(nvrtcDestroyProgram) _(nvrtcCompileProgram) _(nvrtcGetPTXSize) _(nvrtcGetPTX)           \
  _(nvrtcGetCUBINSize) _(nvrtcGetCUBIN) _(nvrtcGetProgramLogSize) _(nvrtcGetProgramLog)
// clang-format on
#define KILN_NVRTC_FIELD(name) decltype(&::name) name = nullptr;
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_FIELD)
#undef KILN_NVRTC_FIELD
};

const char* bind(const SharedLibrary& library, NvrtcApi& api) {
  const char* missing = nullptr;
#define KILN_NVRTC_BIND(name)                                                   \
  api.name = reinterpret_cast<decltype(api.name)>(find_symbol(library, #name)); \
  if (!api.name) missing = #name;
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_BIND)
#undef KILN_NVRTC_BIND
  return missing;
}

NvrtcReport look(std::span<const std::string> names, NvrtcApi& api) {
  NvrtcReport out;
  const SharedLibrary library = open_first(names);
  if (!library.handle) {
    out.reason = "no NVRTC library: " + library.failure;
    return out;
  }
  out.library = library.path;
  if (const char* missing = bind(library, api)) {
    out.reason = cat(library.path, " has no function ", missing, ": not NVRTC, or one that is too old");
    return out;
  }
  int count = 0;
  nvrtcResult result = api.nvrtcVersion(&out.major, &out.minor);
  if (result == NVRTC_SUCCESS) result = api.nvrtcGetNumSupportedArchs(&count);
  out.architectures.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (result == NVRTC_SUCCESS && count > 0) result = api.nvrtcGetSupportedArchs(out.architectures.data());
  if (result != NVRTC_SUCCESS || out.architectures.empty()) {
    out.reason = cat(library.path, " does not start: ", api.nvrtcGetErrorString(result));
    return out;
  }
  std::sort(out.architectures.begin(), out.architectures.end());
  out.available = true;
  return out;
}

/// NVRTC's static objects do not survive a compile that meets the end of the process.
constinit ExitGate gate{std::chrono::minutes(1)};

/// The library makes static objects while it compiles, whose handlers are younger than ours and run before
/// it. A thread that calls exit destroys its own objects first, in time to wait for a compile: the first
/// thread's, which is the one that ends the process by returning from main.
struct FirstThread {
  ~FirstThread() {
    gate.hold();
    std::atexit([] { gate.close(); });  // runs next
  }
};

struct Compiler {
  NvrtcReport report;
  NvrtcApi api;
};

const Compiler& compiler() {
  if (getpid() == gettid()) {
    thread_local FirstThread watch;
    (void)watch;
  }
  static const Compiler* const instance = [] {
    auto* made = new Compiler;
    if (device::hides_compilers())
      made->report.reason = "it is hidden";
    else
      made->report = look(toolkit_candidates(toolkit_names("libnvrtc")), made->api);
    std::atexit([] { gate.close(); });
    pthread_atfork(nullptr, nullptr, [] { gate.reset_in_child(); });
    return made;
  }();
  return *instance;
}

const NvrtcApi& api() {
  if (!compiler().report.available)
    throw CompileError("[compile] no CUDA compiler: " + compiler().report.reason);
  return compiler().api;
}

class Inside {
 public:
  Inside() {
    if (gate.enter() != ExitGate::Answer::Enter)
      throw CompileError("[compile] the process is exiting: no kernel is compiled any more");
  }
  ~Inside() {
    // The first compiles make more of those objects, and our handler has to be younger than all.
    static std::atomic<int> registered{0};
    if (registered.load(std::memory_order_relaxed) < 8 && registered.fetch_add(1) < 8)
      std::atexit([] { gate.close(); });
    gate.leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

/// One compile. Its text and its results live in the library until the end of the scope.
class Program {
 public:
  Program(const std::string& source, const std::string& name) : api_(api()), name_(name) {
    check(api_.nvrtcCreateProgram(&handle_, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr));
  }
  ~Program() { api_.nvrtcDestroyProgram(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const std::vector<std::string>& options) {
    // Not every version knows these. The runtime's declarations, which no kernel of ours uses, are a tenth of
    // the time of a short compile; the cache of the driver is a second one beside ours.
    static constexpr const char* kWanted[] = {"--minimal", "--no-cache"};
    static std::atomic<int> known{std::size(kWanted)};
    nvrtcResult result;
    for (int n = known.load(std::memory_order_relaxed);; --n) {
      std::vector<const char*> raw(kWanted, kWanted + n);
      for (const std::string& option : options) raw.push_back(option.c_str());
      on_large_stack(
          [&] { result = api_.nvrtcCompileProgram(handle_, static_cast<int>(raw.size()), raw.data()); });
      if (result == NVRTC_ERROR_INVALID_OPTION && n > 0) continue;
      if (result != NVRTC_ERROR_INVALID_OPTION) known.store(n, std::memory_order_relaxed);
      break;
    }
    if (result == NVRTC_SUCCESS) return;
    throw CompileError(cat("[compile] ", compiler_version(), " refuses ", name_, " (",
                           api_.nvrtcGetErrorString(result), "):\n", log()));
  }

  std::string log() const {
    std::size_t size = 0;
    if (api_.nvrtcGetProgramLogSize(handle_, &size) != NVRTC_SUCCESS || size <= 1) return "";
    std::string out(size, '\0');
    if (api_.nvrtcGetProgramLog(handle_, out.data()) != NVRTC_SUCCESS) return "";
    out.resize(size - 1);
    return out;
  }
  std::vector<std::uint8_t> cubin() const { return result(api_.nvrtcGetCUBINSize, api_.nvrtcGetCUBIN); }
  std::vector<std::uint8_t> ptx() const { return result(api_.nvrtcGetPTXSize, api_.nvrtcGetPTX); }

 private:
  std::vector<std::uint8_t> result(nvrtcResult (*size_of)(nvrtcProgram, std::size_t*),
                                   nvrtcResult (*get)(nvrtcProgram, char*)) const {
    std::size_t size = 0;
    check(size_of(handle_, &size));
    std::vector<std::uint8_t> out(size);
    check(get(handle_, reinterpret_cast<char*>(out.data())));
    return out;
  }
  void check(nvrtcResult result) const {
    if (result != NVRTC_SUCCESS)
      throw CompileError(
          cat("[compile] ", compiler_version(), ", ", name_, ": ", api_.nvrtcGetErrorString(result)));
  }

  const Inside inside_;
  const NvrtcApi& api_;
  const std::string& name_;
  nvrtcProgram handle_ = nullptr;
};

std::vector<std::string> options_of(const std::string& target, const CompileOptions& options) {
  std::vector<std::string> out = {"--gpu-architecture=" + target, "--std=c++17",
                                  "--device-as-default-execution-space"};
  if (!options.fmad) out.emplace_back("--fmad=false");
  if (options.max_registers > 0) out.push_back(cat("--maxrregcount=", options.max_registers));
  out.insert(out.end(), options.extra.begin(), options.extra.end());
  return out;
}

std::string as_ptx_target(const std::string& target) {
  return "compute_" + target.substr(target.find('_') + 1);
}

/// The program, by the first of these names that is there.
std::optional<std::string> find_program(std::span<const std::string> names) {
  const std::vector<std::string> directories = toolkit_program_directories();
  for (const std::string& name : names)
    for (const std::string& directory : directories) {
      const std::string file = directory + "/" + name;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
  return std::nullopt;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// A file in the system's directory for temporary ones, gone at the end of the scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::span<const std::uint8_t> bytes) {
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "kiln-XXXXXX").string();
    const int fd = error ? -1 : mkstemp(path_.data());
    if (fd < 0) return;
    std::FILE* file = fdopen(fd, "wb");
    good_ = file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (file ? std::fclose(file) != 0 : close(fd) != 0) good_ = false;
    made_ = true;
  }
  ~TemporaryFile() {
    if (made_) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool good() const { return good_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false, good_ = false;
};

}  // namespace

const NvrtcReport& nvrtc() { return compiler().report; }

NvrtcReport probe_nvrtc(std::span<const std::string> libraries) {
  NvrtcApi unused;
  return look(libraries, unused);
}

std::string compiler_version() {
  const NvrtcReport& report = nvrtc();
  return report.available ? cat("NVRTC ", report.major, '.', report.minor) : "none";
}

std::string compile_target(const Arch& device) {
  api();
  const std::vector<int>& known = nvrtc().architectures;
  const int wanted = device.number();
  if (std::binary_search(known.begin(), known.end(), wanted))
    return cat("sm_", wanted, device.specific ? "a" : "");
  const auto above = std::upper_bound(known.begin(), known.end(), wanted);
  if (above == known.begin())
    throw CompileError(cat("[compile] ", compiler_version(), " compiles for sm_", known.front(),
                           " and newer; the device is sm_", wanted));
  return cat("compute_", *std::prev(above));
}

Code compile(const std::string& source, const std::string& name, const Arch& device,
             const CompileOptions& options) {
  Code out;
  out.target = compile_target(device);
  out.ptx = out.target.starts_with("compute_");
  Program program(source, name);
  program.compile(options_of(out.target, options));
  out.image = out.ptx ? program.ptx() : program.cubin();
  out.log = program.log();
  return out;
}

std::string ptx_text(const std::string& source, const std::string& name, const Arch& device,
                     const CompileOptions& options) {
  const std::string target = as_ptx_target(compile_target(device));
  Program program(source, name);
  program.compile(options_of(target, options));
  const std::vector<std::uint8_t> text = program.ptx();
  return {text.begin(), std::find(text.begin(), text.end(), 0)};
}

std::string sass_text(std::span<const std::uint8_t> cubin) {
  const std::string names[] = {"nvdisasm", "cuobjdump"};
  const auto program = find_program(names);
  if (!program) return "// no disassembly: neither nvdisasm nor cuobjdump is on PATH or in a toolkit\n";
  const TemporaryFile file(cubin);
  if (!file.good()) return cat("// no disassembly: cannot write ", file.path(), "\n");
  const char* flags = program->ends_with("cuobjdump") ? " -sass " : " -c ";
  const std::string command = quoted(*program) + flags + quoted(file.path()) + " 2>&1";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return cat("// no disassembly: cannot run ", *program, "\n");
  std::string out;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe.get())) out.append(buffer, n);
  return out.empty() ? cat("// no disassembly: ", *program, " printed nothing\n") : out;
}

}  // namespace kiln::cuda
