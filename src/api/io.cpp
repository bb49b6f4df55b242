// Files to tensors and back. The formats are in src/io; here is what becomes of their bytes.
#include <kiln/io.h>

#include "api/record.h"
#include "device/cpu/pool.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/zip.h"

#include <kiln/ops.h>

#include <algorithm>
#include <ranges>

namespace kiln {
namespace {

using io::Where;

constexpr const char* kInMemory = "(memory)";

/// Reads elements into a new tensor. Column-major ones are the rows of the transpose.
Tensor read_array(io::Source& source, const Where& where) {
  const io::NpyHeader header = io::read_npy_header(source, where);
  ir::Buffer* buffer = cpu::allocate(header.bytes);
  const std::shared_ptr<ir::Buffer> hold(buffer, [](ir::Buffer* b) { ir::release(b); });
  io::read_npy_elements(header, source, buffer->data);
  Shape shape = header.shape;
  if (header.fortran_order) std::ranges::reverse(shape);
  ir::retain(buffer);
  const Tensor x = api::leaf(buffer, shape, header.dtype);
  return header.fortran_order ? transpose(x) : x;
}

TensorMap read_arrays(const io::ZipReader& archive) {
  constexpr std::string_view kSuffix = ".npy";
  TensorMap out;
  for (std::size_t i = 0; i < archive.members().size(); ++i) {
    std::string name = archive.members()[i].name;
    if (!name.ends_with(kSuffix)) archive.where().fail("member '", printable(name), "' is not a .npy file");
    name.resize(name.size() - kSuffix.size());
    if (out.contains(name)) archive.where().fail("member '", printable(name), "' twice");
    io::ZipSource source(archive, i);
    out.emplace(std::move(name), read_array(source, source.where()));
    source.finish();
  }
  return out;
}

/// Copies of the handles whose values are computed and lie row-major.
std::vector<Tensor> in_rows(const TensorMap& tensors, std::string_view op) {
  std::vector<Tensor> out;
  for (const auto& [name, x] : tensors) {
    if (!x.valid()) throw UserError(cat("[", op, "] '", printable(name), "' is an empty Tensor"));
    out.push_back(x);
  }
  eval(out);
  for (const Tensor& x : out) static_cast<void>(x.data());
  return out;
}

std::uint64_t bytes_of(const Tensor& x) { return static_cast<std::uint64_t>(x.numel() * size_of(x.dtype())); }

Safetensors borrow_tensors(std::span<const std::byte> file, const std::shared_ptr<const void>& owner,
                           const Where& where) {
  io::SafetensorsHeader header = io::parse_safetensors(file, where);
  Safetensors out;
  out.metadata = std::move(header.metadata);
  for (const io::SafetensorsEntry& e : header.entries) {
    const std::byte* at = file.data() + header.data + e.begin;
    const std::uint64_t bytes = e.end - e.begin;
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(size_of(e.dtype)) == 0;
    Tensor& x = out.tensors[e.name];
    if (is_bool(e.dtype) && !io::are_bools(at, bytes)) {
      std::vector<std::byte> copy(at, at + bytes);
      io::normalise_bools(copy.data(), bytes);
      x = Tensor::copy_of(copy.data(), e.shape, e.dtype);
    } else {
      const bool kept = owner.use_count() != 0;  // without an owner nobody says how long the bytes live
      x = aligned && kept ? Tensor::borrow(at, e.shape, e.dtype, owner)
                          : Tensor::copy_of(at, e.shape, e.dtype);
    }
  }
  return out;
}

}  // namespace

Tensor load_npy(const std::filesystem::path& path, SourceLocation loc) {
  const CallScope scope("load_npy", loc);
  io::InputFile file("load_npy", path);
  return read_array(file, file.where());
}
Tensor load_npy(std::span<const std::byte> bytes, SourceLocation loc) {
  const CallScope scope("load_npy", loc);
  io::SpanSource source(bytes);
  return read_array(source, {"load_npy", kInMemory});
}

/// NumPy has no name for 8-bit floats: one byte of either format would read as the other.
static void require_numpy_dtype(std::string_view op, const Tensor& x) {
  if (is_only_stored(x.dtype()))
    throw UserError(
        cat("[", op, "] NumPy has no ", name(x.dtype()), ": save bitcast(x, DType::UInt8), or astype"));
}

void save_npy(const std::filesystem::path& path, const Tensor& x, SourceLocation loc) {
  const CallScope scope("save_npy", loc);
  const Tensor value = in_rows({{"x", x}}, "save_npy").front();
  require_numpy_dtype("save_npy", value);
  const std::string header = io::npy_header(value.dtype(), value.shape());
  io::OutputFile file("save_npy", path);
  file.write(header.data(), header.size());
  file.write(value.data(), bytes_of(value));
  file.commit();
}

TensorMap load_npz(const std::filesystem::path& path, SourceLocation loc) {
  const CallScope scope("load_npz", loc);
  const io::InputFile file("load_npz", path);
  return read_arrays(io::ZipReader(file, file.where()));
}
TensorMap load_npz(std::span<const std::byte> bytes, SourceLocation loc) {
  const CallScope scope("load_npz", loc);
  return read_arrays(io::ZipReader(bytes, {"load_npz", kInMemory}));
}

void save_npz(const std::filesystem::path& path, const TensorMap& tensors, Flag compressed,
              SourceLocation loc) {
  const CallScope scope("save_npz", loc);
  const Where where{"save_npz", path.string()};
  const std::vector<Tensor> values = in_rows(tensors, where.op);
  std::vector<io::ZipMember> members;
  for (const auto& [name, x] : tensors) {
    if (name.find('\0') != name.npos) where.fail("name '", printable(name), "' has a zero byte");
    const Tensor& value = values[members.size()];
    require_numpy_dtype(where.op, value);
    members.push_back(
        {name + ".npy", io::npy_header(value.dtype(), value.shape()), value.data(), bytes_of(value)});
  }
  io::write_zip(path, members, compressed, where);
}

Safetensors load_safetensors(const std::filesystem::path& path, SourceLocation loc) {
  const CallScope scope("load_safetensors", loc);
  const io::InputFile file("load_safetensors", path);
  const auto mapped = std::make_shared<const io::MappedFile>(file);
  return borrow_tensors(mapped->bytes(), mapped, file.where());
}
Safetensors load_safetensors(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                             SourceLocation loc) {
  const CallScope scope("load_safetensors", loc);
  return borrow_tensors(bytes, owner, {"load_safetensors", kInMemory});
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const std::map<std::string, std::string>& metadata, SourceLocation loc) {
  const CallScope scope("save_safetensors", loc);
  const Where where{"save_safetensors", path.string()};
  const std::vector<Tensor> values = in_rows(tensors, where.op);
  std::vector<io::SafetensorsEntry> entries;
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, x] : tensors) {
    by_name[name] = &values[entries.size()];
    entries.push_back({name, x.dtype(), x.shape()});
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), [](const auto& e) { return size_of(e.dtype); });
  const std::string header = io::safetensors_header(entries, metadata, where);
  io::OutputFile file(where.op, path);
  file.write(header.data(), header.size());
  for (const io::SafetensorsEntry& e : entries) file.write(by_name[e.name]->data(), e.end - e.begin);
  file.commit();
}

}  // namespace kiln
