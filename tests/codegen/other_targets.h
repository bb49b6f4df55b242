// What targets that are not here would make of the graphs that tests evaluate: every kernel of AArch64 is
// compiled to an object, every kernel of a GPU is written as CUDA C.
#pragma once

#include "ir/graph.h"
#include "kernel/kernel.h"
#include "schedule/target.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kiln::testing {

/// A core with NEON and fused multiply-add; an H200.
schedule::Target neon_target();
schedule::Target gpu_target();

/// The graph as a GPU has it: memory begins where wide accesses may. On the CPU nobody asks for that.
ir::Graph with_aligned_leaves(ir::Graph graph);

/// The kernels that a target runs for a transformed graph.
std::vector<kernel::Kernel> kernels_of(const ir::Graph& graph, const schedule::Target& target);

/// Compiles to an object for aarch64-linux-gnu. Empty, or what is wrong.
std::string compile_for_aarch64(const kernel::Kernel& kernel);

struct CudaSource {
  std::string text;  // its function is kCudaSymbol
  std::string label;
};
inline constexpr const char* kCudaSymbol = "kiln_test";

/// While it lives, takes in every graph that is planned, and makes each kernel of it once. Several may live
/// at a time.
class OtherTargets {
 public:
  struct Which {
    bool aarch64 = false;
    bool cuda = false;
    bool cuda_unaligned = false;  // as well as if all arguments lay at other addresses than multiples of 16
    std::function<void(const ir::Graph&)> visit = {};  // called for every graph, as it was recorded
  };
  explicit OtherTargets(const Which& which);
  ~OtherTargets();
  OtherTargets(const OtherTargets&) = delete;
  OtherTargets& operator=(const OtherTargets&) = delete;

  int aarch64_kernels() const;
  std::vector<std::string> aarch64_failures() const;
  std::vector<CudaSource> cuda_sources() const;
  std::vector<std::string> cuda_refusals() const;  ///< labels of kernels that have no CUDA C

  struct Collected;

 private:
  std::unique_ptr<Collected> collected_;
};

/// Compiles each source for each architecture ("sm_90" is 90) over all cores. What is wrong, a line each.
std::vector<std::string> compile_cuda(const std::vector<CudaSource>& sources,
                                      const std::vector<int>& architectures);

struct CudaJob {
  CudaSource source;
  int architecture;
};
/// Likewise, in a third of the time: NVRTC and its assembler take the sources, and optimise nothing. In a
/// process of its own, because what a process compiles after that is other code, too, and spills. With
/// KILN_TEST_LONG all is optimised.
std::vector<std::string> compile_cuda_quickly(const std::vector<CudaJob>& jobs);
inline const std::vector<int> kCudaArchitectures{75, 80, 86, 89, 90, 100, 120};

}  // namespace kiln::testing
