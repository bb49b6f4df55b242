// The policy of the disk cache: names, verdicts, eviction, counters. The bytes of an entry are cache_entry's,
// the file system is cache_directory's.
//
// Invariant: an entry is served only after its checksum and its full key were compared; nothing here throws.
//
// Size: a scan of the directory costs some milliseconds, so it is amortised over the bytes written. Each
// process scans first after a random share of max/16 written bytes (short processes together scan once per
// max/16), then whenever its count says that the cap is reached or another max/16 were written. The cap can
// be passed by max/16 for every process that writes at the same time.
#include "cache/disk_cache.h"

#include "cache/cache_directory.h"
#include "cache/cache_entry.h"
#include "support/check.h"
#include "support/log.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <system_error>

namespace kiln::engine {
namespace {

constexpr std::string_view kSuffix = ".kiln";

std::string file_of(std::string_view key) { return hash128(key).hex().append(kSuffix); }

using Counter = std::atomic<std::uint64_t>;

void count(Counter& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

struct DiskCache::Impl {
  using Mode = DiskCacheOptions::Mode;

  explicit Impl(DiskCacheOptions options)
      : max_bytes(options.max_bytes),
        directory(std::move(options.directory), options.mode == Mode::ReadWrite) {
    std::random_device seed;
    budget = max_bytes / 16 ? seed() % (max_bytes / 16) : 0;
  }

  void reject(const std::string& file, const char* why) {
    count(rejected);
    if (log_enabled(Topic::Cache)) log(Topic::Cache, cat("disk cache: ", file, ": ", why, ": rebuilt"));
    if (directory.writable()) directory.remove(file.c_str());
  }

  std::optional<std::vector<std::uint8_t>> get(std::string_view key);
  void put(std::string_view key, std::string_view payload);
  /// Removes least recently used entries until `goal` bytes remain, never `keep`. Returns entries removed.
  std::size_t evict(std::vector<CacheFile> files, std::uint64_t goal, const std::string& keep,
                    std::uint64_t& left);
  void account(std::uint64_t bytes, const std::string& file);

  const std::uint64_t max_bytes;
  const CacheDirectory directory;
  Counter hits{0}, misses{0}, writes{0}, rejected{0};
  Counter unscanned{0};  // bytes written since the last scan
  Counter budget{0};     // bytes that may be written before the next
  std::mutex scanning;
};

std::optional<std::vector<std::uint8_t>> DiskCache::Impl::get(std::string_view key) {
  const std::string file = file_of(key);
  std::vector<std::uint8_t> bytes;
  switch (directory.read(file.c_str(), kMaxEntryBytes, directory.writable(), bytes)) {
    case CacheDirectory::Read::Absent: return std::nullopt;
    case CacheDirectory::Read::Bad: reject(file, "not a readable file of ours"); return std::nullopt;
    case CacheDirectory::Read::Ok: break;
  }
  const std::optional<EntryView> entry = decode_entry(bytes);
  if (!entry || entry->key != key) {
    reject(file, entry ? "another key" : "damaged");
    return std::nullopt;
  }
  const auto offset = entry->payload.data() - reinterpret_cast<const char*>(bytes.data());
  const std::size_t size = entry->payload.size();
  bytes.erase(bytes.begin(), bytes.begin() + offset);
  bytes.resize(size);
  return bytes;
}

void DiskCache::Impl::put(std::string_view key, std::string_view payload) {
  const auto size = entry_bytes(key.size(), payload.size());
  if (!size || *size > max_bytes) {
    log(Topic::Cache, "disk cache: entry larger than the cache: not stored");
    return;
  }
  const std::string file = file_of(key);
  if (const int error = directory.write(file.c_str(), encode_entry(key, payload))) {
    warn_once("disk_cache.write",
              cat("disk cache: cannot write in ", directory.path(), ": ",
                  std::generic_category().message(error), "; compiled kernels stay in memory"));
    return;
  }
  count(writes);
  account(*size, file);
}

void DiskCache::Impl::account(std::uint64_t bytes, const std::string& file) {
  if (unscanned.fetch_add(bytes) + bytes <= budget.load()) return;
  const std::unique_lock lock(scanning, std::try_to_lock);
  if (!lock) return;  // the thread that scans will see this entry, or the next put will
  unscanned.store(0);
  std::vector<CacheFile> files = directory.scan(kSuffix);
  std::uint64_t total = 0;
  for (const CacheFile& f : files) total += f.bytes;
  // Down to 7/8, or every put at the cap would scan.
  if (total > max_bytes) evict(std::move(files), max_bytes - max_bytes / 8, file, total);
  budget.store(std::min(max_bytes / 16, max_bytes - std::min(total, max_bytes)));
}

std::size_t DiskCache::Impl::evict(std::vector<CacheFile> files, std::uint64_t goal, const std::string& keep,
                                   std::uint64_t& left) {
  std::sort(files.begin(), files.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.used_ns < b.used_ns; });
  left = 0;
  for (const CacheFile& f : files) left += f.bytes;
  std::size_t removed = 0;
  for (const CacheFile& f : files) {
    if (left <= goal) break;
    if (f.name == keep) continue;
    removed += directory.remove(f.name.c_str());
    left -= f.bytes;  // also when another process was faster
  }
  if (removed) log(Topic::Cache, cat("disk cache: ", removed, " entries evicted, ", left, " bytes left"));
  return removed;
}

DiskCache::DiskCache(DiskCacheOptions options) {
  try {
    static constexpr auto kOff = DiskCacheOptions::Mode::Off;
    if (options.mode == kOff) return;
    impl_ = std::make_unique<Impl>(std::move(options));
    if (!reason().empty())
      warn_once("disk_cache.directory " + directory(),
                "disk cache: " + reason() + "; new kernels stay in memory");
  } catch (...) {
    impl_.reset();
  }
}

DiskCache::~DiskCache() = default;

bool DiskCache::usable() const { return impl_ && impl_->directory.usable(); }

const std::string& DiskCache::reason() const {
  static const std::string* const off = new std::string("switched off");
  return impl_ ? impl_->directory.reason() : *off;
}

const std::string& DiskCache::directory() const {
  static const std::string* const none = new std::string;
  return impl_ ? impl_->directory.path() : *none;
}

std::optional<std::vector<std::uint8_t>> DiskCache::get(std::string_view key) {
  if (!usable()) return std::nullopt;
  try {
    auto payload = impl_->get(key);
    count(payload ? impl_->hits : impl_->misses);
    return payload;
  } catch (...) {
    return std::nullopt;
  }
}

void DiskCache::put(std::string_view key, std::string_view payload) {
  if (!usable() || !impl_->directory.writable()) return;
  try {
    impl_->put(key, payload);
  } catch (...) {  // out of memory: the kernel is still in memory, only not on disk
  }
}

std::vector<DiskCache::Entry> DiskCache::list() const {
  std::vector<Entry> out;
  if (!usable()) return out;
  try {
    std::vector<std::uint8_t> bytes;
    for (CacheFile& file : impl_->directory.scan(kSuffix)) {
      Entry entry{std::move(file.name), {}, file.bytes, file.used_ns / 1'000'000'000, false};
      if (impl_->directory.read(entry.file.c_str(), kMaxEntryBytes, false, bytes) ==
          CacheDirectory::Read::Ok) {
        if (const auto decoded = decode_entry(bytes)) {
          entry.key = decoded->key;
          entry.valid = file_of(decoded->key) == entry.file;
        }
      }
      out.push_back(std::move(entry));
    }
  } catch (...) {
  }
  return out;
}

std::size_t DiskCache::prune(std::uint64_t max_bytes) {
  if (!usable() || !impl_->directory.writable()) return 0;
  try {
    std::uint64_t left = 0;
    return impl_->evict(impl_->directory.scan(kSuffix), max_bytes, "", left);
  } catch (...) {
    return 0;
  }
}

DiskCache::Stat DiskCache::stat() const {
  Stat out;
  if (!impl_) return out;
  out.hits = impl_->hits;
  out.misses = impl_->misses;
  out.writes = impl_->writes;
  out.rejected = impl_->rejected;
  if (!usable()) return out;
  try {
    for (const CacheFile& file : impl_->directory.scan(kSuffix)) {
      ++out.entries;
      out.bytes += file.bytes;
    }
  } catch (...) {
  }
  return out;
}

}  // namespace kiln::engine
