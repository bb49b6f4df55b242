// The safetensors format: 8 bytes header length (little-endian), a header in JSON, the elements of all
// tensors.
//
//   {"__metadata__": {"name": "text"}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//   …} Offsets count from the end of the header; the ranges fill the rest of the file without gap or overlap.
//   https://huggingface.co/docs/safetensors
#pragma once

#include "io/file.h"

#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace kiln::io {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the beginning of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin
  std::map<std::string, std::string> metadata;
  std::uint64_t data = 0;  // where the data begins in the file
};

/// Reads and checks the header of a whole file: afterwards every range lies in the file, is apart from the
/// others and has its tensor's size. Allocates in proportion to the header, which is a part of `file`.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const Where& where);
/// The length and the header for tensors written one after the other in the order of `entries` (whose begin
/// and end this sets), padded so that the data is 8-byte aligned. Entries by decreasing element size keep
/// every tensor aligned.
std::string safetensors_header(std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata, const Where& where);

}  // namespace kiln::io
