#include "device/cuda/fake_driver/hopper_twin.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace fake_gpu {
namespace {

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
struct Product {
  void (*run)(const void*);
  alignas(16) unsigned char captured[64];
};
std::map<unsigned, PhaseBarrier> phase_barriers;
NamedBarrier named_barriers[16];
std::vector<std::vector<Product>> product_groups[1024];  // of each thread; the last one is open
int boxes_ordered = 0;

void land_element(const Box& b, unsigned at, const std::array<int, 5>& c) {
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
void land_windows(const Box& b) {
  const int axes = b.map.rank - 2;
  std::array<int, 5> first = std::to_array(b.c);
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
void land(const Box& b) {
  if (b.map.windows) return land_windows(b);
  unsigned at = b.to;
  std::array<int, 5> i{};
  for (;;) {
    std::array<int, 5> c = std::to_array(b.c);
    for (int d = 0; d < b.map.rank; ++d) c[d] += i[d];
    land_element(b, at, c);
    at += b.map.bytes;
    int d = 0;
    while (d < b.map.rank && ++i[d] == b.map.box[d]) i[d++] = 0;
    if (d == b.map.rank) return;
  }
}
long long bytes_of(const Box& b) {
  long long n = b.map.bytes;
  for (int d = 0; d < b.map.rank; ++d) n *= b.map.box[d];
  return n;
}
PhaseBarrier& phase_barrier(unsigned at) {
  const auto found = phase_barriers.find(at);
  if (found == phase_barriers.end()) give_up("a barrier was not made");
  return found->second;
}
void end_phase(PhaseBarrier& b) {
  if (b.left > 0 || b.bytes > 0) return;
  if (b.left < 0 || b.bytes < 0) give_up("a barrier has more arrivals or bytes than it expects");
  ++b.phase;
  b.left = b.expected;
}
void order(const Box& box, unsigned barrier) {
  PhaseBarrier& b = phase_barrier(barrier);
  if (++boxes_ordered % 3 != 0) return b.boxes.push_back(box);
  land(box);
  b.bytes -= bytes_of(box);
  if (b.left == 0 && b.boxes.empty()) end_phase(b);
}
Box& boxed(Box& box, const void* map, const int* c, int rank) {
  std::memcpy(&box.map, map, sizeof box.map);
  if (box.to % 128 != 0 || box.map.rank != rank)
    give_up("a box stands nowhere or has other axes than its map");
  for (int d = 0; d < rank; ++d) box.c[d] = c[d];
  return box;
}

std::vector<Product>& open_products() {
  auto& groups = product_groups[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  return groups.back();
}

}  // namespace

void give_up(const char* what) {
  std::fprintf(stderr, "the fake GPU: %s\n", what);
  std::abort();
}

void begin_hopper() {
  phase_barriers.clear();
  for (NamedBarrier& b : named_barriers) b = {};
  for (unsigned t = 0; t < threads(); ++t) product_groups[t].clear();
}

void barrier_init(unsigned at, int arrivals) {
  PhaseBarrier& b = phase_barriers[at] = {};
  b.expected = b.left = arrivals;
}
void barrier_arrive(unsigned at) {
  PhaseBarrier& b = phase_barrier(at);
  --b.left;
  end_phase(b);
}
void barrier_expect(unsigned at, int bytes) {
  PhaseBarrier& b = phase_barrier(at);
  b.bytes += bytes;
  barrier_arrive(at);
}
void barrier_wait(unsigned at, unsigned parity) {
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

void order_box(Box& box, const void* map, const int* c, int rank, unsigned barrier) {
  if (boxed(box, map, c, rank).map.windows) give_up("a map of windows is no map of boxes");
  order(box, barrier);
}

void order_windows(Box& box, const void* map, const int* c, int rank, const unsigned short* e, int axes,
                   unsigned barrier) {
  if (!boxed(box, map, c, rank).map.windows) give_up("a map of boxes is no map of windows");
  for (int d = 0; d < axes; ++d) {
    box.e[d] = e[d];
    const bool begins = c[d + 1] >= box.map.lower[d] && c[d + 1] < box.map.dims[d + 1] + box.map.upper[d] &&
                        (c[d + 1] - box.map.lower[d]) % box.map.step[d] == 0;
    if (!begins) give_up("no window begins there");
  }
  order(box, barrier);
}

void open_product(void (*run)(const void*), const void* captured, unsigned bytes) {
  Product& made = open_products().emplace_back();
  if (bytes > sizeof made.captured) give_up("a product captures more than it may");
  made.run = run;
  std::memcpy(made.captured, captured, bytes);
}

void products_commit() {
  open_products();
  product_groups[threadIdx.x].emplace_back();
}

void products_wait(unsigned pending) {
  auto& groups = product_groups[threadIdx.x];
  for (; groups.size() > pending + 1; groups.erase(groups.begin()))
    for (const Product& product : groups.front()) product.run(product.captured);
}

bool arrive_at(int number, int count, bool mine) {
  NamedBarrier& b = named_barriers[number];
  b.any = b.any || mine;
  if (++b.arrived < count) return false;
  b.arrived = 0;
  b.result = b.any;
  b.any = false;
  ++b.generation;
  return true;
}

bool meet_or(int number, int count, bool mine) {
  NamedBarrier& b = named_barriers[number];
  const long mine_is = b.generation;
  if (!arrive_at(number, count, mine))
    for (long tries = 0; b.generation == mine_is; ++tries) {
      if (tries > 1000000) give_up("threads do not meet");
      turn();
    }
  return b.result;
}

}  // namespace fake_gpu
