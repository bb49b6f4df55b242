#include "device/cpu/executable.h"

#include "codegen/vm/vm.h"
#include "device/cpu/threads.h"
#include "support/check.h"

#include <algorithm>
#include <utility>

namespace kiln::cpu {

using codegen::VmPart;

namespace {

/// Grains between two looks for machine code: together a fraction of a millisecond.
constexpr std::int64_t kGrainsAtOnce = 16;

const codegen::VmLoops& loops_for(const CpuTarget& target) {
  if (target.avx512 && codegen::vm_loops_avx512()) return *codegen::vm_loops_avx512();
  if (target.avx2 && codegen::vm_loops_avx2()) return *codegen::vm_loops_avx2();
  return *codegen::vm_loops_base();
}

std::int64_t align64(std::int64_t bytes) { return (bytes + 63) & ~std::int64_t{63}; }

}  // namespace

void Executable::translate(const kernel::Kernel& kernel, const CpuTarget& target) {
  program_ = std::make_shared<const codegen::VmProgram>(kernel, loops_for(target));
}

void Executable::publish(MachineCode code) noexcept {
  functions_ = std::move(code.functions);
  link_.store(code.link, std::memory_order_relaxed);
  second_.store(code.second, std::memory_order_relaxed);
  finish_.store(code.finish, std::memory_order_relaxed);
  body_.store(code.body, std::memory_order_release);
}

std::string Executable::program_text() const {
  if (!program_) return {};
  std::string text;
  constexpr const char* kNames[] = {"", "link\n", "second\n", "finish\n"};
  for (const VmPart part : {VmPart::Body, VmPart::Link, VmPart::Second, VmPart::Finish})
    if (program_->has(part)) text += kNames[static_cast<int>(part)] + print(program_->code(part));
  return text;
}

void Executable::body(const kernel::Frame& frame, std::int64_t begin, std::int64_t end,
                      std::int64_t scratch_bytes, std::int64_t grain) const {
  const std::int64_t own = align64(scratch_bytes);
  for (const std::int64_t slice = std::max<std::int64_t>(grain, 1) * kGrainsAtOnce; begin < end;
       begin += slice) {
    if (const kernel::KernelFn fn = body_.load(std::memory_order_acquire)) {
      fn(&frame, begin, end, scratch_bytes ? scratch(static_cast<std::size_t>(scratch_bytes)) : nullptr);
      return;
    }
    std::byte* memory = scratch(static_cast<std::size_t>(own + program_->memory_bytes()));
    program_->run(VmPart::Body, frame, begin, std::min(begin + slice, end), memory, memory + own);
  }
}

void Executable::body_in(const kernel::Frame& frame, std::int64_t begin, std::int64_t end,
                         std::int64_t scratch_bytes, std::byte* memory) const {
  if (const kernel::KernelFn fn = body_.load(std::memory_order_acquire))
    return fn(&frame, begin, end, memory);
  program_->run(VmPart::Body, frame, begin, end, memory, memory + align64(scratch_bytes));
}

std::int64_t Executable::memory_bytes(std::int64_t scratch_bytes) const {
  return align64(scratch_bytes) + (program_ ? align64(program_->memory_bytes()) : 0);
}

void Executable::one(const std::atomic<kernel::KernelFn>& section, VmPart part, const kernel::Frame& frame,
                     std::int64_t begin, std::int64_t end, std::int64_t scratch_bytes) const {
  const std::int64_t own = align64(scratch_bytes);
  if (compiled()) {
    const kernel::KernelFn fn = section.load(std::memory_order_relaxed);
    if (fn)
      fn(&frame, begin, end, scratch_bytes ? scratch(static_cast<std::size_t>(scratch_bytes)) : nullptr);
  } else if (program_->has(part)) {
    std::byte* memory = scratch(static_cast<std::size_t>(own + program_->memory_bytes()));
    program_->run(part, frame, begin, end, memory, memory + own);
  }
}

bool Executable::chained() const noexcept {
  return compiled() ? link_.load(std::memory_order_relaxed) != nullptr : program_->has(VmPart::Link);
}

void Executable::link(const kernel::Frame& frame, std::int64_t item, std::int64_t scratch_bytes) const {
  one(link_, VmPart::Link, frame, item, item + 1, scratch_bytes);
}

void Executable::second(const kernel::Frame& frame, std::int64_t item, std::int64_t scratch_bytes) const {
  one(second_, VmPart::Second, frame, item, item + 1, scratch_bytes);
}

void Executable::finish(const kernel::Frame& frame, std::int64_t grid) const {
  one(finish_, VmPart::Finish, frame, 0, grid, 0);
}

}  // namespace kiln::cpu
