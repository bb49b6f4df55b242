#include "fuzz/targets.h"

#include "cache/cache_entry.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/zip.h"
#include "support/env.h"

#include <kiln/error.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace kiln::fuzz {
namespace {

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}
void expect(bool condition, const char* what) {
  if (!condition) broken(what);
}

std::span<const std::byte> as_bytes(Bytes input) { return std::as_bytes(input); }

/// A header that was accepted describes exactly the bytes that follow it: reads them all.
void read_array(io::Source& source, std::uint64_t most, const io::Where& where) {
  const io::NpyHeader header = io::read_npy_header(source, where);
  expect(header.bytes == source.remaining() && header.bytes <= most,
         "a .npy header that claims more than there is");
  const auto elements = std::make_unique<std::byte[]>(header.bytes);
  io::read_npy_elements(header, source, elements.get());
  expect(!is_bool(header.dtype) || io::are_bools(elements.get(), header.bytes), "a bool that is not 0 or 1");
}

void npy(Bytes input) try {
  io::SpanSource source(as_bytes(input));
  read_array(source, input.size(), {"load_npy", "input"});
} catch (const UserError&) {
}

std::vector<std::string> npy_seeds() {
  std::vector<std::string> out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    out.push_back(io::npy_header(dtype, {2, 3}) +
                  std::string(static_cast<std::size_t>(6 * size_of(dtype)), '\1'));
  }
  out.push_back(io::npy_header(DType::Float32, {}) + "abcd");
  const std::string text = "{'descr': '>i4', 'fortran_order': True, 'shape': (1, 2L), }\n";
  out.push_back(std::string("\x93NUMPY\2\0", 8) + static_cast<char>(text.size()) + std::string(3, '\0') +
                text + "abcdefgh");
  return out;
}

void npz(Bytes input) try {
  const io::ZipReader archive(as_bytes(input), {"load_npz", "input"});
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < archive.members().size(); ++i) {
    const std::uint64_t bytes = archive.members()[i].bytes;
    all += bytes;
    expect(bytes <= input.size() * 1100 && all <= input.size() * 1100,
           "members that claim more than can be packed");
    try {
      io::ZipSource source(archive, i);
      read_array(source, bytes, source.where());
      source.finish();
    } catch (const UserError&) {
    }
  }
} catch (const UserError&) {
}

std::vector<std::string> npz_seeds() {
  std::vector<std::string> out;
  for (bool compressed : {false, true}) {
    std::string name = "/tmp/kiln-fuzz-XXXXXX";
    const int file = mkstemp(name.data());
    expect(file >= 0, "a temporary file");
    const std::string elements(400, '\1');
    const io::ZipMember members[] = {
        {"a.npy", io::npy_header(DType::Float32, {10, 10}), elements.data(), 400},
        {"b.npy", io::npy_header(DType::Bool, {7}), elements.data(), 7}};
    io::write_zip(name, members, compressed, {"save_npz", name});
    io::InputFile written("load_npz", name);
    std::string bytes(written.size(), '\0');
    written.read(bytes.data(), bytes.size());
    out.push_back(bytes);
    std::remove(name.c_str());
  }
  return out;
}

void safetensors(Bytes input) try {
  const io::SafetensorsHeader header = io::parse_safetensors(as_bytes(input), {"load_safetensors", "input"});
  std::uint64_t at = 0;
  for (const io::SafetensorsEntry& e : header.entries) {
    expect(e.begin == at && e.begin <= e.end, "ranges with gaps");
    expect(e.end - e.begin == static_cast<std::uint64_t>(e.shape.numel() * size_of(e.dtype)),
           "a range of another size");
    at = e.end;
  }
  expect(header.data + at == input.size(), "ranges that end elsewhere than the file");
} catch (const UserError&) {
}

std::vector<std::string> safetensors_seeds() {
  std::vector<io::SafetensorsEntry> none, some;
  for (int i = 0; i < kDTypeCount; ++i)
    some.push_back({"t" + std::to_string(i), static_cast<DType>(i), {2, 3}, 0, 0});
  some.push_back({"scalar", DType::Float32, {}, 0, 0});
  some.push_back({"empty", DType::Float64, {0, 5}, 0, 0});
  const io::Where where{"save_safetensors", "seed"};
  const std::string header = io::safetensors_header(some, {{"format", "pt"}}, where);
  return {io::safetensors_header(none, {}, where), header + std::string(some.back().end, '\1')};
}

/// name=value, one variable a line.
void environment(Bytes input) try {
  std::vector<std::pair<std::string, std::string>> variables;
  std::string_view rest(reinterpret_cast<const char*>(input.data()), input.size());
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t sign = std::min(line.find('='), line.size());
    variables.emplace_back(line.substr(0, sign), line.substr(std::min(sign + 1, line.size())));
  }
  const Config config = parse_environment(variables);
  // What was accepted says itself in words that are accepted, too.
  std::vector<std::pair<std::string, std::string>> again;
  for (const EnvironmentRow& row : environment_rows(config)) again.emplace_back(row.name, row.value);
  try {
    parse_environment(again);
  } catch (const UserError& e) {
    broken(e.what());
  }
} catch (const UserError& e) {
  const std::string_view what = e.what();
  expect(what.find('\n') == what.npos && what.size() < 500, "an error of more than one short line");
}

std::vector<std::string> environment_seeds() {
  std::string all;
  for (const EnvironmentRow& row : environment_rows(Config{})) all += row.name + "=" + row.value + "\n";
  return {all, "KILN_MODE=eager\nKILN_DEVICE=cuda:3\nKILN_LOG=plan,cache\nKILN_CACHE_MAX=512M\n",
          "KILN_CHECK=nan,diff\nKILN_DUMP=dir\nKILN_DUMP_STAGES=ll,asm\nKILN_DUMP_FILTER=soft.*|a+[b-c]\n",
          "KILN_EXPLAIN=why.json\nKILN_NUM_THREADS=5\nKILN_CPU=avx2\nKILN_DEBUG=5\nPATH=/bin\n"};
}

void cache_entry(Bytes input) {
  const auto entry = engine::decode_entry(input);
  if (!entry) return;
  // Only what the encoder writes is an entry.
  const auto again = engine::encode_entry(entry->key, entry->payload);
  expect(std::equal(again.begin(), again.end(), input.begin(), input.end()),
         "an entry that encodes to other bytes");
}

std::vector<std::string> cache_entry_seeds() {
  std::vector<std::string> out;
  for (const auto& [key, payload] : {std::pair("", ""), std::pair("key", "a kernel"), std::pair("k", "")}) {
    const auto bytes = engine::encode_entry(key, payload);
    out.emplace_back(bytes.begin(), bytes.end());
  }
  return out;
}

constexpr Target kTargets[] = {
    {"npy", npy, npy_seeds},
    {"npz", npz, npz_seeds},
    {"safetensors", safetensors, safetensors_seeds},
    {"environment", environment, environment_seeds},
    {"cache_entry", cache_entry, cache_entry_seeds},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace kiln::fuzz
