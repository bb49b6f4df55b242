// Tensors in files: .npy and .npz (NumPy), .safetensors.
//
// Loading checks every number of a file: a file that is truncated, contradicts itself or holds a dtype that
// Kiln does not have is a UserError that begins "[load_npy] path: ", thrown before memory is allocated.
// Saving evaluates, writes a temporary file and renames it: a reader sees the old file or the new one. A
// failure of the operating system (no space) is a DeviceError.
#pragma once

#include <kiln/tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace kiln {

/// Tensors by name.
using TensorMap = std::map<std::string, Tensor>;

/// One array of a .npy file: versions 1 to 3, either byte order, C or Fortran order (a transposed view;
/// nothing is moved). dtypes: bool, int8…int64, uint8…uint64, float16, float32, float64; 'V2' is read as
/// bfloat16. UserError for every other dtype (objects are never unpickled).
[[nodiscard]] Tensor load_npy(const std::filesystem::path& path,
                              SourceLocation loc = SourceLocation::current());
/// The same from the bytes of such a file.
[[nodiscard]] Tensor load_npy(std::span<const std::byte> bytes,
                              SourceLocation loc = SourceLocation::current());
/// Writes version 1.0, row-major, little-endian; bfloat16 as '<V2' (ml_dtypes' spelling: in NumPy,
/// `np.load(f).view(ml_dtypes.bfloat16)`).
void save_npy(const std::filesystem::path& path, const Tensor& x,
              SourceLocation loc = SourceLocation::current());

/// All arrays of an .npz archive (members stored or deflated) by their names without ".npy". UserError for
/// a member that is no array.
[[nodiscard]] TensorMap load_npz(const std::filesystem::path& path,
                                 SourceLocation loc = SourceLocation::current());
[[nodiscard]] TensorMap load_npz(std::span<const std::byte> bytes,
                                 SourceLocation loc = SourceLocation::current());
/// Writes an archive of stored members, or deflated ones. The tensors are evaluated together. Equal tensors
/// give equal files.
void save_npz(const std::filesystem::path& path, const TensorMap& tensors, Flag compressed = false,
              SourceLocation loc = SourceLocation::current());

/// A safetensors file: its tensors and its free-form metadata.
struct Safetensors {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
};
/// Maps the file into memory: tensors borrow it, no element is read before it is used, and the mapping lasts
/// until the last of them is gone. (Two exceptions are copied: a tensor that is not aligned to its element
/// size, and a bool tensor with bytes other than 0 and 1.) The file must not be written in place or shortened
/// meanwhile; replacing it, as save_safetensors does, is harmless. UserError for dtypes that Kiln has not,
/// ranges that overlap, leave gaps or leave the file, repeated names, and sizes that contradict shapes.
[[nodiscard]] Safetensors load_safetensors(const std::filesystem::path& path,
                                           SourceLocation loc = SourceLocation::current());
/// The same over memory that `owner` keeps; without an owner every tensor is copied.
[[nodiscard]] Safetensors load_safetensors(std::span<const std::byte> bytes,
                                           std::shared_ptr<const void> owner,
                                           SourceLocation loc = SourceLocation::current());
/// The tensors are evaluated together and lie in the file by decreasing element size, then by name.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const std::map<std::string, std::string>& metadata = {},
                      SourceLocation loc = SourceLocation::current());

}  // namespace kiln
