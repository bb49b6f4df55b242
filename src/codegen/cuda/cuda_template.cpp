// Hooks are emitted like the body of a kernel, one after the other: what comes with a call is bound to the
// hook's arguments, everything else to members of Args.
#include "codegen/cuda/cuda_template.h"

#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_function.h"
#include "codegen/cuda/product_launch.h"
#include "kernels_templates.h"
#include "support/large_stack.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

namespace kiln::codegen {
namespace {

using kernel::ExprId;
using kernel::Hook;
using kernel::Template;

/// Where the copy engine finds the tiles of arrays of three axes: k or the free axis first, batches last.
constexpr const char* kBoxes = R"(
__device__ __forceinline__ void a_at(const Args&, int b, int m, int k, int (&c)[3]) {
  c[0] = Config::kAKMajor ? k : m;
  c[1] = Config::kAKMajor ? m : k;
  c[2] = Config::kABatched ? b : 0;
}
__device__ __forceinline__ void b_at(const Args&, int b, int, int n, int k, int (&c)[3]) {
  c[0] = Config::kBKMajor ? k : n;
  c[1] = Config::kBKMajor ? n : k;
  c[2] = Config::kBBatched ? b : 0;
}
)";

std::int64_t constant_of(const Template& t, std::string_view name, std::int64_t otherwise) {
  const auto found =
      std::ranges::find_if(t.config, [&](const kernel::Constant& c) { return c.name == name; });
  return found == t.config.end() ? otherwise : found->value;
}

/// Operands of the n side whose columns have tiles of their own, but for the first.
std::size_t further_parts(const Template& t) {
  return static_cast<std::size_t>(constant_of(t, "kParts", 1) - 1);
}

/// Whether one of them is windows of an array, which the head describes.
bool has_windows(const Template& t) { return constant_of(t, "kWindows", 0) != 0; }
constexpr std::size_t kWindowsBytes = 152;  // of struct Windows

/// The launch of strips, whose head says how many blocks there are, and the bytes that one shares.
device::LaunchShape strips_shape(std::span<const std::byte> head) {
  constexpr std::size_t kBlocks = 100, kShared = 104;  // in struct Windows
  const auto number = [&](std::size_t at) {
    std::uint32_t x = 0;
    std::memcpy(&x, head.data() + sizeof(ProductExtents) + at, sizeof x);
    return x;
  };
  device::LaunchShape shape;
  shape.grid[0] = number(kBlocks);
  shape.block[0] = 128;
  shape.dynamic_shared = number(kShared);
  return shape;
}

/// Descriptions of arrays by tiles that a launch brings: of products one for each operand.
std::size_t maps_of(const TemplateText& text, const Template& t) {
  const auto maps = static_cast<std::size_t>(text.maps);
  if (maps == 0 || !t.name.starts_with("product_")) return maps;
  return maps + static_cast<std::size_t>(constant_of(t, "kProducts", 1) - 1) + further_parts(t);
}

ProductChoice::Gather gather_of(const Template& t) {
  const auto number = [&](const char* name, int otherwise) {
    return static_cast<int>(constant_of(t, name, otherwise));
  };
  return {number("kTileM", 0),
          number("kTileN", 0),
          number("kEachM", 1),
          number("kEachN", 1),
          static_cast<int>(size_of(t.element)),
          number("kWidth", 4),
          number("kWindows", 0) == 2,
          number("kTogether", 0) != 0,
          number("kFlat", 0) != 0,
          number("kDepth", 8)};
}

ProductChoice choice_of(const Template& t) {
  const ProductKind kind = t.name == "product_wgmma"                                  ? ProductKind::Wgmma
                           : t.name == "product_decode"                               ? ProductKind::Decode
                           : t.name == "product_fma" || t.name == "product_fragments" ? ProductKind::Gather
                                                                                      : ProductKind::Mma;
  return {kind,
          static_cast<int>(constant_of(t, "kTile", 0)),
          static_cast<int>(constant_of(t, "kProducts", 1)),
          static_cast<int>(constant_of(t, "kMadeOf", 0)),
          static_cast<int>(constant_of(t, "kRows", 16)),
          static_cast<int>(constant_of(t, "kWarps", 4)),
          static_cast<int>(constant_of(t, "kWarpsPerSm", 8)),
          constant_of(t, "kWindows", 0) != 0,
          gather_of(t),
          static_cast<int>(constant_of(t, "kShare", 1)),
          static_cast<int>(size_of(t.element))};
}

/// A product that takes no descriptions of arrays by tiles.
TemplateText of_product(const char* name, std::vector<const char*> before, std::vector<const char*> main) {
  return {name, std::move(before), "Product product", std::move(main), "run_product"};
}

TemplateText of_nest(const char* name, std::vector<const char*> before, std::vector<const char*> main,
                     int counters) {
  TemplateText text{name, std::move(before), "NestShape shape", std::move(main), "run_nest"};
  text.counters = counters;
  text.reduces = true;
  return text;
}

const std::vector<TemplateText>& all_templates() {
  namespace t = templates;
  static const std::vector<TemplateText> all = {
      of_product("product_plain", {t::product_head}, {t::product_plain}),
      of_product("product_mma", {t::memory, t::ptx, t::product, t::product_windows},
                 {t::turn_columns, t::product_rows, t::product_mma}),
      of_product("product_fma", {t::memory, t::ptx, t::product, t::product_windows},
                 {t::product_gather, t::product_fma}),
      of_product("product_fragments", {t::memory, t::ptx, t::product, t::product_windows},
                 {t::product_gather, t::product_fragments}),
      of_product("product_strips", {t::memory, t::ptx, t::product, t::product_windows},
                 {t::product_strips, t::product_strips_fma}),
      of_product("product_strips_mma", {t::memory, t::ptx, t::product, t::product_windows},
                 {t::product_strips, t::product_strips_mma}),
      of_product("product_decode", {t::memory, t::ptx, t::product},
                 {t::turn_columns, t::product_rows, t::product_decode}),
      {"product_wgmma",
       {t::memory, t::ptx, t::product, t::product_windows, t::hopper},
       "Product product",
       {kBoxes, t::turn_columns, t::product_rows, t::product_wgmma},
       "run_product",
       2,
       90},
      {"attention_mma",
       {t::attention},
       "AttentionShape shape",
       {t::ptx, t::turn_columns, t::pair_tiles, t::attention_rows, t::pair_copy, t::attention_floats,
        t::attention_mma},
       "run_attention"},
      {"attention_wgmma",
       {t::ptx, t::attention, t::hopper},
       "AttentionShape shape;\nAttentionParts parts",
       {t::turn_columns, t::pair_tiles, t::pair_finite, t::attention_rows, t::pair_hopper,
        t::attention_wgmma},
       "run_attention",
       3,
       90,
       2},
      {"pair_sums_mma",
       {t::pair_sums},
       "PairShape shape",
       {t::ptx, t::turn_columns, t::pair_tiles, t::pair_rows, t::pair_copy, t::pair_sums_mma},
       "run_pair_sums"},
      {"pair_sums_wgmma",
       {t::ptx, t::pair_sums, t::hopper},
       "PairShape shape;\nPairParts parts",
       {t::turn_columns, t::pair_tiles, t::pair_finite, t::pair_rows, t::pair_hopper, t::pair_sums_wgmma},
       "run_pair_sums",
       4,
       90,
       2},
      {"pair_added", {t::pair_sums}, "PairShape shape", {t::pair_added}, "run_pair_added"},
      {"pair_flags", {t::pair_sums}, "PairShape shape", {t::pair_finite, t::pair_flags}, "run_pair_flags"},
      of_nest("nest_pairs", {t::finish, t::nest_head}, {t::nest_tiles, t::nest_rows, t::nest_pairs}, 1),
      of_nest("nest_short", {t::finish, t::nest_head}, {t::nest_tiles, t::nest_rows, t::nest_short}, 1),
      of_nest("nest_stored", {t::nest_head}, {t::nest_tiles, t::nest_stores, t::nest_pairs}, 0),
  };
  return all;
}

/// Types that sums of products are made in.
const char* sum_type(DType element) {
  if (is_half(element) || is_only_stored(element) || element == DType::Float32) return "float";
  if (element == DType::Float64) return "double";
  return size_of(element) == 8 ? "uint64" : "uint32";
}

std::string config_of(const Template& t) {
  std::string out =
      cat("struct Config {\ntypedef ", is_only_stored(t.element) ? "uint8" : cuda_memory_type(t.element),
          " Element;\ntypedef ", sum_type(t.element),
          " Sum;\nstatic constexpr bool kTruth = ", is_bool(t.element) ? "true" : "false", ";\n");
  for (const kernel::Constant& c : t.config)
    out += cat("static constexpr ", c.truth ? "bool " : "int ", c.name, " = ", c.value, ";\n");
  return out + "};\n";
}

std::string pointer_type(const BufferDecl& d) {
  return cat(d.role == BufferDecl::Role::In ? "const " : "", cuda_memory_type(d.dtype), "*");
}

}  // namespace

const TemplateText& template_text(const std::string& name) {
  const auto found =
      std::ranges::find_if(all_templates(), [&](const TemplateText& t) { return name == t.name; });
  KILN_CHECK_THAT(found != all_templates().end(), "no main loop is called ", name);
  return *found;
}

device::LaunchShape template_shape(const Kernel& kernel, std::span<const std::byte> head, int sms) {
  const Template& t = *kernel.main_loop;
  ProductExtents e;
  std::vector<ProductPart> parts(further_parts(t));
  KILN_CHECK_THAT(
      head.size() == sizeof e + parts.size() * sizeof(ProductPart) + has_windows(t) * kWindowsBytes,
      "the head of a product has ", head.size(), " bytes");
  std::memcpy(&e, head.data(), sizeof e);
  if (!parts.empty()) std::memcpy(parts.data(), head.data() + sizeof e, parts.size() * sizeof(ProductPart));
  if (t.name.starts_with("product_strips")) return strips_shape(head);
  if (t.name != "product_plain") return product_shape(choice_of(t), e, sms, parts);
  constexpr std::int64_t kTile = 64;  // of product_plain.cuh
  device::LaunchShape shape;
  shape.grid[0] =
      static_cast<std::uint32_t>(e.batch * ((e.m + kTile - 1) / kTile) * ((e.n + kTile - 1) / kTile));
  shape.block[0] = 256;
  return shape;
}

void complete_tiles(const Kernel& kernel, std::span<device::TiledBuffer> tiled) {
  if (tiled.empty() || tiled[0].box[0] > 1) return;
  const Template& t = *kernel.main_loop;
  const ProductTile tile = tile_of(choice_of(t));
  constexpr std::int64_t kRow = 128;  // bytes
  const auto box = [](device::TiledBuffer& of, bool k_major, int rows) {
    of.box[0] = static_cast<std::int32_t>(kRow / size_of(of.dtype));
    of.box[1] = k_major ? rows : 64;
  };
  box(tiled[0], constant_of(t, "kAKMajor", 1) != 0, tile.box_a);
  for (device::TiledBuffer& b : tiled.subspan(1)) box(b, constant_of(t, "kBKMajor", 1) != 0, tile.box_b);
}

std::vector<bool> given_buffers(const Kernel& kernel) {
  std::vector<bool> given(kernel.buffers.size());
  if (!kernel.main_loop) return given;
  for (const Hook& h : kernel.main_loop->hooks)
    for (const std::uint32_t b : h.buffers) given[b] = true;
  return given;
}

/// How many elements the arrays of a hook's calls have: a run of an operand's, or columns of the result.
static const char* length_of_arrays(const Hook& hook) {
  return hook.name == "b_value"       ? "Config::kRun"
         : hook.name == "x_values"    ? "Config::kXRun"
         : hook.name == "y_values"    ? "Config::kYRun"
         : hook.name == "store_pairs" ? "Config::kStore"
         : hook.name == "finish"      ? "Config::kFinish"
                                      : "Config::kWidth";
}

/// The arrays that come with a hook's call, or that it fills.
std::vector<std::uint32_t> CudaEmitter::arrays_of(const Hook& hook, bool made) const {
  std::vector<std::uint32_t> arrays;
  for (const std::uint32_t b : hook.buffers)
    if ((k_.buffers[b].role == BufferDecl::Role::Out) == made) arrays.push_back(b);
  return arrays;
}

/// How the function of a hook is declared, and how one with such parameters calls it.
CudaEmitter::HookHead CudaEmitter::hook_head(const Hook& hook) const {
  HookHead head{"void", "const Args& args", "args"};
  for (std::size_t i = 0; i < hook.params.size(); ++i) {
    head.parameters += cat(", const int at", i);
    head.arguments += cat(", at", i);
  }
  for (const bool made : {false, true}) {
    const std::vector<std::uint32_t> arrays = arrays_of(hook, made);
    if (arrays.empty()) continue;
    const char* const array = made ? "made" : "given";
    head.parameters += cat(", ", made ? "" : "const ", cuda_type(k_.buffers[arrays[0]].dtype), " (&", array,
                           ")[", arrays.size(), "][", length_of_arrays(hook), "]");
    head.arguments += cat(", ", array);
  }
  if (hook.address >= 0)
    head.type = pointer_type(k_.buffers[static_cast<std::size_t>(hook.address)]);
  else if (!hook.results.empty())
    head.type = cuda_type(pool_[hook.results[0]].type);
  return head;
}

/// The function of one hook, which is this emitter's body.
std::string CudaEmitter::hook(const Hook& hook, const std::string& name, const std::vector<bool>& given) {
  width_ = team_ = 1;
  scopes_.push_back({});
  std::string bound;
  for (std::size_t i = 0; i < hook.params.size(); ++i)
    bound += cat("const ", index_type(), " p", hook.params[i], " = at", i, ";\n");
  for (const bool made : {false, true}) {
    const std::vector<std::uint32_t> arrays = arrays_of(hook, made);
    const char* const array = made ? "made" : "given";
    for (std::size_t i = 0; i < arrays.size(); ++i)
      bound += cat(made ? "" : "const ", cuda_type(k_.buffers[arrays[i]].dtype), "* const ",
                   buffer_name(arrays[i]), " = ", array, '[', i, "];\n");
  }
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    if (!given[b])
      bound += cat(pointer_type(k_.buffers[b]), " __restrict__ const ", buffer_name(b), " = args.",
                   buffer_name(b), ";\n");
  for (std::uint32_t p = 0; p < k_.n_params; ++p)
    if (std::ranges::find(hook.params, p) == hook.params.end())
      bound += cat("const ", index_type(), " p", p, " = ", index_type(), "(args.p", p, ");\n");
  for (std::size_t s = 0; s < k_.slots.size(); ++s)
    bound += cat("const ", cuda_type(k_.slots[s]), " s", s, " = args.s", s, ";\n");
  block(k_.body);
  if (!hook.results.empty()) {
    const std::string result = hook.address < 0 ? value(hook.results[0]) : index_text(hook.results[0]);
    const auto buffer = static_cast<std::size_t>(std::max(hook.address, 0));
    line(hook.address < 0 ? cat("return ", result, ';')
                          : cat("return ", buffer_name(buffer), " + ", result, ';'));
  }
  const HookHead head = hook_head(hook);
  return cat("__device__ __forceinline__ ", head.type, ' ', name, '(', head.parameters, ") {\n", bound,
             here().text, "}\n");
}

void CudaEmitter::combines(const Hook& hook, bool extreme) {
  for (const ExprId result : hook.results) {
    const kernel::ExprNode& n = pool_[result];
    if (extreme)
      combined_ = {result};
    else if (n.prim == Prim::Add)
      for (const ExprId operand : {n.a, n.b})
        if (facts_.uses[operand] == 1) combined_.push_back(operand);
  }
}

/// What a main loop calls where several hooks have one name: its first argument says which.
std::string CudaEmitter::choice_of_hooks(const Hook& hook, const std::vector<std::string>& names) const {
  const HookHead head = hook_head(hook);
  std::string out =
      cat("__device__ __forceinline__ ", head.type, ' ', hook.name, '(', head.parameters, ") {\n");
  for (std::size_t i = 0; i < names.size(); ++i)
    out += cat(i + 1 < names.size() ? cat("if (at0 == ", i, ") ") : std::string(), "return ", names[i], '(',
               head.arguments, ");\n");
  return out + "}\n";
}

/// All hooks, each behind those of its name, and what chooses among these.
static std::string emit_hooks(const Kernel& kernel, const std::string& symbol, bool marked, CudaPreludes& p) {
  const std::vector<bool> given = given_buffers(kernel);
  std::string out;
  std::map<std::string, std::vector<std::string>> names;
  for (const Hook& h : kernel.main_loop->hooks) {
    const auto alike = std::ranges::count(kernel.main_loop->hooks, h.name, &Hook::name);
    std::vector<std::string>& all = names[h.name];
    all.push_back(alike == 1 ? h.name : cat(h.name, '_', all.size()));
    Kernel own = kernel;
    own.main_loop.reset();
    own.body = h.body;
    CudaEmitter emitter(own, symbol, 1, h.results, marked);
    emitter.reads_fixed_operands(h.name == "epilogue" && kernel.main_loop->name == "product_wgmma");
    if (h.name == "combined") emitter.combines(h, constant_of(*kernel.main_loop, "kExtreme", 0) != 0);
    emitter.spreads_columns(h.name == "epilogue" && constant_of(*kernel.main_loop, "kSpread", 0) != 0);
    out += emitter.hook(h, all.back(), given);
    if (alike > 1 && static_cast<std::ptrdiff_t>(all.size()) == alike) out += emitter.choice_of_hooks(h, all);
    p.add(emitter.preludes());
  }
  return out;
}

std::string emit_template(const Kernel& kernel, const std::string& symbol, bool marked) {
  const Template& t = *kernel.main_loop;
  const TemplateText& text = template_text(t.name);
  const std::vector<bool> given = given_buffers(kernel);
  std::string hooks;
  CudaPreludes p;
  on_large_stack([&] { hooks = emit_hooks(kernel, symbol, marked, p); });
  std::string args = cat("struct alignas(", text.maps > 0 ? 64 : 8, ") Args {\n", text.head, ";\n");
  if (has_windows(t)) args += "Windows windows;\n";
  if (further_parts(t) > 0) args += cat("Part parts[", further_parts(t), "];\n");
  if (text.maps > 0) args += cat("TensorMap a_map, b_map[", maps_of(text, t) - 1, "];\n");
  if (text.counters > 0) args += "uint32* counters;\n";
  for (std::size_t b = 0; b < kernel.buffers.size(); ++b)
    if (!given[b])
      args +=
          cat(pointer_type(kernel.buffers[b]), ' ', CudaEmitter::buffer_name(kernel.buffers[b], b), ";\n");
  for (std::uint32_t n = 0; n < kernel.n_params; ++n) args += cat("int64 p", n, ";\n");
  for (std::size_t s = 0; s < kernel.slots.size(); ++s)
    args += cat("alignas(8) ", cuda_type(kernel.slots[s]), " s", s, ";\n");
  args += "};\n";
  const bool memory = std::ranges::find(text.before, templates::memory) != text.before.end();
  p.memory = p.memory && !memory;  // the template brings it along
  p.reduce |= text.reduces, p.math |= text.reduces;
  std::string out = text.specific != 0 ? cat(kChipAlone, '\n') : std::string();
  out += CudaEmitter::text_of(p);
  for (const char* part : text.before) out += part;
  out += "\n" + CudaEmitter::indented(config_of(t) + args + hooks);
  for (const char* part : text.main) out += part;
  return out +
         CudaEmitter::indented(cat(
             "\nextern \"C\" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) ", symbol,
             "(const __grid_constant__ Args args) {\n", kWaitForPrevious, '\n', text.entry, "(args);\n}\n"));
}

}  // namespace kiln::codegen
