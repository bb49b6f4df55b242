// Tests wait for the compiler unless the environment says otherwise: they count compiles, and mean machine code when
// they compare modes. Set before main, so before the environment is read for the first time.
#include <cstdlib>

namespace {
[[maybe_unused]] const int done = setenv("KILN_TIER", "jit", /*overwrite=*/0);
}
