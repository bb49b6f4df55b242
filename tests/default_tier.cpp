// Tests wait for the compiler unless the environment says otherwise: they count compiles, and mean machine code when
// they compare modes. A build without compilers has only the vm. Set before main, so before the environment is read
// for the first time.
#include <cstdlib>

namespace {
[[maybe_unused]] const int done = setenv("KILN_TIER", KILN_HAS_COMPILERS ? "jit" : "vm", /*overwrite=*/0);
}
