// Zip archives of arrays (.npz) through libzip: stored and deflated members, checked sums, bounded sizes.
#pragma once

#include "io/file.h"

#include <span>
#include <string>
#include <vector>

struct zip;
struct zip_file;

namespace kiln::io {

/// An archive open for reading. Its members together claim no more bytes than the archive could unpack to, so
/// what they state may be allocated.
class ZipReader {
 public:
  ZipReader(const InputFile& file, Where where);
  ZipReader(std::span<const std::byte> bytes, Where where);
  ZipReader(const ZipReader&) = delete;
  ~ZipReader();

  struct Member {
    std::string name;
    std::uint64_t bytes = 0;  // unpacked
  };
  const std::vector<Member>& members() const { return members_; }
  const Where& where() const { return where_; }
  zip* handle() const { return zip_; }

 private:
  void list(std::uint64_t archive_bytes);
  Where where_;
  zip* zip_ = nullptr;
  std::vector<Member> members_;
};

/// One member, unpacked as it is read.
class ZipSource final : public Source {
 public:
  ZipSource(const ZipReader& reader, std::size_t member);
  ZipSource(const ZipSource&) = delete;
  ~ZipSource() override;
  std::uint64_t remaining() const override { return remaining_; }
  void read(void* to, std::uint64_t bytes) override;
  /// UserError unless the member ended where it said, with the checksum it stated.
  void finish();
  const Where& where() const { return where_; }

 private:
  Where where_;
  zip_file* file_ = nullptr;
  std::uint64_t remaining_ = 0;
};

/// Members to write: a header and the memory behind it. The memory must last until write_zip returns.
struct ZipMember {
  std::string name, header;
  const void* data = nullptr;
  std::uint64_t bytes = 0;
};
/// Writes an archive whole (beside its name, then renamed). Times are fixed: equal contents give equal files.
void write_zip(const std::filesystem::path& path, std::span<const ZipMember> members, bool compressed,
               const Where& where);

}  // namespace kiln::io
