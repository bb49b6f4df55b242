// What the disk cache does when all is well. What it survives is in disk_cache_faults_test.cpp.
#include "cache/disk_cache.h"

#include "allocated_bytes.h"
#include "cache/cache_entry.h"
#include "cache/temporary_directory.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace kiln::engine {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;
using Mode = DiskCacheOptions::Mode;

std::string text(const std::optional<std::vector<std::uint8_t>>& bytes) {
  return bytes ? std::string(bytes->begin(), bytes->end()) : "nothing";
}

/// Makes every entry look last used `seconds` ago.
void age(const std::string& file, std::int64_t seconds) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= seconds;
  const timespec times[2] = {now, now};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << file;
}

std::int64_t used_at(const std::string& file) {
  struct stat info{};
  EXPECT_EQ(lstat(file.c_str(), &info), 0) << file;
  return info.st_mtim.tv_sec;
}
std::int64_t seconds_since_use(const std::string& file) { return time(nullptr) - used_at(file); }

std::string only_file(const DiskCache& cache) {
  const auto entries = cache.list();
  EXPECT_EQ(entries.size(), 1u);
  return entries.empty() ? "" : cache.directory() + "/" + entries[0].file;
}

TEST(DiskCache, GivesBackWhatWasPut) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "a/b/kiln"});
  ASSERT_TRUE(cache.usable()) << cache.reason();
  EXPECT_EQ(cache.reason(), "");
  EXPECT_EQ(text(cache.get("key")), "nothing");
  cache.put("key", "payload");
  EXPECT_EQ(text(cache.get("key")), "payload");
  cache.put("key", "another");
  EXPECT_EQ(text(cache.get("key")), "another");
  const std::string zeros("\0k\0", 3);
  cache.put(zeros, zeros);
  EXPECT_EQ(text(cache.get(zeros)), zeros);
  EXPECT_EQ(text(cache.get(std::string("\0k", 2))), "nothing");
  cache.put("", "");
  EXPECT_EQ(text(cache.get("")), "");
  const std::string large(3'000'000, 'x');
  cache.put("large", large);
  EXPECT_EQ(text(cache.get("large")), large);
}

TEST(DiskCache, OutlivesTheObjectThatWrote) {
  const TemporaryDirectory tmp;
  DiskCache({Mode::ReadWrite, tmp / "kiln"}).put("key", "payload");
  EXPECT_EQ(text(DiskCache({Mode::ReadWrite, tmp / "kiln"}).get("key")), "payload");
  EXPECT_EQ(text(DiskCache({Mode::ReadOnly, tmp / "kiln"}).get("key")), "payload");
}

TEST(DiskCache, DirectoryAndFilesArePrivate) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "parent/kiln"});
  cache.put("key", "payload");
  struct stat info{};
  ASSERT_EQ(lstat((tmp / "parent/kiln").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(lstat(only_file(cache).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(DiskCache, OffServesMissesAndTouchesNothing) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::Off, tmp / "kiln"});
  EXPECT_FALSE(cache.usable());
  EXPECT_EQ(cache.reason(), "switched off");
  cache.put("key", "payload");
  EXPECT_EQ(text(cache.get("key")), "nothing");
  EXPECT_FALSE(fs::exists(tmp / "kiln"));
}

TEST(DiskCache, ReadOnlyModeNeverChangesTheDirectory) {
  const TemporaryDirectory tmp;
  std::string file;
  {
    DiskCache writer({Mode::ReadWrite, tmp / "kiln"});
    writer.put("key", "payload");
    file = only_file(writer);
  }
  age(file, 10000);
  DiskCache cache({Mode::ReadOnly, tmp / "kiln"});
  EXPECT_EQ(text(cache.get("key")), "payload");
  EXPECT_GT(seconds_since_use(file), 9000);
  cache.put("other", "payload");
  EXPECT_EQ(text(cache.get("other")), "nothing");
  fs::resize_file(file, 3);
  EXPECT_EQ(text(cache.get("key")), "nothing");
  EXPECT_TRUE(fs::exists(file));
  EXPECT_EQ(cache.prune(0), 0u);
}

TEST(DiskCache, ReadOnlyModeDoesNotMakeADirectory) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadOnly, tmp / "kiln"});
  EXPECT_FALSE(cache.usable());
  EXPECT_FALSE(fs::exists(tmp / "kiln"));
}

TEST(DiskCache, AHitIsMarkedAsUsedAtMostOnceAnHour) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln"});
  cache.put("key", "payload");
  const std::string file = only_file(cache);
  age(file, 1800);
  (void)cache.get("key");
  EXPECT_GT(seconds_since_use(file), 1700);
  age(file, 4000);
  const std::int64_t before = time(nullptr);
  (void)cache.get("key");
  EXPECT_GE(used_at(file), before - 1);  // files have a coarser clock
}

TEST(DiskCache, BeyondItsSizeTheLeastRecentlyUsedGo) {
  const TemporaryDirectory tmp;
  constexpr std::uint64_t kMax = 64 << 10;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln", kMax});
  const std::string payload(8000, 'x');
  const auto used = [&](const std::string& key, std::int64_t seconds) {
    for (const auto& e : cache.list())
      if (e.key == key) age(cache.directory() + "/" + e.file, seconds);
  };
  for (int i = 0; i < 7; ++i) {
    cache.put("key" + std::to_string(i), payload);
    used("key" + std::to_string(i), 20000 - 1000 * i);
  }
  EXPECT_EQ(cache.stat().entries, 7u);
  (void)cache.get("key0");  // the oldest is used again
  for (int i = 7; i < 10; ++i) {
    cache.put("key" + std::to_string(i), payload);
    EXPECT_LE(cache.stat().bytes, kMax);
    EXPECT_EQ(text(cache.get("key" + std::to_string(i))), payload);
  }
  EXPECT_EQ(text(cache.get("key0")), payload);
  EXPECT_EQ(text(cache.get("key1")), "nothing");
  EXPECT_EQ(text(cache.get("key2")), "nothing");
}

TEST(DiskCache, ManySmallEntriesStayBelowTheCap) {
  const TemporaryDirectory tmp;
  constexpr std::uint64_t kMax = 32 << 10;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln", kMax});
  for (int i = 0; i < 1000; ++i) {
    cache.put("key" + std::to_string(i), "a payload of some bytes");
    if (i % 50 == 0) {
      EXPECT_LE(cache.stat().bytes, kMax) << i;
    }
  }
  EXPECT_GT(cache.stat().bytes, kMax / 2);
}

TEST(DiskCache, ACapBelowOneEntryStoresNothing) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln", 20});
  cache.put("key", "payload");
  EXPECT_EQ(cache.stat().entries, 0u);
}

TEST(DiskCache, ListPruneAndStat) {
  const TemporaryDirectory tmp;
  const std::int64_t before = time(nullptr);
  DiskCache cache({Mode::ReadWrite, tmp / "kiln"});
  for (int i = 0; i < 5; ++i) cache.put("key" + std::to_string(i), std::string(100, 'x'));
  (void)cache.get("key0");
  (void)cache.get("absent");
  std::ofstream(tmp / "kiln/README") << "not ours";
  DiskCache::Stat stat = cache.stat();
  const std::uint64_t each = *entry_bytes(4, 100);
  EXPECT_EQ(stat.entries, 5u);
  EXPECT_EQ(stat.bytes, 5 * each);
  EXPECT_EQ(stat.hits, 1u);
  EXPECT_EQ(stat.misses, 1u);
  EXPECT_EQ(stat.writes, 5u);
  EXPECT_EQ(stat.rejected, 0u);
  for (const auto& e : cache.list()) {
    EXPECT_TRUE(e.valid);
    EXPECT_TRUE(e.key.starts_with("key")) << e.key;
    EXPECT_EQ(e.bytes, each);
    EXPECT_GE(e.last_used, before - 1);  // files have a coarser clock
    EXPECT_LE(e.last_used, time(nullptr));
    age(cache.directory() + "/" + e.file, 1000 + 100 * (e.key.back() - '0'));
  }
  EXPECT_EQ(cache.prune(2 * each), 3u);
  EXPECT_EQ(text(cache.get("key0")), std::string(100, 'x'));
  EXPECT_EQ(text(cache.get("key4")), "nothing");
  EXPECT_EQ(cache.prune(0), 2u);
  EXPECT_EQ(cache.stat().entries, 0u);
  EXPECT_TRUE(fs::exists(tmp / "kiln/README"));
}

TEST(DiskCache, ListShowsDamagedAndRenamedEntriesAsInvalid) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln"});
  cache.put("key", "payload");
  const std::string file = only_file(cache);
  const std::string other = cache.directory() + "/" + std::string(32, '0') + ".kiln";
  fs::rename(file, other);
  ASSERT_EQ(cache.list().size(), 1u);
  EXPECT_FALSE(cache.list()[0].valid);
  fs::rename(other, file);
  EXPECT_TRUE(cache.list()[0].valid);
  fs::resize_file(file, 50);
  EXPECT_FALSE(cache.list()[0].valid);
}

TEST(DiskCache, ThreadsShareOneObject) {
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln", 64 << 10});  // small: eviction runs all the time
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = "key" + std::to_string((i * 7 + t) % 20),
                          payload = key + std::string(5000, 'p');
        cache.put(key, payload);
        const auto got = cache.get(key);
        if (got && text(got) != payload) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.stat().rejected, 0u);
}

/// One read into memory of the entry's size. The time is kiln_micro's DiskCacheHit.
TEST(DiskCache, AHitCopiesItsEntryOnce) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const TemporaryDirectory tmp;
  DiskCache cache({Mode::ReadWrite, tmp / "kiln"});
  constexpr std::uint64_t kBytes = 16 << 10;
  cache.put("key", std::string(kBytes, 'x'));
  for (int i = 0; i < 3; ++i) {
    const testing::Allocated memory = testing::allocated_in([&] { EXPECT_TRUE(cache.get("key")); });
    EXPECT_LT(memory.bytes, kBytes + 4096);
  }
}

}  // namespace
}  // namespace kiln::engine
