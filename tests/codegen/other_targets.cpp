#include "codegen/other_targets.h"

#include "cache/temporary_directory.h"
#include "codegen/cuda/cuda_c.h"
#include "device/cuda/nvrtc.h"
#include "engine/plan.h"
#include "engine/plan_maker.h"
#include "lower/lower.h"
#include "math/expand.h"
#include "plan/fuse.h"
#include "support/check.h"

#include <kiln/error.h>

#if KILN_TEST_AARCH64
#include "codegen/llvm/llvm_ir.h"

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>

#if KILN_TEST_AARCH64
extern "C" {
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
}
#endif

namespace kiln::testing {
namespace {

/// The instances that live; graphs are planned by several threads.
std::mutex mutex;
std::vector<OtherTargets::Collected*> live;

}  // namespace

struct OtherTargets::Collected {
  Which which;
  std::unordered_set<Hash128, HashOf> seen_aarch64, seen_cuda;
  std::vector<std::string> failures, refusals;
  std::vector<CudaSource> sources;
};

namespace {

using Collected = OtherTargets::Collected;

void take_aarch64(Collected& c, const ir::Graph& graph) {
  static const schedule::Target target = neon_target();
  for (const kernel::Kernel& k : kernels_of(graph, target)) {
    if (!c.seen_aarch64.insert(kernel::hash(k)).second) continue;
    const std::string wrong = compile_for_aarch64(k);
    if (!wrong.empty()) c.failures.push_back(wrong);
  }
}

void take_cuda(Collected& c, const ir::Graph& graph) {
  static const schedule::Target target = gpu_target();
  std::vector<kernel::Kernel> kernels = kernels_of(with_aligned_leaves(graph), target);
  if (c.which.cuda_unaligned) std::ranges::move(kernels_of(graph, target), std::back_inserter(kernels));
  for (const kernel::Kernel& k : kernels) {
    if (!c.seen_cuda.insert(kernel::hash(k)).second) continue;
    try {
      c.sources.push_back({codegen::emit_cuda(k, kCudaSymbol), k.label});
    } catch (const CompileError& e) {
      c.refusals.push_back(e.what());
    }
  }
}

void take(const ir::Graph& graph) {
  const std::lock_guard lock(mutex);
  for (Collected* c : live) {
    try {
      if (c->which.aarch64) take_aarch64(*c, graph);
      if (c->which.cuda) take_cuda(*c, graph);
    } catch (const Error& e) {
      c->failures.push_back(cat(e.what(), "\n", ir::print(graph)));
    }
  }
}

void visit(const ir::Graph& recorded) {
  const std::lock_guard lock(mutex);
  for (Collected* c : live)
    if (c->which.visit) c->which.visit(recorded);
}

}  // namespace

schedule::Target neon_target() {
  schedule::Target t;
  t.threads = 8;
  t.vector_bytes = 16;
  t.bytes_per_ns = 120;
  t.cached_bytes_per_ns = 480;
  t.prims_per_ns = 128;
  t.op_cost = lower::op_costs(false);
  return t;
}

schedule::Target gpu_target() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 132;
  t.l2_bytes = (60 << 20) / 132;
  t.bytes_per_ns = 4000;
  t.cached_bytes_per_ns = 8000;
  t.prims_per_ns = 64.0 * 132;
  t.launch_ns = 3000;
  t.scans = std::int64_t{1024} * t.threads;
  t.held = 1 << 15;
  t.op_cost = lower::op_costs(true);
  return t;
}

ir::Graph with_aligned_leaves(ir::Graph graph) {
  for (auto& arg : graph.args) arg.alignment = std::max(arg.alignment, std::uint32_t{16});
  return graph;
}

std::vector<kernel::Kernel> kernels_of(const ir::Graph& graph, const schedule::Target& target) {
  const plan::Regions regions = plan::fuse(graph, target);
  std::vector<kernel::Kernel> out;
  for (const plan::Region& r : regions.regions) {
    if (r.kind != plan::Region::Kind::Fused) continue;
    bool empty = true;
    for (ir::NodeId o : r.outputs) empty &= graph[o].numel == 0;
    if (empty) continue;
    out.push_back(lower::lower(graph, regions, r, target).kernel);
    kernel::verify(out.back());
  }
  return out;
}

#if KILN_TEST_AARCH64
std::string compile_for_aarch64(const kernel::Kernel& kernel) {
  static const llvm::Target* const target = [] {
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    std::string error;
    return llvm::TargetRegistry::lookupTarget("aarch64-linux-gnu", error);
  }();
  if (!target) return "LLVM has no AArch64";
  thread_local const std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine("aarch64-linux-gnu", "neoverse-n1", "", {}, llvm::Reloc::PIC_, std::nullopt,
                                  llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  llvm::LLVMContext context;
  codegen::LlvmTarget features;
  features.fma = true;  // what the backend says of a processor that is not x86
  auto module = codegen::emit_llvm(kernel, "kiln_test", features, context);
  module->setTargetTriple("aarch64-linux-gnu");
  module->setDataLayout(machine->createDataLayout());
  std::string log;
  llvm::raw_string_ostream out(log);
  if (llvm::verifyModule(*module, &out)) return cat(kernel.label, ": ", log, "\n", kernel::print(kernel));
  for (const llvm::Function& f : *module)
    if (f.isIntrinsic() && f.getName().contains(".x86."))
      return cat(kernel.label, " calls ", f.getName().str(), "\n", kernel::print(kernel));
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream object(bytes);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, object, nullptr, llvm::CodeGenFileType::ObjectFile))
    return "no object files";
  passes.run(*module);
  return bytes.empty() ? "an empty object" : "";
}
#else
std::string compile_for_aarch64(const kernel::Kernel&) { return "built without LLVM's AArch64"; }
#endif

OtherTargets::OtherTargets(const Which& which) : collected_(std::make_unique<Collected>()) {
  collected_->which = which;
  const std::lock_guard lock(mutex);
  live.push_back(collected_.get());
  engine::set_graph_hook(take);
  engine::set_recorded_hook(visit);
}
OtherTargets::~OtherTargets() {
  const std::lock_guard lock(mutex);
  std::erase(live, collected_.get());
  if (!live.empty()) return;
  engine::set_graph_hook(nullptr);
  engine::set_recorded_hook(nullptr);
}

int OtherTargets::aarch64_kernels() const { return static_cast<int>(collected_->seen_aarch64.size()); }
std::vector<std::string> OtherTargets::aarch64_failures() const { return collected_->failures; }
std::vector<CudaSource> OtherTargets::cuda_sources() const { return collected_->sources; }
std::vector<std::string> OtherTargets::cuda_refusals() const { return collected_->refusals; }

namespace {

std::vector<std::string> compile_all(const std::vector<CudaJob>& jobs, const cuda::CompileOptions& options) {
  std::vector<std::string> wrong;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t job = next++; job < jobs.size(); job = next++) {
      const auto& [source, number] = jobs[job];
      std::string what;
      try {
        const cuda::Code code = cuda::compile(source.text, kCudaSymbol, {number / 10, number % 10}, options);
        if (code.ptx || code.target != "sm_" + std::to_string(number)) what = "is made for " + code.target;
      } catch (const CompileError& e) {
        what = e.what();
      }
      if (what.empty()) continue;
      const std::lock_guard lock(mutex);
      wrong.push_back(cat("sm_", number, " ", source.label, ": ", what, "\n", source.text));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  return wrong;
}

}  // namespace

std::vector<std::string> compile_cuda(const std::vector<CudaSource>& sources,
                                      const std::vector<int>& architectures) {
  std::vector<CudaJob> jobs;
  for (const CudaSource& source : sources)
    for (const int number : architectures) jobs.push_back({source, number});
  cuda::CompileOptions options;
  options.fmad = false;
  return compile_all(jobs, options);
}

std::vector<std::string> compile_cuda_quickly(const std::vector<CudaJob>& jobs) {
  cuda::CompileOptions options;
  options.fmad = false;
  if (jobs.empty() || std::getenv("KILN_TEST_LONG")) return compile_all(jobs, options);
  options.extra = {"--Ofast-compile=max"};
  const TemporaryDirectory directory;
  const std::string said = directory / "wrong";
  const int code = in_child([&] {
    const std::vector<std::string> wrong = compile_all(jobs, options);
    std::ofstream out(said, std::ios::binary);
    for (const std::string& line : wrong) out << line << '\0';
    return out.flush() ? 0 : 1;
  });
  std::vector<std::string> wrong;
  std::ifstream in(said, std::ios::binary);
  for (std::string line; std::getline(in, line, '\0');) wrong.push_back(line);
  if (code != 0) wrong.push_back(cat("the process that compiles ", jobs.size(), " sources ends with ", code));
  return wrong;
}

}  // namespace kiln::testing
