// Kernels with a hand-written main loop: which texts of kernels_templates/ a kernel::Template names, and the
// file that they and the generated hooks make.
//
// The file, in order: types and preludes; `before`; struct Config; struct Args; the hooks; `main`; the
// kernel's function, which takes Args by value and calls `entry`. Args begins with the head (kernel-specific
// sizes, device::Launch::head), then come, 8 bytes each: the counters' address, if it has some; a pointer for
// every buffer that is no hook's array,
// every parameter as int64, every slot.
#pragma once

#include "device/launch.h"
#include "kernel/kernel.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kiln::codegen {

/// A main loop. To add one: its text in kernels_templates/, which defines kThreads, kBlocksPerSm and the
/// entry, and a row of the table in cuda_template.cpp.
struct TemplateText {
  const char* name;                 // kernel::Template::name
  std::vector<const char*> before;  // texts that hooks may use: among them the head's type
  const char* head;                 // the head as a member of Args: "Product product"
  std::vector<const char*> main;
  const char* entry;     // a device function that takes const Args&
  int maps = 0;          // device::TiledBuffer of the launch, members of Args behind the head
  int specific = 0;      // not 0: of this architecture alone (90: sm_90a)
  int counters = 0;      // zeroed words, left zeroed, and one more for each iteration of a finish section:
                         // device::Launch::counters, args.counters behind the maps
  bool reduces = false;  // it takes the texts of reductions and functions
};

/// Throws InternalError on an unknown name.
const TemplateText& template_text(const std::string& name);

/// Pre: kernel.main_loop.
std::string emit_template(const kernel::Kernel& kernel, const std::string& symbol, bool marked = false);

/// How a launch with this head is spread. `sms`: multiprocessors.
device::LaunchShape template_shape(const kernel::Kernel& kernel, std::span<const std::byte> head, int sms);

/// Sets the boxes, where they are the template's choice.
void complete_tiles(const kernel::Kernel& kernel, std::span<device::TiledBuffer> tiled);

/// For each buffer whether it comes with calls of a hook, not with the launch.
std::vector<bool> given_buffers(const kernel::Kernel& kernel);

}  // namespace kiln::codegen
