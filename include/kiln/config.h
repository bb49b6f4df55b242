// The options that the KILN_ environment variables set, as one struct; a program may set them in code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {

enum class Mode : std::uint8_t {
  Lazy,       ///< record operations, fuse them when a value is needed, compile the kernels
  Eager,      ///< run each operation when it is recorded, as a compiled, cached kernel of its own
  Interpret,  ///< run the reference interpreter: slow, and independent of planner and compiler
};

enum class Tier : std::uint8_t {
  Auto,  ///< while the background compiler works: a CPU runs new kernels on the vm, a GPU plans without
         ///< main loops that take long to compile
  Jit,   ///< wait for the compiler
  Vm,    ///< run CPU kernels on the vm only; compile none
};

enum class Adapt : std::uint8_t {
  Off,   ///< plans follow from the model alone
  On,    ///< other ways to run a region are measured in real evaluations, and the better one is kept
  Kept,  ///< what was measured before is used, nothing is measured
  Tune,  ///< as On, at once: a new plan's evaluation is repeated until every verdict is there
};

/// Options of the process. Read once from the environment at first use; `configure` replaces them later.
struct Config {
  Mode mode = Mode::Lazy;      ///< KILN_MODE=lazy|eager|interpret
  Tier tier = Tier::Auto;      ///< KILN_TIER=auto|jit|vm: who runs a kernel that is not compiled yet
  std::string device = "cpu";  ///< KILN_DEVICE=cpu|cuda[:N]|null
  bool strict = false;  ///< KILN_STRICT=0|1: every operation rounds as if it ran alone, in fixed orders
  bool deterministic = false;  ///< KILN_DETERMINISTIC=0|1: bits depend on program, shapes, device, build only
  bool tf32 = false;  ///< KILN_TF32=0|1: a GPU reads 11 bits of a number of float32 products; not strict
  bool flush_subnormals = false;         ///< KILN_FLUSH_SUBNORMALS=0|1: a CPU takes them for zero; not strict
  int debug = 0;                         ///< KILN_DEBUG=0..5
  std::vector<std::string> log_topics;   ///< KILN_LOG=topic,topic…: trace,plan,kernel,cache,memory (or all)
  std::string dump;                      ///< KILN_DUMP=stdout|stderr|DIR; empty: no dump
  std::vector<std::string> dump_stages;  ///< KILN_DUMP_STAGES=graph,kernel,vm,ll,asm,cu,ptx,sass; empty: all
  std::string dump_filter;               ///< KILN_DUMP_FILTER=regex over the kernel's name
  std::string override_dir;  ///< KILN_OVERRIDE_DIR: edited kernels (NAME.cu, as dumped), run instead of the
                             ///< generated ones
  std::string explain;       ///< KILN_EXPLAIN=1|FILE.json: reports of fusion, see <kiln/fusion_report.h>
  std::string trace;         ///< KILN_TRACE=FILE.json: a timeline for Perfetto
  bool fuse = true;          ///< KILN_FUSE=0|1: several operations share a kernel
  std::int64_t fuse_least = 0;  ///< KILN_FUSE_LEAST=N: operations of fewer elements get kernels of their own
  std::vector<std::string> fuse_off;  ///< KILN_FUSE_OFF=[cpu:|cuda:|null:]norm,nest,siblings,recompute,
                                      ///< epilogue,attention,blocks: patterns that are not fused
  Adapt adapt = Adapt::Off;           ///< KILN_ADAPT=0|1|kept|tune: see docs/adaptive.md
  std::uint64_t memory_budget = 0;  ///< KILN_MEMORY_BUDGET, bytes (suffix K, M, G): values of one evaluation
                                    ///< are computed again rather than kept above it; 0: none
  bool check_nan = false;           ///< KILN_CHECK=nan,diff,key,bounds
  bool check_diff = false;
  bool check_key = false;
  bool check_bounds = false;
  std::string cache = "rw";                          ///< KILN_CACHE=off|ro|rw
  std::string cache_dir;                             ///< KILN_CACHE_DIR
  std::uint64_t cache_max = std::uint64_t{1} << 30;  ///< KILN_CACHE_MAX, bytes (suffix K, M, G)
  int num_threads = 0;     ///< KILN_NUM_THREADS; 0: cores allowed by affinity and cgroup quota
  std::string cpu_target;  ///< KILN_CPU=native|sse4.2|avx2|avx512: a lower instruction set than the host's
  std::string
      null_target;  ///< KILN_NULL_TARGET=sm_NN: the GPU that the device `null` stands for; empty: sm_90
};

/// The options in force.
const Config& config();
/// Replaces them. UserError for a bad value. Not thread-safe: no other thread may evaluate during the call.
void configure(const Config& options);

/// Options in force while one lives; the former ones come back when it ends. End scopes in reverse order.
/// UserError and threads as for `configure`.
class ScopedConfig {
 public:
  explicit ScopedConfig(const Config& options) : before_(config()) { configure(options); }
  ~ScopedConfig() { configure(before_); }
  ScopedConfig(const ScopedConfig&) = delete;
  ScopedConfig& operator=(const ScopedConfig&) = delete;

 private:
  Config before_;
};

}  // namespace kiln
