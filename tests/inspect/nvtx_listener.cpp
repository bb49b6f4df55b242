// A tool that NVTX loads into a process (NVTX_INJECTION64_PATH): it appends the names of ranges to the file
// that KILN_TEST_RANGES names. The tests' own Nsight.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

int NVTX_API begin(const char* name) {
  const char* const file = std::getenv("KILN_TEST_RANGES");
  std::FILE* out = file ? std::fopen(file, "a") : nullptr;
  if (out == nullptr) return 0;
  std::fprintf(out, "%s\n", name);
  std::fclose(out);
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int count = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count)) return 0;
  if (count <= NVTX_CBID_CORE_RangePushA) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(begin);
  return 1;
}
