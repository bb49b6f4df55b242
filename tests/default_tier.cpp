// Tests wait for the compiler unless the environment says otherwise: they count compiles, and mean machine
// code when they compare modes. A build without compilers has only the vm. Set before main, so before the
// environment is read for the first time.
//
// KILN_TEST_EXACT_MEMORY=1: device memory without a pool, for runs under compute-sanitizer.
#include "device/cuda/pool.h"

#include "inspect/compile_budget.h"

#include <cstdlib>

namespace {
[[maybe_unused]] const int done = setenv("KILN_TIER", KILN_HAS_COMPILERS ? "jit" : "vm", /*overwrite=*/0);
[[maybe_unused]] const bool exact =
    (kiln::cuda::set_exact_blocks(std::getenv("KILN_TEST_EXACT_MEMORY") != nullptr), true);
// Lines of tests compile for many programs.
[[maybe_unused]] const bool muted = (kiln::engine::mute_compile_budget(true), true);
}  // namespace
