#include "cache/cache_bundle.h"

#include "cache/cache_entry.h"
#include "support/check.h"

#include <kiln/error.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::engine {
namespace {

constexpr std::string_view kMagic = "kiln cache bundle 1\n";
constexpr std::size_t kPart = std::size_t{1} << 20;  // what is read at once: a size may be a lie

[[noreturn]] void damaged(std::size_t entry) {
  throw UserError(cat("[cache] the bundle is damaged at entry ", entry, "; nothing was imported"));
}

/// `size` bytes, or false.
bool read(std::istream& in, std::size_t size, std::vector<std::uint8_t>& out) {
  out.clear();
  while (out.size() < size) {
    const std::size_t at = out.size(), part = std::min(kPart, size - at);
    out.resize(at + part);
    if (!in.read(reinterpret_cast<char*>(out.data() + at), static_cast<std::streamsize>(part))) return false;
  }
  return true;
}

}  // namespace

std::size_t export_bundle(DiskCache& cache, std::ostream& out) {
  out << kMagic;
  std::size_t count = 0;
  for (const DiskCache::Entry& e : cache.list()) {
    if (!e.valid) continue;
    const auto payload = cache.get(e.key);
    if (!payload) continue;  // another process removed it meanwhile
    const std::vector<std::uint8_t> bytes =
        encode_entry(e.key, {reinterpret_cast<const char*>(payload->data()), payload->size()});
    const std::uint64_t size = bytes.size();
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ++count;
  }
  if (!out.flush()) throw UserError("[cache] the bundle cannot be written");
  return count;
}

std::size_t import_bundle(DiskCache& cache, std::istream& in) {
  std::vector<std::uint8_t> bytes;
  if (!read(in, kMagic.size(), bytes) || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw UserError("[cache] this is no bundle of kiln cache export");
  std::vector<std::vector<std::uint8_t>> entries;
  for (;;) {
    std::uint64_t size = 0;
    in.read(reinterpret_cast<char*>(&size), sizeof size);
    if (in.gcount() == 0) break;
    if (!in || size > kMaxEntryBytes || !read(in, size, bytes) || !decode_entry(bytes))
      damaged(entries.size() + 1);
    entries.push_back(bytes);
  }
  for (const std::vector<std::uint8_t>& entry : entries) {
    const EntryView view = *decode_entry(entry);
    cache.put(view.key, view.payload);
  }
  return entries.size();
}

}  // namespace kiln::engine
