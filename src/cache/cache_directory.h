// The directory of the disk cache: where it is, whether it can be trusted, and file operations inside it.
//
// Code that a cache file holds is run, so whoever can write the directory runs code as this user. Hence: the
// directory is a real directory (no symbolic link) owned by the effective user and writable by nobody else,
// no other user but root can replace it or a directory above it, and entries are plain files of the user that
// nobody else may write; after it is opened and checked it is used only through its descriptor, so that a
// later swap of the path changes nothing. No function throws except for memory; errors are errno values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::engine {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct CacheFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;  // modification time, nanoseconds since the epoch
};

class CacheDirectory {
 public:
  /// Opens `path` (empty: $XDG_CACHE_HOME/kiln, then $HOME/.cache/kiln), making it (0700) when `create`.
  /// On failure usable() is false and reason() is one line. A directory that `create` asked for but that
  /// takes no files is usable, not writable(), and has a reason() too.
  CacheDirectory(std::string path, bool create);

  bool usable() const { return static_cast<bool>(fd_); }
  bool writable() const { return writable_; }
  const std::string& reason() const { return reason_; }
  const std::string& path() const { return path_; }

  enum class Read { Ok, Absent, Bad };
  /// Reads a whole file in one go. Bad: not a plain file of ours alone, or larger than `limit`, or an I/O
  /// error. A hit is marked as used (its mtime, at most once an hour) when `touch`.
  Read read(const char* name, std::size_t limit, bool touch, std::vector<std::uint8_t>& bytes) const;
  /// Writes a temporary file and renames it; `name` holds all of the bytes or is as before. Returns 0 or
  /// errno.
  int write(const char* name, std::span<const std::uint8_t> bytes) const;
  /// Returns whether this call removed it.
  bool remove(const char* name) const;
  /// The plain files whose name ends in `suffix`. Removes temporaries that a dead writer left, when writable.
  std::vector<CacheFile> scan(std::string_view suffix) const;

 private:
  bool refuse(std::string why);
  bool resolve();
  bool open(bool create);
  std::string changeable_parent_of_open() const;

  std::string path_, reason_;
  Fd fd_;
  bool writable_ = false;
};

}  // namespace kiln::engine
