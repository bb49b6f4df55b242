#include "device/device.h"

#include "support/check.h"
#include "support/env.h"

#include <atomic>

#define KILN_DEVICE(Name, name, library) \
  namespace kiln::name {                 \
  device::Device& as_device(int index);  \
  }
#define KILN_DEVICES(Name, name, most, library) KILN_DEVICE(Name, name, library)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES

namespace kiln::device {
namespace {

std::atomic<BinaryStore*> store{nullptr};

}  // namespace

void set_binary_store(BinaryStore* to) { store.store(to, std::memory_order_release); }
BinaryStore* binary_store() { return store.load(std::memory_order_acquire); }

namespace {

Hash128 compiler_entry() { return hash128(std::string("what compiled the binaries")); }

}  // namespace

void remember_compiler(const std::string& target, const std::string& said) {
  BinaryStore* const store = binary_store();
  if (store == nullptr || remembered_compiler(target) == said) return;
  store->put(compiler_entry(), target, Binary(said.begin(), said.end()));
}

std::optional<std::string> remembered_compiler(const std::string& target) {
  BinaryStore* const store = binary_store();
  const std::optional<Binary> kept = store ? store->get(compiler_entry(), target) : std::nullopt;
  if (!kept) return std::nullopt;
  return std::string(kept->begin(), kept->end());
}

bool hides_compilers() {
  static const bool hidden = environment_variable("KILN_TEST_NO_COMPILERS") != nullptr;
  return hidden;
}

void Compiler::interpret(Code&, const Unit&) const {
  KILN_CHECK_THAT(false, "a device without an interpreter is to interpret a kernel");
}

std::unique_ptr<Graph> Device::record(std::size_t, std::int64_t, const std::function<void(std::size_t)>&) {
  return nullptr;
}

Device& at(kiln::Device device) {
  switch (device.kind) {
#define KILN_DEVICE(Name, name, library) \
  case kiln::Device::Kind::Name: return name::as_device(device.index);
#define KILN_DEVICES(Name, name, most, library) KILN_DEVICE(Name, name, library)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  }
  KILN_CHECK_THAT(false, "a device of no kind");
  return cpu::as_device(0);
}

}  // namespace kiln::device
