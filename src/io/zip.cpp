#include "io/zip.h"

#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace kiln::io {
namespace {

/// Deflate packs at most this many bytes into one.
constexpr std::uint64_t kMostPerByte = 1032;

/// An archive without members: all of it is the end of the directory.
constexpr std::string_view kEnd("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);

[[noreturn]] void fail(const Where& where, zip_error_t* error) {
  const std::string text = zip_error_strerror(error);
  const int system = zip_error_system_type(error) == ZIP_ET_SYS ? zip_error_code_system(error) : 0;
  zip_error_fini(error);
  if (system != 0) where.fail_system(system);
  where.fail(text);
}

[[noreturn]] void fail(const Where& where, int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  fail(where, &error);
}

}  // namespace

ZipReader::ZipReader(const InputFile& file, Where where) : where_(std::move(where)) {
  const int own = dup(file.descriptor());
  if (own < 0) where_.fail_system(errno);
  int code = 0;
  zip_ = zip_fdopen(own, ZIP_CHECKCONS, &code);
  if (!zip_) {
    ::close(own);
    fail(where_, code);
  }
  list(file.size());
}

ZipReader::ZipReader(std::span<const std::byte> bytes, Where where) : where_(std::move(where)) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (!source) fail(where_, &error);
  zip_ = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (!zip_) {
    zip_source_free(source);
    fail(where_, &error);
  }
  list(bytes.size());
}

ZipReader::~ZipReader() { zip_discard(zip_); }

void ZipReader::list(std::uint64_t archive_bytes) try {
  if (archive_bytes < kEnd.size()) where_.fail("is too short for a zip archive (", archive_bytes, " bytes)");
  const zip_int64_t count = zip_get_num_entries(zip_, 0);
  std::uint64_t packed = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t info;
    if (zip_stat_index(zip_, static_cast<zip_uint64_t>(i), 0, &info) != 0) where_.fail(zip_strerror(zip_));
    constexpr zip_uint64_t kNeeded =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if ((info.valid & kNeeded) != kNeeded) where_.fail("member ", i, " has no size");
    const std::string name = printable(info.name);
    if ((info.valid & ZIP_STAT_ENCRYPTION_METHOD) && info.encryption_method != ZIP_EM_NONE)
      where_.fail("member '", name, "' is encrypted");
    if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE)
      where_.fail("member '", name, "' is packed by method ", info.comp_method,
                  "; only stored and deflated are read");
    // Members that share bytes, or claim more than their bytes can unpack to, are how a small file asks for a
    // large amount of memory.
    const std::uint64_t most = info.comp_method == ZIP_CM_STORE ? 1 : kMostPerByte;
    if (info.comp_size > archive_bytes - packed || info.size / most > info.comp_size)
      where_.fail("member '", name, "' claims ", info.size, " bytes, more than the archive can hold");
    packed += info.comp_size;
    members_.push_back({info.name, info.size});
  }
} catch (...) {
  zip_discard(zip_);
  throw;
}

ZipSource::ZipSource(const ZipReader& reader, std::size_t member)
    : where_{reader.where().op, cat(reader.where().file, ": ", printable(reader.members()[member].name))},
      remaining_(reader.members()[member].bytes) {
  file_ = zip_fopen_index(reader.handle(), member, 0);
  if (!file_) where_.fail(zip_strerror(reader.handle()));
}

ZipSource::~ZipSource() { zip_fclose(file_); }

void ZipSource::read(void* to, std::uint64_t bytes) {
  KILN_CHECK_THAT(bytes <= remaining_);
  auto* out = static_cast<std::byte*>(to);
  while (bytes != 0) {
    const zip_int64_t got = zip_fread(file_, out, std::min<std::uint64_t>(bytes, 1u << 30));
    if (got < 0) where_.fail(zip_file_strerror(file_));
    if (got == 0) where_.fail("ends early");
    out += got;
    remaining_ -= static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
}

void ZipSource::finish() {
  char more = 0;  // libzip compares the checksum when it meets the end
  const zip_int64_t got = zip_fread(file_, &more, 1);
  if (got < 0) where_.fail(zip_file_strerror(file_));
  if (got > 0) where_.fail("is longer than it says");
}

void write_zip(const std::filesystem::path& path, std::span<const ZipMember> members, bool compressed,
               const Where& where) {
  if (members.empty()) {  // libzip would write no file at all
    OutputFile file(where.op, path);
    file.write(kEnd.data(), kEnd.size());
    return file.commit();
  }
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (!archive) fail(where, code);
  for (const ZipMember& m : members) {
    zip_buffer_fragment_t parts[] = {
        {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(m.header.data())), m.header.size()},
        {static_cast<zip_uint8_t*>(const_cast<void*>(m.data)), m.bytes}};
    zip_source_t* source = zip_source_buffer_fragment(archive, parts, m.bytes == 0 ? 1 : 2, 0);
    const zip_int64_t at = source ? zip_file_add(archive, m.name.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    constexpr zip_uint16_t kDate = (1 << 5) | 1;  // 1 January 1980, the first there is
    if (at < 0 || zip_file_set_dostime(archive, static_cast<zip_uint64_t>(at), 0, kDate, 0) != 0 ||
        zip_set_file_compression(archive, static_cast<zip_uint64_t>(at),
                                 compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0) != 0) {
      if (source && at < 0) zip_source_free(source);
      const std::string why = zip_strerror(archive);
      zip_discard(archive);
      where.fail(why);
    }
  }
  if (zip_close(archive) != 0) {
    zip_error_t error;
    zip_error_init(&error);
    zip_error_set(&error, zip_error_code_zip(zip_get_error(archive)),
                  zip_error_code_system(zip_get_error(archive)));
    zip_discard(archive);
    fail(where, &error);
  }
}

}  // namespace kiln::io
