// The machine: runs the bytecode of a section.
//
// Invariant: lanes beyond the current block's count hold anything: they are computed with, for whole strips
// are faster, but never loaded, stored or accumulated.
#include "codegen/vm/vm.h"

#include "support/check.h"

#include <algorithm>
#include <cstring>

namespace kiln::codegen {
namespace {

/// f.operator()<T>() with an unsigned type of `size` bytes.
template <class F>
void by_size(std::uint8_t size, F f) {
  switch (size) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    default: return f.template operator()<std::uint64_t>();
  }
}

class Machine {
 public:
  Machine(const VmSection& section, const std::vector<VmBuffer>& buffers, const kernel::Frame& frame,
          std::byte* scratch, std::byte* memory)
      : s_(section),
        buffers_(buffers),
        frame_(frame),
        scratch_(scratch),
        memory_(memory),
        scalar_(reinterpret_cast<std::uint64_t*>(memory)),
        value_(reinterpret_cast<std::byte**>(memory + section.table_offset)) {
    std::memcpy(scalar_, s_.scalars.data(), s_.scalars.size() * sizeof(std::uint64_t));
    for (std::size_t v = 0; v < s_.values.size(); ++v) value_[v] = storage(v);
  }

  void run(std::int64_t begin, std::int64_t end) {
    scalar_[0] = static_cast<std::uint64_t>(begin);
    scalar_[1] = static_cast<std::uint64_t>(end);
    for (const VmInstr* i = s_.code.data(); i->op != VmOp::End; ++i) i = step(*i);
  }

 private:
  std::byte* storage(std::size_t v) const {
    const VmValue& value = s_.values[v];
    // Constants are only read.
    return value.constant ? const_cast<std::byte*>(s_.constants.data()) + value.offset
                          : memory_ + value.offset;
  }

  std::int64_t number(std::uint32_t scalar) const { return static_cast<std::int64_t>(scalar_[scalar]); }

  /// Address of an element of a buffer.
  std::byte* element(const VmInstr& i, std::int64_t index) const {
    const VmBuffer& b = buffers_[i.target];
    std::byte* base = b.scratch ? scratch_ + frame_.params[b.offset_param]
                                : static_cast<std::byte*>(frame_.buffers[i.target]);
    return base + index * i.size;
  }

  /// Executes one instruction; returns it, or where a jump leads less one.
  const VmInstr* step(const VmInstr& i) {
    switch (i.op) {
      case VmOp::End: break;
      case VmOp::Loop: scalar_[i.out] = scalar_[i.a]; return number(i.out) < number(i.b) ? &i : &i + i.target;
      case VmOp::Next: ++scalar_[i.out]; return number(i.out) < number(i.b) ? &i - i.target - 1 : &i;
      case VmOp::VectorLoop:
        scalar_[i.out] = scalar_[i.a];
        if (number(i.out) >= number(i.b)) return &i + i.target;
        set_lanes(number(i.b) - number(i.out));
        break;
      case VmOp::VectorNext:
        scalar_[i.out] += static_cast<std::uint64_t>(s_.block);
        if (number(i.out) >= number(i.b)) break;
        set_lanes(number(i.b) - number(i.out));
        return &i - i.target - 1;
      case VmOp::While: scalar_[i.out] = 0; break;
      case VmOp::Unless: return scalar_[i.a] & 1 ? &i : &i + i.target;
      case VmOp::UnlessAny: return any(i) ? &i : &i + i.target;
      case VmOp::WhileNext: ++scalar_[i.out]; return &i - i.target - 1;
      case VmOp::Param: scalar_[i.out] = static_cast<std::uint64_t>(frame_.params[i.imm]); break;
      case VmOp::Slot:
        scalar_[i.out] = i.truth ? (frame_.slots[i.imm] & 0xff) != 0 : frame_.slots[i.imm];
        break;
      case VmOp::Scalar: i.each(1, &scalar_[i.out], &scalar_[i.a], &scalar_[i.b], &scalar_[i.c]); break;
      case VmOp::Copy: scalar_[i.out] = scalar_[i.a]; break;
      case VmOp::LoadScalar: load_scalar(i); break;
      case VmOp::StoreScalar: std::memcpy(element(i, number(i.a)), &scalar_[i.b], i.size); break;
      case VmOp::ArgScalar:
        i.arg_reduce(1, 1, &scalar_[i.out], positions(&scalar_[i.c]), &scalar_[i.a], positions(&scalar_[i.b]),
                     0);
        break;
      case VmOp::Splat: splat(value_[i.out], &scalar_[i.a], i.size, kStrip); break;
      case VmOp::Iota: iota(i); break;
      case VmOp::Apply:
        i.apply(strips_, value_[i.out], value_[i.a], value_[i.b], value_[i.c], i.steps);
        break;
      case VmOp::Each: each(i); break;
      case VmOp::Fill: fill(i); break;
      case VmOp::CopyValue: copy_value(i); break;
      case VmOp::Load: load(i); break;
      case VmOp::LoadCopy: copy_in(i); break;
      case VmOp::LoadStrided: load_strided(i); break;
      case VmOp::Gather: gather(i); break;
      case VmOp::LoadIf: load_if(i, element(i, number(i.a)), 1); break;
      case VmOp::LoadStridedIf: load_if(i, element(i, number(i.a)), number(i.b)); break;
      case VmOp::GatherIf: gather_if(i); break;
      case VmOp::Aim: value_[i.out] = lanes_ % kStrip == 0 ? element(i, number(i.a)) : storage(i.out); break;
      case VmOp::Store: store(i); break;
      case VmOp::StoreStrided: store_strided(i); break;
      case VmOp::Scatter: scatter(i); break;
      case VmOp::ArgBlock:
        i.arg_reduce(lanes_, kAllLanes, value_[i.out], positions(value_[i.c]), value_[i.a],
                     positions(value_[i.b]), i.steps);
        break;
      case VmOp::LanesBegin: lanes_begin(i); break;
      case VmOp::Reduce: reduce(i); break;
      case VmOp::ArgReduce: {
        const VmLanes& l = s_.lanes[i.out];
        i.arg_reduce(lanes_, l.count, memory_ + l.offset, lane_positions(l), value_[i.a],
                     positions(value_[i.b]), i.steps);
        break;
      }
      case VmOp::ScanLanes: scan_lanes(i); break;
      case VmOp::LanesEnd: lanes_end(i); break;
    }
    return &i;
  }

  void set_lanes(std::int64_t left) {
    lanes_ = std::min(left, s_.block);
    strips_ = (lanes_ + kStrip - 1) / kStrip;
  }

  static constexpr std::int64_t kAllLanes = std::int64_t{1} << 62;
  static std::int64_t* positions(void* p) { return static_cast<std::int64_t*>(p); }

  // ---- making values ----

  static void splat(std::byte* out, const void* bits, std::uint8_t size, std::int64_t n) {
    by_size(size, [&]<class T>() {
      T v;
      std::memcpy(&v, bits, sizeof(T));
      std::fill_n(reinterpret_cast<T*>(out), n, v);
    });
  }

  void iota(const VmInstr& i) {
    auto* out = positions(value_[i.out]);
    const std::int64_t first = number(i.a), n = strips_ * kStrip;
    for (std::int64_t l = 0; l < n; ++l) out[l] = first + l;
  }

  void fill(const VmInstr& i) { splat(value_[i.out], value_[i.a], i.size, strips_ * kStrip); }

  void copy_value(const VmInstr& i) {
    if (i.steps & 1)
      std::memcpy(value_[i.out], value_[i.a], static_cast<std::size_t>(lanes_ * i.size));
    else
      splat(value_[i.out], value_[i.a], i.size, strips_ * kStrip);
  }

  bool any(const VmInstr& i) const {
    const auto* holds = reinterpret_cast<const std::uint8_t*>(value_[i.a]);
    const std::int64_t n = i.steps & 1 ? lanes_ : 1;
    std::uint8_t all = 0;
    for (std::int64_t l = 0; l < n; ++l) all |= holds[l];
    return all != 0;
  }

  /// By a function of arrays: strip by strip, since a uniform operand is no longer than that.
  void each(const VmInstr& i) {
    std::byte* out = value_[i.out];
    const std::byte *a = value_[i.a], *b = value_[i.b], *c = value_[i.c];
    const std::int64_t sa = i.steps & 1 ? kStrip * s_.values[i.a].size : 0,
                       sb = i.steps & 2 ? kStrip * s_.values[i.b].size : 0;
    const std::int64_t sc = i.steps & 4 ? kStrip * s_.values[i.c].size : 0;
    for (std::int64_t done = 0; done < lanes_;
         done += kStrip, out += kStrip * i.size, a += sa, b += sb, c += sc)
      i.each(static_cast<int>(std::min(kStrip, lanes_ - done)), out, a, b, c);
  }

  // ---- memory ----

  void load_scalar(const VmInstr& i) {
    std::uint64_t bits = 0;
    if (i.b == kVmNone || (scalar_[i.b] & 1)) std::memcpy(&bits, element(i, number(i.a)), i.size);
    scalar_[i.out] = i.truth ? bits != 0 : bits;
  }

  void load(const VmInstr& i) {
    std::byte* p = element(i, number(i.a));
    if (lanes_ % kStrip == 0) {
      value_[i.out] = p;
      return;
    }
    value_[i.out] = storage(i.out);
    std::memcpy(value_[i.out], p, static_cast<std::size_t>(lanes_ * i.size));
  }

  void copy_in(const VmInstr& i) {
    const std::byte* p = element(i, number(i.a));
    std::memcpy(value_[i.out], p, static_cast<std::size_t>(lanes_ * i.size));
    if (i.truth) normalize(value_[i.out]);
  }

  /// Bools to 0 and 1.
  void normalize(std::byte* truths) const {
    auto* t = reinterpret_cast<std::uint8_t*>(truths);
    for (std::int64_t l = 0; l < lanes_; ++l) t[l] = t[l] != 0;
  }

  void load_strided(const VmInstr& i) {
    const std::byte* p = element(i, number(i.a));
    const std::int64_t stride = number(i.b);
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(p);
      T* out = reinterpret_cast<T*>(value_[i.out]);
      for (std::int64_t l = 0; l < lanes_; ++l) out[l] = in[l * stride];
    });
    if (i.truth) normalize(value_[i.out]);
  }

  void gather(const VmInstr& i) {
    const std::byte* p = element(i, 0);
    const std::int64_t* index = positions(value_[i.a]);
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(p);
      T* out = reinterpret_cast<T*>(value_[i.out]);
      for (std::int64_t l = 0; l < lanes_; ++l) out[l] = in[index[l]];
    });
    if (i.truth) normalize(value_[i.out]);
  }

  bool holds(const VmInstr& i, std::int64_t lane) const {
    return value_[i.c][i.steps & 4 ? lane : lane & (kStrip - 1)] != std::byte{0};
  }

  void load_if(const VmInstr& i, const std::byte* p, std::int64_t stride) {
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(p);
      T* out = reinterpret_cast<T*>(value_[i.out]);
      for (std::int64_t l = 0; l < lanes_; ++l) out[l] = holds(i, l) ? in[l * stride] : T{0};
    });
    if (i.truth) normalize(value_[i.out]);
  }

  void gather_if(const VmInstr& i) {
    const std::byte* p = element(i, 0);
    const std::int64_t* index = positions(value_[i.a]);
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(p);
      T* out = reinterpret_cast<T*>(value_[i.out]);
      for (std::int64_t l = 0; l < lanes_; ++l) out[l] = holds(i, l) ? in[index[l]] : T{0};
    });
    if (i.truth) normalize(value_[i.out]);
  }

  void store(const VmInstr& i) {
    std::byte* p = element(i, number(i.a));
    if (p == value_[i.c]) return;  // made there
    if (i.steps & 4)
      std::memcpy(p, value_[i.c], static_cast<std::size_t>(lanes_ * i.size));
    else
      splat(p, value_[i.c], i.size, lanes_);
  }

  void store_strided(const VmInstr& i) {
    std::byte* p = element(i, number(i.a));
    const std::int64_t stride = number(i.b), all = i.steps & 4 ? -1 : kStrip - 1;
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(value_[i.c]);
      T* out = reinterpret_cast<T*>(p);
      for (std::int64_t l = 0; l < lanes_; ++l) out[l * stride] = in[l & all];
    });
  }

  void scatter(const VmInstr& i) {
    std::byte* p = element(i, 0);
    const std::int64_t* index = positions(value_[i.a]);
    const std::int64_t all = i.steps & 4 ? -1 : kStrip - 1;
    by_size(i.size, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(value_[i.c]);
      T* out = reinterpret_cast<T*>(p);
      for (std::int64_t l = 0; l < lanes_; ++l) out[index[l]] = in[l & all];
    });
  }

  // ---- the parts of custom monoids on lanes: of the accumulators, and the slots that values and parts go
  // through -----------

  std::byte* slot(const VmCustom& c, std::uint32_t s) const { return memory_ + c.offset + s * kVmSlotBytes; }
  /// The lanes' accumulators of a part.
  std::byte* part(const VmLanes& l, std::size_t p) const {
    return memory_ + l.offset + static_cast<std::int64_t>(p) * l.count * 8;
  }
  // Where part p is.
  auto earlier(const VmCustom& c) const {
    return [this, &c](std::size_t p) { return slot(c, c.parts[p].earlier); };
  }
  auto later(const VmCustom& c) const {
    return [this, &c](std::size_t p) { return slot(c, c.parts[p].later); };
  }
  auto lifted(const VmCustom& c) const {
    return [this, &c](std::size_t p) { return slot(c, c.parts[p].lifted); };
  }
  auto merged(const VmCustom& c) const {
    return [this, &c](std::size_t p) { return slot(c, c.parts[p].merged); };
  }
  auto kept(const VmLanes& l, std::int64_t first = 0) const {
    return [this, &l, first](std::size_t p) { return part(l, p) + first * l.custom.parts[p].size; };
  }

  // ---- accumulators on lanes ----

  std::int64_t* lane_positions(const VmLanes& l) const {
    return positions(memory_ + l.offset + ((l.count * l.size + 63) & ~std::int64_t{63}));
  }

  void lanes_begin(const VmInstr& i) {
    const VmLanes& l = s_.lanes[i.out];
    splat(memory_ + l.offset, &scalar_[i.a], l.size, l.count);
    if (l.positional) std::fill_n(lane_positions(l), l.count, std::int64_t{0x7fffffffffffffff});
    for (const VmCustom::Constant& c : l.custom.constants)
      splat(slot(l.custom, c.slot), &c.bits, c.size, kStrip);
    clear_parts(l.custom, l.count, kept(l));
  }

  /// out = earlier combined with later, n lanes.
  static void combine(const VmLanes& l, int n, std::byte* out, const std::byte* later,
                      const std::byte* earlier) {
    l.each(n, out, l.swap ? later : earlier, l.swap ? earlier : later, earlier);
  }

  void reduce(const VmInstr& i) {
    const VmLanes& l = s_.lanes[i.out];
    std::byte* acc = memory_ + l.offset;
    if (i.reduce) {
      i.reduce(lanes_, l.count, acc, value_[i.a], i.b == kVmNone ? nullptr : value_[i.b], i.steps);
      return;
    }
    if (!l.custom.parts.empty()) return reduce_custom(i, l);
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      std::byte* const to = acc + (lane & (l.count - 1)) * l.size;
      combine(l, 1, to, value_[i.a] + (i.steps & 1 ? lane : lane & (kStrip - 1)) * l.size, to);
    }
  }

  /// As compiled code does it: prefixes of the kernel's lanes by doubling, then what the lanes before hand
  /// on.
  void scan_lanes(const VmInstr& i) {
    const VmLanes& l = s_.lanes[i.out];
    KILN_CHECK_THAT(l.count <= kStrip, l.count, " lanes of a scan");
    if (!l.custom.parts.empty()) return scan_custom(i, l);
    const auto n = static_cast<int>(l.count);
    const std::int64_t bytes = l.count * l.size;
    std::byte* const acc = memory_ + l.offset;  // the same on all lanes
    alignas(64) std::byte x[8 * kStrip], moved[8 * kStrip], after[8 * kStrip];
    for (std::int64_t first = 0; first < lanes_; first += l.count) {
      const std::int64_t here = std::min(l.count, lanes_ - first);
      std::memcpy(x, value_[i.a] + (i.steps & 1 ? first : first & (kStrip - 1)) * l.size,
                  static_cast<std::size_t>(here * l.size));
      splat(x + here * l.size, &l.identity, l.size, l.count - here);
      for (std::int64_t d = 1; d < l.count; d *= 2) {
        splat(moved, &l.identity, l.size, d);
        std::memcpy(moved + d * l.size, x, static_cast<std::size_t>(bytes - d * l.size));
        combine(l, n, x, x, moved);
      }
      combine(l, n, after, x, acc);
      if (i.b != kVmNone)
        std::memcpy(value_[i.b] + first * l.size, after, static_cast<std::size_t>(here * l.size));
      if (i.c != kVmNone) {
        std::memcpy(value_[i.c] + first * l.size, acc, l.size);
        std::memcpy(value_[i.c] + (first + 1) * l.size, after, static_cast<std::size_t>((here - 1) * l.size));
      }
      splat(acc, after + bytes - l.size, l.size, l.count);
    }
  }

  /// A tree of fixed shape, as compiled code has it.
  void lanes_end(const VmInstr& i) {
    const VmLanes& l = s_.lanes[i.out];
    if (!l.custom.parts.empty()) return custom_end(i, l);
    std::byte* acc = memory_ + l.offset;
    std::int64_t* p = l.positional ? lane_positions(l) : nullptr;
    for (std::int64_t half = l.scan ? 0 : l.count / 2; half > 0; half /= 2) {
      std::byte* upper = acc + half * l.size;
      if (p) {
        l.arg_merge(half, half, acc, p, upper, p + half, 3);
      } else if (l.merge) {
        l.merge(half, half, acc, upper, nullptr, 1);
      } else {
        for (std::int64_t k = 0; k < half; ++k)
          combine(l, 1, acc + k * l.size, upper + k * l.size, acc + k * l.size);
      }
    }
    scalar_[i.a] = 0;
    std::memcpy(&scalar_[i.a], acc, l.size);
    if (p) scalar_[i.b] = static_cast<std::uint64_t>(p[0]);
  }

  // ---- custom monoids on lanes: values and their parts go through slots ----

  void run_slots(const VmCustom& c, const std::vector<VmInstr>& code, int n) const {
    for (const VmInstr& i : code) {
      if (i.op == VmOp::Apply)
        i.apply(1, slot(c, i.out), slot(c, i.a), slot(c, i.b), slot(c, i.c), i.steps);
      else
        i.each(n, slot(c, i.out), slot(c, i.a), slot(c, i.b), slot(c, i.c));
    }
  }
  /// n lanes of each part, `skip` lanes behind where `to` says.
  template <class To, class From>
  static void move_parts(const VmCustom& c, std::int64_t n, To to, From from, std::int64_t skip = 0) {
    for (std::size_t p = 0; p < c.parts.size(); ++p)
      std::memcpy(to(p) + skip * c.parts[p].size, from(p), static_cast<std::size_t>(n * c.parts[p].size));
  }
  template <class To>
  static void clear_parts(const VmCustom& c, std::int64_t n, To to, std::int64_t skip = 0) {
    for (std::size_t p = 0; p < c.parts.size(); ++p)
      splat(to(p) + skip * c.parts[p].size, &c.parts[p].identity, c.parts[p].size, n);
  }

  /// The parts of n values, which then stand in the slots of what comes later.
  void lift_slots(const VmCustom& c, std::int64_t n, const std::byte* x, std::uint8_t size) const {
    std::memcpy(slot(c, c.value), x, static_cast<std::size_t>(n * size));
    run_slots(c, c.lift, static_cast<int>(n));
    move_parts(c, n, later(c), lifted(c));
  }

  void reduce_custom(const VmInstr& i, const VmLanes& l) {
    const VmCustom& c = l.custom;
    const std::int64_t width = std::min(l.count, kStrip);
    for (std::int64_t lane = 0; lane < lanes_; lane += width) {
      const std::int64_t n = std::min(width, lanes_ - lane), at = lane & (l.count - 1);
      lift_slots(c, n, value_[i.a] + (i.steps & 1 ? lane : lane & (kStrip - 1)) * l.size, l.size);
      move_parts(c, n, earlier(c), kept(l, at));
      run_slots(c, c.merge, static_cast<int>(n));
      move_parts(c, n, kept(l, at), merged(c));
    }
  }

  void scan_custom(const VmInstr& i, const VmLanes& l) {
    const VmCustom& c = l.custom;
    const auto n = static_cast<int>(l.count);
    for (std::int64_t first = 0; first < lanes_; first += n) {
      const std::int64_t here = std::min(l.count, lanes_ - first);
      const auto show = [&](std::uint32_t to) {
        run_slots(c, c.show, n);
        std::memcpy(value_[to] + first * l.size, slot(c, c.shown), static_cast<std::size_t>(here * l.size));
      };
      lift_slots(c, here, value_[i.a] + (i.steps & 1 ? first : first & (kStrip - 1)) * l.size, l.size);
      clear_parts(c, n - here, later(c), here);
      for (int d = 1; d < n; d *= 2) {
        clear_parts(c, d, earlier(c));
        move_parts(c, n - d, earlier(c), later(c), d);
        run_slots(c, c.merge, n);
        move_parts(c, n, later(c), merged(c));
      }
      move_parts(c, n, earlier(c), kept(l));
      run_slots(c, c.merge, n);
      move_parts(c, n, later(c), merged(c));
      if (i.c != kVmNone) {  // `earlier` begins with what came before these lanes
        move_parts(c, n - 1, earlier(c), later(c), 1);
        show(i.c);
      }
      move_parts(c, n, earlier(c), later(c));
      if (i.b != kVmNone) show(i.b);
      for (std::size_t p = 0; p < c.parts.size(); ++p)
        splat(part(l, p), later(c)(p) + (n - 1) * c.parts[p].size, c.parts[p].size, n);
    }
  }

  void custom_end(const VmInstr& i, const VmLanes& l) {
    const VmCustom& c = l.custom;
    for (std::int64_t half = l.scan ? 0 : l.count / 2; half > 0; half /= 2)
      for (std::int64_t first = 0; first < half; first += kStrip) {
        const std::int64_t n = std::min(kStrip, half - first);
        move_parts(c, n, earlier(c), kept(l, first));
        move_parts(c, n, later(c), kept(l, half + first));
        run_slots(c, c.merge, static_cast<int>(n));
        move_parts(c, n, kept(l, first), merged(c));
      }
    move_parts(c, 1, earlier(c), kept(l));
    run_slots(c, c.show, 1);
    scalar_[i.a] = 0;
    std::memcpy(&scalar_[i.a], slot(c, c.shown), l.size);
  }

  const VmSection& s_;
  const std::vector<VmBuffer>& buffers_;
  const kernel::Frame& frame_;
  std::byte *scratch_, *memory_;
  std::uint64_t* scalar_;
  std::byte** value_;
  std::int64_t lanes_ = 0, strips_ = 0;
};

}  // namespace

VmProgram::VmProgram(const kernel::Kernel& kernel, const VmLoops& loops) {
  for (const kernel::BufferDecl& b : kernel.buffers)
    buffers_.push_back({b.role == kernel::BufferDecl::Role::Scratch, b.offset_param});
  const std::vector<kernel::Stmt>* const from[] = {&kernel.body, &kernel.link, &kernel.second,
                                                   &kernel.finish};
  for (std::size_t i = 0; i < std::size(from); ++i) {
    if (from[i]->empty()) continue;
    sections_[i] = translate(kernel, *from[i], loops);
    memory_bytes_ = std::max(memory_bytes_, sections_[i].memory_bytes);
  }
}

void VmProgram::run(VmPart part, const kernel::Frame& frame, std::int64_t begin, std::int64_t end,
                    std::byte* scratch, std::byte* memory) const {
  if (has(part)) Machine(code(part), buffers_, frame, scratch, memory).run(begin, end);
}

}  // namespace kiln::codegen
