// LLVM TargetMachines are not thread-safe, so each compiling thread has its own. One LLJIT links everything.
#include "device/cpu/jit.h"

#include "codegen/llvm/llvm_ir.h"
#include "codegen/llvm/llvm_marks.h"
#include "codegen/llvm/vector_math.h"
#include "device/cpu/object_file.h"
#include "support/check.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>
#include <mutex>

namespace kiln::cpu {
namespace {

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const CpuTarget& target) {
  initialize();
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!t) throw CompileError("[compile] LLVM has no target for " + triple + ": " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  // LLVM would make code for constants at any distance: two instructions for each in a loop that has no
  // register left for it. Both linkers put an object's sections side by side, so that constants are operands.
  const bool near = llvm::Triple(triple).getArch() == llvm::Triple::x86_64;
  std::unique_ptr<llvm::TargetMachine> machine(
      t->createTargetMachine(triple, target.llvm_cpu, target.features, options, llvm::Reloc::PIC_,
                             near ? std::optional(llvm::CodeModel::Small) : std::nullopt,
                             llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!machine) throw CompileError("[compile] LLVM cannot make code for " + target.llvm_cpu);
  return machine;
}

llvm::TargetMachine& machine_for(const CpuTarget& target) {
  thread_local std::unique_ptr<llvm::TargetMachine> machine;
  thread_local std::string key;
  if (!machine || key != target.key()) {
    machine = make_machine(target);
    key = target.key();
  }
  return *machine;
}

codegen::LlvmTarget llvm_target(const CpuTarget& t) {
  return {t.vector_bytes, t.avx512, t.fma, t.f16c, t.vector_math, t.avx512_bf16, t.avx512_vbmi};
}

std::unique_ptr<llvm::Module> emit(const kernel::Kernel& kernel, const std::string& symbol,
                                   const CpuTarget& target, llvm::LLVMContext& context, bool marked = false) {
  auto module = codegen::emit_llvm(kernel, symbol, llvm_target(target), context, marked);
  llvm::TargetMachine& machine = machine_for(target);
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  for (llvm::Function& f : *module) {
    f.addFnAttr("target-cpu", target.llvm_cpu);
    f.addFnAttr("target-features", target.features);
  }
  return module;
}

/// A module that LLVM has found no fault in.
std::unique_ptr<llvm::Module> build(const kernel::Kernel& kernel, const std::string& symbol,
                                    const CpuTarget& target, llvm::LLVMContext& context,
                                    bool marked = false) {
  auto module = emit(kernel, symbol, target, context, marked);
  std::string log;
  llvm::raw_string_ostream out(log);
  if (llvm::verifyModule(*module, &out)) {
    module->print(out, nullptr);
    throw CompileError("[compile] " + kernel.label + ": LLVM refuses the module: " + log);
  }
  return module;
}

llvm::SmallVector<char, 0> generate(llvm::Module& module, const CpuTarget& target,
                                    llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  if (machine_for(target).addPassesToEmitFile(passes, out, nullptr, type, /*DisableVerify=*/true))
    throw CompileError("[compile] LLVM cannot write code for " + target.llvm_cpu);
  passes.run(module);
  return bytes;
}

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

llvm::orc::LLJIT& linker() {
  // Immortal: kernels may run until the process ends.
  static llvm::orc::LLJIT* const jit = [] {
    initialize();
    auto made = llvm::orc::LLJITBuilder().create();
    if (!made) throw CompileError("[compile] cannot start LLVM's JIT: " + message_of(made.takeError()));
    // Where the library is missing, no target has `vector_math` and no key of an object that calls it
    // matches.
    if (auto math = llvm::orc::DynamicLibrarySearchGenerator::Load(codegen::kVectorMathLibrary, '\0'))
      (*made)->getProcessSymbolsJITDylib()->addGenerator(std::move(*math));
    else
      llvm::consumeError(math.takeError());
    return made->release();
  }();
  return *jit;
}

}  // namespace

std::vector<std::uint8_t> compile(const kernel::Kernel& kernel, const std::string& symbol,
                                  const CpuTarget& target) {
  llvm::LLVMContext context;
  auto module = build(kernel, symbol, target, context);
  const auto bytes = generate(*module, target, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

Hash128 llvm_fingerprint(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target) {
  llvm::LLVMContext context;
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::WriteBitcodeToFile(*emit(kernel, symbol, target, context), out);
  return hash128(std::string_view(bytes.data(), bytes.size()));
}

std::string llvm_text(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target,
                      bool marked) {
  llvm::LLVMContext context;
  auto module = build(kernel, symbol, target, context, marked);
  if (marked) return codegen::print_with_marks(*module);
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out, nullptr);
  return text;
}

std::string assembly_text(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target,
                          bool marked) {
  llvm::LLVMContext context;
  auto module = build(kernel, symbol, target, context, marked);
  const auto bytes = generate(*module, target, llvm::CodeGenFileType::AssemblyFile);
  const std::string text(bytes.begin(), bytes.end());
  return marked ? kernel::mark_assembly(text, codegen::mark_at) : text;
}

std::vector<std::uint8_t> compile_text(const std::string& text, const std::string& name,
                                       const CpuTarget& target) {
  initialize();
  llvm::LLVMContext context;
  llvm::SMDiagnostic fault;
  const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, fault, context);
  std::string log;
  llvm::raw_string_ostream out(log);
  if (!module) {
    fault.print(name.c_str(), out, /*ShowColors=*/false);
    throw CompileError("[compile] " + log);
  }
  if (llvm::verifyModule(*module, &out)) throw CompileError("[compile] " + name + ": " + log);
  const auto bytes = generate(*module, target, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

MachineCode load(const std::vector<std::uint8_t>& object, const std::string& symbol) {
  llvm::orc::LLJIT& jit = linker();
  // A library of its own for each object: a key may be loaded again after the memory cache was cleared.
  static std::atomic<std::uint64_t> count{0};
  auto library = jit.createJITDylib("kiln." + std::to_string(count.fetch_add(1)));
  if (!library) throw CompileError("[compile] " + message_of(library.takeError()));
  llvm::SmallVector<char, 0> bytes(object.begin(), object.end());
  auto buffer = std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), symbol, false);
  if (auto error = jit.addObjectFile(*library, std::move(buffer)))
    throw CompileError("[compile] cannot link " + symbol + ": " + message_of(std::move(error)));
  std::vector<ObjectFunction> functions = functions_of(object);
  for (ObjectFunction& f : functions) {
    auto address = jit.lookup(*library, f.name);
    if (!address)
      throw CompileError("[compile] cannot link " + f.name + ": " + message_of(address.takeError()));
    f.address = address->toPtr<void*>();
  }
  return machine_code_of(functions, symbol);
}

bool has_compiler() { return true; }

std::string compiler_version() { return "LLVM " LLVM_VERSION_STRING; }

}  // namespace kiln::cpu
