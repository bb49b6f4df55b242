#include "device/null/null_device.h"

#include "device/cuda/cuda_compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/launches.h"
#include "device/cuda/module.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace kiln::null {
namespace {

/// A GPU of a generation. A compute capability between two of them takes the lower one's figures.
struct Chip {
  int capability;
  int sm_count;
  std::uint64_t l2_mib, memory_gib;
};
constexpr Chip kChips[] = {
    {70, 80, 6, 32},       // V100
    {75, 40, 4, 16},       // T4
    {80, 108, 40, 80},     // A100
    {86, 84, 6, 48},       // A40
    {89, 142, 96, 48},     // L40S
    {90, 132, 50, 80},     // H100
    {100, 148, 126, 180},  // B200
    {120, 188, 128, 96},   // RTX PRO 6000
};
constexpr int kDefault = 90;

/// What the device stands for.
struct Model {
  int capability;
  std::uint64_t memory_bytes;
  schedule::Target target;
  std::shared_ptr<const device::Compiler> compiler;
};

/// Emits; what it would compile is the text itself.
class NullCompiler final : public cuda::SourceCompiler {
 public:
  explicit NullCompiler(int capability) : SourceCompiler({capability / 10, capability % 10}) {}
  std::string key() const override { return {}; }
  Hash128 memory_key() const override { return hash128(cat("null sm_", arch_.number())); }
  device::Binary compile(const device::Unit& unit) const override {
    const std::string text = chosen(unit).text;
    return {text.begin(), text.end()};
  }
  std::shared_ptr<device::Code> new_code() const override { return std::make_shared<device::Code>(); }
  void load(device::Code&, const device::Binary&, const device::Unit&) const override {}
};

Model make_model(int capability) {
  const Chip* chip = kChips;
  while (chip + 1 != std::end(kChips) && chip[1].capability <= capability) ++chip;
  cuda::DeviceInfo info;
  info.major = capability / 10;
  info.minor = capability % 10;
  info.sm_count = chip->sm_count;
  info.l2_bytes = chip->l2_mib << 20;
  return {capability, chip->memory_gib << 30, cuda::target_of(info),
          std::make_shared<NullCompiler>(capability)};
}

/// The model in force. Models stay for ever, so that whoever keeps a target sees that another is in force.
const Model& model() {
  struct Kept {
    std::string text = "?";
    const Model* model = nullptr;
  };
  Kept& kept = thread_own<Kept, Model>();
  const std::string& text = config().null_target;
  if (kept.text == text) return *kept.model;
  static std::mutex mutex;
  static auto* const models = new std::map<int, Model>;
  const int capability =
      text.empty() ? kDefault : std::stoi(text.substr(3));  // sm_NN, checked when it was set
  const std::lock_guard lock(mutex);
  auto at = models->find(capability);
  if (at == models->end()) at = models->emplace(capability, make_model(capability)).first;
  kept = {text, &at->second};
  return *kept.model;
}

[[noreturn]] void runs_nothing(const char* what) {
  throw DeviceError(cat("[null] ", what,
                        ": the device null runs nothing, its tensors have no values (it plans and emits "
                        "for sm_",
                        model().capability, "; KILN_DEVICE or to() choose a device that runs)"));
}

class NullDevice final : public device::Device {
 public:
  std::string name() const override { return cat("null (sm_", model().capability, ")"); }
  const schedule::Target& target() const override { return model().target; }
  bool is_host() const override { return false; }
  int wide_access_bytes() const override { return 16; }
  double copy_gbps() const override { return target().bytes_per_ns; }

  std::shared_ptr<const device::Compiler> compiler() override { return model().compiler; }
  int most_instances(const kernel::Kernel& kernel) const override {
    return cuda::most_instances(kernel, cuda::kManyParameterBytes);
  }
  int room_for(const kernel::Kernel& kernel, int instances) const override {
    return cuda::room_for(kernel, instances, cuda::kManyParameterBytes);
  }
  device::LaunchShape shape_of(const kernel::Kernel& kernel, std::int64_t grid) const override {
    return cuda::shape_of(kernel, grid);
  }
  void launch(std::span<const device::Bound>) override {}
  double seconds(const std::function<void()>& enqueue) override {
    enqueue();
    return 0;
  }

  /// Addresses that no process can have, each given out once.
  ir::Buffer* allocate(std::uint64_t bytes) override {
    const std::uint64_t limit = memory_use().limit;
    if (const std::uint64_t before = in_use_.fetch_add(bytes); before > limit || bytes > limit - before) {
      in_use_.fetch_sub(bytes);
      throw DeviceError(cat("[memory] null (sm_", model().capability, ") has no room for ", bytes,
                            " bytes: ", before, " of ", limit, " are in use"));
    }
    constexpr std::uint64_t kAlignment = 256;
    auto* buffer = new ir::Buffer;
    buffer->device = kiln::Device::null();
    buffer->data =
        reinterpret_cast<std::byte*>(next_.fetch_add(bytes / kAlignment * kAlignment + kAlignment));
    buffer->bytes = bytes;
    buffer->free = [](ir::Buffer* b) {
      in_use_.fetch_sub(b->bytes);
      delete b;
    };
    return buffer;
  }
  ir::Buffer* lend(std::byte*, std::uint64_t, std::function<void()>) override {
    throw DeviceError("[null] the device null has no memory that anybody could lend");
  }
  void use(ir::Buffer&) override {}
  void write(ir::Buffer&, const void*, std::uint64_t) override {}
  void read(void*, const ir::Buffer&, std::int64_t, std::uint64_t bytes) override {
    if (bytes > 0) runs_nothing("a value is read");
  }
  void write_from_peer(ir::Buffer&, const ir::Buffer&, std::uint64_t) override {}
  const std::byte* host_memory(const ir::Buffer&) override { runs_nothing("a value is read"); }
  void forget_host_copy(ir::Buffer&) override {}

  void pack(std::byte*, const std::byte*, std::span<const std::int64_t>, std::span<const std::int64_t>,
            DType) override {}
  void write_number(std::byte*, std::int64_t, bool) override {}
  void zero(std::byte*, std::uint64_t) override {}
  bool read_truth(const std::byte*) override { runs_nothing("a loop asks for its condition"); }
  void synchronize() override {}

  MemoryUse memory_use() const override {
    const std::uint64_t limit = limit_.load(), in_use = in_use_.load();
    return {in_use, in_use, limit ? limit : model().memory_bytes};
  }
  std::uint64_t trim(std::uint64_t) override { return 0; }
  void limit_memory(std::uint64_t bytes) override { limit_.store(bytes); }

 private:
  static inline std::atomic<std::uint64_t> next_{std::uint64_t{1} << 56}, in_use_{0}, limit_{0};
};

}  // namespace

device::Device& as_device(int) {
  static NullDevice* const device = new NullDevice;  // buffers are freed during exit, too
  return *device;
}

}  // namespace kiln::null
