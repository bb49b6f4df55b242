// Keys made of keys: Philox in plain arithmetic. Draws have a primitive of their own, which shares blocks
// among lanes; a key is one number, and no emitter needs to know of it.
#include "kernel/expr.h"
#include "math/math.h"

#include <cstdint>

namespace kiln::lower::math {

E philox_child(E number, E key, E purpose) {
  const DType type = number.type();
  const E low = number.bits(type, 0xffffffffu), half = number.bits(type, 32);
  E word[4] = {number & low, number >> half, purpose & low, number.bits(type, 0)};
  for (std::uint64_t round = 0; round < 10; ++round) {
    const E key0 = ((key & low) + number.bits(type, (round * 0x9E3779B9u) & 0xffffffffu)) & low;
    const E key1 = ((key >> half) + number.bits(type, (round * 0xBB67AE85u) & 0xffffffffu)) & low;
    const E a = word[0] * number.bits(type, 0xD2511F53u), b = word[2] * number.bits(type, 0xCD9E8D57u);
    const E first = (b >> half) ^ word[1] ^ key0, third = (a >> half) ^ word[3] ^ key1;
    word[0] = first;
    word[1] = b & low;
    word[2] = third;
    word[3] = a & low;
  }
  return word[0] | (word[1] << half);
}

}  // namespace kiln::lower::math
