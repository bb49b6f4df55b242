#include "library/cpu/scatter.h"

#include "device/cpu/run.h"
#include "library/cpu/scatter_count.h"
#include "library/cpu/scatter_lists.h"
#include "library/cpu/scatter_runs.h"
#include "library/cpu/scatter_writer.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace kiln::cpu {
namespace {

constexpr std::int64_t kValuesAnElement = 4;  // from which tables are worth clearing and combining
constexpr std::int64_t kFewestSums = 4, kMostSums = 16, kValuesASum = 32;  // see sum_tables

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

/// Whether one index is that of a whole run.
bool by_runs(const Scatter& call, const Array& where) {
  const int last = call.x.rank - 1;
  return (last == call.axis || where.strides[last] == 0) && !together(call, where, Cut(call));
}

/// Whether a write takes positions from memory; otherwise it resolves indices itself.
bool wants_positions(const Scatter& call, const Array& where) {
  return Cut(call).rows > 1 || !by_runs(call, where);
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

/// In how many parts of the values floats are added up, each in a table of its own; 1: all are added to the
/// elements in turn. Threads that share one table in ranges read all indices each, so that short rows take
/// them nearly as long as one thread. Sizes alone decide the number, and with it the bits of a sum.
std::int64_t sum_tables(const Scatter& call, const Array& where) {
  const Cut cut(call);
  const std::int64_t elements = count_of(call.x), values = count_of(call.values);
  const std::int64_t element_bytes = widens(call) ? sizeof(float) : size_of(call.dtype);
  if (!is_float(call.dtype) || call.how != Combine::Add || call.ordered || elements == 0) return 1;
  if (cut.outer != 1 || wants_positions(call, where) || cut.run * size_of(call.dtype) >= kPartBytes) return 1;
  if (values <= kParallelAbove || elements * element_bytes > kTableBytes) return 1;
  const std::int64_t tables = std::min(kMostSums, values / (kValuesASum * elements));
  return tables < kFewestSums ? 1 : tables;
}

/// Elements from one table of sums to the next, in lines of their own.
std::int64_t sum_pitch(const Scatter& call) { return (count_of(call.x) + 63) / 64 * 64; }

/// out += the values at their places, by so many tables; the first is `out`.
template <class A, class T>
void add_in_tables(const Scatter& call, const Array& where, std::int64_t tables, A* out, A* memory) {
  Cut cut(call);
  cut.parts = cut.ranges = 1;
  const Resolved resolved(call);
  const int axis = call.axis;
  const std::int64_t count = call.values.dims[axis], elements = count_of(call.x);
  const auto table = [&](std::int64_t t) { return t == 0 ? out : memory + (t - 1) * sum_pitch(call); };
  parallel_for(tables, call.one_thread ? tables : 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (t > 0) std::fill_n(table(t), elements, static_cast<A>(-0.0));  // which changes no zero's sign
      const std::int64_t first = count * t / tables;
      Scatter part = call;
      part.values.dims[axis] = count * (t + 1) / tables - first;
      const Writer<Combine::Add, A, T> writer{part,     where,
                                              nullptr,  cut,
                                              resolved, add_rows<A, T>(),
                                              table(t), first * call.values.strides[axis],
                                              0,        first * call.indices.strides[axis],
                                              0,        call.x.dims[axis],
                                              0,        cut.run};
      writer.write_runs();
    }
  });
  parallel_for(elements, kParallelAbove, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 1; t < tables; ++t)
      for (std::int64_t i = begin; i < end; ++i) out[i] += table(t)[i];
  });
}

/// Whether values may meet elements in any order, in parts: each thread then reads its part of the values
/// once and writes a table of its own, instead of reading all of them for its part of the elements. It pays
/// where tables stay in a cache and few of their elements meet no value. Where one element meets each value,
/// one thread has a table, too: positions need not go through memory.
bool in_tables(const Scatter& call) {
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
  return possible && call.choices.decide(pays, FusionVariant::OwnTables, FusionVariant::OneTable);
}
/// Whether one number is added to one element at every index.
bool counts(const Scatter& call) {
  const std::int64_t elements = count_of(call.x);
  return call.how == Combine::Add && !is_bool(call.dtype) && call.x.dims[call.axis] == elements &&
         call.values.strides[call.axis] == 0;
}
/// Indices that a kernel makes at once.
std::size_t piece_bytes(const Scatter& call) {
  return aligned(static_cast<std::size_t>(call.maker.piece * size_of(call.index_dtype)));
}
std::size_t table_bytes(const Scatter& call) {
  const std::int64_t elements = count_of(call.x);
  if (counts(call))
    return CountTables(elements, size_of(call.dtype), call.choices).bytes() + piece_bytes(call);
  return aligned(static_cast<std::size_t>(elements * size_of(call.dtype)));
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

/// How often each element is named by the part-th part of the values, at the beginning of `memory`. Of
/// unsigned numbers of each size: signed ones wrap alike.
template <class T>
void count_part(const Scatter& call, std::int64_t part, std::int64_t parts, std::byte* memory) {
  const std::int64_t stride = call.indices.strides[call.axis], n = call.values.dims[call.axis];
  const CountTables tables(count_of(call.x), sizeof(T), call.choices);
  Counted<T> counted(tables, memory);
  by_index(call, [&]<class Index>() {
    if (const std::int64_t piece = call.maker.piece; piece > 0) {
      const std::int64_t pieces = (n + piece - 1) / piece, end = pieces * (part + 1) / parts;
      auto* const made = reinterpret_cast<Index*>(memory + tables.bytes());
      for (std::int64_t i = pieces * part / parts; i < end; ++i) {
        make_piece(*call.maker.kernel, i, piece * static_cast<std::int64_t>(sizeof(Index)),
                   reinterpret_cast<std::byte*>(made));
        counted.add(made, 1, std::min(piece, n - i * piece), false);
      }
      return;
    }
    const std::int64_t first = n * part / parts, end = n * (part + 1) / parts;
    counted.add(static_cast<const Index*>(call.indices.data) + first * stride, stride, end - first, false);
  });
  counted.finish();
}

/// Pre: in_tables(call); `tables` has table_bytes for each thread.
template <Combine How, class T>
void write_tables(const Scatter& call, std::byte* tables, T* out) {
  const Cut cut(call);
  const int axis = call.axis, last = call.x.rank - 1;
  const std::int64_t count = call.values.dims[axis], elements = count_of(call.x);
  const std::int64_t value_step = last > axis ? call.values.strides[last] : 0;
  const std::int64_t next_value = call.values.strides[axis], next_index = call.indices.strides[axis];
  const auto* const values = static_cast<const T*>(call.values.data);
  const auto table = [&](std::int64_t part) {
    return reinterpret_cast<T*>(tables + static_cast<std::size_t>(part) * table_bytes(call));
  };
  const Resolved resolved(call);
  parallel_for(cut.ranges, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t positions[kResolvedAtOnce];
    for (std::int64_t part = begin; part < end; ++part) {
      T* const own = table(part);
      if constexpr (How == Combine::Add && !std::is_same_v<T, bool>)
        if (counts(call)) {
          count_part<std::make_unsigned_t<T>>(call, part, cut.ranges, reinterpret_cast<std::byte*>(own));
          for (std::int64_t i = 0; i < elements; ++i) meet<Combine::Multiply>(own[i], *values);
          continue;
        }
      std::fill_n(own, elements, identity<How, T>());
      const std::int64_t behind = count * (part + 1) / cut.ranges;
      for (std::int64_t k = count * part / cut.ranges; k < behind; k += kResolvedAtOnce) {
        const std::int64_t here = std::min(kResolvedAtOnce, behind - k);
        resolved.positions(k * next_index, here, positions);
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

/// Whether destinations are written one after the other, see scatter_lists.h: rows are long enough for that,
/// and they would not stay in the second cache.
bool in_lists(const Scatter& call) {
  constexpr std::int64_t kRowBytes = 1024, kBytes = 1 << 20;
  const Cut cut(call);
  const std::int64_t element = is_half(call.dtype) ? sizeof(float) : size_of(call.dtype);
  const bool possible = is_float(call.dtype) && (call.how == Combine::Add || call.how == Combine::Multiply) &&
                        fits_list(call.x.dims[call.axis], 1) &&
                        !wants_positions(call, distinct(call.indices));
  const bool pays = cut.run * size_of(call.dtype) >= kRowBytes && count_of(call.x) * element > kBytes;
  return possible && call.choices.decide(pays, FusionVariant::ByDestination, FusionVariant::AsTheyCome);
}

/// Whether a write touches few of the elements that are where they stay.
bool touches_few(const Scatter& call) {
  constexpr std::int64_t kFew = 4;
  return call.out == call.x.data && !is_half(call.dtype) &&
         kFew * call.values.dims[call.axis] < call.x.dims[call.axis];
}

std::size_t positions_bytes(const Scatter& call) {
  const Array where = distinct(call.indices);
  if (!wants_positions(call, where)) return 0;
  return aligned(static_cast<std::size_t>(count_of(where)) * sizeof(std::int64_t));
}

template <class T>
void narrow_all(const float* from, std::int64_t n, T* to) {
  parallel_for(n, kParallelAbove, [&](std::int64_t begin, std::int64_t end, int) {
    convert(from + begin, to + begin, end - begin);
  });
}

template <class T>
void run_in_tables(const Scatter& call, const Array& where, std::int64_t tables, std::byte* workspace) {
  auto* const out = static_cast<T*>(call.out);
  if constexpr (kHalf<T>) {
    auto* const wide = reinterpret_cast<float*>(workspace);
    copy<float, T>(call.x, wide);
    add_in_tables<float, T>(call, where, tables, wide, wide + sum_pitch(call));
    narrow_all(wide, count_of(call.x), out);
  } else {
    copy<T, T>(call.x, out);
    add_in_tables<T, T>(call, where, tables, out, reinterpret_cast<T*>(workspace));
  }
}

template <Combine How, class T>
void run(const Scatter& call, std::byte* workspace) {
  auto* const out = static_cast<T*>(call.out);
  if constexpr (std::is_integral_v<T> && How != Combine::Set)
    if (in_tables(call)) {
      copy<T, T>(call.x, out);
      return write_tables<How, T>(call, workspace, out);
    }
  const Array where = distinct(call.indices);
  if constexpr (is_float(dtype_of<T>) && How == Combine::Add)
    if (const std::int64_t tables = sum_tables(call, where); tables > 1)
      return run_in_tables<T>(call, where, tables, workspace);
  if constexpr (is_float(dtype_of<T>) && (How == Combine::Add || How == Combine::Multiply))
    if (in_lists(call) && !touches_few(call))
      return write_lists<How, std::conditional_t<kHalf<T>, float, T>, T>(call, workspace);
  auto* const positions = reinterpret_cast<std::int64_t*>(workspace);
  if (wants_positions(call, where)) resolve(call, where, positions);
  if constexpr (kHalf<T> && (How == Combine::Add || How == Combine::Multiply)) {
    auto* const wide = reinterpret_cast<float*>(workspace + positions_bytes(call));
    copy<float, T>(call.x, wide);
    write<How, float, T>(call, where, positions, wide);
    narrow_all(wide, count_of(call.x), out);
  } else {
    copy<T, T>(call.x, out);
    write<How, T, T>(call, where, positions, out);
  }
}

}  // namespace

std::size_t scatter_workspace_bytes(const Scatter& whole) {
  const Scatter call = collapsed(whole);
  if (in_tables(call)) return static_cast<std::size_t>(Cut(call).ranges) * table_bytes(call);
  if (const std::int64_t tables = sum_tables(call, distinct(call.indices)); tables > 1)
    return static_cast<std::size_t>((widens(call) ? tables : tables - 1) * sum_pitch(call)) *
           static_cast<std::size_t>(widens(call) ? sizeof(float) : size_of(call.dtype));
  if (in_lists(call)) return ValueLists::bytes(call, Cut(call));
  return positions_bytes(call) +
         (widens(call) ? static_cast<std::size_t>(count_of(call.x)) * sizeof(float) : 0);
}

bool scatter_counts_in_order(const Scatter& whole) {
  const Scatter call = collapsed(whole);
  const std::int64_t n = count_of(call.indices);
  return in_tables(call) && counts(call) && n == call.indices.dims[call.axis] &&
         (n == 1 || call.indices.strides[call.axis] == 1);
}

library::Variants scatter_choices(Scatter whole) {
  library::Variants out;
  whole.choices.collect(&out);
  const Scatter call = collapsed(whole);
  if (in_tables(call)) {
    if (counts(call)) (void)CountTables(count_of(call.x), size_of(call.dtype), call.choices);
  } else if (sum_tables(call, distinct(call.indices)) > 1 ||
             (!in_lists(call) && by_runs(call, distinct(call.indices)))) {
    (void)fetches_ahead(call, widens(call) ? sizeof(float) : size_of(call.dtype));
  }
  return out;
}

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
