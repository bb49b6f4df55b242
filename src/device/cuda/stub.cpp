// Stands for the files of this directory that need CUDA's headers in a build that had none: there is never a
// device.
#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/graph.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/pool.h"
#include "device/cuda/stream.h"

#include <kiln/error.h>

namespace kiln::cuda {
namespace {

constexpr const char* kReason = "Kiln was built without CUDA headers";

[[noreturn]] void no_device() { throw DeviceError(std::string("[cuda] no CUDA device: ") + kReason); }
[[noreturn]] void no_compiler() { throw CompileError(std::string("[compile] no CUDA compiler: ") + kReason); }

}  // namespace

const DriverReport& driver() {
  static const DriverReport report{.reason = kReason};
  return report;
}
DriverReport probe_driver(std::span<const std::string>) { return driver(); }
std::vector<std::string> toolkit_names(const std::string&) { return {}; }
const DeviceInfo& device(int) { no_device(); }
void require_working(int) { no_device(); }
MemoryInfo memory_info(int) { no_device(); }
bool ended() noexcept { return false; }

const NvrtcReport& nvrtc() {
  static const NvrtcReport report{.reason = kReason};
  return report;
}
NvrtcReport probe_nvrtc(std::span<const std::string>) { return nvrtc(); }
std::string compiler_version() { return "none"; }
std::string compile_target(const Arch&) { no_compiler(); }
Code compile(const std::string&, const std::string&, const Arch&, const CompileOptions&) { no_compiler(); }
std::string ptx_text(const std::string&, const std::string&, const Arch&, const CompileOptions&) {
  no_compiler();
}
std::string sass_text(std::span<const std::uint8_t>) {
  return std::string("// no disassembly: ") + kReason + "\n";
}

Module load_module(int, std::span<const std::uint8_t>) { no_device(); }
Function find_function(const Module&, const std::string&) { no_device(); }
void allow_dynamic_shared(const Function&, int) { no_device(); }
int blocks_per_sm(const Function&, int, int) { no_device(); }
int parameter_bytes(int) { no_device(); }
int clusters_per_device(const Function&, const LaunchShape&) { no_device(); }
void launch(const Function&, const LaunchShape&, Stream, void**) { no_device(); }

int device_of(Stream) { no_device(); }
CUstream_st* handle_of(Stream) { no_device(); }
Stream default_stream(int) { no_device(); }
Stream wrap_stream(int, CUstream_st*) { no_device(); }
Stream new_stream(int) { no_device(); }
void retire(Stream) { no_device(); }
Stream current_stream(int) { no_device(); }
Stream set_current_stream(int, Stream) { no_device(); }
void synchronize(Stream) { no_device(); }
void synchronize_device(int) { no_device(); }
bool idle(Stream) { no_device(); }
Event& Event::operator=(Event&&) noexcept { return *this; }
Event::~Event() = default;
bool Event::done() const { return true; }
void Event::synchronize() const {}
void Event::wait_on(Stream) const {}
Event record(Stream, bool) { no_device(); }
double elapsed_ms(const Event&, const Event&) { no_device(); }
void order(Stream, Stream) { no_device(); }

Graph& Graph::operator=(Graph&&) noexcept { return *this; }
Graph::~Graph() = default;
void Graph::launch(Stream) const { no_device(); }
void Graph::set_arguments(std::size_t, const Function&, const LaunchShape&, void**) { no_device(); }
bool graphs_change() { return false; }
Graph capture(int, const std::function<void(std::size_t)>&, std::size_t) { no_device(); }

Block* allocate(std::uint64_t, Stream) { no_device(); }
void release(Block*, Stream) noexcept {}
PoolStatistics pool_statistics(int) { no_device(); }
std::uint64_t trim(int, std::uint64_t) { no_device(); }
void set_memory_limit(int, std::uint64_t) { no_device(); }
void set_exact_blocks(bool) {}
void hand_over(Stream, Stream) { no_device(); }

void copy_to_device(void*, const void*, std::uint64_t, Stream) { no_device(); }
void copy_to_host(void*, const void*, std::uint64_t, Stream) { no_device(); }
void copy_on_device(void*, const void*, std::uint64_t, Stream) { no_device(); }
void copy_across(void*, Stream, const void*, Stream, std::uint64_t) { no_device(); }
void fill(void*, std::uint32_t, int, std::uint64_t, Stream) { no_device(); }
std::uint64_t staging_bytes() { return 0; }

}  // namespace kiln::cuda
