// CudaEmitter: the whole file.
#include "codegen/cuda_c.h"

#include "codegen/cuda_function.h"
#include "kernels_templates.h"

#include <algorithm>

namespace kiln::codegen {

CudaEmitter::CudaEmitter(const Kernel& kernel, const std::string& symbol)
    : k_(kernel), at_(kernel), pool_(at_.pool()), symbol_(symbol) {
  KILN_CHECK_THAT(k_.threads.block > 0 && k_.threads.team > 0, "a kernel without threads");
  index_.assign(pool_.size(), -1);
  accs_.resize(k_.accs.size());
  note_running();
  count_uses();
}

std::string CudaEmitter::run() {
  team_ = k_.threads.team;
  scopes_.push_back({});
  block(k_.body);
  return assemble(here().text);
}

std::string CudaEmitter::parameters() const {
  std::string out;
  auto add = [&](const std::string& p) { out += (out.empty() ? "\n    " : ",\n    ") + p; };
  for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
    const BufferDecl& d = k_.buffers[b];
    const char* t = cuda_memory_type(d.dtype);
    if (d.role == BufferDecl::Role::In) add(cat("const ", t, "* __restrict__ ", buffer_name(b)));
    if (d.role == BufferDecl::Role::Out) add(cat(t, "* __restrict__ ", buffer_name(b)));
    if (d.role == BufferDecl::Role::Partial) add(cat(t, "* ", buffer_name(b)));
  }
  if (!k_.finish.empty()) add("unsigned int* arrivals");
  for (std::uint32_t p = 0; p < k_.n_params; ++p) add(cat("const ", index_type(), " p", p));
  for (std::size_t s = 0; s < k_.slots.size(); ++s) add(cat("const ", cuda_type(k_.slots[s]), " s", s));
  return out;
}

std::string CudaEmitter::assemble(const std::string& all) const {
  std::string fn = cat("extern \"C\" __global__ void __launch_bounds__(", k_.threads.block, ") ", symbol_, '(',
                       parameters(), ") {\n");
  const int team = k_.threads.team;
  if (team > 1) fn += cat("const int lane = threadIdx.x", team == k_.threads.block ? "" : cat(" % ", team), ";\n");
  if (all.find("members)") != std::string::npos)
    fn += team == 32 ? "const unsigned int members = 0xffffffffu;\n"
                     : cat("const unsigned int members = ", (1u << team) - 1, "u << (threadIdx.x % 32 / ", team, " * ", team, ");\n");
  fn += all + "}\n";

  auto uses = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* n) { return all.find(n) != std::string::npos; });
  };
  std::string out = templates::types;
  if (uses({"load<", "store(", "vec<"})) out += templates::memory;
  if (uses({"wrap_", "int_div(", "int_rem(", "index_div("})) out += templates::integer;
  if (uses({"philox_"})) out += templates::philox;
  if (uses({"max_of(", "min_of(", "div", "scale(", "exponent(", "mantissa(", "exp2_fast("})) out += templates::math;
  if (uses({"::of(", "reduce_", "Best<", "scan_"})) out += templates::reduce;
  if (uses({"scan_"})) out += templates::scan;
  if (!k_.finish.empty()) out += templates::finish;
  return out + "\n" + indented(fn);
}

/// Two spaces a brace.
std::string CudaEmitter::indented(const std::string& text) {
  std::string out;
  int level = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string row = text.substr(at, end - at);
    at = end + 1;
    if (row.starts_with('}')) --level;
    if (!row.starts_with('#')) out.append(static_cast<std::size_t>(2 * level), ' ');
    out += row + "\n";
    if (row.ends_with('{')) ++level;
  }
  return out;
}

std::string emit_cuda(const Kernel& kernel, const std::string& symbol) {
  KILN_CHECK_THAT(kernel.link.empty(), "a GPU does not hand on from item to item");
  return CudaEmitter(kernel, symbol).run();
}

}  // namespace kiln::codegen
