#if __has_include(<kiln/kiln.h>)
#include <kiln/kiln.h>
#endif
#include <kiln/config.h>
#include <kiln/dtype.h>

int main() {
  const bool promotes = kiln::promote(kiln::DType::Int32, kiln::DType::Float32) == kiln::DType::Float32;
  return promotes && !kiln::config().device.empty() ? 0 : 1;
}
