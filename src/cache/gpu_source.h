// The CUDA C that a kernel on a GPU is made from: generated, or what a person made of it in
// KILN_OVERRIDE_DIR.
#pragma once

#include "device/cuda/nvrtc.h"
#include "kernel/kernel.h"

#include <kiln/device.h>

#include <optional>
#include <string>

namespace kiln::engine {

std::string symbol_of(const Hash128& key);
/// The last part of the names of a kernel's dumps, which tells it from others: the first digits of its key.
std::string short_name(const Hash128& key);

struct GpuSource {
  std::string name;  // of the file, in the compiler's messages
  std::string text;
};

/// `instances`: as codegen::emit_cuda takes them.
GpuSource generated_source(const kernel::Kernel& kernel, const Hash128& key, int instances);
/// The file LABEL-<short_name>.cu of config().override_dir, whatever its label. Nothing when the option is
/// not set or there is no such file. CompileError for one that cannot be read.
std::optional<GpuSource> edited_source(const Hash128& key);

/// The size of a table of so many sets of arguments: one of two, so that few kernels serve all numbers. 1 for
/// one.
int room_for(const kernel::Kernel& kernel, Device device, int instances);

/// The options that kernels are compiled with; part of what KILN_GENERATOR_HASH stands for.
cuda::CompileOptions gpu_options();
cuda::Arch arch_of(Device device);

}  // namespace kiln::engine
