#include "device/cuda/fake_driver/ptx_twin.h"

#include <cstring>
#include <utility>
#include <vector>

namespace fake_gpu {

alignas(1024) unsigned char shared_window[256 << 10];
unsigned fragments[1024][6];

namespace {

struct Copy {
  unsigned to;
  const void* from;
  int bytes, there;
};
struct Copies {
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};
Copies copies[1024];  // of each thread

}  // namespace

void begin_copies() {
  for (unsigned t = 0; t < threads(); ++t) copies[t] = {};
}

void copy_async(unsigned to, const void* from, int bytes, int there) {
  const unsigned size = static_cast<unsigned>(bytes);
  if (to % size != 0 || (there > 0 && reinterpret_cast<unsigned long long>(from) % size != 0))
    __builtin_trap();
  copies[threadIdx.x].open.push_back({to, from, bytes, there});
}

void copies_commit() {
  Copies& mine = copies[threadIdx.x];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

void copies_wait(unsigned pending) {
  auto& groups = copies[threadIdx.x].groups;
  for (; groups.size() > pending; groups.erase(groups.begin()))
    for (const Copy& c : groups.front()) {
      std::memset(shared_window + c.to, 0, static_cast<std::size_t>(c.bytes));
      if (c.there > 0) std::memcpy(shared_window + c.to, c.from, static_cast<std::size_t>(c.there));
    }
}

// An 8-bit float: of 4 or 5 bits of exponent.
float float8_of(unsigned char x, bool e5m2) {
  const int mantissa = e5m2 ? 2 : 3, exponent = x >> mantissa & (e5m2 ? 31 : 15), bias = e5m2 ? 15 : 7;
  const int fraction = x & ((1 << mantissa) - 1), one = 1 << mantissa;
  float y = exponent == 0 ? fraction : fraction + one;
  for (int e = (exponent == 0 ? 1 : exponent) - bias - mantissa; e != 0; e += e < 0 ? 1 : -1)
    y *= e < 0 ? 0.5f : 2.0f;
  if (e5m2 ? exponent == 31 : (x & 127) == 127)
    y = __uint_as_float(e5m2 && fraction == 0 ? 0x7f800000 : 0x7fc00000);
  return x >> 7 ? -y : y;
}

void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, float) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  show_fragments(a, b0, b1);
  const auto part_of = [&](unsigned lane, int word) {
    return __uint_as_float(fragments[warp + lane][word] & 0xffffe000u);
  };
  for (int h = 0; h < 2; ++h)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 8; ++k)
        sum[2 * h + e] += part_of(4 * g + k % 4, h + k / 4 * 2) * part_of(4 * (2 * q + e) + k % 4, 4 + k / 4);
  meet(warp, ~0u);
}

void multiply_add(double (&sum)[4], const double (&a)[4], double b0, double b1, double) {
  static double shown[1024][6];
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  for (int i = 0; i < 4; ++i) shown[me][i] = a[i];
  shown[me][4] = b0;
  shown[me][5] = b1;
  meet(warp, ~0u);
  for (int h = 0; h < 2; ++h)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 8; ++k)
        sum[2 * h + e] +=
            shown[warp + 4 * g + k % 4][h + k / 4 * 2] * shown[warp + 4 * (2 * q + e) + k % 4][4 + k / 4];
  meet(warp, ~0u);
}

}  // namespace fake_gpu
