// kHopperTwin: the functions of kernels_templates/hopper.cuh, which leaves its own out, for the compiler that
// takes the host for a GPU. What runs beside the threads on a GPU runs here when it does most harm: of the
// copy engine's boxes, some land at once, over what is still being read, and the others when nobody can wait
// any longer; products read their operands and write their sums when they are waited for. A wait that cannot
// end ends the program. Clusters have one block.
#pragma once

constexpr const char* kHopperTwin = R"(
#include <array>
#include <deque>
#include <functional>
#include <map>
[[noreturn]] static void give_up(const char* what) {
  fprintf(stderr, "the fake GPU: %s\n", what);
  abort();
}

// As the fake driver's tensor_map.h writes it.
struct BoxMap {
  const unsigned char* address;
  int bytes, rank;
  long long strides[5];  // in bytes
  int dims[5];
  short box[5];
  short windows, lower[3], upper[3], step[3];
};
struct Box {
  unsigned to;
  BoxMap map;
  std::array<int, 5> c;
  std::array<int, 3> e;  // of windows: which of their elements
};
struct PhaseBarrier {
  int expected = 0, left = 0;
  long long bytes = 0;
  unsigned phase = 0;
  std::vector<Box> boxes;
};
struct NamedBarrier {
  int arrived = 0;
  long generation = 0;
  bool any = false, result = false;
};
static std::map<unsigned, PhaseBarrier> phase_barriers;
static NamedBarrier named_barriers[16];
static std::deque<std::vector<std::function<void()>>> product_groups[1024];  // of each thread; the last one is open
static int boxes_ordered = 0;
static unsigned permuted(unsigned address) { return address ^ (address >> 7 & 7) << 4; }
static void new_hopper_block() {
  phase_barriers.clear();
  for (NamedBarrier& b : named_barriers) b = {};
  for (auto& groups : product_groups) groups.clear();
}
static const bool hopper_hooked = (new_block = new_hopper_block, true);

static void land_element(const Box& b, unsigned at, const std::array<int, 5>& c) {
  bool inside = true;
  const unsigned char* from = b.map.address;
  for (int d = 0; d < b.map.rank; ++d) {
    inside = inside && c[d] >= 0 && c[d] < b.map.dims[d];
    from += c[d] * b.map.strides[d];
  }
  unsigned char* const to = shared_window + permuted(at);
  if (inside)
    std::memcpy(to, from, b.map.bytes);
  else
    std::memset(to, 0, b.map.bytes);
}
static void land_windows(const Box& b) {
  const int axes = b.map.rank - 2;
  std::array<int, 5> first = b.c;
  for (int window = 0; window < b.map.box[1]; ++window) {
    for (int channel = 0; channel < b.map.box[0]; ++channel) {
      std::array<int, 5> c = first;
      c[0] += channel;
      for (int d = 0; d < axes; ++d) c[d + 1] += b.e[d];
      land_element(b, b.to + (window * b.map.box[0] + channel) * b.map.bytes, c);
    }
    int d = 0;
    for (; d < axes; ++d) {
      first[d + 1] += b.map.step[d];
      if (first[d + 1] < b.map.dims[d + 1] + b.map.upper[d]) break;
      first[d + 1] = b.map.lower[d];
    }
    if (d == axes) ++first[axes + 1];
  }
}
static void land(const Box& b) {
  if (b.map.windows) return land_windows(b);
  unsigned at = b.to;
  std::array<int, 5> i{};
  for (;;) {
    std::array<int, 5> c = b.c;
    for (int d = 0; d < b.map.rank; ++d) c[d] += i[d];
    land_element(b, at, c);
    at += b.map.bytes;
    int d = 0;
    while (d < b.map.rank && ++i[d] == b.map.box[d]) i[d++] = 0;
    if (d == b.map.rank) return;
  }
}
static long long bytes_of(const Box& b) {
  long long n = b.map.bytes;
  for (int d = 0; d < b.map.rank; ++d) n *= b.map.box[d];
  return n;
}
static PhaseBarrier& phase_barrier(unsigned at) {
  const auto found = phase_barriers.find(at);
  if (found == phase_barriers.end()) give_up("a barrier was not made");
  return found->second;
}
static void end_phase(PhaseBarrier& b) {
  if (b.left > 0 || b.bytes > 0) return;
  if (b.left < 0 || b.bytes < 0) give_up("a barrier has more arrivals or bytes than it expects");
  ++b.phase;
  b.left = b.expected;
}
static void barrier_init(unsigned at, int arrivals) {
  PhaseBarrier& b = phase_barriers[at] = {};
  b.expected = b.left = arrivals;
}
static void fence_barriers() {}
static void barrier_arrive(unsigned at) {
  PhaseBarrier& b = phase_barrier(at);
  --b.left;
  end_phase(b);
}
static void barrier_arrive(unsigned at, int) { barrier_arrive(at); }
static void barrier_expect(unsigned at, int bytes) {
  PhaseBarrier& b = phase_barrier(at);
  b.bytes += bytes;
  barrier_arrive(at);
}
static void barrier_wait(unsigned at, unsigned parity) {
  for (long tries = 0;; ++tries) {
    PhaseBarrier& b = phase_barrier(at);
    if ((b.phase & 1) != parity) return;
    if (b.left == 0 && !b.boxes.empty()) {
      std::vector<Box> boxes = std::move(b.boxes);
      b.boxes.clear();
      for (const Box& box : boxes) {
        land(box);
        b.bytes -= bytes_of(box);
      }
      end_phase(b);
      continue;
    }
    if (tries > 1000000) give_up("a wait for a barrier does not end");
    turn();
  }
}
static int cluster_rank() { return 0; }
static void cluster_meet() { __syncthreads(); }
template <class Map> static void prefetch_map(const Map&) {}
template <int Rank, class Map>
static Box box_at(unsigned to, const Map& map, const int (&c)[Rank]) {
  Box box{to, {}, {}, {}};
  static_assert(sizeof box.map <= sizeof map);
  std::memcpy(&box.map, &map, sizeof box.map);
  if (to % 128 != 0 || box.map.rank != Rank) give_up("a box stands nowhere or has other axes than its map");
  for (int d = 0; d < Rank; ++d) box.c[d] = c[d];
  return box;
}
static void order(const Box& box, unsigned barrier) {
  PhaseBarrier& b = phase_barrier(barrier);
  if (++boxes_ordered % 3 != 0) return b.boxes.push_back(box);
  land(box);
  b.bytes -= bytes_of(box);
  if (b.left == 0 && b.boxes.empty()) end_phase(b);
}
template <int Rank, class Map>
static void copy_box(unsigned to, const Map& map, const int (&c)[Rank], unsigned barrier) {
  const Box box = box_at(to, map, c);
  if (box.map.windows) give_up("a map of windows is no map of boxes");
  order(box, barrier);
}
template <int Rank, class Map>
static void copy_box(unsigned to, const Map& map, const int (&c)[Rank], unsigned barrier, unsigned short) {
  copy_box(to, map, c, barrier);
}
template <int Axes, int Rank, class Map>
static void copy_windows(unsigned to, const Map& map, const int (&c)[Rank], const unsigned short (&e)[Axes],
                         unsigned barrier) {
  static_assert(Rank == Axes + 2);
  Box box = box_at(to, map, c);
  if (!box.map.windows) give_up("a map of boxes is no map of windows");
  for (int d = 0; d < Axes; ++d) {
    box.e[d] = e[d];
    const bool begins = c[d + 1] >= box.map.lower[d] && c[d + 1] < box.map.dims[d + 1] + box.map.upper[d] &&
                        (c[d + 1] - box.map.lower[d]) % box.map.step[d] == 0;
    if (!begins) give_up("no window begins there");
  }
  order(box, barrier);
}
template <int Axes, int Rank, class Map>
static void copy_windows(unsigned to, const Map& map, const int (&c)[Rank], const unsigned short (&e)[Axes],
                         unsigned barrier, unsigned short) {
  copy_windows(to, map, c, e, barrier);
}

static void products_fence() {}
static std::vector<std::function<void()>>& open_products() {
  auto& groups = product_groups[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  return groups.back();
}
static void products_commit() {
  open_products();
  product_groups[threadIdx.x].emplace_back();
}
template <int Pending> static void products_wait() {
  auto& groups = product_groups[threadIdx.x];
  for (; groups.size() > Pending + 1; groups.pop_front())
    for (const auto& product : groups.front()) product();
}
// Where an element of an operand, of so many bytes, stands: line r of the other axis, k.
static unsigned element_at(unsigned long long descriptor, bool transposed, unsigned r, unsigned k, unsigned bytes) {
  const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                 stride = (descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != 1) give_up("a tile is not permuted over 128 bytes");
  if (transposed && bytes != 2) give_up("only halves have another order");
  return permuted(transposed ? start + r / 64 * leading + k / 8 * stride + k % 8 * 128 + r % 64 * 2
                             : start + r / 8 * stride + r % 8 * 128 + k * bytes);
}
// What tensor cores read of the bits of an element, of operand 0 or 1.
template <class T> static float value_of(unsigned bits, int, T x) {
  x.bits = bits;
  return to_float(x);
}
static float value_of(unsigned bits, int, float) { return __uint_as_float(bits & 0xffffe000u); }
template <template <bool, bool> class Pair, bool A, bool B>
static float value_of(unsigned bits, int operand, Pair<A, B>) {
  return float8_of((unsigned char)bits, operand == 0 ? A : B);
}
template <int Operand, class T>
static float operand_at(unsigned long long descriptor, bool transposed, unsigned r, unsigned k) {
  unsigned bits = 0;
  std::memcpy(&bits, shared_window + element_at(descriptor, transposed, r, k, sizeof(T)), sizeof(T));
  return value_of(bits, Operand, T());
}
template <int TransposeB, class T, int Count, unsigned Steps>
static void sum_products(float (&sums)[Count], const float (&a)[2][Steps], unsigned long long b, int keep) {
  const unsigned q = threadIdx.x % 4;
  for (int n = 0; n < Count / 4; ++n)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned h = 0; h < 2; ++h) {
        float& sum = sums[4 * n + 2 * h + e];
        if (!keep) sum = 0;
        for (unsigned k = 0; k < Steps; ++k) sum += a[h][k] * operand_at<1, T>(b, TransposeB, 8 * n + 2 * q + e, k);
      }
}
template <int TransposeA, int TransposeB, class T, int Count>
static void group_multiply_add(float (&sums)[Count], unsigned long long a, unsigned long long b, int keep, T) {
  open_products().push_back([&sums, a, b, keep] {
    constexpr unsigned kSteps = 32 / sizeof(T);
    float rows[2][kSteps];
    for (unsigned h = 0; h < 2; ++h)
      for (unsigned k = 0; k < kSteps; ++k)
        rows[h][k] = operand_at<0, T>(a, TransposeA, threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h, k);
    sum_products<TransposeB, T>(sums, rows, b, keep);
  });
}
template <int TransposeB, class T, int Count>
static void group_multiply_add(float (&sums)[Count], const unsigned (&a)[4], unsigned long long b, int keep, T) {
  open_products().push_back([&sums, &a, b, keep] {
    const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4;
    for (int i = 0; i < 4; ++i) fragments[me][i] = a[i];
    meet(warp, ~0u);
    float rows[2][16];
    for (unsigned h = 0; h < 2; ++h)
      for (unsigned k = 0; k < 16; ++k) {
        T x;
        x.bits = (unsigned short)(fragments[warp + 4 * g + k % 8 / 2][h + k / 8 * 2] >> 16 * (k % 2));
        rows[h][k] = to_float(x);
      }
    meet(warp, ~0u);
    sum_products<TransposeB, T>(sums, rows, b, keep);
  });
}
static void pin(float&) {}
static void forget(float&) {}

static bool arrive_at(int number, int count, bool mine) {
  NamedBarrier& b = named_barriers[number];
  b.any = b.any || mine;
  if (++b.arrived < count) return false;
  b.arrived = 0;
  b.result = b.any;
  b.any = false;
  ++b.generation;
  return true;
}
template <int Count> static bool meet_or(int number, bool mine) {
  NamedBarrier& b = named_barriers[number];
  const long mine_is = b.generation;
  if (!arrive_at(number, Count, mine))
    for (long tries = 0; b.generation == mine_is; ++tries) {
      if (tries > 1000000) give_up("threads do not meet");
      turn();
    }
  return b.result;
}
template <int Count> static void meet(int number) { meet_or<Count>(number, false); }
template <int Count> static void let_pass(int number) { arrive_at(number, Count, false); }
template <int Count> static void give_registers() {}
template <int Count> static void take_registers() {}
)";
