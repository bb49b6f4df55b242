#include "cache/cache_directory.h"

#include "support/check.h"
#include "support/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>

namespace kiln::engine {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStale = 3600 * kSecond;  // a writer needs milliseconds: an hour old means it died
constexpr std::int64_t kTouch = 3600 * kSecond;  // resolution of "recently used"

std::string message(int error) { return std::generic_category().message(error); }

std::int64_t nanoseconds(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

std::int64_t now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return nanoseconds(t);
}

/// An absolute path without a trailing slash: "link/" would be followed through the link.
std::string normal(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path p = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!p.has_filename() && p.has_parent_path()) p = p.parent_path();
  return p.string();
}

/// Makes missing parents and the directory itself, all 0700. Returns 0 or errno.
int make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error = errno;  // e.g. EROFS or EACCES although the directory is there
      struct stat info;
      if (::stat(part.c_str(), &info) != 0) return error;
    }
    if (slash == path.npos) return 0;
  }
}

/// Whether somebody else than this user and root can put other files into a directory, or other directories
/// into their parent's place. A sticky directory (/tmp) is safe for what is this user's. The group that has
/// the user's number is the user's own, by the convention of private groups, under which files are often made
/// writable by the group.
bool others_may_change(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != geteuid()) return true;
  if (!S_ISDIR(info.st_mode) || (info.st_mode & S_ISVTX)) return false;
  const bool own_group = info.st_gid == geteuid() || info.st_gid == 0;
  return (info.st_mode & S_IWOTH) || ((info.st_mode & S_IWGRP) && !own_group);
}

/// The first directory or link on the way to an absolute path, itself left out, that others may change;
/// empty: none.
std::string changeable_parent(const std::string& path) {
  for (std::size_t slash = 0; slash != path.npos; slash = path.find('/', slash + 1)) {
    const std::string part = slash == 0 ? "/" : path.substr(0, slash);
    struct stat info;
    if (lstat(part.c_str(), &info) != 0 || others_may_change(info)) return part;
  }
  return {};
}

/// pid at the time of the call, randomness and a counter: distinct after fork, between threads and hosts.
std::string temporary_name() {
  static std::atomic<unsigned> counter{0};
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random = static_cast<std::uint64_t>(now());
  return cat(kTemporary, getpid(), '-', std::hex, random, '-',
             counter.fetch_add(1, std::memory_order_relaxed));
}

/// Returns 0 or errno.
int write_all(int fd, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

CacheDirectory::CacheDirectory(std::string path, bool create) : path_(std::move(path)) {
  if (resolve()) open(create);
}

bool CacheDirectory::refuse(std::string why) {
  reason_ = std::move(why);
  fd_ = Fd();
  return false;
}

bool CacheDirectory::resolve() {
  if (path_.empty()) {
    // Relative values are ignored, as the XDG base directory specification asks. The password database is not
    // asked: it may be far away (LDAP), and a user without HOME is a service that should not litter.
    const char* xdg = environment_variable("XDG_CACHE_HOME");
    const char* home = environment_variable("HOME");
    if (xdg && *xdg == '/') {
      path_ = std::string(xdg) + "/kiln";
    } else if (home && *home == '/') {
      struct stat info;
      if (geteuid() == 0 && ::stat(home, &info) == 0 && info.st_uid != 0)
        return refuse(
            cat("HOME (", home, ") belongs to another user than root"));  // sudo: leave no root's files
      path_ = std::string(home) + "/.cache/kiln";
    } else {
      return refuse("neither XDG_CACHE_HOME nor HOME names a directory");
    }
  }
  path_ = normal(path_);
  return !path_.empty() || refuse("the directory's name cannot be resolved");
}

/// Looks at the parents as they are named and as they are without links, and that they lead to the open
/// directory.
std::string CacheDirectory::changeable_parent_of_open() const {
  if (std::string parent = changeable_parent(path_); !parent.empty()) return parent;
  std::error_code error;
  const std::string real = std::filesystem::canonical(path_, error).string();
  struct stat there, here;
  if (error || ::stat(real.c_str(), &there) != 0 || fstat(fd_.get(), &here) != 0 ||
      there.st_ino != here.st_ino || there.st_dev != here.st_dev)
    return path_;
  return changeable_parent(real);
}

bool CacheDirectory::open(bool create) {
  if (create) {
    if (const int error = make_directories(path_))
      return refuse(cat("cannot make ", path_, ": ", message(error)));
  }
  fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!fd_) {
    const int error = errno;
    if (lstat(path_.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
      return refuse(path_ + " is a symbolic link");
    return refuse(cat("cannot open ", path_, ": ", message(error)));
  }
  if (fstat(fd_.get(), &info) != 0) return refuse(cat("cannot read ", path_, ": ", message(errno)));
  if (info.st_uid != geteuid())
    return refuse(cat(path_, " belongs to user ", info.st_uid, ", not to user ", geteuid()));
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return refuse(path_ + " is writable by other users (chmod 700 it)");
  if (const std::string parent = changeable_parent_of_open(); !parent.empty())
    return refuse(cat("other users may replace what is in ", parent, ", which ", path_, " lies in"));
  writable_ = create && faccessat(fd_.get(), ".", W_OK | X_OK, AT_EACCESS) == 0;
  if (create && !writable_) reason_ = path_ + " is read-only";
  return true;
}

CacheDirectory::Read CacheDirectory::read(const char* name, std::size_t limit, bool touch,
                                          std::vector<std::uint8_t>& bytes) const {
  // O_NONBLOCK: a FIFO under the entry's name must not hang us.
  const Fd file(openat(fd_.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return errno == ELOOP || errno == ENXIO ? Read::Bad : Read::Absent;
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) || info.st_size < 0 ||
      static_cast<std::uint64_t>(info.st_size) > limit)
    return Read::Bad;
  bytes.resize(static_cast<std::size_t>(info.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Read::Bad;
    done += static_cast<std::size_t>(n);
  }
  if (touch && now() - nanoseconds(info.st_mtim) > kTouch) futimens(file.get(), nullptr);
  return Read::Ok;
}

int CacheDirectory::write(const char* name, std::span<const std::uint8_t> bytes) const {
  const std::string temporary = temporary_name();
  int error = 0;
  {
    Fd file(openat(fd_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return errno;
    error = write_all(file.get(), bytes);
    // No fsync: after a power cut a torn entry is a checksum error, which is a miss. close reports NFS's
    // errors.
    if (close(file.release()) != 0 && !error && errno != EINTR) error = errno;
  }
  if (!error && renameat(fd_.get(), temporary.c_str(), fd_.get(), name) != 0) error = errno;
  if (error) unlinkat(fd_.get(), temporary.c_str(), 0);
  return error;
}

bool CacheDirectory::remove(const char* name) const { return unlinkat(fd_.get(), name, 0) == 0; }

std::vector<CacheFile> CacheDirectory::scan(std::string_view suffix) const {
  std::vector<CacheFile> files;
  // A descriptor of its own: fdopendir takes it over, and its position must not be shared between threads.
  Fd own(openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return files;
  DIR* raw = fdopendir(own.get());
  if (!raw) return files;
  own.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(raw, closedir);
  const std::int64_t stale_before = now() - kStale;
  while (const dirent* found = readdir(stream.get())) {
    const std::string_view name = found->d_name;
    const bool temporary = name.starts_with(kTemporary);
    if (!temporary && !name.ends_with(suffix)) continue;
    struct stat info;
    if (fstatat(fd_.get(), found->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      continue;
    const std::int64_t used = nanoseconds(info.st_mtim);
    if (!temporary)
      files.push_back({found->d_name, static_cast<std::uint64_t>(info.st_size), used});
    else if (writable_ && used < stale_before)
      remove(found->d_name);
  }
  return files;
}

}  // namespace kiln::engine
