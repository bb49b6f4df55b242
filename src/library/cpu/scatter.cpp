#include "library/cpu/scatter.h"

#include "device/cpu/threads.h"
#include "library/cpu/add_rows.h"
#include "library/cpu/positions.h"
#include "library/cpu/scatter_meet.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

namespace kiln::cpu {
namespace {

using library::Array;
using library::Scatter;

constexpr std::int64_t kParallelAbove = 32768;   // values that several threads write
constexpr std::int64_t kFewestElements = 64;     // of a part of a row that a thread takes
constexpr std::int64_t kPartBytes = 2048;        // from which on parts may be more than the threads
constexpr std::int64_t kTableBytes = 512 << 10;  // of a thread's table: within the second cache
constexpr std::int64_t kResolvedAtOnce = 1024;   // indices
constexpr std::int64_t kListed = 256;            // runs of elements, whose indices are compared at once
constexpr std::int64_t kWidenedTogether = 32;    // elements of a run of halves that is widened with the list
constexpr std::int64_t kFetchedAhead = 16;       // of those
constexpr std::int64_t kFetchedTogether = 8;     // indices: no more than a line has
constexpr std::int64_t kValuesAnElement = 4;     // from which tables are worth clearing and combining

std::int64_t count_of(const Array& a) {
  std::int64_t n = 1;
  for (int axis = 0; axis < a.rank; ++axis) n *= a.dims[axis];
  return n;
}

/// Offset of the i-th element in row-major order of the axes [first, last).
std::int64_t offset_of(const Array& a, int first, int last, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = last; axis-- > first;) {
    offset += i % a.dims[axis] * a.strides[axis];
    i /= a.dims[axis];
  }
  return offset;
}

bool widens(const Scatter& call) {
  return is_half(call.dtype) && (call.how == Combine::Add || call.how == Combine::Multiply);
}

/// Distinct indices as positions along the axis, -1 for none: row-major without the axes along which they
/// repeat.
Array distinct(const Array& indices) {
  Array out = indices;
  std::int64_t stride = 1;
  for (int a = out.rank; a-- > 0;) {
    if (out.strides[a] == 0) out.dims[a] = 1;
    out.strides[a] = out.dims[a] == 1 ? 0 : stride;
    stride *= out.dims[a];
  }
  return out;
}

/// The call with axes of one element left out and axes that all three arrays walk as one joined, those on
/// either side of the scattered axis.
Scatter collapsed(const Scatter& call) {
  Scatter out = call;
  Array* const arrays[] = {&out.x, &out.indices, &out.values};
  const Array* const from[] = {&call.x, &call.indices, &call.values};
  for (Array* a : arrays) a->rank = 0;
  out.axis = -1;
  for (int axis = 0; axis < call.x.rank; ++axis) {
    const int before = out.x.rank - 1;
    const bool own = axis == call.axis;
    if (!own && call.x.dims[axis] == 1) continue;
    bool joins = !own && before >= 0 && before != out.axis;
    for (int i = 0; i < 3 && joins; ++i)
      joins = arrays[i]->strides[before] == from[i]->strides[axis] * from[i]->dims[axis];
    if (own) out.axis = before + 1;
    for (int i = 0; i < 3; ++i) {
      Array& a = *arrays[i];
      const int at = joins ? before : a.rank++;
      a.dims[at] = (joins ? a.dims[at] : 1) * from[i]->dims[axis];
      a.strides[at] = from[i]->strides[axis];
    }
  }
  return out;
}

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// f<Index>() for the type of the indices.
template <class F>
void by_index(const Scatter& call, F f) {
  dispatch(call.index_dtype, [&]<class Index>() {
    if constexpr (std::is_integral_v<Index> && !std::is_same_v<Index, bool>) f.template operator()<Index>();
  });
}

void resolve(const Scatter& call, const Array& shape, std::int64_t* to) {
  const std::int64_t extent = call.x.dims[call.axis];
  Array from = call.indices;
  from.rank = 0;
  for (int axis = 0; axis < shape.rank; ++axis) {  // a row of one index would be resolved by itself
    if (shape.dims[axis] == 1) continue;
    from.dims[from.rank] = shape.dims[axis];
    from.strides[from.rank++] = call.indices.strides[axis];
  }
  const std::int64_t run = from.rank ? from.dims[from.rank - 1] : 1,
                     stride = from.rank ? from.strides[from.rank - 1] : 0;
  const std::int64_t rows = run == 0 ? 0 : count_of(from) / run;
  by_index(call, [&]<class T>() {
    const ResolvePositions<T> positions_of = resolve_positions<T>();
    if (rows == 1)
      return parallel_for(run, kParallelAbove, [&](std::int64_t begin, std::int64_t end, int) {
        positions_of(static_cast<const T*>(from.data) + begin * stride, stride, end - begin, extent, -1,
                     to + begin);
      });
    parallel_for(rows, std::max<std::int64_t>(1, kParallelAbove / std::max<std::int64_t>(run, 1)),
                 [&](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t r = begin; r < end; ++r) {
                     const T* const row =
                         static_cast<const T*>(from.data) + offset_of(from, 0, from.rank - 1, r);
                     positions_of(row, stride, run, extent, -1, to + r * run);
                   }
                 });
  });
}

/// The array with its last axes joined as far as they are walked as one.
Array with_long_rows(Array x) {
  while (x.rank >= 2 && x.strides[x.rank - 2] == x.strides[x.rank - 1] * x.dims[x.rank - 1]) {
    x.dims[x.rank - 2] *= x.dims[x.rank - 1];
    x.strides[x.rank - 2] = x.strides[x.rank - 1];
    --x.rank;
  }
  return x;
}

/// dst = x element by element, converted.
template <class A, class T>
void copy(const Array& from_array, A* dst) {
  const Array x = with_long_rows(from_array);
  const std::int64_t run = x.rank ? x.dims[x.rank - 1] : 1, stride = x.rank ? x.strides[x.rank - 1] : 0;
  const std::int64_t rows = run == 0 ? 0 : count_of(x) / run;
  if (x.data == dst) return;
  auto piece = [&](const T* from, A* to, std::int64_t n) {
    if (stride == 1)
      convert(from, to, n);
    else
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i * stride]);
  };
  const auto* const data = static_cast<const T*>(x.data);
  if (rows == 1)
    return parallel_for(run, kParallelAbove, [&](std::int64_t begin, std::int64_t end, int) {
      piece(data + begin * stride, dst + begin, end - begin);
    });
  parallel_for(rows, std::max<std::int64_t>(1, kParallelAbove / std::max<std::int64_t>(run, 1)),
               [&](std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t r = begin; r < end; ++r)
                   piece(data + offset_of(x, 0, x.rank - 1, r), dst + r * run, run);
               });
}

/// How the work is cut: outer axes times parts of the last axis behind `axis` times ranges of `axis`.
struct Cut {
  // rows: of `run` elements behind the axis
  std::int64_t outer = 1, rows = 1, run = 1, parts = 1, ranges = 1;
  explicit Cut(const Scatter& call) {
    for (int a = 0; a < call.axis; ++a) outer *= call.x.dims[a];
    const int last = call.x.rank - 1;
    for (int a = call.axis + 1; a < last; ++a) rows *= call.x.dims[a];
    if (last > call.axis) run = call.x.dims[last];
    const bool many = count_of(call.values) > kParallelAbove;
    const std::int64_t threads = many && !call.one_thread ? thread_count() : 1;
    if (outer >= 4 * threads) return;
    const std::int64_t wanted = std::max(threads, run * size_of(call.dtype) / kPartBytes);
    parts = std::clamp<std::int64_t>(run / kFewestElements, 1, std::min(wanted, 4 * threads));
    if (outer * parts < threads) ranges = threads;
  }
  std::int64_t jobs() const { return outer * parts * ranges; }
};

/// Indices become positions where they are needed: in memory they would take twice the room of most indices,
/// and half of them would be in another core's cache.
struct Resolved {
  std::function<void(std::int64_t at, std::int64_t n, std::int64_t* to)> positions;
  KeepPositions keep = keep_positions();
  explicit Resolved(const Scatter& call) {
    by_index(call, [&]<class T>() {
      positions = [from = static_cast<const T*>(call.indices.data), stride = call.indices.strides[call.axis],
                   extent = call.x.dims[call.axis],
                   run = resolve_positions<T>()](std::int64_t at, std::int64_t n, std::int64_t* to) {
        run(from + at, stride, n, extent, -1, to);
      };
    });
  }
};

/// Runs of `n` elements meet their values in the order of a list: first those that a thread does not own were
/// left out without a branch, which would be mispredicted at every other one, and now the elements of later
/// runs, which lie anywhere, are asked for ahead, and the values of those that are left.
template <Combine How, int N, class A, class T>
void meet_listed(const RowList& list, A* elements, const T* values, std::int64_t step, std::int64_t n,
                 bool cached) {
  for (std::int64_t j = 0; j < list.count; ++j) {
    if (!cached) fetch_row(list, j + kFetchedAhead, elements, values, n);
    A* const row = elements + list.elements[j];
    const T* const value = values + list.values[j];
    if constexpr (N > 0)
      for (int i = 0; i < N; ++i) meet<How>(row[i], value[i]);
    else
      meet_row<How>(row, value, step, n);
  }
}

/// The same; additions of adjacent floats in registers where there are some for them, else with the length of
/// short runs known: a loop takes longer to begin than such a run. `cached`: the elements stay in a cache.
template <Combine How, class A, class T>
void meet_all(const RowList& list, A* elements, const T* values, std::int64_t step, std::int64_t n,
              bool cached, AddRows<A, T> add) {
  if constexpr (kAddsRows<How, A, T>)
    if (add && (step == 1 || n == 1)) return add(list, elements, values, n, cached);
  if constexpr (kAddsRows<How, A, T> && std::is_same_v<A, T>) {
    if (step == 1 || n == 1) switch (n) {
        case 1: return meet_listed<How, 1>(list, elements, values, step, n, cached);
        case 2: return meet_listed<How, 2>(list, elements, values, step, n, cached);
        case 3: return meet_listed<How, 3>(list, elements, values, step, n, cached);
        case 4: return meet_listed<How, 4>(list, elements, values, step, n, cached);
        case 5: return meet_listed<How, 5>(list, elements, values, step, n, cached);
        case 6: return meet_listed<How, 6>(list, elements, values, step, n, cached);
        case 7: return meet_listed<How, 7>(list, elements, values, step, n, cached);
        case 8: return meet_listed<How, 8>(list, elements, values, step, n, cached);
        case 16: return meet_listed<How, 16>(list, elements, values, step, n, cached);
        default: break;
      }
  }
  meet_listed<How, 0>(list, elements, values, step, n, cached);
}

/// The part of a write that one thread makes: values of one outer position, elements [from, to) of runs at
/// positions [low, high).
template <Combine How, class A, class T>
struct Writer {
  const Scatter& call;
  const Array& where;             // the positions under repetition
  const std::int64_t* positions;  // not where runs with one index each lie side by side: see list_runs
  const Cut& cut;
  const Resolved& resolved;
  AddRows<A, T> add;  // or null
  A* out;             // of the outer position
  std::int64_t value_base, where_base, index_base;
  std::int64_t low, high, from, to;

  int axis() const { return call.axis; }
  int last() const { return call.x.rank - 1; }
  std::int64_t line() const { return cut.rows * cut.run; }
  std::int64_t step() const { return last() > axis() ? call.values.strides[last()] : 0; }
  std::int64_t value_at(std::int64_t k, std::int64_t r) const {
    const std::int64_t v = value_base + k * call.values.strides[axis()];
    return cut.rows > 1 ? v + offset_of(call.values, axis() + 1, last(), r) : v;
  }
  std::int64_t where_at(std::int64_t k, std::int64_t r) const {
    const std::int64_t w = where_base + k * where.strides[axis()];
    return cut.rows > 1 ? w + offset_of(where, axis() + 1, last(), r) : w;
  }

  /// Lists the runs of `count` pieces from `first` on that this writer owns; returns their number. Values are
  /// counted from the first piece's.
  std::int64_t list_runs(std::int64_t first, std::int64_t count, std::int64_t* elements,
                         std::int64_t* starts) const {
    if (cut.rows == 1) {
      std::int64_t at[kListed];
      resolved.positions(index_base + first * call.indices.strides[axis()], count, at);
      return resolved.keep(at, count, low, high, line(), call.values.strides[axis()], elements, starts);
    }
    const std::int64_t rows = cut.rows, pitch = line(), base = value_at(first / rows, first % rows);
    std::int64_t found = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t k = i / rows, r = i - k * rows, p = positions[where_at(k, r)];
      elements[found] = p * pitch + r * cut.run;
      starts[found] = value_at(k, r) - base;
      found += static_cast<std::int64_t>(p >= low) & static_cast<std::int64_t>(p < high);
    }
    return found;
  }

  /// One index for a whole run.
  void write_runs() const {
    const std::int64_t pieces = call.values.dims[axis()] * cut.rows, n = to - from;
    std::int64_t elements[kListed], starts[kListed];
    const bool cached = count_of(call.x) * static_cast<std::int64_t>(sizeof(A)) <= kTableBytes;
    const bool widens = kHalf<T> && !std::is_same_v<A, T> && !add &&
                        !(How == Combine::Add && kAddsInRegisters<A, T> && n >= kFewestWidened) &&
                        cut.rows == 1 && n <= kWidenedTogether && n == cut.run &&
                        call.values.strides[axis()] == n && (step() == 1 || n == 1);
    for (std::int64_t first = 0; first < pieces; first += kListed) {
      const std::int64_t here = std::min(kListed, pieces - first);
      const RowList list{elements, starts, list_runs(first, here, elements, starts)};
      const auto* const values = static_cast<const T*>(call.values.data) +
                                 value_at(first / cut.rows, first % cut.rows) + from * step();
      if constexpr (kHalf<T> && !std::is_same_v<A, T>) {
        if (widens) {
          A wide[kListed * kWidenedTogether];
          convert(values, wide, here * n);
          meet_all<How, A, A>(list, out + from, wide, 1, n, cached, nullptr);
          continue;
        }
      }
      meet_all<How, A, T>(list, out + from, values, step(), n, cached, add);
    }
  }

  /// An index for each element.
  void write_elements() const {
    const auto* const values = static_cast<const T*>(call.values.data);
    for (std::int64_t k = 0; k < call.values.dims[axis()]; ++k)
      for (std::int64_t r = 0; r < cut.rows; ++r) {
        const T* const value = values + value_at(k, r);
        const std::int64_t* const position = positions + where_at(k, r);
        A* const row = out + r * cut.run;
        for (std::int64_t i = from; i < to; ++i) {
          const std::int64_t p = position[i * where.strides[last()]];
          if (p >= low && p < high) meet<How>(row[p * line() + i], value[i * step()]);
        }
      }
  }
};

/// Whether every outer position has the same indices, one for each element.
bool shares_indices(const Scatter& call, const Array& where) {
  const bool same =
      std::all_of(where.strides, where.strides + call.axis, [](std::int64_t s) { return s == 0; });
  return same && call.axis == call.x.rank - 1;
}

bool together(const Scatter& call, const Array& where, const Cut& cut) {
  return cut.outer > 1 && cut.ranges == 1 && shares_indices(call, where);
}

/// Rows of elements that have the same indices, several at a time: an addition that waits for the one before,
/// where indices are equal, does not keep those of the other rows waiting.
template <Combine How, class A, class T>
void write_together(const Scatter& call, const Array& where, const std::int64_t* positions, A* out,
                    std::int64_t outer) {
  constexpr std::int64_t kRows = 8;
  const int axis = call.axis;
  const std::int64_t extent = call.x.dims[axis], n = call.values.dims[axis], step = call.values.strides[axis];
  const std::int64_t grain = std::max<std::int64_t>(1, kParallelAbove / (kRows * n));
  parallel_for((outer + kRows - 1) / kRows, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin * kRows; first < std::min(end * kRows, outer); first += kRows) {
      A* rows[kRows];
      const T* values[kRows];
      const std::int64_t count = std::min(kRows, outer - first);
      for (std::int64_t r = 0; r < count; ++r) {
        rows[r] = out + (first + r) * extent;
        values[r] = static_cast<const T*>(call.values.data) + offset_of(call.values, 0, axis, first + r);
      }
      for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t p = positions[k * where.strides[axis]];
        if (p < 0) continue;
        if (count == kRows)
          for (std::int64_t r = 0; r < kRows; ++r) meet<How>(rows[r][p], values[r][k * step]);
        else
          for (std::int64_t r = 0; r < count; ++r) meet<How>(rows[r][p], values[r][k * step]);
      }
    }
  });
}

/// Whether a write takes positions from memory; otherwise it resolves indices itself.
bool wants_positions(const Scatter& call, const Array& where) {
  const Cut cut(call);
  const int last = call.x.rank - 1;
  const bool one_index = last == call.axis || where.strides[last] == 0;
  return cut.rows > 1 || !one_index || together(call, where, cut);
}

template <Combine How, class A, class T>
void write(const Scatter& call, const Array& where, const std::int64_t* positions, A* out) {
  const Cut cut(call);
  const Resolved resolved(call);
  AddRows<A, T> add = nullptr;
  if constexpr (kAddsRows<How, A, T>) add = add_rows<A, T>();
  const int axis = call.axis, last = call.x.rank - 1;
  const std::int64_t extent = call.x.dims[axis];
  if (count_of(call.values) == 0) return;
  if (together(call, where, cut)) return write_together<How, A, T>(call, where, positions, out, cut.outer);
  Array spread = where;
  std::copy(call.values.dims, call.values.dims + call.values.rank, spread.dims);
  parallel_for(cut.jobs(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t job = begin; job < end; ++job) {
      const std::int64_t range = job % cut.ranges, part = job / cut.ranges % cut.parts,
                         o = job / cut.ranges / cut.parts;
      const Writer<How, A, T> writer{call,
                                     spread,
                                     positions,
                                     cut,
                                     resolved,
                                     add,
                                     out + o * extent * cut.rows * cut.run,
                                     offset_of(call.values, 0, axis, o),
                                     offset_of(spread, 0, axis, o),
                                     offset_of(call.indices, 0, axis, o),
                                     extent * range / cut.ranges,
                                     extent * (range + 1) / cut.ranges,
                                     cut.run * part / cut.parts,
                                     cut.run * (part + 1) / cut.parts};
      last == axis || spread.strides[last] == 0 ? writer.write_runs() : writer.write_elements();
    }
  });
}

/// Whether values may meet elements in any order, in parts: each thread then reads its part of the values
/// once and writes a table of its own, instead of reading all of them for its part of the elements. It pays
/// where tables stay in a cache and few of their elements meet no value. Where one element meets each value,
/// one thread has a table, too: positions need not go through memory.
ScatterTables tables_of(const Scatter& call) {
  constexpr std::int64_t kMostBytes = 64 << 20;  // of all tables
  const Cut cut(call);
  const bool any_order = (is_int(call.dtype) || is_bool(call.dtype)) && call.how != Combine::Set;
  const bool whole_rows = cut.outer == 1 && cut.rows == 1 && (cut.ranges > 1 || cut.run == 1);
  const std::int64_t table = count_of(call.x);
  const Array where = distinct(call.indices);
  const bool one_index = call.x.rank - 1 == call.axis || where.strides[call.x.rank - 1] == 0;
  const std::int64_t bytes = table * size_of(call.dtype);
  const bool possible = any_order && whole_rows && one_index && bytes * cut.ranges <= kMostBytes;
  const bool pays = bytes <= kTableBytes && kValuesAnElement * cut.ranges * table <= count_of(call.values);
  const bool wanted = call.tables == Scatter::Tables::Chosen ? pays : call.tables == Scatter::Tables::Own;
  return {possible && wanted, possible};
}
bool in_tables(const Scatter& call) { return tables_of(call).used; }
/// Whether one number is added to one element at every index.
bool counts(const Scatter& call) {
  const std::int64_t elements = count_of(call.x);
  return call.how == Combine::Add && !is_bool(call.dtype) && call.x.dims[call.axis] == elements &&
         call.values.strides[call.axis] == 0;
}
/// Tables of a thread that counts: an addition need not wait for the one before where that has the same
/// index. Tables that leave the first cache would cost more than such waits.
constexpr std::int64_t kCountTables = 4, kCountTablesBytes = 64 << 10;
std::int64_t count_tables(const Scatter& call) {
  return std::clamp<std::int64_t>(kCountTablesBytes / (count_of(call.x) * size_of(call.dtype)), 1,
                                  kCountTables);
}
std::size_t table_bytes(const Scatter& call) {
  const std::int64_t elements = count_of(call.x);
  return aligned(static_cast<std::size_t>((counts(call) ? count_tables(call) * (elements + 1) : elements) *
                                          size_of(call.dtype)));
}

template <Combine How, class T>
T identity() {
  if constexpr (How == Combine::Max)
    return std::numeric_limits<T>::lowest();
  else if constexpr (How == Combine::Min)
    return std::numeric_limits<T>::max();
  else
    return static_cast<T>(How == Combine::Multiply ? 1 : 0);
}

/// How often each of `elements` positions comes, in the first of several tables of one element more: that one
/// is for what is out of range.
template <class T, class Index>
void count_run(const Index* indices, std::int64_t stride, std::int64_t n, std::int64_t elements, T* tables,
               std::int64_t table_count) {
  const auto positions_of = resolve_positions<Index, std::int32_t>();
  const std::int64_t pitch = elements + 1;
  std::fill_n(tables, table_count * pitch, T{});
  const auto count = [&](std::int64_t position, std::int64_t table) {
    T& counter = tables[table * pitch + position];
    counter = static_cast<T>(static_cast<std::uint64_t>(counter) + 1);
  };
  std::int32_t positions[kResolvedAtOnce];  // tables are small
  for (std::int64_t k = 0; k < n; k += kResolvedAtOnce) {
    const std::int64_t here = std::min(kResolvedAtOnce, n - k);
    positions_of(indices + k * stride, stride, here, elements, elements, positions);
    const std::int64_t more = std::min(here, n - k - here);
    std::int64_t j = 0;
    for (; table_count == kCountTables && j + kCountTables <= here; j += kCountTables) {
      // the processor asks for what comes next when it counts no more
      if (j % kFetchedTogether == 0 && j < more) __builtin_prefetch(indices + (k + here + j) * stride);
      for (std::int64_t t = 0; t < kCountTables; ++t) count(positions[j + t], t);
    }
    for (; j < here; ++j) count(positions[j], 0);
  }
  for (std::int64_t t = 1; t < table_count; ++t)
    for (std::int64_t i = 0; i < elements; ++i) meet<Combine::Add>(tables[i], tables[t * pitch + i]);
}

/// Pre: in_tables(call); `tables` has table_bytes for each thread.
template <Combine How, class T, class Index>
void write_tables(const Scatter& call, std::byte* tables, T* out) {
  const Cut cut(call);
  const int axis = call.axis, last = call.x.rank - 1;
  const std::int64_t count = call.values.dims[axis], elements = count_of(call.x);
  const std::int64_t value_step = last > axis ? call.values.strides[last] : 0;
  const std::int64_t next_value = call.values.strides[axis], next_index = call.indices.strides[axis];
  const auto* const values = static_cast<const T*>(call.values.data);
  const auto* const indices = static_cast<const Index*>(call.indices.data);
  const auto table = [&](std::int64_t part) {
    return reinterpret_cast<T*>(tables + static_cast<std::size_t>(part) * table_bytes(call));
  };
  const ResolvePositions<Index> positions_of = resolve_positions<Index>();
  parallel_for(cut.ranges, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t positions[kResolvedAtOnce];
    for (std::int64_t part = begin; part < end; ++part) {
      T* const own = table(part);
      if (How == Combine::Add && counts(call)) {
        const std::int64_t first = count * part / cut.ranges, end_of = count * (part + 1) / cut.ranges;
        count_run(indices + first * next_index, next_index, end_of - first, elements, own,
                  count_tables(call));
        for (std::int64_t i = 0; i < elements; ++i) meet<Combine::Multiply>(own[i], *values);
        continue;
      }
      std::fill_n(own, elements, identity<How, T>());
      const std::int64_t behind = count * (part + 1) / cut.ranges;
      for (std::int64_t k = count * part / cut.ranges; k < behind; k += kResolvedAtOnce) {
        const std::int64_t here = std::min(kResolvedAtOnce, behind - k);
        positions_of(indices + k * next_index, next_index, here, call.x.dims[axis], -1, positions);
        for (std::int64_t j = 0; j < here; ++j) {
          if (positions[j] < 0) continue;
          const T* const value = values + (k + j) * next_value;
          T* const row = own + positions[j] * cut.run;
          for (std::int64_t i = 0; i < cut.run; ++i) meet<How>(row[i], value[i * value_step]);
        }
      }
    }
  });
  for (std::int64_t part = 0; part < cut.ranges; ++part)
    for (std::int64_t i = 0; i < elements; ++i) meet<How>(out[i], table(part)[i]);
}

std::size_t positions_bytes(const Scatter& call) {
  const Array where = distinct(call.indices);
  if (!wants_positions(call, where)) return 0;
  return aligned(static_cast<std::size_t>(count_of(where)) * sizeof(std::int64_t));
}

template <Combine How, class T>
void run(const Scatter& call, std::byte* workspace) {
  auto* const out = static_cast<T*>(call.out);
  if constexpr (std::is_integral_v<T> && How != Combine::Set)
    if (in_tables(call)) {
      copy<T, T>(call.x, out);
      return by_index(call, [&]<class Index>() { write_tables<How, T, Index>(call, workspace, out); });
    }
  const Array where = distinct(call.indices);
  auto* const positions = reinterpret_cast<std::int64_t*>(workspace);
  if (wants_positions(call, where)) resolve(call, where, positions);
  if constexpr (kHalf<T> && (How == Combine::Add || How == Combine::Multiply)) {
    auto* const wide = reinterpret_cast<float*>(workspace + positions_bytes(call));
    copy<float, T>(call.x, wide);
    write<How, float, T>(call, where, positions, wide);
    parallel_for(count_of(call.x), kParallelAbove, [&](std::int64_t begin, std::int64_t end, int) {
      convert(wide + begin, out + begin, end - begin);
    });
  } else {
    copy<T, T>(call.x, out);
    write<How, T, T>(call, where, positions, out);
  }
}

}  // namespace

std::size_t scatter_workspace_bytes(const Scatter& whole) {
  const Scatter call = collapsed(whole);
  if (in_tables(call)) return static_cast<std::size_t>(Cut(call).ranges) * table_bytes(call);
  return positions_bytes(call) +
         (widens(call) ? static_cast<std::size_t>(count_of(call.x)) * sizeof(float) : 0);
}

ScatterTables scatter_tables(const Scatter& call) { return tables_of(collapsed(call)); }

void scatter(const Scatter& whole, std::byte* workspace) {
  const Scatter call = collapsed(whole);
  dispatch(call.dtype, [&]<class T>() {
    switch (call.how) {
      case Combine::Set: return run<Combine::Set, T>(call, workspace);
      case Combine::Add: return run<Combine::Add, T>(call, workspace);
      case Combine::Multiply: return run<Combine::Multiply, T>(call, workspace);
      case Combine::Max: return run<Combine::Max, T>(call, workspace);
      case Combine::Min: return run<Combine::Min, T>(call, workspace);
    }
  });
}

}  // namespace kiln::cpu
