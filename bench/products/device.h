// What bench/products needs of a GPU: the driver, NVRTC and cuBLASLt, with errors that end the program. Not
// for use in Kiln, which loads these libraries when it runs.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}
inline void check(CUresult r, const char* what) {
  const char* text = "?";
  if (r == CUDA_SUCCESS) return;
  cuGetErrorString(r, &text);
  fail(std::string(what) + ": " + text);
}
inline void check(cublasStatus_t r, const char* what) {
  if (r != CUBLAS_STATUS_SUCCESS) fail(std::string(what) + ": status " + std::to_string(static_cast<int>(r)));
}
#define CHECKED(call) check(call, #call)

/// Machine code of a CUDA C text for `target` (sm_90a); the log of ptxas goes to `log`.
inline std::vector<char> compile(const std::string& text, const std::string& name, const std::string& target,
                                 std::string& log) {
  nvrtcProgram program;
  nvrtcCreateProgram(&program, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  const std::string arch = "--gpu-architecture=" + target;
  const char* options[] = {arch.c_str(),   "--std=c++17",
                           "--fmad=false", "--device-as-default-execution-space",
                           "--minimal",    "--ptxas-options=-v"};
  const nvrtcResult result = nvrtcCompileProgram(program, 6, options);
  std::size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  log.assign(size, '\0');
  nvrtcGetProgramLog(program, log.data());
  if (result != NVRTC_SUCCESS) fail(name + " for " + target + ":\n" + log);
  nvrtcGetCUBINSize(program, &size);
  std::vector<char> image(size);
  nvrtcGetCUBIN(program, image.data());
  nvrtcDestroyProgram(&program);
  return image;
}

class Event {
 public:
  Event() { CHECKED(cuEventCreate(&handle_, CU_EVENT_DEFAULT)); }
  ~Event() { cuEventDestroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() const { CHECKED(cuEventRecord(handle_, nullptr)); }
  double microseconds_since(const Event& start) const {
    float ms = 0;
    CHECKED(cuEventSynchronize(handle_));
    CHECKED(cuEventElapsedTime(&ms, start.handle_, handle_));
    return 1e3 * ms;
  }

 private:
  CUevent handle_;
};

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) { CHECKED(cuMemAlloc(&at_, bytes)); }
  ~Buffer() { cuMemFree(at_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  CUdeviceptr at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr at_ = 0;
  std::size_t bytes_;
};
