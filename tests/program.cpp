#include "program.h"

#include "program_recorder.h"

#include <cstring>
#include <limits>
#include <span>

namespace kiln::test {
namespace {

double element(const std::byte* data, DType t, std::size_t i) {
  return dispatch(t, [&]<class T>() {
    T v;
    std::memcpy(&v, data + i * sizeof(T), sizeof(T));
    return static_cast<double>(v);
  });
}

}  // namespace

Tensor leaf(const Shape& shape, DType dtype, std::uint64_t seed) {
  Draw d(seed * 77 + 5);
  const bool specials = seed % 8 == 0 && is_float(dtype);
  const int layout = static_cast<int>(seed / 8 % 4);
  const auto n = static_cast<std::size_t>(shape.numel());
  auto bytes = std::make_shared<std::vector<std::byte>>(n * static_cast<std::size_t>(size_of(dtype)) + 64);
  const std::size_t first = layout == 2 ? static_cast<std::size_t>(size_of(dtype)) : 0;
  dispatch(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t r = d.bits();
      T v;
      if (is_bool(dtype))
        v = static_cast<T>(r & 1);
      else if (is_float(dtype))
        v = static_cast<T>(static_cast<float>(static_cast<std::int64_t>(r % 21) - 10));
      else if (r % 16 == 0)
        v = static_cast<T>(r >> 8);  // any bits
      else if (is_unsigned_int(dtype))
        v = static_cast<T>(r % 11);
      else
        v = static_cast<T>(static_cast<std::int64_t>(r % 21) - 10);
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, float16> ||
                    std::is_same_v<T, bfloat16>)
        if (specials && r % 13 == 0) {
          const float special[] = {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY};
          v = static_cast<T>(special[r / 13 % 3]);
        }
      std::memcpy(bytes->data() + first + i * sizeof(T), &v, sizeof(T));
    }
  });
  if (layout == 2)
    return Tensor::borrow(bytes->data() + first, shape, dtype, std::shared_ptr<const void>(bytes));
  const Tensor t = Tensor::copy_of(bytes->data(), shape, dtype);
  if (layout == 1 &&
      shape.rank() > 1) {  // the same extents, other strides: rotate the axes and turn them back
    std::vector<int> axes;
    for (int a = 1; a < shape.rank(); ++a) axes.push_back(a);
    axes.push_back(0);
    std::vector<int> back{shape.rank() - 1};
    for (int a = 0; a + 1 < shape.rank(); ++a) back.push_back(a);
    const Tensor turned = permute_dims(t, axes) + zeros({}, dtype == DType::Bool ? DType::Int32 : dtype);
    turned.eval();
    Tensor out = permute_dims(turned, back).astype(dtype);
    out.eval();
    return out;
  }
  return t;
}

std::vector<Value> record(const Program& program, std::string* text) { return Recorder(program, text).run(); }

std::string to_cpp(const Program& program) {
  std::string body;
  const std::vector<Value> values = record(program, &body);
  auto names = [&](const std::vector<int>& which) {
    std::string list;
    for (int i : which) list += (list.empty() ? "" : ", ") + values[static_cast<std::size_t>(i)].name;
    return list;
  };
  return cat("#include \"program.h\"\nusing namespace kiln;\nusing kiln::test::leaf;\nint main() {\n", body,
             "  eval({", names(program.outputs),
             "});\n  // read afterwards, alone alive: ", names(program.held), "\n}\n");
}

Result run(const Program& program) {
  std::vector<Value> values = record(program);
  std::vector<int> wanted = program.outputs;
  wanted.insert(wanted.end(), program.held.begin(), program.held.end());
  std::vector<Tensor> outputs;
  for (int o : program.outputs) outputs.push_back(values[static_cast<std::size_t>(o)].tensor);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::find(wanted.begin(), wanted.end(), static_cast<int>(i)) == wanted.end()) values[i].tensor = {};
  eval(outputs);
  outputs.clear();
  Result r;
  for (int w : wanted) {
    Value& v = values[static_cast<std::size_t>(w)];
    const Tensor& t = v.tensor;
    r.bytes.emplace_back(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
    t.copy_to(r.bytes.back().data(), t.dtype());
    r.shapes.push_back(t.shape());
    r.dtypes.push_back(t.dtype());
    r.values.push_back(v);
    r.values.back().tensor = {};
  }
  return r;
}

std::string difference(const Result& want, const Result& got) {
  for (std::size_t i = 0; i < want.bytes.size(); ++i) {
    if (want.shapes[i] != got.shapes[i] || want.dtypes[i] != got.dtypes[i])
      return cat(want.values[i].name, ": shape ", got.shapes[i].str(), ", not ", want.shapes[i].str());
    const Value& v = want.values[i];
    const DType t = want.dtypes[i];
    const auto n = static_cast<std::size_t>(want.shapes[i].numel());
    if (v.exact && want.bytes[i] == got.bytes[i]) continue;
    const double allowed = v.exact ? 0 : 4 * v.error + 1e-30;
    std::size_t bad = 0, first = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const double w = element(want.bytes[i].data(), t, k), g = element(got.bytes[i].data(), t, k);
      bool same = w == g || (w != w && g != g) || std::abs(w - g) <= allowed;
      if (is_int(t) && size_of(t) == 8)  // beyond what a double tells apart
        same = std::memcmp(want.bytes[i].data() + 8 * k, got.bytes[i].data() + 8 * k, 8) == 0;
      if (!same && bad++ == 0) first = k;
    }
    if (bad)
      return cat(v.name, " ", name(t), " ", want.shapes[i].str(), ": ", bad, " of ", n, " differ, first at ",
                 first, ": ", element(got.bytes[i].data(), t, first), ", not ",
                 element(want.bytes[i].data(), t, first), " (allowed ", allowed, ")");
  }
  return {};
}

namespace {

constexpr Kind kAnyKinds[] = {
    Kind::Leaf,         Kind::Creation,     Kind::Unary,   Kind::Unary,   Kind::Smooth,  Kind::Smooth,
    Kind::Binary,       Kind::Binary,       Kind::Binary,  Kind::Binary,  Kind::Binary,  Kind::SmoothBinary,
    Kind::BinaryNumber, Kind::BinaryNumber, Kind::Compare, Kind::Where,   Kind::Clip,    Kind::Cast,
    Kind::Reshape,      Kind::Reshape,      Kind::Permute, Kind::Permute, Kind::Slice,   Kind::Slice,
    Kind::Flip,         Kind::Roll,         Kind::Pad,     Kind::Concat,  Kind::Stack,   Kind::Tile,
    Kind::Repeat,       Kind::Broadcast,    Kind::Window,  Kind::Expand,  Kind::Squeeze, Kind::Update,
    Kind::Triangle,     Kind::Reduce,       Kind::Reduce,  Kind::Reduce,  Kind::Reduce,  Kind::Arg,
    Kind::Norm,         Kind::Norm,         Kind::Matmul,  Kind::Gather,  Kind::Gather,  Kind::Scatter,
    Kind::Scatter,      Kind::Scan,         Kind::Scan,    Kind::Loop,    Kind::Cond,    Kind::Sort,
    Kind::Sort,         Kind::Select,       Kind::Random,  Kind::Sweeps,  Kind::Sweeps,  Kind::Sweeps,
    Kind::Evaluate};
/// What reads a loop's results.
constexpr Kind kReaders[] = {Kind::Reduce, Kind::Reduce, Kind::Arg,    Kind::Norm,
                             Kind::Norm,   Kind::Scan,   Kind::Smooth, Kind::Binary};
constexpr Kind kLoopKinds[] = {Kind::Loop,   Kind::Loop,         Kind::Loop,    Kind::Cond,    Kind::Unary,
                               Kind::Binary, Kind::BinaryNumber, Kind::Reduce,  Kind::Norm,    Kind::Arg,
                               Kind::Scan,   Kind::Where,        Kind::Slice,   Kind::Squeeze, Kind::Expand,
                               Kind::Window, Kind::Reshape,      Kind::Permute, Kind::Another, Kind::Gather,
                               Kind::Cast,   Kind::Evaluate};

/// The extents of a leaf that no cache of one core holds, and whose results may leave the caches.
std::vector<std::int64_t> huge_dims(Draw& d) {
  switch (d.below(5)) {
    case 0: return {d.between(1'500'000, 3'000'000)};
    case 1: return {d.between(1, 40), d.between(50'000, 75'000)};
    case 2: return {d.between(200'000, 300'000), d.between(1, 10)};
    case 3: return {d.between(2'000, 9'000), d.between(120, 330)};
    default: return {d.between(100, 200), d.between(90, 130), d.between(60, 120)};
  }
}

/// `custom`: of 100 instructions so many are calls of the program's own kernels.
Program random_program(std::uint64_t seed, std::span<const Kind> kinds, int custom = 0, bool huge = false) {
  Draw d(seed);
  Program p;
  const bool large = d.chance(12) || huge;  // long reductions, several threads
  const bool one_type = d.chance(60);
  const DType main_type = d.chance(60) ? DType::Float32 : static_cast<DType>(d.below(kDTypeCount));
  auto dtype = [&] {
    return one_type || d.chance(50) ? main_type : static_cast<DType>(d.below(kDTypeCount));
  };
  auto extent = [&]() -> std::int64_t {
    switch (d.below(12)) {
      case 0:
      case 1: return 1;
      case 2: return d.chance(15) ? 0 : 2;
      case 3: return d.between(15, 40);
      default: return d.between(2, 9);
    }
  };
  auto dims = [&] {
    std::vector<std::int64_t> s;
    if (huge) return huge_dims(d);
    if (large) {
      switch (d.below(4)) {
        case 0: return std::vector<std::int64_t>{d.between(20000, 70000)};
        case 1: return std::vector<std::int64_t>{d.between(1, 3), d.between(9000, 30000)};
        case 2: return std::vector<std::int64_t>{d.between(2000, 6000), d.between(1, 12)};
        default: return std::vector<std::int64_t>{d.between(30, 90), d.between(30, 40), d.between(5, 17)};
      }
    }
    const std::int64_t rank = d.below(5) + (d.chance(5) ? 1 : 0);
    std::int64_t n = 1;
    for (std::int64_t k = 0; k < rank; ++k) {
      std::int64_t e = extent();
      if (n * e > kMaxElements / 3) e = 1;
      n *= e;
      s.push_back(e);
    }
    return s;
  };
  auto add = [&](Kind kind) {
    Instruction i;
    i.kind = kind;
    i.seed = d.bits() % 1000000;
    const int n = static_cast<int>(p.instructions.size());
    if (is_source(kind)) {
      i.dims = dims();
      i.dtype = dtype();
      if (kind == Kind::Leaf && !p.instructions.empty() &&
          d.chance(40)) {  // like an earlier leaf, or a row of it
        for (const Instruction& other : p.instructions)
          if (other.kind == Kind::Leaf) i.dims = other.dims;
        if (d.chance(40))
          for (auto& e : i.dims)
            if (d.chance(50)) e = 1;
      }
    } else {
      i.dtype = dtype();
      for (int& in : i.in) {
        if (d.chance(50))
          in = static_cast<int>(d.between(std::max(0, n - 3), n - 1));
        else
          in = static_cast<int>(d.below(n));
      }
    }
    p.instructions.push_back(i);
  };
  const std::int64_t leaves = d.between(1, 4);
  for (std::int64_t k = 0; k < leaves; ++k) add(Kind::Leaf);
  const std::int64_t count = d.between(2, large ? 7 : d.chance(20) ? 40 : 14);
  const auto any = [&](auto& list) {
    return list[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(std::size(list))))];
  };
  for (std::int64_t k = 0; k < count; ++k) {
    add(custom > 0 && d.chance(custom) ? Kind::Custom : any(kinds));
    if (p.instructions.back().kind != Kind::Loop) continue;
    // Several of its results together, and what is made of one.
    const int loop = static_cast<int>(p.instructions.size()) - 1;
    std::vector<int> together{loop};
    while (d.chance(60)) {
      add(Kind::Another);
      p.instructions.back().in[0] = loop;
      together.push_back(static_cast<int>(p.instructions.size()) - 1);
    }
    const int read = together[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(together.size())))];
    if (d.chance(60)) {
      add(any(kReaders));
      p.instructions.back().in[0] = read;
      together.push_back(static_cast<int>(p.instructions.size()) - 1);
    }
    for (int result : together)
      if (d.chance(50)) p.outputs.push_back(result);
  }
  const int n = static_cast<int>(p.instructions.size());
  p.outputs.push_back(n - 1);
  while (d.chance(45)) p.outputs.push_back(static_cast<int>(d.below(n)));
  while (d.chance(45)) p.held.push_back(static_cast<int>(d.below(n)));
  return p;
}

}  // namespace

Program random_program(std::uint64_t seed) { return random_program(seed, kAnyKinds); }

Program random_huge(std::uint64_t seed) {
  std::vector<Kind> kinds(std::begin(kAnyKinds), std::end(kAnyKinds));
  for (const Kind kind : {Kind::Matmul, Kind::Sort})
    std::erase(kinds, kind);  // the interpreter's take minutes
  return random_program(seed, kinds, 0, true);
}

Program random_loops(std::uint64_t seed) { return random_program(seed, kLoopKinds); }

Program random_customs(std::uint64_t seed) { return random_program(seed, kAnyKinds, 20); }

namespace {

/// Without the instructions that nothing needs.
Program pruned(const Program& p) {
  std::vector<bool> needed(p.instructions.size());
  for (int o : p.outputs) needed[static_cast<std::size_t>(o)] = true;
  for (int h : p.held) needed[static_cast<std::size_t>(h)] = true;
  for (std::size_t i = p.instructions.size(); i-- > 0;) {
    const Instruction& x = p.instructions[i];
    if (!needed[i] || is_source(x.kind)) continue;
    for (int in : x.in) needed[static_cast<std::size_t>(in)] = true;
  }
  Program out;
  out.variant = p.variant;
  std::vector<int> now(p.instructions.size());
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    if (!needed[i]) continue;
    now[i] = static_cast<int>(out.instructions.size());
    Instruction x = p.instructions[i];
    for (int& in : x.in) in = is_source(x.kind) ? 0 : now[static_cast<std::size_t>(in)];
    out.instructions.push_back(std::move(x));
  }
  for (int o : p.outputs) out.outputs.push_back(now[static_cast<std::size_t>(o)]);
  for (int h : p.held) out.held.push_back(now[static_cast<std::size_t>(h)]);
  return out;
}

}  // namespace

std::vector<Program> smaller(const Program& program) {
  std::vector<Program> out;
  auto offer = [&](Program p) {
    p = pruned(p);
    if (!p.outputs.empty()) out.push_back(std::move(p));
  };
  if (Program p = pruned(program); p.instructions.size() < program.instructions.size()) out.push_back(p);
  for (std::size_t k = 0; k < program.held.size(); ++k) {
    Program p = program;
    p.held.erase(p.held.begin() + static_cast<std::ptrdiff_t>(k));
    offer(std::move(p));
  }
  for (std::size_t k = 0; program.outputs.size() > 1 && k < program.outputs.size(); ++k) {
    Program p = program;
    p.outputs.erase(p.outputs.begin() + static_cast<std::ptrdiff_t>(k));
    offer(std::move(p));
  }
  // An instruction gives way to its first operand, or to memory of the same shape.
  const std::vector<Value> values = record(program);
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    const Instruction& x = program.instructions[i];
    if (x.kind == Kind::Leaf) continue;
    if (!is_source(x.kind)) {
      for (int in : x.in) {
        Program p = program;
        for (std::size_t j = i + 1; j < p.instructions.size(); ++j)
          for (int& y : p.instructions[j].in)
            if (y == static_cast<int>(i)) y = in;
        for (int& o : p.outputs)
          if (o == static_cast<int>(i)) o = in;
        for (int& h : p.held)
          if (h == static_cast<int>(i)) h = in;
        offer(std::move(p));
      }
    }
    Program p = program;
    Instruction& y = p.instructions[i];
    y = {};
    const Shape shape = values[i].tensor.shape();
    y.dims.assign(shape.begin(), shape.end());
    y.dtype = values[i].tensor.dtype();
    y.seed = 1;
    offer(std::move(p));
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& x = program.instructions[i];
    if (!is_source(x.kind)) {  // one operand less
      for (int k = 1; k < 3; ++k) {
        if (x.in[k] == x.in[0]) continue;
        Program p = program;
        p.instructions[i].in[k] = x.in[0];
        offer(std::move(p));
      }
      continue;
    }
    if (x.kind == Kind::Leaf && x.seed != 1) {
      Program p = program;
      p.instructions[i].seed = 1;
      out.push_back(std::move(p));
    }
    if (x.dtype != DType::Float32) {
      Program p = program;
      p.instructions[i].dtype = DType::Float32;
      out.push_back(std::move(p));
    }
    for (std::size_t a = 0; a < x.dims.size(); ++a) {
      Program p = program;
      p.instructions[i].dims.erase(p.instructions[i].dims.begin() + static_cast<std::ptrdiff_t>(a));
      out.push_back(std::move(p));
      for (std::int64_t e : {std::int64_t{1}, std::int64_t{2}, x.dims[a] / 2, x.dims[a] - 1}) {
        if (e < 1 || e >= x.dims[a]) continue;
        Program q = program;
        q.instructions[i].dims[a] = e;
        out.push_back(std::move(q));
      }
    }
  }
  return out;
}

}  // namespace kiln::test
