// Kernels with a hand-written main loop: which texts of kernels_templates/ a kernel::Template names, and the
// file that they and the generated hooks make.
//
// The file, in order: types and preludes; `before`; struct Config; struct Args; the hooks; `main`; the
// kernel's function, which takes Args by value and calls `entry`. Args begins with the head (kernel-specific
// sizes, device::Launch::head), then come, 8 bytes each: a pointer for every buffer that is no hook's array,
// every parameter as int64, every slot.
#pragma once

#include "kernel/kernel.h"

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
  const char* entry;  // a device function that takes const Args&
};

/// Throws InternalError on an unknown name.
const TemplateText& template_text(const std::string& name);

/// Pre: kernel.main_loop.
std::string emit_template(const kernel::Kernel& kernel, const std::string& symbol);

/// For each buffer whether it comes with calls of a hook, not with the launch.
std::vector<bool> given_buffers(const kernel::Kernel& kernel);

}  // namespace kiln::codegen
