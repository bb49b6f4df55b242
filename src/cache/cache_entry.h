// The bytes of one file of the disk cache:
//
//   offset  size
//        0     8  magic "KILNCACH"
//        8     4  format version
//       12     4  size of this header
//       16     8  key size
//       24     8  payload size
//       32     k  key, in full
//     32+k     p  payload
//   32+k+p    16  XXH3-128 of all bytes before it
//
// Numbers are in the host's byte order: a cache that another byte order wrote has another version, so it is a
// miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kiln::engine {

/// Larger files are never read and never written: a kernel is some kilobytes.
inline constexpr std::size_t kMaxEntryBytes = std::size_t{256} << 20;

/// What an entry of these sizes takes on disk; nothing when it is beyond kMaxEntryBytes.
std::optional<std::size_t> entry_bytes(std::size_t key_bytes, std::size_t payload_bytes);

/// Precondition: entry_bytes(key.size(), payload.size()) is a size.
std::vector<std::uint8_t> encode_entry(std::string_view key, std::string_view payload);

struct EntryView {
  std::string_view key, payload;  // into the bytes decoded
};
/// Nothing unless every byte is as encode_entry wrote it. Allocates nothing; trusts no size before checking
/// it.
std::optional<EntryView> decode_entry(std::span<const std::uint8_t> bytes);

}  // namespace kiln::engine
