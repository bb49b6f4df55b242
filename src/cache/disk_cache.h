// The disk cache: key bytes → payload bytes, shared by any number of processes, safe against every fault of
// FAULTS 1–16. An entry is header + full key + payload + checksum; it is written to a temporary file and
// renamed. Any doubt about an entry is a miss (and the entry is deleted). Nothing here throws: a cache that
// cannot work warns once and becomes a memory-only cache.
#pragma once

#include "support/hash128.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::engine {

struct DiskCacheOptions {
  enum class Mode { Off, ReadOnly, ReadWrite } mode = Mode::ReadWrite;
  std::string directory;                             // empty: $XDG_CACHE_HOME/kiln or ~/.cache/kiln
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  // least recently used entries beyond it are removed
};

class DiskCache {
 public:
  struct Stat {
    std::uint64_t entries = 0, bytes = 0, hits = 0, misses = 0, writes = 0, rejected = 0;
  };

  /// Never throws. When the directory is unusable (FAULTS 8, 10) logs one line and serves misses.
  explicit DiskCache(DiskCacheOptions options);
  ~DiskCache();

  /// False when off or unusable; reason() then says why in one line.
  bool usable() const;
  const std::string& reason() const;
  const std::string& directory() const;

  /// The payload stored under exactly this key (compared in full), or nothing.
  std::optional<std::vector<std::uint8_t>> get(std::string_view key);
  /// Stores; failures (ENOSPC, EIO, permissions) are one warning a process. Evicts beyond max_bytes.
  void put(std::string_view key, std::string_view payload);

  // For `kiln cache …`.
  struct Entry {
    std::string file;
    std::string key;
    std::uint64_t bytes = 0;
    std::int64_t last_used = 0;  // seconds since the epoch
    bool valid = false;
  };
  std::vector<Entry> list() const;
  /// Removes least recently used entries until at most max_bytes remain (0: all). Returns entries removed.
  std::size_t prune(std::uint64_t max_bytes);
  Stat stat() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::engine
