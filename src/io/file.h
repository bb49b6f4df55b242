// Bytes from outside, and the one way a bad file is complained about: "[load_npy] model/x.npy: what is
// wrong".
//
// Sizes that a file states are never trusted: whoever allocates asks first how many bytes there are to fill
// it with.
#pragma once

#include "support/check.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kiln::io {

/// What is being read or written, for messages: the function the user called, and the file or the part of it.
struct Where {
  std::string_view op;
  std::string file;

  template <class... Args>
  [[noreturn]] void fail(Args&&... why) const {
    throw UserError(cat("[", op, "] ", file, ": ", std::forward<Args>(why)...));
  }
  /// A system call failed with `error`: what the user asked for cannot be had (UserError: no such file), or
  /// the machine cannot do it (DeviceError: no space).
  [[noreturn]] void fail_system(int error) const;
};

/// Bytes read in order.
class Source {
 public:
  virtual ~Source() = default;
  /// Bytes not read yet: an upper bound on what a reader may allocate (but for a constant).
  virtual std::uint64_t remaining() const = 0;
  /// Reads exactly `bytes`; UserError when they are not there. Precondition: bytes <= remaining().
  virtual void read(void* to, std::uint64_t bytes) = 0;
};

/// Memory as a source.
class SpanSource final : public Source {
 public:
  explicit SpanSource(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::uint64_t remaining() const override { return rest_.size(); }
  void read(void* to, std::uint64_t bytes) override;

 private:
  std::span<const std::byte> rest_;
};

/// A regular file, read from its beginning.
class InputFile final : public Source {
 public:
  /// UserError when the file cannot be opened or is not a regular one.
  InputFile(std::string_view op, const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  ~InputFile() override;
  std::uint64_t remaining() const override { return size_ - at_; }
  void read(void* to, std::uint64_t bytes) override;
  std::uint64_t size() const { return size_; }
  int descriptor() const { return fd_; }
  const Where& where() const { return where_; }

 private:
  Where where_;
  int fd_ = -1;
  std::uint64_t size_ = 0, at_ = 0;
};

/// A whole file mapped read-only; the mapping lasts as long as this object. A file that another process
/// shortens meanwhile takes the pages away: reading them is then a SIGBUS, as with any mapping.
class MappedFile {
 public:
  explicit MappedFile(const InputFile& file);
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// A file that appears, or replaces another, whole: written beside its name and renamed when committed.
/// Mappings of a replaced file keep the old contents.
class OutputFile {
 public:
  OutputFile(std::string_view op, const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();
  void write(const void* from, std::uint64_t bytes);
  void commit();

 private:
  Where where_;
  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace kiln::io
