// Another user of LLVM in the process, of another version, compiles beside Kiln: neither sees the other's
// symbols.
#include "counted.h"
#include "needs_cpu.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace kiln {
namespace {

/// Another version's shared library, or null.
void* other_llvm() {
  for (const int version : {14, 15, 16, 17, 18, 20, 21}) {
    for (const std::string& name :
         {"libLLVM-" + std::to_string(version) + ".so.1", "libLLVM.so." + std::to_string(version) + ".1"})
      if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

/// LLVM's C interface, which has been the same for these versions.
class OtherLlvm {
 public:
  explicit OtherLlvm(void* library) : library_(library) {
    for (const char* name : {"LLVMInitializeX86TargetInfo", "LLVMInitializeX86Target",
                             "LLVMInitializeX86TargetMC", "LLVMInitializeX86AsmPrinter"})
      function<void()>(name)();
  }

  /// Bytes of an object file with one function.
  std::size_t compile() {
    using P = void*;
    const P context = function<P()>("LLVMContextCreate")();
    const P module = function<P(const char*, P)>("LLVMModuleCreateWithNameInContext")("other", context);
    const P i32 = function<P(P)>("LLVMInt32TypeInContext")(context);
    P parameters[] = {i32};
    const P type = function<P(P, P*, unsigned, int)>("LLVMFunctionType")(i32, parameters, 1, 0);
    const P f = function<P(P, const char*, P)>("LLVMAddFunction")(module, "other", type);
    const P block = function<P(P, P, const char*)>("LLVMAppendBasicBlockInContext")(context, f, "entry");
    const P builder = function<P(P)>("LLVMCreateBuilderInContext")(context);
    function<void(P, P)>("LLVMPositionBuilderAtEnd")(builder, block);
    const P x = function<P(P, unsigned)>("LLVMGetParam")(f, 0);
    function<P(P, P)>("LLVMBuildRet")(builder,
                                      function<P(P, P, P, const char*)>("LLVMBuildMul")(builder, x, x, ""));
    P target = nullptr, buffer = nullptr;
    char* error = nullptr;
    if (function<int(const char*, P*, char**)>("LLVMGetTargetFromTriple")("x86_64-linux-gnu", &target,
                                                                          &error))
      return 0;
    const P machine = function<P(P, const char*, const char*, const char*, int, int, int)>(
        "LLVMCreateTargetMachine")(target, "x86_64-linux-gnu", "x86-64", "", 2, 2, 0);
    if (function<int(P, P, int, char**, P*)>("LLVMTargetMachineEmitToMemoryBuffer")(machine, module, 1,
                                                                                    &error, &buffer))
      return 0;
    const std::size_t bytes = function<std::size_t(P)>("LLVMGetBufferSize")(buffer);
    function<void(P)>("LLVMDisposeMemoryBuffer")(buffer);
    function<void(P)>("LLVMDisposeTargetMachine")(machine);
    function<void(P)>("LLVMDisposeBuilder")(builder);
    function<void(P)>("LLVMDisposeModule")(module);
    function<void(P)>("LLVMContextDispose")(context);
    return bytes;
  }

 private:
  template <class F>
  F* function(const char* name) {
    void* found = dlsym(library_, name);
    if (!found) std::fprintf(stderr, "no %s\n", name), std::_Exit(2);
    return reinterpret_cast<F*>(found);
  }
  void* library_;
};

TEST(OtherLlvmDeathTest, OfAnotherVersionCompilesBesideKiln) {  // FAULTS 30
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
#if !defined(__x86_64__)
  GTEST_SKIP() << "x86 only";
#endif
  if (void* library = other_llvm())
    dlclose(library);
  else
    GTEST_SKIP() << "no other version of LLVM here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Tensor before = (test::data({1000}) * 2).eval();
        OtherLlvm other(other_llvm());
        std::size_t least = ~std::size_t{0};
        std::thread beside([&] {
          for (int i = 0; i < 100; ++i) least = std::min(least, other.compile());
        });
        bool right = true;
        for (int i = 0; i < 30; ++i) {
          clear_memory_caches();
          Tensor y = test::data({100});
          for (int k = 0; k <= i % 7; ++k) y = y * 2 + i;
          const float first = test::data({100}).to_vector<float>()[0];
          float want = first;
          for (int k = 0; k <= i % 7; ++k) want = want * 2 + static_cast<float>(i);
          right &= y.to_vector<float>()[0] == want;
        }
        beside.join();
        std::exit(right && least > 100 && before.to_vector<float>().size() == 1000 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln
