#include "library/attention.h"

#include "library/cpu/attention.h"
#include "support/check.h"

namespace kiln::library {

const AttentionRoutine& attention(Device device) {
  KILN_CHECK_THAT(device.kind == Device::Kind::Cpu, "only the host's target has attentions");
  return cpu::attention();
}

}  // namespace kiln::library
