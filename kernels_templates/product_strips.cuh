// What convolutions share whose channels lie apart: windows are columns of the result, filters its rows. A
// strip is kEach adjacent windows of an image's row. Shared memory has what strips read once for all filters
// and for all windows that share it: a segment of a row of the array for each strip and each row of it, of a
// few channels at a time (a stage). So a multiply-add costs a fraction of a load, where product_gather.cuh
// copies each window's elements one by one. Who multiplies stands in a file of its own:
// product_strips_fma.cuh, product_strips_mma.cuh.
//
// A tile has strips side by side, below each other, and of several images: Windows::strips_x by strips_y by
// strips_images of them. A block makes several tiles. Where each unit of kUnit elements comes from is in a
// table: it is the same for all channels, and for tiles that differ in images or filters alone. What lies
// outside of the array is zero when the table is made, and stays so.
// Pre: windows move along one or two axes; elements along the inner one are adjacent where kUnit is not 1.
#pragma once

typedef Config::Element Element;
typedef Config::Sum Sum;

constexpr int kThreads = 128, kBlocksPerSm = Config::kBlocks, kBeside = 8;
constexpr bool kFragments = Config::kFragments;  // tensor cores take eight terms at a time
constexpr int kEach = Config::kEach, kTeams = Config::kTileBeside / kBeside, kStrips = kThreads / kTeams;
constexpr int kTaps = Config::kTaps, kStep = Config::kStep, kGap = Config::kGap;  // of the inner axis
constexpr int kUnit = Config::kUnit, kShift = Config::kShift;  // elements; in front of a strip's first one
constexpr int kWidth = Config::kWidth;
constexpr bool kCopies = kUnit * sizeof(Element) >= 4;  // else elements are widened on their way

template <bool Same, class A, class B>
struct Either {
  typedef A type;
};
template <class A, class B>
struct Either<false, A, B> {
  typedef B type;
};
typedef Either<kCopies, Element, Sum>::type Held;

constexpr int kHeld = sizeof(Held), kVector = 16 / kHeld, kBytes = sizeof(Sum), kSums = 16 / kBytes;
constexpr int kReach = kShift + (kEach - 1) * kStep + (kTaps - 1) * kGap + 1;
constexpr int kUnits = (kReach + kUnit - 1) / kUnit, kVectors = (kReach + kVector - 1) / kVector,
              kPitch = (kVectors | 1) * 16;  // bytes; odd vectors: adjacent segments lie in different banks
constexpr int kOtherPitch = (Config::kTileBeside + kSums) * kBytes;
constexpr int kBatch = 2;  // a copy that follows a load from shared memory waits for it: loads come first
static_assert(kEach % kWidth == 0 && kStrips * kTeams == kThreads && kShift < kUnit, "");

__device__ __forceinline__ float widened(f16 x) { return to_float(x); }
__device__ __forceinline__ float widened(bf16 x) { return to_float(x); }
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ double widened(double x) { return x; }

/// a / b of small numbers, of which nobody waits for a division. Pre: 0 <= a < 2^20, 0 < b.
__device__ __forceinline__ int divide(int a, int b) { return int((float(a) + 0.5f) * (1.0f / float(b))); }

/// Sizes of a block's memory: segments of a channel, bytes of them, terms of a channel and lines of filters
/// of a stage, and the rest.
struct Sizes {
  int rows, segments, plane, terms, lines, stage, table, entries, results;
  __device__ __forceinline__ explicit Sizes(const Windows& w) {
    rows = (w.strips_y - 1) * w.step[1] + (w.taps[1] - 1) * w.gap[1] + 1;
    segments = w.strips_images * rows * w.strips_x;
    plane = segments * kPitch;
    terms = w.taps[1] * kTaps;
    lines = kFragments ? (w.depth * terms + 7) / 8 * 8 : w.depth * terms;
    stage = w.depth * plane + lines * kOtherPitch;
    table = 2 * stage;
    entries = (segments * kUnits + kBatch * kThreads - 1) / (kBatch * kThreads) * (kBatch * kThreads);
    results = table + entries * 8;
  }
};

/// The first strip of a tile, row, image (or matrix of the batch), and filter; and how many images it has.
struct StripPlace {
  int x, y, image, beside, images;
  static __device__ __forceinline__ uint32 parts(uint32 all, uint32 each) { return (all + each - 1) / each; }
  __device__ __forceinline__ StripPlace(const Windows& w, const Product& p, uint32 tile) {
    const uint32 by_beside = parts(p.m, Config::kTileBeside),
                 by_x = parts(parts(w.count[0], kEach), w.strips_x), by_y = parts(w.count[1], w.strips_y);
    const uint32 rest = tile / by_beside, rows = rest / by_x, groups = rows / by_y;
    beside = (tile - rest * by_beside) * Config::kTileBeside;
    x = (rest - rows * by_x) * w.strips_x;
    y = (rows - groups * by_y) * w.strips_y;
    image = groups * w.strips_images;
    images = p.batch - image < w.strips_images ? p.batch - image : w.strips_images;
  }
  __device__ __forceinline__ bool has_table_of(const StripPlace& other) const {
    return x == other.x && y == other.y && images == other.images;
  }
  /// Elements in front of its first image.
  __device__ __forceinline__ int64 offset(const Windows& w) const {
    if (Config::kFlat) return image * w.image;
    const int first = image / w.groups;
    return first * w.image + int64(image - first * w.groups) * w.channels * w.channel;
  }
};

/// Writes the table: where a unit of a channel comes from, or -1, and where it goes.
__device__ __forceinline__ void make_table(const Windows& w, const Sizes& s, const StripPlace& place) {
  const int x_first = w.first[0] + place.x * (kEach * kStep) - kShift,
            y_first = w.first[1] + place.y * w.step[1], strips = (w.count[0] + kEach - 1) / kEach - place.x;
#pragma unroll 1
  for (int i = threadIdx.x; i < s.entries; i += kThreads) {
    const int segment = i / kUnits, unit = i - segment * kUnits, row = divide(segment, w.strips_x),
              image = divide(row, s.rows), strip = segment - row * w.strips_x;
    const int x = x_first + strip * (kEach * kStep) + unit * kUnit, y = y_first + row - image * s.rows;
    const bool there = segment < s.segments && image < place.images && x >= 0 && x < w.extent[0] && y >= 0 &&
                       y < w.extent[1] && strip < strips;
    const int64 offset = image * w.image + y * w.stride[1] + x * w.stride[0];
    store_shared(shared_base() + s.table + i * 8, there ? uint32(offset) : ~0u);
    store_shared(shared_base() + s.table + i * 8 + 4, uint32(segment * kPitch + unit * (kUnit * kHeld)));
  }
}

/// Makes zeros of what copies leave out, in both stages: of segments, and of lines of filters.
__device__ __forceinline__ void clear(const Windows& w, const Sizes& s) {
  const int segments = w.depth * s.plane, filters = w.depth * s.terms * kOtherPitch;
  for (uint32 stage = shared_base(); stage < shared_base() + 2 * s.stage; stage += s.stage) {
    for (int i = threadIdx.x * 16; i < segments; i += kThreads * 16)
      store_shared(stage + i, uint4{0, 0, 0, 0});
    for (int i = segments + filters + threadIdx.x * 16; i < s.stage; i += kThreads * 16)
      store_shared(stage + i, uint4{0, 0, 0, 0});
  }
}

__device__ __forceinline__ void fetch(uint32 to, const Element* from) {
  if constexpr (kCopies)
    copy_async<kUnit* int(sizeof(Element)), true>(to, from, kUnit * sizeof(Element));
  else
    store_shared(to, __float_as_uint(widened(*from)));
}

/// Segments of w.depth channels.
__device__ __forceinline__ void start_segments(const Windows& w, const Sizes& s, const Element* from,
                                               uint32 stage) {
  const uint32 table = shared_base() + s.table + threadIdx.x * 8;
#pragma unroll 1
  for (int channel = 0; channel < w.depth; ++channel, from += w.channel, stage += s.plane)
#pragma unroll 1
    for (int first = 0; first < s.entries * 8; first += kBatch * kThreads * 8) {
      uint2 entry[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) entry[i] = load_shared_8(table + first + i * (kThreads * 8));
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (int(entry[i].x) >= 0) fetch(stage + entry[i].y, from + int(entry[i].x));
    }
}

/// The filters of the same channels: all of a term side by side, zeros behind the last one. Threads are
/// kAlong beside each other along what is adjacent in memory, terms or filters. Of a term its distance from
/// the stage's first one is k, or where channels are the inner part of k, made of its channel and the rest.
__device__ __forceinline__ void start_filters(const Windows& w, const Product& p, const Sizes& s,
                                              const Element* from, int lines, uint32 stage) {
  constexpr int kAlong = Config::kByK ? 16 : 8, kLines = Config::kByK ? kThreads / kAlong : kAlong,
                kTerms = kThreads / kLines;
  const int line = Config::kByK ? threadIdx.x / kAlong : threadIdx.x % kAlong,
            first = Config::kByK ? threadIdx.x % kAlong : threadIdx.x / kAlong;
  from += line * p.a_m;
  stage += line * kBytes;
#pragma unroll 1
  for (int term = first; term < s.terms * w.depth; term += kTerms) {
    int k = term;
    if (!Config::kChannelsOuter) {
      const int channel = divide(term, s.terms);
      k = channel + (term - channel * s.terms) * w.channels;
    }
    const Element* x = from + k * p.a_k;
#pragma unroll
    for (int l = 0; l < Config::kTileBeside; l += kLines, x += kLines * p.a_m) {
      const bool there = line + l < lines;
      const uint32 to = stage + term * kOtherPitch + l * kBytes;
      if constexpr (sizeof(Element) == kBytes)
        copy_async<kBytes>(to, there ? x : from, there ? kBytes : 0);
      else
        store_shared(to, __float_as_uint(there ? widened(*x) : 0.0f));
    }
  }
}

/// Where the number-th strip of a tile is: the strip of a row, the row, the image.
struct StripOfTile {
  int x, y, image;
  __device__ __forceinline__ StripOfTile(const Windows& w, int number) {
    const int row = divide(number, w.strips_x);
    x = number - row * w.strips_x;
    image = divide(row, w.strips_y);
    y = row - image * w.strips_y;
  }
  /// Where its first segment is in a stage; one that is not there does as the first.
  __device__ __forceinline__ int segment(const Windows& w, const Sizes& s) const {
    return image < w.strips_images ? ((image * s.rows + y * w.step[1]) * w.strips_x + x) * kPitch : 0;
  }
  __device__ __forceinline__ bool is_there(const Windows& w, const StripPlace& place) const {
    return image < w.strips_images && image < place.images && place.y + y < w.count[1];
  }
};

/// Makes the stages and the table ready for tiles at a place. A barrier.
__device__ __forceinline__ void prepare(const Windows& w, const Sizes& s, const StripPlace& place) {
  make_table(w, s, place);
  clear(w, s);
  __syncthreads();
}

__device__ __forceinline__ void exchange(uint32& a, uint32& b) {
  const uint32 of_a = a;
  a = b;
  b = of_a;
}

/// A block's tiles: `Sums` has those of one, multiplies stages (`multiply`, of the address) and hands them
/// on. One that rounds elements (kRounds) does a tile again, exactly, that has infinities or what is no
/// number: an infinity's parts give other results than the infinity.
template <class Sums>
__device__ __forceinline__ void run_strips(const Args& args) {
  const Windows& w = args.windows;
  const Product& p = args.product;
  const Sizes s(w);
  Sums sums(w, s);
  // of the tile's next stage
  const Element *array, *filters;
  const int64 filters_on = (Config::kChannelsOuter ? int64(w.depth) * s.terms : w.depth) * p.a_k;
  const auto enter = [&](const StripPlace& place) {
    const int matrix = Config::kFlat ? 0 : place.image;
    array = b_matrix(args, 0, matrix) + place.offset(w);
    filters = a_matrix(args, matrix) + place.beside * p.a_m;
  };
  const auto start = [&](const StripPlace& place, uint32 stage) {
    start_segments(w, s, array, stage);
    start_filters(w, p, s, filters, p.m - place.beside, stage + w.depth * s.plane);
    array += w.depth * w.channel;
    filters += filters_on;
    copies_commit();
  };
  StripPlace place(w, p, blockIdx.x);
  uint32 now = shared_base(), next = now + s.stage;
  prepare(w, s, place);
  enter(place);
  start(place, now);
  const auto add_stages = [&](const auto& multiply) {
    sums.clear();
    for (int channel = 0; channel < w.channels; channel += w.depth) {
      copies_wait<0>();
      __syncthreads();
      if (channel + w.depth < w.channels) start(place, next);
      multiply(now);
      exchange(now, next);
    }
  };
  for (int tile = blockIdx.x; tile < w.tiles;) {
    add_stages([&](uint32 stage) { sums.multiply(w, s, stage); });
    if constexpr (Sums::kRounds) {
      if (__syncthreads_or(!sums.is_finite())) {
        enter(place);
        start(place, now);
        add_stages([&](uint32 stage) { sums.multiply_exactly(w, s, stage); });
      }
    }
    const StripPlace before = place;
    tile += gridDim.x;
    if (tile < w.tiles) {
      __syncthreads();
      place = StripPlace(w, p, tile);
      if (!place.has_table_of(before)) prepare(w, s, place);
      enter(place);
      start(place, now);
    }
    sums.finish(args, s, before);
  }
}
