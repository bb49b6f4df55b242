#include "cache/cache_entry.h"

#include "support/check.h"
#include "support/hash128.h"

#include <cstring>

namespace kiln::engine {
namespace {

constexpr char kMagic[8] = {'K', 'I', 'L', 'N', 'C', 'A', 'C', 'H'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t key_bytes;
  std::uint64_t payload_bytes;
};
static_assert(sizeof(Header) == 32);
static_assert(sizeof(Hash128) == 16);
constexpr std::size_t kFrameBytes = sizeof(Header) + sizeof(Hash128);

}  // namespace

std::optional<std::size_t> entry_bytes(std::size_t key_bytes, std::size_t payload_bytes) {
  if (key_bytes > kMaxEntryBytes || payload_bytes > kMaxEntryBytes) return std::nullopt;
  const std::size_t bytes = kFrameBytes + key_bytes + payload_bytes;
  return bytes <= kMaxEntryBytes ? std::optional(bytes) : std::nullopt;
}

std::vector<std::uint8_t> encode_entry(std::string_view key, std::string_view payload) {
  const auto bytes = entry_bytes(key.size(), payload.size());
  KILN_CHECK_THAT(bytes, "key of ", key.size(), " bytes, payload of ", payload.size());
  std::vector<std::uint8_t> out(*bytes);
  std::uint8_t* end = out.data();
  const auto append = [&end](const void* data, std::size_t n) {
    if (n) std::memcpy(end, data, n);
    end += n;
  };
  Header header{{}, kVersion, sizeof(Header), key.size(), payload.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  append(&header, sizeof header);
  append(key.data(), key.size());
  append(payload.data(), payload.size());
  const Hash128 checksum = hash128(out.data(), out.size() - sizeof(Hash128));
  append(&checksum, sizeof checksum);
  return out;
}

std::optional<EntryView> decode_entry(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kFrameBytes || bytes.size() > kMaxEntryBytes) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.version != kVersion ||
      header.header_bytes != sizeof(Header))
    return std::nullopt;
  const std::size_t body = bytes.size() - kFrameBytes;
  if (header.key_bytes > body || header.payload_bytes != body - header.key_bytes) return std::nullopt;
  Hash128 checksum;
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof checksum, sizeof checksum);
  if (hash128(bytes.data(), bytes.size() - sizeof checksum) != checksum) return std::nullopt;
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(Header);
  return EntryView{{text, header.key_bytes}, {text + header.key_bytes, header.payload_bytes}};
}

}  // namespace kiln::engine
