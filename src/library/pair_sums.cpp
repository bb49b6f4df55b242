#include "library/pair_sums.h"

#include "library/cpu/pair_sums.h"
#include "support/check.h"

namespace kiln::library {

const PairSumsRoutine& pair_sums(Device device) {
  KILN_CHECK_THAT(device.kind == Device::Kind::Cpu, "only the host's target has sums over pairs");
  return cpu::pair_sums();
}

}  // namespace kiln::library
