// Cache faults, one test or more each; the number after F is the fault's. Faults 11 to 15 are the caller's:
// they are in the key, so the tests here show that every byte of a key counts.
#include "cache/disk_cache.h"

#include "cache/cache_entry.h"
#include "cache/temporary_directory.h"
#include "support/hash128.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace kiln::engine {
namespace {

namespace fs = std::filesystem;
using testing::in_child;
using testing::start_child;
using testing::TemporaryDirectory;
using testing::wait_child;
using Mode = DiskCacheOptions::Mode;

constexpr uid_t kNobody = 65534;
constexpr int kCannotMount = 77;

std::string text(const std::optional<std::vector<std::uint8_t>>& bytes) {
  return bytes ? std::string(bytes->begin(), bytes->end()) : "nothing";
}

std::string slurp(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

std::size_t lines(const std::string& s) {
  return static_cast<std::size_t>(std::count(s.begin(), s.end(), '\n'));
}

std::vector<std::string> temporaries(const std::string& directory) {
  std::vector<std::string> out;
  for (const auto& file : fs::directory_iterator(directory))
    if (file.path().filename().string().starts_with(".tmp-")) out.push_back(file.path());
  return out;
}

class DiskCacheFaults : public ::testing::Test {
 protected:
  const TemporaryDirectory tmp_;
  const std::string path_ = tmp_ / "kiln";

  DiskCache open() const { return DiskCache({Mode::ReadWrite, path_}); }
  std::string file_of(const std::string& key) const { return path_ + "/" + hash128(key).hex() + ".kiln"; }

  /// A damaged entry is a miss, is deleted, and can be written again.
  void expect_rebuilt(DiskCache& cache, const std::string& why) {
    ASSERT_EQ(text(cache.get("key")), "nothing") << why;
    struct stat info{};
    ASSERT_NE(lstat(file_of("key").c_str(), &info), 0) << why;
    cache.put("key", "payload");
    ASSERT_EQ(text(cache.get("key")), "payload") << why;
  }

  /// Runs `body` in a child with its stderr in a file; returns what it wrote.
  template <class Body>
  std::string stderr_of(int expected_code, Body&& body) {
    const std::string file = tmp_ / "stderr";
    spill(file, "");
    ::chmod(file.c_str(), 0666);
    EXPECT_EQ(in_child([&] {
                const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND);
                dup2(fd, 2);
                return body();
              }),
              expected_code)
        << slurp(file);
    return slurp(file);
  }
};

/// In a child: a small tmpfs over `directory` that nobody else sees and that goes with the process.
bool mount_private(const std::string& directory, const char* options, unsigned long flags = 0) {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  const bool root = geteuid() == 0;
  if (unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (!root) {  // the user keeps its number, or it could own no file
    spill("/proc/self/setgroups", "deny");
    spill("/proc/self/uid_map", uid + " " + uid + " 1");
    spill("/proc/self/gid_map", gid + " " + gid + " 1");
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("tmpfs", directory.c_str(), "tmpfs", flags, options) == 0;
}

TEST_F(DiskCacheFaults, F01_EmptyOrTruncatedEntryIsRebuilt) {
  DiskCache cache = open();
  cache.put("key", "payload");
  const std::string whole = slurp(file_of("key"));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    spill(file_of("key"), whole.substr(0, n));
    expect_rebuilt(cache, "first " + std::to_string(n) + " bytes");
  }
  spill(file_of("key"), whole + "x");
  expect_rebuilt(cache, "one byte more");
  EXPECT_EQ(cache.stat().rejected, whole.size() + 1);
}

TEST_F(DiskCacheFaults, F02_BitFlipAnywhereIsAMiss) {
  DiskCache cache = open();
  cache.put("key", "payload");
  const std::string whole = slurp(file_of("key"));
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      spill(file_of("key"), damaged);
      expect_rebuilt(cache, "byte " + std::to_string(i) + " bit " + std::to_string(bit));
    }
}

TEST_F(DiskCacheFaults, F02_AbsurdLengthsUnderARightChecksumAreAMiss) {
  DiskCache cache = open();
  cache.put("key", "payload");
  const std::string whole = slurp(file_of("key"));
  for (const std::size_t offset : {16u, 24u})  // key size, payload size
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1} << 31, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      std::string forged = whole;
      std::memcpy(forged.data() + offset, &size, sizeof size);
      const Hash128 checksum = hash128(forged.data(), forged.size() - sizeof(Hash128));
      std::memcpy(forged.data() + forged.size() - sizeof checksum, &checksum, sizeof checksum);
      spill(file_of("key"), forged);
      expect_rebuilt(cache, "size " + std::to_string(size) + " at " + std::to_string(offset));
    }
}

TEST_F(DiskCacheFaults, F02_AHugeFileIsNotReadIntoMemory) {
  DiskCache cache = open();
  spill(file_of("key"), "x");
  fs::resize_file(file_of("key"), std::uintmax_t{1} << 40);  // sparse: a terabyte of nothing
  expect_rebuilt(cache, "a terabyte");
}

TEST_F(DiskCacheFaults, F02_RandomBytesAreAMiss) {
  DiskCache cache = open();
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 300, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    spill(file_of("key"), bytes);
    expect_rebuilt(cache, "random " + std::to_string(i));
  }
}

TEST_F(DiskCacheFaults, F03_AWriterKilledHalfWayLeavesNoHarm) {
  DiskCache cache = open();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(in_child([&] {
                const rlimit half{50'000, 50'000}, no_core{0, 0};
                setrlimit(RLIMIT_CORE, &no_core);
                setrlimit(RLIMIT_FSIZE, &half);  // the kernel kills the writer at this byte
                cache.put("key", std::string(100'000, 'x'));
                return 0;
              }),
              -SIGXFSZ);
    EXPECT_EQ(text(cache.get("key")), "nothing");
  }
  ASSERT_EQ(temporaries(path_).size(), 4u);
  cache.put("key", "payload");
  EXPECT_EQ(text(cache.get("key")), "payload");

  // An hour later the leavings go; a living writer's file stays.
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(utimensat(AT_FDCWD, temporaries(path_)[static_cast<std::size_t>(i)].c_str(), old, 0), 0);
  cache.prune(1 << 20);
  EXPECT_EQ(temporaries(path_).size(), 1u);
  EXPECT_EQ(text(cache.get("key")), "payload");
}

TEST_F(DiskCacheFaults, F03_AWriterKilledAtAnyMomentLeavesNoHarm) {
  std::mt19937 random(1);
  const std::string payload(200'000, 'x');
  for (int i = 0; i < 20; ++i) {
    const pid_t writer = start_child([&] {
      DiskCache cache = open();
      for (;;) cache.put("key", payload);
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    kill(writer, SIGKILL);
    EXPECT_EQ(wait_child(writer), -SIGKILL);
    DiskCache cache = open();
    const auto got = cache.get("key");
    EXPECT_TRUE(!got || text(got) == payload);
    EXPECT_EQ(cache.stat().rejected, 0u);
    cache.put("key", payload);
    EXPECT_EQ(text(cache.get("key")), payload);
  }
}

TEST_F(DiskCacheFaults, F04_SixteenProcessesWithOneColdKeyAreAllRightAndLeaveOneFile) {
  const std::string payload(50'000, 'p');
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i)
    children.push_back(start_child([&] {
      DiskCache cache = open();  // the directory is cold too
      if (!cache.usable()) return 1;
      const auto before = cache.get("key");
      if (before && text(before) != payload) return 2;
      if (!before) cache.put("key", payload);
      return text(cache.get("key")) == payload && cache.stat().rejected == 0 ? 0 : 3;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_child(child), 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), fs::directory_iterator()), 1);
}

TEST_F(DiskCacheFaults, F05_HalvesOfTwoWritersNeverMix) {
  std::vector<pid_t> writers;
  for (const char letter : {'a', 'b', 'c'})
    writers.push_back(start_child([&, letter] {
      DiskCache cache = open();
      for (;;) cache.put("key", std::string(100'000 + letter, letter));
      return 0;
    }));
  DiskCache cache = open();
  std::set<char> seen;
  int hits = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    const auto got = cache.get("key");
    if (!got) continue;
    ++hits;
    const std::string bytes = text(got);
    EXPECT_EQ(bytes, std::string(bytes.size(), bytes[0]));
    EXPECT_EQ(bytes.size(), 100'000u + static_cast<unsigned>(bytes[0]));
    seen.insert(bytes[0]);
  }
  for (const pid_t writer : writers) kill(writer, SIGKILL);
  for (const pid_t writer : writers) EXPECT_EQ(wait_child(writer), -SIGKILL);
  EXPECT_GT(hits, 10);
  EXPECT_GE(seen.size(), 2u);
  EXPECT_EQ(cache.stat().rejected, 0u);
}

TEST_F(DiskCacheFaults, F06_ForkedCopiesUseDistinctTemporaryNames) {
  DiskCache cache = open();
  cache.put("warm", "so that every state a name comes from exists before the fork");
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i)
    children.push_back(start_child([&] {
      const rlimit half{5'000, 5'000}, no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      setrlimit(RLIMIT_FSIZE, &half);  // killed while it writes: the temporary file stays to be counted
      cache.put("key", std::string(10'000, 'x'));
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_child(child), -SIGXFSZ);
  EXPECT_EQ(temporaries(path_).size(), 16u);
}

TEST_F(DiskCacheFaults, F07_AFullDiskIsOneWarning) {
  fs::create_directory(path_);
  ::chmod(path_.c_str(), 0700);
  bool mounted = true;
  const std::string warnings = stderr_of(0, [&] {
    if (!mount_private(path_, "size=64k,mode=0700")) return (spill(tmp_ / "unmounted", ""), 0);
    DiskCache cache = open();
    cache.put("small", "payload");
    for (int i = 0; i < 3; ++i) cache.put("large", std::string(200'000, 'x'));
    if (text(cache.get("large")) != "nothing") return 2;
    if (text(cache.get("small")) != "payload") return 3;
    if (!temporaries(path_).empty()) return 4;
    cache.prune(0);
    cache.put("later", "there is room again");
    return text(cache.get("later")) == "there is room again" ? 0 : 5;
  });
  mounted = !fs::exists(tmp_ / "unmounted");
  if (!mounted) GTEST_SKIP() << "no right to mount a small tmpfs: ENOSPC is not tested here";
  EXPECT_EQ(lines(warnings), 1u) << warnings;
  EXPECT_NE(warnings.find("No space left on device"), warnings.npos) << warnings;
}

TEST_F(DiskCacheFaults, F07_AFailingWriteIsOneWarning) {
  const std::string warnings = stderr_of(0, [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20'000, 20'000};
    setrlimit(RLIMIT_FSIZE, &limit);  // write() says EFBIG as it would say ENOSPC or EIO: after some bytes
    DiskCache cache = open();
    for (int i = 0; i < 3; ++i) cache.put("key", std::string(100'000, 'x'));
    if (text(cache.get("key")) != "nothing" || !temporaries(path_).empty()) return 2;
    cache.put("small", "payload");
    return text(cache.get("small")) == "payload" ? 0 : 3;
  });
  EXPECT_EQ(lines(warnings), 1u) << warnings;
  EXPECT_NE(warnings.find("cannot write in " + path_ + ": File too large"), warnings.npos) << warnings;
}

TEST_F(DiskCacheFaults, F08_WithoutHomeMemoryOnly) {
  const std::string warnings = stderr_of(0, [&] {
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    DiskCache cache({Mode::ReadWrite, ""}), again({Mode::ReadWrite, ""});
    cache.put("key", "payload");
    return !cache.usable() && !cache.reason().empty() && !cache.get("key") ? 0 : 1;
  });
  EXPECT_EQ(warnings,
            "[kiln] warning: disk cache: neither XDG_CACHE_HOME nor HOME names a directory; new kernels "
            "stay in memory\n");
}

TEST_F(DiskCacheFaults, F08_TheDirectoryIsUnderXdgCacheHomeThenHome) {
  EXPECT_EQ(in_child([&] {
              setenv("HOME", tmp_.path().c_str(), 1);
              unsetenv("XDG_CACHE_HOME");
              if (DiskCache({Mode::ReadWrite, ""}).directory() != tmp_ / ".cache/kiln") return 1;
              setenv("XDG_CACHE_HOME", (tmp_ / "xdg").c_str(), 1);
              if (DiskCache({Mode::ReadWrite, ""}).directory() != tmp_ / "xdg/kiln") return 2;
              setenv("XDG_CACHE_HOME", "relative", 1);
              if (DiskCache({Mode::ReadWrite, ""}).directory() != tmp_ / ".cache/kiln") return 3;
              return 0;
            }),
            0);
}

TEST_F(DiskCacheFaults, F08_AUserWithoutPasswordEntryIsMemoryOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot become a user without a passwd entry";
  ::chmod(tmp_.path().c_str(), 0755);
  const std::string warnings = stderr_of(0, [&] {
    if (setuid(54321) != 0) return 9;
    setenv("HOME", "/", 1);  // what container runtimes set for such a user
    unsetenv("XDG_CACHE_HOME");
    DiskCache cache({Mode::ReadWrite, ""});
    cache.put("key", "payload");
    return !cache.usable() && !cache.get("key") ? 0 : 1;
  });
  EXPECT_EQ(lines(warnings), 1u) << warnings;
}

TEST_F(DiskCacheFaults, F08_AReadOnlyHomeIsMemoryOnly) {
  const std::string warnings = stderr_of(0, [&] {
    fs::create_directory(tmp_ / "home");
    ::chmod(tmp_.path().c_str(), 0755);
    if (geteuid() == 0 && (chown((tmp_ / "home").c_str(), kNobody, kNobody) != 0 || setuid(kNobody) != 0))
      return 9;
    ::chmod((tmp_ / "home").c_str(), 0500);
    setenv("HOME", (tmp_ / "home").c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
    DiskCache cache({Mode::ReadWrite, ""});
    cache.put("key", "payload");
    return !cache.usable() && !cache.get("key") ? 0 : 1;
  });
  EXPECT_EQ(lines(warnings), 1u) << warnings;
  EXPECT_NE(warnings.find("Permission denied"), warnings.npos) << warnings;
}

TEST_F(DiskCacheFaults, F08_AReadOnlyDirectoryIsReadButNotWritten) {
  const std::string warnings = stderr_of(0, [&] {
    fs::create_directory(path_);
    ::chmod(tmp_.path().c_str(), 0755);
    if (geteuid() == 0 && (chown(path_.c_str(), kNobody, kNobody) != 0 || setuid(kNobody) != 0)) return 9;
    open().put("key", "payload");
    ::chmod(path_.c_str(), 0500);
    DiskCache cache = open();
    cache.put("other", "payload");
    return text(cache.get("key")) == "payload" && !cache.get("other") ? 0 : 1;
  });
  ::chmod(path_.c_str(), 0700);  // so that it can be removed
  EXPECT_EQ(warnings, "[kiln] warning: disk cache: " + path_ + " is read-only; new kernels stay in memory\n");
}

TEST_F(DiskCacheFaults, F09_ANoexecFileSystemWorks) {
  fs::create_directory(path_);
  ::chmod(path_.c_str(), 0700);
  const int code = in_child([&] {
    if (!mount_private(path_, "size=1m,mode=0700", MS_NOEXEC | MS_NOSUID | MS_NODEV)) return kCannotMount;
    DiskCache cache = open();
    cache.put("key", "payload");
    return text(cache.get("key")) == "payload" ? 0 : 1;
  });
  if (code == kCannotMount) GTEST_SKIP() << "no right to mount: noexec is not tested here";
  EXPECT_EQ(code, 0);
}

TEST_F(DiskCacheFaults, F10_ASymbolicLinkForTheDirectoryIsRefused) {
  fs::create_directory(tmp_ / "real");
  ::chmod((tmp_ / "real").c_str(), 0700);
  fs::create_directory_symlink(tmp_ / "real", path_);
  for (const std::string& spelling : {path_, path_ + "/", path_ + "/.", path_ + "//"}) {
    DiskCache cache({Mode::ReadWrite, spelling});
    EXPECT_FALSE(cache.usable()) << spelling;
    EXPECT_EQ(cache.reason(), path_ + " is a symbolic link");
    cache.put("key", "payload");
    EXPECT_FALSE(cache.get("key"));
  }
  EXPECT_TRUE(fs::is_empty(tmp_ / "real"));
}

TEST_F(DiskCacheFaults, F10_ADirectoryThatOthersMayWriteIsRefused) {
  fs::create_directory(path_);
  for (const mode_t mode : {0770, 0702, 0777, 01777}) {
    ::chmod(path_.c_str(), mode);
    EXPECT_FALSE(open().usable()) << std::oct << mode;
    EXPECT_NE(open().reason().find("is writable by other users"), std::string::npos);
    EXPECT_FALSE(DiskCache({Mode::ReadOnly, path_}).usable());
  }
  ::chmod(path_.c_str(), 0755);
  EXPECT_TRUE(open().usable());
}

TEST_F(DiskCacheFaults, F10_ADirectoryOfAnotherUserIsRefusedWithOneLine) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot give a directory away";
  fs::create_directory(path_);
  ASSERT_EQ(chown(path_.c_str(), kNobody, kNobody), 0);
  const std::string of_nobody = stderr_of(0, [&] { return !open().usable() && !open().usable() ? 0 : 1; });
  EXPECT_EQ(of_nobody, "[kiln] warning: disk cache: " + path_ +
                           " belongs to user 65534, not to user 0; new kernels stay in memory\n");
  ASSERT_EQ(chown(path_.c_str(), 0, 0), 0);
  ::chmod(path_.c_str(), 0755);
  ::chmod(tmp_.path().c_str(), 0755);
  const std::string of_root = stderr_of(0, [&] { return setuid(kNobody) == 0 && !open().usable() ? 0 : 1; });
  EXPECT_NE(of_root.find("belongs to user 0, not to user 65534"), of_root.npos) << of_root;
  EXPECT_EQ(lines(of_root), 1u) << of_root;
}

TEST_F(DiskCacheFaults, F10_RootLeavesNothingInTheHomeOfAUser) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  fs::create_directory(tmp_ / "home");
  ASSERT_EQ(chown((tmp_ / "home").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(in_child([&] {
              setenv("HOME", (tmp_ / "home").c_str(), 1);
              unsetenv("XDG_CACHE_HOME");
              return DiskCache({Mode::ReadWrite, ""}).usable() ? 1 : 0;
            }),
            0);
  EXPECT_TRUE(fs::is_empty(tmp_ / "home"));
}

TEST_F(DiskCacheFaults, F10_AFileInTheDirectorysPlaceIsRefused) {
  spill(path_, "a file");
  DiskCache cache = open();
  EXPECT_FALSE(cache.usable());
  EXPECT_EQ(cache.reason(), "cannot open " + path_ + ": Not a directory");
}

TEST_F(DiskCacheFaults, F10_AnEntryThatIsNoPlainFileOfOursIsRebuilt) {
  DiskCache cache = open();
  cache.put("key", "payload");
  fs::rename(file_of("key"), tmp_ / "elsewhere");
  fs::create_symlink(tmp_ / "elsewhere", file_of("key"));
  expect_rebuilt(cache, "a symbolic link to a good entry");
  EXPECT_TRUE(fs::exists(tmp_ / "elsewhere"));
  fs::remove(file_of("key"));
  ASSERT_EQ(mkfifo(file_of("key").c_str(), 0600), 0);
  expect_rebuilt(cache, "a FIFO must not hang");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(file_of("key").c_str(), kNobody, kNobody), 0);
  expect_rebuilt(cache, "another user's file");
}

TEST_F(DiskCacheFaults, F10_AnEntryThatOthersMayWriteIsRebuilt) {
  DiskCache cache = open();
  cache.put("key", "payload");
  ::chmod(path_.c_str(), 0755);  // others may reach the entry
  for (const mode_t mode : {0666, 0620, 0602, 0660}) {
    ::chmod(file_of("key").c_str(), mode);
    expect_rebuilt(cache, "an entry that others may write");
    struct stat info{};
    ASSERT_EQ(lstat(file_of("key").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
  }
  ::chmod(file_of("key").c_str(), 0644);
  EXPECT_EQ(text(cache.get("key")), "payload") << "others may read it";
}

TEST_F(DiskCacheFaults, F10_ADirectoryThatOthersMayReplaceIsRefused) {
  const std::string above = tmp_ / "above", inner = above + "/inner", own = inner + "/kiln";
  fs::create_directories(own);
  ::chmod(own.c_str(), 0700);
  const auto usable = [&] { return DiskCache({Mode::ReadWrite, own}).usable(); };
  const auto reason = [&] { return DiskCache({Mode::ReadWrite, own}).reason(); };
  const std::string why = "other users may replace what is in " + above + ", which " + own + " lies in";
  for (const mode_t mode : {0777, 0702, 0703}) {
    ::chmod(above.c_str(), mode);
    EXPECT_FALSE(usable()) << std::oct << mode;
    EXPECT_EQ(reason(), why);
  }
  for (const mode_t mode : {01777, 0755, 0700}) {
    ::chmod(above.c_str(), mode);
    EXPECT_TRUE(usable()) << std::oct << mode;
  }
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot give a directory away";
  ::chmod(above.c_str(), 0770);
  EXPECT_TRUE(usable()) << "root's group";
  ASSERT_EQ(chown(above.c_str(), 0, kNobody), 0);
  EXPECT_FALSE(usable()) << "another group";
  ::chmod(above.c_str(), 0755);
  EXPECT_TRUE(usable());
  ASSERT_EQ(chown(above.c_str(), kNobody, 0), 0);
  EXPECT_EQ(reason(), why) << "its owner may give himself the right";
}

TEST_F(DiskCacheFaults, F10_ALinkOfAnotherUserOnTheWayIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot give a link away";
  fs::create_directories(tmp_ / "real/kiln");
  ::chmod((tmp_ / "real/kiln").c_str(), 0700);
  fs::create_directory_symlink(tmp_ / "real", tmp_ / "link");
  const std::string through = tmp_ / "link/kiln";
  EXPECT_TRUE(DiskCache({Mode::ReadWrite, through}).usable());
  ::chmod((tmp_ / "real").c_str(), 0777);
  EXPECT_FALSE(DiskCache({Mode::ReadWrite, through}).usable()) << "what the link leads to counts";
  ::chmod((tmp_ / "real").c_str(), 0755);
  ASSERT_EQ(lchown((tmp_ / "link").c_str(), kNobody, kNobody), 0);
  EXPECT_FALSE(DiskCache({Mode::ReadWrite, through}).usable());
}

TEST_F(DiskCacheFaults, F13_F14_F15_EveryByteOfTheKeyCounts) {
  DiskCache cache = open();
  const std::string key = "generator hash, compiler, cpu features, kernel";
  cache.put(key, "payload");
  for (std::size_t i = 0; i < key.size(); ++i) {
    std::string other = key;
    other[i] = static_cast<char>(other[i] + 1);
    EXPECT_FALSE(cache.get(other)) << i;
    // Even if the names of the files collide: the key in the entry is compared in full.
    fs::copy_file(file_of(key), file_of(other));
    EXPECT_FALSE(cache.get(other)) << i;
    EXPECT_FALSE(cache.get(key.substr(0, i))) << i;
  }
  EXPECT_EQ(text(cache.get(key)), "payload");
}

TEST_F(DiskCacheFaults, F16_EntriesEvictedWhileInUseDoNoHarm) {
  const pid_t remover = start_child([&] {
    DiskCache cache = open();
    for (;;) cache.prune(0);
    return 0;
  });
  DiskCache cache = open();
  int hits = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string key = "key" + std::to_string(i % 7), payload = key + std::string(20'000, 'p');
    cache.put(key, payload);
    const auto got = cache.get(key);
    if (got) {
      ++hits;
      EXPECT_EQ(text(got), payload);
    }
  }
  kill(remover, SIGKILL);
  EXPECT_EQ(wait_child(remover), -SIGKILL);
  EXPECT_EQ(cache.stat().rejected, 0u);
  EXPECT_EQ(cache.stat().writes, 3000u);
  EXPECT_GT(hits, 0);
}

TEST_F(DiskCacheFaults, F16_TheWholeDirectoryDeletedWhileInUseIsOneWarning) {
  const std::string warnings = stderr_of(0, [&] {
    DiskCache cache = open();
    cache.put("key", "payload");
    fs::remove_all(path_);
    for (int i = 0; i < 3; ++i) cache.put("key", "payload");
    return !cache.get("key") && cache.list().empty() && cache.prune(0) == 0 && cache.stat().bytes == 0 ? 0
                                                                                                       : 1;
  });
  EXPECT_EQ(lines(warnings), 1u) << warnings;
}

}  // namespace
}  // namespace kiln::engine
