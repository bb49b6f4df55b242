#include "backend/cpu/executable.h"

#include "backend/cpu/threads.h"
#include "codegen/vm.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::cpu {
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

void Executable::publish(const MachineCode& code) noexcept {
  link_.store(code.link, std::memory_order_relaxed);
  second_.store(code.second, std::memory_order_relaxed);
  finish_.store(code.finish, std::memory_order_relaxed);
  body_.store(code.body, std::memory_order_release);
}

std::string Executable::program_text() const {
  if (!program_) return {};
  std::string text = print(program_->body_code());
  if (program_->has_finish()) text += "finish\n" + print(program_->finish_code());
  return text;
}

void Executable::body(const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::int64_t scratch_bytes,
                      std::int64_t grain) const {
  const std::int64_t own = align64(scratch_bytes);
  for (const std::int64_t slice = std::max<std::int64_t>(grain, 1) * kGrainsAtOnce; begin < end; begin += slice) {
    if (const kernel::KernelFn fn = body_.load(std::memory_order_acquire)) {
      fn(&frame, begin, end, scratch_bytes ? scratch(static_cast<std::size_t>(scratch_bytes)) : nullptr);
      return;
    }
    std::byte* memory = scratch(static_cast<std::size_t>(own + program_->memory_bytes()));
    program_->body(frame, begin, std::min(begin + slice, end), memory, memory + own);
  }
}

void Executable::finish(const kernel::Frame& frame, std::int64_t grid) const {
  if (compiled()) {
    if (const kernel::KernelFn fn = finish_.load(std::memory_order_relaxed)) fn(&frame, 0, grid, nullptr);
  } else if (program_->has_finish()) {
    program_->finish(frame, 0, grid, nullptr, scratch(static_cast<std::size_t>(program_->memory_bytes())));
  }
}

}  // namespace kiln::cpu
