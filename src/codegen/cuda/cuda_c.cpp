// CudaEmitter: the whole file.
#include "codegen/cuda/cuda_c.h"

#include "codegen/cuda/cuda_function.h"
#include "codegen/cuda/cuda_template.h"
#include "kernels_templates.h"
#include "support/large_stack.h"

#include <algorithm>

namespace kiln::codegen {

// of a multiprocessor, at least, where a kernel says so: 64 registers each
constexpr int kResidentThreads = 1024;
constexpr int kOfTiles = 512;  // threads with registers for a tile's results and what they are made of next
constexpr int kOfFewResults = 640;  // the same where results are few and elements are loaded one by one

CudaEmitter::CudaEmitter(const Kernel& kernel, const std::string& symbol, int instances,
                         std::span<const ExprId> results, bool marked)
    : k_(kernel),
      facts_(kernel, results),
      at_(kernel),
      pool_(at_.pool()),
      symbol_(symbol),
      instances_(instances),
      marked_(marked) {
  KILN_CHECK_THAT(k_.threads.block > 0 && k_.threads.team > 0, "a kernel without threads");
  accs_.resize(k_.accs.size());
}

std::string CudaEmitter::run() {
  width_ = team_ = k_.threads.team;
  scopes_.push_back({});
  k_.link.empty() ? block(k_.body) : chain();
  return assemble(here().text);
}

std::vector<CudaEmitter::Parameter> CudaEmitter::parameters() const {
  std::vector<Parameter> out;
  for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
    const BufferDecl& d = k_.buffers[b];
    if (is_counted(b)) continue;
    const char* t = cuda_memory_type(d.dtype);
    if (d.role == BufferDecl::Role::In)
      out.push_back({cat("const ", t, "* __restrict__"), buffer_name(b), true});
    if (d.role == BufferDecl::Role::Out) out.push_back({cat(t, "* __restrict__"), buffer_name(b), true});
    if (d.role == BufferDecl::Role::Partial) out.push_back({cat(t, "*"), buffer_name(b), true});
  }
  if (!k_.finish.empty() || !k_.link.empty()) out.push_back({"unsigned int*", "arrivals", true});
  for (std::uint32_t p = 0; p < k_.n_params; ++p)
    out.push_back({cat("const ", index_type()), cat('p', p), !k_.threads.narrow});
  for (std::size_t s = 0; s < k_.slots.size(); ++s)
    out.push_back({cat("const ", cuda_type(k_.slots[s])), cat('s', s), true});
  return out;
}

/// Told how many blocks are to be resident, the assembler keeps loads in flight instead of saving registers.
std::string CudaEmitter::global() const {
  const int of_strips = strip_loads_ > 96 ? 512 : strip_loads_ > 64 ? 768 : kResidentThreads;
  const int threads = by_halves_         ? kOfTiles
                      : few_results_     ? kOfFewResults
                      : keeps_loads_     ? kResidentThreads
                      : strip_loads_ > 0 ? of_strips
                                         : 0;
  const std::string resident =
      threads > 0 ? cat(", ", std::max(1, threads / k_.threads.block)) : std::string();
  return cat("extern \"C\" __global__ void __launch_bounds__(", k_.threads.block, resident, ") ", symbol_,
             '(');
}

/// Of the kernel's function, or of many instances that of what each of them does.
std::string CudaEmitter::head() const {
  std::string out;
  if (instances_ > 1) out = "\n    const unsigned int block,\n    const unsigned int blocks";
  for (const Parameter& p : parameters()) out += cat(out.empty() ? "\n    " : ",\n    ", p.type, ' ', p.name);
  return instances_ > 1 ? cat("__device__ __forceinline__ void instance(", out, ") {\n")
                        : cat(global(), out, ") {\n", kWaitForPrevious, '\n');
}

/// The kernel's function over a table: each block looks up whose it is.
std::string CudaEmitter::table_function() const {
  std::string out = "struct Arguments {\n";
  for (const Parameter& p : parameters()) out += cat(p.wide ? "alignas(8) " : "", p.type, ' ', p.name, ";\n");
  out += "};\n";
  out += cat("struct Table {\nArguments at[", instances_, "];\nunsigned int first[", instances_,
             "];\nunsigned int count;\n};\n");
  out += cat(global(), "const __grid_constant__ Table table) {\n", kWaitForPrevious, '\n');
  out += "unsigned int at = 0, end = table.count;\n";
  out += "while (end - at > 1) {\n";
  out += "const unsigned int middle = (at + end) / 2;\n";
  out += "(table.first[middle] <= blockIdx.x ? at : end) = middle;\n";
  out += "}\n";
  out +=
      "const unsigned int first = table.first[at], next = at + 1 < table.count ? table.first[at + 1] : "
      "gridDim.x;\n";
  out += "instance(blockIdx.x - first, next - first";
  for (const Parameter& p : parameters()) out += cat(", table.at[at].", p.name);
  return out + ");\n}\n";
}

/// The counters of the block, where what would be stored is counted.
std::string CudaEmitter::tally() const {
  if (!k_.tally) return {};
  const kernel::Tally& t = *k_.tally;
  return cat("Tally<", size_of(k_.buffers[t.counts].dtype), ", ", t.halves ? "true" : "false", ", ",
             int{t.log_copies}, "> tally(", buffer_name(t.counts), ", ", buffer_name(t.number), ", p",
             t.places, ");\n");
}

std::string CudaEmitter::assemble(const std::string& body) const {
  std::string fn = customs() + head();
  const int team = k_.threads.team;
  if (team > 1)
    fn += cat("const int lane = threadIdx.x", team == k_.threads.block ? "" : cat(" % ", team), ";\n");
  if (facts_.members)
    fn += team == 32 ? "const unsigned int members = 0xffffffffu;\n"
                     : cat("const unsigned int members = ", (1u << team) - 1, "u << (threadIdx.x % 32 / ",
                           team, " * ", team, ");\n");
  if (facts_.turn) fn += "int turn = 0;\n";
  fn += tally() + body;
  if (k_.tally) fn += "tally.end();\n";
  fn += "}\n";
  if (instances_ > 1) fn += table_function();

  std::string out = text_of(facts_.preludes);
  if (!k_.link.empty()) out += templates::chain;
  if (!k_.finish.empty()) out += templates::finish;
  if (k_.tally) out += templates::tally;
  return out + "\n" + indented(fn);
}

/// The parts of kernels_templates that kernels call.
std::string CudaEmitter::text_of(const CudaPreludes& p) {
  std::string out = cat(templates::types, templates::overlap);
  if (p.memory) out += templates::memory;
  if (p.integer) out += templates::integer;
  if (p.philox) out += templates::philox;
  if (p.math) out += templates::math;
  if (p.reduce) out += templates::reduce;
  if (p.scan) out += templates::scan;
  return out;
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

InstanceTable instance_table(const Kernel& kernel, int instances) {
  std::size_t wide = kernel.slots.size() + !kernel.finish.empty();
  for (const BufferDecl& b : kernel.buffers) wide += b.role != BufferDecl::Role::Scratch;
  const std::size_t params = kernel.n_params * (kernel.threads.narrow ? 4 : 8);
  return {8 * wide + (params + 7) / 8 * 8, instances};
}

int instances_in(const Kernel& kernel, std::size_t bytes) {
  return static_cast<int>((bytes - 8) / (instance_table(kernel, 1).set_bytes + 4));
}

std::string emit_cuda(const Kernel& kernel, const std::string& symbol, int instances, bool marked) {
  KILN_CHECK_THAT((kernel.link.empty() && !kernel.main_loop && !kernel.tally) || instances == 1,
                  "blocks of several chains");
  if (kernel.main_loop) return emit_template(kernel, symbol, marked);
  std::string text;
  on_large_stack([&] { text = CudaEmitter(kernel, symbol, instances, {}, marked).run(); });
  return text;
}

}  // namespace kiln::codegen
