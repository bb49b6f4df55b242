#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace kiln::io {

void Where::fail_system(int error) const {
  const std::string text = cat("[", op, "] ", file, ": ", std::strerror(error));
  switch (error) {
    case EIO:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE: throw DeviceError(text);
    default: throw UserError(text);
  }
}

void SpanSource::read(void* to, std::uint64_t bytes) {
  KILN_CHECK_THAT(bytes <= rest_.size());
  if (bytes != 0) std::memcpy(to, rest_.data(), bytes);
  rest_ = rest_.subspan(bytes);
}

InputFile::InputFile(std::string_view op, const std::filesystem::path& path) : where_{op, path.string()} {
  // Not blocking: opening a pipe that nobody writes to would hang instead of being refused below.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) where_.fail_system(errno);
  struct stat info{};
  const bool known = fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    where_.fail(S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, std::uint64_t bytes) {
  KILN_CHECK_THAT(bytes <= remaining());
  auto* out = static_cast<std::byte*>(to);
  while (bytes != 0) {
    const ssize_t got = ::pread(fd_, out, std::min<std::uint64_t>(bytes, 1u << 30), static_cast<off_t>(at_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) where_.fail_system(errno);
    if (got == 0) where_.fail("became shorter while it was read");
    out += got;
    at_ += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
}

MappedFile::MappedFile(const InputFile& file) {
  if (file.size() == 0) return;
  void* at = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (at == MAP_FAILED) file.where().fail_system(errno);
  bytes_ = {static_cast<const std::byte*>(at), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

OutputFile::OutputFile(std::string_view op, const std::filesystem::path& path)
    : where_{op, path.string()}, path_(path.string()) {
  static std::atomic<unsigned> count{0};
  temporary_ = cat(path_, ".tmp-", getpid(), "-", count.fetch_add(1));
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) where_.fail_system(errno);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* from, std::uint64_t bytes) {
  const auto* in = static_cast<const std::byte*>(from);
  while (bytes != 0) {
    const ssize_t put = ::write(fd_, in, std::min<std::uint64_t>(bytes, 1u << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) where_.fail_system(errno);
    in += put;
    bytes -= static_cast<std::uint64_t>(put);
  }
}

void OutputFile::commit() {
  // Network file systems report a failed write when the file is closed.
  const int closed = ::close(std::exchange(fd_, -1));
  const int error = closed != 0 ? errno : std::rename(temporary_.c_str(), path_.c_str()) != 0 ? errno : 0;
  if (error == 0) return;
  ::unlink(temporary_.c_str());
  where_.fail_system(error);
}

}  // namespace kiln::io
