#include "engine/replay.h"

#include "cache/kernel_source.h"
#include "device/cpu/run.h"
#include "device/device.h"
#include "record/node.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

namespace kiln::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "kiln.replay/2";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kAlignment =
    256;  // of memory: a launch sees addresses as far below it as the program did

std::string bytes_of(device::Device& device, const RunMemory& m) {
  std::string out(m.bytes, '\0');
  if (m.bytes == 0) return out;
  const HeldBuffer shown(device.lend(m.data, m.bytes, [] {}));
  device.read(out.data(), *shown.get(), 0, m.bytes);
  return out;
}

/// Whether nobody has written this kernel to the directory yet.
bool is_first(const std::string& name) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const seen = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  return seen->insert(config().dump + "/" + name).second;
}

bool can_be_written(const Launch& l, std::span<const RunMemory> memories) {
  if (!l.kernel || l.given_buffer >= 0 || !l.given.empty()) return false;
  std::uint64_t bytes = 0;
  for (const RunMemory& m : memories) bytes += m.bytes;
  if (bytes <= kMostBytes) return true;
  warn(
      cat("the launch of ", l.kernel->name, " is not written: it has ", bytes, " bytes, above ", kMostBytes));
  return false;
}

Json json_of(const device::LaunchShape& s) {
  return {{"grid", s.grid},
          {"block", s.block},
          {"dynamic_shared", s.dynamic_shared},
          {"cluster", s.cluster},
          {"cooperative", s.cooperative}};
}

Json json_of(const device::TiledBuffer& t) {
  return {{"buffer", t.buffer},   {"dtype", name(t.dtype)}, {"rank", t.rank},       {"dims", t.dims},
          {"strides", t.strides}, {"box", t.box},           {"windows", t.windows}, {"lower", t.lower},
          {"upper", t.upper},     {"step", t.step}};
}

Json json_of(const RunArguments& a) {
  const Launch& l = *a.launch;
  Json j = {{"extents", l.extents},
            {"shape", json_of(l.shape)},
            {"params", l.params},
            {"arguments", l.arguments},
            {"slots", std::vector<std::uint64_t>(a.slots.begin(), a.slots.end())},
            {"grid", l.grid},
            {"finish_grid", l.finish_grid},
            {"grain", l.grain},
            {"scratch_bytes", l.scratch_bytes},
            {"counters", l.counters},
            {"work", l.work}};
  for (const RunBuffer& b : a.buffers)
    j["buffers"].push_back(
        {{"memory", b.memory}, {"offset", b.offset}, {"written", b.written}, {"dtype", name(b.dtype)}});
  for (const device::TiledBuffer& t : l.tiled) j["tiled"].push_back(json_of(t));
  for (const std::byte b : l.head) j["head"].push_back(std::to_integer<int>(b));
  return j;
}

Json json_of(std::span<const RunArguments> sets, Device device, std::span<const RunMemory> memories) {
  const Launch& l = *sets.front().launch;
  Json j = {{"schema", kSchema},
            {"name", l.kernel->name},
            {"device", device.str()},
            {"source", l.kernel->name + (device.kind == Device::Kind::Cpu ? ".ll" : ".cu")},
            {"symbol", symbol_of(l.kernel->key)},
            {"operations", l.ops},
            {"instances", l.instances},
            {"narrow", l.narrow}};
  for (const RunMemory& m : memories)
    j["memories"].push_back(
        {{"bytes", m.bytes}, {"at", reinterpret_cast<std::uintptr_t>(m.data) % kAlignment}});
  for (const RunArguments& a : sets) j["launches"].push_back(json_of(a));
  return j;
}

DType dtype_named(const std::string& text) {
  for (int i = 0; i < kAllDTypeCount; ++i)
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  throw UserError(cat("[replay] no dtype is called ", text));
}

Device device_named(const std::string& text) {
  const std::size_t colon = text.find(':');
  const int index = colon == text.npos ? 0 : std::stoi(text.substr(colon + 1));
  if (text == "cpu") return Device::cpu();
  if (text.starts_with("cuda")) return Device::cuda(index);
  throw UserError(cat("[replay] kernels of the device ", text, " do not run"));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError(cat("[replay] cannot read ", file.string()));
  return {std::istreambuf_iterator<char>(in), {}};
}

Replay::Difference difference(DType dtype, const std::byte* have, const std::byte* want,
                              std::uint64_t bytes) {
  Replay::Difference d;
  d.dtype = dtype;
  d.elements = static_cast<std::int64_t>(bytes) / size_of(dtype);
  dispatch(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < d.elements; ++i) {
      T a, b;
      std::memcpy(&a, have + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      std::memcpy(&b, want + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      const double x = static_cast<double>(a), y = static_cast<double>(b);
      if (std::memcmp(&a, &b, sizeof(T)) == 0 || x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (d.differ++ == 0) d.first = i;
      const double by = std::abs(x - y);
      d.greatest = std::isnan(by) ? HUGE_VAL : std::max(d.greatest, by);
    }
  });
  return d;
}

}  // namespace

bool dumps_runs() {
  const Config& c = config();
  if (c.dump.empty() || c.dump == "stdout" || c.dump == "stderr") [[likely]]
    return false;
  return std::ranges::find(c.dump_stages, "run") != c.dump_stages.end();
}

std::vector<RunBuffer> run_buffers(const Plan& plan, const Launch& launch, std::span<std::byte* const> args,
                                   std::span<ir::Buffer* const> buffers,
                                   const std::function<const std::byte*(const Place&)>& address,
                                   std::vector<RunMemory>& memories) {
  std::vector<RunBuffer> out;
  for (std::size_t b = 0; b < launch.buffers.size(); ++b) {
    const Place& p = launch.buffers[b];
    RunBuffer& to = out.emplace_back();
    to.dtype = launch.types[b];
    to.written = p.written;
    if (p.kind == Place::Kind::None) continue;
    RunMemory m{};
    if (p.kind == Place::Kind::Arg) {
      const auto [before, bytes] = plan.argument_bytes[p.index];
      m = {args[p.index] - before, bytes};
    } else {
      m = {buffers[p.index]->data, plan.buffers[p.index].bytes};
    }
    auto at = std::ranges::find(memories, m.data, &RunMemory::data);
    if (at == memories.end()) at = memories.insert(at, m);
    at->bytes = std::max(at->bytes, m.bytes);
    to.memory = static_cast<std::int32_t>(at - memories.begin());
    to.offset = address(p) - m.data;
  }
  return out;
}

void dump_run(std::span<const RunArguments> sets, Device device, std::span<const RunMemory> memories,
              const std::function<void()>& launch) {
  const Launch& l = *sets.front().launch;
  if (!can_be_written(l, memories) || !is_first(l.kernel->name)) return launch();
  device::Device& here = device::at(device);
  std::vector<std::string> bytes;
  for (const RunMemory& m : memories) bytes.push_back(bytes_of(here, m));
  launch();
  here.synchronize();
  for (const RunMemory& m : memories) bytes.push_back(bytes_of(here, m));
  const std::filesystem::path directory = config().dump;
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  std::ofstream data(directory / (l.kernel->name + ".run.bin"), std::ios::binary);
  for (const std::string& b : bytes) data << b;
  std::ofstream text(directory / (l.kernel->name + ".run.json"));
  text << json_of(sets, device, memories).dump(1) << "\n";
  if (!data.flush() || !text.flush()) warn_once("dump", cat("cannot write kernels to ", directory.string()));
}

void dump_epilogue(const RunArguments& epilogue, std::span<const RunMemory> memories,
                   const std::function<void()>& product) {
  static std::mutex* const one_product = new std::mutex;
  const std::lock_guard alone(*one_product);
  const Launch& l = *epilogue.launch;
  std::mutex one_rectangle;  // others wait, so that they write nothing meanwhile
  bool written = false;
  const cpu::RectangleObserver observer{
      &l, [&](const device::Rectangle& at, std::span<const std::int64_t> params, const auto& run) {
        const std::lock_guard lock(one_rectangle);
        if (std::exchange(written, true)) return run();
        Launch own = l;
        own.params.assign(params.begin(), params.end());
        own.given.clear();
        own.given_buffer = -1;
        own.grid = at.rows;
        RunArguments arguments{&own, epilogue.buffers, epilogue.slots};
        std::vector<RunMemory> all(memories.begin(), memories.end());
        if (l.given_buffer >= 0) {
          const auto buffer = static_cast<std::uint32_t>(l.given_buffer);
          const std::int64_t sums = at.rows > 0 ? (at.rows - 1) * at.pitch + at.columns : 0;
          RunBuffer& of_sums = arguments.buffers[buffer];
          of_sums.memory = static_cast<std::int32_t>(all.size());
          of_sums.offset = 0;
          all.push_back({static_cast<std::byte*>(const_cast<void*>(at.sums)),
                         static_cast<std::uint64_t>(sums * size_of(l.types[buffer]))});
          own.arguments.insert(std::ranges::lower_bound(own.arguments, buffer), buffer);
        }
        dump_run({&arguments, 1}, Device::cpu(), all, run);
      }};
  cpu::observe_rectangles(&observer);
  struct End {
    ~End() { cpu::observe_rectangles(nullptr); }
  } const end;
  product();
}

struct Replay::State {
  std::filesystem::path directory;
  std::string name, symbol, source;
  Device device;
  struct Memory {
    std::uint64_t bytes, at;
    std::string before, after;
  };
  std::vector<Memory> memories;
  struct Set {
    device::Launch launch;  // without code
    std::vector<RunBuffer> buffers;
    std::vector<std::uint64_t> slots;
  };
  std::vector<Set> sets;

  void read(const Json& j);
  Set set_of(const Json& j, const Json& all) const;
};

namespace {

device::LaunchShape shape_of(const Json& s) {
  device::LaunchShape out;
  for (std::size_t i = 0; i < 3; ++i) {
    out.grid[i] = s.at("grid").at(i);
    out.block[i] = s.at("block").at(i);
    out.cluster[i] = s.at("cluster").at(i);
  }
  out.dynamic_shared = s.at("dynamic_shared");
  out.cooperative = s.at("cooperative");
  return out;
}

device::TiledBuffer tiled_of(const Json& j) {
  device::TiledBuffer t;
  t.buffer = j.at("buffer");
  t.dtype = dtype_named(j.at("dtype"));
  t.rank = j.at("rank");
  if (t.rank < 0 || t.rank > static_cast<int>(std::size(t.dims)))
    throw UserError("[replay] a tile of no rank");
  for (std::size_t i = 0; i < std::size(t.dims); ++i) {
    t.dims[i] = j.at("dims").at(i);
    t.strides[i] = j.at("strides").at(i);
    t.box[i] = j.at("box").at(i);
  }
  t.windows = j.at("windows");
  for (std::size_t i = 0; i < std::size(t.step); ++i) {
    t.lower[i] = j.at("lower").at(i);
    t.upper[i] = j.at("upper").at(i);
    t.step[i] = j.at("step").at(i);
  }
  return t;
}

}  // namespace

Replay::State::Set Replay::State::set_of(const Json& j, const Json& all) const {
  Set out;
  device::Launch& l = out.launch;
  l.instances = all.at("instances");
  l.narrow = all.at("narrow");
  l.shape = shape_of(j.at("shape"));
  l.params = j.at("params").get<std::vector<std::int64_t>>();
  if (l.narrow) l.narrow_params.assign(l.params.begin(), l.params.end());
  l.arguments = j.at("arguments").get<std::vector<std::uint32_t>>();
  out.slots = j.at("slots").get<std::vector<std::uint64_t>>();
  l.slot_count = static_cast<std::uint32_t>(out.slots.size());
  l.grid = j.at("grid");
  l.finish_grid = j.at("finish_grid");
  l.grain = j.at("grain");
  l.scratch_bytes = j.at("scratch_bytes");
  l.counters = j.at("counters");
  l.work = j.at("work");
  for (const Json& b : j.at("buffers")) {
    out.buffers.push_back({b.at("memory"), b.at("offset"), b.at("written"), dtype_named(b.at("dtype"))});
    if (out.buffers.back().memory >= static_cast<std::int32_t>(memories.size()))
      throw UserError(cat("[replay] ", name, ".run.json names a memory that is not there"));
  }
  if (j.contains("tiled"))
    for (const Json& t : j.at("tiled")) l.tiled.push_back(tiled_of(t));
  if (j.contains("head"))
    for (const Json& b : j.at("head")) l.head.push_back(static_cast<std::byte>(b.get<int>()));
  const auto there = [&](std::uint32_t buffer) { return buffer < out.buffers.size(); };
  if (!std::ranges::all_of(l.arguments, there) ||
      !std::ranges::all_of(l.tiled, there, &device::TiledBuffer::buffer))
    throw UserError(cat("[replay] ", name, ".run.json names a buffer that is not there"));
  return out;
}

void Replay::State::read(const Json& j) {
  if (j.at("schema") != kSchema) throw UserError("[replay] not a launch of this version of Kiln");
  name = j.at("name");
  symbol = j.at("symbol");
  source = j.at("source");
  device = device_named(j.at("device"));
  for (const Json& m : j.at("memories")) memories.push_back({m.at("bytes"), m.at("at"), {}, {}});
  const std::string data = text_of(directory / (name + ".run.bin"));
  std::uint64_t at = 0;
  for (const bool before : {true, false})
    for (Memory& m : memories) {
      if (m.bytes > data.size() - std::min<std::uint64_t>(at, data.size()))
        throw UserError(cat("[replay] ", name, ".run.bin is too short"));
      (before ? m.before : m.after) = data.substr(at, m.bytes);
      at += m.bytes;
    }
  for (const Json& l : j.at("launches")) sets.push_back(set_of(l, j));
  if (sets.empty()) throw UserError(cat("[replay] ", name, ".run.json has no launch"));
}

Replay::Replay(const std::filesystem::path& json) : state_(std::make_unique<State>()) {
  state_->directory = json.parent_path();
  try {
    state_->read(Json::parse(text_of(json)));
  } catch (const nlohmann::json::exception& e) {
    throw UserError(cat("[replay] ", json.string(), ": ", e.what()));
  }
}
Replay::~Replay() = default;

const std::string& Replay::name() const { return state_->name; }
std::filesystem::path Replay::source() const { return state_->directory / state_->source; }

Replay::Result Replay::run(const std::filesystem::path& source, int times) const {
  const State& s = *state_;
  device::Device& here = device::at(s.device);
  const std::shared_ptr<const device::Compiler> compiler = here.compiler();
  const device::EditedSource text{source.string(), text_of(source)};
  const device::Unit unit{nullptr, s.symbol, s.sets.front().launch.instances, &text};
  const std::shared_ptr<device::Code> code = compiler->new_code();
  compiler->load(*code, compiler->compile(unit), unit);
  std::vector<HeldBuffer> memories;
  for (const State::Memory& m : s.memories) memories.emplace_back(here.allocate(m.bytes + kAlignment));
  const auto padded = [](const State::Memory& m) { return std::string(m.at, '\0') + m.before; };
  std::vector<device::Launch> launches;
  std::vector<std::vector<void*>> pointers(s.sets.size());
  for (std::size_t i = 0; i < s.sets.size(); ++i) {
    launches.push_back(s.sets[i].launch);
    launches.back().code = code;
    for (const RunBuffer& b : s.sets[i].buffers) {
      const auto m = static_cast<std::size_t>(std::max(b.memory, 0));
      pointers[i].push_back(b.memory < 0 ? nullptr : memories[m]->data + s.memories[m].at + b.offset);
    }
  }
  here.prepare(launches.front());
  std::vector<device::Bound> bound;
  for (std::size_t i = 0; i < launches.size(); ++i)
    bound.push_back({&launches[i], pointers[i].data(), s.sets[i].slots.data()});
  std::vector<double> seconds;
  for (int i = 0; i < std::max(times, 1); ++i) {
    for (std::size_t m = 0; m < memories.size(); ++m) {
      const std::string bytes = padded(s.memories[m]);
      here.write(*memories[m].get(), bytes.data(), bytes.size());
    }
    seconds.push_back(here.seconds([&] { here.launch(bound); }));
  }
  Result out;
  std::ranges::sort(seconds);
  out.seconds = seconds[seconds.size() / 2];
  for (std::size_t set = 0; set < s.sets.size(); ++set)
    for (std::size_t i = 0; i < s.sets[set].buffers.size(); ++i) {
      const RunBuffer& b = s.sets[set].buffers[i];
      if (!b.written || b.memory < 0) continue;
      const State::Memory& m = s.memories[static_cast<std::size_t>(b.memory)];
      std::string have(m.bytes, '\0');
      here.read(have.data(), *memories[static_cast<std::size_t>(b.memory)].get(),
                static_cast<std::int64_t>(m.at), m.bytes);
      out.differences.push_back(difference(b.dtype, reinterpret_cast<const std::byte*>(have.data()),
                                           reinterpret_cast<const std::byte*>(m.after.data()), m.bytes));
      out.differences.back().set = set;
      out.differences.back().buffer = i;
    }
  return out;
}

}  // namespace kiln::engine
