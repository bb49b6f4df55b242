// Runs a kernel by the vm, with the loops of every instruction set that this CPU has.
#pragma once

#include "codegen/vm/vm.h"
#include "device/cpu/target.h"
#include "kernel/interpret_kernel.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace kiln::codegen {

inline std::vector<const VmLoops*> vm_loops_here() {
  std::vector<const VmLoops*> out{vm_loops_base()};
  const cpu::CpuTarget host = cpu::host_target("native");
  if (host.avx2 && vm_loops_avx2()) out.push_back(vm_loops_avx2());
  if (host.avx512 && vm_loops_avx512()) out.push_back(vm_loops_avx512());
  return out;
}

/// Grid iterations [0, grid) in calls of at most `chunk`, then the finish section.
inline void run_on_vm(const kernel::Kernel& k, const VmLoops& loops, std::span<void* const> buffers,
                      std::span<const std::int64_t> params, std::span<const std::uint64_t> slots,
                      std::span<std::byte> scratch, std::int64_t grid, std::int64_t finish_grid,
                      std::int64_t chunk) {
  const VmProgram program(k, loops);
  std::vector<std::byte> memory(static_cast<std::size_t>(program.memory_bytes()) + 64, std::byte{0xa5});
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) &
                                               ~std::uintptr_t{63});
  const kernel::Frame frame{buffers.data(), params.data(), slots.data()};
  const auto part = [&](VmPart p, std::int64_t begin, std::int64_t end) {
    program.run(p, frame, begin, end, scratch.data(), aligned);
  };
  for (std::int64_t begin = 0; begin < grid; begin += chunk)
    part(VmPart::Body, begin, std::min(grid, begin + chunk));
  for (std::int64_t i = 0; i < grid; ++i) {
    part(VmPart::Link, i, i + 1);
    part(VmPart::Second, i, i + 1);
  }
  part(VmPart::Finish, 0, finish_grid);
}

/// Pre: the kernel has been interpreted over this memory. Runs it again from the same inputs, by the vm, and
/// expects every output to be the same to the byte.
inline void expect_vm_agrees(const kernel::Kernel& k, const kernel::KernelMemory& m, std::int64_t grid,
                             std::int64_t finish_grid = 0) {
  for (const VmLoops* loops : vm_loops_here()) {
    for (const std::int64_t chunk : {grid, std::max<std::int64_t>(1, grid / 3)}) {
      // Every buffer in memory of its own, to the byte, so that a sanitizer sees what reaches beyond it.
      std::vector<std::vector<std::byte>> copies;
      std::vector<void*> pointers;
      for (std::size_t b = 0; b < m.buffers.size(); ++b) {
        const bool own = k.buffers[b].role == kernel::BufferDecl::Role::Scratch;
        auto& copy = copies.emplace_back(m.buffers[b].bytes.begin(), m.buffers[b].bytes.end());
        if (k.buffers[b].role != kernel::BufferDecl::Role::In)
          std::fill(copy.begin(), copy.end(), std::byte{0x5a});
        pointers.push_back(own ? nullptr : copy.data() + (m.buffers[b].element0 - m.buffers[b].bytes.data()));
      }
      std::vector<std::byte> scratch(m.scratch.size() + 64);
      run_on_vm(k, *loops, pointers, m.params, m.slots, scratch, grid, finish_grid, chunk);
      for (std::size_t b = 0; b < m.buffers.size(); ++b) {
        if (k.buffers[b].role != kernel::BufferDecl::Role::Out) continue;
        EXPECT_TRUE(std::equal(copies[b].begin(), copies[b].end(), m.buffers[b].bytes.begin()))
            << "buffer " << b << " by the vm with loops for " << loops->name << ", " << chunk << " of "
            << grid << " iterations a call\n"
            << kernel::print(k);
      }
    }
  }
}

}  // namespace kiln::codegen
